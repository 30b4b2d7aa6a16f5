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
    """When the run's result (a verification, a calibration or a classification) was last written; 0 before."""
    paths = [run_folder(key) / name for name in ("verification.nc", "calibration.nc", "classification.nc")]
    return max((path.stat().st_mtime_ns for path in paths if path.exists()), default=0)


def is_calibration(run: Any) -> bool:
    """Whether a run chose ν; the others verify it."""
    return run.spec.get("tune") is not None


def is_classification(run: Any) -> bool:
    """Whether a run is about class labels; the others are about fields."""
    return run.spec.get("task") == "classification"


def runs_that(*, calibrate: bool) -> list[Any]:
    """The runs on fields that choose ν, or those that verify, the newest first."""
    return [run for run in engine.runs_list() if not is_classification(run) and is_calibration(run) == calibrate]


def classifications() -> list[Any]:
    """The runs on class labels, the newest first."""
    return [run for run in engine.runs_list() if is_classification(run)]


def classifies(key: str) -> bool:
    """Whether this is the key of a run on class labels."""
    return any(run.key == key for run in classifications())


def page_of(run: Any) -> str:
    """The page on which a run's result is looked at."""
    return "45_classify.py" if is_classification(run) else "35_calibrate.py" if is_calibration(run) else "30_sweep.py"


def about(run: Any) -> str:
    """What a run computes, in a few words."""
    if is_classification(run):
        count = len(run.spec.get("entries", ()))
        return f"classification: {count} method{'s' if count != 1 else ''} · M = {run.spec.get('members', '?')}"
    if is_calibration(run):
        return "calibration: chooses ν"
    if (method := run.spec.get("method", "stochastic_attention")) != "stochastic_attention":
        titles = {entry.key: entry.title for entry in engine.catalogue("methods")}
        return f"{titles.get(method, method)} · M = {run.spec.get('members', '?')}"
    return f"ν = {', '.join(map(str, run.spec.get('nu', ())))} · M = {run.spec.get('members', '?')}"


def command_of(run: Any) -> str:
    """The command line that computes the same."""
    return (engine.ClassifySpec if is_classification(run) else engine.RunSpec)(**run.spec).command()


def kin(run: Any, others: list[Any]) -> list[Any]:
    """Those that are about the same model and calibration data, finished ones first."""
    same = [r for r in others if all(r.spec.get(name) == run.spec.get(name) for name in ("checkpoint", "calibrate", "variables"))]
    return sorted(same, key=lambda r: r.status != "done")  # stable: the newest first among them


@lru_cache(maxsize=8)
def _verification(key: str, _stamp: int) -> "xr.Dataset":
    return engine.result(key)


def verification_of(key: str) -> "xr.Dataset":
    """The result of a finished run, of whichever kind. Shared between visitors: read it, never change it."""
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

    return _key_of(engine.demo_spec()) if DEMO.is_dir() else None


def image_demo_key() -> str | None:
    """Key of the image demo's run, or None where its files are not there."""
    from engine.settings import ASSETS

    return _key_of(engine.classify_demo_spec()) if ASSETS.is_dir() else None


def _key_of(spec: Any) -> str | None:
    """The spec's key, where all its files are there."""
    there = all(path.exists() for paths in spec.files().values() for path in paths)
    return spec.resolved().key() if there else None
