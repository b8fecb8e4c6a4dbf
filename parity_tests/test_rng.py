"""Counter-based random numbers: published vectors, bijections, and values that look random."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.common.base import rng

KEYS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))

# Random123's kat_vectors, philox4x32-10: counter, key, output.
KNOWN_ANSWERS = {
    "zeros": (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    "ones": (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    "pi": ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
}


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def block(counter: list[int], key: list[int]) -> list[int]:
    arrays = [np.array([word], np.uint64) for word in counter]
    return rng.philox_block((key[0], key[1]), arrays)[0].tolist()


@pytest.mark.parametrize("name", KNOWN_ANSWERS)
def test_philox_gives_the_published_vectors(name: str) -> None:
    counter, key, output = map(words, KNOWN_ANSWERS[name])
    assert block(counter, key) == output


@pytest.mark.parametrize("word", range(6))
def test_each_word_of_counter_and_key_matters(word: int) -> None:
    counter, key, output = map(words, KNOWN_ANSWERS["pi"])
    inputs = counter + key
    inputs[word] ^= 1
    changed = block(inputs[:4], inputs[4:])
    # A good block function changes all four words, and about half of the 128 bits.
    flipped = sum((a ^ b).bit_count() for a, b in zip(changed, output, strict=True))
    assert 32 < flipped < 96
    assert all(a != b for a, b in zip(changed, output, strict=True))


@given(KEYS, st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_philox_uses_the_low_64_bits_of_the_counter(key: rng.Key, indices: list[int]) -> None:
    together = rng.philox(key, np.array(indices, np.uint64))
    for index, row in zip(indices, together.tolist(), strict=True):
        assert row == block([index & 0xFFFFFFFF, index >> 32, 0, 0], list(key))


def test_keys_differ_by_seed_purpose_and_context() -> None:
    arguments = [(0, "shuffle", 0), (1, "shuffle", 0), (0, "shuffle", 1), (0, "init", 0), (0, "shuffle")]
    keys = [rng.derive_key(*a) for a in arguments]
    assert len(set(keys)) == len(keys)
    assert rng.derive_key(0, "shuffle", 0) == keys[0]
    assert all(0 <= word < 2**32 for key in keys for word in key)


@given(KEYS, st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_the_short_cut_to_the_first_word_is_philox(key: rng.Key, low: list[int], high: int) -> None:
    words = np.array(low, np.uint64)
    zero = np.zeros_like(words)
    wanted = rng.philox_block(key, (words, np.full_like(words, high), zero, zero))[:, 0]
    assert np.array_equal(rng._first_word(key, words, high), wanted)
    assert words.tolist() == low, "the argument was changed"


def test_permutations_are_the_same_for_ever_and_however_many_at_once() -> None:
    """Numbers of the first release: records and other implementations depend on them."""
    key = rng.derive_key(0, "shuffle", 0)
    assert rng.permute(key, np.arange(5), 60_000).tolist() == [2179, 24253, 12379, 42234, 21236]
    assert rng.permute(key, np.arange(5), 10**8).tolist() == [
        28981115,
        81476845,
        85664014,
        46097030,
        60928372,
    ]
    many = rng.permute(key, np.arange(40_000), 60_000)
    assert np.array_equal(rng.permute(key, np.arange(40_000).reshape(4, -1), 60_000), many.reshape(4, -1))
    assert np.array_equal(rng.permute(key, np.arange(16_380, 16_390), 60_000), many[16_380:16_390])


@given(KEYS, st.integers(1, 5000), st.randoms())
@settings(max_examples=60, deadline=None)
def test_permute_is_a_bijection_and_any_subset_agrees(key: rng.Key, size: int, random: object) -> None:
    everything = rng.permute(key, np.arange(size), size)
    assert np.array_equal(np.sort(everything), np.arange(size))
    some = np.array([random.randrange(size) for _ in range(min(size, 7))])  # type: ignore[attr-defined]
    before = some.copy()
    assert np.array_equal(rng.permute(key, some, size), everything[some])
    assert np.array_equal(some, before), "the argument was changed"


@given(KEYS, KEYS, st.integers(60, 3000))
@settings(max_examples=40, deadline=None)
def test_permutations_differ_by_key(first: rng.Key, second: rng.Key, size: int) -> None:
    images = [rng.permute(key, np.arange(size), size) for key in (first, second)]
    # Two random permutations agree at one position on average; a Poisson tail beyond 20 is 1e-19.
    agreeing = int((images[0] == images[1]).sum())
    assert agreeing == size if first == second else agreeing < 20


def chi_square(counts: list[int], cells: int) -> float:
    expected = sum(counts) / cells
    return sum((count - expected) ** 2 / expected for count in counts) + (cells - len(counts)) * expected


def limit(cells: int) -> float:
    """Five sigma above the mean of a chi-square with cells - 1 degrees of freedom, and a bit for its tail."""
    freedom = cells - 1
    return freedom + 5 * math.sqrt(2 * freedom) + 10


@pytest.mark.parametrize("size", [2, 3, 10, 37])
def test_where_a_position_goes_is_uniform_over_keys(size: int) -> None:
    keys = [rng.derive_key(seed, "test") for seed in range(600)]
    images = np.array([rng.permute(key, np.arange(size), size) for key in keys])
    for position in (0, size // 2, size - 1):
        counts = list(Counter(images[:, position].tolist()).values())
        assert chi_square(counts, size) < limit(size)


@pytest.mark.parametrize("size", [3, 4])
def test_all_orders_of_a_small_batch_come_equally_often(size: int) -> None:
    keys = [rng.derive_key(seed, "orders") for seed in range(1200)]
    orders = Counter(tuple(rng.permute(key, np.arange(size), size).tolist()) for key in keys)
    assert set(orders) == set(itertools.permutations(range(size)))
    assert chi_square(list(orders.values()), math.factorial(size)) < limit(math.factorial(size))


def test_the_chi_square_sees_a_bias() -> None:
    assert chi_square([700, 800], 2) < limit(2) < chi_square([600, 900], 2)
    assert chi_square([750, 750], 3) > limit(3)  # a cell that is never reached


def test_neighbours_do_not_stay_neighbours() -> None:
    image = rng.permute((1, 2), np.arange(10_000), 10_000)
    assert (np.abs(np.diff(image)) == 1).sum() < 15  # two are expected
    correlation = np.corrcoef(np.arange(10_000), image)[0, 1]
    assert abs(correlation) < 5 / math.sqrt(10_000)


def test_a_shuffle_of_huge_size_is_still_one_to_one() -> None:
    size = 10**12 + 7
    positions = np.concatenate([np.arange(1000), size - 1 - np.arange(1000)])
    image = rng.permute((3, 4), positions, size)
    assert len(np.unique(image)) == len(image)
    assert image.min() >= 0 and image.max() < size
    assert image.max() > 0.9 * size and image.min() < 0.1 * size


def kolmogorov(values: np.ndarray, distribution: np.ndarray) -> float:
    """sqrt(n) times the largest distance of the empirical distribution from `distribution`."""
    n = len(values)
    ranks = np.arange(n)
    distance = max(np.max(distribution - ranks / n), np.max((ranks + 1) / n - distribution))
    return float(math.sqrt(n) * distance)


# P(sqrt(n) D > 2.2) is 2 exp(-2 * 2.2^2) = 1.2e-4.
KOLMOGOROV_LIMIT = 2.2


def normal_distribution(values: np.ndarray) -> np.ndarray:
    return np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in values])


def test_uniform_values_are_uniform() -> None:
    n = 40_000
    values = rng.uniform((5, 6), (n,))
    assert values.min() >= 0 and values.max() < 1
    assert abs(values.mean() - 0.5) < 5 * math.sqrt(1 / 12 / n)
    assert abs(values.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)  # Var((u - 1/2)^2) = 1/180
    assert kolmogorov(np.sort(values), np.sort(values)) < KOLMOGOROV_LIMIT
    assert kolmogorov(np.sort(values**1.05), np.sort(values**1.05)) > KOLMOGOROV_LIMIT


def test_normal_values_are_normal() -> None:
    n = 40_000
    values = np.sort(rng.normal((7, 8), (n,)))
    assert abs(values.mean()) < 5 / math.sqrt(n)
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((values**4).mean() - 3) < 5 * math.sqrt(96 / n)  # Var(x^4) = 105 - 9
    assert kolmogorov(values, normal_distribution(values)) < KOLMOGOROV_LIMIT
    assert kolmogorov(values, normal_distribution(1.1 * values)) > KOLMOGOROV_LIMIT


@pytest.mark.parametrize("draw", [rng.uniform, rng.normal])
def test_an_element_depends_on_its_index_alone(draw: object) -> None:
    values = draw((9, 10), (6, 5))  # type: ignore[operator]
    assert values.dtype == np.float64
    assert np.array_equal(draw((9, 10), (17,)), values.ravel()[:17])  # type: ignore[operator]
    assert np.array_equal(draw((9, 10), (30,)), values.ravel())  # type: ignore[operator]
    assert not np.isin(draw((9, 11), (30,)), values).any()  # type: ignore[operator]
    assert draw((9, 10), ()).shape == ()  # type: ignore[operator]
    assert draw((9, 10), (0, 3)).shape == (0, 3)  # type: ignore[operator]
