"""Every remedy can be followed where it is said: each option that one names exists in the command line of the verbs that can say it, in the
signatures of Python, and on the pages. Read from the syntax trees, so that a remedy which no test reaches is judged too.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest
import typer

import engine
import engine.__main__ as cli
from engine.registry import entries
from engine.settings import settings
from pages._parts.here import NAMES, here
from tests.architecture.test_architecture import ROOT, dotted

ALL = ("inspect", "sweep", "calibrate", "run", "score")
RUNS = ("inspect", "sweep", "calibrate", "run")
REACH: dict[str, tuple[str, ...]] = {
    "engine/data/": ALL,
    "engine/data/dataset.py": RUNS,
    "engine/data/npz.py": RUNS,
    # members and several lead times are met in forecasts alone
    **{f"engine/data/{name}.py": ("score",) for name in ("_member_axis", "_series", "_valid")},
    "engine/data/preflight.py": ("inspect",),
    **{f"engine/data/{name}.py": ("inspect", "run") for name in ("_decoded", "_labels", "_members", "_pixels", "_stored_arrays")},
    **{f"engine/data/{name}.py": ("inspect", "run") for name in ("image_arrays", "images", "labelled", "text_folders", "text_tables")},
    "engine/backbones/": RUNS,
    "engine/backbones/_fields.py": ("sweep", "calibrate", "run"),
    "engine/methods/": ("sweep", "calibrate", "run"),
    "engine/runs/plan.py": ("sweep", "run"),
    "engine/runs/calibrate.py": ("calibrate",),
    "engine/runs/calibration.py": ("calibrate",),
    "engine/runs/classify/": ("run",),
    "engine/runs/score": ("score",),
    "engine/runs/align.py": ("score",),
    "engine/runs/benchmarks/": ("benchmark",),
    "engine/runs/report.py": ("report",),
}
"""Which verbs can say the remedies of a file, by the longest path that begins it; of all others, any verb that has the option."""
ABSENT = (".pt2", "torch.export and")
"""Roads that lead nowhere."""


def written(node: ast.AST) -> str:
    """The words of an expression, with … where a value is filled in; both ends of a condition."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(v) if isinstance(v, ast.Constant) else "…" for v in node.values)
    if isinstance(node, ast.BinOp):
        return written(node.left) + written(node.right)
    if isinstance(node, ast.IfExp):
        return f"{written(node.body)} {written(node.orelse)}"
    return ""


def remedies(source: str) -> Iterator[tuple[int, str]]:
    """Line and words of each remedy: the keyword of a refusal or a finding, a finding's fifth value, and a variable of that name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            named = [k.value for k in node.keywords if k.arg in ("remedy", "how")]
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            named += [a for a in node.args[4:5] if called == "Finding"]
            named += node.args[:1] if dotted(node.func) == "remedy.append" else []
            yield from ((node.lineno, written(value)) for value in named)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "remedy" for t in node.targets):
            yield node.lineno, written(node.value)


def options() -> dict[str, set[str]]:
    """The options of each verb."""
    group = typer.main.get_command(cli.app)
    return {name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)} for name, command in group.commands.items()}  # pyright: ignore[reportAttributeAccessIssue]


def keywords() -> set[str]:
    """Every keyword of the functions that Python is offered, of the methods' parameters, and of what may be said of an architecture."""
    offered = [getattr(engine, name) for name in engine.__all__ if callable(getattr(engine, name))]
    offered += [importlib.import_module("engine.runs.score_files").score_files, importlib.import_module("engine.data").open_fields]
    offered += [importlib.import_module("engine.backbones").stack_of]
    found = {p for function in offered if not isinstance(function, type) for p in inspect.signature(function).parameters}
    found |= {
        n for m in entries("methods").values() for k in ("Params", "ClassParams") for n in getattr(getattr(m, k, None), "model_fields", {})
    }
    found |= {n for b in entries("backbones").values() for n in getattr(getattr(b, "recorded", None), "model_fields", {})}
    for spec in (engine.RunSpec, engine.ClassifySpec):
        found |= set(spec.model_fields)
    tune = importlib.import_module("engine.runs.tune").Tune
    return found | set(tune.model_fields) | {"num_heads", "grid", "in_variables", "out_variables", "lead_hours", "variables"}


VERBS, KEYWORDS = options(), keywords()


def verbs_of(place: str) -> tuple[str, ...] | None:
    """The verbs that can say a remedy of this file."""
    best = max((p for p in REACH if place.startswith(p)), key=len, default=None)
    return REACH[best] if best else None


