"""Accuracy against honesty: does a method that says better how sure it may be lose right answers for it?"""

from engine.figures._chart import Axis, Chart, Layer, Note, Panel, Points, Rule
from engine.figures._charted import Table
from engine.figures._classes import PERCENT, Classified, amount, classes, clear, is_control, one_of, spanning, with_ends
from engine.figures._select import Selection
from engine.figures.trade_off import _label_places


class ClassTradeOff(Classified):
    """A point an entry: accuracy along x, miscalibration along y (`calibration="ece"`, or "nll", "brier_multiclass")."""

    key = "class_trade_off"
    title = "Does honesty cost accuracy?"
    accepts = frozenset({"calibration"})

    def table(self, s: Selection) -> Table:
        """One row an entry."""
        import pandas as pd

        c, y = classes(s), self._y(s)
        rows = [(e, c.name(e), *c.ends("accuracy", e), *c.ends(y, e), is_control(e)) for e in c.entries]
        ends = ("", "_low", "_high")
        table = pd.DataFrame(rows, columns=["entry", "title", *("accuracy" + e for e in ends), *(y + e for e in ends), "control"])
        return table.dropna(subset=["accuracy", y]).reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Bars on both axes, names beside the points."""
        c, y = classes(s), self._y(s)
        x_range = spanning(table[["accuracy", "accuracy_low", "accuracy_high"]].to_numpy().ravel(), 0.12)
        y_range = spanning(table[[y, f"{y}_low", f"{y}_high"]].to_numpy().ravel(), 0.1)
        names = [c.short(e) for e in table["entry"]]
        bars = [
            (x, v)
            for r in table[["accuracy", "accuracy_low", "accuracy_high", y, f"{y}_low", f"{y}_high"]].itertuples(index=False)
            for i in range(41)
            for x, v in ((r[1] + (r[2] - r[1]) * i / 40, r[3]), (r[0], r[4] + (r[5] - r[4]) * i / 40))
        ]
        places = _label_places(table["accuracy"].to_numpy(), table[y].to_numpy(), names, x_range, y_range, bars)
        layers: list[Layer] = []
        for place, r in zip(places, table.to_dict("records"), strict=True):
            colour = "muted" if r["control"] else "ink" if r["entry"] == c.teacher else "second" if r["entry"] == c.entry else "accent"
            hover = f"<b>{r['title']}</b><br>accuracy {self._said('accuracy', r)}<br>{c.called(y)} {self._said(y, r)}"
            layers.append(
                Points(
                    [r["accuracy"]], [r[y]], colour=colour, symbol="ring" if r["control"] else "circle", size=10, hover=[hover],
                    x_low=[r["accuracy_low"]], x_high=[r["accuracy_high"]], low=[r[f"{y}_low"]], high=[r[f"{y}_high"]],
                    text=[c.short(r["entry"])], place=[place],
                )
            )  # fmt: skip
        frozen = table[table["entry"] == c.teacher]
        layers += [Rule("x", float(v)) for v in frozen["accuracy"]] + [Rule("y", float(v)) for v in frozen[y]]
        layers.append(Note(x_range[1], y_range[0], "better on both ↘", colour="good", anchor="right", shift=12))
        panel = Panel(
            Axis("accuracy", x_range, percent=True),
            Axis(f"{c.called(y)} (less is better)", y_range, percent=y in PERCENT),
            tuple(layers),
        )
        rule = str(c.verification[y].attrs.get("estimator", ""))
        footer = c.footer(f"{c.symbol(y)}: {rule}", f"bars on both axes: {c.bootstrap()}", entries=list(table["entry"]))
        about = f"{c.subject()} · dashed: the frozen model" + (" · rings: DIRECTOR's controls" if table["control"].any() else "")
        return Chart(self.message(s), about, footer, (panel,), height=500)

    @staticmethod
    def _said(score: str, row: dict) -> str:
        return with_ends(score, row[score], row[f"{score}_low"], row[f"{score}_high"])

    @staticmethod
    def _y(s: Selection) -> str:
        have = [name for name in ("ece", "nll", "brier_multiclass", "ece_adaptive") if name in s.verification]
        return str(one_of("calibration", s.options.get("calibration") or "ece", have))

    def message(self, s: Selection) -> str:
        """What the entry that is looked at wins and loses against the frozen model, as far as the paired intervals tell."""
        c, y = classes(s), self._y(s)
        gain, cost = (c.difference(score, c.entry, c.teacher) for score in (y, "accuracy"))
        if c.entry == c.teacher or gain is None or cost is None:
            return f"Accuracy and {c.called(y)} of {len(c.entries)} methods"
        if clear(gain):
            won = f"{c.called(y)} {'lower' if gain[0] < 0 else 'higher'} by {amount(y, gain)}"
        else:
            won = f"{c.called(y)} not told apart from the frozen model's"
        if clear(cost):
            lost = f"{'at a cost of' if cost[0] < 0 else 'and wins'} {amount('accuracy', cost)} of accuracy"
        else:
            lost = "accuracy not told apart"
        return f"{c.name()}: {won}, {lost}"

    def words(self, table: Table, s: Selection) -> str:
        """Both scores of all entries."""
        c, y = classes(s), self._y(s)
        said = "; ".join(
            f"{r['title']}, M = {c.members_of(r['entry'])}: accuracy {self._said('accuracy', r)}, {c.called(y)} {self._said(y, r)}"
            for r in table.to_dict("records")
        )
        return f"{self.message(s)} (against the frozen model, paired). {c.subject()}, {c.cases:,} examples: {said}."


ENTRIES = (ClassTradeOff(),)
