"""The table of the preflight: a row a finding, what is merely fine drawn together, and one verdict."""

from pages._parts.preflight_table import BAD, GOOD, passed, rows, verdict

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
    "plan": {"sweep_seconds": 600.0, "memory": "421.0 MB"},
}


def test_each_finding_is_a_row_and_fine_ones_of_a_kind_are_one() -> None:
    found = {question: (answer, state) for question, answer, state in rows(DOCUMENT)}
    assert found["Grid"] == ("32×64", GOOD)
    assert found["Units"] == ("2 variables: K, m", GOOD)
    assert found["Missing values of z500"][1] == ""
    assert not any("ffff" in answer for answer, _ in found.values())
    assert passed(DOCUMENT)
    assert "about 10 min" in verdict(DOCUMENT)


def test_a_problem_of_the_data_stops_the_run_even_without_a_refusal() -> None:
    bad = {"level": "problem", "what": "model's grid", "found": "31×64", "expected": "32×64", "remedy": "Regrid."}
    document = DOCUMENT | {"data": {"findings": [bad]}}
    assert ("Model's grid", "31×64 (expected 32×64). Regrid.", BAD) in rows(document)
    assert not passed(document)
    assert verdict(document).startswith("Not ready")
