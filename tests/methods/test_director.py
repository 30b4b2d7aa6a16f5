"""DIRECTOR: sizes, losses, reproducibility, resuming, controls, and fields."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.backbones import open_checkpoint
from engine.backbones._encoder import Encoder, Patches
from engine.backbones._encoder_file import write_encoder
from engine.errors import AttentionError, DatasetError
from engine.labelled import Classifier, Labelled
from engine.methods._paths import diagnose
from engine.methods._student import Student, keyed_noise, matching
from engine.methods._teacher import Teacher, kernel_teacher
from engine.methods._transition import Transition
from engine.registry import get
from engine.stack import Stack, Step

DIRECTOR = get("methods", "director")
FACTS: dict[str, Any] = {
    "classes": ["left", "right", "top"],
    "size": [8, 8, 1],
    "patch": 4,
    "num_heads": 2,
    "mean": [0.5],
    "sd": [0.3],
    "dropout": 0.0,
}


def images(count: int, seed: int) -> Labelled:
    """One bright half an image, with noise: three classes that a small model learns in seconds."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    x = rng.uniform(0, 110, (count, 8, 8, 1))
    for i, label in enumerate(labels):
        part = [(slice(None), slice(0, 4)), (slice(None), slice(4, 8)), (slice(0, 4), slice(None))][label]
        x[i][part] += 90
    return Labelled("images", x.clip(0, 255).astype(np.uint8), labels.astype(np.int64), ("left", "right", "top"), "halves")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    torch.manual_seed(0)
    net = Encoder(Patches((8, 8, 1), 4, 16), 16, 2, 2, 16, 3, 0.0)
    path = write_encoder(net, tmp_path_factory.mktemp("vit") / "vit.safetensors", "vit", **FACTS)
    found: Any = open_checkpoint(path)
    return found


@pytest.fixture(scope="module")
def data(classifier: Classifier) -> tuple[Any, Any]:
    return classifier.prepare(images(240, 1)), classifier.prepare(images(60, 2), first_id=1000)


