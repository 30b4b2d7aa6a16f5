"""Do members look like weather: their power at each zonal wavenumber beside that of the observed and of the frozen forecast."""

import numpy as np

from engine.errors import ExportError
from engine.figures._calibration import log_axis
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Rule
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import number, percent, pretty_units

PARTS = ("observed", "deterministic", "members", "members_low", "members_high")
SMALL = 0.5
"""Waves shorter than this share of the shortest one's wavenumber upwards count as small scales in words (our choice)."""


class MemberSpectrum(Charted):
    """Power over wavenumber, both logarithmic: observed, frozen forecast, and the members' median and range."""

    key = "member_spectrum"
    title = "Do single members look like weather?"
    nus = 1

    def table(self, s: Selection) -> Table:
        """One row a wavenumber from 1 on: wavenumber 0 is the zonal mean, which has no place on a logarithmic axis."""
        import pandas as pd

        missing = [f"spectrum_{part}" for part in PARTS if f"spectrum_{part}" not in s.verification]
        if missing:
            raise ExportError(
                f"figure {self.key} of run {s.key}",
                found=f"{', '.join(missing)} not stored",
                expected="a run that stored spectra",
                remedy="Run it again with this version: spectra are made while members are at hand.",
            )
        columns = {part: s.at(f"spectrum_{part}", nu=s.nu).values for part in PARTS}
        table = pd.DataFrame({"wavenumber": s.verification["wavenumber"].values} | columns)
        table = table[(table["wavenumber"] > 0) & (table[["observed", "members"]] > 0).all(axis=1)]
        return table.reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Three lines and a band; the patch's wavenumber as a rule."""
        x = np.log10(table["wavenumber"].to_numpy(float))
        axis_x = log_axis("waves round the globe (zonal wavenumber)", table["wavenumber"].to_numpy(float), above=0.04, below=0.02)
        axis_y = log_axis(f"power ({_squared(pretty_units(s.units))})" if pretty_units(s.units) else "power", self._drawn(table))
        floor = (axis_y.range or (0.0, 1.0))[0]
        logs = {part: np.log10(np.maximum(table[part].to_numpy(float), 10.0**floor)).tolist() for part in PARTS}
        hover = [
            f"<b>wavenumber {r.wavenumber:g}</b><br>members {number(r.members)} ({number(r.members_low)} … {number(r.members_high)})<br>"
            f"observed {number(r.observed)}<br>frozen forecast {number(r.deterministic)}"
            for r in table.itertuples()
        ]
        layers: list[Layer] = [
            Band(x.tolist(), logs["members_low"], logs["members_high"], colour="accent", strength=0.2),
            Line(x.tolist(), logs["observed"], colour="ink", width=2.4, label="observed"),
            Line(x.tolist(), logs["deterministic"], colour="second", dash=True, label="frozen forecast"),
            Line(x.tolist(), logs["members"], colour="accent", hover=hover, label="members: median, range"),
        ]
        marked, about = self._patch(table, s)
        if marked is not None:
            layers.append(Rule("x", float(np.log10(marked)), label=f"patch: {marked:g}", end="start"))
        ticks = [k for k in (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000) if x.min() <= np.log10(k) <= x.max()]
        axis_x = Axis(axis_x.label, axis_x.range, [float(np.log10(k)) for k in ticks], [f"{k:,}" for k in ticks])
        footer = s.footer(
            "power along parallels, area-weighted mean over latitudes", "shaded: smallest to largest member; means over cases"
        )
        return Chart(
            self.message(table, s), f"{s.subject(region=False)}{about}", footer, (Panel(axis_x, axis_y, tuple(layers)),), height=450
        )

    @staticmethod
    def _drawn(table: Table) -> np.ndarray:
        return table[list(PARTS)].to_numpy(float).ravel()

    @staticmethod
    def _patch(table: Table, s: Selection) -> tuple[float | None, str]:
        """(the wavenumber at which patches repeat, words on it): longitudes over the patch's width in cells."""
        patch = s.verification.attrs.get("patch")
        if not patch:
            return None, ""
        longitudes = s.verification.sizes.get("longitude", 2 * int(table["wavenumber"].max()))
        return longitudes / float(patch), f" · dashed upright: patches of {int(patch)} cells"

    @staticmethod
    def _ratios(table: Table) -> tuple[float, float, float]:
        """(members over observed, frozen over observed, first wavenumber) of the power in small scales."""
        first = SMALL * float(table["wavenumber"].max())
        part = table[table["wavenumber"] >= first]
        observed = float(part["observed"].sum())
        return float(part["members"].sum()) / observed, float(part["deterministic"].sum()) / observed, float(part["wavenumber"].min())

    def message(self, table: Table, s: Selection) -> str:
        """How much of the observed power members hold at small scales, and the frozen forecast."""
        members, frozen, _ = self._ratios(table)
        word = "as much" if 0.8 <= members <= 1.25 else f"{self._times(members)} as much"
        return f"Members hold {word} small-scale power as the observed; the frozen forecast {self._times(frozen)}"

    @staticmethod
    def _times(ratio: float) -> str:
        return f"{number(ratio, 2)} times" if ratio >= 1.5 else percent(ratio)

    def words(self, table: Table, s: Selection) -> str:
        """Ratios at small scales and the ends of the spectrum."""
        members, frozen, first = self._ratios(table)
        ends = "; ".join(
            f"wavenumber {r['wavenumber']:g}: observed {number(r['observed'])}, frozen {number(r['deterministic'])}, members "
            f"{number(r['members'])} ({number(r['members_low'])} … {number(r['members_high'])})"
            for r in (table.iloc[0], table.iloc[-1])
        )
        return (
            f"{self.message(table, s)}. Zonal power for {s.subject(region=False)}, M = {s.members}. From wavenumber {first:g} on members "
            f"hold {number(members)} of the observed power, the frozen forecast {number(frozen)}. {ends}."
        )


def _squared(units: str) -> str:
    return f"{units}²" if units.isalpha() else f"({units})²"


ENTRIES = (MemberSpectrum(),)
