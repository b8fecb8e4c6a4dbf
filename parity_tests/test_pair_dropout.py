"""Which dropout of a Keras model is which of its port, and that both are trained with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import ExternalModelError
from parity.common.execution.pass_context import Context
from parity.common.external.pairs.dropout import Masks, paired
from parity.common.external.process.dropping import Dropping, noise_shape
from parity.common.spec.layers import KeyedDropout

BATCH = 6
X = np.random.default_rng(0).normal(size=(BATCH, 4, 5, 3))


def site(
    value: np.ndarray, rate: float = 0.5, shared: tuple[int, ...] = (), active: bool = True
) -> dict[str, Any]:
    return {"owner": "drop", "rate": rate, "shared": list(shared), "active": active, "value": value}


def keys(masks: Masks) -> tuple[list[str], list[str]]:
    return [each.key for each in masks.keras], [each.key for each in masks.torch]


# Of torch's tensor what it makes of Keras's.
LAYOUTS = {
    "as it is": lambda x: x,
    "channels first": lambda x: x.transpose(0, 3, 1, 2),
    "axes before the batch": lambda x: x.transpose(1, 0, 2, 3),
    "joined with the batch": lambda x: x.reshape(BATCH * 4, 5, 3),
    "flattened in its own layout": lambda x: x.transpose(0, 3, 1, 2).reshape(BATCH, -1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("flattened", [False, True])
def test_a_mask_is_brought_to_the_layout_of_the_port(layout: str, flattened: bool) -> None:
    """What is a mask here are the numbers themselves: they arrive where the port has them."""
    keras = X.reshape(BATCH, -1) if flattened else X
    torch = LAYOUTS[layout](X)
    masks = next(paired([site(keras)], [site(torch)], BATCH, [X.shape[1:]]))
    (planned,) = masks.torch
    assert keys(masks) == (["0"], ["0"])
    drawn = keras.reshape(BATCH, *planned.shape).transpose(planned.order).reshape(torch.shape)
    assert np.array_equal(drawn, torch)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_that_are_off_tell_the_layout_too(layout: str) -> None:
    """What comes before has another epsilon, say; a mask in the wrong order would be a second finding."""
    torch = LAYOUTS[layout](X * np.random.default_rng(1).uniform(0.7, 1.2, X.shape))
    (planned,) = next(paired([site(X.reshape(BATCH, -1))], [site(torch)], BATCH, [X.shape[1:]])).torch
    drawn = X.reshape(BATCH, *planned.shape).transpose(planned.order).reshape(torch.shape)
    assert np.array_equal(drawn, LAYOUTS[layout](X))


@pytest.mark.parametrize("layout", ["as it is", "channels first"])
def test_where_no_numbers_agree_the_plainest_layout_is_taken(layout: str) -> None:
    """Of the many ways to split and exchange axes one is always nearest, by chance."""
    keras, other = np.random.default_rng(1).normal(size=(2, BATCH, 4, 5, 24))
    torch = LAYOUTS[layout](other)
    (planned,) = next(paired([site(keras)], [site(torch)], BATCH, [])).torch
    assert planned.shape == keras.shape[1:]
    assert np.array_equal(LAYOUTS[layout](keras), keras.transpose(planned.order).reshape(torch.shape))
    flat = next(paired([site(keras[:, :1, :1])], [site(other[:, 0, 0])], BATCH, [])).torch[0]
    assert flat.shape == (1, 1, 24)


@pytest.mark.parametrize(
    ("keras", "torch", "expected"),
    [
        # One too many on either side, of the same shape: what they are given tells.
        ([site(X), site(X + 1)], [site(X + 1)], (["0", "1"], ["1"])),
        ([site(X + 1)], [site(X), site(X + 1)], (["0"], ["torch 0", "0"])),
        # Branches in another order: what is given the same is the same call.
        ([site(X), site(X + 1)], [site(X + 1), site(X)], (["0", "1"], ["1", "0"])),
        # Keras's functional models may run them backwards.
        ([site(X + n) for n in range(4)], [site(X + n) for n in (3, 2, 1, 0)], ([*"0123"], [*"3210"])),
        ([site(X, 0.1), site(X + 1, 0.2)], [site(X + 1, 0.1), site(X, 0.2)], (["0", "1"], ["1", "torch 1"])),
        # Nothing is given the same: rates and kinds tell, in the order of the pass.
        ([site(X, 0.1), site(X, 0.2)], [site(X + 9, 0.2)], (["0", "1"], ["1"])),
        ([site(X), site(X, shared=(1, 2))], [site(X + 9, shared=(1, 2))], (["0", "1"], ["1"])),
        ([site(X)], [site(X[:, :2])], (["0"], ["torch 0"])),
        ([], [site(X)], ([], ["torch 0"])),
    ],
)
def test_calls_that_drop_are_paired_by_what_they_are_given(keras: Any, torch: Any, expected: Any) -> None:
    masks = next(paired(keras, torch, BATCH, []))
    assert keys(masks) == expected
    assert len(masks.lines) == sum(key not in expected[1] for key in expected[0]) + sum(
        key.startswith("torch") for key in expected[1]
    )


def test_calls_that_are_given_the_same_are_tried_in_every_order() -> None:
    tried = list(paired([site(X), site(X), site(X + 1)], [site(X + 1), site(X), site(X)], BATCH, []))
    assert [keys(masks)[1] for masks in tried] == [["2", "0", "1"], ["2", "1", "0"]]


def test_where_no_numbers_agree_a_flatten_is_as_the_mapping_has_it() -> None:
    """Behind a convolution with another padding all numbers are others."""
    keras, other = np.random.default_rng(1).normal(size=(2, BATCH, 4, 5, 3))
    sites = [site(keras.reshape(BATCH, -1))], [site(other.reshape(BATCH, -1))]
    orders = [
        next(paired(*sites, BATCH, [(4, 5, 3)], True, moved)).torch[0].order for moved in ([], [(4, 5, 3)])
    ]
    assert orders == [(0, 1), (0, 3, 1, 2)]


@pytest.mark.parametrize("first", [False, True])
def test_axes_of_one_length_are_those_of_pictures_where_torch_has_convolutions(first: bool) -> None:
    keras, other = np.random.default_rng(1).normal(size=(2, BATCH, 4, 4, 4))
    (planned,) = next(paired([site(keras)], [site(other)], BATCH, [], first)).torch
    assert planned.order == ((0, 3, 1, 2) if first else (0, 1, 2, 3))


def test_what_belongs_to_no_sample_is_refused() -> None:
    with pytest.raises(ExternalModelError, match="first axis is not that of the 6 samples"):
        next(paired([], [site(X[:5])], BATCH, []))
    assert next(paired([], [site(X[:5], 0.0)], BATCH, [])).lines == ()  # no mask is drawn
    planned = KeyedDropout(key="0", shape=(4, 5, 3), order=(0, 3, 1, 2))
    assert noise_shape(planned, 4, (2, 3)) == (1, 1, 3)
    assert noise_shape(planned, 4, ()) == (4, 5, 3)
    with pytest.raises(ExternalModelError, match="several samples are dropped together"):
        noise_shape(planned, 4, (0,))


def test_a_pass_with_more_calls_than_planned_is_refused() -> None:
    planned = KeyedDropout(key="0", shape=(3,))
    dropping = Dropping([planned], Context(training=True))
    assert dropping.next("drop", X, 0.5, (), True) is planned
    assert dropping.next("drop", X, 0.5, (), False) is None
    with pytest.raises(ExternalModelError, match="dropout 3 of a pass, in drop, has no mask"):
        dropping.next("drop", X, 0.5, (), True)
