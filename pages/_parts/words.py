"""Numbers in plain words."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import engine
from engine import judging

if TYPE_CHECKING:
    import xarray as xr

POINTS = judging.POINTS
STATUS = {"queued": "waiting", "running": "running", "done": "done", "failed": "failed", "cancelled": "cancelled"}
MINUS = "\N{MINUS SIGN}"


def number(value: float) -> str:
    """Three significant digits, with a true minus."""
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return (f"{float(text):g}" if "e" in text else text).replace("-", MINUS)


def percent(value: float) -> str:
    """A share without decimals; never rounded to a full 100 %."""
    return f"{100 * value:.1f}%" if 0.995 <= value < 1 or 0 < value < 0.01 else f"{100 * value:.0f}%"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 90:
        return f"{max(whole, 1)} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """`3.4 MB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{max(count / 1e3, 0.1):.1f} kB"


def when(seconds: float) -> str:
    """A local time to the minute."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def moment(iso: str) -> str:
    """`0012-02-03T00:00:00` → `0012-02-03 00:00`; text, since the calendar need not be ours."""
    return iso.replace("T", " ")[:16]


def variable_title(name: str) -> str:
    """`geopotential_height_500` → `Geopotential height, 500 hPa`."""
    stem, _, level = name.rpartition("_")
    return f"{stem.replace('_', ' ').capitalize()}, {level} hPa" if level.isdigit() and stem else name.replace("_", " ").capitalize()


def region_title(name: str) -> str:
    """`northern extratropics` → `Northern extratropics`."""
    return name.replace("_", " ").capitalize()


def headline(verification: "xr.Dataset", nu: int, **where: Any) -> str:
    """What a run at one ν says, in one plain sentence."""
    at = verification.sel(nu=nu, **where)
    members, unit = int(verification.attrs["members"]), str(at["unit"].item())
    name, word = engine.at_nu(verification.attrs, nu), "at" if engine.has_nu(verification.attrs) else "by"
    if "coverage_95" not in at or "width_95" not in at:  # a run may have been asked for fewer scores
        return f"An ensemble of {members} {word} {name}; this run was not asked for coverage and width."
    held = judging.coverage_sentence(verification.attrs, *(float(at[f"coverage_95{end}"]) for end in ("", "_low", "_high")))
    return f"{'At' if word == 'at' else 'With'} {name}, {held}. The range is {number(float(at['width_95']))} {unit} wide on average."
