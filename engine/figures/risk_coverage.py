"""Risk over coverage: how many mistakes are left when only the surest answers are given, and the others are handed on."""

from statistics import NormalDist

import numpy as np

from engine.errors import SpecError
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Note, Panel
from engine.figures._charted import Table
from engine.figures._classes import Classified, ClassSelection, classes, confidences, is_control, one_of
from engine.figures._select import Selection, between
from engine.figures._style import percent
from engine.kernels.detection import risk_coverage

MOST = 4
COLOURS = ("second", "ink", "accent", "good")
FEWEST = 20
"""Answers below which an error rate is not drawn: it would jump about."""
PLACES = 400
"""Points of a curve that are drawn."""


class RiskCoverage(Classified):
    """Error rate among the most confident share, for up to four `entries` (the first one with a band), beside a perfect ranking."""

    key = "risk_coverage"
    title = "How many mistakes are left if it answers only when it is sure?"
    accepts = frozenset({"entries"})

    def table(self, s: Selection) -> Table:
        """One row an entry and coverage; `ideal` is the error rate if all right answers were surer than all wrong ones."""
        import pandas as pd

        c, parts = classes(s), []
        for entry in self._entries(c):
            stated, correct = confidences(c, entry)
            curve = risk_coverage(stated, correct)
            answered = curve.coverage * len(stated)
            kept = answered >= min(FEWEST, len(stated))
            share, risk, answered = curve.coverage[kept], curve.risk[kept], answered[kept]
            low, high = _wilson(risk, answered)
            ideal = np.maximum(0, share - correct.mean()) / share
            parts.append(pd.DataFrame({"entry": entry, "coverage": share, "error_rate": risk, "low": low, "high": high, "ideal": ideal}))
        return pd.concat(parts, ignore_index=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """A line an entry; names stand where the curves are not: above them on the left."""
        c = classes(s)
        top = 1.25 * float(table["error_rate"].max()) or 0.1
        layers: list[Layer] = []
        entries = self._entries(c)
        for row, (entry, colour) in enumerate(zip(entries, COLOURS, strict=False)):
            part = table[table["entry"] == entry]
            part = part.iloc[np.unique(np.linspace(0, len(part) - 1, PLACES).astype(int))]
            x, y = part["coverage"].tolist(), part["error_rate"].tolist()
            if row == 0:
                layers.append(Line(x, part["ideal"].tolist(), colour="muted", dash=True, width=1.4))
                layers.append(Band(x, part["low"].tolist(), part["high"].tolist(), colour=colour, strength=0.14))
            hover = [f"{c.name(entry)}<br>answers {percent(a)}: {percent(b, 1)} wrong" for a, b in zip(x, y, strict=True)]
            layers.append(Line(x, y, colour=colour, width=2.6 if row == 0 else 1.8, hover=hover))
            layers.append(Note(0.02, top, f"— {c.name(entry)}", colour=colour, shift=-(14 + 19 * row), bold=row == 0))
        layers.append(Note(0.02, top, "- - a perfect order of its answers", colour="muted", shift=-(14 + 19 * len(entries))))
        panel = Panel(
            Axis("share of examples it answers, the surest first", (0, 1.0), percent=True),
            Axis("share of them wrong", (0, top), percent=True),
            tuple(layers),
        )
        footer = c.footer(
            "order: greatest probability, ties at once; no point under 20 answers",
            "band: 95% Wilson interval at each share",
            entries=entries,
        )
        return Chart(self.message(table, s), c.subject(), footer, (panel,), height=460)

    @staticmethod
    def _entries(c: ClassSelection) -> list[str]:
        named = c.options.get("entries")
        if named is None:
            rest = [c.teacher, *(e for e in c.entries if not is_control(e))]
            return list(dict.fromkeys([c.entry, *(e for e in rest if e in c.entries)]))[:MOST]
        chosen = [str(one_of("entries", e, c.entries)) for e in ([named] if isinstance(named, str) else named)]
        if not 1 <= len(set(chosen)) <= MOST:
            raise SpecError(
                "figure option entries", found=f"{len(set(chosen))} entries", expected=f"one to {MOST}", remedy="Choose fewer of them."
            )
        return list(dict.fromkeys(chosen))

    @staticmethod
    def _at(table: Table, entry: str, share: float) -> tuple[float, float, float]:
        part = table[table["entry"] == entry]
        row = part.iloc[int((part["coverage"] - share).abs().argmin())]
        return float(row["error_rate"]), float(row["low"]), float(row["high"])

    def message(self, table: Table, s: Selection) -> str:
        """Error among the surest half and among all."""
        c = classes(s)
        entry = self._entries(c)[0]
        half, every = self._at(table, entry, 0.5)[0], self._at(table, entry, 1.0)[0]
        if table.loc[table["entry"] == entry, "coverage"].min() > 0.5:
            return f"{c.name(entry)} gets {percent(every, 1)} wrong; too few examples ({c.cases:,}) to say how its surest half does"
        return f"{c.name(entry)} gets {percent(every, 1)} wrong, but {percent(half, 1)} of the half it is surest of"

    def words(self, table: Table, s: Selection) -> str:
        """Error at 50, 80 and 100% and the area, per entry."""
        c, said = classes(s), []
        for entry in self._entries(c):
            at = ", ".join(
                f"{percent(share)} answered: {percent(v, 1)} ({percent(lo, 1)} … {percent(hi, 1)})"
                for share in (0.5, 0.8, 1.0)
                for v, lo, hi in [self._at(table, entry, share)]
            )
            area = f"; AURC {between(*c.ends('aurc', entry))}" if "aurc" in c.verification else ""
            said.append(f"{c.name(entry)}, M = {c.members_of(entry)}: {at}{area}")
        return f"{self.message(table, s)}. Share wrong for {c.subject()}, {c.cases:,} examples. {'. '.join(said)}."


def _wilson(share: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a binomial share (1927)."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.clip(middle - half, 0, share), np.clip(middle + half, share, 1)


ENTRIES = (RiskCoverage(),)
