"""The base of figures that are a Chart: one table, one chart, drawn twice."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from engine.errors import SpecError
from engine.figures._chart import Chart
from engine.figures._select import Selection, select
from engine.types import Figure

if TYPE_CHECKING:
    import xarray as xr

Table = Any
"""A `pandas.DataFrame`: its type cannot say what a column holds, and naming it here would import pandas for everyone."""


class Charted(Figure):
    """A figure whose picture is described by layers.

    `accepts` names the figure's own options; nu, region, lead_time, variable and narrow (narrower lines of text) are everyone's.
    `nus` says how many ν fit into one picture. `needs_fields` figures read the opened fields.nc, given as `fields=`.
    """

    accepts: ClassVar[frozenset[str]] = frozenset()
    nus: ClassVar[int] = 2
    needs_fields: ClassVar[bool] = False

    def choose(self, verification: "xr.Dataset", options: dict[str, Any]) -> Selection:
        """The checked selection."""
        s = select(verification, options, self.accepts)
        if len(s.nus) > self.nus:
            raise SpecError(
                f"figure {self.key}", found=f"{len(s.nus)} values of ν", expected="one", remedy="Choose one ν, or draw the figure twice."
            )
        return s

    @abstractmethod
    def table(self, s: Selection) -> Table:
        """The tidy table behind the picture."""

    @abstractmethod
    def chart(self, table: Table, s: Selection) -> Chart:
        """The picture of that table."""

    @abstractmethod
    def words(self, table: Table, s: Selection) -> str:
        """The text alternative of that table."""

    def data(self, verification: "xr.Dataset", **options: Any) -> Table:
        """The tidy table; refused where nothing valid is left to show."""
        return self._table(self.choose(verification, options))

    def _table(self, s: Selection) -> Table:
        table = self.table(s)
        if table.empty:
            raise SpecError(
                f"figure {self.key}",
                found=f"no valid value for {s.subject()}",
                expected="at least one",
                remedy="Choose another region or variable.",
            )
        return table

    def screen(self, verification: "xr.Dataset", *, dark: bool = False, **options: Any) -> Any:
        """The plotly figure."""
        from engine.figures import _screen

        s = self.choose(verification, options)
        return _screen.draw(self.chart(self._table(s), s), dark=dark, narrow=bool(s.options.get("narrow")))

    def page(self, verification: "xr.Dataset", *, dark: bool = False, **options: Any) -> Any:
        """The matplotlib figure."""
        from engine.figures import _print

        s = self.choose(verification, options)
        return _print.draw(self.chart(self._table(s), s), dark=dark)

    def describe(self, verification: "xr.Dataset", **options: Any) -> str:
        """The text alternative."""
        s = self.choose(verification, options)
        return self.words(self._table(s), s)
