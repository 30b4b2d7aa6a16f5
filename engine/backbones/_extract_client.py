"""Starting the guarded reader in a process of its own, with limits on memory, time, file size and child processes."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from engine.confined import command, environment
from engine.errors import UnsafeFileError

_SECONDS = 300


def extract(file: Path, blocked: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """The tensors of a torch zip as nested dictionaries, and notes on what was not read.

    Raises UnsafeFileError, naming the blocked globals, where the guarded reader refuses the file too.
    """
    from safetensors.torch import load_file

    worker = Path(__file__).with_name("_extract.py")
    with tempfile.TemporaryDirectory(prefix="nuscope-extract-") as folder:
        target = Path(folder) / "tensors.safetensors"
        size = file.stat().st_size
        try:
            done = subprocess.run(
                command(worker, str(file), str(target), memory=2 * size + 2**31, written=2 * size + 2**24, seconds=_SECONDS),
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _refused(file, blocked, f"it took more than {_SECONDS} s") from error
        try:
            report = json.loads(done.stdout)
        except ValueError as error:
            raise _refused(file, blocked, f"its reader stopped with status {done.returncode}") from error
        if "error" in report:
            raise _refused(file, blocked, report["error"])
        tensors = load_file(target) if report["tree"] else {}
        # the file goes with the folder: what is mapped from it must be in memory before
        tensors = {key: tensor.clone() for key, tensor in tensors.items()}
    content: dict[str, Any] = {}
    for i, trail in enumerate(report["tree"]):
        place = content
        for part in trail[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise _refused(file, blocked, f"{'/'.join(trail)} lies inside a tensor")
        if trail:
            place[trail[-1]] = tensors[str(i)]
    return content, list(report["skipped"])


def _refused(file: Path, blocked: tuple[str, ...], why: str) -> UnsafeFileError:
    return UnsafeFileError(
        f"checkpoint {file.name}",
        found=f"objects that would run code when loaded ({', '.join(blocked[:12]) or 'unnamed'}); reading only its tensors failed: {why}",
        expected="tensors and plain values",
        remedy="Where you trust it: load it in its own project, and save model.state_dict() with torch.save or safetensors.",
    )
