"""What the names of layers say: their words, in one spelling, and their numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_TOKEN = re.compile(r"[0-9]+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# One spelling for what both worlds call differently.
_SPELLINGS = {
    "attn": "attention",
    "mha": "attention",
    "multihead": "attention",
    "bn": "norm",
    "ln": "norm",
    "gn": "norm",
    "batchnorm": "norm",
    "layernorm": "norm",
    "groupnorm": "norm",
    "normalization": "norm",
    "batch": "norm",
    "rmsnorm": "norm",
    "conv": "convolution",
    "conv1d": "convolution",
    "conv2d": "convolution",
    "c": "convolution",
    "dw": "depthwise",
    "dwconv": "depthwise",
    "pw": "pointwise",
    "pwconv": "pointwise",
    "fc": "dense",
    "linear": "dense",
    "lin": "dense",
    "predictions": "classifier",
    "logits": "classifier",
    "head": "classifier",
    "proj": "projection",
    "project": "projection",
    "q": "query",
    "k": "key",
    "v": "value",
    "o": "output",
    "out": "output",
    "ffn": "feedforward",
    "mlp": "feedforward",
    "intermediate": "feedforward",
    "wte": "token",
    "word": "token",
    "tok": "token",
    "wpe": "position",
    "pos": "position",
    "positional": "position",
    "embed": "embedding",
    "embeddings": "embedding",
    "emb": "embedding",
    "cls": "class",
    "se": "squeeze",
    "downsample": "shortcut",
    "identity": "shortcut",
    "residual": "shortcut",
    "skip": "shortcut",
    "fwd": "forward",
    "bwd": "backward",
    "reverse": "backward",
    "enc": "encoder",
    "dec": "decoder",
}
# Said of everything, so nothing.
_EMPTY = frozenset(
    [
        "weight",
        "kernel",
        "module",
        "model",
        "layers",
        "layer",
        "self",
        "bias",
        "gamma",
        "beta",
        "features",
        "backbone",
        "net",
        "dense",
        "block",
        "blocks",
    ]
)


def words_of(name: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The words of a path in one spelling, and its numbers, both in their order."""
    words: list[str] = []
    numbers: list[int] = []
    for token in _TOKEN.findall(name):
        if token.isdigit():
            numbers.append(int(token[:9]))
            continue
        word = _SPELLINGS.get(token.lower(), token.lower())
        if word not in words:
            words.append(word)
    return tuple(words), tuple(numbers)


def ranked(numbers: Sequence[tuple[tuple[str, ...], tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """Each name's numbers by their rank among names of the same words: block 1 of one world is block 0 of the other."""
    seen: dict[tuple[tuple[str, ...], int, int], set[int]] = {}
    for words, values in numbers:
        for place, value in enumerate(values):
            seen.setdefault((words, len(values), place), set()).add(value)
    ranks = {key: {value: rank for rank, value in enumerate(sorted(values))} for key, values in seen.items()}
    return [
        tuple(ranks[words, len(values), place][value] for place, value in enumerate(values))
        for words, values in numbers
    ]


def weights_of(names: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """What each word tells: the rarer, the more."""
    counts = Counter(word for words in names for word in set(words))
    return {word: 0.1 if word in _EMPTY else 1.0 / (1.0 + count / 8.0) for word, count in counts.items()}


def likeness(
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    weights: dict[str, float],
    a: tuple[int, ...],
    b: tuple[int, ...],
) -> float:
    """0 to 1: how much two names say the same. a, b: their numbers, ranked."""
    shared, every = set(ours) & set(theirs), set(ours) | set(theirs)
    total = sum(weights.get(word, 1.0) for word in every)
    same = sum(weights.get(word, 1.0) for word in shared) / total if total else 0.0
    if not a and not b:
        return same
    if not a or not b:
        return 0.7 * same
    length = min(len(a), len(b))
    # The last numbers are those of the innermost block; paths differ in what is around.
    ends = sum(x == y for x, y in zip(a[-length:], b[-length:], strict=True))
    starts = sum(x == y for x, y in zip(a[:length], b[:length], strict=True))
    return 0.6 * same + 0.4 * max(ends, starts) / max(len(a), len(b))
