"""Ensembles against plain forwards, on ClimaX as published (48 variables, width 1024, 512 tokens; random weights).

    members20       M = 20 members at ν = 4, the aggregation over variables left deterministic ÷ 20 deterministic forwards
    nu8             a sweep of 8 ν with M = 20 ÷ eight separate ensembles of one ν
    memory          peak memory of a sweep over 24 cases ÷ over 6 cases, each in a process of its own, on the demo

The first two are put together from medians of their interleaved parts: one plain forward, the prefix (once an ensemble),
members at each ν. Nothing else is computed in a sweep's forwards, and 20 of each would take ten minutes.
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from engine.runs.benchmarks import interleaved
from engine.settings import DEMO, ROOT

MEMBERS = 20
AT_ONCE = 5
"""Members a forward, as many as a run puts together at 512 tokens each; they share the first sampled softmax."""
NU = (1, 2, 4, 8, 16, 32, 64, 256)


def run() -> dict[str, Any]:
    """Medians of interleaved runs in one process, with the targets beside them."""
    import torch

    from engine.backbones._climax_net import ClimaXNet
    from engine.kernels import stochastic_attention
    from engine.lexicon import CLIMAX_48

    torch.manual_seed(0)
    net = ClimaXNet(CLIMAX_48, (32, 64)).eval()
    x, lead, out = torch.randn(1, 48, 32, 64), torch.tensor([0.72]), ("geopotential_500",)
    sites = range(1, 9)

    parts: dict[str, Callable[[], Any]] = {"plain": lambda: net(x, lead, CLIMAX_48, out)}
    parts["prefix"] = lambda: net.aggregate(net.embed(x, CLIMAX_48), lead)
    with torch.no_grad():
        state = parts["prefix"]()

        def together(nu: int) -> Any:
            with stochastic_attention(net, nu, 0, list(range(AT_ONCE)), [0] * AT_ONCE, sites=sites, spread=True) as sa:
                sa.begin(batch=AT_ONCE, site=1)
                return net.decode(net.run_blocks(state), out)

        parts |= {f"member at ν = {nu}": lambda nu=nu: together(nu) for nu in NU}
        seconds = interleaved(parts, turns=3)
        seconds |= {name: value / AT_ONCE for name, value in seconds.items() if name.startswith("member")}
    ensembles = [seconds["prefix"] + MEMBERS * seconds[f"member at ν = {nu}"] for nu in NU]
    return {
        "threads": torch.get_num_threads(),
        "members20": {
            "ratio": ensembles[NU.index(4)] / (MEMBERS * seconds["plain"]),
            "target": 0.60,
            "of": "20 members at ν = 4 ÷ 20 deterministic forwards",
        },
        "nu8": {
            "ratio": (sum(ensembles) - (len(NU) - 1) * seconds["prefix"]) / sum(ensembles),
            "target": 1.0,
            "of": "sweep of 8 ν ÷ eight ensembles",
        },
        "parts": {name: value / seconds["plain"] for name, value in seconds.items()},
        "memory": _memory(),
    }


def _memory() -> dict[str, Any]:
    """Peak of a process that sweeps few cases, and of one that sweeps four times as many; both load the same libraries."""
    if not (DEMO / "climax.safetensors").exists():
        return {"skipped": f"no demo under {DEMO}"}
    peaks = {cases: _peak(cases) for cases in (6, 24)}
    return {"ratio": peaks[24] / peaks[6], "target": 1.05, "of": "peak memory over 24 cases ÷ over 6", "peak_mib": peaks[24] / 1024}


def _peak(cases: int) -> int:
    """Kilobytes."""
    code = f"from engine.runs.benchmarks.sweep import sweep_once; sweep_once({cases})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def sweep_once(cases: int) -> None:
    """Sweep the demo over so many cases in a throw-away folder and print this process's peak in kilobytes."""
    from pathlib import Path

    from engine.runs.execute import execute
    from engine.runs.spec import demo_spec

    with tempfile.TemporaryDirectory() as folder:
        execute(demo_spec(nu=(4, 64), members=8, max_cases=cases, calibrate_cases=4).resolved(), Path(folder), lambda *_: None)
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n")
