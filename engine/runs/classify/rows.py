"""A classification for the command line: one JSON document, a table, and what the comparisons allow to be said."""

import json
from typing import TYPE_CHECKING, Any

from engine.runs.classify.entries import TEACHER, parse_entry

if TYPE_CHECKING:
    import xarray as xr

ENDS = {"value": "", "low": "_low", "high": "_high"}
COLUMNS = {
    "accuracy": ("accuracy %", 100, 1), "ece": ("ECE %", 100, 1), "nll": ("NLL", 1, 3), "brier_multiclass": ("Brier", 1, 3),
    "mcc": ("MCC", 1, 3), "auroc_failure": ("AUROC failure", 1, 3),
}  # fmt: skip
"""Scores of the table for people: heading, factor, decimals."""
SAID = ("accuracy", "nll", "ece", "brier_multiclass", "auroc_failure")
"""Scores that a comparison in words looks at."""
WORDS = {"nll": "NLL", "ece": "ECE", "brier_multiclass": "Brier score", "auroc_failure": "AUROC of failures"}
"""Scores in a sentence, where their key is no word."""
FACTS = ("parameters", "milliseconds", "members", "fit_seconds")


def document(run: "xr.Dataset") -> dict[str, Any]:
    """`rows` (one an entry: scores as value, low, high; of several out-of-distribution sets a mapping by set), `differences` by
    compared entry, `sentences`, `notes`, `key`, and what else a reader needs.
    """
    rows = [_row(run, str(entry)) for entry in run["entry"].values]
    compared = [str(a) for a in run["against"].values] if "against" in run.coords else []
    return {
        "task": "classification",
        "key": run.attrs["key"],
        "title": run.attrs["title"],
        "cases": run.attrs["cases"],
        "classes": [str(c) for c in run["class"].values],
        "members": run.attrs["members"],
        "seed": run.attrs["seed"],
        "nu": run.attrs["nu"] or None,
        "nu_rule": run.attrs["nu_rule"],
        "rows": rows,
        "differences": {against: {r["entry"]: _differences(run, r["entry"], against) for r in rows} for against in compared},
        "sentences": sentences(run),
        "notes": json.loads(run.attrs["notes"]),
        "command": run.attrs["command"],
    }


def _row(run: "xr.Dataset", entry: str) -> dict[str, Any]:
    own = run.sel(entry=entry)
    row: dict[str, Any] = {"entry": entry, "title": str(own["entry_title"].item())}
    for name in score_names(run):
        row[name] = {word: float(own[name + end]) for word, end in ENDS.items()}
    for name in detection_names(run):
        sets = [str(o) for o in run["ood"].values]
        each = {o: {word: float(own[name + end].sel(ood=o)) for word, end in ENDS.items()} for o in sets}
        row[name] = each[sets[0]] if len(sets) == 1 else each
    return row | {name: own[name].item() for name in FACTS}


def score_names(run: "xr.Dataset") -> list[str]:
    """Scores with one value an entry, in the result's order."""
    return [str(n) for n, v in run.data_vars.items() if v.dims == ("entry",) and f"{n}_low" in run]


def detection_names(run: "xr.Dataset") -> list[str]:
    """Scores with a value for each out-of-distribution set."""
    return [str(n) for n, v in run.data_vars.items() if v.dims == ("entry", "ood") and f"{n}_low" in run]


def _differences(run: "xr.Dataset", entry: str, against: str) -> dict[str, dict[str, float]]:
    where = {"entry": entry, "against": against}
    names = [n for n in score_names(run) if f"{n}_difference" in run]
    return {n: {word: float(run[f"{n}_difference{end}"].sel(where)) for word, end in ENDS.items()} for n in names}


def sentences(run: "xr.Dataset") -> list[str]:
    """One for each comparison: DIRECTOR with each of its controls and the frozen model, every other entry with the frozen model."""
    if "against" not in run.coords:
        return []
    entries, compared = [str(e) for e in run["entry"].values], [str(a) for a in run["against"].values]
    said = []
    for entry in entries:
        parsed = parse_entry(entry)
        controls = [a for a in compared if parse_entry(a).method == parsed.method and parse_entry(a).control]
        own = controls if entry == parsed.method else []
        said += [_compared(run, entry, a) for a in [*own, *([TEACHER] if TEACHER in compared else [])] if a != entry]
    if len(said) > 1:
        count = len(said) * len(SAID)
        some = f"some {count / 20:.0f} would" if count >= 30 else "one may"
        said.append(f"Of these {count} intervals {some} exclude zero by chance alone.")
    return said


def _compared(run: "xr.Dataset", entry: str, against: str) -> str:
    """Which differences exclude zero."""
    names = {e: str(run["entry_title"].sel(entry=e).item()) for e in (entry, against)}
    found, unknown, rest = [], [], []
    for score in SAID:
        value, low, high = (float(run[f"{score}_difference{end}"].sel(entry=entry, against=against)) for end in ENDS.values())
        if low != low:
            unknown.append(WORDS.get(score, score))
        elif low > 0 or high < 0:
            better = (value > 0) == (run[score].attrs["better"] == "higher")
            ends = ", ".join(f"{end:.2g}" for end in sorted((abs(low), abs(high))))
            found.append(f"{WORDS.get(score, score)} {'better' if better else 'worse'} by {abs(value):.3g} [{ends}]")
        else:
            rest.append(WORDS.get(score, score))
    text = f"{names[entry]} against {names[against]}: " + ("; ".join(found) if found else "no difference excludes zero")
    text += f"; not told apart: {', '.join(rest)}" if rest and found else ""
    return text + (f"; not defined: {', '.join(unknown)}" if unknown else "") + "."


def table(answer: dict[str, Any]) -> str:
    """The rows for people, with their intervals, then the sentences and notes."""
    known = {n: c for n, c in COLUMNS.items() if n in answer["rows"][0]}
    ood = [n for n in ("auroc_ood_max_softmax",) if n in answer["rows"][0]]
    head = ["", *(heading for heading, _, _ in known.values()), *("AUROC OOD" for _ in ood), "parameters", "ms", "M", "fit s"]
    lines = [head]
    for row in answer["rows"]:
        cells = [row["title"], *(_cell(row[n], factor, places) for n, (_, factor, places) in known.items())]
        cells += [_ood(row[n]) for n in ood]
        seconds = row["fit_seconds"]
        cells += [
            f"{row['parameters']:,}",
            f"{row['milliseconds']:.2f}",
            str(row["members"]),
            "shipped" if seconds != seconds else f"{seconds:.0f}",
        ]
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [f"{answer['title']}: {answer['cases']} examples, seed {answer['seed']}".lstrip(": ")]
    text += ["  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))) for line in lines]
    text += ["", *answer["sentences"]]
    if answer["nu"]:
        text.append(f"ν = {answer['nu']} ({answer['nu_rule']}).")
    text += [f"note: {note}" for note in answer["notes"]]
    return "\n".join([*text, f"run {answer['key']}"])


def _cell(found: dict[str, float], factor: float, places: int) -> str:
    value, low, high = (factor * found[word] for word in ENDS)
    if value != value:
        return "–"
    return f"{value:.{places}f} [{low:.{places}f}, {high:.{places}f}]" if low == low else f"{value:.{places}f} [no interval]"


def _ood(found: dict[str, Any]) -> str:
    """One set's value with its interval; of several the values."""
    return _cell(found, 1, 3) if "value" in found else " / ".join(f"{one['value']:.3f}" for one in found.values())
