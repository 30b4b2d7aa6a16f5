"""What a verb says on stderr is in its answer: told lines, warnings of Python and of libraries, in answers and in refusals."""

import json
import logging
import sys
import warnings

import pytest

import engine.__main__ as cli
from engine.errors import SpecError
from engine.runs.console import Ticker, answering, show
from engine.runs.told import tell, told


@pytest.mark.filterwarnings("default")
def test_whatever_is_said_is_in_the_answer(capsys) -> None:
    with answering(True):
        tell("one thing")
        tell("one thing")
        warnings.warn("another", UserWarning, stacklevel=1)
        logging.getLogger("some.library").warning("a third")
        show({"value": 1, "notes": ["before"]}, True, "")
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["notes"] == ["before", "one thing", "UserWarning: another", "some.library: a third"]
    assert all(line in answer["notes"] for line in err.strip().splitlines())
    assert told() == [], "nothing is carried into the next answer"


def test_a_line_that_is_in_the_changes_is_not_said_twice(capsys) -> None:
    with answering(True):
        tell("turned")
        show({"changes": ["turned"]}, True, "")
    assert json.loads(capsys.readouterr().out) == {"changes": ["turned"]}


def test_a_refusal_says_what_was_told_before_it(capsys) -> None:
    with pytest.raises(cli.typer.Exit), answering(True):
        tell("the demo is meant")
        raise SpecError("a", found="b", expected="c", remedy="d")
    assert json.loads(capsys.readouterr().out)["notes"] == ["the demo is meant"]


def test_progress_is_no_note(capsys) -> None:
    with answering(True):
        Ticker()(1, 2, "half")
        show({"value": 1}, True, "")
    out, err = capsys.readouterr()
    assert json.loads(out) == {"value": 1} and "half" in err


def test_a_device_that_cannot_run_is_in_the_answer_of_doctor(home, capsys, monkeypatch) -> None:
    import torch

    from engine.runs import doctor

    def fails(where: str) -> float:
        raise RuntimeError("no kernel image") if where.startswith("cuda") else AssertionError

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Old card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (3, 5))
    monkeypatch.setattr(doctor, "_sample", fails)
    monkeypatch.setattr(sys, "argv", ["engine", "doctor", "--json"])
    cli.main()
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["device"] == "cpu" and any("Old card" in note for note in answer["notes"])
    assert err.strip() in answer["notes"], "said once, and in the answer"
