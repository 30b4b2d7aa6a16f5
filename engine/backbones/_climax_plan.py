"""Settling what a ClimaX file does not say."""

from collections.abc import Mapping
from typing import Any

from engine.backbones._climax_shapes import Shapes, default_variables, settle
from engine.backbones._keys import Facts
from engine.errors import CheckpointError

_TARGETS = ("geopotential_500", "temperature_850", "2m_temperature", "10m_u_component_of_wind", "10m_v_component_of_wind")
_CONSTANT = ("land_sea_mask", "orography", "lattitude")


def whole_or_part(facts: Facts, what: str) -> None:
    """Refuse a regional ClimaX where its training framework recorded that it is one.

    Its tensors are those of a global one, name by name and shape by shape, positions of the whole grid included; but it attends
    to the patches of its region alone. Run on the whole grid it gives fields that look right and are not.
    """
    for key, value in facts.scalars.items():
        if key.rpartition(".")[2] == "region" and str(value).lower() not in ("global", "none", ""):
            raise CheckpointError(
                what,
                found=f"a regional ClimaX ({key} = {value!r:.60} in the file)",
                expected="a global one, which forecasts all of its grid",
                remedy="Regional models are not run here: they see the patches of their region alone. Bring a global checkpoint.",
            )


def plan(shapes: Shapes, facts: Facts, what: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Settle what shapes do not give: from arguments, from the record, from published defaults, each with its source."""
    known = facts.recorded if facts.recorded.get("backbone", "climax") == "climax" else {}
    whole_or_part(facts, what)
    sources: dict[str, str] = {}
    assumed: list[str] = []

    def pick(name: str, convert: Any) -> Any:
        def read(value: Any, origin: str) -> Any:
            try:
                return None if value is None else convert(value)
            except (TypeError, ValueError) as fault:
                raise CheckpointError(
                    what,
                    found=f"{name} = {value!r:.80} ({origin})",
                    expected={"grid": "two whole numbers, rows and columns", "num_heads": "a whole number"}.get(name, "a list of names"),
                    remedy=f"Name {name} as the model was trained with; a record in the file that is wrong has to be written anew.",
                ) from fault

        value, sources[name] = settle(name, read(named.get(name), "as named"), read(known.get(name), "as recorded in the file"), what)
        return value

    names = lambda v: tuple(str(n) for n in ([v] if isinstance(v, str) else v))  # noqa: E731 -- one conversion, used thrice
    variables = pick("variables", names)
    if variables is None:
        variables, sources["variables"] = default_variables(shapes, what), "preset"
        assumed.append("variables: the 48 of the published checkpoints, because the file has 48 and names none")
    if len(variables) != shapes.variables or len(set(variables)) != len(variables):
        raise CheckpointError(
            what,
            found=f"{len(variables)} names, {len(set(variables))} of them different",
            expected=f"{shapes.variables} different names, as many as the checkpoint has",
            remedy="Name the variables of the checkpoint, in training order, with --architecture (variables= in Python).",
        )
    grid = pick("grid", lambda v: tuple(int(n) for n in v))
    if grid is None:
        grid = shapes.likely_grid
        if grid is None:
            raise CheckpointError(
                what,
                found=f"{shapes.tokens} tokens of {shapes.patch}×{shapes.patch} points, which fit no grid of shape 1:2",
                expected="grid=(rows, columns)",
                remedy="Name the grid, as in --architecture '{\"grid\": [32, 64]}' (grid= in Python).",
            )
        sources["grid"] = "unknown"  # likely, and asked for: `ClimaX` says why
    if len(grid) != 2 or any(n % shapes.patch for n in grid) or (grid[0] // shapes.patch) * (grid[1] // shapes.patch) != shapes.tokens:
        raise CheckpointError(
            what,
            found=f"grid {'×'.join(map(str, grid))}, patch {shapes.patch}",
            expected=f"a grid of {shapes.tokens} patches"
            + (f", such as {'×'.join(map(str, shapes.likely_grid))}" if shapes.likely_grid else ""),
            remedy="Name the grid that the checkpoint was trained on with --architecture (grid= in Python).",
        )
    heads = pick("num_heads", int)
    if sources["grid"] == "given":
        assumed.append(f"global: a regional ClimaX has the same weights; the grid {grid[0]}×{grid[1]} was named as what it forecasts")
    if heads is not None and (heads < 1 or shapes.width % heads):
        raise CheckpointError(
            what,
            found=f"{heads} heads",
            expected=f"a divisor of the width {shapes.width}: {', '.join(map(str, shapes.head_candidates))}",
            remedy="Name the head count of training with --architecture (num_heads= in Python).",
        )
    ins = pick("in_variables", names)
    if ins is None:
        ins, sources["in_variables"] = variables, "variables"
    outs = pick("out_variables", names) if named.get("out_variables") is None else names(named["out_variables"])
    sources.setdefault("out_variables", "given")
    if outs is None:
        outs = tuple(n for n in _TARGETS if n in variables) or tuple(n for n in variables if n not in _CONSTANT)
        sources["out_variables"] = "preset"
        assumed.append(f"out_variables: {', '.join(outs[:5])}")
    unknown = [n for n in (*ins, *outs) if n not in variables]
    if unknown:
        raise CheckpointError(
            what,
            found=f"variables that the checkpoint does not have: {', '.join(unknown[:6])}",
            expected=f"names among {', '.join(variables[:8])}…",
            remedy="Use the checkpoint's own names.",
        )
    leads = named.get("lead_hours")
    leads, sources["lead_hours"] = (leads, "given") if leads is not None else (known.get("lead_hours"), "recorded")
    if leads is None:
        leads, sources["lead_hours"] = (72.0,), "preset"
        assumed.append("lead time 72 h: not recorded; the network takes any, forecasts are good only at those it was trained for")
    leads = tuple(float(h) for h in (leads if isinstance(leads, list | tuple) else [leads]))
    return {
        "variables": variables,
        "grid": grid,
        "num_heads": heads,
        "in_variables": ins,
        "out_variables": outs,
        "lead_hours": leads,
        "sources": sources,
        "assumed": assumed,
    }
