"""Classification with Gaussian-process attention: train the replaced network, draw members, rebuild it from its state."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.labelled import Classifier, Classifies, Examples, OnProgress
from engine.methods._forwards import by_case, known
from engine.types import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

    from engine.methods._gp_attention import GpAttention

PATIENCE = 10
"""Epochs without a better validation before training stops (our choice)."""
WEIGHTS = "module."


class GpMethod(Classifies):
    """Trained from newly drawn weights with the last attentions replaced: loss = CE of one draw + Σ η · penalty.

    The KL enters as η_kl · KL / (number of fit examples), as it stands in an evidence lower bound per example; validation, for the
    choice of the epoch, is the NLL of the mean network (both our choice).
    """

    needs = frozenset({"training"})
    facts: tuple[str, ...]
    """Names of the whole-number parameters that shape the network; the state holds them beside the weights."""

    def make(self, facts: Mapping[str, int]) -> "Callable[[int, int, float], GpAttention]":
        """Of width, heads and dropout, the attention that these facts describe."""
        raise NotImplementedError

    def check(self, classifier: Classifier, params: Any) -> None:
        """Raises SpecError for more attentions than there are, AttentionError where they cannot be replaced."""
        self._network(classifier, {name: int(getattr(params, name)) for name in self.facts}, 0)

    def penalty(self, attn: "GpAttention", params: Any, examples: int) -> "Tensor":
        """What one attention adds to the loss."""
        return params.eta_kl / examples * attn.penalties["kl"]

    def learn(
        self,
        classifier: Classifier,
        fit: Examples | None,
        calibrate: Examples | None,
        *,
        params: Any,
        seed: int,
        report: OnProgress = lambda done, total, message: None,
        folder: Path | None = None,
    ) -> "dict[str, Tensor]":
        """Weights under `module.`, and the facts as 0-d tensors. Raises DatasetError without labelled fit examples,
        AttentionError where the network's attention cannot be replaced, RunError where the training diverges.
        """
        import torch

        from engine.methods._gp_attention import gp_attentions
        from engine.methods._train import fit_classifier

        examples = known(fit, "fit split")
        facts = {name: int(getattr(params, name)) for name in self.facts}
        module = self._network(classifier, facts, seed)
        replaced = [attn for _, attn in gp_attentions(module)]

        def extra() -> "Tensor":
            return torch.stack([self.penalty(attn, params, len(examples)) for attn in replaced]).sum()

        fit_classifier(
            lambda inputs: classifier.logits(inputs, module),
            module,
            examples,
            calibrate if calibrate is not None and len(calibrate) else None,
            extra=extra,
            epochs=params.epochs,
            batch=params.batch,
            lr=params.lr,
            weight_decay=params.weight_decay,
            seed=seed,
            patience=PATIENCE,
            report=report,
            what=self.title,
            folder=folder,
        )
        state = {WEIGHTS + name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
        return state | {name: torch.tensor(value) for name, value in facts.items()}

    def rebuild(self, classifier: Classifier, state: "Mapping[str, Tensor]") -> "nn.Module":
        """The trained network in eval mode without gradients; `classifier.stack` of it has `moments` where attention was replaced."""
        module = self._network(classifier, {name: int(state[name]) for name in self.facts}, 0)
        module.load_state_dict({name.removeprefix(WEIGHTS): value for name, value in state.items() if name.startswith(WEIGHTS)})
        return module.eval().requires_grad_(False)

    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """One draw of every replaced attention a member: probabilities `(member, case, class)` float32."""
        from engine.methods._gp_attention import sampled

        del params, nu
        module = self.rebuild(classifier, state)

        def forward(rows: "Mapping[str, Tensor]", some: Sequence[int], case: int) -> "Tensor":
            with sampled(module, seed, some, [case] * len(some)):
                return classifier.logits(rows, module)

        return by_case(classifier, examples, members, forward)

    def parameters(self, classifier: Classifier, state: "Mapping[str, Tensor]") -> int:
        """Those of the trained network, which takes the frozen one's place."""
        return sum(p.numel() for p in self.rebuild(classifier, state).parameters())

    def _network(self, classifier: Classifier, facts: Mapping[str, int], seed: int) -> "nn.Module":
        from engine.methods._gp_attention import replace_attention

        module = replace_attention(classifier.fresh(seed), facts["last"], seed, self.make(facts))
        return module.to(next(classifier.module.parameters()).device)
