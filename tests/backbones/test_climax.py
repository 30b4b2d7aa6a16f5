import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.backbones import inspect_checkpoint, open_checkpoint, write_checkpoint
from engine.backbones._fields import share_of_year
from engine.errors import CheckpointError, DatasetError
from engine.lexicon import CLIMAX_48, G0
from engine.types import Case

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "climax"
CASES = [Case(7, 0, 6, 72.0, "2001-01-01T00:00", "2001-01-04T00:00"), Case(9, 3, 9, 72.0, "2001-01-02T12:00", "2001-01-05T12:00")]


@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden files of the upstream module are not on this machine")
@pytest.mark.parametrize("name", ["tiny_patch2.safetensors", "subset_lightning.ckpt"])
def test_parity_with_the_upstream_module(name):
    stem = name.split(".")[0]
    facts, arrays = json.loads((GOLDEN / f"{stem}.json").read_text()), np.load(GOLDEN / f"{stem}.npz")
    config = facts["config"]
    model = open_checkpoint(GOLDEN / name, variables=facts["variables"], num_heads=config["num_heads"], grid=config["img_size"])
    with torch.no_grad():
        found = model.module(
            torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["lead_times"]), facts["in_variables"], facts["out_variables"]
        )
    # float32 sums in another order differ in the sixth digit
    assert np.abs(found.numpy() - arrays["y"]).max() <= 1e-5 * np.abs(arrays["y"]).max()


def by_hand(net, x, lead):
    """The forward in plain float64 NumPy, written from the paper: no torch layer is shared with the implementation."""
    w = {k: v.detach().double().numpy() for k, v in net.state_dict().items()}
    p, heads, width = net.patch, net.var_agg.num_heads, w["var_query"].shape[-1]

    def norm(a, key):
        return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * w[f"{key}.weight"] + w[f"{key}.bias"]

    def linear(a, key):
        return a @ w[f"{key}.weight"].T + w[f"{key}.bias"]

    def gelu(a):
        return a * 0.5 * (1 + torch.erf(torch.from_numpy(a / np.sqrt(2))).numpy())

    def attend(q, k, v):
        out = np.empty_like(q)
        d = width // heads
        for h in range(heads):
            part = slice(h * d, (h + 1) * d)
            score = q[:, part] @ k[:, part].T / np.sqrt(d)
            e = np.exp(score - score.max(-1, keepdims=True))
            out[:, part] = e / e.sum(-1, keepdims=True) @ v[:, part]
        return out

    rows, columns = net.grid[0] // p, net.grid[1] // p
    tokens = np.empty((len(net.variables), rows * columns, width))
    for i in range(len(net.variables)):
        kernel = w[f"token_embeds.{i}.proj.weight"][:, 0]
        for r in range(rows):
            for c in range(columns):
                patch = x[i, r * p : (r + 1) * p, c * p : (c + 1) * p]
                tokens[i, r * columns + c] = (kernel * patch).sum((1, 2)) + w[f"token_embeds.{i}.proj.bias"] + w["var_embed"][0, i]
    wq, wk, wv = np.split(w["var_agg.in_proj_weight"], 3)
    bq, bk, bv = np.split(w["var_agg.in_proj_bias"], 3)
    state = np.empty((rows * columns, width))
    for place in range(rows * columns):
        keys = tokens[:, place]
        mixed = attend(w["var_query"][0] @ wq.T + bq, keys @ wk.T + bk, keys @ wv.T + bv)
        state[place] = linear(mixed, "var_agg.out_proj")[0]
    state += w["pos_embed"][0] + w["lead_time_embed.weight"][:, 0] * lead + w["lead_time_embed.bias"]
    for i in range(len(net.blocks)):
        q, k, v = np.split(linear(norm(state, f"blocks.{i}.norm1"), f"blocks.{i}.attn.qkv"), 3, axis=-1)
        state = state + linear(attend(q, k, v), f"blocks.{i}.attn.proj")
        state = state + linear(gelu(linear(norm(state, f"blocks.{i}.norm2"), f"blocks.{i}.mlp.fc1")), f"blocks.{i}.mlp.fc2")
    out = norm(state, "norm")
    for i in range(0, len(net.head), 2):
        out = linear(out, f"head.{i}")
        out = gelu(out) if i + 1 < len(net.head) else out
    fields = np.empty((len(net.variables), *net.grid))
    for place, token in enumerate(out):
        r, c = divmod(place, columns)
        fields[:, r * p : (r + 1) * p, c * p : (c + 1) * p] = np.moveaxis(token.reshape(p, p, -1), -1, 0)
    return fields


