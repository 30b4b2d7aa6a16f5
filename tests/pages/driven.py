"""A page driven without a browser: opened by its file and address, and what it shows read back."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]
FRAME = str(ROOT / "pages" / "_frame.py")


def fake(name: str, **changes: Any) -> Any:
    """`make(**changes)` of a module in `tests`, loaded once: `fake_calibration`, `fake_classification`."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].make(**changes)


def visit(page: str, **query: str) -> AppTest:
    """The app, gone to this page with this address."""
    at = AppTest.from_file(FRAME, default_timeout=60)
    at.run()
    for name, value in query.items():
        at.query_params[name] = value
    return at.switch_page(page).run()


def written(at: AppTest) -> str:
    """Everything that is written on a page, whatever it is."""
    kinds = (at.html, at.text, at.markdown, at.caption, at.warning, at.error, at.code)
    return "\n".join(str(getattr(e, "value", None) or getattr(e, "body", None) or e.proto.body) for kind in kinds for e in kind)


def text_of(at: AppTest) -> str:
    """Everything that is written, of a page on which nothing failed."""
    found = written(at)
    assert not at.exception and "A fault of this program" not in found
    return found


def charts(at: AppTest) -> list[str]:
    """The drawings' specifications."""
    return [e.proto.spec for e in at.get("plotly_chart")]


def keys(at: AppTest) -> set[str]:
    """Keys of the buttons."""
    return {b.key for b in at.button}
