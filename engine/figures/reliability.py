"""Reliability of event probabilities (CORP): do events happen as often as the ensemble says, with the band that chance allows."""

import numpy as np

from engine.figures._chart import Axis, Band, Bars, Chart, Layer, Line, Panel, Points
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import number, percent, pretty_units

COLOURS = ("accent", "second")


class Reliability(Charted):
    """A panel per threshold: recalibrated event frequency against forecast probability, and how often each probability was said."""

    key = "reliability"
    title = "When it says 70%, does it happen 70% of the time?"
    accepts = frozenset({"threshold"})

    def table(self, s: Selection) -> Table:
        """One row a ν, threshold and probability that was ever forecast."""
        import pandas as pd

        values = s.verification["threshold_value"].sel(variable=s.variable).values
        wanted = range(len(values)) if s.options.get("threshold") is None else [int(s.options["threshold"])]
        parts = []
        for nu in s.nus:
            arrays = {out: s.at(name, nu=nu).values for out, name in _COLUMNS.items()}
            for t in wanted:
                part = pd.DataFrame(
                    {"nu": nu, "threshold": values[t], "probability": s.verification["probability"].values / s.members}
                    | {k: a[t] for k, a in arrays.items()}
                )
                part["weight"] /= part["weight"].sum() or np.nan
                parts.append(part)
        return pd.concat(parts, ignore_index=True).dropna(subset=["frequency", "weight"]).reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Curves over a strip of weights."""
        two = len(s.nus) == 2
        panels = []
        top = 1.1 * float(table["weight"].max())
        thresholds = sorted(table["threshold"].unique())
        for column, threshold in enumerate(thresholds):
            layers: list[Layer] = [Line([0, 1], [0, 1], colour="muted", dash=True, width=1.3)]
            strip: list[Layer] = []
            for colour, nu in zip(COLOURS, s.nus, strict=False):
                part = table[(table["threshold"] == threshold) & (table["nu"] == nu)]
                x, y = part["probability"].tolist(), part["frequency"].tolist()
                hover = [
                    f"said {percent(p)}, happened {percent(f)}<br>chance allows {percent(lo)} … {percent(hi)}<br>said "
                    f"in {percent(w, 1)} of all forecasts"
                    for p, f, lo, hi, w in part[["probability", "frequency", "band_low", "band_high", "weight"]].to_numpy()
                ]
                layers.append(
                    Band(x, part["band_low"].tolist(), part["band_high"].tolist(), colour=colour if two else "ink", strength=0.16)
                )
                layers.append(Line(x, y, colour=colour))
                layers.append(Points(x, y, colour=colour, size=6, hover=hover, label=s.label(nu) if two and column == 0 else ""))
                said = [f"said {percent(p)}: {percent(w, 1)} of forecasts" for p, w in zip(x, part["weight"], strict=True)]
                strip.append(
                    Line(x, part["weight"].tolist(), colour=colour, width=1.6, hover=said)
                    if two
                    else Bars(x, part["weight"].tolist(), 0.8 / s.members, colour, hover=said)
                )
            name = _event(float(threshold), s.units)
            ticks, text = [0, 0.5, 1], ["0%", "50%", "100%"]
            y_axis = Axis("event frequency" if column == 0 else "", (-0.02, 1.02), ticks, text if column == 0 else [""] * 3)
            panels.append(Panel(Axis("", (-0.04, 1.04), ticks, [""] * 3), y_axis, tuple(layers), name, 0, column))
            strip_y = Axis("how often" if column == 0 else "", (0, top), [0], [""])
            panels.append(Panel(Axis("forecast probability", (-0.04, 1.04), ticks, text), strip_y, tuple(strip), "", 1, column))
        footer = s.footer(
            "CORP: isotonic regression; anomaly: minus climatology", "band: 95% of curves of a reliable forecast (consistency band)"
        )
        about = f"{s.subject()} · dashed: reliable · grey: what chance allows" if not two else f"{s.subject()} · dashed: reliable"
        return Chart(self._message(table, s), about, footer, tuple(panels), (1.0, 0.22), height=470)

    def _message(self, table: Table, s: Selection) -> str:
        if len(s.nus) == 2:
            return self.title
        outside = self._outside(table[table["nu"] == s.nu])
        if outside < 0.1:
            return f"{s.looked_at} event probabilities are reliable within sampling noise"
        part = table[table["nu"] == s.nu]
        gap, tilt = float(np.average((part["frequency"] - part["probability"]).abs(), weights=part["weight"])), self._tilt(part)
        slight = "slightly " if gap < 0.05 else ""
        word = "off the diagonal"
        if abs(tilt) > 0.01:
            word = "over-confident: too near 0 and 100%" if tilt < 0 else "under-confident: too near the middle"
        return f"{s.looked_at} event probabilities are {slight}{word}"

    @staticmethod
    def _outside(part: Table) -> float:
        """Share of the weight outside the band; where the band has no width (0 and M of M members) nothing can be told from chance."""
        part = part[part["band_high"] > part["band_low"]]
        if part.empty:
            return float("nan")
        out = (part["frequency"] < part["band_low"]) | (part["frequency"] > part["band_high"])
        return float(part["weight"][out].sum() / part["weight"].sum())

    @staticmethod
    def _tilt(part: Table) -> float:
        """Weighted covariance of (frequency − probability) with probability: negative where extremes are said too boldly."""
        total = 0.0
        for _, group in part.groupby("threshold"):
            p, gap, w = group["probability"].to_numpy(), (group["frequency"] - group["probability"]).to_numpy(), group["weight"].to_numpy()
            spread = np.average((p - np.average(p, weights=w)) ** 2, weights=w)
            total += np.average(gap * (p - np.average(p, weights=w)), weights=w) / spread if spread > 0 else 0.0
        return float(total / part["threshold"].nunique())

    def words(self, table: Table, s: Selection) -> str:
        """Mean gap and the share outside the band, per ν and threshold."""
        said = []
        for (nu, threshold), part in table.groupby(["nu", "threshold"], sort=False):
            gap = float(np.average((part["frequency"] - part["probability"]).abs(), weights=part["weight"]))
            said.append(
                f"{s.label(int(str(nu)))}, {_event(float(str(threshold)), s.units)}: mean gap {percent(gap, 1)}, "
                f"{percent(self._outside(part))} of forecasts outside the 95% band"
            )
        return f"Reliability of event probabilities (CORP) for {s.subject()}, M = {s.members}. " + "; ".join(said) + "."


_COLUMNS = {"weight": "exceedance_weight", "frequency": "corp_event", "band_low": "corp_low", "band_high": "corp_high"}


def _event(threshold: float, units: str) -> str:
    """`anomaly > +120 m`."""
    sign = "+" if threshold > 0 else ""
    return f"anomaly > {sign}{number(threshold)} {pretty_units(units)}".strip()


ENTRIES = (Reliability(),)
