"""Keyed noise: equal keys give equal streams everywhere, different keys different ones."""

import subprocess
import sys

import pytest
import torch

from engine.kernels.noise import RowKeys, generator, key64, uniforms


def test_keys_are_fixed_numbers():
    """A key is written down here: a change of hash would silently change every published ensemble."""
    assert key64(0) == int.from_bytes(__import__("hashlib").blake2b(b"0:0:0:0:0", digest_size=8).digest(), "little")
    assert key64(1, 2, 3, 4) != key64(1, 2, 4, 3)
    assert 0 <= key64(-5, 10**30) < 2**64


def test_streams_do_not_depend_on_the_process():
    """Python's own hash is salted per process; ours must not be."""
    code = "import torch; from engine.kernels.noise import generator; print(torch.rand(3, generator=generator(7, 1, 2, 3)).tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(torch.rand(3, generator=generator(7, 1, 2, 3)).tolist())


def test_all_64_bits_count():
    """Two seeds that agree in the 32 bits torch would keep give different streams."""
    pair = [torch.Generator().manual_seed(7), torch.Generator().manual_seed(7 + 2**40)]
    assert torch.equal(*(torch.rand(4, generator=g) for g in pair)), "torch keeps more bits now: the state need not be filled by hand"
    streams = {tuple(torch.rand(2, generator=generator(0, 0, case)).tolist()) for case in range(20_000)}
    assert len(streams) == 20_000


def test_streams_are_uniform_and_uncorrelated():
    """Moments within 5 standard errors over neighbouring keys."""
    draws = torch.stack([torch.rand(500, generator=generator(3, 0, case, 1)) for case in range(400)]).double()
    error = (1 / 12 / draws.numel()) ** 0.5
    assert abs(float(draws.mean()) - 0.5) < 5 * error
    centred = draws - 0.5
    neighbours = float((centred[1:] * centred[:-1]).mean()) * 12
    assert abs(neighbours) < 5 / (399 * 500) ** 0.5


def test_rows_draw_from_their_own_source():
    """Blocks of a batch equal the blocks drawn alone, in any order, also with no rows."""
    keys = RowKeys.of(6, 1, [0, 0, 2], [4, 5, 4], 3)
    together = uniforms(keys.generators("cpu"), [2, 0, 3], 5, torch.device("cpu"))
    alone = uniforms([generator(1, 2, 4, 3)], [3], 5, torch.device("cpu"))
    assert torch.equal(together[2:], alone)
    assert float(together.max()) < 1.0


@pytest.mark.parametrize(("batch", "member", "case"), [(5, 0, [1, 2]), (4, [0, 1, 2], [1, 2]), (3, 0, [])])
def test_keys_that_do_not_fit_are_refused(batch, member, case):
    """A batch must be a multiple of its cases, with one member each."""
    with pytest.raises(ValueError, match="expected"):
        RowKeys.of(batch, 0, member, case, 0)
