"""The trade-off over ν: calibration against accuracy, both with their sampling uncertainty; a click on a point chooses its ν."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import SpecError
from engine.figures._chart import Axis, Chart, Layer, Line, Note, Panel, Points, Rule
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection, between
from engine.figures._style import in_units, number, percent, pretty_units
from engine.judging import where_chosen

_NAMES = {"calibration_first": "calibration first", "score_oriented": "score oriented"}
_PLACES = (
    ("top right", 1, 1),
    ("bottom right", 1, -1),
    ("top left", -1, 1),
    ("bottom left", -1, -1),
    ("middle right", 1, 0),
    ("middle left", -1, 0),
)


class TradeOff(Charted):
    """A point per ν: fair CRPS along x, miscalibration along y (`calibration="w1_pit"`, or "coverage_95": its error)."""

    key = "trade_off"
    title = "Which ν is honest, and what does honesty cost?"
    accepts = frozenset({"calibration"})
    nus = 1
    hint = "<br>click to choose this ν"
    ring = "ring: the ν now looked at"

    def table(self, s: Selection) -> Table:
        """One row a ν; `operating_point` names the points that the run chose on its calibration split."""
        import pandas as pd

        kind = s.options.get("calibration") or "w1_pit"
        if kind not in ("w1_pit", "coverage_95"):
            raise SpecError("figure option calibration", found=repr(kind), expected="w1_pit or coverage_95", remedy="Choose one of these.")
        name, shift = ("w1_pit", 0.0) if kind == "w1_pit" else ("coverage_error_95", s.nominal)
        columns: dict[str, Any] = {"nu": [int(n) for n in s.verification["nu"].values]}
        for out, source, minus in (("crps_fair", "crps_fair", 0.0), (name, kind, shift)):
            for end in ("", "_low", "_high"):
                columns[out + end] = s.at(source + end).values - minus
        table = pd.DataFrame(columns)
        points = s.points
        table["operating_point"] = [" and ".join(_NAMES[k] for k, p in points.items() if p["nu"] == nu) for nu in table["nu"]]
        table["chosen"] = table["nu"] == s.nu
        return table.dropna(subset=["crps_fair", name]).reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Curve in ν order, error bars on both axes, operating points named on the spot."""
        y = str(table.columns[4])
        units = in_units(s.units)
        best, sharp = table.loc[table[y].abs().idxmin()], table.loc[table["crps_fair"].idxmin()]
        # the title speaks of the points that are marked: those that the run chose, on other data than what is drawn here
        points = s.points
        honest, accurate = (int(points.get(k, {"nu": n})["nu"]) for k, n in zip(_NAMES, (best["nu"], sharp["nu"]), strict=True))
        title = self.message(s, honest, accurate, table)
        shown = self.named(table, y)
        names = [
            s.label(n) + (f" · {p}" if p else "") if n in shown else "" for n, p in zip(table["nu"], table["operating_point"], strict=True)
        ]
        hint, ring = (self.hint, self.ring) if s.uses_nu else ("", "")
        hover = [
            f"<b>{s.label(r.nu)}</b><br>CRPS {between(r.crps_fair, r.crps_fair_low, r.crps_fair_high)}{units}<br>"
            f"{'W₁(PIT)' if y == 'w1_pit' else 'coverage error'} "
            f"{between(getattr(r, y), getattr(r, y + '_low'), getattr(r, y + '_high'))}{hint}"
            for r in table.itertuples()
        ]
        x_range, y_range = _range(table, "crps_fair", 0.16), _range(table, y, 0.1)
        if y == "w1_pit":
            y_range = (min(0.0, y_range[0]), y_range[1])
        in_the_way = self.obstacles(table[table["nu"].isin(shown)], y)
        places = _label_places(table["crps_fair"].to_numpy(), table[y].to_numpy(), names, x_range, y_range, in_the_way)
        xs, ys = table["crps_fair"].tolist(), table[y].tolist()
        ends = {"low": f"{y}_low", "high": f"{y}_high", "x_low": "crps_fair_low", "x_high": "crps_fair_high"}
        error = {end: table[name].where(table["nu"].isin(shown)).tolist() for end, name in ends.items()}
        layers: list[Layer] = [
            Line(xs, ys, colour="muted", width=1.4),
            Points(xs, ys, colour="accent", size=9, hover=hover, values=table["nu"].tolist() if hint else None, **error),
        ]
        marked = [(p, x, v) for p, x, v in zip(table["operating_point"], xs, ys, strict=True) if p]
        layers += [Points([x], [v], colour="good", symbol="star" if "calibration" in p else "diamond", size=14) for p, x, v in marked]
        now = table[table["chosen"]]
        if ring:
            layers.append(Points(now["crps_fair"].tolist(), now[y].tolist(), colour="second", symbol="ring", size=20))
        bold = [f"<b>{n}</b>" if p or c else n for n, p, c in zip(names, table["operating_point"], table["chosen"], strict=True)]
        layers.append(Points(xs, ys, colour="ink", symbol="none", size=14, text=bold, place=places))
        if y == "w1_pit":
            layers.append(Note(x_range[0], y_range[0], "↙ better on both", colour="good", anchor="left", shift=12))
            label = "miscalibration: W₁ distance of the PIT from uniform"
        else:
            layers.append(Rule("y", 0.0, colour="good", dash=False, label=s.perfect))
            label = f"coverage of the 95% interval minus {percent(s.nominal, 1)}"
        panel = Panel(Axis(f"error: fair CRPS{units}", x_range), Axis(label, y_range, percent=y != "w1_pit"), tuple(layers))
        footer = s.footer("CRPS: fair estimator", f"bars on both axes: {s.bootstrap()}")
        subtitle = s.subject(nu=False) + (f" · one point per ν{f'; {ring}' if ring else ''}" if s.uses_nu else "")
        if said := where_chosen(points):
            subtitle += f" · {said[0].lower()}{said[1:]}"
        if s.uses_nu:
            subtitle += self.lowest(table, y, s, {honest, accurate})
        return Chart(title, subtitle, footer, (panel,), height=520)

    @staticmethod
    def lowest(table: Table, y: str, s: Selection, marked: set[int]) -> str:
        """Where the curve itself is lowest, as far as that is no marked point; said too where that is at an end of what was tried."""
        grid = [int(n) for n in s.verification["nu"].values]
        told = []
        for name, label in ((y, "W₁" if y == "w1_pit" else "coverage error"), ("crps_fair", "CRPS")):
            nu = int(table.loc[table[name].abs().idxmin(), "nu"])
            if nu not in marked:
                told.append(f"{label} lowest here at {s.label(nu)}" + (" (the largest tried)" if nu == max(grid) else ""))
        return f" · {', '.join(told)}" if told else ""

    def named(self, table: Table, y: str) -> set[int]:
        """The ν whose points have a name and bars beside them: all."""
        del y
        return set(table["nu"])

    def obstacles(self, table: Table, y: str) -> list[tuple[float, float]]:
        """Further places that names keep clear of: none."""
        del table, y
        return []

    def message(self, s: Selection, best: int, sharp: int, table: Table) -> str:
        """Both operating points, and what the honest one costs in error where both were scored."""
        if not s.uses_nu:
            y = str(table.columns[4])
            name = "miscalibration" if y == "w1_pit" else "coverage error"
            error = f"{number(table['crps_fair'].iloc[0])} {pretty_units(s.units)}".rstrip()
            return f"{s.label(best)}: error {error}, {name} {number(table[y].iloc[0])}"
        if best == sharp:
            return f"{s.label(best)} is both calibration first and score oriented"
        rows = table.set_index("nu")["crps_fair"]
        cost = rows[best] / rows[sharp] - 1 if {best, sharp} <= set(rows.index) else 0.0
        return (
            f"{s.label(best)} is calibration first, {s.label(sharp)} score oriented ({percent(1 - 1 / (1 + cost), 1)} less error)"
            if cost > 0
            else f"{s.label(best)} is calibration first, {s.label(sharp)} score oriented"
        )

    def words(self, table: Table, s: Selection) -> str:
        """Best ν of each kind with numbers, and the ends of the grid."""
        y = str(table.columns[4])
        name = "W₁(PIT)" if y == "w1_pit" else "coverage error"
        best, sharp = table.loc[table[y].abs().idxmin()], table.loc[table["crps_fair"].idxmin()]
        units = f" {pretty_units(s.units)}".rstrip()
        if not s.uses_nu:
            score = f"{name} {between(best[y], best[y + '_low'], best[y + '_high'])}"
            error = f"fair CRPS {between(best['crps_fair'], best['crps_fair_low'], best['crps_fair_high'])}{units}"
            return f"{s.label(s.nu)} for {s.subject(nu=False)}, M = {s.members}: {score}, {error}."
        text = (
            f"Trade-off over {len(table)} values of ν for {s.subject(nu=False)}, M = {s.members}. Smallest |{name}| at "
            f"{s.label(int(best['nu']))}: "
            f"{between(best[y], best[y + '_low'], best[y + '_high'])}. Smallest fair CRPS at {s.label(int(sharp['nu']))}: "
            f"{between(sharp['crps_fair'], sharp['crps_fair_low'], sharp['crps_fair_high'])}{units}. "
        )
        split = {"calibrate": "the calibration split", "verify": "the verification itself"}
        told = [
            f"{_NAMES[k]} {s.label(int(p['nu']))}, chosen on {split.get(p['chosen_on'], p['chosen_on'])} for {p['chosen_for']}"
            + (f" ({p['remark']})" if p["remark"] else "")
            for k, p in s.points.items()
        ]
        first, last = table.iloc[0], table.iloc[-1]
        ends = (
            f"From {s.label(int(first['nu']))} to {s.label(int(last['nu']))} CRPS goes from "
            f"{number(first['crps_fair'])} to {number(last['crps_fair'])}{units}."
        )
        return text + (f"Operating points: {'; '.join(told)}. " if told else "") + ends


