"""Maps: one case's fields, or a score at each cell over all cases; without a network, without a seam at the dateline."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine.errors import SpecError
from engine.figures import _geo, _map_data, _map_words
from engine.figures._map_data import KINDS, shared_range
from engine.figures._select import Selection, select
from engine.types import Figure

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import xarray as xr

__all__ = ["ENTRIES", "FieldMap", "shared_range"]


class FieldMap(Figure):
    """`which` of `KINDS`; single-case kinds need `fields=`. A click gives [latitude, longitude, value, place] of the cell as customdata.

    Options beside the common ones: which, fields, case (position or init_time), level (for coverage), projection, limits (a
    common colour range, from `shared_range`), latitude and longitude (a cell to mark).
    """

    key = "field_map"
    title = "Where does the forecast succeed and fail?"
    needs_fields: ClassVar[bool] = True
    accepts: ClassVar[frozenset[str]] = frozenset({"which", "fields", "case", "level", "projection", "limits", "latitude", "longitude"})
    kinds: ClassVar[dict[str, str]] = {key: kind.title for key, kind in KINDS.items()}
    single: ClassVar[frozenset[str]] = frozenset(key for key, kind in KINDS.items() if kind.single)
    projections: ClassVar[dict[str, str]] = {key: p.title for key, p in _geo.PROJECTIONS.items()}

    def choose(self, verification: "xr.Dataset", options: dict[str, Any]) -> Selection:
        """The checked selection."""
        s = select(verification, options, self.accepts)
        if len(s.nus) > 1:
            remedy = "Draw one map for each ν."
            raise SpecError(f"figure {self.key}", found=f"{len(s.nus)} values of ν", expected="one", remedy=remedy)
        return s

    def data(self, verification: "xr.Dataset", **options: Any) -> "xr.Dataset":
        """The field on its own grid."""
        return _map_data.read(self.choose(verification, options))

    def describe(self, verification: "xr.Dataset", **options: Any) -> str:
        """The text alternative."""
        s = self.choose(verification, options)
        return _map_words.words(_map_data.read(s), s)

    def screen(self, verification: "xr.Dataset", *, dark: bool = False, **options: Any) -> "go.Figure":
        """Drawn by plotly, latitude by longitude unless said."""
        from engine.figures import _map_screen

        s = self.choose(verification, options)
        data = _map_data.read(s)
        scale, limits = _map_data.colours(data, s)
        figure = _map_screen.draw(
            data,
            self._texts(data, s),
            self._projection(s, "equirectangular"),
            scale,
            limits,
            dark=dark,
            narrow=bool(s.options.get("narrow")),
        )
        if s.options.get("latitude") is not None and s.options.get("longitude") is not None:
            _map_screen.mark(
                figure, data, self._projection(s, "equirectangular"), float(s.options["latitude"]), float(s.options["longitude"])
            )
        return figure

    def page(self, verification: "xr.Dataset", *, dark: bool = False, **options: Any) -> Any:
        """Drawn by cartopy, Robinson unless said."""
        from engine.figures import _map_page

        s = self.choose(verification, options)
        data = _map_data.read(s)
        scale, limits = _map_data.colours(data, s)
        return _map_page.draw(data, self._texts(data, s), self._projection(s, "robinson").key, scale, limits, dark=dark)

    def _projection(self, s: Selection, default: str) -> _geo.Projection:
        key = s.options.get("projection") or default
        if key not in _geo.PROJECTIONS:
            expected = f"one of {', '.join(_geo.PROJECTIONS)}"
            raise SpecError("figure option projection", found=repr(key), expected=expected, remedy="Choose one of these.")
        return _geo.PROJECTIONS[key]

    def _texts(self, data: "xr.Dataset", s: Selection) -> tuple[str, str, str]:
        """Message, subject and footer."""
        kind = _map_data.kind_of(s)
        subtitle = s.subject(region=False, nu=kind.uses_nu)
        if "init_time" in data.attrs:
            subtitle += f" · from {_short(data.attrs['init_time'])}, valid {_short(data.attrs['valid_time'])}"
        if kind.hint:
            subtitle += f" · {kind.hint}"
        footer = s.footer(kind.estimator, _map_words.noise(data, s))
        if not np.isfinite(next(iter(data.data_vars.values())).values).all():
            footer += " · grey: no data"
        return _map_words.message(data, s), subtitle, footer


def _short(time: str) -> str:
    """`0012-02-30T06:00:00` → `0012-02-30 06:00`; text, since not every calendar's dates can be parsed."""
    return time[:16].replace("T", " ")


ENTRIES = (FieldMap(),)
