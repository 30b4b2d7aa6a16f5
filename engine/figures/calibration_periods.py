"""What ν was chosen on and what it is verified on: two spans of time, and whether they keep apart.

Times are ISO text in the data's own calendar (30 February exists in some), so places along the axis are counted days.
"""

import json
from typing import Any

from engine.figures._calibration import Calibrated
from engine.figures._chart import Axis, Chart, Layer, Line, Note, Panel, Points
from engine.figures._charted import Table
from engine.figures._select import Selection
from engine.figures.cell_series import ordinals

SPANS = {"calibrate": ("calibration", "second"), "verify": ("verification", "accent")}


class CalibrationPeriods(Calibrated):
    """A bar a split from its first initial to its last valid time, and a dot a calibration case."""

    key = "calibration_periods"
    title = "Does the verification see anything that ν was chosen on?"

    def table(self, s: Selection) -> Table:
        """One row a split, one a calibration case; `start` and `end` are days from the earliest time of all."""
        import pandas as pd

        c = s.verification
        rows: list[dict[str, Any]] = [
            {"split": name, "what": "span", "first": str(span["first"]), "last": str(span["last"]), "cases": int(span["cases"])}
            for name, span in self._periods(s).items()
        ]
        rows += [
            {"split": "calibrate", "what": "case", "first": str(init), "last": str(valid), "cases": 1}
            for init, valid in zip(c["init_time"].values, c["valid_time"].values, strict=True)
        ]
        # in order of time, so that a calendar which cannot be counted still gives the order
        times = sorted({t for row in rows for t in (row["first"], row["last"])})
        day = dict(zip(times, ordinals(times), strict=True))
        table = pd.DataFrame(rows, columns=["split", "what", "first", "last", "cases"])
        return table.assign(start=[day[t] for t in table["first"]], end=[day[t] for t in table["last"]])

    @staticmethod
    def _periods(s: Selection) -> dict[str, dict[str, Any]]:
        """The splits that there are."""
        stored = json.loads(s.verification.attrs.get("periods") or "{}")
        return {name: stored[name] for name in SPANS if stored.get(name)}

    def chart(self, table: Table, s: Selection) -> Chart:
        """Two bars on one axis."""
        spans, cases = table[table["what"] == "span"], table[table["what"] == "case"]
        last = float(table["end"].max()) or 1.0
        layers: list[Layer] = []
        for row, r in enumerate(spans.iloc[::-1].itertuples()):
            name, colour = SPANS[r.split]
            layers.append(Line([r.start, r.end], [row, row], colour=colour, width=10))
            words = f"{name}: {r.cases} cases, {r.first[:10]} to {r.last[:10]}"
            late = (r.start + r.end) / 2 > 0.55 * last
            layers.append(
                Note(r.end if late else r.start, row, words, colour=colour, anchor="right" if late else "left", shift=19, bold=True)
            )
        hover = [f"from {r.first[:16]}<br>to {r.last[:16]}" for r in cases.itertuples()]
        row = float(len(spans) - 1)
        layers.append(Points(cases["start"].tolist(), [row] * len(cases), colour="ink", size=4, hover=hover))
        pad = 0.02 * last
        axis = Axis("time, in the data's own calendar", (-pad, last + pad), *_ticks(table, last))
        panel = Panel(axis, Axis("", (-0.6, len(spans) - 0.3), [], []), tuple(layers))
        footer = s.footer("spans from the first initial to the last valid time", "times are exact: nothing here is an estimate")
        subtitle = f"{s.subject(nu=False)} · dots: the starts of the calibration cases"
        return Chart(self.message(table), subtitle, footer, (panel,), height=270 if len(spans) > 1 else 210)

    @staticmethod
    def message(table: Table) -> str:
        """Whether the spans keep apart."""
        spans = table[table["what"] == "span"].set_index("split")
        cases = int(spans.loc["calibrate", "cases"]) if "calibrate" in spans.index else len(table[table["what"] == "case"])
        if "verify" not in spans.index:
            return f"ν was chosen on {cases} cases; no data to verify it on were named"
        apart = spans["start"].max() > spans["end"].min()
        if apart:
            return f"ν was chosen on {cases} cases that the verification never sees"
        return f"ν was chosen on {cases} cases whose span overlaps the verification's"

    def words(self, table: Table, s: Selection) -> str:
        """Both spans with their cases, and whether they overlap."""
        spans = table[table["what"] == "span"]
        said = "; ".join(f"{SPANS[r.split][0]}: {r.cases} cases from {r.first} to {r.last}" for r in spans.itertuples())
        apart = spans["start"].max() > spans["end"].min()
        judged = (
            ""
            if len(spans) < 2
            else " The two spans do not overlap."
            if apart
            else " The two spans overlap: neighbouring times are not independent."
        )
        text = f"{self.message(table)}. {said[:1].upper()}{said[1:]}, for {s.subject(nu=False)}, M = {s.members}."
        return text + judged if len(spans) > 1 else text


def _ticks(table: Table, last: float) -> tuple[list[float], list[str]]:
    """Dates that exist in the data, far enough from each other to be read."""
    known = sorted({(r.start, r.first[:10]) for r in table.itertuples()} | {(r.end, r.last[:10]) for r in table.itertuples()})
    kept: list[tuple[float, str]] = []
    ends = {known[0], known[-1]}
    for place, text in [*sorted(ends), *known]:
        if all(abs(place - other) > 0.17 * last for other, _ in kept):
            kept.append((place, text))
    kept.sort()
    return [p for p, _ in kept], [t for _, t in kept]


ENTRIES = (CalibrationPeriods(),)
