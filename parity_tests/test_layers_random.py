"""Keyed masks: the same bits in NumPy, TensorFlow and PyTorch, for a sample wherever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base import rng
from parity.common.spec.layers.random import threshold
from parity_tests.helpers.layers import Case, both, check_layer
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
words = st.integers(0, 2**32 - 1)


@given(
    key=st.tuples(words, words),
    step=words,
    ids=st.lists(st.integers(0, 2**63 - 1), min_size=0, max_size=5),
    count=st.integers(1, 19),
)
@FEW
def test_random_words_are_the_same_bits(
    peers: dict[str, Peer], key: tuple[int, int], step: int, ids: list[int], count: int
) -> None:
    facts = {"key": key, "step": step, "count": count}
    sample_ids = np.array(ids, np.int64)
    expected = rng.sample_words(key, step, sample_ids, count)
    assert expected.shape == (len(ids), count)
    for result in both(peers, "layers:words", facts, {"sample_ids": sample_ids}):
        assert (result["words"] == expected).all()
    moved = rng.sample_words(key, (step + 1) % 2**32, sample_ids, count)
    assert not ids or (moved != expected).any()


def test_words_belong_to_the_sample_and_not_to_its_place() -> None:
    key = rng.derive_key(0, "dropout", "a")
    together = rng.sample_words(key, 3, np.array([7, 2**40, 9]), 6)
    assert (rng.sample_words(key, 3, np.array([2**40]), 6) == together[1:2]).all()
    assert (rng.sample_words(key, 3, np.array([9, 7]), 6) == together[[2, 0]]).all()
    # Ids that share their low 32 bits are different samples.
    assert (rng.sample_words(key, 3, np.array([0]), 6) != together[1:2]).any()


def numpy_mask(case: Case, path: str, shape: tuple[int, ...], rate: float) -> np.ndarray:
    """Inverted dropout, element by element, from the words themselves."""
    drawn = rng.sample_words(
        rng.derive_key(case.seed, "dropout", path),
        case.step,
        case.arrays()["sample_ids"],
        int(np.prod(shape)),
    )
    return (drawn >= threshold(rate)).reshape(case.batch, *shape) / (1 - rate)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    rate=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    whole=st.sampled_from(["elements", "channels"]),
    draw=words,
)
@FEW
def test_dropout(
    peers: dict[str, Peer], vocabulary: Vocabulary, shape: Any, rate: float, whole: str, draw: int
) -> None:
    case = Case(({"kind": "dropout", "rate": rate, "whole": whole},), shape, draw=draw)
    mask_shape = shape if whole == "elements" else (*(1 for _ in shape[:-1]), shape[-1])
    mask = numpy_mask(case, "dropout", mask_shape, rate)
    check_layer(peers, vocabulary, case, lambda x, t: x * mask)


def test_the_rate_is_the_rate() -> None:
    case = Case(({"kind": "dropout", "rate": 0.3},), (1000,), batch=100)
    kept = numpy_mask(case, "dropout", (1000,), 0.3) > 0
    # 100,000 draws: a standard deviation of 0.0014.
    assert kept.mean() == pytest.approx(0.7, abs=0.006)


def passes(peers: dict[str, Peer], case: Case, **changes: Any) -> tuple[np.ndarray, np.ndarray]:
    tensorflow, torch = both(peers, "layers:forward_backward", {**case.facts, **changes}, case.arrays())
    return tensorflow["y"], torch["y"]


def test_evaluation_drops_nothing(peers: dict[str, Peer]) -> None:
    case = Case(({"kind": "dropout", "rate": 0.5},), (40,))
    for y in passes(peers, case, training=False):
        assert (y == case.arrays()["x"]).all()


@pytest.mark.parametrize("change", [{"step": 6}, {"seed": 2}])
def test_another_step_or_seed_is_another_mask(peers: dict[str, Peer], change: dict[str, int]) -> None:
    case = Case(({"kind": "dropout", "rate": 0.5},), (40,))
    for before, after in zip(passes(peers, case), passes(peers, case, **change), strict=True):
        assert ((before == 0) != (after == 0)).any()


def test_layers_of_another_name_draw_other_masks(peers: dict[str, Peer]) -> None:
    one, other = (
        Case(({"kind": "dropout", "rate": 0.5, "name": name},), (40,), draw=4) for name in ("one", "other")
    )
    for a, b in zip(passes(peers, one), passes(peers, other), strict=True):
        assert ((a == 0) != (b == 0)).any()


@given(rate=st.sampled_from([0.2, 0.7]), draw=words)
@FEW
def test_stochastic_depth(peers: dict[str, Peer], vocabulary: Vocabulary, rate: float, draw: int) -> None:
    inner = {"kind": "dense", "units": 3}
    case = Case(({"kind": "residual", "drop_rate": rate, "layers": [inner]},), (3,), batch=6, draw=draw)
    mask = numpy_mask(case, "residual", (1,), rate)
    check_layer(peers, vocabulary, case, lambda x, t: x + mask * (x @ t["dense/kernel"] + t["dense/bias"]))