def _range(table: Table, name: str, margin: float) -> tuple[float, float]:
    """An axis range that holds every bar, with room for labels."""
    low, high = float(table[[name, name + "_low"]].min().min()), float(table[[name, name + "_high"]].max().max())
    pad = (high - low or abs(high) or 1.0) * margin
    return low - pad, high + pad


def _label_places(
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str],
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    obstacles: Sequence[tuple[float, float]] = (),
) -> list[str]:
    """For each label the first side at which it meets no other label, no point and no edge, counted on a typical 700 × 400 drawing."""
    px, py = (x - x_range[0]) / (x_range[1] - x_range[0]) * 640, (y - y_range[0]) / (y_range[1] - y_range[0]) * 380
    taken: list[tuple[float, float, float, float]] = [(a - 7, b - 7, a + 7, b + 7) for a, b in zip(px, py, strict=True)]
    # the curve itself is in the way too
    for i in range(len(px) - 1):
        taken += [
            (a - 1, b - 1, a + 1, b + 1) for a, b in zip(np.linspace(px[i], px[i + 1], 40), np.linspace(py[i], py[i + 1], 40), strict=True)
        ]
    for a, b in obstacles:
        a, b = (a - x_range[0]) / (x_range[1] - x_range[0]) * 640, (b - y_range[0]) / (y_range[1] - y_range[0]) * 380
        taken.append((a - 1, b - 1, a + 1, b + 1))
    places = []
    for a, b, name in zip(px, py, names, strict=True):
        width, options = 7.2 * len(name), []
        for place, side, up in _PLACES:
            left = a + 9 if side > 0 else a - 9 - width
            box = (
                left,
                b + 5 * up + (0 if up > 0 else -15 if up < 0 else -8),
                left + width,
                b + 5 * up + (15 if up > 0 else 0 if up < 0 else 8),
            )
            clash = sum(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in taken)
            clash += 100 * (box[0] < 0 or box[2] > 640) + 20 * (box[1] < 0 or box[3] > 380)
            options.append((clash, len(options), place, box))
        _, _, place, box = min(options)
        places.append(place)
        taken.append(box)
    return places


ENTRIES = (TradeOff(),)
