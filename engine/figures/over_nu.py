"""Small companions of the trade-off: one score over ν each, with its band and what it should be compared with."""

from collections.abc import Sequence

from engine.errors import SpecError
from engine.figures._chart import Axis, Band, Chart, Layer, Line, Panel, Points, Rule
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection, between, positions, score_name
from engine.figures._style import in_units, number, percent
from engine.judging import coverage_word, spread_sentence

LEVELS = (50, 80, 90, 95)


class OverNu(Charted):
    """One score over log ν. `names` are the score's possible names, the first stored one is drawn."""

    nus = 1
    names: Sequence[str] = ()
    axis = ""
    estimator = ""

    def score(self, s: Selection) -> str:
        """Name of the score in the Verification."""
        return score_name(s.verification, *self.names)

    def table(self, s: Selection) -> Table:
        """One row a ν: value and 95% interval."""
        import pandas as pd

        name = self.score(s)
        columns = {"nu": [int(n) for n in s.verification["nu"].values]} | {
            name + end: s.at(name + end).values for end in ("", "_low", "_high")
        }
        return pd.DataFrame(columns).dropna(subset=[name]).reset_index(drop=True)

    def show(self, value: float, s: Selection) -> str:
        """One value with its unit."""
        return f"{number(value)}{in_units(s.units)}"

    def references(self, s: Selection) -> list[Layer]:
        """What the curve is compared with."""
        return []

    def message(self, table: Table, s: Selection) -> str:
        """The title."""
        return self.title

    def chart(self, table: Table, s: Selection) -> Chart:
        """Band, line and points; the ν looked at is ringed."""
        name = str(table.columns[1])
        x, values = positions(table["nu"]), table[name].tolist()
        hint = "<br>click to choose this ν" if s.uses_nu else ""
        hover = [f"<b>{s.label(r[0])}</b><br>{between(*r[1:4])}{hint}" for r in table.itertuples(index=False)]
        ends = {end: table[f"{name}_{end}"].tolist() for end in ("low", "high")}  # a single point has a bar in place of the band
        layers: list[Layer] = [
            *self.references(s),
            Band(x, table[name + "_low"].tolist(), table[name + "_high"].tolist()),
            Line(x, values),
            Points(x, values, size=8, hover=hover, values=table["nu"].tolist() if s.uses_nu else None, **(ends if len(x) == 1 else {})),
        ]
        if s.uses_nu and s.nu in table["nu"].tolist():
            at = table["nu"].tolist().index(s.nu)
            layers.append(Points([x[at]], [values[at]], colour="second", symbol="ring", size=17))
        pad = 0.06 * (x[-1] - x[0] or 1.0)
        label = "concentration ν  (small: strong noise, large: none)" if s.uses_nu else ""
        ticks = [str(n) if s.uses_nu else s.label(n) for n in table["nu"]]
        axis_x = Axis(label, (x[0] - pad, x[-1] + pad), x, ticks)
        panel = Panel(axis_x, self.axis_y(s, table), tuple(layers))
        footer = s.footer(self.estimator, f"{'band' if len(x) > 1 else 'bar'}: {s.bootstrap()}")
        return Chart(self.message(table, s), s.subject(nu=False), footer, (panel,), height=380)

    def axis_y(self, s: Selection, table: Table) -> Axis:
        """The y axis."""
        return Axis(self.axis + in_units(s.units))

    def words(self, table: Table, s: Selection) -> str:
        """The value at the ν looked at, at the ends of the grid, and at the operating points."""
        name = str(table.columns[1])
        rows = {int(r[0]): r[1:4] for r in table.itertuples(index=False)}
        picked = dict.fromkeys([s.nu, min(rows), max(rows), *(int(p["nu"]) for p in s.points.values())])
        values = "; ".join(f"{between(*rows[n])} at {s.label(n)}" for n in picked if n in rows)
        title = str(s.verification[name].attrs.get("title", name))
        return (
            f"{self.message(table, s)}. {title[:1].upper()}{title[1:]}{' over ν' if s.uses_nu else ''} for {s.subject(nu=False)}, M = "
            f"{s.members}{in_units(s.units if self.in_variable_units else '1')}: {values}."
        )

    in_variable_units = True


class WidthOverNu(OverNu):
    """Mean width of the 95% interval."""

    key = "width_over_nu"
    title = "How wide is the 95% interval?"
    names = ("width_95", "width_95_quantile")
    axis = "mean width of the 95% interval"
    estimator = "interval between linear quantiles"

    def message(self, table: Table, s: Selection) -> str:
        """Ends of the grid."""
        name = str(table.columns[1])
        row = table[table["nu"] == s.nu]
        value = float(row[name].iloc[0]) if len(row) else float(table[name].iloc[0])
        return f"{s.looked_at} the 95% interval is {number(value)} {s.units} wide on average"

    def axis_y(self, s: Selection, table: Table) -> Axis:
        """From zero: a width compares with none."""
        return Axis(self.axis + in_units(s.units), (0.0, 1.08 * float(table[f"{table.columns[1]}_high"].max())))


