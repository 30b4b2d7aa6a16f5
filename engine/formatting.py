"""Numbers for people, spelt alike in figures, tables, reports and judgements."""

import math

MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 3) -> str:
    """A number for people: three significant digits, thousands separated, a true minus."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 6)}f}".replace("-", MINUS)


def percent(value: float, digits: int = 0) -> str:
    """A share as a percentage; never rounded to a full 100% or an empty 0%."""
    if not math.isfinite(value):
        return "–"
    if value in (0.0, 1.0):
        digits = 0
    elif digits == 0 and (0.995 <= value < 1 or 0 < value < 0.005):
        digits = 2
    return f"{100 * value:.{digits}f}%".replace("-", MINUS)


def between(value: float, low: float, high: float) -> str:
    """`24.1 (22.0 … 26.2)`; the value alone where no interval is known."""
    return f"{number(value)} ({number(low)} … {number(high)})" if math.isfinite(low) and math.isfinite(high) else number(value)