@pytest.fixture(scope="module")
def learned(classifier: Classifier, data: tuple[Any, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    params = DIRECTOR.ClassParams(loss="kl", epochs=25, batch=24, lr=5e-3)
    return params, DIRECTOR.learn(classifier, *data, params=params, seed=3)


def test_the_reference_vit_of_six_million_gives_a_student_of_two_point_seven() -> None:
    """arXiv 2602.08920: 6.24 M parameters to 2.7 M."""
    net = Encoder(Patches((32, 32, 3), 4, 384), 384, 7, 12, 384, 10, 0.0)
    from engine.backbones._encoder import encoder_stack

    def stack_of(module: Any) -> Stack:
        return encoder_stack(module, lambda x: x)

    student = Student(Transition(384, 12, 7), net, stack_of, train_ends=True)
    assert round(sum(p.numel() for p in net.parameters()) / 1e6, 2) == 6.24
    assert round(sum(t.numel() for t in student.trained().values()) / 1e6, 1) == 2.7


def test_the_student_learns_the_task(classifier: Classifier, data: tuple[Any, Any], learned: tuple[Any, Any]) -> None:
    params, state = learned
    p = DIRECTOR.classify(classifier, data[1], state=state, params=params, nu=0, members=8, seed=0)
    assert p.shape == (8, 60, 3)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-5)
    assert (p.mean(0).argmax(-1) == data[1].labels.numpy()).mean() > 0.85
    assert p.std(0).max() > 1e-4
    assert DIRECTOR.parameters(classifier, state) == sum(t.numel() for t in state.values())


def test_paths_depend_on_member_and_case_and_not_on_the_batch(
    classifier: Classifier, data: tuple[Any, Any], learned: tuple[Any, Any]
) -> None:
    params, state = learned
    options = {"state": state, "params": params, "nu": 0, "seed": 5}
    whole = DIRECTOR.classify(classifier, data[1], members=4, **options)
    parts = [DIRECTOR.classify(classifier, data[1].rows(slice(a, a + 7)), members=4, **options) for a in range(0, 60, 7)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=2e-6)
    np.testing.assert_array_equal(DIRECTOR.classify(classifier, data[1], members=4, **options), whole)
    np.testing.assert_allclose(DIRECTOR.classify(classifier, data[1], members=6, **options)[:4], whole, atol=2e-6)
    assert not np.allclose(DIRECTOR.classify(classifier, data[1], members=4, **(options | {"seed": 6})), whole, atol=1e-4)


def test_a_student_without_noise_gives_one_answer(classifier: Classifier, data: tuple[Any, Any]) -> None:
    params = DIRECTOR.ClassParams(epochs=1, noise="none")
    state = DIRECTOR.learn(classifier, *data, params=params, seed=0)
    p = DIRECTOR.classify(classifier, data[1], state=state, params=params, nu=0, members=5, seed=0)
    assert p.shape == (5, 60, 3)
    assert (p == p[0]).all()
    assert not any("sigma" in name for name in state)


def test_constant_noise_is_the_same_for_every_input() -> None:
    transition = Transition(8, 2, 3, noise="constant")
    x = torch.randn(5, 4, 8)
    t = torch.tensor([0, 1, 2, 1, 0])
    sigma = transition.spread(transition(x, t)[1], t)
    assert all(bool((sigma[i] == sigma[i, 0, 0]).all()) for i in range(5))
    assert sigma[0, 0, 0] == sigma[4, 0, 0]


def test_matching_off_leaves_the_task_alone() -> None:
    params = DIRECTOR.ClassParams(matching=False)
    assert params.weights("softmax") == (0.0, 0.0, 1.0)
    assert DIRECTOR.ClassParams().weights("softmax") == (0.8, 0.0, 0.2)
    assert DIRECTOR.ClassParams().weights("images") == (0.4, 0.2, 0.4)
    assert DIRECTOR.ClassParams(lambda_task=0.5).weights("text") == (0.5, 0.2, 0.5)


def test_a_resumed_distillation_is_the_undisturbed_one(classifier: Classifier, data: tuple[Any, Any], tmp_path: Path) -> None:
    params = DIRECTOR.ClassParams(epochs=3, batch=40)
    whole = DIRECTOR.learn(classifier, *data, params=params, seed=1)

    class Killed(Exception):
        pass

    def kill(done: int, total: int, message: str) -> None:
        del total, message
        if done == 9:
            raise Killed

    with pytest.raises(Killed):
        DIRECTOR.learn(classifier, *data, params=params, seed=1, folder=tmp_path, report=kill)
    resumed = DIRECTOR.learn(classifier, *data, params=params, seed=1, folder=tmp_path)
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_perfect_student_has_no_loss_and_w2_sees_both_parts(classifier: Classifier) -> None:
    student = Student(Transition(16, 2, 2), classifier.module, classifier.stack, train_ends=True)
    x = torch.randn(3, 4, 16)
    t = torch.arange(2).repeat_interleave(3)
    states = [x, torch.randn(3, 4, 16), torch.randn(3, 4, 16)]
    student.requires_grad_(False)
    mu, features = student.transition(torch.cat(states[:-1]), t)
    sigma = student.transition.spread(features, t)
    perfect = (states, list(mu.split(3)), list((sigma**2).split(3)), None)
    assert float(matching(student, perfect, "kl", 0.8, 0.0)) == pytest.approx(0, abs=1e-6)
    assert float(matching(student, perfect, "w2", 0.5, 0.5)) == pytest.approx(0, abs=1e-9)
    doubled = (states, list(mu.split(3)), list((4 * sigma**2).split(3)), None)
    assert float(matching(student, doubled, "w2", 1.0, 0.0)) == pytest.approx(0, abs=1e-9)
    assert float(matching(student, doubled, "w2", 0.0, 1.0)) == pytest.approx(float((sigma**2).mean()), rel=1e-5)


@pytest.mark.parametrize(("loss", "noise"), [("kl", "learned"), ("w2", "learned"), ("kl", "constant"), ("w2", "none")])
def test_the_matching_weighs_what_it_is_told(loss: str, noise: str, classifier: Classifier) -> None:
    """Each weight counts in proportion: λ_mean (and λ_var) of W₂², their sum before the KL and without noise."""
    torch.manual_seed(0)
    student = Student(Transition(16, 2, 2, noise=noise), classifier.module, classifier.stack, train_ends=True)
    states, means = ([torch.randn(3, 4, 16) for _ in range(n)] for n in (3, 2))
    path = (states, means, [torch.rand(3, 4, 16) + 0.1 for _ in range(2)], None)
    of_mean, of_var, of_both = (float(matching(student, path, loss, *w).detach()) for w in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.25)))
    mu, _ = student.transition(torch.cat(states[:-1]), torch.arange(2).repeat_interleave(3))
    assert of_mean > 0 and of_var > 0
    assert of_both == pytest.approx(0.5 * of_mean + 0.25 * of_var, rel=1e-5)
    if loss == "w2":
        assert of_mean == pytest.approx(float((mu - torch.cat(means)).square().mean().detach()), rel=1e-5)
    else:
        assert of_mean == pytest.approx(of_var)


