"""Anomaly correlation of the ensemble mean with what was observed, against a stated climatology."""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import case_means
from engine.types import Array, EnsembleView, Score


def _anomalies(view: EnsembleView) -> tuple[Array, Array]:
    climatology = np.asarray(view.climatology, dtype=np.float64)
    return view.mean - climatology, view.observed - climatology


def _correlation(product: Array, forecast2: Array, observed2: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return product / np.sqrt(forecast2 * observed2)


class AccPooled(Score):
    """Σ f′o′ / √(Σ f′² Σ o′²) with f′, o′ the anomalies of ensemble mean and observation, area-weighted sums over cases.

    Uncentred, as at ECMWF and in WeatherBench: the mean anomaly of the region is not taken out. NaN where an anomaly is
    zero everywhere.
    """

    key = "acc_pooled"
    title = "Anomaly correlation of the ensemble mean (pooled)"
    symbol = "ACC"
    unit = "1"
    range = (-1.0, 1.0)
    perfect = 1.0
    better = "higher"
    reference = "Rasp et al. (2024), doi:10.1029/2023MS004019"
    estimator = "pooled, uncentred"
    needs = frozenset({"climatology"})

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean products of the anomalies."""
        forecast, observed = _anomalies(view)
        return {
            "anomaly_product": case_means(view, forecast * observed, weights),
            "anomaly_forecast2": case_means(view, forecast * forecast, weights),
            "anomaly_observed2": case_means(view, observed * observed, weights),
        }

    def combine(self, means: Mapping[str, Array]) -> Array:
        """Correlation of the pooled products."""
        return _correlation(means["anomaly_product"], means["anomaly_forecast2"], means["anomaly_observed2"])


class Acc(AccPooled):
    """`acc_pooled` under the short name that tables use."""

    key = "acc"
    headline = True


class AccCaseMean(AccPooled):
    """Mean over cases of each case's anomaly correlation over area; cases without any anomaly do not count."""

    key = "acc_case_mean"
    title = "Anomaly correlation of the ensemble mean (mean over cases)"
    symbol = "ACC (case mean)"
    estimator = "case mean, uncentred"

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Each case's correlation."""
        sums = super().statistics(view, weights)
        return {"acc_case": _correlation(*sums.values())}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["acc_case"]


ENTRIES = (AccPooled(), Acc(), AccCaseMean())
