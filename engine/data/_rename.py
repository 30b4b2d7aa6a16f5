"""Names as a user says they are meant: `rename` maps a file's own names to others."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr


def renamed(data: "xr.Dataset", rename: Mapping[str, str], what: str, changes: list[str]) -> "xr.Dataset":
    """The dataset with these variables, coordinates or dimensions under their other names; names that it lacks are not its own.

    Raises DatasetError where a name would be taken twice.
    """
    there = {str(n) for n in (*data.variables, *data.dims)}
    mine = {old: new for old, new in rename.items() if old in there and old != new}
    twice = sorted({new for new in mine.values() if list(mine.values()).count(new) > 1})
    if twice:
        raise DatasetError(
            what,
            found=f"{' and '.join(old for old, new in mine.items() if new == twice[0])}, both to be renamed to {twice[0]}",
            expected="one of them",
            remedy="Leave one out of --rename (rename= in Python).",
        )
    taken = sorted(new for new in mine.values() if new in there - set(mine))
    if taken:
        old = next(o for o, n in mine.items() if n == taken[0])
        raise DatasetError(
            what,
            found=f"{old}, to be renamed to {taken[0]}, and a variable that is called {taken[0]} already",
            expected="a name that the file does not have",
            remedy=f"Rename both with --rename {taken[0]}=OTHER,{old}={taken[0]} (rename= in Python), or leave {old} out of it.",
        )
    changes += [f"{old} renamed to {new}, as asked" for old, new in mine.items()]
    data = data.rename(mine) if mine else data
    for new in set(mine.values()) & set(map(str, data.coords)):
        data[new].attrs.pop("standard_name", None)  # the name that was asked for says what a coordinate is
    return data


def all_found(rename: Mapping[str, str], names: Iterable[set[str]], what: str) -> None:
    """Refuse a `rename` of which no file has the name: a slip of the pen must not pass for a wish that was granted."""
    every = set().union(*names)
    unknown = sorted(set(rename) - every)
    if unknown:
        raise DatasetError(
            what,
            found=f"the names {', '.join(sorted(every)[:20])}",
            expected=f"{', '.join(unknown)}, which is to be renamed",
            remedy="Use names that a file has in --rename (rename= in Python).",
        )


def names_in(data: "xr.Dataset") -> set[str]:
    """Every name that a file has: variables, coordinates, dimensions."""
    return {str(n) for n in (*data.variables, *data.dims)}
