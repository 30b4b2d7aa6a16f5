"""The table of the preflight: a row a finding, what is merely fine drawn together, and one verdict."""

from pages._parts.preflight_table import BAD, GOOD, passed, rows, time_of, verdict

DOCUMENT = {
    "backbone": "climax",
    "format": "safetensors",
    "parameters": 2_962_864,
    "keys": {"matched": ["a", "b"], "missing": [], "unexpected": []},
    "sites": ["var_agg", "blocks.0.attn"],
    "replay_error": 5e-7,
    "refusal": None,
    "normalisation": "normalisation.nc, as given",
    "data": {
        "fingerprint": "f" * 64,
        "findings": [
            {"level": "ok", "what": "grid", "found": "32×64", "expected": "", "remedy": ""},
            {"level": "ok", "what": "units of t2m", "found": "K", "expected": "K", "remedy": ""},
            {"level": "ok", "what": "units of z500", "found": "m", "expected": "m", "remedy": ""},
            {"level": "note", "what": "missing values of z500", "found": "3 (0.1%)", "expected": "none", "remedy": "…"},
        ],
    },
    "plan": {
        "memory": "421.0 MB", "cases": 100, "variables": 1,
        "cost": {"forward": 0.01, "call": 0.0, "member": {"1": 0.01, "64": 0.02}, "scoring": 0.001},
    },
}  # fmt: skip


def test_each_finding_is_a_row_and_fine_ones_of_a_kind_are_one() -> None:
    found = {question: (answer, state) for question, answer, state in rows(DOCUMENT)}
    assert found["Grid"] == ("32×64", GOOD)
    assert found["Units"] == ("2 variables: K, m", GOOD)
    assert found["Missing values of z500"][1] == ""
    assert not any("ffff" in answer for answer, _ in found.values())
    assert passed(DOCUMENT)
    assert verdict(DOCUMENT) == "Ready to run."


def test_the_time_follows_the_form() -> None:
    asked = {"nu": (1, 64), "members": 20}
    assert time_of(DOCUMENT, asked).startswith("About 78 s and 421.0 MB")  # 12 s + 100 cases × (2 forwards + 20 × (11 + 21) ms)
    assert time_of(DOCUMENT, asked | {"members": 200}).startswith("About 11 min")
    assert time_of(DOCUMENT, asked | {"max_cases": 10}).startswith("About 19 s")
    assert time_of(DOCUMENT, asked | {"nu": (1, "many")}) == "", "the schema refuses that by name"
    assert time_of(DOCUMENT | {"plan": {}}, asked) == ""


def test_a_problem_of_the_data_stops_the_run_even_without_a_refusal() -> None:
    bad = {"level": "problem", "what": "model's grid", "found": "31×64", "expected": "32×64", "remedy": "Regrid."}
    document = DOCUMENT | {"data": {"findings": [bad]}}
    assert ("Model's grid", "31×64 (expected 32×64). Regrid.", BAD) in rows(document)
    assert not passed(document)
    assert verdict(document).startswith("Not ready")


def test_what_a_checkpoint_does_not_say_is_named_as_the_form_names_it() -> None:
    refused = {"backbone": "climax", "sites": [], "refusal": "…", "unknown": {"num_heads": [1, 2, 4], "variables": 7}}
    found = {question: answer for question, answer, _ in rows(refused)}
    assert found["Attention heads"] == "not recorded: could be 1, 2, 4" and found["Variables"] == "not recorded: there are 7"
    assert "Attention" not in found, "a model that was not opened was not looked into"
