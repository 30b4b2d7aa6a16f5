"""Members that are spread about their own mean are no independent draws: their fair CRPS against a truth that is known."""

import numpy as np
import pytest

from engine.kernels.crps import crps, decoupling
from engine.registry import get
from engine.runs.posthoc import after, settle

WEIGHTS = np.ones((1, 1))


def drawn(members, factor, cases):
    """An ensemble N(0, 1) and observations N(0, T²), `(member, case, 1)` and `(case, 1)`."""
    rng = np.random.default_rng(members)
    return rng.standard_normal((members, cases, 1)), factor * rng.standard_normal((cases, 1))


@pytest.mark.parametrize("members", [5, 10, 20, 50])
@pytest.mark.parametrize("factor", [0.5, 0.75, 1.0, 1.5, 2.0])
def test_fair_crps_after_scaling_is_that_of_the_scaled_law(members, factor):
    cases = 200_000 // members
    x, y = drawn(members, factor, cases)
    entry, params = settle("temperature_variance", {})
    view = after(entry, params, {"temperature_variance": np.asarray(factor)}, x, y, WEIGHTS)
    each = get("scoring", "crps_fair").statistics(view, WEIGHTS)["crps_fair"].ravel()
    true = factor / np.sqrt(np.pi)
    noise = 4 * each.std() / np.sqrt(cases)
    left = 0.6 * factor**-2 * abs(1 - factor**2) / members**2  # what a jackknife leaves is of second order
    assert each.mean() == pytest.approx(true, abs=noise + left * true)
    if abs(1 - factor**2) / members > 0.03 and factor < 1:  # and without it the bias shows
        assert crps(view.members, y).mean() - true > each.mean() - true + 0.01 * true


def test_factor_one_touches_nothing():
    x, y = drawn(7, 1.0, 50)
    entry, params = settle("temperature_variance", {})
    view = after(entry, params, {"temperature_variance": np.asarray(1.0)}, x, y, WEIGHTS)
    np.testing.assert_array_equal(view.members, x)
    assert not decoupling(x, y, 1.0).any()


def test_the_jackknife_is_the_one_that_is_written_out():
    """Member by member left out, and with members missing."""
    rng = np.random.default_rng(1)
    x, y, factor = rng.standard_normal((6, 4)), rng.standard_normal(4), 0.6
    x[2, 1] = x[5, 1] = np.nan
    scaled = np.nanmean(x, 0) + factor * (x - np.nanmean(x, 0))
    for p, added in enumerate(decoupling(scaled, y, factor)):
        own = x[~np.isnan(x[:, p]), p]
        m = len(own)

        def near(kept, at=p):
            return np.abs(kept.mean() + factor * (kept - kept.mean()) - y[at]).mean()

        wanted = m * near(own) - (m - 1) * np.mean([near(np.delete(own, j)) for j in range(m)]) - near(own)
        assert added == pytest.approx(wanted, abs=1e-12)
