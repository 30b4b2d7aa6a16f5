"""One example: what each path says, their mean, and what it is."""

import numpy as np

from engine.errors import SpecError
from engine.figures._cells import Celled, CellPanel, Divided, Picture
from engine.figures._chart import Axis, Layer, Note, Panel, Points
from engine.figures._charted import Table
from engine.figures._classes import Classified, ClassSelection, classes, one_of
from engine.figures._select import Selection
from engine.figures._style import percent

MOST, FEWEST, LEAST = 10, 3, 0.01
"""Classes that are shown: those to which some path gives 1%, the most probable ones of them, and always the true one."""
TEXT = 110
"""Characters of a text that fit beside its picture."""


class ExamplePaths(Celled, Classified):
    """A row a class, a ring a path, a diamond their mean, for one kept `example` (its case id; the first by default)."""

    key = "example_paths"
    title = "What does each path say?"
    accepts = frozenset({"example"})

    def table(self, s: Selection) -> Table:
        """One row a class and path, and the mean (`path` −1); the most probable classes first."""
        import pandas as pd

        c = classes(s)
        p = self._paths(c)
        names, truth = [str(n) for n in c.verification["class"].values], self._truth(c)
        order = [int(k) for i, k in enumerate(np.argsort(-p.mean(0), kind="stable")) if i < FEWEST or p[:, k].max() >= LEAST][:MOST]
        if truth is not None and truth not in order:
            order = [*order[: MOST - 1], truth]
        rows = [
            (names[k], path, float(v), k == truth)
            for k in order
            for path, v in [*enumerate(p[:, k]), (-1, float(p[:, k].mean()))]
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["class", "path", "probability", "true"])

    def chart(self, table: Table, s: Selection) -> Divided:
        """The example's image where it has one; dots on one scale for all classes."""
        c = classes(s)
        layers: list[Layer] = []
        names = list(dict.fromkeys(table["class"]))
        for row, name in enumerate(names):
            part, y = table[table["class"] == name], float(len(names) - 1 - row)
            true = bool(part["true"].iloc[0])
            single, mean = part[part["path"] >= 0], float(part.loc[part["path"] < 0, "probability"].iloc[0])
            colour = "good" if true else "accent"
            hover = [f"path {int(r.path) + 1}: {name} {percent(r.probability, 1)}" for r in single.itertuples()]
            first = row == 0
            if len(single) > 1:
                dots = single["probability"].tolist()
                layers.append(
                    Points(dots, [y] * len(dots), colour="muted", symbol="ring", size=9, hover=hover, label="one path" if first else "")
                )
            layers.append(
                Points(
                    [mean],
                    [y],
                    colour=colour,
                    symbol="diamond",
                    size=11,
                    hover=[f"<b>{name}</b> mean {percent(mean, 1)}"],
                    label="their mean" if first and len(single) > 1 else "",
                )
            )
            layers.append(
                Note(0.0, y, f"{name}{' · the true class' if true else ''}", colour="good" if true else "ink", shift=16, bold=true)
            )
            layers.append(Note(1.0, y, percent(mean, 1), colour=colour, shift=16, anchor="right", bold=true))
        column = 0
        panels: list[Panel] = []
        if "example_image" in c.verification:
            pixels = np.asarray(c.get("example_image", example=self._example(c)), np.uint8)
            empty = Axis("", None, [], [])
            panels.append(CellPanel(empty, empty, (), content=Picture(pixels)))
            column = 1
        panels.append(
            Panel(
                Axis("probability", (-0.015, 1.03), percent=True), Axis("", (-0.5, len(names) - 0.2), [], []), tuple(layers), column=column
            )
        )
        more = (
            f"{c.verification.sizes['class'] - len(names)} less probable classes not shown; "
            if c.verification.sizes["class"] > len(names)
            else ""
        )
        footer = c.footer("diamond, number: mean of the paths' softmaxes", f"{more}spread of the rings: what paths differ by, one example")
        about = f"{c.subject()} · {c.name()} · example {self._example(c)}{self._text(c)}"
        return Divided(self.message(s), about, footer, tuple(panels), height=170 + 42 * len(names), widths=(0.3, 1.0) if column else (1.0,))

    @staticmethod
    def _example(c: ClassSelection) -> int:
        have = [int(e) for e in c.verification["example"].values] if "example" in c.verification.coords else []
        if not have or "path_probability" not in c.verification:
            raise SpecError(
                f"classification {c.key}",
                found="no examples that are shown one by one",
                expected="a run that kept some",
                remedy="Run it again; examples are kept by default.",
            )
        named = c.options.get("example")
        return int(one_of("example", have[0] if named is None else named, have))

    def _paths(self, c: ClassSelection) -> np.ndarray:
        """`(path, class)`, without the places beyond this entry's members."""
        p = np.asarray(c.get("path_probability", c.entry, example=self._example(c)), float)
        return p[np.isfinite(p).all(-1)]

    def _truth(self, c: ClassSelection) -> int | None:
        observed = int(c.get("observed", case=self._example(c)))
        return observed if observed >= 0 else None

    def _text(self, c: ClassSelection) -> str:
        if "example_text" not in c.verification:
            return ""
        text = " ".join(str(c.get("example_text", example=self._example(c))).split())
        return f": “{text if len(text) <= TEXT else text[: TEXT - 1] + '…'}”"

    def message(self, s: Selection) -> str:
        """How many paths agree, on what, and what it is."""
        c = classes(s)
        p, truth = self._paths(c), self._truth(c)
        names = [str(n) for n in c.verification["class"].values]
        said = int(p.mean(0).argmax())
        votes = int((p.argmax(-1) == said).sum())
        who = f"{votes} of {len(p)} paths say" if votes < len(p) else f"All {len(p)} paths say" if len(p) > 1 else "It says"
        who = who.replace("1 of", "One of") if who.startswith("1 of") else who
        fate = "" if truth is None else ", and that is right" if truth == said else f", but it is {names[truth]}"
        return f"{who} {names[said]} ({percent(float(p.mean(0)[said]))}){fate}"

    def words(self, table: Table, s: Selection) -> str:
        """Mean and range of the paths for the most probable classes."""
        c = classes(s)
        said = []
        for name, part in table.groupby("class", sort=False):
            single = part.loc[part["path"] >= 0, "probability"]
            mean = float(part.loc[part["path"] < 0, "probability"].iloc[0])
            true = " (the true class)" if part["true"].iloc[0] else ""
            said.append(f"{name}{true} {percent(mean, 1)} ({percent(float(single.min()), 1)} … {percent(float(single.max()), 1)})")
        return (
            f"{self.message(s)}. {c.name()}, {c.subject()}, example {self._example(c)}, M = {c.members}, mean and range: {'; '.join(said)}."
        )


ENTRIES = (ExamplePaths(),)
