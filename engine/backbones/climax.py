"""ClimaX (Nguyen et al. 2023, arXiv 2301.10343; MIT): gridded fields at one time to fields at a lead time.

A published file holds weights only. Variables, heads, grid and normalisation come from the arguments, or from what
`write_checkpoint` recorded in a safetensors file; an argument that contradicts the record is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine import lexicon
from engine.backbones._climax_plan import plan
from engine.backbones._climax_shapes import Shapes, expected_keys, infer, modern
from engine.backbones._climax_shapes import recognise as _recognise
from engine.backbones._fields import check_grid, read_fields, share_of_year
from engine.backbones._keys import STATE_DICTS, Facts, match_keys, revision
from engine.errors import CheckpointError
from engine.types import Array, Backbone, Batch, Case, Dataset

if TYPE_CHECKING:
    import torch

    from engine.backbones._climax_net import ClimaXNet
    from engine.backbones._normalisation import Normalisation
    from engine.stack import Stack


@dataclass(frozen=True)
class _ClimateBatch(Batch):
    """A batch with the climatology of a named file at its valid times, `(case, H, W)` by variable."""

    climate: Mapping[str, Array] = field(default_factory=dict)


class ClimaX(Backbone):
    """A ClimaX checkpoint with its variables, heads, grid and normalisation settled."""

    key: ClassVar[str] = "climax"
    title: ClassVar[str] = "ClimaX"
    tasks: ClassVar[tuple[str, ...]] = ("fields",)
    endings: ClassVar[tuple[str, ...]] = STATE_DICTS
    beside: ClassVar[dict[str, tuple[str, ...]]] = {"normalisation": (".nc", ".npz"), "climatology": (".nc", ".npz")}
    companions: ClassVar[tuple[str, ...]] = ("normalize_std.npz",)

    module: "ClimaXNet"
    recognise = staticmethod(_recognise)

    def __init__(
        self,
        state: Mapping[str, "torch.Tensor"],
        facts: Facts,
        path: Path,
        *,
        stripped: tuple[str, ...] = (),
        outside: Sequence[str] = (),
        **named: Any,
    ) -> None:
        """Build the network and load it; any missing key or shape that differs blocks.

        Named: variables, num_heads, grid, in_variables, out_variables, lead_hours, normalisation, climatology (paths).
        """
        from engine.backbones._climax_net import ClimaXNet

        what = f"checkpoint {path.name}"
        state = {modern(key): value for key, value in state.items()}
        shapes = infer(state, what)
        self._plan = plan(shapes, facts, what, named)
        _ask(self._plan, shapes, what)
        p = self._plan
        self.module = ClimaXNet(
            p["variables"],
            p["grid"],
            patch=shapes.patch,
            width=shapes.width,
            depth=shapes.depth,
            decoder_depth=shapes.decoder_depth,
            num_heads=p["num_heads"],
            mlp_ratio=shapes.mlp_ratio,
            parallel_patch_embedding=shapes.parallel_patch_embedding,
        )
        self._keys = match_keys(state, self.module.state_dict(), [*outside], what)
        self.module.load_state_dict({key: state[key] for key in self.module.state_dict()})
        self.module.float().eval().requires_grad_(False)
        self.in_variables, self.out_variables = p["in_variables"], p["out_variables"]
        self.lead_hours, self.grid = p["lead_hours"], p["grid"]
        self._facts, self._stripped, self._path, self._shapes = facts, stripped, path, shapes
        self._normalisation, self._source = self._find_normalisation(named.get("normalisation"))
        recorded = {**(self._normalisation.units if self._normalisation else {}), **facts.recorded.get("units", {})}
        names = dict.fromkeys((*self.in_variables, *self.out_variables))
        self.units = {n: lexicon.normal_units(recorded.get(n) or lexicon.units_of(n) or "1") for n in names}
        self.out_units = tuple(self.units[n] for n in self.out_variables)
        self._climatologies: dict[str, dict[str, Array]] = {}
        self._given_climatology = str(named["climatology"]) if named.get("climatology") else None
        if self._given_climatology:
            self._climatology_of(self._given_climatology)
        self.revision = revision(self.module.state_dict(), {**shapes.describe(), **{k: p[k] for k in ("variables", "num_heads", "grid")}})

    @classmethod
    def survey(
        cls, state: Mapping[str, "torch.Tensor"], facts: Facts, path: Path, outside: Sequence[str], named: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What can be said without building the network: shapes, and what is unknown with its candidates."""
        renamed = {modern(key): value for key, value in state.items()}
        found: dict[str, Any] = {"keys": {"matched": [], "missing": [], "unexpected": list(outside), "shapes": []}, "unknown": {}}
        try:
            shapes = infer(renamed, f"checkpoint {path.name}")
        except CheckpointError:
            return found
        found["architecture"] = shapes.describe()
        if named.get("num_heads") is None and facts.recorded.get("num_heads") is None:
            found["unknown"]["num_heads"] = list(shapes.head_candidates)
        if named.get("variables") is None and facts.recorded.get("variables") is None and shapes.variables != len(lexicon.CLIMAX_48):
            found["unknown"]["variables"] = shapes.variables
        if named.get("grid") is None and facts.recorded.get("grid") is None:
            likely = f", as in a global model of {'×'.join(map(str, shapes.likely_grid))}" if shapes.likely_grid else ""
            found["unknown"]["grid"] = f"{shapes.tokens} patches of {shapes.patch}×{shapes.patch}{likely}"
        wanted = expected_keys(shapes)
        found["keys"] |= {
            "matched": [k for k in wanted if k in renamed],
            "missing": [k for k in wanted if k not in renamed],
            "unexpected": [k for k in renamed if k not in wanted] + list(outside),
        }
        return found

    def _find_normalisation(self, given: str | Path | None) -> "tuple[Normalisation | None, str]":
        from engine.backbones._normalisation import beside, read_normalisation

        place = Path(given) if given else beside(self._path)
        if place is None:
            return None, "none given, and none next to the checkpoint"
        found = read_normalisation(place)
        for axis, size in (("latitude", self.grid[0]), ("longitude", self.grid[1])):
            values = getattr(found, axis)
            if values is not None and len(values) != size:
                raise CheckpointError(
                    f"normalisation {place.name}",
                    found=f"{len(values)} {axis}s",
                    expected=f"{size}, as the model's grid",
                    remedy="Bring the normalisation that belongs to this checkpoint.",
                )
        return found, f"{place.name}, {'as given' if given else 'found next to the checkpoint'}"

    def _climatology_of(self, path: str) -> dict[str, Array]:
        from engine.backbones._climatology import read_climatology

        if path not in self._climatologies:
            self._climatologies[path] = read_climatology(path, self.out_variables, self.units, self.grid)
        return self._climatologies[path]

    def describe(self) -> dict[str, Any]:
        """Format, architecture and where each part of it came from, key table, normalisation, notes."""
        table = {name: list(self._keys[name]) for name in ("matched", "missing", "unexpected", "shapes")}
        return {
            "format": self._facts.format,
            "backbone": self.key,
            "parameters": sum(p.numel() for p in self.module.parameters()),
            "revision": self.revision,
            "architecture": {**self._shapes.describe(), "num_heads": self._plan["num_heads"], "grid": list(self.grid)},
            "sources": dict(self._plan["sources"]),
            "assumed": list(self._plan["assumed"]),
            "variables": list(self._plan["variables"]),
            "in_variables": list(self.in_variables),
            "out_variables": list(self.out_variables),
            "out_units": list(self.out_units),
            "lead_hours": list(self.lead_hours),
            "keys": table,
            "stripped": list(self._stripped),
            "container": self._facts.container,
            "others": list(self._facts.others),
            "blocked": list(self._facts.blocked),
            "normalisation": self._source,
            "recorded": dict(self._facts.recorded),
            "notes": list(self._facts.notes),
        }

    def sites(self) -> tuple[str, ...]:
        """The aggregation over variables, then each block."""
        return ("var_agg", *(f"blocks.{i}.attn" for i in range(self._shapes.depth)))

    def stack(self, module: "ClimaXNet | None" = None) -> "Stack":
        """The blocks as transitions; inputs `{"x": (case, V_in, H, W), "lead_times": (case,)}`, both as the module takes them."""
        from engine.backbones._climax_stack import climax_stack

        return climax_stack(self.module if module is None else module, self.in_variables, self.out_variables)

    def _normalised(self) -> "Normalisation":
        lacking = self._normalisation.missing(self.in_variables, self.out_variables) if self._normalisation else []
        if self._normalisation is None or lacking:
            raise CheckpointError(
                f"normalisation of {self._path.name}",
                found=self._source + (f"; without {', '.join(lacking[:6])}" if lacking else ""),
                expected="mean and standard deviation of every input and output variable",
                remedy="Name the folder with normalize_mean.npz and normalize_std.npz, or the checkpoint's NetCDF file, "
                "with --normalisation (normalisation= in Python).",
            )
        return self._normalisation

    @property
    def output_sd(self) -> Array:
        """The checkpoint's own, `(variable,)`."""
        return np.array([self._normalised().output[n][1] for n in self.out_variables])

    def prepare(self, dataset: Dataset, cases: Sequence[Case]) -> Batch:
        """Inputs `(case, variable, H, W)` in units of one sd, observations at the valid time in `out_units`.

        `day_of_year` holds the valid time as a share of the calendar's year, 0 … 1. Raises DatasetError for another
        grid, a variable that is missing, units that do not convert, or a missing input value.
        """
        import torch

        from engine.backbones._normalisation import along_year

        norm = self._normalised()
        check_grid(dataset, self.grid, norm.latitude, norm.longitude)
        inputs = read_fields(dataset, {n: self.units[n] for n in self.in_variables}, [c.init for c in cases], complete=True)
        for i, name in enumerate(self.in_variables):
            mean, sd = norm.input[name]
            inputs[:, i] = (inputs[:, i] - mean) / np.float32(sd)
        observed = read_fields(dataset, {n: self.units[n] for n in self.out_variables}, [c.valid for c in cases], complete=False)
        share = share_of_year(dataset.fields["time"].values[[c.valid for c in cases]])
        path = self._given_climatology or dataset.fields.attrs.get("climatology")
        fields = self._climatology_of(path) if path else {}
        return _ClimateBatch(torch.from_numpy(inputs), observed, tuple(cases), share, {n: along_year(f, share) for n, f in fields.items()})

    def prefix(self, batch: Batch, first_site: int) -> Any:
        """Site 0: tokens per variable and lead times; site k: tokens after block k − 1 was reached, `(case, L, D)`."""
        import torch

        device = self.module.pos_embed.device
        with torch.no_grad():
            lead_times = torch.tensor([c.lead_hours / 100 for c in batch.cases], dtype=torch.float32, device=device)
            tokens = self.module.embed(batch.inputs.to(device), self.in_variables)
            if first_site == 0:
                return tokens, lead_times
            return self.module.run_blocks(self.module.aggregate(tokens, lead_times), 0, first_site - 1)

    def suffix(self, state: Any, first_site: int) -> "torch.Tensor":
        """The rest of the forward: `(rows, variable, H, W)`, normalised."""
        import torch

        with torch.no_grad():
            if first_site == 0:
                return self.module.decode(self.module.run_blocks(self.module.aggregate(*state)), self.out_variables)
            return self.module.decode(self.module.run_blocks(state, first_site - 1), self.out_variables)

    def physical(self, output: "torch.Tensor", batch: Batch) -> Array:
        """`output * sd + mean` at the valid time. With several cases, the rows of one case stand together."""
        norm = self._normalised()
        values = output.detach().to("cpu").float().numpy()
        each, rest = divmod(len(values), len(batch.cases))
        if rest:
            raise ValueError(f"{len(values)} rows for {len(batch.cases)} cases")
        result = np.empty_like(values)
        for i, name in enumerate(self.out_variables):
            mean = np.repeat(norm.output_mean(name, batch.day_of_year), each, axis=0)
            result[:, i] = values[:, i] * np.float32(norm.output[name][1]) + mean
        return result

    def climatology(self, batch: Batch) -> Array | None:
        """From the file that was named, else the output mean where it is one by place; None where any variable has none."""
        norm, given = self._normalisation, batch.climate if isinstance(batch, _ClimateBatch) else {}
        fields = []
        for name in self.out_variables:
            if name in given:
                fields.append(given[name])
            elif norm is not None and norm.is_climatology(name):
                fields.append(np.broadcast_to(norm.output_mean(name, batch.day_of_year), (len(batch.cases), *self.grid)))
            else:
                return None
        return np.stack(fields, 1).astype(np.float32)


def _ask(settled: Mapping[str, Any], shapes: Shapes, what: str) -> None:
    """What no ClimaX file tells is asked for, never assumed: the heads, and whether it forecasts its whole grid."""
    heads, rows = settled["num_heads"] is None, settled["sources"]["grid"] == "unknown"
    found, expected, remedy = [], [], []
    grid = list(settled["grid"])
    if heads:
        found.append(f"no recorded number of attention heads; the weights load with any of {', '.join(map(str, shapes.head_candidates))}")
        expected.append("num_heads as in training (the published models: 16)")
        remedy.append(
            "Name it with --architecture '{\"num_heads\": 16}' (num_heads= in Python). A wrong number loads without complaint "
            "and gives other forecasts."
        )
    if rows:
        found.append(f"no recorded grid; a regional ClimaX has the same weights as a global one ({shapes.tokens} patches)")
        expected.append(f"grid={grid}, the rows and columns that it forecasts, of a global model")
        remedy.append(
            f"Name the grid of a global model with --architecture '{{\"grid\": {grid}}}' (grid= in Python). A regional one is not run here."
        )
    if found:
        raise CheckpointError(what, found="; ".join(found), expected="; ".join(expected), remedy=" ".join(remedy))


ENTRIES = (ClimaX,)
