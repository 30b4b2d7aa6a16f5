"""Observed and forecast fan at one cell over the cases; dates are text, so that any calendar can be shown (0012-02-30 exists in some)."""

import re

import numpy as np

from engine.errors import SpecError
from engine.figures import _place
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Points, Symbol
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import in_units, number
from engine.judging import aim
from engine.lexicon import title_of

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
        at = _place.cell(s, fields)
        here = fields.isel(latitude=at.row, longitude=at.column).sel(lead_time=s.lead_time, variable=s.variable)
        now = here.sel(nu=s.nu)
        table = pd.DataFrame({"init_time": here["init_time"].values.astype(str), "valid_time": here["valid_time"].values.astype(str)})
        for name, source in (("observed", here), ("deterministic", here), ("mean", now)):
            table[name] = source[name].values.astype(float)
        quantiles = now["quantiles"].transpose("map_case", "quantile")
        for q in quantiles["quantile"].values:
            table[f"q{float(q):g}"] = quantiles.sel(quantile=q).values.astype(float)
        inside = (table["q0.025"] <= table["observed"]) & (table["observed"] <= table["q0.975"])
        table["inside_95"] = inside.where(table["observed"].notna(), None)
        return table.assign(latitude=at.latitude, longitude=at.longitude)

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
        judged, kept = _place.record(s, s.nu), len(table)
        footer = s.footer(
            "fan: linear quantiles of the members",
            "what chance allows: 95% of honest forecasts, " + ("if cases were independent" if judged.as_if else s.bootstrap()),
        )
        every = int(s.verification.attrs["cases"])
        some = f" · {kept} of the {every} cases were kept and are drawn" if kept < every else ""
        subtitle = f"{s.subject(region=False)} · shades hold 95, 80, 50%; line: median{some}"
        return Chart(judged.sentence(_place.cell(s).name), subtitle, footer, (panel,), height=430)

    def words(self, table: Table, s: Selection) -> str:
        """The judgement of this place, span of time, range of what was observed."""
        seen = table["observed"].notna()
        error = float(np.sqrt(np.nanmean((table["mean"] - table["observed"]) ** 2))) if seen.any() else float("nan")
        at = _place.cell(s)
        return (
            f"Forecasts at {at.name} started from {table['init_time'].iloc[0]} to {table['init_time'].iloc[-1]} for "
            f"{s.subject(region=False)}, M = {s.members}. {_place.record(s, s.nu).sentence(at.name)}; {aim(s.verification.attrs)[1]}. "
            f"Observed {number(float(table['observed'].min()), 4)} … "
            f"{number(float(table['observed'].max()), 4)}{in_units(s.units)}, RMSE of the ensemble mean {number(error)}."
        )


ENTRIES = (CellSeries(),)
