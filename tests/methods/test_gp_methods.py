"""Networks with Gaussian-process attention: they learn, resume, draw reproducibly, and replace what they were asked to."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.backbones._encoder import Attention, Encoder, Patches
from engine.backbones._keys import Facts
from engine.backbones.vit import ViT
from engine.errors import AttentionError, DatasetError, SpecError
from engine.labelled import Examples
from engine.methods._gp_attention import GpAttention, sampled
from engine.methods.kep_svgp import KepSvgp
from engine.methods.sgpa import Sgpa

METHODS = {"kep_svgp": (KepSvgp(), {"rank": 3}), "sgpa": (Sgpa(), {"inducing": 4})}
FACTS = {"classes": ["low", "high"], "size": [8, 8, 1], "patch": 4, "num_heads": 2, "mean": [0.5], "sd": [0.25]}


@cache
def classifier() -> ViT:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Encoder(Patches((8, 8, 1), 4, 16), width=16, depth=3, num_heads=2, hidden=16, classes=2, dropout=0.0)
    return ViT(net.state_dict(), Facts("safetensors", 0, recorded=FACTS), Path("toy.safetensors"))


def toy(count: int, seed: int, first: int = 0) -> Examples:
    """Two classes of 8×8 images: which half is the brighter one, under noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    pixels = rng.standard_normal((count, 1, 8, 8)).astype(np.float32)
    pixels[:, 0, :4] += np.where(labels, 1.0, -1.0)[:, None, None].astype(np.float32)
    return Examples({"pixels": torch.from_numpy(pixels)}, torch.from_numpy(labels), tuple(range(first, first + count)))


def learned(key: str, folder: Path | None = None, epochs: int = 12, **more):
    method, own = METHODS[key]
    params = method.ClassParams(**own, epochs=epochs, batch=32, lr=5e-3, **more)
    return method, params, method.learn(classifier(), toy(192, 0), toy(64, 1, 1000), params=params, seed=7, folder=folder)


@cache
def once(key: str):
    return learned(key)


def classify(key: str, examples: Examples, members: int = 4, seed: int = 3) -> np.ndarray:
    method, params, state = once(key)
    return method.classify(classifier(), examples, state=state, params=params, nu=1, members=members, seed=seed)


@pytest.mark.parametrize("key", METHODS)
def test_learning_lifts_accuracy(key):
    test = toy(128, 5, 5000)
    p = classify(key, test)
    assert p.shape == (4, 128, 2) and p.dtype == np.float32 and np.allclose(p.sum(-1), 1, atol=1e-6)
    assert (p.mean(0).argmax(-1) == test.labels.numpy()).mean() > 0.8
    assert p.std(0).mean() > 1e-4  # members differ


@pytest.mark.parametrize("key", METHODS)
def test_members_are_reproducible_and_independent_of_the_split(key):
    test = toy(9, 6, 6000)
    p = classify(key, test)
    assert np.array_equal(p, classify(key, test))
    assert np.array_equal(p[:2], classify(key, test, members=2))
    apart = np.concatenate([classify(key, test.rows(slice(0, 2))), classify(key, test.rows(slice(2, 9)))], 1)
    assert np.array_equal(p, apart)
    assert not np.array_equal(p, classify(key, test, seed=4))


@pytest.mark.parametrize("key", METHODS)
def test_a_row_draws_by_its_key_alone(key):
    """Also within one batch, up to rounding; switched off, the mean comes back, and so it does after an error."""
    method, _, state = once(key)
    module, pixels = method.rebuild(classifier(), state), toy(4, 8).inputs["pixels"]
    with torch.no_grad():
        mean = module(pixels)
        with sampled(module, 1, [0, 0, 1, 1], [5, 6, 5, 6]):
            together = module(pixels)
        with sampled(module, 1, [1], [5]):
            alone = module(pixels[2:3])
        assert torch.allclose(together[2:3], alone, atol=1e-5)
        assert not torch.allclose(together, mean, atol=1e-3)
        with pytest.raises(ZeroDivisionError), sampled(module, 1, [0], [0]):
            raise ZeroDivisionError
        assert torch.equal(module(pixels), mean)


@pytest.mark.parametrize("key", METHODS)
def test_a_resumed_training_gives_the_weights_of_an_undisturbed_one(key, tmp_path):
    method, params, whole = learned(key, epochs=3)

    class Stop(Exception):
        pass

    def interrupt(done: int, total: int, message: str) -> None:
        if done == 8:  # in the second epoch of six steps
            raise Stop

    parts = toy(192, 0), toy(64, 1, 1000)
    with pytest.raises(Stop):
        method.learn(classifier(), *parts, params=params, seed=7, report=interrupt, folder=tmp_path)
    again = method.learn(classifier(), *parts, params=params, seed=7, folder=tmp_path)
    assert again.keys() == whole.keys() and all(torch.equal(again[n], whole[n]) for n in whole)


@pytest.mark.parametrize("key", METHODS)
def test_the_last_alone_are_replaced(key):
    method, _, state = learned(key, epochs=1, last=2)
    blocks = method.rebuild(classifier(), state).blocks
    assert [isinstance(b.attn, GpAttention) for b in blocks] == [False, True, True] and isinstance(blocks[0].attn, Attention)
    stack = classifier().stack(method.rebuild(classifier(), state))
    assert [step.moments is not None for step in stack.steps] == [False, True, True]


@pytest.mark.parametrize("key", METHODS)
def test_the_rebuilt_network_as_transitions(key):
    """Its noise-free path is the mean network; its moments' mean is what attends; parameters are its own alone."""
    method, _, state = once(key)
    module, inputs = method.rebuild(classifier(), state), toy(3, 9).inputs
    assert not any(p.requires_grad for p in module.parameters())
    stack = classifier().stack(module)
    assert torch.allclose(stack.forward(inputs), classifier().logits(inputs, module), atol=1e-6)
    states, middles, context = stack.path(inputs)
    for step, z, x in zip(stack.steps, middles, states[1:], strict=True):
        mean, variance = step.moments(z, context)
        assert torch.allclose(z + mean, x, atol=1e-6) and mean.shape == variance.shape == z.shape and (variance > 0).all()
    assert method.parameters(classifier(), state) == sum(p.numel() for p in module.parameters())
    assert all(isinstance(t, torch.Tensor) for t in state.values())


def test_branches_side_by_side():
    method, params, state = learned("kep_svgp", epochs=1, merge="concatenation")
    assert method.rebuild(classifier(), state).blocks[0].attn.proj.in_features == 2 * 2 * 3
    assert method.classify(classifier(), toy(2, 2), state=state, params=params, nu=1, members=2, seed=0).shape == (2, 2, 2)


@pytest.mark.parametrize("key", METHODS)
def test_what_cannot_be_trained_is_refused(key, monkeypatch):
    method, own = METHODS[key]
    params = method.ClassParams(**own, epochs=1)
    with pytest.raises(DatasetError, match="fit split"):
        method.learn(classifier(), None, None, params=params, seed=0)
    with pytest.raises(SpecError, match="3 attentions"):
        method.learn(classifier(), toy(8, 0), None, params=params.model_copy(update={"last": 4}), seed=0)
    monkeypatch.setattr(classifier(), "fresh", lambda seed: torch.nn.Linear(2, 2))
    with pytest.raises(AttentionError, match="attn"):
        method.learn(classifier(), toy(8, 0), None, params=params, seed=0)