def test_forward_equals_the_formula_written_out(net):
    x = np.random.default_rng(3).normal(size=(3, 8, 16))
    with torch.no_grad():
        found = net(torch.from_numpy(x[None]).float(), torch.tensor([0.72]), net.variables, net.variables)[0].numpy()
    expected = by_hand(net, x, 0.72)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())  # float32 against float64


def test_parallel_patch_embedding_is_the_same_function(make):
    apart, together = make(), make(parallel=True)
    state = {k: v for k, v in apart.state_dict().items() if not k.startswith("token_embeds")}
    state["token_embeds.proj_weights"] = torch.stack([m.proj.weight for m in apart.token_embeds])
    state["token_embeds.proj_biases"] = torch.stack([m.proj.bias for m in apart.token_embeds])
    together.load_state_dict(state)
    x = torch.randn(2, 2, 8, 16, generator=torch.Generator().manual_seed(0))
    chosen = ("2m_temperature", "geopotential_500")  # not in the checkpoint's order
    with torch.no_grad():
        a, b = (n(x, torch.tensor([0.24, 0.72]), chosen, chosen) for n in (apart, together))
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_recorded_checkpoint_opens_with_nothing_named(checkpoint, net):
    model = open_checkpoint(checkpoint)
    assert model.in_variables == net.variables and model.out_variables == ("geopotential_500", "2m_temperature")
    assert model.grid == (8, 16) and model.lead_hours == (72.0,) and model.out_units == ("m2 s-2", "K")
    facts = model.describe()
    assert facts["assumed"] == [] and facts["sources"]["num_heads"] == "recorded"
    assert not facts["keys"]["missing"] and len(facts["keys"]["matched"]) == len(net.state_dict())
    assert not any(p.requires_grad for p in model.module.parameters()) and not model.module.training


@pytest.mark.parametrize("named", [{"num_heads": 2}, {"grid": (16, 8)}, {"variables": ["a", "b", "c"]}])
def test_an_argument_against_the_record_is_refused_naming_both(checkpoint, named):
    with pytest.raises(CheckpointError, match="but the file records") as caught:
        open_checkpoint(checkpoint, **named)
    assert next(iter(named)) in caught.value.found