def test_the_matching_alone_follows_the_teacher_and_knows_no_labels(data: tuple[Any, Any], tmp_path: Path) -> None:
    """λ_task = 0: the labels change nothing, and the transitions come nearer to the teacher's; with the matching off they do not."""
    torch.manual_seed(0)
    net = Encoder(Patches((8, 8, 1), 4, 16), 16, 2, 2, 16, 3, 0.0)
    for block in net.blocks:  # attention that moves its tokens: there is something to follow
        torch.nn.init.normal_(block.attn.qkv.weight, std=0.4)
        torch.nn.init.normal_(block.attn.proj.weight, std=0.4)
    lively: Any = open_checkpoint(write_encoder(net, tmp_path / "vit.safetensors", "vit", **FACTS))
    fit, held = data[0].rows(slice(0, 96)), data[1]
    wrong = type(fit)(fit.inputs, (fit.labels + 1) % 3, fit.ids)
    few = {"epochs": 10, "batch": 24, "lr": 5e-3}
    by = {"alone": {"lambda_mean": 1.0, "lambda_task": 0.0}, "both": {}, "off": {"matching": False}}
    params = {name: DIRECTOR.ClassParams(**few, **own) for name, own in by.items()}
    states = {name: DIRECTOR.learn(lively, fit, None, params=own, seed=3) for name, own in params.items()}
    again = DIRECTOR.learn(lively, wrong, None, params=params["alone"], seed=3)
    assert all(torch.equal(value, again[name]) for name, value in states["alone"].items())
    states["untrained"] = DIRECTOR._student(lively, params["alone"], 3).trained()
    path = Teacher(lively.stack()).path(held.inputs)
    errors = {
        name: float(matching(DIRECTOR._student(lively, params["both"], 0).restore(state), path, "w2", 1.0, 0.0))
        for name, state in states.items()
    }
    assert errors["alone"] < 0.7 * errors["untrained"]
    assert errors["both"] < 0.7 * errors["off"]


def test_beside_a_teacher_without_noise_the_matching_says_nothing_of_sigma(classifier: Classifier) -> None:
    """The KL would make it the size of the distillation error; so it is the default only where the teacher has a covariance."""
    default = DIRECTOR.ClassParams()
    assert default.matched_by == DIRECTOR.Params().matched_by == "w2" and default.weights("softmax")[1] == 0
    assert DIRECTOR.ClassParams(covariance="kernel").matched_by == "kl"
    assert DIRECTOR.ClassParams(loss="kl").matched_by == "kl" and DIRECTOR.ClassParams(covariance="sgpa", loss="w2").matched_by == "w2"
    student = Student(Transition(16, 2, 2), classifier.module, classifier.stack, train_ends=True)
    states = [torch.randn(3, 4, 16) for _ in range(3)]
    path = (states, [torch.randn(3, 4, 16) for _ in range(2)], [torch.zeros(3, 4, 16) for _ in range(2)], None)
    pulled = {}
    for loss in ("w2", "kl"):
        student.zero_grad()
        matching(student, path, loss, 0.8, 0.0).backward()
        bias = student.transition.sigma.bias
        pulled[loss] = 0.0 if bias.grad is None else float(bias.grad.abs().max())
    assert pulled["w2"] == 0 < pulled["kl"]


def test_gradients_flow_through_the_sampling(classifier: Classifier, data: tuple[Any, Any]) -> None:
    student = Student(Transition(16, 2, 2), classifier.module, classifier.stack, train_ends=True)
    x, context = student.start(data[0].rows(slice(0, 4)).inputs)
    eps = keyed_noise(2, x.shape[1:], 0, [0] * 4, range(4))
    student.tail(student.rollout(x, context, eps)[-1], context).square().sum().backward()
    assert student.transition.sigma.bias.grad is not None
    assert float(student.transition.sigma.bias.grad.abs().sum()) > 0
    assert student.ends is not None
    position: Any = student.ends.position
    assert float(position.grad.abs().sum()) > 0


def test_the_kernel_teacher_is_noisy_where_asked_and_chooses_its_scale(classifier: Classifier, data: tuple[Any, Any]) -> None:
    inputs = [data[0].rows(slice(0, 64)).inputs]
    asked: list[float] = []

    def nll(teacher: Teacher) -> float:
        asked.append(teacher.tau)
        return abs(teacher.tau - 0.3)

    teacher = kernel_teacher(classifier.stack(), inputs, nll)
    assert asked == [0.0, 0.03, 0.1, 0.3, 1.0]
    assert teacher.tau == 0.3
    _, _, variances, _ = teacher.path(inputs[0])
    assert all(bool((v > 0).all()) for v in variances)
    states, means, none, _ = Teacher(classifier.stack()).path(inputs[0])
    assert all(float(v.abs().max()) == 0 for v in none)
    assert all(torch.equal(a, b) for a, b in zip(states[1:], means, strict=True))


