"""What the rank counts say: the PIT's distribution function, and its shape in words."""

from dataclasses import dataclass

import numpy as np

from engine.figures._select import Selection
from engine.figures._style import number, percent
from engine.judging import too_few
from engine.types import Array


def deviation(shares: Array) -> tuple[Array, Array]:
    """(u, F_PIT(u) − u) at the knots k/(M+1), from rank shares with ties already shared."""
    u = np.arange(len(shares) + 1) / len(shares)
    f = np.concatenate([[0.0], np.cumsum(shares / shares.sum())])
    return u, f - u


@dataclass(frozen=True)
class Verdict:
    """The shape of a PIT: largest departure from uniform, its part from bias and from spread, whether it exceeds the band,
    and whether the record is too short to tell.
    """

    worst: float
    bias: float
    spread: float
    band: float
    few: bool = False

    @property
    def honest(self) -> bool:
        """The departure from uniform keeps to the band."""
        return bool(np.isfinite(self.band)) and self.worst <= self.band

    @property
    def words(self) -> str:
        """A clause that follows "the forecast …"; a band that is unknown makes no claim of honesty."""
        if not np.isfinite(self.band):
            return f"departs from uniform by up to {percent(self.worst, 1)} (band unknown)"
        if self.honest:
            return "is not told apart from honest" + (": too few independent cases to tell" if self.few else "")
        parts = []
        if abs(self.spread) > self.band / 2 and abs(self.spread) >= 0.5 * abs(self.bias):
            parts.append("too narrow (under-dispersed)" if self.spread > 0 else "too wide (over-dispersed)")
        if abs(self.bias) > self.band / 2 and abs(self.bias) >= 0.5 * abs(self.spread):
            parts.append("too high (biased)" if self.bias > 0 else "too low (biased)")
        if not parts:
            return "departs from uniform in shape"
        return f"is {'slightly ' if self.worst < 2 * self.band else ''}{' and '.join(parts)}"


def verdict(shares: Array, band: float, few: bool = False) -> Verdict:
    """Split F_PIT(u) − u about u = ½: the even part is bias (positive: observations fall low), the odd part is spread."""
    _, d = deviation(shares)
    even, odd = (d + d[::-1]) / 2, (d - d[::-1]) / 2
    half = len(d) // 2
    return Verdict(
        worst=float(np.abs(d).max()),
        bias=float(even[np.abs(even).argmax()]),
        spread=float(odd[: half + 1][np.abs(odd[: half + 1]).argmax()]),
        band=float(band),
        few=few,
    )


def judge(s: Selection, nu: int) -> Verdict:
    """The verdict on one ν of a selection."""
    return verdict(s.at("rank_counts", nu=nu).values, float(s.at("pit_band", nu=nu)), too_few(s.verification.attrs))


def headline(s: Selection) -> str:
    """The message of a PIT figure, for one or two ν."""
    if len(s.nus) == 1:
        return f"{s.looked_at} the forecast {judge(s, s.nu).words}"
    return "; ".join(f"{s.label(n)} {judge(s, n).words}" for n in s.nus)


def sentence(s: Selection, nu: int) -> str:
    """Verdict, W₁ and its interval, and the largest departure beside the band."""
    v = judge(s, nu)
    text = (
        f"{s.label(nu)}: the forecast {v.words}; largest departure of the PIT from uniform {percent(v.worst, 1)} (95% "
        f"band ± {percent(v.band, 1)})"
    )
    if "w1_pit" in s.verification:
        text += f"; W₁ distance {number(float(s.at('w1_pit', nu=nu)))}"
        if "w1_pit_low" in s.verification:
            text += f" ({number(float(s.at('w1_pit_low', nu=nu)))} … {number(float(s.at('w1_pit_high', nu=nu)))})"
    return text


def bin_count(ranks: int) -> int:
    """How many equal bins to merge `ranks` = M + 1 ranks into: the divisor nearest to 10, the larger of two that are as near."""
    divisors = [d for d in range(2, ranks + 1) if ranks % d == 0]
    return min(divisors, key=lambda d: (abs(d - 10), -d))
