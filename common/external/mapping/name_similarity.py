"""What the names of layers say: their words, in one spelling, and their numbers."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

_TOKEN = re.compile(r"[0-9]+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# What both worlds call differently, by the one spelling that is compared.
_SPELLINGS = {
    "attention": "attn mha multihead",
    "norm": "bn ln gn batchnorm layernorm groupnorm rmsnorm normalization batch",
    "convolution": "conv conv1d conv2d c",
    "depthwise": "dw dwconv",
    "pointwise": "pw pwconv",
    "dense": "fc linear lin",
    "classifier": "predictions logits head",
    "projection": "proj project",
    "query": "q",
    "key": "k",
    "value": "v",
    "output": "o out",
    "feedforward": "ffn mlp intermediate",
    "token": "wte word tok",
    "position": "wpe pos positional",
    "embedding": "embed embeddings emb",
    "class": "cls",
    "squeeze": "se",
    "shortcut": "downsample identity residual skip",
    "forward": "fwd",
    "backward": "bwd reverse",
    "encoder": "enc",
    "decoder": "dec",
    "candidate": "cand",
    "hidden": "hid",
}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
_ONE_SPELLING = {other: word for word, others in _SPELLINGS.items() for other in others.split()}
# Said of everything, so nothing.
_TENSORS = {"weight", "kernel", "bias", "gamma", "beta"}
_CONTAINERS = {"self", "module", "model", "net", "backbone", "features", "layers", "layer", "block", "blocks"}
_EMPTY = _TENSORS | _CONTAINERS | {"dense"}


# The last part of a tensor's name, which says what it is in its layer.
OF_TENSORS = _TENSORS | {"embeddings", "moving_mean", "moving_variance", "running_mean", "running_var"}


def tokens_of(name: str) -> tuple[str | int, ...]:
    """The words of a path in one spelling and its numbers, as they stand."""
    found = (token.lower() for token in _TOKEN.findall(name))
    return tuple(int(token[:9]) if token.isdigit() else _ONE_SPELLING.get(token, token) for token in found)


def named_alike(ours: str, theirs: str) -> bool:
    """Whether the last parts of two paths have a word in common, which one of them may cut short: 'conv/real' and 'block.w_re'."""
    words = [
        [
            token
            for token in tokens_of(re.split(r"[/.]", name)[-1])
            if isinstance(token, str) and len(token) > 1
        ]
        for name in (ours, theirs)
    ]
    return any(one.startswith(other) or other.startswith(one) for one, other in itertools.product(*words))


_Tokens = tuple[str | int, ...]


def whole_names(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[_Tokens], list[_Tokens]]:
    """The names of both sides' tensors as tokens, without what they are in their layer, and without as much of what all of a side begin with as
    makes most of them equal.
    """
    sides = [[_path_of(name) for name in names] for names in (ours, theirs)]
    shortened = [[[each[cut:] for each in side] for cut in range(_shared(side) + 1)] for side in sides]
    one, other = max(itertools.product(*shortened), key=lambda pair: len({*pair[0]} & {*pair[1]}))
    return one, other


def _path_of(name: str) -> _Tokens:
    *path, last = re.split(r"[/.]", name)
    return tokens_of("/".join(path if last in OF_TENSORS else (*path, last)))


def _shared(names: Sequence[_Tokens]) -> int:
    """How many tokens all names begin with, of each at least one left."""
    places = zip(*(each[:-1] for each in names), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda tokens: len({*tokens}) == 1, places))


def words_of(name: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The words of a path in one spelling, and its numbers, both in their order."""
    words: list[str] = []
    numbers: list[int] = []
    for token in _TOKEN.findall(name):
        if token.isdigit():
            numbers.append(int(token[:9]))
            continue
        if token.lower() in _ORDINALS:
            numbers.append(_ORDINALS.index(token.lower()))
            continue
        word = _ONE_SPELLING.get(token.lower(), token.lower())
        if word not in words:
            words.append(word)
    return tuple(words), tuple(numbers)


def ranked(numbers: Sequence[tuple[tuple[str, ...], tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """Each name's numbers by their rank among names of the same words: block 1 of one world is block 0 of the other.

    Where some of these have more numbers than others, as 'stage1.0', 'stage1.1' and 'stage2', by the rank of all of them.
    """
    lengths: dict[tuple[str, ...], set[int]] = {}
    for words, values in numbers:
        if values:
            lengths.setdefault(words, set()).add(len(values))
    parts = [(values,) if values and len(lengths[words]) > 1 else values for words, values in numbers]
    seen: dict[object, set[Any]] = {}
    for (words, _), part in zip(numbers, parts, strict=True):
        for place, value in enumerate(part):
            seen.setdefault((words, len(part), place), set()).add(value)
    ranks = {key: {value: rank for rank, value in enumerate(sorted(values))} for key, values in seen.items()}
    return [
        tuple(ranks[words, len(part), place][value] for place, value in enumerate(part))
        for (words, _), part in zip(numbers, parts, strict=True)
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