def test_wrong_head_count_would_load_and_give_other_numbers(make):
    four, two = make(), make(heads=2)
    two.load_state_dict(four.state_dict())
    x = torch.randn(1, 3, 8, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        a, b = (n(x, torch.tensor([0.72]), n.variables, n.variables) for n in (four, two))
    assert (a - b).abs().max() > 1e-3


def test_heads_are_asked_for_and_inspect_lists_candidates(tmp_path, net):
    torch.save(net.state_dict(), tmp_path / "bare.pt")
    with pytest.raises(CheckpointError, match="number of attention heads"):
        open_checkpoint(tmp_path / "bare.pt", variables=net.variables)
    found = inspect_checkpoint(tmp_path / "bare.pt", variables=net.variables)
    assert found["unknown"]["num_heads"] == [1, 2, 4]
    assert found["keys"]["missing"] == [] and found["refusal"]["remedy"]
    model = open_checkpoint(tmp_path / "bare.pt", variables=net.variables, num_heads=4, grid=(8, 16))
    assert model.module.var_agg.num_heads == 4


def test_a_grid_that_is_not_recorded_is_asked_for_because_a_regional_model_has_the_same_weights(tmp_path, net):
    torch.save(net.state_dict(), tmp_path / "bare.pt")
    with pytest.raises(CheckpointError, match=r"regional ClimaX has the same weights.*grid=\[8, 16\]"):
        open_checkpoint(tmp_path / "bare.pt", variables=net.variables, num_heads=4)
    found = inspect_checkpoint(tmp_path / "bare.pt", variables=net.variables, num_heads=4)
    assert "global model of 8×16" in found["unknown"]["grid"]
    model = open_checkpoint(tmp_path / "bare.pt", variables=net.variables, num_heads=4, grid=(8, 16))
    assert any("regional ClimaX has the same weights" in line for line in model.describe()["assumed"])


@pytest.mark.parametrize("kept", ["hyper_parameters", "datamodule_hyper_parameters"])
def test_a_regional_model_that_says_so_is_refused_whatever_is_named(tmp_path, net, kept):
    whole = {"state_dict": {f"net.{k}": v for k, v in net.state_dict().items()}}
    named = {"variables": net.variables, "num_heads": 4, "grid": (8, 16)}
    for region in ("NorthAmerica", "Global"):
        torch.save(whole | {kept: {"region": region, "lr": 0.1}}, tmp_path / f"{region}.ckpt")
    with pytest.raises(CheckpointError, match=r"a regional ClimaX.*NorthAmerica"):
        open_checkpoint(tmp_path / "NorthAmerica.ckpt", **named)
    assert open_checkpoint(tmp_path / "Global.ckpt", **named).grid == (8, 16)


def test_names_are_asked_for_unless_there_are_48(tmp_path, net, make):
    torch.save(net.state_dict(), tmp_path / "three.pt")
    with pytest.raises(CheckpointError, match="3 variables without names"):
        open_checkpoint(tmp_path / "three.pt", num_heads=4)
    torch.save(make(CLIMAX_48).state_dict(), tmp_path / "published.pt")
    model = open_checkpoint(tmp_path / "published.pt", num_heads=4, grid=(8, 16))
    assert model.module.variables == CLIMAX_48
    assert any("48 of the published" in line for line in model.describe()["assumed"])


def test_grid_that_does_not_fit_the_tokens_is_refused(tmp_path, net, make):
    torch.save(net.state_dict(), tmp_path / "bare.pt")
    with pytest.raises(CheckpointError, match="8×8"):
        open_checkpoint(tmp_path / "bare.pt", variables=net.variables, num_heads=4, grid=(8, 8))
    torch.save(make(grid=(8, 12)).state_dict(), tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match="fit no grid of shape 1:2"):
        open_checkpoint(tmp_path / "odd.pt", variables=net.variables, num_heads=4)


def test_any_missing_key_blocks(tmp_path, net):
    state = net.state_dict()
    del state["blocks.1.mlp.fc2.bias"]
    torch.save(state, tmp_path / "lacking.pt")
    with pytest.raises(CheckpointError, match=r"1 missing: blocks\.1\.mlp\.fc2\.bias"):
        open_checkpoint(tmp_path / "lacking.pt", variables=net.variables, num_heads=4, grid=(8, 16))
    assert inspect_checkpoint(tmp_path / "lacking.pt", variables=net.variables, num_heads=4, grid=(8, 16))["keys"]["missing"] == [
        "blocks.1.mlp.fc2.bias"
    ]


def test_shape_mismatch_blocks_and_unexpected_keys_are_listed(tmp_path, net):
    state = net.state_dict() | {"extra.weight": torch.ones(1)}
    torch.save(state, tmp_path / "more.pt")
    assert open_checkpoint(tmp_path / "more.pt", variables=net.variables, num_heads=4, grid=(8, 16)).describe()["keys"]["unexpected"] == [
        "extra.weight"
    ]
    state["norm.weight"] = torch.ones(17)
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"norm\.weight: \(17,\) instead of \(16,\)"):
        open_checkpoint(tmp_path / "other.pt", variables=net.variables, num_heads=4, grid=(8, 16))


def test_early_key_names_are_understood(tmp_path, net):
    old = {
        k.replace("var_embed", "channel_embed").replace("var_query", "channel_query").replace("var_agg", "channel_agg"): v
        for k, v in net.state_dict().items()
    }
    torch.save(old, tmp_path / "old.pt")
    model = open_checkpoint(tmp_path / "old.pt", variables=net.variables, num_heads=4, grid=(8, 16))
    torch.testing.assert_close(model.module.var_query, net.var_query)


def test_revision_follows_weights_and_architecture(tmp_path, net, make):
    a = open_checkpoint(write_checkpoint(net, tmp_path / "a.safetensors")).revision
    assert open_checkpoint(write_checkpoint(net, tmp_path / "b.safetensors")).revision == a
    assert open_checkpoint(write_checkpoint(make(heads=2), tmp_path / "c.safetensors")).revision != a
    with torch.no_grad():
        net.norm.bias[0] += 1e-3
    assert open_checkpoint(write_checkpoint(net, tmp_path / "d.safetensors")).revision != a


