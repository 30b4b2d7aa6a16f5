"""Areas and regions: whole sphere, poles, boxes across Greenwich and the dateline in either convention, empty regions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ScoreError
from engine.kernels.area import REGIONS, case_means, cell_area, region_mask, region_weights, valid_share
from engine.types import EnsembleView

LAT = np.linspace(90, -90, 19)
LON = np.arange(0.0, 360.0, 10.0)


def test_cos_weights_and_poles():
    area = cell_area(LAT)
    assert area.sum() == pytest.approx(1, abs=1e-15)
    assert area[0] == area[-1] == 0
    np.testing.assert_allclose(area[9] / area[3], 1 / np.cos(np.deg2rad(60)), rtol=1e-12)


def test_bounds_give_exact_cell_areas():
    edges = np.array([90, 85, 40, 0, -30, -90.0])
    bounds = np.stack([edges[:-1], edges[1:]], axis=-1)
    expected = -np.diff(np.sin(np.deg2rad(edges))) / 2
    np.testing.assert_allclose(cell_area(bounds.mean(1), bounds), expected, atol=1e-15)
    np.testing.assert_allclose(cell_area(bounds.mean(1), bounds[:, ::-1]), expected, atol=1e-15)
    with pytest.raises(ScoreError, match="latitude bounds"):
        cell_area(LAT, bounds)


@pytest.mark.parametrize("convention", [LON, np.where(LON >= 180, LON - 360, LON), np.sort(np.where(LON >= 180, LON - 360, LON))])
@pytest.mark.parametrize(
    ("west", "east", "expected"),
    [
        (-12.5, 42.5, [350, 0, 10, 20, 30, 40]),
        (170, -170, [170, 180, 190]),
        (170, 190, [170, 180, 190]),
        (350, 10, [350, 0, 10]),
        (0, 0, [0]),
    ],
)
def test_box_runs_eastwards_modulo_360(convention, west, east, expected):
    mask = region_mask([0.0], convention, [-10, 10, west, east])[0]
    assert set(np.mod(convention[mask], 360)) == set(expected)


@settings(max_examples=100, deadline=None)
@given(st.integers(-36, 36), st.integers(0, 35), st.integers(-2, 2))
def test_box_does_not_change_under_full_turns(west, span, turns):
    box = [-90, 90, 10 * west, 10 * (west + span)]
    shifted = [-90, 90, 10 * west + 360 * turns, 10 * (west + span) + 360 * turns]
    mask = region_mask(LAT, LON, box)
    np.testing.assert_array_equal(mask, region_mask(LAT, LON + 360, shifted))
    assert mask[0].sum() == span + 1  # edges belong to the box


def test_full_circle():
    assert region_mask(LAT, LON, REGIONS["globe"]).all()


def test_default_regions_split_the_globe():
    weights = region_weights(np.linspace(87.5, -87.5, 36), LON)
    assert weights.shape == (5, 36, 36)
    np.testing.assert_allclose(weights.sum((1, 2)), 1, atol=1e-13)
    covered = (weights[1:4] > 0).sum(0)
    assert (covered == 1).all()
    europe = weights[4] > 0
    assert europe[:, [0, 35]].any()  # both sides of Greenwich
    assert not europe[:, 10].any()


def test_empty_region_is_an_error_with_the_extent():
    with pytest.raises(ScoreError, match=r"region 'arctic'.*latitudes -30 … 30"):
        region_weights([-30, 0, 30], LON, {"arctic": [70, 90, -180, 180]})
    with pytest.raises(ScoreError, match="south"):
        region_mask(LAT, LON, [20, -20, 0, 10])


def test_constant_field_scores_its_constant_whatever_is_missing():
    weights = region_weights(LAT, LON)
    rng = np.random.default_rng(0)
    observed = np.zeros((3, 19, 36))
    observed[1][rng.random((19, 36)) < 0.5] = np.nan
    observed[2] = np.nan
    view = EnsembleView(np.full((2, 3, 19, 36), 7.0), observed)
    means = case_means(view, view.mean - view.observed, weights)
    np.testing.assert_allclose(means[:2], 7.0, rtol=1e-13)
    assert np.isnan(means[2]).all()
    share = valid_share(view, weights)
    np.testing.assert_allclose(share[[0, 2]], [[1] * 5, [0] * 5], atol=1e-13)
    assert 0.3 < share[1, 0] < 0.7


def test_weights_that_do_not_fit_are_refused():
    view = EnsembleView(np.zeros((2, 1, 4)), np.zeros((1, 4)))
    with pytest.raises(ScoreError, match="weights"):
        case_means(view, view.mean, np.ones((1, 3)))
