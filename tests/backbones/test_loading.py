import argparse
import functools
import json
import os
import pathlib
import pickle
import struct
import zipfile

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.backbones import inspect_checkpoint, open_checkpoint
from engine.backbones._safe_load import read_state_dict
from engine.errors import CheckpointError, UnsafeFileError
from engine.registry import catalogue

NAMED = {"variables": ("geopotential_500", "temperature_850", "2m_temperature"), "num_heads": 4, "grid": (8, 16)}


class Harm:
    """What a hostile pickle carries: a call that leaves a mark."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "harmed"


def hostile(mark):
    """One payload of each kind that is seen in the wild."""
    return {
        "system": Harm(os.system, f"touch {mark}"),
        "eval": Harm(eval, f"__import__('os').mkdir({str(mark)!r})"),
        "exec": Harm(exec, f"import os; os.mkdir({str(mark)!r})"),
        "mkdir": Harm(os.mkdir, str(mark)),
        "partial": Harm(functools.partial, os.mkdir, str(mark)),
    }


def test_code_in_a_pickle_is_harmless_and_named(tmp_path, net, mark):
    content = {"state_dict": net.state_dict(), "hyper_parameters": argparse.Namespace(root=pathlib.PurePosixPath("/a")), **hostile(mark)}
    torch.save(content, tmp_path / "evil.ckpt")
    state, facts = read_state_dict(tmp_path / "evil.ckpt")
    assert not mark.exists()
    assert {"posix.system", "builtins.eval", "builtins.exec", "argparse.Namespace"} <= set(facts.blocked)
    assert all(torch.equal(state[k], v) for k, v in net.state_dict().items())
    assert "posix.system" in " ".join(open_checkpoint(tmp_path / "evil.ckpt", **NAMED).describe()["notes"])
    with pytest.raises(Exception, match="Weights only load failed"):  # the payload is real: the plain tier refuses it
        torch.load(tmp_path / "evil.ckpt", weights_only=True)


def test_payload_would_work_where_pickles_are_trusted(mark):
    pickle.loads(pickle.dumps(hostile(mark)["mkdir"]))
    assert mark.exists()


def test_lightning_file_with_refused_classes_gives_its_tensors(tmp_path, net):
    content = {
        "state_dict": {f"net.{k}": v for k, v in net.state_dict().items()},
        "hyper_parameters": {"root": pathlib.PosixPath("/data"), "optimiser": functools.partial(torch.optim.AdamW, lr=1e-3)},
        "scale": np.float64(0.5),
        "optimizer_states": [torch.optim.AdamW(net.parameters()).state_dict()],
        "epoch": 3,
    }
    torch.save(content, tmp_path / "lightning.ckpt")
    model = open_checkpoint(tmp_path / "lightning.ckpt", **NAMED)
    torch.testing.assert_close(model.module.norm.weight, net.norm.weight)
    assert model.describe()["stripped"] == ["net."]
    assert "pathlib.PosixPath" in model.describe()["blocked"]


def test_guarded_reader_keeps_views_types_and_parameters(tmp_path):
    base = torch.arange(24.0)
    content = {
        "turned": base.reshape(4, 6).t(),
        "slice": base[5:9],
        "half": torch.ones(3, dtype=torch.bfloat16) * 1.5,
        "whole": torch.tensor([1, 2**40]),
        "flags": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3.0),
    }
    torch.save({"state_dict": content, "why": pathlib.PosixPath("/")}, tmp_path / "views.ckpt")
    state, facts = read_state_dict(tmp_path / "views.ckpt")
    assert facts.blocked == ("pathlib.PosixPath",)
    assert set(state) == set(content)
    for key, value in content.items():
        assert state[key].dtype == value.dtype
        torch.testing.assert_close(state[key], value.detach())


def test_inert_objects_do_nothing_whatever_a_pickle_does_to_them():
    import io

    from engine.backbones._extract import Inert, Reader

    content = [Harm(os.system, "false"), argparse.Namespace(a=1), functools.partial(print, 1), {1, 2}, pathlib.PurePosixPath("/a")]
    reader = Reader(io.BytesIO(pickle.dumps(content)))
    found = reader.load()
    assert all(isinstance(item, Inert) for item in (*found[:3], found[4]))
    assert {"posix.system", "argparse.Namespace", "functools.partial"} <= reader.stubbed


def test_dotted_names_and_extension_codes_reach_nothing():
    import io

    from engine.backbones._extract import Inert, Reader

    dotted = b"\x80\x04\x8c\x05torch\x8c\x18serialization.os.system\x93\x8c\x05false\x85R."
    assert isinstance(Reader(io.BytesIO(dotted.replace(b"\x18", bytes([len("serialization.os.system")])))).load(), Inert)
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        Reader(io.BytesIO(b"\x80\x02\x82\x01.")).load()


@pytest.mark.parametrize("refused", [False, True])
def test_stride_zero_tensor_is_refused_by_both_readers(tmp_path, refused):
    content = {"w": torch.zeros(1).expand(10**6, 10**6)}
    torch.save(content | ({"p": pathlib.PosixPath("/")} if refused else {}), tmp_path / "claims.pt")
    assert (tmp_path / "claims.pt").stat().st_size < 10_000
    with pytest.raises(UnsafeFileError, match=r"w: shape \(1000000, 1000000\) claims 4000000000000 bytes, its storage holds 4"):
        read_state_dict(tmp_path / "claims.pt")


def test_tensors_without_content_are_refused(tmp_path, net):
    torch.save({"w": torch.ones(3, device="meta")}, tmp_path / "meta.pt")
    with pytest.raises(CheckpointError, match="w: a tensor on the device meta"):
        read_state_dict(tmp_path / "meta.pt")
    state = net.state_dict() | {"norm.bias": torch.full((16,), torch.nan)}
    torch.save(state, tmp_path / "nan.pt")
    with pytest.raises(CheckpointError, match=r"norm\.bias"):
        open_checkpoint(tmp_path / "nan.pt", **NAMED)


def test_deflated_bomb_is_refused_without_unpacking(tmp_path):
    torch.save({"w": torch.zeros(2_000_000)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as source, zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert (tmp_path / "bomb.pt").stat().st_size < 20_000
    with pytest.raises(UnsafeFileError, match="compressed members"):
        read_state_dict(tmp_path / "bomb.pt")


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_truncated_checkpoint_says_so(tmp_path, net, suffix, share):
    path = tmp_path / f"m.{suffix}"
    if suffix == "pt":
        torch.save(net.state_dict(), path)
    else:
        save_file({k: v.contiguous() for k, v in net.state_dict().items()}, path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        read_state_dict(path)


def test_safetensors_header_that_lies_is_refused(tmp_path):
    for header in ({"w": {"dtype": "F32", "shape": [10**6], "data_offsets": [0, 4 * 10**6]}}, {"w": 1}, {"__metadata__": {}}):
        text = json.dumps(header).encode()
        (tmp_path / "lies.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
        with pytest.raises(CheckpointError):
            read_state_dict(tmp_path / "lies.safetensors")
    (tmp_path / "huge.safetensors").write_bytes(struct.pack("<Q", 2**39) + b"{" + bytes(64))
    with pytest.raises(CheckpointError, match="header claims"):
        read_state_dict(tmp_path / "huge.safetensors")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<!DOCTYPE html><html>404</html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
        (b"CDF\x01" + bytes(64), "NetCDF3"),
        (b"epoch,loss\n1,2\n", "text file"),
        (bytes(range(200, 256)), "no format known"),
        (b"", "0 bytes"),
    ],
)
def test_another_kind_of_file_is_named(tmp_path, content, says):
    (tmp_path / "model.ckpt").write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        read_state_dict(tmp_path / "model.ckpt")


def test_other_zips_and_hdf5_are_named(tmp_path):
    np.savez(tmp_path / "a.pt", x=np.ones(2))
    (tmp_path / "a.pt.npz").rename(tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=r"a zip archive of x\.npy"):
        read_state_dict(tmp_path / "a.pt")
    with h5py.File(tmp_path / "b.pt", "w") as file:
        file["w"] = np.ones(2)
    with pytest.raises(CheckpointError, match="HDF5"):
        read_state_dict(tmp_path / "b.pt")
    with pytest.raises(CheckpointError, match="no such file"):
        read_state_dict(tmp_path / "c.pt")


def test_legacy_pickle_loads_tensors_and_refuses_code(tmp_path, net, mark):
    torch.save(net.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    state, facts = read_state_dict(tmp_path / "old.pt")
    assert "legacy" in facts.format and set(state) == set(net.state_dict())
    torch.save({"w": torch.ones(1), **hostile(mark)}, tmp_path / "evil.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UnsafeFileError, match="old pickle file"):
        read_state_dict(tmp_path / "evil.pt")
    (tmp_path / "bare.pkl").write_bytes(pickle.dumps(hostile(mark)["mkdir"]))
    with pytest.raises(UnsafeFileError):
        read_state_dict(tmp_path / "bare.pkl")
    assert not mark.exists()


@pytest.mark.parametrize(
    "prefixes", [("module.",), ("model.",), ("_orig_mod.",), ("net.",), ("model.", "_orig_mod."), ("module.", "_orig_mod.", "net.")]
)
def test_prefixes_are_stripped_step_by_step_and_reported(tmp_path, net, prefixes):
    torch.save({"".join(prefixes) + k: v for k, v in net.state_dict().items()}, tmp_path / "wrapped.pt")
    model = open_checkpoint(tmp_path / "wrapped.pt", **NAMED)
    assert model.describe()["stripped"] == list(prefixes)
    torch.testing.assert_close(model.module.norm.weight, net.norm.weight)


def test_keys_beside_the_prefix_are_reported(tmp_path, net):
    torch.save({f"net.{k}": v for k, v in net.state_dict().items()} | {"loss.weight": torch.ones(3)}, tmp_path / "more.pt")
    assert open_checkpoint(tmp_path / "more.pt", **NAMED).describe()["keys"]["unexpected"] == ["loss.weight"]


def test_averaged_weights_are_offered_and_taken_by_name(tmp_path, net, make):
    average = torch.optim.swa_utils.AveragedModel(make())
    with torch.no_grad():
        average.module.norm.weight.fill_(5)
    torch.save({"net": net.state_dict(), "ema": average.state_dict(), "step": 7}, tmp_path / "both.pt")
    plain, averaged = open_checkpoint(tmp_path / "both.pt", **NAMED), open_checkpoint(tmp_path / "both.pt", weights="ema", **NAMED)
    torch.testing.assert_close(plain.module.norm.weight, net.norm.weight)
    assert (averaged.module.norm.weight == 5).all()
    assert any("averaged weights" in note for note in plain.describe()["notes"])
    with pytest.raises(CheckpointError, match="'swa'"):
        open_checkpoint(tmp_path / "both.pt", weights="swa", **NAMED)


def test_unknown_model_lists_what_was_seen_and_what_there_is(tmp_path):
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"2 tensors of an unknown model: bias, weight.*ClimaX"):
        open_checkpoint(tmp_path / "other.pt")
    torch.save({"epoch": 3}, tmp_path / "nothing.pt")
    with pytest.raises(CheckpointError, match="entries epoch"):
        inspect_checkpoint(tmp_path / "nothing.pt")


def test_climax_is_in_the_catalogue():
    assert any(e.key == "climax" and e.unavailable is None for e in catalogue("backbones"))


def test_an_entry_of_weights_is_not_asked_of_a_safetensors_file_unheard(tmp_path):
    import torch
    from safetensors.torch import save_file

    from engine.backbones._safe_load import read_state_dict
    from engine.errors import CheckpointError

    save_file({"a": torch.ones(3)}, tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match="ema"):
        read_state_dict(tmp_path / "m.safetensors", weights="ema")
