"""The PIT histogram of one cell: few cases, so the band of an honest forecast is wide, and says so."""

import numpy as np

from engine.figures import _geo
from engine.figures._chart import Axis, Band, Bars, Chart, Layer, Line, Panel
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import number, simultaneous

COLOURS = ("accent", "second")
DEFAULT_CELL = (50.0, 10.0)


def cell(s: Selection) -> tuple[int, int, float, float]:
    """(row, column, latitude, longitude) of the cell that holds the chosen place."""
    lat, lon = s.verification["latitude"].values, s.verification["longitude"].values
    wanted = [
        default if s.options.get(name) is None else float(s.options[name])
        for name, default in zip(("latitude", "longitude"), DEFAULT_CELL, strict=True)
    ]
    row, column = _geo.nearest(lat, lon, np.asarray(wanted[0]), np.asarray(wanted[1]))
    return int(row), int(column), float(lat[row]), float(lon[column])


class CellPit(Charted):
    """Shares of rank bins at the cell nearest to (`latitude`, `longitude`).

    The band is the one that all bars of 95% of honest forecasts keep to with so many cases.
    """

    key = "cell_pit"
    title = "Is it honest at this place?"
    accepts = frozenset({"latitude", "longitude"})

    def table(self, s: Selection) -> Table:
        """One row a ν and bin."""
        import pandas as pd

        row, column, lat, lon = cell(s)
        valid = float(s.at("valid_map").values[row, column]) if "valid_map" in s.verification else 1.0
        n = round(valid * int(s.verification.attrs["cases"]))
        parts = []
        for nu in s.nus:
            shares = s.at("rank_map", nu=nu).values[:, row, column].astype(float)
            bins = len(shares)
            noise = simultaneous(bins) * np.sqrt((1 / bins) * (1 - 1 / bins) / max(n, 1)) * bins
            u = np.arange(bins) / bins
            parts.append(
                pd.DataFrame(
                    {
                        "nu": nu,
                        "u_low": u,
                        "u_high": u + 1 / bins,
                        "density": shares * bins,
                        "band_low": max(0.0, 1 - noise),
                        "band_high": 1 + noise,
                        "cases": n,
                    }
                    | {"latitude": lat, "longitude": lon}
                )
            )
        return pd.concat(parts, ignore_index=True).dropna(subset=["density"])

    def _outside(self, part: Table) -> int:
        return int(((part["density"] < part["band_low"]) | (part["density"] > part["band_high"])).sum())

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
        where, n = _geo.place(float(table["latitude"].iloc[0]), float(table["longitude"].iloc[0])), int(table["cases"].iloc[0])
        out = self._outside(table[table["nu"] == s.nus[0]])
        bars = len(table) // len(panels)
        title = f"At {where} the forecast cannot be told from honest"
        if out:
            title = f"At {where} honesty is in doubt: {out} of {bars} bars beyond chance"
        footer = s.footer(f"{bars} rank bins, {n} valid cases here", "grey: all bars of 95% of honest forecasts, if cases were independent")
        subtitle = f"{s.subject(region=False)} · grey: honest bars end here"
        return Chart(title if len(s.nus) == 1 else f"{self.title} ({where})", subtitle, footer, tuple(panels), height=380)

    def words(self, table: Table, s: Selection) -> str:
        """Place, cases, bars outside chance, outer bins."""
        where, n = _geo.place(float(table["latitude"].iloc[0]), float(table["longitude"].iloc[0])), int(table["cases"].iloc[0])
        said = [
            f"{s.label(int(str(nu)))}: {self._outside(part)} of {len(part)} bars outside the simultaneous 95% band, "
            f"lowest bin {number(part['density'].iloc[0])}, highest {number(part['density'].iloc[-1])} times uniform"
            for nu, part in table.groupby("nu", sort=False)
        ]
        return f"PIT histogram at {where} from {n} cases for {s.subject(region=False)}, M = {s.members}. " + "; ".join(said) + "."


ENTRIES = (CellPit(),)
