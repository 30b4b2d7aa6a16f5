"""The grid of ν: presets for most, chips for the rest."""

import streamlit as st

PRESETS: dict[str, tuple[int, ...]] = {
    "Quick look": (1, 4, 16, 64),
    "Standard": (1, 2, 4, 8, 16, 32, 64, 256),
    "Wide": (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 65536),
}


def nu_grid() -> tuple[int, ...]:
    """Values of ν to sweep; every extra chip costs about as much as the others."""
    left, right = st.columns([2, 3])
    name = left.segmented_control("Values of ν", list(PRESETS), default="Standard", required=True, key="nu_preset", persist_state="session")
    preset = PRESETS[name or "Standard"]
    more = right.multiselect(
        "ν in this sweep", preset, default=preset, key=f"nu_chips_{name}", accept_new_options=True, persist_state="session",
        help="Whole numbers from 1 to 1,000,000. Type a number to add it.",
    )  # fmt: skip
    return tuple(int(n) if str(n).strip().isdigit() else n for n in more)  # a wrong word is left for the schema to refuse by name
