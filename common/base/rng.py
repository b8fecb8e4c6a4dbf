"""Counter-based random numbers: every value is a pure function of (seed, purpose, index).

Nothing here is a stream, so neither the replica count nor the order of calls can change a value.
The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
1, 2, 3", SC 2011). It needs only 32-bit multiplications, so that TensorFlow and PyTorch can compute
the same bits on any device.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_FEISTEL_ROUNDS = 6
_PART = 1 << 14

Key = tuple[int, int]
Words = NDArray[np.uint64]


def derive_key(seed: int, purpose: str, *context: int | str) -> Key:
    """Two 32-bit words that identify (seed, purpose, context), e.g. (0, "shuffle", epoch)."""
    text = "/".join([str(seed), purpose, *map(str, context)])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def philox(key: Key, index: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Four random 32-bit words for each counter value.

    Args:
        key: from `derive_key`.
        index: any shape, the low 64 bits of the 128-bit counter.

    Returns:
        uint32 of shape `index.shape + (4,)`.
    """
    index = np.asarray(index, np.uint64)
    zero = np.zeros_like(index)
    return philox_block(key, (index & _LOW, index >> _SHIFT, zero, zero))


def philox_block(key: Key, counter: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint32]:
    """Philox4x32-10 of whole 128-bit counters, given as four arrays of 32-bit words, lowest first."""
    x0, x1, x2, x3 = counter
    key_0, key_1 = key
    for _ in range(10):
        product_0 = x0 * _MULTIPLIER_0
        product_1 = x2 * _MULTIPLIER_1
        x0, x1, x2, x3 = (
            (product_1 >> _SHIFT) ^ x1 ^ np.uint64(key_0),
            product_1 & _LOW,
            (product_0 >> _SHIFT) ^ x3 ^ np.uint64(key_1),
            product_0 & _LOW,
        )
        key_0 = (key_0 + _WEYL_0) & 0xFFFFFFFF
        key_1 = (key_1 + _WEYL_1) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def sample_words(key: Key, step: int, sample_ids: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
    """`count` random 32-bit words for each sample at a step: (samples, count).

    A sample's words depend on its id, not on its place in a batch. Counter: block of four words,
    step, and the sample id's low and high halves.
    """
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    ids = np.asarray(sample_ids).astype(np.uint64)[:, None]
    shape = (len(ids), len(blocks))
    counter = [blocks, np.full((1, 1), step, np.uint64), ids & _LOW, ids >> _SHIFT]
    words = philox_block(key, [np.broadcast_to(word, shape) for word in counter])
    return words.reshape(len(ids), 4 * len(blocks))[:, :count]


def below(words: NDArray[np.unsignedinteger], limit: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """32-bit words as whole numbers from 0 to limit - 1; evenly, up to 2^-32."""
    return ((np.asarray(words, np.uint64) * np.asarray(limit, np.uint64)) >> _SHIFT).astype(np.int64)


def fractions(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Each two words of the last axis as a number in [0, 1) with 53 random bits: (n, words / 2)."""
    wide = words.astype(np.uint64)
    bits = ((wide[:, 0::2] << _SHIFT) | wide[:, 1::2]) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def uniform(key: Key, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Uniform float64 in [0, 1) with 53 random bits; element i depends on i alone."""
    result = np.empty(math.prod(shape))
    for part, first, _ in _pairs(key, len(result)):
        result[part] = first
    return result.reshape(shape)


def normal(key: Key, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal float64 by the Box-Muller transform; element i depends on i alone."""
    result = np.empty(math.prod(shape))
    for part, first, second in _pairs(key, len(result)):
        # 1 - u lies in (0, 1], so the logarithm is finite.
        result[part] = np.sqrt(-2.0 * np.log(1.0 - first)) * np.cos(2.0 * np.pi * second)
    return result.reshape(shape)


def _pairs(key: Key, size: int) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64]]]:
    """Two uniform numbers for each of `size` counter values, in parts that stay in the cache."""
    for start in range(0, size, _PART):
        part = slice(start, min(start + _PART, size))
        numbers = fractions(philox(key, np.arange(part.start, part.stop, dtype=np.uint64)))
        yield part, numbers[:, 0], numbers[:, 1]


def permute(key: Key, positions: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Images of `positions` under a keyed permutation of range(size), without building it.

    A Feistel network over a grid of rows x columns just larger than `size`, with cycle walking
    (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). Memory is that of
    `positions`, whatever `size`: a shuffle of 10^8 samples costs nothing but the batch asked for.
    """
    positions = np.asarray(positions, np.int64)
    if size <= 1:
        return positions.copy()
    columns = math.isqrt(size - 1) + 1
    rows = -(-size // columns)
    flat, result = positions.ravel(), np.empty(positions.size, np.int64)
    for start in range(0, len(flat), _PART):
        part = _feistel(key, flat[start : start + _PART].astype(np.uint64), rows, columns)
        outside = np.flatnonzero(part >= size)
        # Each walk ends: iterating a permutation of the grid from a point inside returns inside.
        while len(outside):
            part[outside] = _feistel(key, part[outside], rows, columns)
            outside = outside[part[outside] >= size]
        result[start : start + _PART] = part
    return result.reshape(positions.shape)


def _feistel(key: Key, values: Words, rows: int, columns: int) -> Words:
    height, width = np.uint64(rows), np.uint64(columns)
    row = values // width
    column = values - row * width
    for round_number in range(_FEISTEL_ROUNDS):
        side, other, size = (row, column, height) if round_number % 2 == 0 else (column, row, width)
        side += _first_word(key, other, round_number << 16)
        # NumPy divides by one number several times faster than it takes remainders.
        side -= side // size * size
    row *= width
    row += column
    return row


def _first_word(key: Key, low: Words, high: int) -> Words:
    """Word 0 of `philox_block(key, (low, high, 0, 0))`, four times as fast.

    What is one number for all counters in the first rounds stays one, what no one reads in the last is
    left out, and all else is computed in place.
    """
    keys = [
        ((key[0] + number * _WEYL_0) & 0xFFFFFFFF, (key[1] + number * _WEYL_1) & 0xFFFFFFFF)
        for number in range(10)
    ]
    product = low * _MULTIPLIER_0
    x2 = product >> _SHIFT
    x2 ^= np.uint64(keys[0][1])
    constant = (high ^ keys[0][0]) * int(_MULTIPLIER_0)
    product &= _LOW
    product ^= np.uint64((constant >> 32) ^ keys[1][1])
    x1 = x2 * _MULTIPLIER_1
    x0 = x1 >> _SHIFT
    x0 ^= np.uint64(keys[1][0])
    x1 &= _LOW
    x2, x3 = product, np.full_like(low, constant & 0xFFFFFFFF)
    shifted = np.empty_like(low)
    for key_0, key_1 in keys[2:8]:
        x0 *= _MULTIPLIER_0
        x2 *= _MULTIPLIER_1
        np.right_shift(x2, _SHIFT, out=shifted)
        x1 ^= shifted
        x1 ^= np.uint64(key_0)
        np.right_shift(x0, _SHIFT, out=shifted)
        x3 ^= shifted
        x3 ^= np.uint64(key_1)
        x0 &= _LOW
        x2 &= _LOW
        x0, x1, x2, x3 = x1, x2, x3, x0
    x0 *= _MULTIPLIER_0
    x0 >>= _SHIFT
    x0 ^= x3
    x0 ^= np.uint64(keys[8][1])
    x2 *= _MULTIPLIER_1
    x2 &= _LOW
    x0 *= _MULTIPLIER_1
    x0 >>= _SHIFT
    x0 ^= x2
    x0 ^= np.uint64(keys[9][0])
    return x0
