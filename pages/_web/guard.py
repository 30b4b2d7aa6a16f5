"""The guard in front of every request: which hosts are answered, and what a page of this app may load.

A page gets everything from this server and nothing from outside; the browser enforces it by the policy sent here.
"""

import ipaddress
import socket
from typing import Any

import streamlit.config
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

# Streamlit's page starts with one inline script and styles itself at run time; its components and workers are modules
# made in the page (blob:). Nothing else is needed, and nothing from outside is allowed.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' ws://{host} wss://{host} blob: data:; worker-src 'self' blob:; "
    "media-src 'self' blob:; frame-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def host_name(host: str) -> str:
    """The name of a Host header without its port."""
    return host[1 : host.index("]")] if host.startswith("[") and "]" in host else host.rpartition(":")[0] or host


def answers(host: str) -> bool:
    """Whether this server goes by that name.

    A web site elsewhere can point a name of its own at this machine and so reach it through a visitor's browser (DNS
    rebinding). It cannot do so with a bare address, this machine's name, or a name its owner listed.
    """
    name = host_name(host).lower().rstrip(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        listed = [str(h).lower() for h in streamlit.config.get_option("server.allowedHosts") or ()]
        address = str(streamlit.config.get_option("browser.serverAddress") or "").lower()
        wild = any(h == "*" or (h.startswith("*.") and name.endswith(h[1:])) for h in listed)
        return wild or name in {"localhost", "testserver", socket.gethostname().lower(), address, *listed} or name.endswith(".localhost")
    return True


class Guard:
    """ASGI middleware; plain ASGI, since it also stands before the websocket and must not buffer what streams."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse unknown hosts; add the headers to every answer."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        if not answers(host):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            text = "This server does not answer to that host name. Its owner can list names in Streamlit's option server.allowedHosts.\n"
            await PlainTextResponse(text, status_code=421)(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = POLICY.format(host=host)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await self.app(scope, receive, with_headers)
