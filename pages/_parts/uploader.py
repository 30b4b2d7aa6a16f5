"""Bring a file: from this computer, in pieces that survive a broken line, or from a folder that the server's owner allows."""

from pathlib import Path
from typing import Any

import streamlit as st

import engine
from pages._parts.cards import plain
from pages._parts.words import size
from pages._web import memory, uploads

HERE = Path(__file__).resolve().parent
_component = st.components.v2.component(
    "nuscope_uploader", html="<div class='drop'></div>", css=(HERE / "uploader.css").read_text(), js=(HERE / "uploader.js").read_text()
)


def token() -> str:
    """This browser's upload token: the session's, else that of its cookie, else a new one."""
    if uploads.owner(st.session_state.get("_token", "")) is None:
        brought = str(st.context.cookies.get(memory.cookie()) or "")
        st.session_state["_token"] = brought if uploads.owner(brought) is not None else uploads.grant()
    return st.session_state["_token"]


def bring(role: str, label: str, *, several: bool = False, kind: str, hint: str = "") -> tuple[Path, ...]:
    """Files for one role; `kind` is what the engine's `endings` calls it.

    What was brought is remembered: on other pages, after errors, and after a reload of the page.
    """
    if f"_files_{role}" not in st.session_state:
        st.session_state[f"_files_{role}"] = memory.recall(token(), role)
    kept: dict[str, Path] = st.session_state[f"_files_{role}"]
    with st.container(key=f"bring_{role}", gap="small"):
        st.html(f"<p class='nu-lead'><b>{label}</b></p>")
        if hint:
            plain(hint)
        endings = engine.endings(kind)
        offered = [p for p in uploads.offered() if p.name.lower().endswith((*endings, *engine.folders(kind)))]
        if offered:
            _from_folder(role, offered, kept, several)
        data = {"token": token(), "cookie": memory.cookie(), "endings": list(endings), "limit": st_limit()}
        data |= {"several": several, "label": label}
        answer: Any = _component(key=f"up_{role}", data=data, on_brought_change=lambda: None, height="content")
        if answer and answer.get("brought"):
            for item in answer["brought"]:
                file = uploads.find(str(item["id"]), str(item["name"]))
                if not several:
                    kept.clear()
                kept[file.name] = file.path
        for name, path in list(kept.items()):
            left, right = st.columns([8, 1], vertical_alignment="center", wrap=False)
            left.text(f"{name} · {size(path.stat().st_size) if path.is_file() else 'folder'}")
            if right.button("Remove", key=f"drop_{role}_{name}", type="tertiary"):
                del kept[name]
                _remember(role, kept)
                st.rerun()
    _remember(role, kept)
    return uploads.together(tuple(kept.values()))


def _remember(role: str, kept: dict[str, Path]) -> None:
    """Write down what was brought, where that has changed."""
    now = (token(), tuple(kept.items()))
    if st.session_state.get(f"_noted_{role}", (token(), ())) != now:
        memory.remember(token(), role, kept)
        st.session_state[f"_noted_{role}"] = now


def st_limit() -> int:
    """Largest upload in bytes."""
    from engine.settings import settings

    return settings().upload_limit


def _from_folder(role: str, offered: list[Path], kept: dict[str, Path], several: bool) -> None:
    def take() -> None:
        path = st.session_state[f"folder_{role}"]
        if path is not None:
            if not several:
                kept.clear()
            kept[path.name] = path

    st.selectbox(
        "From this server's folders", offered, index=None, format_func=lambda p: f"{p.parent.name}/{p.name}",
        key=f"folder_{role}", on_change=take, placeholder="Choose a file",
    )  # fmt: skip
