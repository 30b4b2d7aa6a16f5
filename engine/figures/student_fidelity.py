"""How faithfully the student takes each of the teacher's steps, fed with the teacher's own states."""

from engine.figures._chart import Axis, Chart, Layer, Line, Panel, Points, Rule
from engine.figures._charted import Table
from engine.figures._classes import Classified, classes, has_paths
from engine.figures._select import Selection
from engine.figures._style import percent

COLOURS = ("second", "accent", "good", "ink", "muted")
SYMBOLS = ("circle", "diamond", "ring", "star", "circle")


class StudentFidelity(Classified):
    """Error of the student's mean step over the length of the teacher's, per step, for every student of the run."""

    key = "student_fidelity"
    title = "Does the student step as the teacher does?"
    paths = True

    def table(self, s: Selection) -> Table:
        """One row an entry and step."""
        import pandas as pd

        c = classes(s)
        steps = [int(k) for k in c.verification["step"].values]
        parts = [
            pd.DataFrame({"entry": e, "step": steps, "error": c.get("step_error", e).astype(float)})
            for e in [c.entry, *(e for e in c.entries if e != c.entry)]
            if has_paths(c.verification, e)
        ]
        return pd.concat(parts, ignore_index=True).dropna(subset=["error"]).reset_index(drop=True)

    def chart(self, table: Table, s: Selection) -> Chart:
        """A line a student; 100%: as wrong as not stepping at all."""
        c, layers = classes(s), list[Layer]()
        names = list(dict.fromkeys(table["entry"]))
        for entry, colour, symbol in zip(names, COLOURS, SYMBOLS, strict=False):
            part = table[table["entry"] == entry]
            x, y = part["step"].tolist(), part["error"].tolist()
            hover = [f"<b>{c.name(entry)}, step {k}</b><br>misses {percent(v, 1)} of the teacher's step" for k, v in zip(x, y, strict=True)]
            layers.append(Line(x, y, colour=colour, width=2.4 if entry == c.entry else 1.6))
            layers.append(Points(x, y, colour=colour, symbol=symbol, size=9, hover=hover, label=c.short(entry)))
        top = 1.15 * float(table["error"].max())
        if top > 0.8:
            layers.append(Rule("y", 1.0, label="as far off as not stepping at all"))
            top = max(top, 1.1)
        steps = sorted(table["step"].unique())
        ticks = steps if len(steps) <= 12 else steps[:: -(-len(steps) // 8)]
        panel = Panel(
            Axis("step", (min(steps) - 0.4, max(steps) + 0.4), ticks, [str(k) for k in ticks]),
            Axis("missed, of the teacher's step", (0, top), percent=True),
            tuple(layers),
        )
        footer = c.footer(
            "root mean square of (student's mean − teacher's) over that of the step; teacher-forced",
            "no interval: means over examples, tokens and channels",
            entries=names,
        )
        return Chart(self.message(table, s), f"{c.subject()} · 0%: steps exactly as the teacher", footer, (panel,), height=420)

    def message(self, table: Table, s: Selection) -> str:
        """How much is missed, and where most."""
        c = classes(s)
        part = table[table["entry"] == c.entry]
        if part.empty:
            return self.title
        worst = part.loc[part["error"].idxmax()]
        least = part.loc[part["error"].idxmin()]
        if len(part) == 1:
            return f"{c.name()} misses {percent(worst['error'])} of the teacher's step"
        span = f"{percent(least['error'])} to {percent(worst['error'])}"
        return f"{c.name()} misses {span} of each of the teacher's steps, most at step {worst['step']}"

    def words(self, table: Table, s: Selection) -> str:
        """All errors."""
        c = classes(s)
        said = "; ".join(
            f"{c.name(str(e))}, M = {c.members_of(str(e))}: " + ", ".join(f"step {r.step} {percent(r.error, 1)}" for r in part.itertuples())
            for e, part in table.groupby("entry", sort=False)
        )
        return f"{self.message(table, s)}. {c.subject()}, share of the teacher's step that the student's mean misses: {said}."


ENTRIES = (StudentFidelity(),)
