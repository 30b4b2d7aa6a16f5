"""Two overlaid histograms of confidence: bars for one group of examples, an outline over them for the other."""

import numpy as np

from engine.figures._chart import Band, Bars, Layer, Line
from engine.figures._charted import Table
from engine.figures._style import percent

STEP = 0.05


def histogram(groups: dict[str, np.ndarray], least: float) -> Table:
    """One row a group and bin: `from`, `to`, `share` of the group. Bins (lo, hi] of width 0.05 from below `least` up to 1."""
    import pandas as pd

    first = int(np.floor(least / STEP + 1e-9))
    edges = np.arange(first, round(1 / STEP) + 1) * STEP
    parts = []
    for name, values in groups.items():
        at = np.clip(np.searchsorted(edges, np.asarray(values, float) - 1e-9) - 1, 0, len(edges) - 2)
        count = np.bincount(at, minlength=len(edges) - 1)
        parts.append(
            pd.DataFrame({"group": name, "from": edges[:-1], "to": edges[1:], "count": count, "share": count / max(len(values), 1)})
        )
    return pd.concat(parts, ignore_index=True)


def overlaid(table: Table) -> tuple[Layer, ...]:
    """The table's two groups: the first as bars, the second as a filled outline that leaves them seen."""
    (first, bars), (second, outline) = table.groupby("group", sort=False)
    layers: list[Layer] = [
        Bars(((bars["from"] + bars["to"]) / 2).tolist(), bars["share"].tolist(), width=0.9 * STEP, label=str(first), hover=_hover(bars))
    ]
    x = np.repeat(np.r_[outline["from"], outline["to"].iloc[-1]], 2)[1:-1].tolist()
    y = np.repeat(outline["share"], 2).tolist()
    layers += [
        Band(x, [0.0] * len(x), y, colour="second", strength=0.2),
        Line(x, y, colour="second", width=2.4, label=str(second), hover=[h for h in _hover(outline) for _ in range(2)]),
    ]
    return tuple(layers)


def _hover(part: Table) -> list[str]:
    return [
        f"{percent(r['from'])} … {percent(r['to'])} sure<br>{percent(r['share'], 1)} of {r['group']}: {r['count']:,.0f}"
        for r in part.to_dict("records")
    ]
