"""Does it notice what it was never taught: confidence inside and outside, and how well each entry tells the two apart."""

import numpy as np

from engine.errors import SpecError
from engine.figures._cells import Divided
from engine.figures._chart import Axis, Layer, Note, Panel, Points, Rule
from engine.figures._charted import Table
from engine.figures._classes import Classified, ClassSelection, classes, is_control, one_of, spanning
from engine.figures._overlaid import histogram, overlaid
from engine.figures._select import Selection, between
from engine.figures._style import number

SCORES = ("max_softmax", "entropy")


class OutsideDetection(Classified):
    """AUROC of each entry for one `ood` set, by `by="max_softmax"` (default) or "entropy"; the entry's histograms where they are stored."""

    key = "outside_detection"
    title = "Does it notice what it was never taught?"
    accepts = frozenset({"ood", "by"})

    def table(self, s: Selection) -> Table:
        """One row an entry (`kind` "auroc"), and a bin of each group ("histogram") where the outside confidences were stored."""
        import pandas as pd

        c, name = classes(s), self._name(s)
        ood = self._ood(c)
        rows = [("auroc", e, *c.ends(name, e, ood=ood)) for e in c.entries]
        table = pd.DataFrame(rows, columns=["kind", "entry", "auroc", "auroc_low", "auroc_high"]).dropna(subset=["auroc"])
        if "outside_confidence" in c.verification:
            outside = c.get("outside_confidence", c.entry, ood=ood)
            outside = outside[np.isfinite(outside)]
            inside = c.get("probability", c.entry).max(-1)
            groups = {f"inside ({len(inside):,})": inside, f"outside ({len(outside):,})": outside}
            bins = histogram(groups, float(min(inside.min(), outside.min()))).assign(kind="histogram", entry=c.entry)
            table = pd.concat([table, bins], ignore_index=True)
        return table

    def chart(self, table: Table, s: Selection) -> Divided:
        """Histograms on the left, AUROC of all entries on the right."""
        c = classes(s)
        found, bins = table[table["kind"] == "auroc"].iloc[::-1], table[table["kind"] == "histogram"]
        values = found[["auroc", "auroc_low", "auroc_high"]].to_numpy(float)
        first, last = spanning([*values.ravel(), 0.5])
        layers: list[Layer] = [Rule("x", 0.5, label="chance", end="end")]
        for y, r in enumerate(found.itertuples()):
            entry = str(r.entry)
            colour = "muted" if is_control(entry) else "ink" if entry == c.teacher else "second" if entry == c.entry else "accent"
            said = f"{number(r.auroc, 2)} ({number(r.auroc_low, 2)} … {number(r.auroc_high, 2)})"
            layers += [
                Points(
                    [r.auroc], [float(y)], x_low=[r.auroc_low], x_high=[r.auroc_high], colour=colour, size=9,
                    symbol="ring" if is_control(entry) else "circle", hover=[f"<b>{c.name(entry)}</b><br>AUROC {said}"],
                ),
                Note(last, float(y), c.name(entry), colour=colour, shift=14, anchor="right", bold=entry == c.entry),
            ]  # fmt: skip
        right = Panel(
            Axis("AUROC (more is better)", (first, last)),
            Axis("", (-0.5, len(found) - 0.1), [], []),
            tuple(layers),
            title="how well all methods tell the two apart" if len(bins) else "",
            column=1 if len(bins) else 0,
        )
        panels: tuple[Panel, ...] = (right,)
        if len(bins):
            axis = Axis("how sure it says it is (greatest probability)", (float(bins["from"].min()), 1.0), percent=True)
            shares = Axis("share of each group", (0, 1.12 * float(bins["share"].max())), percent=True)
            panels = (Panel(axis, shares, overlaid(bins), title=f"{c.name()}: taught and never taught"), right)
        by = "greatest probability" if self._by(s) == "max_softmax" else "negative entropy"
        footer = c.footer(f"by {by}; inside counts as positive", f"bars: {c.bootstrap()}", entries=list(found["entry"]))
        stored = "" if len(bins) else " · the outside examples' confidences were not stored"
        about = f"{c.subject()} · outside: {self._ood(c)}{stored} · rings: controls"
        return Divided(self.message(s), about, footer, panels, height=130 + 50 * len(found), widths=(1.0, 1.0) if len(bins) else (1.0,))

    @staticmethod
    def _by(s: Selection) -> str:
        return str(one_of("by", s.options.get("by") or "max_softmax", SCORES))

    def _name(self, s: Selection) -> str:
        return f"auroc_ood_{self._by(s)}"

    @staticmethod
    def _ood(c: ClassSelection) -> str:
        have = [str(n) for n in c.verification["ood"].values] if "ood" in c.verification.coords else []
        if not have:
            raise SpecError(
                f"classification {c.key}",
                found="no outside examples",
                expected="a run with examples of other kinds",
                remedy="Run it again with out-of-distribution examples.",
            )
        return str(one_of("ood", c.options.get("ood") or have[0], have))

    def message(self, s: Selection) -> str:
        """How well the entry tells outside from inside, in words and with its interval."""
        c = classes(s)
        value, low, high = c.ends(self._name(s), ood=self._ood(c))
        word = "does not notice" if low <= 0.5 else "hardly notices" if value < 0.7 else "mostly notices" if value < 0.9 else "notices"
        return f"{c.name()} {word} {self._ood(c)}: AUROC {number(value, 2)} ({number(low, 2)} … {number(high, 2)})"

    def words(self, table: Table, s: Selection) -> str:
        """AUROC of all entries."""
        c = classes(s)
        said = "; ".join(
            f"{c.name(r.entry)}, M = {c.members_of(r.entry)}: {between(r.auroc, r.auroc_low, r.auroc_high)}"
            for r in table[table["kind"] == "auroc"].itertuples()
        )
        return f"{self.message(s)}. {c.subject()}, {c.cases:,} examples inside; AUROC {said}. Chance is 0.5."


ENTRIES = (OutsideDetection(),)