def faults(place: str, remedy: str) -> list[str]:
    """What a remedy of a file names that is not there."""
    found = [f"names {word}" for word in ABSENT if word in remedy]
    reach = verbs_of(place)
    commands = re.findall(r"python -m engine (\w+)", remedy)
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", remedy):
        verbs = tuple(commands) or reach
        if option == "--help":
            continue
        if verbs is None:
            found += [] if any(option in there for there in VERBS.values()) else [f"no verb has {option}"]
        else:
            found += [f"{verb} has no {option}" for verb in verbs if option not in VERBS.get(verb, set())]
    found += [f"no function has {name}=" for name in re.findall(r"(?<![\w-])([a-z_]{3,})=(?![A-Z…])", remedy) if name not in KEYWORDS]
    found += [f"there is no verb {verb}" for verb in commands if verb not in VERBS]
    found += [
        f"{name} is no setting" for name in re.findall(r"NUSCOPE_([A-Z_]+)", remedy) if name.lower() not in type(settings()).model_fields
    ]
    if re.search(r"(?<![\w-])[a-z_]{3,}=(?![A-Z…])", remedy.replace("name=", "")) and "in Python" not in remedy and not commands:
        found.append("names a keyword of Python without saying so: the command line and the pages have none")
    return found


SAID = [
    (path.relative_to(ROOT).as_posix(), line, text)
    for path in sorted((ROOT / "engine").rglob("*.py"))
    for line, text in remedies(path.read_text(encoding="utf-8"))
]


def test_there_are_remedies_to_judge() -> None:
    assert len(SAID) > 300


def test_every_remedy_names_what_is_there() -> None:
    assert [f"{place}:{line}: {fault}: {text}" for place, line, text in SAID for fault in faults(place, text)] == []


def test_every_remedy_that_the_app_can_say_is_in_the_apps_words() -> None:
    on_pages = ("engine/data/", "engine/backbones/", "engine/runs/classify/plan.py", "engine/runs/calibrate.py")
    forecasts = tuple(p for p, verbs in REACH.items() if verbs == ("score",))  # no page scores files
    judged = [row for row in SAID if row[0].startswith(on_pages) and not row[0].startswith(forecasts)]
    told = [(place, line, here(text)) for place, line, text in judged if "python -m engine" not in text]
    assert [row for row in told if re.search(r"--[a-z]|[a-z]= in Python", row[2])] == []


def test_what_the_pages_call_an_option_stands_on_them() -> None:
    pages = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "pages").rglob("*.py") if p.name != "here.py")
    known = {option.removeprefix("--") for there in VERBS.values() for option in there}
    for option, called in NAMES.items():
        if option in known:
            assert all(words in pages for words in re.findall(r"“(.*?)”", called)), f"{option}: {called}"


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        ("engine/data/conform.py", "Choose one with variables=."),
        ("engine/data/conform.py", "Choose one with --raed (variables= in Python)."),
        ("engine/data/conform.py", "Name it with --lead-time (lead_time= in Python)."),
        ("engine/data/dataset.py", "Name it with --member-dim (member_dim= in Python)."),
        ("engine/data/_join.py", "Name it with --calendar (calender= in Python)."),
        ("engine/backbones/_open.py", "Export it and bring the .pt2 file."),
        ("engine/runs/plan.py", "See: python -m engine compere"),
        ("engine/safety.py", "Raise NUSCOPE_MEMROY_LIMIT."),
    ],
)
def test_a_planted_fault_is_seen(place: str, remedy: str) -> None:
    assert faults(place, remedy)


def test_a_remedy_that_is_right_passes() -> None:
    assert not faults("engine/data/conform.py", "Name one with --rename z=geopotential_500 (rename= in Python).")


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        ("Say it with --rename (rename= in Python).", "Say it under “Names in the files”."),
        (
            "Choose keys (select= in Python, --select on the command line).",
            "Choose keys (“GRIB messages to read”).",
        ),
        ("Name it with --architecture '{\"num_heads\": 16}' (num_heads= in Python). So.", "Name it under “What the file may not say”. So."),
        ("See: python -m engine run --outside name=FILE", "See: python -m engine run --outside name=FILE"),
        ("Regrid it.", "Regrid it."),
    ],
)
def test_a_remedy_in_the_apps_words(remedy: str, told: str) -> None:
    assert here(remedy) == told
