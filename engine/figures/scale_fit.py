"""How ν* was found: how far members stray from the frozen forecast, over ν, beside how far the frozen forecast itself errs."""

import numpy as np

from engine.figures._calibration import Calibrated, calibration, known, log_axis, nu_axis
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Points, Rule
from engine.figures._charted import Table
from engine.figures._select import Selection, between
from engine.figures._style import number

_COLUMNS = ("kind", "nu", "scale", "scale_low", "scale_high", "round")
BASIS = {
    "scale": "by matching the mean scales",
    "per_example": "by matching scales example by example",
    "grid": "by the least mean (R − Z)²",
    "w1_pit": "by the smallest W₁(PIT)",
    "crps_fair": "by the smallest fair CRPS",
    "coverage_95": "by the coverage closest to a perfect ensemble's",
    "nll_gaussian": "by the smallest Gaussian negative log likelihood",
}


class ScaleFit(Calibrated):
    """Mean departure R of the members over ν, both logarithmic, with the fit through it; where it meets the error Z is ν*."""

    key = "scale_fit"
    title = "Where do the members stray as far as the model errs?"

    def table(self, s: Selection) -> Table:
        """One row a pass, a mean, a point of the fit; the error of the frozen model; ν* with its interval in `nu`'s columns."""
        import pandas as pd

        c = calibration(s).verification
        parts = [
            ("pass", c["evaluation_nu"], c["evaluation_scale"], None, None, c["evaluation_round"]),
            ("mean", c["nu"], c["scale"], c["scale_low"], c["scale_high"], None),
            ("fit", c["curve_nu"], c["fit"], c["fit_low"], c["fit_high"], None),
        ]
        rows = [
            (kind, float(nu), *(float("nan") if a is None else float(a.values[i]) for a in rest))
            for kind, along, *rest in parts
            for i, nu in enumerate(along.values)
        ]
        error = (float(c[f"target_scale{end}"]) for end in ("", "_low", "_high"))
        rows.append(("error of the frozen model", float("nan"), *error, float("nan")))
        table = pd.DataFrame(rows, columns=list(_COLUMNS))
        # a scale of zero (a ν so large that nothing is drawn) has no place on a logarithmic axis
        return table[table["scale"] > 0].reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Passes, means, fit and band; the rule of the model's own error; ν* where they meet."""
        c = calibration(s)
        part = {kind: table[table["kind"] == kind] for kind in ("pass", "mean", "fit", "error of the frozen model")}
        passes, means, fit, error = part.values()
        # the band of a fit may be far wider than what was measured: it is cut off, and what was measured fills the picture
        drawn = np.concatenate([passes["scale"], means["scale"], means["scale_low"], means["scale_high"], *error.to_numpy()[:, 2:5].T])
        axis_y = log_axis(f"mean departure of the members R, {c.scale_units}", drawn.astype(float), above=0.16)
        axis_x = nu_axis("concentration ν  (small: strong noise, large: none)", self._largest(s))
        assert axis_x.range is not None and axis_y.range is not None
        layers: list[Layer] = self._error(error, axis_x.range, rising=self._rising(s))
        layers += self._star(s, axis_y)
        if len(passes) and len(fit):  # far from where the passes are the straight line is no claim, and looks like a bad one
            near = np.quantile(passes["nu"], [0.05, 0.95]) * [0.5, 2.0]
            fit = fit[fit["nu"].between(*near)]
        if len(fit):
            x = np.log2(fit["nu"]).tolist()
            banded = bool(fit[["scale_low", "scale_high"]].notna().all(axis=None))
            if banded:
                layers.append(Band(x, _log(fit["scale_low"]), _log(fit["scale_high"]), strength=0.16))
            layers.append(Line(x, _log(fit["scale"]), label="fit with 95% band" if banded else "fit"))
        hover = [f"ν = {r.nu:,.0f}<br>one pass: {number(r.scale)}<br>{_round(r.round)}" for r in passes.itertuples()]
        layers.append(Points(np.log2(passes["nu"]).tolist(), _log(passes["scale"]), colour="muted", size=5, hover=hover, label="one pass"))
        hover = [f"<b>ν = {r.nu:,.0f}</b><br>mean {between(r.scale, r.scale_low, r.scale_high)}" for r in means.itertuples()]
        x, y, low, high = np.log2(means["nu"]).tolist(), *(_log(means[name]) for name in ("scale", "scale_low", "scale_high"))
        layers.append(Points(x, y, low=low, high=high, size=9, symbol="diamond", hover=hover, label="mean at one ν"))
        objective, about = self._objective(s), s.subject(nu=False)
        if objective != "scale":
            about += f" · chosen {BASIS.get(objective, 'by another rule')}"
        elif not self._rising(s) and not c.point.get("edge"):
            about += " · ν* is where the two lines meet"
        if c.interval:
            about += "; shaded: 95% interval of ν*"
        uncertainty = f"fit: 95% posterior band; bars and the error's band: {s.bootstrap()}"
        footer = s.footer("R, Z: root mean square over the grid of one case", uncertainty)
        return Chart(self.message(s), about, footer, (Panel(axis_x, axis_y, tuple(layers)),), height=470)

    @staticmethod
    def _objective(s: Selection) -> str:
        return str(s.verification.attrs.get("objective", "scale"))

    @staticmethod
    def _rising(s: Selection) -> bool:
        """Whether the members do not draw closer as ν grows, against what sampling does: then no fit can be trusted."""
        return bool(float(s.verification.attrs.get("slope", -0.5)) >= 0)

    @staticmethod
    def _largest(s: Selection) -> float:
        c = s.verification
        return max(float(a.max()) for a in (c["curve_nu"], c["nu"], c["evaluation_nu"]))

    @staticmethod
    def _error(error: Table, across: tuple[float, float], *, rising: bool) -> list[Layer]:
        """The frozen model's own error; its name stands on the side where the curve is not."""
        layers: list[Layer] = []
        for row in error.itertuples():
            if known(row.scale_low) and known(row.scale_high):
                layers.append(Band(across, _log([row.scale_low] * 2), _log([row.scale_high] * 2), colour="good", strength=0.16))
            words = f"the frozen model's own error: {number(row.scale)}"
            layers.append(Rule("y", float(np.log10(row.scale)), colour="good", dash=False, label=words, end="start" if rising else "end"))
        return layers

    @staticmethod
    def _star(s: Selection, axis_y: Axis) -> list[Layer]:
        """ν* and the range that the data leave for it."""
        c, layers = calibration(s), list[Layer]()
        if c.interval and c.interval[0] > 0:
            bottom, top = axis_y.range or (0.0, 1.0)
            layers.append(Band(np.log2(c.interval).tolist(), [bottom] * 2, [top] * 2, colour="second", strength=0.13))
        return [*layers, Rule("x", float(np.log2(s.nu)), colour="second", dash=False, label=c.star.replace("ν", "ν*", 1))]

    def message(self, s: Selection) -> str:
        """The answer in words; where there is none, that."""
        c = calibration(s)
        error = float(c.verification["target_scale"])
        scale = c.measured("scale")
        if self._objective(s) not in ("scale", "per_example", "grid"):
            at = f": the members stray {number(scale / error, 2)} times as far as the model errs" if known(scale / error) else ""
            return f"ν = {s.nu} was chosen {BASIS.get(self._objective(s), 'by another rule')}{at}"
        if self._rising(s):
            return "A larger ν does not draw the members closer here, so no ν matches the model's own error"
        if c.point.get("edge"):
            # at the small end the noise is as strong as it can be, at the large end as weak as was looked at
            less = s.nu <= 1 or (known(scale) and scale < error)
            return f"Even at ν = {s.nu} the members stray {'less' if less else 'further'} than the model errs"
        return f"At ν = {s.nu} the members stray as far as the model errs"

    def words(self, table: Table, s: Selection) -> str:
        """ν*, what it was matched to, the slope, and how much was looked at."""
        c = calibration(s)
        attrs, passes = s.verification.attrs, table[table["kind"] == "pass"]
        error = between(*(float(s.verification[f"target_scale{end}"]) for end in ("", "_low", "_high")))
        slope = between(*(float(attrs.get(f"slope{end}", np.nan)) for end in ("", "_low", "_high")))
        least, most = (f"{passes['nu'].agg(a):,.0f}" for a in ("min", "max")) if len(passes) else ("–", "–")
        return (
            f"{self.message(s)}. Chosen: {c.star}. The frozen model's own error is {error} {c.scale_units} for {s.subject(nu=False)}, "
            f"{attrs.get('cases')} calibration cases, M = {s.members}. {len(passes)} passes at ν from {least} to {most} "
            f"give a slope of {slope} of the departure over ν, both logarithmic; one layer alone would give −0.5."
        )


def _log(values: object) -> list[float]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(np.asarray(values, float)).tolist()


def _round(number_: float) -> str:
    return "first design" if number_ == 0 else f"round {number_:.0f} of the search"


ENTRIES = (ScaleFit(),)
