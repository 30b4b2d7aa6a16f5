"""How far DIRECTOR's paths spread from step to step, and whether what sets them apart at one step lasts to the next."""

import numpy as np

from engine.figures._cells import Celled, CellPanel, Cells, Divided
from engine.figures._chart import Axis, Layer, Line, Panel, Points
from engine.figures._charted import Table
from engine.figures._classes import Classified, classes
from engine.figures._select import Selection
from engine.figures._style import VIK, number, percent


class PathSpread(Celled, Classified):
    """Spread of the paths over that of the examples at each step; correlation of the paths' deviations between any two steps."""

    key = "path_spread"
    title = "How far do the paths spread, and how long do they stay apart?"
    paths = True

    def table(self, s: Selection) -> Table:
        """One row a step (`kind` "spread") and a pair of steps ("correlation")."""
        import pandas as pd

        c = classes(s)
        steps = [int(k) for k in c.verification["step"].values]
        spread = pd.DataFrame({"kind": "spread", "step": steps, "value": c.get("step_spread", c.entry).astype(float)})
        spread["sigma"] = c.get("step_sigma", c.entry).astype(float)
        matrix = c.get("step_correlation", c.entry).astype(float)
        pairs = [("correlation", a, b, float(matrix[i, j])) for i, a in enumerate(steps) for j, b in enumerate(steps)]
        return pd.concat([spread, pd.DataFrame(pairs, columns=["kind", "step", "step_other", "value"])], ignore_index=True)

    def chart(self, table: Table, s: Selection) -> Divided:
        """The line on the left, the matrix on the right."""
        c = classes(s)
        spread, pairs = table[table["kind"] == "spread"], table[table["kind"] == "correlation"]
        x, y = spread["step"].tolist(), spread["value"].tolist()
        hover = [
            f"<b>step {r.step}</b><br>paths spread {percent(r.value, 1)} of what examples do<br>mean σ {number(r.sigma)}"
            for r in spread.itertuples()
        ]
        top = 1.2 * float(spread["value"].max()) or 0.1
        ticks = x if len(x) <= 12 else x[:: -(-len(x) // 8)]
        lines: tuple[Layer, ...] = (Line(x, y), Points(x, y, size=9, hover=hover))
        left = Panel(
            Axis("step", (0.5, max(x) + 0.5), ticks, [str(k) for k in ticks]),
            Axis("paths' spread over examples'", (0, top), percent=True),
            lines,
            title="how far the paths spread",
        )
        steps = sorted(pairs["step"].unique())
        grid = pairs.pivot(index="step", columns="step_other", values="value").loc[steps, steps].to_numpy(float)
        crowded = len(steps) > 8
        text = [[("" if crowded else number(v, 2)) if np.isfinite(v) else "–" for v in row] for row in grid]
        over = [[f"steps {a} and {b}: {number(v, 2)}" for b, v in zip(steps, row, strict=True)] for a, row in zip(steps, grid, strict=True)]
        places, names = list(range(len(steps))), [str(k) if not crowded or i % 2 == 0 else "" for i, k in enumerate(steps)]
        right = CellPanel(
            Axis("step", (-0.55, len(steps) - 0.45), places, names),
            Axis("", (-0.55, len(steps) - 0.45), places, names),
            (),
            title="do they stay apart? correlation of steps",
            column=1,
            content=Cells(grid, text, over, VIK, (-1.0, 1.0)),
        )
        footer = c.footer(
            "spread: sd over paths, over sd over examples; root mean square of all tokens", "no interval: means over the kept examples"
        )
        return Divided(self.message(table, s), f"{c.subject()} · {c.name()}", footer, (left, right), height=430, widths=(1.0, 0.9))

    def message(self, table: Table, s: Selection) -> str:
        """Spread at the last step, and how much of it neighbouring steps share."""
        c = classes(s)
        spread = table[table["kind"] == "spread"]["value"].to_numpy()
        if not (spread > 1e-9).any():
            return f"{c.name()}: all paths are one, nothing spreads"
        near = self._near(table)
        last = f"{c.name()}: at the last step paths spread {percent(spread[-1])} as far as examples do"
        if not np.isfinite(near):
            return last
        word = "mostly inherited" if near > 0.6 else "partly inherited" if near > 0.25 else "hardly inherited"
        return f"{last}, {word} from the step before"

    @staticmethod
    def _near(table: Table) -> float:
        """Mean correlation of the last step with the one before."""
        pairs = table[table["kind"] == "correlation"]
        last = pairs["step"].max()
        found = pairs[(pairs["step"] == last) & (pairs["step_other"] == last - 1)]["value"]
        return float(found.iloc[0]) if len(found) else float("nan")

    def words(self, table: Table, s: Selection) -> str:
        """Spread at each step, and the correlations next to the diagonal and at the far corner."""
        c = classes(s)
        spread = "; ".join(f"step {r.step} {percent(r.value, 1)}" for r in table[table["kind"] == "spread"].itertuples())
        pairs = table[table["kind"] == "correlation"].dropna(subset=["value"])
        near = pairs[pairs["step_other"] - pairs["step"] == 1]["value"]
        far = pairs[pairs["step_other"] - pairs["step"] == pairs["step"].max() - pairs["step"].min()]["value"]
        related = (
            f" Neighbouring steps correlate by {number(float(near.mean()), 2)}, the first and the last by {number(float(far.mean()), 2)}."
            if len(near)
            else ""
        )
        return f"{self.message(table, s)}. {c.subject()}, M = {c.members}, spread of paths over that of examples: {spread}.{related}"


ENTRIES = (PathSpread(),)
