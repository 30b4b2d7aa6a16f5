"""Tests that test the tests: each fault of `faults.toml`, planted alone in a copy of the project, must be found by the tests it names."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900
"""Seconds that one run may take, also on a machine that is busy with others; a quiet one needs some six, and a minute without a fault."""
AT_ONCE = 2
BROKEN = ("SyntaxError", "IndentationError", "NameError", "ImportError", "ModuleNotFoundError", "AttributeError", "UnboundLocalError")
"""A test that fails by one of these has met a patch that is no program, not a fault."""

pytestmark = pytest.mark.timeout(2 * LIMIT)


@dataclass(frozen=True, eq=False)
class Fault:
    """A replacement in one file, and the test functions that must fail with it."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]
    within: str = ""

    def planted(self, text: str) -> str:
        """The file's text with the fault in it; AssertionError where the anchor does not stand in its place exactly once."""
        first, last = self._place(text)
        lines = text.splitlines(keepends=True)
        part = "".join(lines[first:last])
        where = f"{self.file}{f', {self.within}' if self.within else ''}"
        count = part.count(self.old)
        assert count == 1, (
            f"{where}: found {self.old!r} {count} times; expected once. Give the fault {self.name!r} an anchor of its own in faults.toml."
        )
        return "".join(lines[:first]) + part.replace(self.old, self.new) + "".join(lines[last:])

    def _place(self, text: str) -> tuple[int, int]:
        """Lines of what `within` names: a function or class, through as many classes or functions as its dots say."""
        node: ast.AST = ast.parse(text)
        for name in self.within.split(".") if self.within else ():
            inner = [n for n in ast.iter_child_nodes(node) if getattr(n, "name", None) == name]
            assert len(inner) == 1, f"{self.file}: found {len(inner)} definitions of {self.within}; expected one (fault {self.name!r})."
            node = inner[0]
        return (0, len(text)) if isinstance(node, ast.Module) else (node.lineno - 1, node.end_lineno)


FAULTS = [Fault(**fields) for fields in tomllib.loads(Path(__file__).with_name("faults.toml").read_text())["fault"]]


@dataclass(frozen=True)
class Outcome:
    """What a run of some tests came to: pytest's exit code, and for each test function the messages of its failures and errors."""

    code: int
    passed: dict[str, int]
    failures: dict[str, list[str]]
    errors: list[str]
    said: str


def run(folder: Path, tests: list[str], fault: Fault | None = None) -> Outcome:
    """Run test functions in a copy of the project at `folder`, with the fault in it."""
    for name in ("engine", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("planted"))
    for name in ("assets", "pages", "app.py", "pyproject.toml", "requirements.txt"):
        (folder / name).symlink_to(ROOT / name)
    if fault is not None:
        file = folder / fault.file
        planted = fault.planted(file.read_text())
        file.unlink()
        file.write_text(planted)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("NUSCOPE_", "PYTEST_", "COV_"))}
    own |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(folder)}
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'temporary'}", f"--junitxml={report}"]
    command += ["-x"] if fault is not None and len(tests) == 1 else []  # one failure says enough
    done = subprocess.run([*command, *tests], cwd=folder, env=own, capture_output=True, text=True, timeout=LIMIT, check=False)
    passed: dict[str, int] = dict.fromkeys(tests, 0)
    failures: dict[str, list[str]] = {test: [] for test in tests}
    errors: list[str] = []
    for case in ET.parse(report).iter("testcase") if report.exists() else ():
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        failures.get(test, []).extend(str(found.get("message")) for found in case.iter("failure"))
        errors += [str(found.get("message")) for found in case.iter("error")]
        passed[test] = passed.get(test, 0) + all(case.find(kind) is None for kind in ("failure", "error", "skipped"))
    return Outcome(done.returncode, passed, failures, errors, done.stdout[-4000:] + done.stderr[-2000:])


@pytest.fixture(scope="module")
def outcome_of(request, tmp_path_factory):
    """`outcome_of(fault)`: the outcome of its tests with it; of None: that of all tests without a fault. What is selected runs."""
    selected = request.session.items
    asked = [item.callspec.params.get("fault") for item in selected if hasattr(item, "callspec")]
    some = [fault for fault in FAULTS if fault in asked]
    every = list(dict.fromkeys(test for fault in FAULTS for test in fault.tests))
    pool, running = ThreadPoolExecutor(AT_ONCE), {}
    if any(item.name == test_without_a_fault_they_pass.__name__ for item in selected):  # the longest, so the first
        running[""] = pool.submit(run, tmp_path_factory.mktemp("sound"), every)
    running |= {fault.name: pool.submit(run, tmp_path_factory.mktemp("planted"), fault.tests, fault) for fault in some}
    yield lambda fault: running["" if fault is None else fault.name].result()
    pool.shutdown(cancel_futures=True)


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_anchor_stands_in_its_place_once(fault) -> None:
    text = (ROOT / fault.file).read_text()
    planted = fault.planted(text)
    assert planted != text
    ast.parse(planted)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_found(fault, outcome_of) -> None:
    """Each named test fails by what it asserts; nothing is broken otherwise."""
    outcome = outcome_of(fault)
    assert outcome.code == 1, outcome.said
    assert not outcome.errors, f"with the fault the tests could not be made ready: {outcome.errors}"
    for test in fault.tests:
        assert outcome.failures[test], f"{test} lets the fault live"
        assert not any(message.startswith(BROKEN) for message in outcome.failures[test]), outcome.failures[test]


def test_without_a_fault_they_pass(outcome_of) -> None:
    outcome = outcome_of(None)
    assert outcome.code == 0, outcome.said
    assert all(outcome.passed[test] for fault in FAULTS for test in fault.tests), outcome.passed


def test_an_anchor_that_is_not_there_once_is_refused() -> None:
    fault = Fault("none", "some.py", "x = 1", "x = 2", [], within="Some.do")
    text = "x = 1\n\n\nclass Some:\n    def do(self):\n        x = 1\n        return x\n"
    assert fault.planted(text) == text[: text.rindex("x = 1")] + "x = 2\n        return x\n"
    for other in (text.replace("        x = 1\n", "        x = 1\n" * 2), text.replace("        x = 1\n", "        x = 0\n")):
        with pytest.raises(AssertionError, match="expected once"):
            fault.planted(other)
    with pytest.raises(AssertionError, match="0 definitions"):
        fault.planted(text.replace("do", "done"))
