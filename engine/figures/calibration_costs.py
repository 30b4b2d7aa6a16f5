"""What each operating point costs in the other's terms, on the calibration split: the trade-off that ν was chosen on."""

import numpy as np

from engine.figures._calibration import Calibrated
from engine.figures._charted import Table
from engine.figures._select import Selection
from engine.figures.trade_off import TradeOff

APART = 1.8
"""Ratio of neighbouring ν above which both are named."""
STEPS = 120
"""Places along a bar that a name keeps clear of."""


class CalibrationCosts(Calibrated, TradeOff):
    """The trade-off over the ν that calibration scored; an operating point that was not scored is named, never placed."""

    key = "calibration_costs"
    title = "What does each choice of ν cost?"
    hint = ""
    ring = ""

    def named(self, table: Table, y: str) -> set[int]:
        """The points that are spoken of, the ends, and others as far as a factor lies between them: a search crowds about its answer."""
        spoken = table[(table["operating_point"] != "") | (table[y].abs() == table[y].abs().min())]["nu"].tolist()
        kept = set(spoken)
        for nu in [table["nu"].min(), table["nu"].max(), *table["nu"]]:
            if all(max(nu, other) / min(nu, other) >= APART for other in kept):
                kept.add(int(nu))
        return kept

    def obstacles(self, table: Table, y: str) -> list[tuple[float, float]]:
        """The bars: so many crowd here that names would lie on them."""
        found: list[tuple[float, float]] = []
        for r in table[["crps_fair", "crps_fair_low", "crps_fair_high", y, f"{y}_low", f"{y}_high"]].dropna().itertuples(index=False):
            found += [(float(x), float(r[3])) for x in np.linspace(r[1], r[2], STEPS)]
            found += [(float(r[0]), float(v)) for v in np.linspace(r[4], r[5], STEPS)]
        return found

    def message(self, s: Selection, best: int, sharp: int, table: Table) -> str:
        """As for a sweep; a point that was not scored is said to be."""
        unscored = [n for n in dict.fromkeys(int(p["nu"]) for p in s.points.values()) if n not in table["nu"].tolist()]
        text = super().message(s, best, sharp, table)
        return f"{text}; {' and '.join(s.label(n) for n in unscored)} was not scored" if unscored else text


ENTRIES = (CalibrationCosts(),)
