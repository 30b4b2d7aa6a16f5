"""The PIT histogram of one cell: few cases, so the band of an honest forecast is wide, and says so."""

import numpy as np

from engine.figures import _place
from engine.figures._chart import Axis, Band, Bars, Chart, Layer, Line, Panel
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import number
from engine.judging import bar_bound

COLOURS = ("accent", "second")


class CellPit(Charted):
    """Shares of rank bins at the cell nearest to (`latitude`, `longitude`).

    The band is the one that all bars of 97.5% of honest forecasts keep to with so many cases; what the place is judged to be is said
    by `engine.figures._place.record`, as beside the series of the same place.
    """

    key = "cell_pit"
    title = "Is it honest at this place?"
    accepts = frozenset({"latitude", "longitude", "fields"})
    needs_fields = True

    def table(self, s: Selection) -> Table:
        """One row a ν and bin."""
        import pandas as pd

        at = _place.cell(s)
        n = _place.valid_cases(s, at)
        parts = []
        for nu in s.nus:
            shares = _place.shares(s, at, nu)
            bins = len(shares)
            noise = bar_bound(bins, _place.effective(s, at, nu, n) or n) * bins
            u = np.arange(bins) / bins
            columns = {"nu": nu, "u_low": u, "u_high": u + 1 / bins, "density": shares * bins}
            columns |= {"band_low": max(0.0, 1 - noise), "band_high": 1 + noise, "cases": n}
            parts.append(pd.DataFrame(columns | {"latitude": at.latitude, "longitude": at.longitude}))
        return pd.concat(parts, ignore_index=True).dropna(subset=["density"])

    def chart(self, table: Table, s: Selection) -> Chart:
        """Side by side for two ν, on one scale."""
        top = 1.08 * float(max(table["density"].max(), table["band_high"].max()))
        panels = []
        for index, (nu, part) in enumerate(table.groupby("nu", sort=False)):
            middle = ((part["u_low"] + part["u_high"]) / 2).tolist()
            hover = [
                f"PIT {number(a, 2)} … {number(b, 2)}<br>{d * n / len(part):.0f} of {n} cases"
                for a, b, d, n in part[["u_low", "u_high", "density", "cases"]].to_numpy()
            ]
            layers: list[Layer] = [
                Bars(middle, part["density"].tolist(), 0.94 / len(part), COLOURS[index], hover=hover),
                Band(
                    [0.0, 1.0], [float(part["band_low"].iloc[0])] * 2, [float(part["band_high"].iloc[0])] * 2, colour="ink", strength=0.22
                ),
                Line([0.0, 1.0], [1.0, 1.0], colour="ink", width=1.2),
            ]
            x = Axis(
                "PIT: share of the forecast below the observation" if len(s.nus) == 1 else "PIT of the observation",
                (0.0, 1.0),
                [0, 0.25, 0.5, 0.75, 1],
                ["0", "¼", "½", "¾", "1"],
            )
            y = Axis("density (1 = uniform)" if index == 0 else "", (0.0, top))
            panels.append(Panel(x, y, tuple(layers), s.label(int(str(nu))) if len(s.nus) == 2 else "", column=index))
        at, n, bars = _place.cell(s), int(table["cases"].iloc[0]), len(table) // len(panels)
        judged = _place.record(s, s.nu)
        assumed = ", if cases were independent" if judged.as_if else ""
        footer = s.footer(f"{bars} rank bins, {n} valid cases here", f"grey: all bars of 97.5% of honest forecasts{assumed}")
        subtitle = f"{s.subject(region=False)} · grey: honest bars end here"
        title = judged.sentence(at.name) if len(s.nus) == 1 else f"{self.title} ({at.name})"
        return Chart(title, subtitle, footer, tuple(panels), height=380)

    def words(self, table: Table, s: Selection) -> str:
        """The judgement of each ν, and the outer bins."""
        at = _place.cell(s)
        said = [
            f"{s.label(int(str(nu)))}: {_place.record(s, int(str(nu))).sentence(at.name)}; "
            f"lowest bin {number(part['density'].iloc[0])}, highest {number(part['density'].iloc[-1])} times uniform"
            for nu, part in table.groupby("nu", sort=False)
        ]
        n = int(table["cases"].iloc[0])
        return f"PIT histogram at {at.name} from {n} cases for {s.subject(region=False)}, M = {s.members}. " + "; ".join(said) + "."


ENTRIES = (CellPit(),)
