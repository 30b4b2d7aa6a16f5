"""The app: `streamlit run app.py`. Routes, the guard in front of them, and the loop that looks after the queue.

Pages live in `pages/`, and the main script is `pages/_frame.py`, which finds them. It must not be this file: a main
script with a folder `pages/` beside it falls into Streamlit's older way of finding pages when the first visit after a
start is a deep link.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import streamlit as st
import streamlit.net_util
from starlette.middleware import Middleware
from starlette.routing import Route

ROOT = Path(__file__).resolve().parent
if str(ROOT) not in sys.path:  # the app may be started from any folder
    sys.path.insert(0, str(ROOT))

import engine  # noqa: E402
from pages._web.files import export, run_file  # noqa: E402
from pages._web.guard import Guard  # noqa: E402
from pages._web.receive import receive  # noqa: E402

log = logging.getLogger("nuscope.app")

# Streamlit asks a host outside for this machine's address, to compare it with the one a browser names. Nothing leaves.
st.net_util.get_external_ip = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
PERIOD = 2.0
"""Seconds between two looks at the queue. Runs go on without this process; it only starts what waits."""


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[None]:
    """Look after the queue while the server runs, so that a run goes on with no page open."""

    async def look_after() -> None:
        while True:
            try:
                await asyncio.to_thread(engine.dispatch)
            except Exception:  # the loop must outlive a full disk or a locked table
                log.exception("looking after the queue")
            await asyncio.sleep(PERIOD)

    task = asyncio.create_task(look_after())
    # a thread that ends with the server: it times the demo's model once, so that pages can say how long the demo takes here
    threading.Thread(target=engine.measure_demo, daemon=True).start()
    try:
        yield None
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


ROUTES = [
    Route("/upload/{upload}/{name}", receive, methods=["PUT", "GET"]),
    Route("/results/{key}/{name}", run_file),
    Route("/export/{key}/{figure}.{fmt}", export),
]
app = st.App(str(ROOT / "pages" / "_frame.py"), lifespan=lifespan, routes=ROUTES, middleware=[Middleware(Guard)])
