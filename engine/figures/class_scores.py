"""One score of all entries, best on top, each with its interval, beside the frozen model."""

from engine import judging
from engine.figures._chart import Axis, Chart, Layer, Note, Panel, Points, Rule
from engine.figures._charted import Table
from engine.figures._classes import PERCENT, Classified, classes, in_words, is_control, one_of, spanning, with_ends
from engine.figures._select import Selection

SCORES = (
    "ece", "nll", "brier_multiclass", "accuracy", "mcc", "ece_adaptive", "aurc", "auroc_failure", "fpr95_failure",
    "brier_mcb", "brier_dsc",
)  # fmt: skip


class ClassScores(Classified):
    """A dot and its interval for each entry (`score=` one of the run's, the calibration error by default); controls are rings."""

    key = "class_scores"
    title = "Which method scores best?"
    accepts = frozenset({"score"})

    def table(self, s: Selection) -> Table:
        """One row an entry, the best first."""
        import pandas as pd

        c = classes(s)
        score = self._score(s)
        rows = [(e, c.name(e), *c.ends(score, e), is_control(e), e == c.teacher) for e in c.entries]
        table = pd.DataFrame(rows, columns=["entry", "title", score, f"{score}_low", f"{score}_high", "control", "frozen"])
        return table.dropna(subset=[score]).sort_values(score, ascending=not c.higher(score), kind="stable").reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """A row an entry: its name above the dot, its numbers at the far end."""
        c, score = classes(s), self._score(s)
        ends = [f"{score}_low", f"{score}_high"]
        first, last = spanning(table[[score, *ends]].to_numpy().ravel())
        layers: list[Layer] = [Rule("x", float(v), colour="muted") for v in table.loc[table["frozen"], score]]
        for row, r in enumerate(table[["title", score, *ends, "control", "frozen", "entry"]].itertuples(index=False)):
            name, value, low, high, control, frozen, entry = r
            y = float(len(table) - 1 - row)
            colour = "muted" if control else "ink" if frozen else "second" if entry == c.entry else "accent"
            said = with_ends(score, value, low, high)
            kind = " · control" if control else ""
            layers += [
                Points(
                    [value], [y], x_low=[low], x_high=[high], colour=colour, symbol="ring" if control else "circle", size=10,
                    hover=[f"<b>{name}</b><br>{c.called(score)} {said}"],
                ),
                Note(first, y, name + kind, colour=colour, shift=16, bold=entry == c.entry),
                Note(last, y, said, colour=colour, shift=16, anchor="right"),
            ]  # fmt: skip
        axis = Axis(f"{c.called(score)} ({'more' if c.higher(score) else 'less'} is better)", (first, last), percent=score in PERCENT)
        panel = Panel(axis, Axis("", (-0.45, len(table) - 0.25), [], []), tuple(layers))
        rule = str(c.verification[score].attrs.get("estimator", ""))
        footer = c.footer(f"{c.symbol(score)}: {rule}", f"bars: {c.bootstrap()}", entries=list(table["entry"]))
        about = f"{c.subject()} · dashed: the frozen model" + (" · rings: controls" if table["control"].any() else "")
        return Chart(self.message(table, s), about, footer, (panel,), height=110 + 54 * len(table))

    def _score(self, s: Selection) -> str:
        have = [name for name in SCORES if name in s.verification]
        return str(one_of("score", s.options.get("score") or "ece", have))

    def message(self, table: Table, s: Selection) -> str:
        """The best of the entries that are told apart from the frozen model (`engine.judging.best`), or that none is."""
        c, score = classes(s), self._score(s)
        frozen = table.loc[table["frozen"], score]
        if frozen.empty:
            return f"{c.called(score)[0].upper()}{c.called(score)[1:]} of {len(table)} methods, best first"
        said = in_words(score, float(frozen.iloc[0]))
        best = judging.best(s.verification, score)
        if best is None:
            return f"No {c.called(score)} is told apart from the frozen model's and better: that is {said}"
        value = in_words(score, float(table.loc[table["entry"] == best, score].iloc[0]))
        word = "highest" if c.higher(score) else "lowest"
        used = table[~table["control"]]
        among = "" if str(used["entry"].iloc[0]) == best else " of those told apart from the frozen model"
        return f"{c.name(best)} has the {word} {c.called(score)}{among}: {value}, the frozen model {said}"

    def words(self, table: Table, s: Selection) -> str:
        """All entries with their intervals, best first."""
        c, score = classes(s), self._score(s)
        said = "; ".join(
            f"{r['title']}{' (control)' if r['control'] else ''}, M = {c.members_of(r['entry'])}: "
            f"{with_ends(score, r[score], r[f'{score}_low'], r[f'{score}_high'])}"
            for _, r in table.iterrows()
        )
        return f"{self.message(table, s)}. {c.called(score)} for {c.subject()}, {c.cases:,} examples, best first: {said}."


ENTRIES = (ClassScores(),)
