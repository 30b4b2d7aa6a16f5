"""A text classifier of our own: words to class logits. Sizes are read from the weights, the rest is recorded in the checkpoint."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator, Field

from engine.backbones._encoder_file import PLACES, EncoderClassifier, Recorded, different
from engine.backbones._labels import check_kind, labels_of
from engine.labelled import Examples, Labelled

if TYPE_CHECKING:
    from torch import nn

PADDING, UNKNOWN, FIRST = 0, 1, 2
"""Numbers of no word, of a word outside the vocabulary, and of the vocabulary's first word."""

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Lower-case words, with their inner apostrophes, and each punctuation mark by itself (our choice)."""
    return _WORD.findall(text.lower())


def make_vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """The `size` most frequent words (fewer where there are fewer), the most frequent first, equals in alphabetical order."""
    counts = Counter(word for text in texts for word in words_of(str(text)))
    return sorted(counts, key=lambda word: (-counts[word], word))[:size]


class _Recorded(Recorded):
    length: int = Field(ge=1, le=PLACES)
    vocabulary: Annotated[tuple[str, ...], AfterValidator(different)]


class TextEncoder(EncoderClassifier):
    """Facts: class names in order; num_heads; length, the most words of a text that are read; vocabulary, its words in order.

    Keys `embedding.embed`, then as in `vit`. Row 0 of the embedding is padding, row 1 any unknown word, row 2 + i the vocabulary's
    word i. `dropout` (0 where it is not recorded) is what training used.
    """

    key = "text_encoder"
    title = "Text encoder"
    kind = "text"
    required = ("classes", "num_heads", "length", "vocabulary")
    recorded = _Recorded
    embedding_keys = ("embedding.embed.weight",)

    @staticmethod
    def recognise(keys: Sequence[str]) -> bool:
        """Our encoder's blocks behind a word embedding."""
        return "embedding.embed.weight" in keys and "blocks.0.attn.qkv.weight" in keys

    def build(self) -> "nn.Module":
        """Words and the encoder."""
        from engine.backbones._encoder import Encoder, Words

        words = Words(FIRST + len(self.plan["vocabulary"]), self.plan["length"], self._sizes["width"])
        return Encoder(words, **self.sizes(), dropout=self.plan["dropout"])

    def prepare(self, labelled: Labelled, first_id: int = 0) -> Examples:
        """Word numbers `(case, length)`: the first `length` words, then padding. Raises DatasetError for another kind or class list."""
        import torch

        check_kind(self, labelled)
        number = {word: FIRST + i for i, word in enumerate(self.plan["vocabulary"])}
        tokens = np.full((len(labelled), self.plan["length"]), PADDING, np.int64)
        for row, text in zip(tokens, labelled.inputs, strict=True):
            found = [number.get(word, UNKNOWN) for word in words_of(str(text))[: len(row)]]
            row[: len(found)] = found
        return Examples({"tokens": torch.from_numpy(tokens)}, labels_of(self, labelled), tuple(range(first_id, first_id + len(labelled))))


def new_text_encoder(
    classes: Sequence[str],
    vocabulary: Sequence[str],
    length: int,
    width: int,
    depth: int,
    num_heads: int,
    hidden: int,
    dropout: float,
    seed: int,
) -> TextEncoder:
    """An untrained text classifier, its weights drawn from `seed`; `vocabulary` as `make_vocabulary` gives it."""
    import torch

    from engine.backbones._encoder import Encoder, Words

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Encoder(Words(FIRST + len(vocabulary), length, width), width, depth, num_heads, hidden, len(classes), dropout)
    told = {"num_heads": num_heads, "length": length, "vocabulary": list(vocabulary), "dropout": dropout}
    return TextEncoder.untrained(net, classes=list(classes), **told)


ENTRIES = (TextEncoder,)
"""The classes that `open_checkpoint` tries."""
