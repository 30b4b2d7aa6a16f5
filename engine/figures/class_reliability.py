"""Reliability of confidence: is a forecast that is 90% sure right in 90% of cases, with the band that chance allows (CORP)."""

import numpy as np

from engine.figures._chart import Axis, Band, Bars, Chart, Layer, Line, Panel, Points
from engine.figures._charted import Table
from engine.figures._classes import Classified, classes, confidences
from engine.figures._select import Selection
from engine.figures._style import percent
from engine.kernels.binning import bins, consistency_band, equal_width

REPLICATES = 200
HONEST = 0.1
"""Share of the examples that may lie outside a pointwise 95% band before confidence is called dishonest (our choice)."""
SMALLEST, LARGEST = 5.0, 16.0
"""Diameter of a bin's dot, from the emptiest to the fullest."""


class ClassReliability(Classified):
    """The recalibrated frequency of being right over the greatest probability, the same in equal-width bins, and how often each is said."""

    key = "class_reliability"
    title = "When it is 90% sure, is it right 90% of the time?"

    def table(self, s: Selection) -> Table:
        """One row a distinct confidence (`kind` "curve") and a bin ("bin"); `count` is the number of examples."""
        import pandas as pd

        c = classes(s)
        stated, correct = confidences(c, c.entry)
        curve, edges = consistency_band(stated, correct, replicates=REPLICATES), equal_width()
        said = curve.probability  # probabilities that differ by rounding alone are one
        count = np.diff(np.r_[np.searchsorted(np.sort(np.asarray(stated, float)), said), len(stated)])
        knots = pd.DataFrame(
            {"kind": "curve", "confidence": said, "right": curve.frequency, "band_low": curve.low, "band_high": curve.high, "count": count}
        )
        binned = bins(stated, correct, None, edges)
        dots = pd.DataFrame({"kind": "bin", "confidence": binned.confidence, "right": binned.accuracy, "count": binned.counts})
        dots["from"], dots["to"] = edges[:-1], edges[1:]
        return pd.concat([knots, dots[dots["count"] > 0]], ignore_index=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Band, curve and dots over a strip that says how often each confidence is claimed."""
        c = classes(s)
        curve, dots = table[table["kind"] == "curve"], table[table["kind"] == "bin"]
        x, right = curve["confidence"].tolist(), curve["right"].tolist()
        layers: list[Layer] = [
            Line([0, 1], [0, 1], colour="muted", dash=True, width=1.3),
            Band(x, curve["band_low"].tolist(), curve["band_high"].tolist(), colour="ink", strength=0.16, label="what chance allows"),
            Line(x, right, label="how often it is right"),
        ]
        largest, total = float(dots["count"].max()), float(dots["count"].sum())
        strip: list[Layer] = []
        for r in dots.to_dict("records"):
            size = SMALLEST + (LARGEST - SMALLEST) * float(np.sqrt(r["count"] / largest))
            hover = (
                f"{percent(r['from'])} … {percent(r['to'])} sure: {r['count']:,.0f} examples<br>"
                f"says {percent(r['confidence'], 1)}, right {percent(r['right'], 1)}"
            )
            label = "in bins" if r["count"] == largest and not any(getattr(k, "label", "") == "in bins" for k in layers) else ""
            layers.append(Points([r["confidence"]], [r["right"]], colour="second", size=size, hover=[hover], label=label))
        middle, share = ((dots["from"] + dots["to"]) / 2).tolist(), (dots["count"] / total).tolist()
        hover = [
            f"{percent(a)} … {percent(b)} sure: {percent(v, 1)} of examples"
            for a, b, v in zip(dots["from"], dots["to"], share, strict=True)
        ]
        strip.append(Bars(middle, share, width=0.9 / 15, colour="muted", hover=hover))
        ticks = [0, 0.2, 0.4, 0.6, 0.8, 1.0]
        panels = (
            Panel(Axis("", (0, 1), ticks, [""] * 6), Axis("share that is right", (0, 1.03), percent=True), tuple(layers)),
            Panel(
                Axis("how sure it says it is (greatest probability)", (0, 1), percent=True),
                Axis("examples", (0, 1.1 * max(share)), percent=True),
                tuple(strip),
                row=1,
            ),
        )
        footer = c.footer(
            f"CORP: isotonic regression of right or wrong on confidence; dots: {c.verification.attrs.get('ece_rule', '15 bins')}",
            f"band: 95% of curves of honest confidence, at each place ({REPLICATES} draws)",
        )
        about = f"{c.subject()} · dashed: says what it keeps · larger dots: more examples"
        return Chart(self.message(table, s), about, footer, panels, row_heights=(1.0, 0.24), height=500)

    @staticmethod
    def _facts(table: Table) -> tuple[float, float, float]:
        """(mean confidence, accuracy, share of examples where the curve leaves the band)."""
        part = table[table["kind"] == "curve"]
        out = (part["right"] < part["band_low"]) | (part["right"] > part["band_high"])
        w = part["count"].to_numpy()
        return float(np.average(part["confidence"], weights=w)), float(np.average(part["right"], weights=w)), float(w[out].sum() / w.sum())

    def message(self, table: Table, s: Selection) -> str:
        """Whether confidence is kept, in one sentence."""
        said, right, outside = self._facts(table)
        name = classes(s).name()
        if outside < HONEST:
            return f"{name}: as often right as it says, within what chance allows"
        if abs(said - right) < 0.01:
            return f"{name}: honest on average, but not at each confidence"
        return f"{name} is {'over' if said > right else 'under'}-confident: {percent(said)} sure on average, right in {percent(right)}"

    def words(self, table: Table, s: Selection) -> str:
        """Mean confidence, accuracy, the share outside the band, and the fullest bin."""
        c = classes(s)
        said, right, outside = self._facts(table)
        dots = table[table["kind"] == "bin"]
        full = dots.loc[dots["count"].idxmax()]
        return (
            f"{self.message(table, s)}. {c.subject()}, {c.cases:,} examples, M = {c.members}: {percent(said, 1)} sure on average, right in "
            f"{percent(right, 1)}; {percent(outside)} of the examples have a confidence at which the curve leaves the 95% band. Most often "
            f"it is {percent(full['from'])} to {percent(full['to'])} sure ({full['count']:,.0f} examples) and then right in "
            f"{percent(full['right'], 1)}."
        )


ENTRIES = (ClassReliability(),)
