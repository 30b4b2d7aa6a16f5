"""Single examples: the mistakes that a method was surest of, and the paths or members behind one of them."""

from typing import Any

import numpy as np
import streamlit as st

from pages._parts.cards import plain
from pages._parts.chart import chart
from pages._parts.classification import Classified
from pages._parts.words import percent

SHOWN = 8
"""Tiles in the gallery."""
SIDE = 112
"""Pixels of a tile's picture, at least."""


def mistakes(c: Classified) -> list[int]:
    """The kept examples that the method gets wrong, the surest first, as ids of cases."""
    said, confidence, observed = c.forecasts(c.entry)
    position = {int(case): i for i, case in enumerate(c.verification["case"].values)}
    wrong = [e for e in examples(c) if said[position[e]] != observed[position[e]]]
    return sorted(wrong, key=lambda e: -confidence[position[e]])


def examples(c: Classified) -> list[int]:
    """Ids of the cases that were kept to be shown one by one."""
    return [int(e) for e in c.verification["example"].values] if "example" in c.verification.coords else []


def picture(c: Classified, example: int) -> np.ndarray | None:
    """An example's image, enlarged without blur; None where it is no image."""
    if "example_image" not in c.verification:
        return None
    image = np.asarray(c.verification["example_image"].sel(example=example).values, np.uint8)
    times = max(1, -(-SIDE // max(image.shape[:2])))
    image = image.repeat(times, 0).repeat(times, 1)
    return image[..., 0] if image.shape[-1] == 1 else image[..., :3]


def verdict(c: Classified, example: int) -> tuple[str, str]:
    """(what it said, what it is)."""
    at = c.verification.sel(case=example)
    p, names = at["probability"].sel(entry=c.entry).values, c.verification["class"].values
    observed = int(at["observed"])
    truth = str(names[observed]) if observed >= 0 else "unknown"
    said = int(p.argmax())
    return (
        f"Says {names[said]}: {percent(float(p[said]))}",
        f"Is {truth}: {percent(float(p[observed]))}" if observed >= 0 else f"Is {truth}",
    )


def tile(c: Classified, example: int) -> None:
    """One mistake, and the button that opens it."""
    image = picture(c, example)
    with st.container(border=True, key=f"tile_{example}", width=160 if image is not None else 320, gap="xsmall"):
        said, truth = verdict(c, example)
        if image is not None:
            st.image(image, width=SIDE, alt=f"Example {example}: {said}. {truth}.")
        else:
            st.text(text_of(c, example)[:200])
        plain(said, "nu-said")
        plain(truth)
        if st.button("Look closer", key=f"look_{example}", type="tertiary"):
            st.session_state["pick_example"] = example


def text_of(c: Classified, example: int) -> str:
    """An example's words; nothing where it has none."""
    return str(c.verification["example_text"].sel(example=example).item()) if "example_text" in c.verification else ""


def gallery(c: Classified) -> None:
    """The surest mistakes; then one example and its paths."""
    kept = examples(c)
    if not kept or "path_probability" not in c.verification:
        plain("This run kept no single examples.")
        return
    wrong = mistakes(c)
    if not wrong:
        plain(f"{c.title(c.entry)} gets all {len(kept)} {c.noun} right that this run kept.", "nu-lead")
    else:
        plain(
            f"Of the {len(kept)} {c.noun} that were kept to be looked at, {c.title(c.entry)} gets {len(wrong)} wrong, the surest first. "
            "They were picked for their mistakes; how often it errs is said above."
        )
        with st.container(horizontal=True, gap="small", key="gallery"):
            for example in wrong[:SHOWN]:
                tile(c, example)
    if st.session_state.get("pick_example") not in kept:
        st.session_state["pick_example"] = (wrong or kept)[0]
    example: Any = st.selectbox("Example", kept, format_func=lambda e: _label(c, e), key="pick_example")
    if words := text_of(c, example):
        st.text(words)
    chart("example_paths", c, entry=c.entry, example=int(example))


def _label(c: Classified, example: int) -> str:
    said, truth = verdict(c, example)
    return f"{example} · {said} · {truth}"
