"""Inputs and activations between channels-last (Keras's convention) and channels-first (torch's)."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.pass_result import Array


class InKerasLayout(NamedTuple):
    """A torch array in the layout of its Keras partner.

    how: 'same', 'channels_first' (axis 1 has become the last), 'time_first' (the first two axes are exchanged),
        'axes 0,3,2,1' (another order of torch's axes),
        'with 1,2' or 'without 2,3' (axes of one element, that only one of the two has, were added or removed), 'joined 32,7'
        (torch's first two axes, of these sizes, are Keras's first one), 'divided' (the reverse), 'sequence 4,4' (torch's is a picture
        of these sizes), 'picture' (the reverse).
    """

    array: Array
    how: str


# A batch of pictures has its rows, columns and channels.
PICTURE = 4
# Of more axes not all orders are tried.
_MOST_AXES = 5
# Elements of an axis that a crop leaves out, at most.
_MOST_CROPPED = 4
# Squares of differences, of those of the numbers themselves: equal but for rounding.
_EQUAL = 1e-16
# So many times as far as in the nearest layout are numbers in another one, where they tell which it is.
CLEAR = 4


def to_torch_input(array: Array) -> Array:
    """Return a batch (batch, ..., channels) of a Keras model for its torch port, the channels behind the batch.

    Raises:
        ExternalModelError: it has fewer than three axes.
    """
    if array.ndim < 3:
        raise ExternalModelError(
            f"an input of the shape {array.shape} has no channels to move; its layout is 'same'"
        )
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def to_keras_layout(array: Array) -> Array:
    """Return an array (batch, channels, ...) as (batch, ..., channels)."""
    return np.moveaxis(array, 1, -1) if array.ndim >= 3 else array


def aligned(keras: Array, torch: Array, elsewhere: Collection[str] | None = None) -> InKerasLayout | None:
    """Return a torch array in the layout of a Keras one that holds the same; None where no layout fits its shape.

    Where several layouts have the right shape, the one with the closest numbers is taken, and 'same' before others
    that are as close.

    Args:
        keras: (batch, ..., channels).
        torch: the same in torch's layout, or in Keras's.
        elsewhere: layouts that tensors of these models are known to have. Where several orders of axes have the right
            shape and the numbers do not tell, as of a tensor that deviates, it is one of these or none; None: any will do.
    """
    found = fitting(keras, torch)
    ordered = _ordered(keras, torch) if 2 < keras.ndim == torch.ndim <= _MOST_AXES else []
    equal = next(
        (one for one in (*found, *ordered) if _distance(keras, one.array) <= _EQUAL * _size(keras)), None
    )
    if equal is not None:
        return equal
    # The numbers tell nothing, as of a tensor that deviates.
    others = set(elsewhere or ())
    known = next((one for one in ordered if one.how in others), None)
    # Where pictures lie in the usual way, so do these.
    if known is not None and not any(one.how in others - {"same"} for one in found):
        return known
    if len(found) > 1:
        nearest = min(found, key=lambda one: _distance(keras, one.array))
        usual = next((one for one in found if one.how == "channels_first" and torch.ndim > 3), nearest)
        # Of pictures that differ in all layouts, the numbers tell nothing.
        clear = CLEAR * _distance(keras, nearest.array) < _distance(keras, usual.array)
        return nearest if clear else usual
    if found:
        return found[0]
    if ordered:
        return ordered[0] if len(ordered) == 1 or elsewhere is None else None
    # One of the two may have joined the batch with the axis behind it: nodes of all graphs, steps of all sequences.
    if torch.ndim > 2 and keras.shape == (torch.shape[0] * torch.shape[1], *torch.shape[2:]):
        return InKerasLayout(torch.reshape(keras.shape), f"joined {torch.shape[0]},{torch.shape[1]}")
    if keras.ndim > 2 and torch.shape == (keras.shape[0] * keras.shape[1], *keras.shape[2:]):
        return InKerasLayout(torch.reshape(keras.shape), "divided")
    # Patches are a picture on the one side, and a sequence on the other.
    if torch.ndim == PICTURE == keras.ndim + 1:
        picture = to_keras_layout(torch)
        if keras.shape == (picture.shape[0], math.prod(picture.shape[1:3]), picture.shape[3]):
            sides = ",".join(map(str, picture.shape[1:3]))
            return InKerasLayout(picture.reshape(keras.shape), f"sequence {sides}")
    if keras.ndim == PICTURE and torch.shape == (len(keras), math.prod(keras.shape[1:3]), keras.shape[3]):
        return InKerasLayout(torch.reshape(keras.shape), "picture")
    # The shapes may be equal but for axes of one element behind the batch, if only one of the two has such.
    here, there = (tuple(axis for axis in range(1, a.ndim) if a.shape[axis] == 1) for a in (keras, torch))
    if bool(here) == bool(there):
        return None
    if keras.ndim - len(here) != torch.ndim - len(there):
        return None
    spread = np.expand_dims(torch, here) if here else np.squeeze(torch, there)
    how = f"with {','.join(map(str, here))}" if here else f"without {','.join(map(str, there))}"
    return InKerasLayout(spread, how) if spread.shape == keras.shape else None


def _ordered(keras: Array, torch: Array) -> list[InKerasLayout]:
    """A torch array with its axes in each order in which it has the shape of a Keras one, the one that keeps most in place first."""
    orders = (
        order for order in permutations(range(torch.ndim)) if torch.transpose(order).shape == keras.shape
    )
    return [InKerasLayout(torch.transpose(order), f"axes {','.join(map(str, order))}") for order in orders]


def fitting(keras: Array, torch: Array) -> list[InKerasLayout]:
    """Return a torch array (batch, ...) in each layout in which it has the shape of a Keras one."""
    found = [InKerasLayout(torch, "same")]
    if torch.ndim >= 3:
        found.append(InKerasLayout(to_keras_layout(torch), "channels_first"))
        found.append(InKerasLayout(np.swapaxes(torch, 0, 1), "time_first"))
    return [one for one in found if one.array.shape == keras.shape]


def block_of(inner: Array, outer: Array) -> tuple[slice, ...] | None:
    """Which part of an array (batch, ...) another one is, in its layout or the other framework's; None where it is none.

    Of an axis at most a few elements are left out.
    """
    for array in (inner, to_keras_layout(inner), to_torch_input(inner) if inner.ndim > 2 else inner):
        if array.ndim != outer.ndim or array.shape == outer.shape:
            continue
        beyond = [wide - narrow for wide, narrow in zip(outer.shape, array.shape, strict=True)]
        if beyond[0] or min(beyond) < 0 or max(beyond) > _MOST_CROPPED:
            continue
        for starts in product(*(range(more + 1) for more in beyond)):
            block = tuple(slice(start, start + size) for start, size in zip(starts, array.shape, strict=True))
            if _distance(array, outer[block]) <= _EQUAL * _size(array):
                return block
    return None


def back(keras: Array, how: str) -> Array:
    """Return a Keras array (batch, ..., channels) in the layout of its torch partner that `aligned` found."""
    kind, _, axes = how.partition(" ")
    ones = tuple(map(int, axes.split(","))) if axes else ()
    if kind == "axes":
        return np.ascontiguousarray(keras.transpose(np.argsort(ones)))
    if kind == "joined":
        return keras.reshape(*ones, *keras.shape[1:])
    if kind == "divided":
        return keras.reshape(-1, *keras.shape[2:])
    if kind == "sequence":
        return to_torch_input(keras.reshape(len(keras), *ones, keras.shape[-1]))
    if kind == "picture":
        return keras.reshape(len(keras), -1, keras.shape[-1])
    if kind == "with":
        return np.squeeze(keras, ones)
    if kind == "without":
        return np.expand_dims(keras, ones)
    if how == "channels_first":
        return to_torch_input(keras)
    return np.ascontiguousarray(np.swapaxes(keras, 0, 1)) if how == "time_first" else keras


def _size(array: Array) -> float:
    """The sum of the squares of what is finite."""
    return _distance(array, np.where(np.isfinite(array), 0.0, array))


def _distance(left: Array, right: Array) -> float:
    """Of what is finite in both; infinite where NaNs or infinities are at different places."""
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return float("inf")
    difference: Any = a[finite] - b[finite]
    return float(np.square(difference).sum())
