"""The frame of every page: navigation over the files beside this one, the look, run and ν in the address, and faults shown as cards.

A page is one file `NN_name.py` here: NN is its place in the menu, its first lines may say `TITLE` and `ICON`.
"""

import ast
import logging
import sys
from pathlib import Path

import streamlit as st

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from engine.errors import EngineError  # noqa: E402
from pages._parts import choice  # noqa: E402
from pages._parts.cards import error_card, fault_card  # noqa: E402
from pages._parts.theme import ASSETS, sheet  # noqa: E402
from pages._parts.touch import touch  # noqa: E402

log = logging.getLogger("nuscope.pages")


def constants(path: Path) -> dict[str, str]:
    """`TITLE` and `ICON` of a page, read without running it."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = str(node.value.value)
    return found


def listed() -> list[st.Page]:
    """The pages, in the order of their numbers; the first is the start."""
    found = []
    for path in sorted(HERE.glob("[0-9]*_*.py")):
        name = path.stem.partition("_")[2]
        said = constants(path)
        found.append(st.Page(path, title=said.get("TITLE", name.capitalize()), icon=said.get("ICON"), url_path=name, default=not found))
    return found


# the icon first: else the browser is sent outside for the page's own symbol as its icon
st.set_page_config(page_icon=str(ASSETS / "logo.png"), layout="wide")
page = st.navigation(listed(), position="top")
st.set_page_config(page_title=f"{page.title} · Nuscope", page_icon=str(ASSETS / "logo.png"))
st.logo(str(ASSETS / "logo.svg"), size="large")
sheet()
touch()
choice.carry()
try:
    page.run()
except EngineError as refusal:
    error_card(refusal)
except Exception as fault:
    log.exception("page %s", page.title)
    fault_card(fault)
