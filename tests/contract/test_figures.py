"""What holds for every figure of the catalogue: it draws twice from one table, says what it shows, and fetches nothing."""

import importlib.util
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.errors import SpecError
from engine.registry import entries

ROOT = Path(__file__).resolve().parents[2]
FIGURES = entries("figures")
EXPECTED = {
    "trade_off", "width_over_nu", "coverage_over_nu", "spread_skill_over_nu", "rmse_over_nu", "pit_histogram", "pit_ecdf", "rank_histogram",
    "quantile_reliability", "reliability", "spread_skill", "field_map", "cell_pit", "cell_series",
    "scale_fit", "calibration_audit", "calibration_costs", "calibration_periods", "member_spectrum",
    "class_reliability", "confidence_histogram", "class_scores", "class_trade_off", "risk_coverage", "robustness", "outside_detection",
    "path_spread", "path_controls", "example_paths", "student_fidelity",
}  # fmt: skip
CASES = [(key, False) for key in FIGURES] + [(key, True) for key in FIGURES if getattr(FIGURES[key], "nus", 1) == 2]


def synthetic(name):
    """By path, since some installed packages bring a package `tests` of their own."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="module")
def made():
    """The results that figures read, by kind, and the fields of the verification."""
    verification, fields = synthetic("fake_verification").make(0)
    return {
        "verification": synthetic("fake_spectrum").with_spectra(verification),
        "fields": fields,
        "calibration": synthetic("fake_calibration").make(),
        "classification": synthetic("fake_classification").make(),
    }


def calibrated(key):
    return FIGURES[key].reads == "calibration"


def classified(key):
    return FIGURES[key].reads == "classification"


def source(key, made):
    """What the figure says that it reads."""
    return made[FIGURES[key].reads]


def options(key, made, two=False):
    if calibrated(key) or classified(key):
        return {}
    return ({"fields": made["fields"]} if getattr(FIGURES[key], "needs_fields", False) else {}) | ({"nu": (2, 32)} if two else {"nu": 8})


def test_the_catalogue_holds_the_figures():
    assert set(FIGURES) >= EXPECTED
    assert {FIGURES[key].reads for key in FIGURES} == {"verification", "calibration", "classification"}
    assert {key for key in FIGURES if calibrated(key)} == {"scale_fit", "calibration_audit", "calibration_costs", "calibration_periods"}
    assert all(f.title and f.title[0].isupper() for f in FIGURES.values())


@pytest.mark.parametrize(("key", "two"), CASES)
def test_screen_states_what_it_must(key, two, made):
    for dark in (False, True):
        figure = FIGURES[key].screen(source(key, made), dark=dark, **options(key, made, two))
        text = json.dumps(figure.to_plotly_json(), default=lambda a: a.tolist())
        footer = next(a.text for a in figure.layout.annotations if stated_members(key) in a.text).replace("<br>", " ")
        if calibrated(key):
            assert "18 calibration cases" in footer
            assert "normalised units, area weighted" in footer
            assert "run cafe0123" in footer
        elif classified(key):
            assert "800 examples" in footer
            assert "run c1a55012" in footer
        else:
            assert "40 cases" in footer
            assert "of the data valid" in footer
            assert "run fake0123" in footer
        parts = 5 if classified(key) else 6  # labels have neither a norm nor a valid share
        assert len(footer.split(" · ")) == parts, "members, cases, estimator, valid share or norm, uncertainty, run"
        assert re.search(r"<b>.{10,}</b>", figure.layout.title.text), "a headline"
        assert ("10 classes" if classified(key) else "72 h ahead") in figure.layout.title.text.replace("<br>", " ")
        assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
        assert not re.search(r"https?://|mapbox|scattergeo|choropleth|\"geo\"", text), "nothing to fetch"
        assert "nan" not in figure.layout.title.text.lower()


def stated_members(key):
    """How every picture begins to say its M; entries of a classification have several."""
    return "M = " if classified(key) else "M = 20 members"


@pytest.mark.parametrize("key", sorted(FIGURES))
def test_text_is_legible_on_its_paper(key, made):
    for dark in (False, True):
        figure = FIGURES[key].screen(source(key, made), dark=dark, **options(key, made))
        paper = (0x0E, 0x11, 0x17) if dark else (255, 255, 255)
        colours = {figure.layout.title.font.color, figure.layout.font.color} | {a.font.color for a in figure.layout.annotations}
        for axis in figure.select_xaxes():
            colours |= {c for c in (axis.tickfont.color, axis.title.font.color) if c}
        assert colours
        assert min(contrast(c, paper) for c in colours) >= 4.5, "WCAG AA"


def contrast(colour, paper):
    def luminance(rgb):
        linear = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    a, b = luminance([int(colour[i : i + 2], 16) for i in (1, 3, 5)]), luminance(paper)
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


@pytest.mark.parametrize(("key", "two"), CASES)
def test_page_writes_png_and_svg(key, two, made):
    from matplotlib.figure import Figure as Page

    page = FIGURES[key].page(source(key, made), dark=two, **options(key, made, two))
    assert isinstance(page, Page)
    assert getattr(page, "number", None) is None, "never registered with pyplot"
    for fmt, head in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        sink = io.BytesIO()
        page.savefig(sink, format=fmt, dpi=40)
        assert sink.getvalue().startswith(head)
    words = " ".join(t.get_text() for t in page.texts).replace("\n", " ")
    assert stated_members(key) in words


@pytest.mark.parametrize(("key", "two"), CASES)
def test_describe_has_numbers(key, two, made):
    text = FIGURES[key].describe(source(key, made), **options(key, made, two))
    assert stated_members(key).removesuffix(" members") in text
    assert len(re.findall(r"\d+(?:\.\d+)?", text)) >= 6
    assert "nan" not in text.lower()
    for nu in (2, 32) if two else ():
        assert f"ν = {nu}" in text


@pytest.mark.parametrize("key", sorted(FIGURES))
def test_data_are_tidy_and_finite(key, made):
    data = FIGURES[key].data(source(key, made), **options(key, made))
    if hasattr(data, "data_vars"):
        assert next(iter(data.data_vars.values())).dims == ("latitude", "longitude")
        assert data.attrs["units"]
    else:
        assert len(data) >= 6
        numbers = data.select_dtypes("number")
        if calibrated(key) or classified(
            key
        ):  # what was measured, fitted and chosen in one table: a column that one kind lacks is empty there
            assert not numbers.empty
            assert not numbers.isna().all(axis=None)
            assert not np.isinf(numbers.to_numpy(float)).any()
        else:
            assert np.isfinite(numbers.to_numpy()).mean() > 0.9


@pytest.mark.parametrize("key", sorted(FIGURES))
@pytest.mark.parametrize(
    "wrong", [{"nu": 3}, {"region": "atlantis"}, {"variable": "z"}, {"lead_time": 1.0}, {"colour": "red"}, {"nu": (1, 2, 4)}]
)
def test_what_is_not_there_is_refused_with_what_there_is(key, wrong, made):
    with pytest.raises(SpecError) as caught:
        FIGURES[key].screen(source(key, made), **(options(key, made) | wrong))
    assert caught.value.expected
    assert caught.value.remedy


def test_other_selections_give_other_pictures(made):
    for key in sorted(FIGURES):
        if key == "field_map":
            continue
        if calibrated(key):  # nothing is selected on a calibration: another one gives another picture
            other = synthetic("fake_calibration").make(seed=1, edge=True, verify=False)
            assert not FIGURES[key].data(made["calibration"]).equals(FIGURES[key].data(other)), key
            continue
        if classified(key):  # most show all entries: another run gives another picture
            other = synthetic("fake_classification").make(seed=1)
            example = {"example": int(other["example"][0])} if key == "example_paths" else {}
            assert not FIGURES[key].data(made["classification"]).equals(FIGURES[key].data(other, **example)), key
            continue
        everywhere = key.startswith("cell") or key == "member_spectrum"  # these have no region
        other = {"variable": "temperature_850"} if everywhere else {"region": "tropics"}
        first, second = (FIGURES[key].data(made["verification"], **(options(key, made) | more)) for more in ({}, other))
        assert not first.equals(second), key


def test_drawing_for_the_screen_needs_no_matplotlib_or_torch():
    code = (
        "import sys; from engine.registry import entries; entries('figures'); "
        "import engine.figures._screen, engine.figures._map_screen; "
        "heavy = {'matplotlib', 'cartopy', 'torch', 'sklearn', 'streamlit', 'cmcrameri', 'plotly'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
