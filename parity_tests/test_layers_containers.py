"""Layers made of layers: TensorFlow, PyTorch and NumPy agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity.common.spec import ModelSpec
from parity.common.spec.model import walk
from parity_tests.helpers.layers import Case, check_layer
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
draws = st.integers(0, 2**32 - 1)


def dense(units: int, **more: Any) -> dict[str, Any]:
    return {"kind": "dense", "units": units, **more}


TANH = {"kind": "activation", "function": "tanh"}


@given(width=st.integers(1, 5), draw=draws)
@FEW
def test_sequential_and_residual(
    peers: dict[str, Peer], vocabulary: Vocabulary, width: int, draw: int
) -> None:
    for kind, skip in (("sequential", 0), ("residual", 1)):
        case = Case(({"kind": kind, "layers": [dense(4), TANH, dense(width)]},), (width,), draw=draw)
        check_layer(
            peers,
            vocabulary,
            case,
            lambda x, t, skip=skip: (
                skip * x
                + np.tanh(x @ t["dense_1/kernel"] + t["dense_1/bias"]) @ t["dense_2/kernel"]
                + t["dense_2/bias"]
            ),
        )


@given(width=st.integers(1, 4), draw=draws)
@FEW
def test_add_and_concatenate(peers: dict[str, Peer], vocabulary: Vocabulary, width: int, draw: int) -> None:
    branches = [
        dense(width, name="a"),
        {"kind": "sequential", "name": "b", "layers": [dense(3), dense(width)]},
    ]
    for kind, join in (("add", sum), ("concatenate", lambda parts: np.concatenate(parts, -1))):

        def numpy(x: np.ndarray, t: dict[str, np.ndarray], join: Any = join) -> np.ndarray:
            a = x @ t["a/kernel"] + t["a/bias"]
            b = x @ t["b/dense_1/kernel"] + t["b/dense_1/bias"]
            return join([a, b @ t["b/dense_2/kernel"] + t["b/dense_2/bias"]])

        case = Case(({"kind": kind, "layers": branches},), (2, width), draw=draw)
        check_layer(peers, vocabulary, case, numpy)


@given(times=st.integers(1, 4), draw=draws)
@FEW
def test_repeat_has_parameters_of_its_own(
    peers: dict[str, Peer], vocabulary: Vocabulary, times: int, draw: int
) -> None:
    case = Case(({"kind": "repeat", "times": times, "layers": [dense(3), TANH]},), (3,), draw=draw)

    def numpy(x: np.ndarray, t: dict[str, np.ndarray]) -> np.ndarray:
        for number in range(1, times + 1):
            x = np.tanh(x @ t[f"{number}/dense/kernel"] + t[f"{number}/dense/bias"])
        return x

    check_layer(peers, vocabulary, case, numpy)


def test_an_identity_is_a_branch_too(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    """DenseNet's and U-Net's skip: the input beside what the layers make of it."""
    check_layer(peers, vocabulary, Case(({"kind": "identity"},), (2, 3)), lambda x, t: x)
    case = Case(({"kind": "concatenate", "layers": [{"kind": "identity"}, dense(2)]},), (3,))
    check_layer(
        peers,
        vocabulary,
        case,
        lambda x, t: np.concatenate([x, x @ t["dense/kernel"] + t["dense/bias"]], -1),
    )


def test_paths_say_where_a_layer_is() -> None:
    model = ModelSpec.parse(
        {
            "input_shape": [4],
            "layers": [
                {"kind": "repeat", "times": 2, "layers": [{"kind": "residual", "layers": [dense(4)]}]},
                {"kind": "add", "layers": [dense(3), {"kind": "sequential", "layers": [dense(3)]}]},
            ],
        }
    )
    assert [node.path for node in walk(model.tree()) if node.parameters] == [
        "repeat/1/residual/dense",
        "repeat/2/residual/dense",
        "add/dense",
        "add/sequential/dense",
    ]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"kind": "residual", "layers": [dense(5)]}, ["residual", "(4,)", "(5,)"]),
        ({"kind": "add", "layers": [dense(5), dense(4)]}, ["one shape", "[(5,), (4,)]"]),
        ({"kind": "add", "layers": []}, ["layers"]),
        ({"kind": "repeat", "layers": [dense(4)]}, ["times", "required"]),
    ],
)
def test_children_that_do_not_fit_are_refused(layer: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        ModelSpec.parse({"input_shape": [4], "layers": [layer]}).tree()
    assert all(word in str(error.value) for word in words), str(error.value)
