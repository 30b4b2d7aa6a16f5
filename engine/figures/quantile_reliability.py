"""Reliability of quantiles: do observations fall below each forecast quantile as often as its level says?"""

import numpy as np

from engine.figures import _pit
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Points
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import percent

COLOURS = ("accent", "second")
LEVELS = np.round(np.arange(0.05, 0.96, 0.05), 2)


class QuantileReliability(Charted):
    """Share of observations below each forecast quantile; on the diagonal they are honest."""

    key = "quantile_reliability"
    title = "Do forecast quantiles happen as often as they say?"

    def table(self, s: Selection) -> Table:
        """One row a ν and level, F_PIT read linearly between its knots."""
        import pandas as pd

        parts = []
        for nu in s.nus:
            shares = s.at("rank_counts", nu=nu).values
            if np.isfinite(shares).all():
                u, d = _pit.deviation(shares)
                found, band = np.interp(LEVELS, u, u + d), float(s.at("pit_band", nu=nu))
                parts.append(
                    pd.DataFrame(
                        {
                            "nu": nu,
                            "level": LEVELS,
                            "frequency": found,
                            "low": np.clip(found - band, 0, 1),
                            "high": np.clip(found + band, 0, 1),
                        }
                    )
                )
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def chart(self, table: Table, s: Selection) -> Chart:
        """Points with the simultaneous band around them, beside the diagonal."""
        two = len(s.nus) == 2
        layers: list[Layer] = [Line([0, 1], [0, 1], colour="muted", dash=True, width=1.4)]
        for colour, (nu, part) in zip(COLOURS, table.groupby("nu", sort=False), strict=False):
            x, y = part["level"].tolist(), part["frequency"].tolist()
            hover = [
                f"{percent(a)} quantile<br>{percent(b, 1)} of observations below ({percent(c, 1)} … {percent(d, 1)})"
                for a, b, c, d in part[["level", "frequency", "low", "high"]].to_numpy()
            ]
            layers.append(Band(x, part["low"].tolist(), part["high"].tolist(), colour=colour))
            layers.append(Line(x, y, colour=colour, width=1.4))
            layers.append(Points(x, y, colour=colour, size=7, hover=hover, label=s.label(int(str(nu))) if two else ""))
        panel = Panel(
            Axis("level of the forecast quantile", (0, 1), percent=True), Axis("observations below it", (0, 1), percent=True), tuple(layers)
        )
        footer = s.footer("exact F of the PIT from rank counts, ties shared", f"band: simultaneous, {s.bootstrap()}")
        return Chart(self._message(table, s), f"{s.subject()} · dashed: honest", footer, (panel,), height=460)

    def _message(self, table: Table, s: Selection) -> str:
        part = table[table["nu"] == s.nu]
        if len(s.nus) == 2 or not len(part):
            return self.title
        row = part.loc[(part["frequency"] - part["level"]).abs().idxmax()]
        if _pit.judge(s, s.nu).honest:  # the same judgement as of the PIT, whose distribution function this is
            return f"{s.looked_at} forecast quantiles are not told apart from what they say"
        only = "only " if row["frequency"] < row["level"] else ""
        return f"{s.looked_at} {only}{percent(row['frequency'])} of observations lie below the {percent(row['level'])} quantile"

    def words(self, table: Table, s: Selection) -> str:
        """Largest gap, and the outer levels."""
        said = []
        for nu, part in table.groupby("nu", sort=False):
            row, first, last = part.loc[(part["frequency"] - part["level"]).abs().idxmax()], part.iloc[0], part.iloc[-1]
            said.append(
                f"{s.label(int(str(nu)))}: {percent(first['frequency'], 1)} of observations lie below the 5% quantile "
                f"and {percent(last['frequency'], 1)} below the 95% quantile; "
                f"the largest gap is at the {percent(row['level'])} quantile, {percent(row['frequency'], 1)} (95% band "
                f"{percent(row['low'], 1)} … {percent(row['high'], 1)})"
            )
        return f"Quantile reliability for {s.subject()}, M = {s.members}. " + ". ".join(said) + "."


ENTRIES = (QuantileReliability(),)
