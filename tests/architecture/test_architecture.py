"""The shape of the code, read from its syntax trees: who may import whom, what stays light, and what never happens at run time.

Imports go one way: pages → the engine's facade → runs → the five families → kernels → foundation, where the foundation is
the modules that lie in `engine/` itself. The families meet in `runs` only. `engine.demo`, which makes the demo's files and
is never run by the app, may import anything of the engine.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = {"data", "backbones", "methods", "scoring", "figures"}
FOUNDATION = {p.stem for p in (ROOT / "engine").glob("*.py")} - {"__init__", "__main__"}
FACADE = "facade"
MAY_IMPORT: dict[str, set[str]] = {
    "foundation": {"foundation"},
    "kernels": {"foundation", "kernels"},
    **{family: {"foundation", "kernels", family} for family in FAMILIES},
    "runs": {"foundation", "kernels", "runs", *FAMILIES},
    FACADE: {"foundation", "kernels", "runs", *FAMILIES},
    "__main__": {"foundation", FACADE, "runs"},
    "demo": {"foundation", "kernels", "runs", "demo", FACADE, *FAMILIES},
}
PAGES_MAY_NAME = {"errors", "judging", "settings", "__version__"}
"""What pages may reach beside the names of the facade: the errors they show as cards, the judgements they state, where things live."""
HEAVY = ("torch", "sklearn", "skopt", "matplotlib", "cartopy")
NETWORK = ("requests", "urllib.request", "urllib3", "http.client", "httpx", "httpx2", "aiohttp", "ftplib", "smtplib", "webbrowser")
FETCHES = {"hf_hub_download", "snapshot_download", "load_state_dict_from_url", "download_url_to_file", "urlopen", "urlretrieve"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
LINES = 400


def sources(*folders: str) -> list[Path]:
    """Python files of these folders, and `app.py` where "pages" is among them."""
    files = [p for folder in folders for p in (ROOT / folder).rglob("*.py")]
    if "pages" in folders and (ROOT / "app.py").exists():
        files.append(ROOT / "app.py")
    return sorted(files)


def name_of(path: Path) -> str:
    """Path as the test's id."""
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """`engine/runs/spec.py` → `engine.runs.spec`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    """The layer of a module of the engine."""
    parts = module.split(".")
    if len(parts) == 1:
        return FACADE
    return "foundation" if parts[1] in FOUNDATION else parts[1]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that is imported anywhere in a file, with its line; `from engine import x` is `engine.x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain, or "" where it does not begin with a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, dict[str, ast.expr]]]:
    """Every call, with its dotted name and its keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, dotted(node.func), {k.arg: k.value for k in node.keywords if k.arg}


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def facade_names() -> set[str]:
    """The public names, read from the syntax tree of `engine/__init__.py`: the keys of `_WHERE`."""
    tree = ast.parse((ROOT / "engine/__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(dotted(t) == "_WHERE" for t in node.targets) and isinstance(node.value, ast.Dict):
            return {k.value for k in node.value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
    raise AssertionError("engine/__init__.py has no table _WHERE")


def wrong_imports(module: str, source: str) -> list[str]:
    """Imports of an engine module that go against the direction."""
    layer, found = layer_of(module), []
    if layer not in MAY_IMPORT:
        return [f"{module}: layer {layer!r} has no place in the order of imports"]
    for line, target in imports(ast.parse(source)):
        if target.startswith("."):
            found.append(f"{module}:{line}: relative import")
        head = target.split(".")
        if head[0] == "streamlit":
            found.append(f"{module}:{line}: imports streamlit")
        if head[0] == "pages":
            found.append(f"{module}:{line}: imports pages")
        if head[0] != "engine" or target in {"engine", "engine.__version__"}:  # `import engine` alone: the next test looks at its use
            continue
        other = layer_of(target)
        if other not in MAY_IMPORT and (ROOT / "engine" / other).exists():
            found.append(f"{module}:{line}: imports {target}, whose layer has no place in the order of imports")
        elif other in MAY_IMPORT and other not in MAY_IMPORT[layer]:
            found.append(f"{module}:{line}: {layer} imports {other} ({target})")
        elif other not in MAY_IMPORT and FACADE not in MAY_IMPORT[layer]:
            found.append(f"{module}:{line}: {layer} takes {target} from the facade")
    return found


def wrong_facade_use(module: str, source: str, allowed: set[str]) -> list[str]:
    """Uses of `engine.x`, imported or as an attribute, where x is not allowed."""
    tree = ast.parse(source)
    found = []
    for line, target in imports(tree):
        parts = target.split(".")
        if parts[0] == "engine" and len(parts) > 1 and parts[1] not in allowed:
            found.append(f"{module}:{line}: imports {target}")
    if any(target == "engine" for _, target in imports(tree)):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and dotted(node.value) == "engine" and node.attr not in allowed:
                found.append(f"{module}:{node.lineno}: uses engine.{node.attr}")
    return found


def fetches(module: str, source: str) -> list[str]:
    """Whatever could call out at run time."""
    tree = ast.parse(source)
    found = [
        f"{module}:{line}: imports {target}"
        for line, target in imports(tree)
        if any(target == name or target.startswith(f"{name}.") for name in NETWORK)
    ]
    ours = {target.split(".")[-1] for _, target in imports(tree) if target.split(".")[0] == "engine"}
    for node, name, keywords in calls(tree):
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if last in FETCHES or name.startswith("torch.hub."):
            found.append(f"{module}:{node.lineno}: calls {last}")
        if last == "from_pretrained" and not is_constant(keywords.get("local_files_only"), True):
            found.append(f"{module}:{node.lineno}: from_pretrained without local_files_only=True")
        if last in {"Scattergeo", "Choropleth", "coastlines"} and name.split(".")[0] not in ours:
            found.append(f"{module}:{node.lineno}: {last} fetches geography")
    markup = re.compile(r"(src\s*=|url\(|@import)\s*[\"']?https?:")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and markup.search(node.value):
            found.append(f"{module}:{node.lineno}: markup that loads from outside")
    return found


def unsafe_loads(module: str, source: str) -> list[str]:
    """Loads that would run what a file asks for."""
    found = []
    for node, name, keywords in calls(ast.parse(source)):
        if is_constant(keywords.get("weights_only"), False):
            found.append(f"{module}:{node.lineno}: weights_only=False")
        elif name == "torch.load" and not is_constant(keywords.get("weights_only"), True):
            found.append(f"{module}:{node.lineno}: torch.load without weights_only=True")
        if is_constant(keywords.get("allow_pickle"), True):
            found.append(f"{module}:{node.lineno}: allow_pickle=True")
        if name in {"pickle.load", "pickle.loads", "joblib.load", "eval", "exec"}:
            found.append(f"{module}:{node.lineno}: {name}")
    return found


@pytest.mark.parametrize("path", sources("engine"), ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    assert wrong_imports(module_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", [p for p in sources("engine") if layer_of(module_of(p)) not in {"demo", "__main__"}], ids=name_of)
def test_the_engine_does_not_use_its_own_facade(path: Path) -> None:
    """`import engine` inside the engine is for `__version__` only: anything else would be a way around the direction."""
    source = path.read_text(encoding="utf-8")
    if any(target == "engine" for _, target in imports(ast.parse(source))):
        uses = [u for u in wrong_facade_use(path.name, source, {"__version__"}) if "uses" in u]
        assert uses == []


@pytest.mark.parametrize("path", sources("pages"), ids=name_of)
def test_pages_know_the_facade_only(path: Path) -> None:
    assert wrong_facade_use(name_of(path), path.read_text(encoding="utf-8"), facade_names() | PAGES_MAY_NAME) == []


@pytest.mark.parametrize("path", [p for f in sorted(FAMILIES) for p in sorted((ROOT / "engine" / f).glob("[!_]*.py"))], ids=name_of)
def test_plugins_declare_entries(path: Path) -> None:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = {dotted(t) for n in body if isinstance(n, ast.Assign) for t in n.targets}
    names |= {dotted(n.target) for n in body if isinstance(n, ast.AnnAssign) and n.value is not None}
    assert "ENTRIES" in names, f"{name_of(path)} declares no ENTRIES; a module of a family that is no plug-in begins with an underscore"


@pytest.mark.parametrize("path", sources("engine", "pages"), ids=name_of)
def test_nothing_is_fetched_at_run_time(path: Path) -> None:
    assert fetches(name_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sources("engine", "pages"), ids=name_of)
def test_no_file_runs_what_it_loads(path: Path) -> None:
    assert unsafe_loads(name_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sources("engine", "pages"), ids=name_of)
def test_files_are_short_and_named_for_what_they_hold(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES, f"{name_of(path)} has {lines} lines: which two things is it?"
    assert not VAGUE & {part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts}


@pytest.mark.parametrize("path", sources("engine", "pages", "tests"), ids=name_of)
def test_no_notes_to_self(path: Path) -> None:
    """Nothing half done is left as a comment; this file names the words it looks for in strings, which are not comments."""
    text = path.read_text(encoding="utf-8")
    comments = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    assert [t.string for t in comments if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", t.string)] == []


def test_the_server_itself_calls_nobody() -> None:
    """Streamlit reports usage unless told not to, and asks outside for its address where none is named."""
    browser = tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))["browser"]
    assert browser["gatherUsageStats"] is False
    assert browser["serverAddress"]


def test_styles_load_nothing_from_outside() -> None:
    sheets = [*(ROOT / "assets").rglob("*.css"), *(ROOT / "assets").rglob("*.svg"), ROOT / ".streamlit/config.toml"]
    loads = r"(href\s*=|src\s*=|url\(|@import|url\s*=|[fF]ont\s*=)\s*[\"'][^\"']*https?:|url\(\s*https?:"
    assert [name_of(p) for p in sheets if re.search(loads, p.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import engine", HEAVY),
        ("import engine.types, engine.errors, engine.registry, engine.lexicon, engine.settings", HEAVY),
        ("import engine; engine.submit, engine.progress, engine.cancel, engine.RunSpec", ("torch", "sklearn", "skopt")),
    ],
    ids=["facade", "foundation", "web process"],
)
def test_imports_stay_light(code: str, absent: tuple[str, ...]) -> None:
    """The web process and the command line's refusals pay for no model library: each costs about two seconds."""
    script = f"import sys\n{code}\nprint(*[name for name in {absent!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (wrong_imports, "import streamlit as st"),
        (wrong_imports, "from engine.methods import deterministic"),
        (wrong_imports, "def f():\n    from engine.runs.execute import execute"),
        (wrong_imports, "from engine import methods"),
        (wrong_imports, "from engine import submit"),
        (wrong_imports, "from . import crps"),
        (fetches, "import requests"),
        (fetches, "from urllib.request import urlopen"),
        (fetches, "model = AutoModel.from_pretrained(name)"),
        (fetches, "figure.add_trace(go.Scattergeo())"),
        (fetches, "axes.coastlines()"),
        (fetches, "style = '<style>@import \"https://fonts.example/a.css\"</style>'"),
        (unsafe_loads, "torch.load(path, weights_only=False)"),
        (unsafe_loads, "torch.load(path)"),
        (unsafe_loads, "np.load(path, allow_pickle=True)"),
        (unsafe_loads, "pickle.load(file)"),
    ],
)
def test_the_checks_catch_what_they_are_for(check, source: str) -> None:
    assert len(check("engine.scoring.example", source)) == 1


def test_our_own_coastlines_are_no_download() -> None:
    assert fetches("engine.figures.example", "from engine.figures import _geo\n_geo.coastlines()") == []


def test_the_facade_check_catches_what_it_is_for() -> None:
    allowed = facade_names() | PAGES_MAY_NAME
    assert {"submit", "result", "score"} <= allowed
    assert wrong_facade_use("pages", "import engine\nengine.submit(1)\nfrom engine.errors import EngineError", allowed) == []
    assert len(wrong_facade_use("pages", "import engine\nengine.runs.store.table()", allowed)) == 1
    assert len(wrong_facade_use("pages", "from engine.runs import store", allowed)) == 1