def test_prepare_normalises_and_keeps_observations_physical(checkpoint, dataset):
    batch = open_checkpoint(checkpoint).prepare(dataset, CASES)
    z = dataset.fields["geopotential_500"].values
    np.testing.assert_allclose(batch.inputs[:, 0].numpy(), (z[[0, 3]] - 54000) / 3, atol=1e-3)
    np.testing.assert_array_equal(batch.observed[:, 0], z[[6, 9]])
    np.testing.assert_allclose(batch.day_of_year, [3 / 365, 4.5 / 365])


def test_prefix_and_suffix_make_the_whole_forward_at_every_site(checkpoint, dataset):
    model = open_checkpoint(checkpoint)
    batch = model.prepare(dataset, CASES)
    with torch.no_grad():
        whole = model.module(batch.inputs, torch.full((2,), 0.72), model.in_variables, model.out_variables)
    assert model.sites() == ("var_agg", "blocks.0.attn", "blocks.1.attn")
    for site in range(4):
        torch.testing.assert_close(model.suffix(model.prefix(batch, site), site), whole, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("site", [0, 1, 2])
def test_first_active_site_may_turn_one_row_into_members(checkpoint, dataset, site, monkeypatch):
    model = open_checkpoint(checkpoint)
    batch = model.prepare(dataset, CASES[:1])
    state = model.prefix(batch, site)
    plain = model.suffix(state, site)
    if site == 0:
        module = model.module.var_agg
        inner = module.forward
        monkeypatch.setattr(module, "forward", lambda *a, **k: (inner(*a, **k)[0].repeat(5, 1, 1), None))
    else:
        module = model.module.blocks[site - 1].attn
        inner = module.forward
        monkeypatch.setattr(module, "forward", lambda x: inner(x).expand(5, -1, -1))
    rows = model.suffix(state, site)
    assert rows.shape == (5, 2, 8, 16)
    torch.testing.assert_close(rows, plain.expand(5, -1, -1, -1), atol=1e-6, rtol=1e-6)


def test_physical_and_climatology_follow_the_year(checkpoint, dataset):
    model = open_checkpoint(checkpoint)
    batch = model.prepare(dataset, CASES)
    climatology = model.climatology(batch)
    np.testing.assert_allclose(model.physical(torch.zeros(2, 2, 8, 16), batch), climatology)
    np.testing.assert_allclose(model.physical(torch.ones(2, 2, 8, 16), batch), climatology + 2)
    rows = model.physical(torch.zeros(6, 2, 8, 16), batch)  # three members of each case, those of one case together
    np.testing.assert_array_equal(rows[2], climatology[0])
    np.testing.assert_array_equal(rows[3], climatology[1])
    import xarray as xr

    with xr.open_dataset(checkpoint.with_name("normalisation.nc"), engine="h5netcdf") as file:
        nodes = file["geopotential_500_output_mean"].values
    share = 3 / 365 * 4
    np.testing.assert_allclose(climatology[0, 0], nodes[0] * (1 - share) + nodes[1] * share, rtol=1e-6)


@pytest.mark.parametrize(("calendar", "share"), [("360_day", 60 / 360), ("noleap", 59 / 365), ("standard", 59 / 365)])
def test_first_of_march_as_a_share_of_the_year(calendar, share):
    import xarray as xr

    assert share_of_year(xr.date_range("2001-03-01", periods=1, calendar=calendar).values) == pytest.approx(share)


def test_end_of_a_leap_year():
    assert share_of_year(np.array(["2000-12-31T12"], "datetime64[ns]")) == pytest.approx(365.5 / 366)


def test_360_day_data_run_through(checkpoint, make_dataset):
    model = open_checkpoint(checkpoint)
    batch = model.prepare(make_dataset("360_day", "0021-02-28"), CASES)
    np.testing.assert_allclose(batch.day_of_year, [60 / 360, 61.5 / 360])


def test_no_normalisation_still_inspects_but_does_not_run(tmp_path, net, dataset):
    (tmp_path / "alone").mkdir()
    model = open_checkpoint(write_checkpoint(net, tmp_path / "alone" / "m.safetensors"))
    assert "none given" in model.describe()["normalisation"]
    with pytest.raises(CheckpointError, match="none next to the checkpoint"):
        model.prepare(dataset, CASES)


def test_upstream_pair_beside_the_checkpoint(tmp_path, net, dataset):
    means = {"geopotential_500": np.array([54000.0]), "temperature_850": np.array([275.0]), "2m_temperature": np.array([285.0])}
    np.savez(tmp_path / "normalize_mean.npz", **means)
    np.savez(tmp_path / "normalize_std.npz", **{k: np.array([4.0]) for k in means})
    model = open_checkpoint(write_checkpoint(net, tmp_path / "m.safetensors", out_variables=["temperature_850"]))
    assert "normalize_mean.npz" in model.describe()["normalisation"]
    batch = model.prepare(dataset, CASES)
    np.testing.assert_allclose(model.physical(torch.full((2, 1, 8, 16), 0.5), batch), 277.0)
    assert model.climatology(batch) is None
    (tmp_path / "normalize_std.npz").unlink()
    with pytest.raises(CheckpointError, match=r"no normalize_std\.npz"):
        open_checkpoint(tmp_path / "m.safetensors")


def test_climatology_file(tmp_path, checkpoint, dataset):
    np.savez(tmp_path / "climatology.npz", geopotential_500=np.full((1, 8, 16), 53900.0), **{"2m_temperature": np.full((1, 8, 16), 280.0)})
    model = open_checkpoint(checkpoint, climatology=tmp_path / "climatology.npz")
    found = model.climatology(model.prepare(dataset, CASES))
    assert (found[:, 0] == 53900).all() and (found[:, 1] == 280).all()
    np.savez(tmp_path / "short.npz", geopotential_500=np.full((1, 8, 16), 53900.0))
    with pytest.raises(DatasetError, match="2m_temperature"):
        open_checkpoint(checkpoint, climatology=tmp_path / "short.npz")


def test_climatology_that_came_with_the_data(tmp_path, checkpoint, dataset):
    np.savez(tmp_path / "c.npz", geopotential_500=np.full((1, 8, 16), 53900.0), **{"2m_temperature": np.full((1, 8, 16), 280.0)})
    model = open_checkpoint(checkpoint)
    plain = model.climatology(model.prepare(dataset, CASES))
    dataset.fields.attrs["climatology"] = str(tmp_path / "c.npz")
    assert (model.climatology(model.prepare(dataset, CASES))[:, 0] == 53900).all()
    assert plain[:, 0].min() != 53900


def test_height_stands_in_for_geopotential(checkpoint, dataset):
    from dataclasses import replace

    height = (dataset.fields["geopotential_500"] / np.float32(G0)).assign_attrs(units="m")
    data = replace(dataset, fields=dataset.fields.drop_vars("geopotential_500").assign(geopotential_height_500=height))
    model = open_checkpoint(checkpoint)
    a, b = model.prepare(dataset, CASES), model.prepare(data, CASES)
    np.testing.assert_allclose(a.inputs.numpy(), b.inputs.numpy(), atol=0.01)  # 54000 in float32 has steps of .004, over an sd of 3


def test_missing_input_value_is_named_with_its_place(checkpoint, dataset):
    dataset.fields["temperature_850"].values[3, 2, 5] = np.nan
    with pytest.raises(DatasetError, match=r"input temperature_850.*2001-01-02T12:00, latitude 33\.75, longitude 112\.50"):
        open_checkpoint(checkpoint).prepare(dataset, CASES)


def test_missing_observation_is_kept_as_missing(checkpoint, dataset):
    dataset.fields["2m_temperature"].values[6, 0, 0] = np.nan
    batch = open_checkpoint(checkpoint).prepare(dataset, CASES)
    assert np.isnan(batch.observed[0, 1, 0, 0]) and np.isnan(batch.observed).sum() == 1


def test_missing_variable_lists_what_there_is(checkpoint, dataset):
    from dataclasses import replace

    data = replace(dataset, fields=dataset.fields.drop_vars("2m_temperature"))
    with pytest.raises(DatasetError, match="2m_temperature in K") as caught:
        open_checkpoint(checkpoint).prepare(data, CASES)
    assert "temperature_850 (K)" in caught.value.found


def test_wrong_grid_and_shifted_coordinates_are_refused(checkpoint, dataset):
    from dataclasses import replace

    model = open_checkpoint(checkpoint)
    with pytest.raises(DatasetError, match="7×16"):
        model.prepare(replace(dataset, fields=dataset.fields.isel(latitude=slice(1, None))), CASES)
    swapped = dataset.fields.rename(latitude="longitude", longitude="latitude")
    with pytest.raises(DatasetError, match="swapped"):
        model.prepare(replace(dataset, fields=swapped), CASES)
    shifted = dataset.fields.assign_coords(longitude=dataset.fields.longitude + 11.25)
    with pytest.raises(DatasetError, match="longitude 11"):
        model.prepare(replace(dataset, fields=shifted), CASES)
