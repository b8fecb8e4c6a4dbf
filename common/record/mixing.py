"""Hashes of sample ids: sums of mixed words, so that they add up over replicas and over steps.

Two hashes of what replicas received, both sums modulo 2^64 over samples:

multiset  of a word of (step, sample id): whoever received what, equal samples at equal steps give
          an equal sum over the replicas. It does not depend on the placement.
placed    of a word of (step, sample id, replica, position in the local batch): what the plan's own
          share, in its order, must give.

They find accidents, not malice: one in 2^64 slips through. The words are mixed by the finalizer of
SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = (np.uint64(shift) for shift in (30, 27, 31, 32))


def mix(words: Words) -> Words:
    """A bijection of 64-bit words that leaves no pattern; `words` is an array, not a scalar."""
    result = words + _GOLDEN
    result ^= result >> _30
    result *= _FIRST
    result ^= result >> _27
    result *= _SECOND
    result ^= result >> _31
    return result


def multiset_words(step_words: Words, ids: NDArray[np.int64]) -> Words:
    """A word for each sample; `step_words` is `mix` of its step, one for all or one for each."""
    return mix(ids.view(np.uint64) + step_words)


def place_words(sizes: NDArray[np.int64], replicas: NDArray[np.int64]) -> Words:
    """A word for each place of local batches of these sizes, on these replicas, one after another.

    `mix` of its sum with that of `multiset_words` is the word of a sample at its place.
    """
    positions = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return mix((np.repeat(replicas, sizes).astype(np.uint64) << _32) | positions.astype(np.uint64))


def sums(words: Words, sizes: NDArray[np.int64]) -> Words:
    """Return uint64 (runs,): sums modulo 2^64 of consecutive runs of `words` (n,); `sizes` (runs,) may have zeros."""
    ends = np.cumsum(sizes)
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])
    result: Words = before[ends] - before[ends - sizes]
    return result


def id_hashes(
    steps: NDArray[np.int64], replicas: NDArray[np.int64], ids: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[Words, Words]:
    """The multiset and the placed hashes [step, replica] of many local batches at once.

    `ids` lie step by step and within a step replica by replica; `sizes` [step, replica] cuts them.
    """
    step_words = np.repeat(mix(steps.astype(np.uint64)), sizes.sum(axis=1))
    words, flat = multiset_words(step_words, ids), sizes.ravel()
    places = place_words(flat, np.tile(replicas, len(steps)))
    multiset, placed = (sums(each, flat).reshape(sizes.shape) for each in (words, mix(words + places)))
    return multiset, placed
