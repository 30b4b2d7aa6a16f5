"""The PIT histogram: where observations fall within the forecast distribution; flat is honest."""

import numpy as np

from engine.figures import _pit
from engine.figures._chart import Axis, Band, Bars, Chart, Layer, Line, Panel
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import number, simultaneous

COLOURS = ("accent", "second")


class PitHistogram(Charted):
    """Rank shares merged into equal bins that divide M + 1, as density; the grey band holds all bars of 95% of honest forecasts."""

    key = "pit_histogram"
    title = "Is the forecast honest about its uncertainty?"

    def table(self, s: Selection) -> Table:
        """One row a ν and bin: edges, density (1 = uniform), band of an honest forecast from the effective sample size."""
        import pandas as pd

        rows = []
        for nu in s.nus:
            shares = s.at("rank_counts", nu=nu).values
            if not np.isfinite(shares).all():
                continue
            bins = _pit.bin_count(len(shares))
            merged = shares.reshape(bins, -1).sum(1) / shares.sum()
            noise = simultaneous(bins) * np.sqrt((1 / bins) * (1 - 1 / bins) / float(s.at("n_effective", nu=nu)))
            for i, share in enumerate(merged):
                rows.append((nu, i / bins, (i + 1) / bins, share * bins, max(0.0, 1 - noise * bins), 1 + noise * bins))
        return pd.DataFrame(rows, columns=["nu", "u_low", "u_high", "density", "band_low", "band_high"])

    def chart(self, table: Table, s: Selection) -> Chart:
        """Side by side for two ν, on one scale."""
        top = 1.08 * float(max(table["density"].max(), table["band_high"].max(), 1.4))
        panels = []
        for column, (nu, part) in enumerate(table.groupby("nu", sort=False)):
            middle = ((part["u_low"] + part["u_high"]) / 2).tolist()
            width = float(part["u_high"].iloc[0] - part["u_low"].iloc[0])
            hover = [
                f"PIT {number(a, 2)} … {number(b, 2)}<br>{number(d)} × uniform"
                for a, b, d in zip(part["u_low"], part["u_high"], part["density"], strict=True)
            ]
            layers: list[Layer] = [
                Bars(middle, part["density"].tolist(), width * 0.94, COLOURS[column], hover=hover),
                Band(
                    [0.0, 1.0], [float(part["band_low"].iloc[0])] * 2, [float(part["band_high"].iloc[0])] * 2, colour="ink", strength=0.22
                ),
                Line([0.0, 1.0], [1.0, 1.0], colour="ink", width=1.2),
            ]
            name = f"{s.label(int(str(nu)))}: {_pit.judge(s, int(str(nu))).words.removeprefix('is ')}" if len(s.nus) == 2 else ""
            x = Axis(
                "PIT: share of the forecast below the observation" if len(s.nus) == 1 else "PIT of the observation",
                (0.0, 1.0),
                [0, 0.25, 0.5, 0.75, 1],
                ["0", "¼", "½", "¾", "1"],
            )
            panels.append(Panel(x, Axis("density (1 = uniform)" if column == 0 else "", (0.0, top)), tuple(layers), name, column=column))
        title = _pit.headline(s) if len(s.nus) == 1 else self.title
        footer = s.footer(
            f"{len(table) // len(panels)} bins of equal width, ties shared", f"grey: all bars of 95% of honest forecasts, {self._n(s)}"
        )
        return Chart(title, f"{s.subject()} · grey: honest bars end here; judged by the PIT curve", footer, tuple(panels), height=400)

    def _n(self, s: Selection) -> str:
        return "effective sample " + " / ".join(f"{float(s.at('n_effective', nu=n)):,.0f}" for n in s.nus)

    def words(self, table: Table, s: Selection) -> str:
        """Verdict, outer and middle bins."""
        said = []
        for nu, part in table.groupby("nu", sort=False):
            d = part["density"].to_numpy()
            outside = int(((d < part["band_low"]) | (d > part["band_high"])).sum())
            said.append(
                f"{_pit.sentence(s, int(str(nu)))}; lowest bin {number(d[0])}, middle {number(d[len(d) // 2])}, highest "
                f"{number(d[-1])} times uniform; "
                f"{outside} of {len(d)} bars outside the band that all bars of 95% of honest forecasts keep to"
            )
        return f"PIT histogram for {s.subject()}, M = {s.members}. " + ". ".join(said) + "."


ENTRIES = (PitHistogram(),)
