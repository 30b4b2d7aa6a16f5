"""The PIT's distribution function: its departure from uniform, with the simultaneous band."""

import numpy as np

from engine.figures import _pit
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Rule
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import number, percent

COLOURS = ("accent", "second")


class PitEcdf(Charted):
    """F_PIT(u) − u at the knots k/(M+1), within the simultaneous 95% band that an honest forecast stays in."""

    key = "pit_ecdf"
    title = "How far is the PIT from uniform?"

    def table(self, s: Selection) -> Table:
        """One row a ν and knot."""
        import pandas as pd

        parts = []
        for nu in s.nus:
            shares = s.at("rank_counts", nu=nu).values
            if np.isfinite(shares).all():
                u, d = _pit.deviation(shares)
                parts.append(pd.DataFrame({"nu": nu, "u": u, "deviation": d, "band": float(s.at("pit_band", nu=nu))}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def chart(self, table: Table, s: Selection) -> Chart:
        """Curves over bands of their own colour."""
        two = len(s.nus) == 2
        reach = 1.15 * float(max(table["deviation"].abs().max(), table["band"].max()))
        layers: list[Layer] = [Rule("y", 0.0, colour="ink", dash=False)]
        for colour, (nu, part) in zip(COLOURS, table.groupby("nu", sort=False), strict=False):
            band, u, d = float(part["band"].iloc[0]), part["u"].tolist(), part["deviation"].tolist()
            layers.append(Band([0.0, 1.0], [-band, -band], [band, band], colour=colour if two else "ink", strength=0.14))
            hover = [
                f"u = {number(a, 2)}<br>{percent(a + b, 1)} of observations below this level of the forecast<br>departure {percent(b, 1)}"
                for a, b in zip(u, d, strict=True)
            ]
            layers.append(Line(u, d, colour=colour, label=s.label(int(str(nu))) if two else "", hover=hover, width=2.4))
        if not two:
            layers.append(Rule("y", float(table["band"].iloc[0]), colour="muted", label="honest forecasts stay inside (95%)"))
            layers.append(Rule("y", -float(table["band"].iloc[0]), colour="muted"))
        x = Axis("u: level of the forecast distribution", (0.0, 1.0), [0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
        panel = Panel(x, Axis("share of observations below, minus u", (-reach, reach), percent=True), tuple(layers))
        footer = s.footer("exact F of the PIT from rank counts, ties shared", f"band: simultaneous, {s.bootstrap()}")
        return Chart(_pit.headline(s), s.subject(), footer, (panel,), height=420)

    def words(self, table: Table, s: Selection) -> str:
        """Verdict and where the curve departs most."""
        said = []
        for nu, part in table.groupby("nu", sort=False):
            worst = part.loc[part["deviation"].abs().idxmax()]
            said.append(
                f"{_pit.sentence(s, int(str(nu)))}, at u = {number(worst['u'], 2)}, where the difference is "
                f"{percent(worst['deviation'], 1)}"
            )
        return f"Difference between the PIT's distribution and uniform for {s.subject()}, M = {s.members}. " + ". ".join(said) + "."


ENTRIES = (PitEcdf(),)
