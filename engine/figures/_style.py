"""The shared look: colours that hold for the colour-blind on light and dark paper, number formats, and the footer of every figure.

The colour maps are batlow and vik of F. Crameri's Scientific colour maps (MIT licence), sampled at 33 points and written down here, so
that the process which draws for the screen needs no matplotlib.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from engine.formatting import number as number
from engine.formatting import percent as percent


@dataclass(frozen=True)
class Theme:
    """Colours by role, and the paper that a page is printed on (the screen's is transparent)."""

    ink: str
    muted: str
    grid: str
    accent: str
    second: str
    good: str
    paper: str
    missing: str
    coast: str

    def colour(self, role: str) -> str:
        """The value of a role."""
        return str(getattr(self, role))


LIGHT = Theme("#1b2530", "#56626d", "#e4e8ec", "#0b6e99", "#c4510b", "#1b7f4b", "#ffffff", "#d3d7da", "#1b2530")
DARK = Theme("#eef2f5", "#aab6c0", "#37414b", "#5cc3f0", "#ffa657", "#67d69b", "#0e1117", "#4a525a", "#f4f6f8")
FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"

BATLOW: Sequence[str] = (
    "#011959 #08255b #0d315d #0f3b5f #114360 #134b61 #175262 #1b5962 #226061 #2b655e #356a59 "
    "#416f53 #4d734d #5a7745 #677b3e #747e38 #828231 #91862d #a18a2b #b18d2f #c09036 #cf9340 "
    "#dd954d #e9995c #f29d6d #f9a380 #fca993 #fdafa5 #fdb4b6 #fdbac7 #fcc0d8 #fbc6ea #faccfa"
).split()
VIK: Sequence[str] = (
    "#001261 #021f69 #022b71 #023779 #034481 #055189 #0c5e92 #1c6d9c #307da6 #488db2 #619ebd "
    "#7aaec8 #94bed2 #adcddd #c6dbe6 #dee6e9 #ece5e0 #eed9cd #e9cab8 #e2baa2 #dbaa8d #d59b79 "
    "#cf8c66 #c97e53 #c27041 #bc622f #b2511d #a33e0d #912d06 #811f06 #731406 #650907 #590008"
).split()

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def theme(dark: bool) -> Theme:
    """The theme of a background."""
    return DARK if dark else LIGHT


def rgba(colour: str, alpha: float) -> str:
    """A hex colour with opacity, as plotly wants it."""
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},{alpha:g})"


def mix(scale: Sequence[str], place: float) -> str:
    """The colour at `place` in [0, 1] of a scale."""
    at = min(max(place, 0.0), 1.0) * (len(scale) - 1)
    i = min(int(at), len(scale) - 2)
    pairs = ((int(scale[i][k : k + 2], 16), int(scale[i + 1][k : k + 2], 16)) for k in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * (at - i)):02x}" for a, b in pairs)


def diverging(low: float, high: float, centre: float, steps: int = 33) -> list[str]:
    """The part of vik that [low, high] needs when its white lies at `centre` and both sides have one slope."""
    reach = max(abs(low - centre), abs(high - centre)) or 1.0
    first, last = 0.5 + (low - centre) / (2 * reach), 0.5 + (high - centre) / (2 * reach)
    return [mix(VIK, first + (last - first) * i / (steps - 1)) for i in range(steps)]


def simultaneous(bars: int) -> float:
    """Standard deviations within which all of so many bars stay together in 95% of honest histograms (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.025 / bars)


def pretty_units(units: str) -> str:
    """`m s-1` → `m s⁻¹`; nothing for a pure number."""
    if units in ("", "1"):
        return ""
    return " ".join(
        w if w[0].isdigit() else w.rstrip("-0123456789") + w[len(w.rstrip("-0123456789")) :].translate(_SUPERSCRIPT) for w in units.split()
    )


def in_units(units: str) -> str:
    """` (m)` for an axis label, nothing for a pure number."""
    return f" ({pretty_units(units)})" if pretty_units(units) else ""


def wrap(text: str, columns: int) -> list[str]:
    """Lines of at most so many characters."""
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]
