"""Confidence of what is right and of what is wrong: a model that knows when it errs keeps the two apart."""

import numpy as np

from engine.figures._chart import Axis, Chart, Panel
from engine.figures._charted import Table
from engine.figures._classes import Classified, classes, confidences
from engine.figures._overlaid import histogram, overlaid
from engine.figures._select import Selection, between
from engine.figures._style import number, percent


class ConfidenceHistogram(Classified):
    """How sure one entry is where it is right and where it is wrong, each as shares of its own group."""

    key = "confidence_histogram"
    title = "Is it less sure when it is wrong?"

    def table(self, s: Selection) -> Table:
        """One row a group and bin."""
        stated, correct = confidences(classes(s), classes(s).entry)
        groups = {f"right ({correct.sum():,})": stated[correct], f"wrong ({(~correct).sum():,})": stated[~correct]}
        return histogram(groups, float(stated.min()))

    def chart(self, table: Table, s: Selection) -> Chart:
        """Bars for what is right, an outline for what is wrong."""
        c = classes(s)
        first = float(table["from"].min())
        panel = Panel(
            Axis("how sure it says it is (greatest probability)", (first, 1.0), percent=True),
            Axis("share of each group", (0, 1.12 * float(table["share"].max())), percent=True),
            overlaid(table),
        )
        footer = c.footer("bins of 5 points (lo, hi]; shares within each group", f"AUROC: {c.bootstrap()}")
        about = f"{c.subject()} · AUROC: chance that a right answer is surer than a wrong one"
        return Chart(self.message(s), about, footer, (panel,), height=430)

    def message(self, s: Selection) -> str:
        """How well confidence tells mistakes, with its interval."""
        c = classes(s)
        _, correct = confidences(c, c.entry)
        if correct.all() or not correct.any():
            return f"{c.name()} is {'right' if correct.all() else 'wrong'} in every example"
        value, low, high = c.ends("auroc_failure")
        told = "does not tell its mistakes by its confidence" if low <= 0.5 else "is surer when it is right"
        return f"{c.name()} {told}: AUROC {number(value, 2)} ({number(low, 2)} … {number(high, 2)})"

    def words(self, table: Table, s: Selection) -> str:
        """Mean confidence of both groups."""
        c = classes(s)
        stated, correct = confidences(c, c.entry)
        means = " and ".join(
            f"{percent(float(np.mean(stated[part])), 1)} sure where it is {name} ({part.sum():,} examples)"
            for name, part in (("right", correct), ("wrong", ~correct))
            if part.any()
        )
        return f"{self.message(s)}. {c.subject()}, M = {c.members}: {means}. AUROC of mistakes {between(*c.ends('auroc_failure'))}."


ENTRIES = (ConfidenceHistogram(),)
