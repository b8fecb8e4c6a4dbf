"""Dense layers, activations, changes of shape, dropout and containers: TensorFlow, PyTorch and NumPy agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common import rng
from parity_tests.layer_checks import Case, both, check_layer
from parity_tests.peers import Peer
from parity_tests.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("peers")
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)
draws = st.integers(0, 2**32 - 1)
conventions = st.sampled_from(["keras", "torch"])


@given(shape=shapes, units=st.integers(1, 6), bias=st.booleans(), convention=conventions, draw=draws)
@FEW
def test_dense(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    shape: Any,
    units: int,
    bias: bool,
    convention: str,
    draw: int,
) -> None:
    case = Case(({"kind": "dense", "units": units, "use_bias": bias},), shape, convention, draw=draw)
    check_layer(peers, vocabulary, case, lambda x, t: x @ t["kernel"] + t.get("bias", 0))


@given(
    key=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    step=st.integers(0, 2**32 - 1),
    ids=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5),
    count=st.integers(1, 19),
)
@FEW
def test_random_words_are_the_same_bits(
    peers: dict[str, Peer], key: tuple[int, int], step: int, ids: list[int], count: int
) -> None:
    facts = {"key": key, "step": step, "count": count}
    results = both(peers, "layers:words", facts, {"sample_ids": np.array(ids)})
    expected = rng.sample_words(key, step, np.array(ids), count).astype(np.int64)
    for result in results:
        assert (result["words"] == expected).all()
