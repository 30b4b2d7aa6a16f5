"""A synthetic Verification and its fields, made from real small Gaussian ensembles so that every number agrees with the others.

The truth is known: the observation is drawn around the deterministic forecast with an error of sd σ(latitude), and the
members with sd σ·√(4/ν) around a mean that strong perturbations pull away, so ν = 4 is nearly calibrated, smaller ν too wide,
larger ν too narrow. Pure NumPy and xarray.
"""

import json
from functools import cache
from math import erf, sqrt

import numpy as np
import xarray as xr

M, CASES, ROWS, COLUMNS, BINS, SPREAD_BINS, BLOCK, DRAWS = 20, 40, 32, 64, 7, 30, 4, 200
NU = (1, 2, 4, 8, 16, 32, 64, 128)
LEVELS = (50, 80, 90, 95)
FAN = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
VARIABLES = (("geopotential_height_500", "m", 5600.0, 60.0), ("temperature_850", "K", 280.0, 3.0))
REGIONS = {
    "global": [-90, 90, 0, 360],
    "northern extratropics": [20, 90, 0, 360],
    "tropics": [-20, 20, 0, 360],
    "southern extratropics": [-90, -20, 0, 360],
    "europe": [35, 75, -12.5, 42.5],
}
ABOUT = {
    "crps_fair": ("CRPS", "CRPS", "", "lower", 0.0, "fair (unbiased in M)"),
    "w1_pit": ("distance of the PIT from uniform", "W₁(PIT)", "1", "lower", 0.0, "exact integral of |F_PIT(u) − u|"),
    "width_95": ("mean width of the 95 % interval", "PI-95", "", "lower", 0.0, "linear quantiles"),
    "spread_skill_ratio": ("spread over skill", "spread/skill", "1", "nominal", 1.0, "√((M+1)/M · mean variance) / RMSE"),
    "rmse_pooled": ("RMSE of the ensemble mean", "RMSE", "", "lower", 0.0, "pooled"),
    "acc_pooled": ("anomaly correlation", "ACC", "1", "higher", 1.0, "pooled"),
} | {f"coverage_{c}": (f"coverage of the {c} % interval", f"coverage {c} %", "1", "nominal", c / 100, "linear quantiles") for c in LEVELS}


def _smooth_noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Unit-variance Gaussian fields, correlated over a few cells, periodic in longitude."""
    white = rng.standard_normal((*shape, ROWS, COLUMNS), dtype=np.float32)
    ky, kx = np.fft.fftfreq(ROWS)[:, None] * 2.5, np.fft.rfftfreq(COLUMNS)[None] * 3.5
    response = np.exp(-2 * np.pi**2 * (kx**2 + ky**2) / 2)
    full = np.exp(-2 * np.pi**2 * ((np.fft.fftfreq(COLUMNS)[None] * 3.5) ** 2 + ky**2) / 2)
    smooth = np.fft.irfft2(np.fft.rfft2(white) * response, s=(ROWS, COLUMNS)) / np.sqrt(np.mean(full**2))
    return smooth.astype(np.float32)


def _isotonic(event: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted isotonic regression along the last axis by max-min of running means; NaN where there is no weight."""
    n = event.shape[-1]
    sums, weights = (np.concatenate([np.zeros((*a.shape[:-1], 1)), np.cumsum(a, -1)], -1) for a in (event, weight))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sums[..., None, 1:] - sums[..., :-1, None]) / (weights[..., None, 1:] - weights[..., :-1, None])
    mean = np.where(np.triu(np.ones((n, n), bool)) & np.isfinite(mean), mean, np.nan)
    fitted = np.empty(event.shape)
    for i in range(n):
        block = np.where(np.isnan(mean[..., : i + 1, i:]), np.inf, mean[..., : i + 1, i:]).min(-1)
        fitted[..., i] = np.where(np.isinf(block), -np.inf, block).max(-1)
    return np.where(weight > 1e-12, fitted, np.nan)


def _quantile(ordered: np.ndarray, q: float) -> np.ndarray:
    """Linear quantile of sorted members."""
    i, rest = divmod(q * (len(ordered) - 1), 1)
    return ordered[int(i)] + rest * (ordered[min(int(i) + 1, len(ordered) - 1)] - ordered[int(i)])


