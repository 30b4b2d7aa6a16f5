"""Observed and forecast fan at one cell over the cases; dates are text, so that any calendar can be shown (0012-02-30 exists in some)."""

import re

import numpy as np

from engine.errors import SpecError
from engine.figures import _geo
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Points, Symbol
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import in_units, number, percent
from engine.lexicon import title_of

DEFAULT_CELL = (50.0, 10.0)
_FAN = (("q0.025", "q0.975", 0.16), ("q0.1", "q0.9", 0.2), ("q0.25", "q0.75", 0.26))


def ordinals(times: list[str]) -> list[float]:
    """Days since the first time: by the real calendar where every date exists in it, by 30-day months otherwise, by order if unreadable."""
    from datetime import datetime

    try:
        parsed = [datetime.fromisoformat(t) for t in times]
        return [(p - parsed[0]).total_seconds() / 86400 for p in parsed]
    except ValueError:
        pass
    found = [re.match(r"(-?\d+)-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d))?", t) for t in times]
    if not all(found):
        return [float(i) for i in range(len(times))]
    parts = [tuple(int(g or 0) for g in m.groups()) for m in found if m]
    if max(p[2] for p in parts) > 30:  # an unknown calendar: equal steps are the honest choice
        return [float(i) for i in range(len(times))]
    days = [360.0 * y + 30 * (mo - 1) + d + h / 24 + mi / 1440 for y, mo, d, h, mi in parts]
    return [d - days[0] for d in days]


class CellSeries(Charted):
    """Fan of quantiles from fields.nc (`fields=`) at the cell nearest to (`latitude`, `longitude`), one ν."""

    key = "cell_series"
    title = "What was forecast here, and what happened?"
    accepts = frozenset({"latitude", "longitude", "fields"})
    nus = 1
    needs_fields = True

    def table(self, s: Selection) -> Table:
        """One row a case: times, observed, deterministic, mean, quantiles, and whether the 95% interval held it."""
        import pandas as pd

        fields = s.options.get("fields")
        if fields is None:
            raise SpecError(
                "cell series",
                found="no fields",
                expected="fields=, the opened fields.nc of the run",
                remedy="Run it again with maps switched on.",
            )
        lat, lon = fields["latitude"].values, fields["longitude"].values
        wanted = [
            default if s.options.get(name) is None else float(s.options[name])
            for name, default in zip(("latitude", "longitude"), DEFAULT_CELL, strict=True)
        ]
        row, column = (int(i) for i in _geo.nearest(lat, lon, np.asarray(wanted[0]), np.asarray(wanted[1])))
        here = fields.isel(latitude=row, longitude=column).sel(lead_time=s.lead_time, variable=s.variable)
        now = here.sel(nu=s.nu)
        table = pd.DataFrame({"init_time": here["init_time"].values.astype(str), "valid_time": here["valid_time"].values.astype(str)})
        for name, source in (("observed", here), ("deterministic", here), ("mean", now)):
            table[name] = source[name].values.astype(float)
        quantiles = now["quantiles"].transpose("map_case", "quantile")
        for q in quantiles["quantile"].values:
            table[f"q{float(q):g}"] = quantiles.sel(quantile=q).values.astype(float)
        inside = (table["q0.025"] <= table["observed"]) & (table["observed"] <= table["q0.975"])
        table["inside_95"] = inside.where(table["observed"].notna(), None)
        return table.assign(latitude=float(lat[row]), longitude=float(lon[column]))

    @staticmethod
    def _coverage(table: Table) -> tuple[int, int, float, float]:
        """(inside, of, low, high): Wilson's 95% interval of the share, as if cases were independent."""
        seen = table["observed"].notna()
        n, k = int(seen.sum()), int((table["inside_95"][seen] == True).sum())  # noqa: E712
        if n == 0:
            return 0, 0, float("nan"), float("nan")
        z, p = 1.96, k / n
        middle, half = (p + z * z / (2 * n)) / (1 + z * z / n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return k, n, float(middle - half), float(middle + half)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Fan, median, and the observations as dots: filled inside the 95% interval, ringed outside."""
        times = table["init_time"].tolist()
        x = ordinals(times)
        layers: list[Layer] = [Band(x, table[low].tolist(), table[high].tolist(), strength=strength) for low, high, strength in _FAN]
        layers.append(Line(x, table["q0.5"].tolist(), width=1.4))
        units = in_units(s.units)
        hover = [
            f"from {r.init_time[:16]}, valid {r.valid_time[:16]}<br>observed {number(r.observed, 4)}{units}<br>median "
            f"{number(m, 4)}, 95% {number(a, 4)} … {number(b, 4)}"
            for r, a, m, b in zip(table.itertuples(), table["q0.025"], table["q0.5"], table["q0.975"], strict=True)
        ]
        kinds: tuple[tuple[bool, Symbol, str], ...] = ((True, "circle", "observed"), (False, "diamond", "observed outside 95%"))
        for held, symbol, label in kinds:
            where = [i for i, v in enumerate(table["inside_95"]) if v == held and v is not None]
            if where:
                y = [float(table["observed"].iloc[i]) for i in where]
                colour = "ink" if held else "second"
                layers.append(
                    Points(
                        [x[i] for i in where],
                        y,
                        colour=colour,
                        symbol=symbol,
                        size=6 if held else 9,
                        hover=[hover[i] for i in where],
                        label=label,
                    )
                )
        shown = sorted({round(i) for i in np.linspace(0, len(times) - 1, min(6, len(times)))})
        pad = 0.02 * (x[-1] - x[0] or 1.0)
        axis = Axis("start of the forecast", (x[0] - pad, x[-1] + pad), [x[i] for i in shown], [times[i][:10] for i in shown])
        panel = Panel(axis, Axis(f"{title_of(s.variable)}{units}"), tuple(layers))
        k, n, low, high = self._coverage(table)
        place = _geo.place(float(table["latitude"].iloc[0]), float(table["longitude"].iloc[0]))
        title = f"At {place} the 95% interval held {k} of {n} observations"
        if np.isfinite(s.nominal) and n:
            title += f" (perfect: {s.nominal * n:.0f})"
        footer = s.footer(
            "fan: linear quantiles of the members",
            f"share inside {percent(k / n) if n else '–'}, 95% interval {percent(low)} … {percent(high)} if cases were independent",
        )
        return Chart(title, f"{s.subject(region=False)} · shades hold 95, 80, 50%; line: median", footer, (panel,), height=430)

    def words(self, table: Table, s: Selection) -> str:
        """Share inside with its interval, span of time, range of what was observed."""
        k, n, low, high = self._coverage(table)
        place = _geo.place(float(table["latitude"].iloc[0]), float(table["longitude"].iloc[0]))
        error = float(np.sqrt(np.nanmean((table["mean"] - table["observed"]) ** 2))) if n else float("nan")
        return (
            f"Forecasts at {place} started from {table['init_time'].iloc[0]} to {table['init_time'].iloc[-1]} for "
            f"{s.subject(region=False)}, M = {s.members}: the 95% interval held {k} of {n} "
            f"observations (95% interval of that share {percent(low)} … {percent(high)}; a perfect ensemble covers "
            f"{percent(s.nominal, 1)}). "
            f"Observed {number(float(table['observed'].min()), 4)} … "
            f"{number(float(table['observed'].max()), 4)}{in_units(s.units)}, RMSE of the ensemble mean {number(error)}."
        )


ENTRIES = (CellSeries(),)
