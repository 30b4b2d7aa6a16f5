"""Keyed randomness: one random stream per (seed, member, case, site, step), the same in any order, batch or process.

The key's text is hashed, never counted up: `blake2b-64("seed:member:case:site:stream")`, with ":step" behind it for the forwards after
the first (step 0). On a CPU torch would keep
32 of these 64 bits (its Mersenne twister is seeded by one word, so about one pair among 10^5 streams would be equal);
the whole state of 624 words is therefore filled from SHAKE-128 of the same text. Other devices have counter-based
generators that take all 64 bits. CPU streams are the same on every platform; a GPU has streams of its own.

The choice of hash is this project's; the papers only ask for independent draws per layer, head, query, example, pass.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_WORDS = 624
_STATE_BYTES = 5056  # torch's CPU generator: four 64-bit fields (seed, left and seeded, next), 624 words, the normal's cache


def key_text(seed: int, member: int, case: int, site: int, stream: int = 0, step: int = 0) -> bytes:
    """Bytes that name one stream; integers of any size and sign. Step 0 adds nothing."""
    text = b"%d:%d:%d:%d:%d" % (seed, member, case, site, stream)
    return text + b":%d" % step if step else text


def key64(seed: int, member: int = 0, case: int = 0, site: int = 0, stream: int = 0, step: int = 0) -> int:
    """64-bit key of a stream, in [0, 2^64): blake2b of the key's text, equal in every process and on every platform."""
    return int.from_bytes(hashlib.blake2b(key_text(seed, member, case, site, stream, step), digest_size=8).digest(), "little")


def generator(
    seed: int, member: int = 0, case: int = 0, site: int = 0, *, stream: int = 0, step: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A fresh generator on `device` for one stream; equal arguments give equal streams.

    Arguments: `seed` of the run; `member` of the ensemble; `case` id of the example; `site`, the attention call's
    index in a forward; `stream`, for callers that need several streams at one site; `step`, the forward's number.
    """
    made = torch.Generator(device).manual_seed(key64(seed, member, case, site, stream, step))
    if made.device.type == "cpu":
        state = made.get_state()
        if state.numel() == _STATE_BYTES:
            digest = hashlib.shake_128(key_text(seed, member, case, site, stream, step)).digest(4 * _WORDS)
            words = np.frombuffer(digest, dtype="<u4").astype(np.int64)
            state.view(torch.int64)[3 : 3 + _WORDS] = torch.from_numpy(words)
            made.set_state(state)
    return made


@dataclass(frozen=True)
class RowKeys:
    """The keys of a batch's cases: row block `i` belongs to `(seed, members[i], cases[i], site)` of a forward `step`.

    A batch whose length is a multiple of the number of cases holds the rows of a case one after another
    (batch-major folding, as in windowed attention); they share one stream.
    """

    seed: int
    members: tuple[int, ...]
    cases: tuple[int, ...]
    site: int
    step: int = 0
    stream: int = 0

    @classmethod
    def of(
        cls, batch: int, seed: int, member: int | Sequence[int] | Tensor, case: Sequence[int] | Tensor | None, site: int, step: int = 0
    ) -> "RowKeys":
        """Keys for a batch of `batch` rows; `case` defaults to 0…n-1, n the number of members or rows."""
        members = None if isinstance(member, int) else _integers(member)
        cases = tuple(range(batch if members is None else len(members))) if case is None else _integers(case)
        members = (int(member),) * len(cases) if members is None else members  # type: ignore[arg-type]
        if len(members) != len(cases):
            raise ValueError(f"{len(members)} members for {len(cases)} cases; expected one member a case, or a single member")
        if not cases or batch % len(cases):
            raise ValueError(f"a batch of {batch} rows for {len(cases)} cases; expected a multiple")
        return cls(int(seed), members, cases, int(site), int(step))

    def __len__(self) -> int:
        """Number of cases."""
        return len(self.cases)

    def generators(self, device: torch.device | str, stream: int | None = None) -> list[torch.Generator]:
        """One fresh generator a case, in order; of the keys' own stream unless another is named."""
        used = self.stream if stream is None else stream
        return [generator(self.seed, m, c, self.site, stream=used, step=self.step, device=device) for m, c in self]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Pairs of member and case."""
        return iter(zip(self.members, self.cases, strict=True))


def uniforms(generators: Sequence[torch.Generator], rows: Sequence[int], width: int, device: torch.device) -> Tensor:
    """Uniform float32 in [0, 1) on a grid of 2^-24, shape `(sum(rows), width)`; block `i` comes from `generators[i]` alone."""
    out = torch.empty(sum(rows), width, device=device)
    start = 0
    for source, count in zip(generators, rows, strict=True):
        if count:
            out[start : start + count].uniform_(generator=source)
        start += count
    return out


def _integers(values: Sequence[int] | Tensor) -> tuple[int, ...]:
    listed = values.tolist() if isinstance(values, Tensor | np.ndarray) else list(values)
    return tuple(int(value) for value in (listed if isinstance(listed, list) else [listed]))
