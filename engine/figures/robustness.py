"""Robustness: a score under each corruption at each severity, for one entry, or how much better than another it is there."""

import numpy as np

from engine.figures._cells import Celled, CellPanel, Cells, Divided
from engine.figures._chart import Axis, Layer, Note
from engine.figures._charted import Table
from engine.figures._classes import PERCENT, Classified, ClassSelection, classes, in_words, one_of
from engine.figures._select import Selection
from engine.figures._style import BATLOW, VIK, number

SCORES = ("accuracy", "ece", "nll")


class Robustness(Celled, Classified):
    """A cell a corruption and severity. `score=` accuracy (default), ece or nll; `against=` an entry: the difference to it."""

    key = "robustness"
    title = "What does it keep when the input gets worse?"
    accepts = frozenset({"score", "against"})

    def table(self, s: Selection) -> Table:
        """One row a corruption and severity; `value` is the entry's, `difference` to `against` where one is named."""
        import pandas as pd

        c, score = classes(s), self._score(s)
        values = c.get(f"{score}_corrupted", c.entry)
        names = c.verification["corruption_title" if "corruption_title" in c.verification.coords else "corruption"].values.tolist()
        severities = c.verification["severity"].values.tolist()
        rows = [(str(n), int(v), float(values[i, j])) for i, n in enumerate(names) for j, v in enumerate(severities)]
        table = pd.DataFrame(rows, columns=["corruption", "severity", score])
        if (against := self._against(s)) is not None:
            table["difference"] = table[score] - c.get(f"{score}_corrupted", against).ravel()
        return table.dropna(subset=[score]).reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Divided:
        """The hardest corruption at the bottom; names inside the panel, left of the cells."""
        c, score, shown = classes(s), self._score(s), self._shown(s)
        rows = self._by_harm(table, c, score)[::-1]
        columns = sorted(table["severity"].unique())
        grid = table.pivot(index="corruption", columns="severity", values=shown).loc[rows, columns].to_numpy(float)
        room = max(0.6, 0.0145 * max(map(len, rows)) * len(columns))
        layers: tuple[Layer, ...] = tuple(Note(-0.62, float(i), name, colour="ink", anchor="right") for i, name in enumerate(rows))
        text = [[self._cell(score, v, difference=shown == "difference") for v in row] for row in grid]
        hover = [[f"<b>{name}, severity {k}</b><br>{c.called(score)} {self._value(table, name, k, s)}" for k in columns] for name in rows]
        if shown == "difference":
            reach = float(np.nanmax(np.abs(grid))) or 1.0
            cells = Cells(grid, text, hover, VIK if not c.higher(score) else VIK[::-1], (-reach, reach))
        else:
            spread = (float(np.nanmin(grid)), float(np.nanmax(grid)))
            cells = Cells(grid, text, hover, BATLOW if c.higher(score) else BATLOW[::-1], spread)
        panel = CellPanel(
            Axis("severity (0: untouched)", (-0.55 - room, len(columns) - 0.45), list(range(len(columns))), [str(k) for k in columns]),
            Axis("", (-0.55, len(rows) - 0.45), [], []),
            layers,
            content=cells,
        )
        against = self._against(s)
        words = c.called(score) if against is None else f"{c.called(score)} less that of {c.name(against)}"
        about = f"{c.subject()} · {c.name()} · cells: {words} ({'more' if c.higher(score) else 'less'} is better)"
        rule = str(c.verification[score].attrs.get("estimator", ""))
        footer = c.footer(f"{c.symbol(score)}: {rule}", self._uncertainty(table, c, score))
        return Divided(self.message(table, s), about, footer, (panel,), height=130 + 46 * len(rows))

    @staticmethod
    def _uncertainty(table: Table, c: ClassSelection, score: str) -> str:
        """What is known of a cell's sampling noise: a share of n examples has the binomial's, the others were not resampled."""
        if score == "accuracy":
            p = table[score].to_numpy()
            return f"95% of a cell: ±{100 * 1.96 * float(np.sqrt((p * (1 - p)).max() / c.cases)):.1f} points at most (binomial)"
        apart = c.ends(score)
        return f"no interval of the corrupted was stored; untouched, 95%: {in_words(score, apart[1])} … {in_words(score, apart[2])}"

    @staticmethod
    def _by_harm(table: Table, c: ClassSelection, score: str) -> list[str]:
        """Corruptions from the mildest to the worst for this entry."""
        means = table[table["severity"] > 0].groupby("corruption")[score].mean()
        return [str(n) for n in means.sort_values(ascending=not c.higher(score)).index]

    def _cell(self, score: str, value: float, *, difference: bool) -> str:
        if not np.isfinite(value):
            return "–"
        sign = "+" if difference and value > 0 else ""
        if score in PERCENT:
            shown = f"{100 * value:.1f}" if difference else f"{100 * value:.0f}%" if score == "accuracy" else f"{100 * value:.1f}%"
        else:
            shown = f"{value:.2f}"
        return (sign + shown).replace("-", "\N{MINUS SIGN}")

    def _value(self, table: Table, name: str, severity: int, s: Selection) -> str:
        row = table[(table["corruption"] == name) & (table["severity"] == severity)].iloc[0]
        score = self._score(s)
        words = in_words(score, float(row[score]))
        if "difference" in row:
            words += f", {self._cell(score, float(row['difference']), difference=True)} to the other"
        return words

    @staticmethod
    def _score(s: Selection) -> str:
        have = [name for name in SCORES if f"{name}_corrupted" in s.verification]
        if not have:
            classes(s).get("accuracy_corrupted")
        return str(one_of("score", s.options.get("score") or have[0], have))

    @staticmethod
    def _against(s: Selection) -> str | None:
        named = s.options.get("against")
        return None if named is None else str(one_of("against", named, [e for e in classes(s).entries if e != classes(s).entry]))

    def _shown(self, s: Selection) -> str:
        return "difference" if self._against(s) is not None else self._score(s)

    def message(self, table: Table, s: Selection) -> str:
        """From untouched to the worst cell, or in how many cells it is better."""
        c, score = classes(s), self._score(s)
        against = self._against(s)
        if against is not None:
            harmed = table[table["severity"] > 0]
            better = int((harmed["difference"] * (1 if c.higher(score) else -1) > 0).sum())
            return f"{c.name()} has the better {c.called(score)} in {better} of {len(harmed)} corrupted cells, against {c.name(against)}"
        most = int(table["severity"].max())
        clean = float(table.loc[table["severity"] == 0, score].mean())
        last = table[table["severity"] == most]
        worst = last.loc[last[score].idxmin() if c.higher(score) else last[score].idxmax()]
        return (
            f"{c.name()}: {c.called(score)} goes from {in_words(score, clean)} to {in_words(score, float(worst[score]))} "
            f"under {worst['corruption']} of severity {most}"
        )

    def words(self, table: Table, s: Selection) -> str:
        """Untouched, mildest and strongest of each corruption."""
        c, score, shown = classes(s), self._score(s), self._shown(s)
        most = int(table["severity"].max())
        parts = []
        for name in self._by_harm(table, c, score)[::-1]:
            part = table[table["corruption"] == name].set_index("severity")[shown]
            values = [
                number(float(part[k])) if shown == "difference" else in_words(score, float(part[k])) for k in (0, 1, most) if k in part
            ]
            parts.append(f"{name} {', '.join(values)}")
        what = "difference of " if shown == "difference" else ""
        return (
            f"{self.message(table, s)}. {c.subject()}, {c.cases:,} examples a cell, M = {c.members}: {what}{c.called(score)} untouched, at "
            f"severity 1 and at severity {most}: {'; '.join(parts)}."
        )


ENTRIES = (Robustness(),)
