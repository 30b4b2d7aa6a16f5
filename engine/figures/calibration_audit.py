"""The audit of ν*: the loss itself, measured at each ν, and where three readings of it put the best ν."""

from itertools import pairwise

import numpy as np

from engine.figures._calibration import READINGS, Calibrated, calibration, known, log_axis, nu_axis, with_interval
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Points, Rule
from engine.figures._charted import Table
from engine.figures._select import Selection, between
from engine.figures._style import number

_COLUMNS = ("kind", "reading", "nu", "nu_low", "nu_high", "loss", "loss_low", "loss_high")
NAN = float("nan")


class CalibrationAudit(Calibrated):
    """Mean (R − Z)² over ν, and under it one row a reading: its ν and the interval of it."""

    key = "calibration_audit"
    title = "Do three ways of reading the same loss agree?"

    def table(self, s: Selection) -> Table:
        """One row a ν with its loss, and one a reading with its ν; a reading's loss is NaN where it was never measured."""
        import pandas as pd

        c = s.verification
        rows: list[tuple[object, ...]] = [
            ("loss", "", float(nu), NAN, NAN, *(float(c[f"loss{end}"].values[i]) for end in ("", "_low", "_high")))
            for i, nu in enumerate(c["nu"].values)
        ]
        rows += [
            ("reading", str(name), *(float(c[f"reading_{end}"].values[i]) for end in ("nu", "low", "high", "loss")), NAN, NAN)
            for i, name in enumerate(c["reading"].values)
        ]
        table = pd.DataFrame(rows, columns=list(_COLUMNS))
        return table[((table["kind"] == "loss") & (table["loss"] > 0)) | ((table["kind"] == "reading") & (table["nu"] > 0))].reset_index(
            drop=True
        )

    def chart(self, table: Table, s: Selection) -> Chart:
        """Above the loss with its bars, below the readings; both along the same ν."""
        c = calibration(s)
        loss, readings = table[table["kind"] == "loss"], table[table["kind"] == "reading"].iloc[::-1]
        largest = max(float(s.verification["curve_nu"].max()), float(table["nu"].max()))
        axis_x = nu_axis("concentration ν", largest)
        axis_y = log_axis("loss: mean (R − Z)²", loss[["loss", "loss_low", "loss_high"]].to_numpy(float).ravel())
        x = np.log2(loss["nu"]).tolist()
        y, low, high = (np.log10(loss[name]).tolist() for name in ("loss", "loss_low", "loss_high"))
        hover = [f"<b>ν = {r.nu:,.0f}</b><br>loss {between(r.loss, r.loss_low, r.loss_high)}" for r in loss.itertuples()]
        star = Rule("x", float(np.log2(s.nu)), colour="second", dash=False, label=f"ν* = {s.nu}")
        above: list[Layer] = [
            Line(x, y, colour="muted", width=1.4),
            Points(x, y, low=low, high=high, size=8, hover=hover),
            star,
        ]
        below: list[Layer] = [Rule("x", float(np.log2(s.nu)), colour="second", dash=False)]
        for row, r in enumerate(readings.itertuples()):
            if known(r.nu_low) and known(r.nu_high) and r.nu_low > 0:
                ends = np.log2([r.nu_low, r.nu_high]).tolist()
                below.append(Band(ends, [row - 0.13] * 2, [row + 0.13] * 2, strength=0.3))
            said = f"loss there {number(r.loss)}" if known(r.loss) else "the loss there was not measured"
            name = with_interval(r.nu, r.nu_low, r.nu_high)
            words = f"{READINGS.get(r.reading, r.reading)}: {name}"
            # words go to the side with room, beyond the interval's end
            late = float(np.log2(r.nu)) > 0.6 * np.log2(largest)
            edge = r.nu_low if late and known(r.nu_low) else r.nu_high if not late and known(r.nu_high) else r.nu
            place = f"middle {'left' if late else 'right'}"
            at, beside = float(np.log2(r.nu)), float(np.log2(max(edge, 1)))
            below.append(Points([at], [float(row)], size=10, symbol="diamond", hover=[f"<b>{name}</b><br>{said}"]))
            below.append(Points([beside], [float(row)], colour="ink", symbol="none", size=10, text=[words], place=[place]))
        axis_r = Axis("readings", (-0.6, len(readings) - 0.4), [], [])
        panels = (
            Panel(Axis("", axis_x.range, axis_x.ticks, [""] * len(axis_x.ticks or ())), axis_y, tuple(above)),
            Panel(axis_x, axis_r, tuple(below), row=1),
        )
        footer = s.footer(f"R, Z in {c.scale_units}: root mean square over the grid of one case", f"bars, bands: {s.bootstrap()}")
        subtitle = f"{s.subject(nu=False)} · below: ν by each reading, with its 95% interval"
        return Chart(self.message(table, s), subtitle, footer, panels, row_heights=(2.6, 1.0), height=520)

    def message(self, table: Table, s: Selection) -> str:
        """Whether the readings agree: their intervals share a ν, and the calibration itself does not warn of it."""
        readings = table[table["kind"] == "reading"]
        values = sorted(readings["nu"])
        if len(values) < 2:
            return "One reading alone: there is nothing to compare it with" if values else "No reading gives a ν"
        span = " and ".join([", ".join(f"{v:,.0f}" for v in values[:-1]), f"{values[-1]:,.0f}"])
        ends = readings[["nu_low", "nu_high"]].dropna()
        apart = bool(len(ends) > 1 and ends["nu_low"].max() > ends["nu_high"].min())
        count = _count(len(values))
        if apart:
            return f"The {count} readings disagree: ν = {span}"
        if "disagree" in calibration(s).warned:  # the calibration compares their losses, which may differ where the intervals do not
            return f"The {count} readings lie within their intervals, but their losses differ: ν = {span}"
        if all(a == b for a, b in pairwise(values)):
            return f"All {count} readings give ν = {values[0]:,.0f}"
        return f"The {count} readings agree within their intervals: ν = {span}"

    def words(self, table: Table, s: Selection) -> str:
        """Each reading, and the least loss that was measured."""
        c = calibration(s)
        loss, readings = table[table["kind"] == "loss"], table[table["kind"] == "reading"]
        said = "; ".join(f"{READINGS.get(r.reading, r.reading)}: {with_interval(r.nu, r.nu_low, r.nu_high)}" for r in readings.itertuples())
        least = ""
        if len(loss):
            best = loss.loc[loss["loss"].idxmin()]
            value = between(best["loss"], best["loss_low"], best["loss_high"])
            least = f" The least loss that was measured is {value} at ν = {best['nu']:,.0f}."
        return (
            f"{self.message(table, s)}. For {s.subject(nu=False)}, {s.verification.attrs.get('cases')} calibration cases, "
            f"M = {s.members}, in {c.scale_units}: {said}.{least} It was measured at {len(loss)} values of ν."
        )


def _count(n: int) -> str:
    return {2: "two", 3: "three"}.get(n, str(n))


ENTRIES = (CalibrationAudit(),)
