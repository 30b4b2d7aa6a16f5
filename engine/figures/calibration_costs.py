"""What each operating point costs in the other's terms, on the calibration split: the trade-off that ν was chosen on."""

from engine.figures._calibration import Calibrated
from engine.figures._charted import Table
from engine.figures._select import Selection, operating_points
from engine.figures.trade_off import TradeOff

APART = 1.8
"""Ratio of neighbouring ν above which both are named."""


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

    def message(self, s: Selection, best: int, sharp: int, table: Table) -> str:
        """As for a sweep; a point that was not scored is said to be."""
        unscored = [n for n in dict.fromkeys(operating_points(s.verification).values()) if n not in table["nu"].tolist()]
        text = super().message(s, best, sharp, table)
        return f"{text}; {' and '.join(s.label(n) for n in unscored)} was not scored" if unscored else text


ENTRIES = (CalibrationCosts(),)
