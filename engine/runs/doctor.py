"""What `doctor` examines: this machine, the versions, one real kernel, and the folders that must be writable."""

import importlib.metadata
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from engine.runs.told import tell
from engine.settings import DEMO, settings

PACKAGES = ("torch", "streamlit", "plotly", "xarray", "cartopy", "scikit-optimize", "polars", "numpy")


def examine() -> dict[str, Any]:
    """`{"ok": bool, "device": …, "versions": {…}, "checks": [{"name", "ok", "found"}]}`."""
    checks = [
        _check("python", lambda: f"{platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores"),
        _check(
            "memory", lambda: f"{psutil.virtual_memory().available / 2**30:.1f} of {psutil.virtual_memory().total / 2**30:.1f} GiB free"
        ),
        _check("kernel", _kernel),
        _check("runs folder", lambda: _writable(settings().runs)),
        _check("uploads folder", lambda: _writable(settings().uploads)),
        _check("demo", _demo),
    ]
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "ok": all(c["ok"] for c in checks),
        "device": device(),
        "python": sys.version.split()[0],
        "versions": versions,
        "checks": checks,
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def device() -> str:
    """The device that runs use: the one that the settings name, or the best that passes a real kernel.

    A driver may list a device whose architecture this build of torch has no kernels for; only running one tells.
    """
    import torch

    wanted = settings().device
    if wanted != "auto":
        return wanted
    if torch.cuda.is_available():
        try:
            _sample("cuda:0")
        except RuntimeError as fault:
            name, capability = torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0)
            tell(f"cuda:0 ({name}, architecture {capability}) cannot run this build of torch ({fault}); using the CPU")
        else:
            return "cuda:0"
    return "cpu"


def _sample(where: str) -> float:
    import torch

    from engine.kernels import sample_attention

    q = torch.ones(1, 1, 2, 4, device=where)
    return float(sample_attention(q, q, q, 4, seed=0).sum())


def _kernel() -> str:
    where = device()
    total = _sample(where)
    if total != 8.0:
        raise RuntimeError(f"sampling equal values on {where} gave {total}, not 8")
    return f"sampled attention on {where}"


def _writable(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return f"{folder}, {psutil.disk_usage(str(folder)).free / 2**30:.1f} GiB free"


def _demo() -> str:
    missing = [n for n in ("climax.safetensors", "normalisation.nc", "verify.nc", "calibrate.nc") if not (DEMO / n).exists()]
    if missing:
        raise FileNotFoundError(f"{', '.join(missing)} missing under {DEMO}")
    return f"ready under {DEMO}"


def _check(name: str, look: Any) -> dict[str, Any]:
    try:
        return {"name": name, "ok": True, "found": look()}
    except Exception as fault:  # a doctor reports every fault and goes on
        return {"name": name, "ok": False, "found": f"{type(fault).__name__}: {fault}"}