def test_a_stack_without_heads_has_no_kernel_covariance() -> None:
    step = Step(lambda x, c: x, lambda z, c: z)
    stack = Stack(lambda i: (i, None), (step,), lambda x, c: x, 4, 1, (), ())
    with pytest.raises(AttentionError, match="queries, keys and values"):
        kernel_teacher(stack, [], None)


def test_without_data_to_distil_on_it_refuses(classifier: Classifier) -> None:
    with pytest.raises(DatasetError, match="fit split: found none"):
        DIRECTOR.learn(classifier, None, None, params=DIRECTOR.ClassParams(), seed=0)


def test_path_diagnostics_are_what_they_say(classifier: Classifier, data: tuple[Any, Any], learned: tuple[Any, Any]) -> None:
    params, state = learned
    found = DIRECTOR.paths(classifier, data[1], state=state, params=params, members=6, seed=0)
    assert found["step_spread"].shape == (2,)
    assert (found["step_spread"] > 0).all()
    np.testing.assert_allclose(np.diag(found["step_correlation"]), 1)
    assert -1 <= found["step_correlation"][0, 1] <= 1
    assert (found["step_error"] < 1).all()  # better than staying where it was
    still = DIRECTOR._student(classifier, params, 0).restore(state)
    with torch.no_grad():
        for name, p in still.transition.named_parameters():
            if name.startswith("sigma"):
                p.fill_(0)
    assert diagnose(still, classifier.stack(), data[1], 4, 0)["step_sigma_variation"] == pytest.approx(np.zeros(2), abs=1e-6)


def test_low_rank_noise_is_shared_by_all_tokens_and_its_variance_is_stated() -> None:
    torch.manual_seed(0)
    transition = Transition(8, 2, 2, rank=3, low_rank=(1,))
    x = torch.randn(1, 5, 8)
    t = torch.ones(1, dtype=torch.long)
    mean, features = transition(x, t)
    eps = torch.randn(4000, 5, 8)
    drawn = torch.stack([transition.draw(x, 1, e[None])[0] for e in eps]) - mean[0]
    assert torch.linalg.matrix_rank(drawn.flatten(1).double(), rtol=1e-4) == 3
    torch.testing.assert_close(drawn.std(0), transition.spread(features, t)[0], rtol=0.08, atol=2e-3)


def test_a_silent_step_draws_nothing() -> None:
    transition = Transition(8, 2, 2, silent=(1,))
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(transition.draw(x, 1, torch.randn(2, 5, 8)), transition.draw(x, 1, None))
    assert not torch.allclose(transition.draw(x, 0, torch.randn(2, 5, 8)), transition.draw(x, 0, None))


@pytest.mark.parametrize("process", ["kep_svgp", "sgpa"])
def test_a_gaussian_process_teacher_is_trained_first_and_its_variance_is_exact(
    process: str, classifier: Classifier, data: tuple[Any, Any], tmp_path: Path
) -> None:
    fit, calibrate = (part.rows(slice(0, 40)) for part in data)
    params = DIRECTOR.ClassParams(covariance=process, teacher={"epochs": 1, "last": 1}, epochs=1, batch=20)
    state = DIRECTOR.learn(classifier, fit, calibrate, params=params, seed=0, folder=tmp_path)
    assert DIRECTOR.classify(classifier, fit, state=state, params=params, nu=0, members=2, seed=0).shape == (2, 40, 3)
    assert list((tmp_path / "teacher").iterdir())
    teacher = DIRECTOR._teacher(classifier, fit, calibrate, params, 0, lambda done, total, message: None, tmp_path)
    _, _, variances, _ = teacher.path(fit.inputs)
    assert float(variances[0].max()) == 0, "an attention that was left in place has no variance"
    assert bool((variances[1] > 0).all())


def test_a_kernel_teacher_distils(classifier: Classifier, data: tuple[Any, Any]) -> None:
    fit, calibrate = (part.rows(slice(0, 40)) for part in data)
    params = DIRECTOR.ClassParams(covariance="kernel", epochs=1, batch=20)
    state = DIRECTOR.learn(classifier, fit, calibrate, params=params, seed=0)
    assert all(bool(torch.isfinite(t).all()) for t in state.values())
