"""The rank histogram: which of the M + 1 ranks the observation takes among the members, rank by rank."""

from engine.figures import _pit
from engine.figures._chart import Axis, Band, Bars, Chart, Layer, Line, Panel, Points
from engine.figures._charted import Charted, Table
from engine.figures._select import Selection
from engine.figures._style import percent

COLOURS = ("accent", "second")


class RankHistogram(Charted):
    """All M + 1 ranks of the observation among the members, with their block-bootstrap intervals."""

    key = "rank_histogram"
    title = "Which rank does the observation take among the members?"

    def table(self, s: Selection) -> Table:
        """One row a ν and rank: share and interval."""
        import pandas as pd

        parts = []
        for nu in s.nus:
            parts.append(
                pd.DataFrame(
                    {"nu": nu, "rank": s.verification["rank"].values}
                    | {
                        out: s.at(name, nu=nu).values
                        for out, name in (("share", "rank_counts"), ("share_low", "rank_low"), ("share_high", "rank_high"))
                    }
                )
            )
        return pd.concat(parts, ignore_index=True).dropna(subset=["share"])

    def chart(self, table: Table, s: Selection) -> Chart:
        """Bars with intervals; two ν side by side on one scale."""
        m = s.members
        top = 1.08 * float(max(table["share_high"].max(), table["share"].max(), 1.6 / (m + 1)))
        panels = []
        for column, (nu, part) in enumerate(table.groupby("nu", sort=False)):
            x, y = part["rank"].tolist(), part["share"].tolist()
            hover = [
                f"rank {int(r)} of 0 … {m}<br>{percent(v, 1)} of observations ({percent(a, 1)} … {percent(b, 1)})"
                for r, v, a, b in part[["rank", "share", "share_low", "share_high"]].to_numpy()
            ]
            ends = {"low": part["share_low"].tolist(), "high": part["share_high"].tolist()}
            # beyond a few dozen ranks bars with whiskers are a thicket: a line with a band says the same
            layers: list[Layer] = (
                [Bars(x, y, 0.88, COLOURS[column], hover=hover, **ends)]
                if m <= 60
                else [
                    Band(x, ends["low"], ends["high"], COLOURS[column]),
                    Line(x, y, COLOURS[column]),
                    Points(x, y, COLOURS[column], symbol="none", hover=hover),
                ]
            )
            layers.append(Line([-0.7, m + 0.7], [1 / (m + 1)] * 2, colour="ink", dash=True, width=1.4))
            name = f"{s.label(int(str(nu)))}: {_pit.judge(s, int(str(nu))).words.removeprefix('is ')}" if len(s.nus) == 2 else ""
            axis = Axis(f"members below the observation (of M = {m})", (-0.7, m + 0.7))
            panels.append(
                Panel(
                    axis, Axis("share of observations" if column == 0 else "", (0.0, top), percent=True), tuple(layers), name, column=column
                )
            )
        title = _pit.headline(s) if len(s.nus) == 1 else self.title
        return Chart(
            title,
            f"{s.subject()} · dashed: honest, all ranks alike",
            s.footer("rank shares, ties shared", f"bars: {s.bootstrap()}"),
            tuple(panels),
            height=400,
        )

    def words(self, table: Table, s: Selection) -> str:
        """Outermost ranks beside 1/(M+1)."""
        said = []
        for nu, part in table.groupby("nu", sort=False):
            y, low, high = (part[c].to_numpy() for c in ("share", "share_low", "share_high"))
            said.append(
                f"{_pit.sentence(s, int(str(nu)))}; below all members {percent(y[0], 1)} ({percent(low[0], 1)} … {percent(high[0], 1)}), "
                f"above all {percent(y[-1], 1)} ({percent(low[-1], 1)} … {percent(high[-1], 1)})"
            )
        return (
            f"Rank histogram for {s.subject()}, M = {s.members}; an honest forecast has {percent(1 / (s.members + 1), 1)} at each rank. "
            + ". ".join(said)
            + "."
        )


ENTRIES = (RankHistogram(),)