def _w1(shares: np.ndarray) -> np.ndarray:
    """∫|F_PIT(u) − u| du, exact for the piecewise linear F through the cumulated shares."""
    n = shares.shape[-1]
    knots = np.concatenate([np.zeros((*shares.shape[:-1], 1)), np.cumsum(shares, -1) - np.arange(1, n + 1) / n], -1)
    a, b = knots[..., :-1], knots[..., 1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        crossing = (a**2 + b**2) / (2 * (np.abs(a) + np.abs(b)))
    return np.where(a * b < 0, crossing, (np.abs(a) + np.abs(b)) / 2).sum(-1) / n


def _iso_time(hours: int) -> str:
    """ISO text in a 360-day calendar; the series passes 0012-02-30."""
    days, hour = divmod(hours, 24)
    return f"{12 + days // 360:04d}-{days % 360 // 30 + 1:02d}-{days % 30 + 1:02d}T{hour:02d}:00:00"


def _combine(means: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Score values from means of statistics."""
    rmse = np.sqrt(means["error2"])
    values = {k: means[k] for k in ("crps_fair", "width_95", *(f"coverage_{c}" for c in LEVELS))}
    values |= {"w1_pit": _w1(means["rank"]), "rmse_pooled": rmse, "spread_skill_ratio": np.sqrt(means["variance"] * (M + 1) / M) / rmse}
    values["acc_pooled"] = means["fo"] / np.sqrt(means["ff"] * means["oo"])
    return values


@cache
def make(seed: int = 0) -> tuple[xr.Dataset, xr.Dataset]:
    """(verification, fields). Cached: take a copy before changing anything."""
    rng = np.random.default_rng(seed)
    latitude = np.linspace(90 - 90 / ROWS, -90 + 90 / ROWS, ROWS)
    longitude = np.arange(COLUMNS) * 360 / COLUMNS
    area = np.cos(np.deg2rad(latitude))[:, None] * np.ones(COLUMNS)
    masks = []
    for south, north, west, east in REGIONS.values():
        inside = (longitude - west) % 360 <= (east - west if east - west < 360 else 360)
        masks.append(((latitude >= south) & (latitude <= north))[:, None] & inside)
    weights = np.stack(masks) * area
    resample = (rng.integers(0, CASES, (DRAWS, CASES // BLOCK, 1)) + np.arange(BLOCK)).reshape(DRAWS, CASES) % CASES
    pieces: dict[tuple[str, int, int], np.ndarray] = {}
    out: dict[str, list] = {}

    def put(name: str, n: int, v: int, value: np.ndarray) -> None:
        pieces[name, n, v] = np.asarray(value)
        out.setdefault(name, [])

    shared: dict[str, list[np.ndarray]] = {k: [] for k in ("observed", "deterministic", "valid", "threshold", "rmse_d", "acc_d")}
    for v, (_, _, base, sigma0) in enumerate(VARIABLES):
        sigma = sigma0 * (0.35 + 0.65 * np.abs(np.sin(np.deg2rad(latitude))))[:, None] * np.ones(COLUMNS)
        climatology = base - 1.8 * sigma0 * 5 * np.sin(np.deg2rad(latitude))[:, None] ** 2 + np.zeros(COLUMNS)
        anomaly = 2.0 * sigma * _smooth_noise(rng, CASES)
        deterministic = climatology + anomaly
        observed = deterministic + sigma * _smooth_noise(rng, CASES) + 0.04 * sigma
        if v == 1:  # a patch with missing observations in a quarter of the cases
            observed[: CASES // 4, 12:18, 30:40] = np.nan
        valid = np.isfinite(observed)
        y = np.where(valid, observed, 0.0)
        case_weight = np.einsum("rij,cij->cr", weights, valid)
        thresholds = np.array([-1.0, 0.0, 1.0]) * 2 * sigma0
        for name, value in (("observed", observed), ("deterministic", deterministic), ("threshold", thresholds)):
            shared[name].append(value)
        shared["valid"].append(valid.mean(0))

        def mean(stat: np.ndarray, valid: np.ndarray = valid, case_weight: np.ndarray = case_weight) -> np.ndarray:
            """Area-weighted mean by case and region of `(case, lat, lon, *k)`."""
            stat = np.where(valid.reshape(valid.shape + (1,) * (stat.ndim - 3)), stat, 0.0)
            total = np.tensordot(stat, weights, axes=((1, 2), (1, 2)))
            return np.moveaxis(total, -1, 1) / case_weight.reshape(case_weight.shape + (1,) * (stat.ndim - 3))

        def intervals(stats: dict[str, np.ndarray], case_weight: np.ndarray = case_weight) -> tuple[dict, dict, dict, dict]:
            def average(index: np.ndarray) -> dict[str, np.ndarray]:
                w = case_weight[index]
                return {
                    k: (s[index] * w.reshape(w.shape + (1,) * (s.ndim - 2))).sum(-s.ndim)
                    / w.sum(-2).reshape(w.shape[:-2] + w.shape[-1:] + (1,) * (s.ndim - 2))
                    for k, s in stats.items()
                }

            value, drawn = average(np.arange(CASES)), average(resample)
            scores, draws = _combine(value), _combine(drawn)
            return value, drawn, scores, draws

        anomalies = {"oo": mean((y - climatology) ** 2)}
        det_error = mean((deterministic - y) ** 2)
        det_fo, det_ff = mean((deterministic - climatology) * (y - climatology)), mean((deterministic - climatology) ** 2)
        flat = {"e": det_error, "fo": det_fo, "ff": det_ff, "oo": anomalies["oo"]}
        for name, function in (("rmse_d", lambda s: np.sqrt(s["e"])), ("acc_d", lambda s: s["fo"] / np.sqrt(s["ff"] * s["oo"]))):
            value = function({k: s.mean(0) for k, s in flat.items()})
            low, high = np.quantile(function({k: s[resample].mean(1) for k, s in flat.items()}), [0.025, 0.975], axis=0)
            shared[name].append(np.stack([value, low, high]))

        for n, nu in enumerate(NU):
            noise = _smooth_noise(rng, M, CASES)
            drift = sigma * 1.4 / nu * _smooth_noise(rng, CASES)  # strong perturbations also pull the mean away
            members = (deterministic + drift + sigma * sqrt(4 / nu) * noise).astype(np.float32)
            ordered = np.sort(members, 0)
            centre, variance = members.mean(0, dtype=np.float64), members.var(0, ddof=1, dtype=np.float64)
            pairs = 2 * np.tensordot(2 * np.arange(1, M + 1) - M - 1.0, ordered, axes=(0, 0))
            rank = (members < y).sum(0)
            onehot = rank[..., None] == np.arange(M + 1)
            quantiles = np.stack([_quantile(ordered, q) for q in FAN])
            stats = {"crps_fair": mean(np.abs(members - y).mean(0) - pairs / (2 * M * (M - 1)))}
            inside: dict[int, np.ndarray] = {}
            for level in LEVELS:
                low, high = _quantile(ordered, (1 - level / 100) / 2), _quantile(ordered, (1 + level / 100) / 2)
                inside[level] = (y >= low) & (y <= high)
                stats[f"coverage_{level}"] = mean(inside[level].astype(float))
                if level == 95:
                    width = high - low
                    stats["width_95"] = mean(width)
            stats |= {"rank": mean(onehot.astype(float)), "error2": mean((centre - y) ** 2), "variance": mean(variance)}
            stats |= anomalies | {"fo": mean((centre - climatology) * (y - climatology)), "ff": mean((centre - climatology) ** 2)}
            value, drawn, scores, draws = intervals(stats)
            per_case = _combine(stats)
            for name in ABOUT:
                low, high = np.quantile(draws[name], [0.025, 0.975], axis=0)
                put(name, n, v, scores[name])
                put(f"{name}_low", n, v, low)
                put(f"{name}_high", n, v, high)
                put(f"{name}_case", n, v, per_case[name].T)
            put("rank_counts", n, v, value["rank"])
            low, high = np.quantile(drawn["rank"], [0.025, 0.975], axis=0)
            put("rank_low", n, v, low)
            put("rank_high", n, v, high)
            gaps = np.cumsum(drawn["rank"], -1) - np.cumsum(value["rank"], -1)
            band = np.quantile(np.abs(gaps).max(-1), 0.95, axis=0)
            put("pit_band", n, v, band)
            put("n_effective", n, v, (1.358 / band) ** 2)
            put("mean_shift_rmse", n, v, np.sqrt(mean((centre - deterministic) ** 2).mean(0)))
            count = (members[None] > (climatology + thresholds[:, None, None])[:, None, None]).sum(1)
            event = y[None] > (climatology + thresholds[:, None, None])[:, None]
            chance = count[..., None] == np.arange(M + 1)
            weight = np.stack([mean(c.astype(float)).mean(0) for c in chance], 1)
            hits = np.stack([mean((c & e[..., None]).astype(float)).mean(0) for c, e in zip(chance, event, strict=True)], 1)
            put("exceedance_weight", n, v, weight)
            put("exceedance_event", n, v, hits)
            put("corp_event", n, v, _isotonic(hits, weight))
            effective = np.maximum((1.358 / band) ** 2, 20)[:, None, None] * weight
            p = np.arange(M + 1) / M
            draw = rng.binomial(np.maximum(np.rint(effective), 0).astype(int), p, (100, *weight.shape)) / np.maximum(effective, 1e-9)
            low, high = np.nanquantile(
                np.where(weight > 1e-12, _isotonic(np.clip(draw, 0, 1) * weight, np.broadcast_to(weight, draw.shape)), 0),
                [0.025, 0.975],
                axis=0,
            )
            put("corp_low", n, v, np.where(weight > 1e-12, low, np.nan))
            put("corp_high", n, v, np.where(weight > 1e-12, high, np.nan))
            edges = np.geomspace(np.quantile(variance, 0.001), np.quantile(variance, 0.999), SPREAD_BINS - 1)
            which = np.searchsorted(edges, variance)
            bins = which[..., None] == np.arange(SPREAD_BINS)
            put("spread_weight", n, v, mean(bins.astype(float)).mean(0))
            put("spread_variance", n, v, mean(bins * (variance * (M + 1) / M)[..., None]).mean(0))
            put("spread_error2", n, v, mean(bins * ((centre - y) ** 2)[..., None]).mean(0))
            with np.errstate(invalid="ignore"):
                count_valid = valid.sum(0)
                put("coverage_map", n, v, np.stack([np.where(valid, inside[c], 0).sum(0) / count_valid for c in LEVELS]))
                put("width_map", n, v, width.mean(0))
                put("bias_map", n, v, np.nanmean(centre - observed, 0))
                put("rmse_map", n, v, np.sqrt(np.nanmean((centre - observed) ** 2, 0)))
                put("spread_map", n, v, np.sqrt(variance.mean(0) * (M + 1) / M))
                merged = (onehot & valid[..., None]).sum(0) / count_valid[..., None]
            put("rank_map", n, v, np.moveaxis(merged.reshape(ROWS, COLUMNS, BINS, -1).sum(-1), -1, 0))
            put("mean", n, v, centre)
            put("quantiles", n, v, np.moveaxis(quantiles, 0, 1))

    def stack(name: str) -> np.ndarray:
        return np.stack([np.stack([pieces[name, n, v] for v in range(2)]) for n in range(len(NU))])

    def regional(name: str) -> np.ndarray:
        return np.moveaxis(stack(name), 2, 1)[:, :, None]  # (nu, region, lead_time, variable, *k)

    head = ("nu", "region", "lead_time", "variable")
    tails = {"rank_counts": "rank", "rank_low": "rank", "rank_high": "rank"} | {
        f"spread_{k}": "spread_bin" for k in ("weight", "variance", "error2")
    }
    variables: dict[str, tuple] = {}
    units = {"corp_event": "1", "w1_pit": "1"}
    for name in out:
        attrs = {}
        base = name.removesuffix("_low").removesuffix("_high").removesuffix("_case")
        if base in ABOUT:
            attrs = dict(zip(("title", "symbol", "units", "better", "perfect", "estimator"), ABOUT[base], strict=True)) | {"reference": ""}
        elif name not in units:
            attrs = {"units": ""}
        if name in ("mean", "quantiles") or name.endswith("_map"):
            continue
        tail = (
            ("case",)
            if name.endswith("_case")
            else (tails[name],)
            if name in tails
            else ("threshold", "probability")
            if "exceed" in name or "corp" in name
            else ()
        )
        value = regional(name)
        variables[name] = ((*head, *tail), value.astype(np.float64), attrs)
    space = ("latitude", "longitude")
    for name in ("width_map", "bias_map", "rmse_map", "spread_map"):
        variables[name] = (("nu", "lead_time", "variable", *space), stack(name)[:, None].astype(np.float32), {"units": ""})
    variables["coverage_map"] = (
        ("nu", "lead_time", "variable", "level", *space),
        stack("coverage_map")[:, None].astype(np.float32),
        {"units": "1"},
    )
    variables["rank_map"] = (
        ("nu", "lead_time", "variable", "rank_bin", *space),
        stack("rank_map")[:, None].astype(np.float32),
        {"units": "1"},
    )
    variables["valid_map"] = (("lead_time", "variable", *space), np.stack(shared["valid"])[None].astype(np.float32), {"units": "1"})
    fraction = np.stack([(w * np.stack(shared["valid"])).sum((1, 2)) / w.sum() for w in weights])[:, None]
    variables["valid_fraction"] = (("region", "lead_time", "variable"), fraction, {"units": "1"})
    for name, key in (("rmse_deterministic", "rmse_d"), ("acc_deterministic", "acc_d")):
        values = np.moveaxis(np.stack(shared[key]), 0, -1)[:, :, None]  # (3, region, lead, variable)
        for suffix, value in zip(("", "_low", "_high"), values, strict=True):
            variables[name + suffix] = (("region", "lead_time", "variable"), value, {"units": "" if "rmse" in name else "1"})
    variables["seconds"] = (("nu",), np.full(len(NU), 7.5) + np.arange(len(NU)) / 10, {"units": "s"})
    hours = 30 * 24 + 24 * np.arange(CASES)
    init = [_iso_time(int(h)) for h in hours]
    end = [_iso_time(int(h) + 72) for h in hours]
    names = [v[0] for v in VARIABLES]
    coords = {
        "nu": list(NU),
        "region": list(REGIONS),
        "lead_time": ("lead_time", [72.0], {"units": "hours"}),
        "variable": names,
        "unit": ("variable", [v[1] for v in VARIABLES]),
        "case": np.arange(CASES),
        "init_time": ("case", init),
        "valid_time": ("case", end),
        "rank": np.arange(M + 1),
        "level": list(LEVELS),
        "threshold": np.arange(3),
        "threshold_value": (("variable", "threshold"), np.stack(shared["threshold"])),
        "probability": np.arange(M + 1),
        "spread_bin": np.arange(SPREAD_BINS),
        "rank_bin": np.arange(BINS),
        "latitude": ("latitude", latitude, {"units": "degrees_north"}),
        "longitude": ("longitude", longitude, {"units": "degrees_east"}),
    }
    lead, main = 0, 0
    w1, crps = variables["w1_pit"][1][:, 0, lead, main], variables["crps_fair"][1][:, 0, lead, main]
    points = {
        "calibration_first": {"nu": NU[int(w1.argmin())], "chosen_on": "calibrate", "rule": "smallest W₁ of the PIT"},
        "score_oriented": {"nu": NU[int(crps.argmin())], "chosen_on": "calibrate", "rule": "smallest fair CRPS"},
    }
    # what a perfect Gaussian ensemble of M covers with linear quantiles: E[Φ(q)] over order statistics, here by simulation
    z = np.sort(np.random.default_rng(1).standard_normal((40000, M)), 1)
    q = np.quantile(z, [0.025, 0.975], axis=1)
    phi = np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))))
    attrs = {
        "key": "fake0123456789ab",
        "command": "python -m engine sweep --checkpoint demo.ckpt --data demo.nc "
        "--nu 1,2,4,8,16,32,64,128 --members 20 --seed 0 --out runs/demo",
        "spec": json.dumps({"nu": list(NU), "members": M, "seed": seed}),
        "members": M,
        "seed": seed,
        "cases": CASES,
        "method": "stochastic_attention",
        "estimator": "fair",
        "version": "0.0",
        "checkpoint_revision": "0" * 12,
        "dataset_fingerprint": "1" * 12,
        "nominal_95": float(np.mean(phi(q[1]) - phi(q[0]))),
        "operating_points": json.dumps(points),
        "block_length": BLOCK,
        "bootstrap": DRAWS,
        "regions": json.dumps(REGIONS),
        "title": "Synthetic ensemble with known truth",
    }
    verification = xr.Dataset(variables, coords, attrs)
    case_coords = {k: coords[k] for k in ("nu", "lead_time", "variable", "unit", "latitude", "longitude")}
    case_coords |= {"map_case": np.arange(CASES), "init_time": ("map_case", init), "valid_time": ("map_case", end), "quantile": list(FAN)}
    tail = ("map_case", *space)
    fields = xr.Dataset(
        {
            "observed": (("lead_time", "variable", *tail), np.stack(shared["observed"])[None].astype(np.float32)),
            "deterministic": (("lead_time", "variable", *tail), np.stack(shared["deterministic"])[None].astype(np.float32)),
            "mean": (("nu", "lead_time", "variable", *tail), stack("mean")[:, None].astype(np.float32)),
            "quantiles": (("nu", "lead_time", "variable", "map_case", "quantile", *space), stack("quantiles")[:, None].astype(np.float32)),
        },
        case_coords,
        {"key": attrs["key"]},
    )
    return verification, fields
