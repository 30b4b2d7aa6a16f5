"""Runs and their results, read once: the cache is keyed by run key and the file's time of change, never by arrays."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine
from engine.errors import RunError
from engine.settings import settings

if TYPE_CHECKING:
    import xarray as xr


def run_folder(key: str) -> Path:
    """The folder of a run that is in the table; the key may come from an address, so the table is asked first."""
    engine.progress(key)
    return settings().runs / key


def stamp_of(key: str) -> int:
    """When the run's result, a verification or a calibration, was last written; 0 before."""
    paths = [run_folder(key) / name for name in ("verification.nc", "calibration.nc")]
    return max((path.stat().st_mtime_ns for path in paths if path.exists()), default=0)


def is_calibration(run: Any) -> bool:
    """Whether a run chose ν; the others verify it."""
    return run.spec.get("tune") is not None


def runs_that(*, calibrate: bool) -> list[Any]:
    """The runs that choose ν, or those that verify, the newest first."""
    return [run for run in engine.runs_list() if is_calibration(run) == calibrate]


def kin(run: Any, others: list[Any]) -> list[Any]:
    """Those that are about the same model and calibration data, finished ones first."""
    same = [r for r in others if all(r.spec.get(name) == run.spec.get(name) for name in ("checkpoint", "calibrate", "variables"))]
    return sorted(same, key=lambda r: r.status != "done")  # stable: the newest first among them


@lru_cache(maxsize=8)
def _verification(key: str, _stamp: int) -> "xr.Dataset":
    return engine.result(key)


def verification_of(key: str) -> "xr.Dataset":
    """The Verification (or the calibration) of a finished run. Shared between visitors: read it, never change it."""
    return _verification(key, stamp_of(key))


@lru_cache(maxsize=32)
def _cases(key: str, _stamp: int) -> tuple[tuple[str, str], ...]:
    try:
        fields = engine.open_fields(settings().runs / key)
    except RunError:
        return ()
    with fields:
        # all lead times start from the same cases; the valid time that is shown is the first lead time's
        fields = fields.isel(lead_time=0, missing_dims="ignore")
        return tuple((str(a), str(b)) for a, b in zip(fields.init_time.values, fields.valid_time.values, strict=True))


def map_cases(key: str) -> tuple[tuple[str, str], ...]:
    """(start, valid time) of each case whose maps the run kept; empty where it kept none."""
    return _cases(key, stamp_of(key))


def size_of(key: str, name: str) -> int:
    """Bytes of a file of the run's folder, 0 where it is not there."""
    path = settings().runs / key / name
    return path.stat().st_size if path.exists() else 0


def demo_key() -> str | None:
    """Key of the demo's run, or None where its files are not there or cannot be read."""
    from engine.settings import DEMO

    if not DEMO.is_dir():
        return None
    spec: Any = engine.demo_spec()
    return spec.resolved().key() if all(p.exists() for p in (spec.checkpoint, *spec.data, *spec.calibrate)) else None