class CoverageOverNu(OverNu):
    """Share of observations inside the central interval of `level` % (95 unless said)."""

    key = "coverage_over_nu"
    title = "Does the 95% interval hold what it promises?"
    accepts = frozenset({"level"})
    estimator = "interval between linear quantiles"
    in_variable_units = False

    def level(self, s: Selection) -> int:
        """Level in per cent."""
        level = int(s.options.get("level") or 95)
        if level not in LEVELS:
            raise SpecError(
                "figure option level", found=str(level), expected=f"one of {', '.join(map(str, LEVELS))}", remedy="Choose one of these."
            )
        return level

    def score(self, s: Selection) -> str:
        """Coverage of this level."""
        return score_name(s.verification, f"coverage_{self.level(s)}", f"coverage_{self.level(s)}_quantile")

    def references(self, s: Selection) -> list[Layer]:
        """The nominal level, and what a perfect ensemble of this M reaches."""
        level = self.level(s)
        rules: list[Layer] = [Rule("y", level / 100, label=f"nominal {level}%")]
        if level == 95:
            rules.append(
                Rule("y", s.nominal, colour="good", dash=False, label=s.perfect, below=True)
            )
        return rules

    def message(self, table: Table, s: Selection) -> str:
        """Coverage at the ν looked at beside what is perfect."""
        name, level = str(table.columns[1]), self.level(s)
        row = table[table["nu"] == s.nu]
        if not len(row):
            return f"Does the {level}% interval hold what it promises?"
        value, low, high = (float(row[name + end].iloc[0]) for end in ("", "_low", "_high"))
        word = coverage_word(value, low, high, s.nominal if level == 95 else level / 100)
        return f"{s.looked_at} the {level}% interval holds {percent(value)} of the observations{': ' if word else ''}{word}"

    def axis_y(self, s: Selection, table: Table) -> Axis:
        """Shares."""
        low = float(table[f"{table.columns[1]}_low"].min())
        return Axis("observations inside", (max(0.0, min(low - 0.06, 0.5)), 1.02), percent=True)


class SpreadSkillOverNu(OverNu):
    """Spread of the ensemble over the error of its mean."""

    key = "spread_skill_over_nu"
    title = "Does the spread match the error?"
    names = ("spread_skill_ratio",)
    estimator = "√((M+1)/M × mean variance) / RMSE of the mean"
    in_variable_units = False

    def references(self, s: Selection) -> list[Layer]:
        """Perfect is one."""
        return [Rule("y", 1.0, colour="good", dash=False, label="perfect: spread = error")]

    def message(self, table: Table, s: Selection) -> str:
        """Ratio at the ν looked at."""
        row = table[table["nu"] == s.nu]
        if not len(row):
            return self.title
        value, low, high = (float(row[f"spread_skill_ratio{end}"].iloc[0]) for end in ("", "_low", "_high"))
        return f"{s.looked_at} {spread_sentence(value, low, high)}"

    def axis_y(self, s: Selection, table: Table) -> Axis:
        """A pure number."""
        return Axis("spread / error", (0.0, max(1.2, 1.08 * float(table["spread_skill_ratio_high"].max()))))


class RmseOverNu(OverNu):
    """Error of the ensemble mean beside that of the deterministic forecast."""

    key = "rmse_over_nu"
    title = "Does sampling cost accuracy?"
    names = ("rmse_pooled", "rmse", "rmse_case_mean")
    axis = "RMSE"
    estimator = "RMSE of the ensemble mean, pooled over cases and area"

    def references(self, s: Selection) -> list[Layer]:
        """The unperturbed model."""
        if "rmse_deterministic" not in s.verification:
            return []
        value = float(s.at("rmse_deterministic"))
        line = Rule("y", value, colour="good", dash=False, label=f"unperturbed model: {number(value)}", below=True)
        x = positions(int(n) for n in s.verification["nu"].values)
        ends = (
            float(s.at(f"rmse_deterministic{end}")) if f"rmse_deterministic{end}" in s.verification else value for end in ("_low", "_high")
        )
        low, high = ends
        return [Band([x[0], x[-1]], [low, low], [high, high], colour="good", strength=0.12), line]

    def message(self, table: Table, s: Selection) -> str:
        """Change against the unperturbed model."""
        row = table[table["nu"] == s.nu]
        if not len(row) or "rmse_deterministic" not in s.verification:
            return self.title
        change = float(row.iloc[0, 1]) / float(s.at("rmse_deterministic")) - 1
        word = "larger" if change > 0 else "smaller"
        return f"{s.looked_at} the error of the ensemble mean is {percent(abs(change), 1)} {word} than the unperturbed model's"


ENTRIES = (WidthOverNu(), CoverageOverNu(), SpreadSkillOverNu(), RmseOverNu())
