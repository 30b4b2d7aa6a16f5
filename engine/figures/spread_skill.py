"""Binned spread against skill: where the ensemble says it is unsure, is it wrong by as much?"""

import numpy as np

from engine.figures._chart import Axis, Chart, Layer, Line, Note, Panel, Points
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import in_units, number, percent, pretty_units
from engine.judging import spread_sentence, spread_word
from engine.types import Array

COLOURS = ("accent", "second")
GROUPS = 10


def merge(weight: Array, groups: int = GROUPS) -> list[np.ndarray]:
    """Positions of neighbouring bins in at most `groups` groups of about equal weight; empty bins join their neighbours."""
    filled = np.flatnonzero(weight > 0)
    if not len(filled):
        return []
    middle = (np.cumsum(weight[filled]) - weight[filled] / 2) / weight[filled].sum()
    which = np.minimum((middle * groups).astype(int), groups - 1)
    return [filled[which == g] for g in np.unique(which)]


class SpreadSkill(Charted):
    """Root mean squared error of the mean in groups of equal weight of the local spread; on the diagonal they match."""

    key = "spread_skill"
    title = "Where it is unsure, is it wrong by as much?"

    def table(self, s: Selection) -> Table:
        """One row a ν and group: spread, error, and its interval from the effective number of points in the group."""
        import pandas as pd

        rows = []
        for nu in s.nus:
            weight, variance, error2 = (np.nan_to_num(s.at(f"spread_{k}", nu=nu).values) for k in ("weight", "variance", "error2"))
            total, n = weight.sum(), float(s.at("n_effective", nu=nu))
            for members in merge(weight):
                w = weight[members].sum()
                spread, error = np.sqrt(variance[members].sum() / w), np.sqrt(error2[members].sum() / w)
                # relative error of a root mean square over n Gaussian points: 1/√(2n)
                noise = 1.96 / np.sqrt(2 * max(n * w / total, 1.0))
                rows.append((nu, spread, error, max(0.0, error * (1 - noise)), error * (1 + noise), w / total))
        return pd.DataFrame(rows, columns=["nu", "spread", "error", "error_low", "error_high", "weight"])

    def chart(self, table: Table, s: Selection) -> Chart:
        """Points around the 1:1 line, equal scales."""
        units, two = in_units(s.units), len(s.nus) == 2
        top = 1.08 * float(max(table["spread"].max(), table["error_high"].max()))
        layers: list[Layer] = [
            Line([0, top], [0, top], colour="muted", dash=True, width=1.4),
            Note(0.87 * top, 0.95 * top, "dashed: spread = error", anchor="right"),
            Note(0.02 * top, 0.95 * top, "above the line: too sure", anchor="left"),
            Note(0.98 * top, 0.04 * top, "below the line: too unsure", anchor="right"),
        ]
        for colour, nu in zip(COLOURS, s.nus, strict=False):
            part = table[table["nu"] == nu]
            hover = [
                f"spread {number(a)}, error {number(b)} ({number(c)} … {number(d)}){units}<br>{percent(w)} of all points"
                for a, b, c, d, w in part.iloc[:, 1:].to_numpy()
            ]
            x, y = part["spread"].tolist(), part["error"].tolist()
            layers.append(Line(x, y, colour=colour, width=1.4))
            layers.append(
                Points(
                    x,
                    y,
                    colour=colour,
                    low=part["error_low"].tolist(),
                    high=part["error_high"].tolist(),
                    hover=hover,
                    label=s.label(nu) if two else "",
                )
            )
        panel = Panel(Axis(f"ensemble spread{units}", (0, top)), Axis(f"error of the ensemble mean{units}", (0, top)), tuple(layers))
        footer = s.footer("spread: √((M+1)/M × variance); groups of equal weight", "bars: 95% from the effective sample size in each group")
        return Chart(self._message(table, s), s.subject(), footer, (panel,), height=480)

    @staticmethod
    def _overall(s: Selection, nu: int) -> tuple[float, float, float]:
        """Spread over error of all points with its interval, as the run stored it; NaN where it was not asked for it."""
        if "spread_skill_ratio" not in s.verification:
            return float("nan"), float("nan"), float("nan")
        value, low, high = (float(s.at(f"spread_skill_ratio{end}", nu=nu)) for end in ("", "_low", "_high"))
        return value, low, high

    def _message(self, table: Table, s: Selection) -> str:
        if len(s.nus) == 2:
            return self.title
        inside = (table["error_low"] <= table["spread"]) & (table["spread"] <= table["error_high"])
        overall = self._overall(s, s.nu)
        if inside.mean() >= 0.9 and spread_word(*overall) in ("not told apart from right", ""):
            return f"{s.looked_at} the ensemble is wrong by as much as it says"
        if spread_word(*overall) == "not told apart from right":
            return f"{s.looked_at} spread matches error on average, but not place by place"
        return f"{s.looked_at} {spread_sentence(*overall)}"

    def words(self, table: Table, s: Selection) -> str:
        """Overall ratio, and the least and most unsure groups."""
        said = []
        unit = pretty_units(s.units)
        for nu, part in table.groupby("nu", sort=False):
            a, b = part.iloc[0], part.iloc[-1]
            said.append(
                f"{s.label(int(str(nu)))}: {spread_sentence(*self._overall(s, int(str(nu))))}; smallest spread "
                f"{number(a['spread'])} {unit} with error {number(a['error'])} "
                f"({number(a['error_low'])} … {number(a['error_high'])}), largest {number(b['spread'])} {unit} with "
                f"error {number(b['error'])} "
                f"({number(b['error_low'])} … {number(b['error_high'])})"
            )
        return (
            f"Spread against skill in {int(table.groupby('nu').size().max())} groups for {s.subject()}, M = {s.members}. "
            + ". ".join(said)
            + "."
        )


ENTRIES = (SpreadSkill(),)
