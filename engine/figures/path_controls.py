"""Is input-dependent noise worth anything: a DIRECTOR entry against each of its controls, score by score, with paired intervals."""

from engine.errors import SpecError
from engine.figures._chart import Axis, Band, Chart, Layer, Note, Panel, Points, Rule
from engine.figures._charted import Table
from engine.figures._classes import Classified, ClassSelection, amount, classes, clear, evenly, is_control
from engine.figures._select import Selection

SCORES = ("nll", "ece", "brier_multiclass", "accuracy", "auroc_failure", "aurc")
"""In the order in which a difference is spoken of."""
REACH = 2.6
"""Least half-width of the axis, in units of a difference's own uncertainty."""
ROOM = 2.3
"""Where the panel ends, over where the axis does: names stand on its left, numbers on its right."""


class PathControls(Classified):
    """A panel a control, a row a score. Differences are drawn over their own uncertainty, so that all scores share one axis:

    outside the grey zone the paired 95% interval leaves out zero; right is better for the entry.
    """

    key = "path_controls"
    title = "Is noise that depends on the input worth anything?"
    paths = True

    def table(self, s: Selection) -> Table:
        """One row a control and score: `difference` is the entry's score less the control's; `better` for the entry, `clear` of zero.

        `drawn` is the difference over the distance to that end of its interval which lies towards zero, positive where better:
        beyond ±1 exactly where the interval leaves out zero.
        """
        import pandas as pd

        c = classes(s)
        rows = []
        for control in self._controls(c):
            for score in (n for n in SCORES if n in c.verification):
                if (found := c.difference(score, c.entry, control)) is None:
                    continue
                value, low, high = found
                better = (value > 0) == c.higher(score)
                scale = value - low if value > 0 else high - value
                drawn = [d / scale * (1 if c.higher(score) else -1) if scale > 0 else 0.0 for d in found]
                rows.append((control, score, *found, clear(found), better, drawn[0], min(drawn[1:]), max(drawn[1:])))
        if not rows:
            raise SpecError(
                f"classification {c.key}",
                found=f"no paired differences between {c.entry} and its controls",
                expected="a run that compared them",
                remedy=f"Run it again with {c.entry} among the entries that others are compared with.",
            )
        names = ["control", "score", "difference", "low", "high", "clear", "better", "drawn", "drawn_low", "drawn_high"]
        return pd.DataFrame(rows, columns=names)

    def chart(self, table: Table, s: Selection) -> Chart:
        """Score names on the left, differences with their intervals on the right, the zero line between."""
        c = classes(s)
        reach = 1.1 * max(REACH, float(table[["drawn_low", "drawn_high"]].abs().to_numpy().max()))
        panels: list[Panel] = []
        controls = list(dict.fromkeys(table["control"]))
        for index, control in enumerate(controls):
            part = table[table["control"] == control].reset_index(drop=True)
            top = len(part) - 0.5
            layers: list[Layer] = [
                Band([-1, 1], [-0.5, -0.5], [top, top], colour="muted", strength=0.13, label="" if index else "what chance alone may do"),
                Rule("x", 0.0, colour="muted", dash=False),
            ]
            for row, r in enumerate(part.to_dict("records")):
                y = float(len(part) - 1 - row)
                colour = ("good" if r["better"] else "second") if r["clear"] else "muted"
                said = evenly(r["score"], (r["difference"], r["low"], r["high"]))
                hover = f"<b>{c.called(r['score'])}, against {c.short(control)}</b><br>{said}"
                layers += [
                    Points(
                        [r["drawn"]], [y], x_low=[r["drawn_low"]], x_high=[r["drawn_high"]], colour=colour, size=10,
                        symbol="circle" if r["clear"] else "ring", hover=[hover],
                    ),
                    Note(-ROOM * reach, y, f" {c.called(r['score'])}", colour=colour, bold=r["clear"]),
                    Note(ROOM * reach, y, said, colour=colour, anchor="right"),
                ]  # fmt: skip
            ticks = [-0.8 * reach, 0.0, 0.8 * reach]
            axis = Axis("", (-ROOM * reach, ROOM * reach), ticks, ["← worse", "no difference", "better →"])
            panels.append(Panel(axis, Axis("", (-0.5, top), [], []), tuple(layers), f"against {c.short(control)}", row=index))
        footer = c.footer(
            f"{c.name()} less its control, each row on a scale of its own", f"bars: paired {c.bootstrap()}", entries=[c.entry, *controls]
        )
        chance = f"of {len(table)} intervals {self._chance(len(table))} miss zero by chance"
        about = f"{c.subject()} · grey rings: no difference to be seen · {chance}"
        height = 130 + len(controls) * (62 + 29 * int(table["control"].value_counts().max()))
        return Chart(self.message(table, s), about, footer, tuple(panels), (1.0,) * len(controls), height=height)

    @staticmethod
    def _chance(intervals: int) -> str:
        count = round(0.05 * intervals)
        return "one may" if count <= 1 else f"about {count} would"

    @staticmethod
    def _controls(c: ClassSelection) -> list[str]:
        root = c.entry.partition(":")[0]
        found = [e for e in c.entries if is_control(e) and e.partition(":")[0] == root and e != c.entry]
        if not found:
            raise SpecError(
                f"classification {c.key}",
                found=f"no control beside {c.entry}",
                expected="a run with its controls",
                remedy="Run it again with the controls switched on.",
            )
        return sorted(found, key=lambda e: "constant_noise" not in e.split(":"))  # the one that the question is about stands first

    def message(self, table: Table, s: Selection) -> str:
        """The answer for the first control: which scores differ beyond their intervals, or that none does."""
        c = classes(s)
        control = str(table["control"].iloc[0])
        part = table[table["control"] == control]
        lead = "Input-dependent noise" if "constant_noise" in control.split(":") else f"Against {c.short(control)}"
        seen = part[part["clear"]]
        if seen.empty:
            return f"{lead}: no difference that these {c.cases:,} examples could show"
        said = []
        for group, word in ((seen[seen["better"]], "better"), (seen[~seen["better"]], "worse")):
            if len(group):
                r = group.iloc[0]
                size = amount(r["score"], (r["difference"], r["low"], r["high"]))
                more = f" and {len(group) - 1} more" if len(group) > 1 else ""
                said.append(f"{word} {c.called(r['score'])} by {size}{more}")
        rest = len(part) - len(seen)
        return f"{lead}: {', '.join(said)}{f', no difference in {rest} of {len(part)} scores' if rest else ''}"

    def words(self, table: Table, s: Selection) -> str:
        """Every difference with its interval, and whether it leaves out zero."""
        c, parts = classes(s), []
        for control, part in table.groupby("control", sort=False):
            said = "; ".join(
                f"{c.called(r['score'])} {evenly(r['score'], (r['difference'], r['low'], r['high']))}"
                f"{', ' + ('better' if r['better'] else 'worse') if r['clear'] else ''}"
                for r in part.to_dict("records")
            )
            parts.append(f"Against {c.short(str(control))}: {said}")
        return (
            f"{self.message(table, s)}. {c.name()}, {c.subject()}, {c.cases:,} examples, M = {c.members}, differences with paired 95% "
            f"intervals; those that leave out zero are called better or worse. {'. '.join(parts)}."
        )


ENTRIES = (PathControls(),)
