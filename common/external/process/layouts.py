"""Inputs and activations between channels-last (Keras's custom) and channels-first (torch's)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.pass_result import Array

InputLayout = Literal["same", "channels_first"]


class Alignment(NamedTuple):
    """A torch array in the layout of its Keras partner.

    how: 'same', 'channels_first' (axis 1 has become the last), 'flattened' (what was flattened in the order of
        channels first is now in that of channels last), or 'time_first' (the first two axes are exchanged),
        'with 1,2' or 'without 2,3' (axes of one element, that only one of the two has, were added or removed).
    """

    array: Array
    how: str


def to_torch_input(array: Array, layout: InputLayout) -> Array:
    """A batch of a Keras model for its torch port: as it is, or with the channels behind the batch.

    Raises:
        ExternalModelError: channels are to be moved in an array of fewer than three axes.
    """
    if layout == "same":
        return array
    if array.ndim < 3:
        raise ExternalModelError(
            f"an input of the shape {array.shape} has no channels to move; its layout is 'same'"
        )
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def to_keras_layout(array: Array) -> Array:
    """A channels-first array as channels-last."""
    return np.moveaxis(array, 1, -1) if array.ndim >= 3 else array


def aligned(keras: Array, torch: Array, unflattened: tuple[int, ...] | None = None) -> Alignment | None:
    """A torch array in the layout of a Keras one that holds the same; None where no layout fits its shape.

    Where several layouts have the right shape, the one with the closest numbers is taken, and 'same' before others
    that are as close.

    Args:
        keras: (batch, ..., channels).
        torch: the same in torch's layout, or in Keras's.
        unflattened: the shape (height, width, channels) that was flattened; default: what fits (batch, n) is tried
            only as it is.
    """
    candidates = [found for found in _candidates(torch, unflattened) if found.array.shape == keras.shape]
    if not candidates:
        return _of_other_ones(keras, torch)
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    return min(candidates, key=lambda found: _distance(keras, found.array))


def again(torch: Array, how: str, unflattened: tuple[int, ...] | None = None) -> Array:
    """Another torch array brought into Keras's layout as `aligned` did with one of its kind.

    Raises:
        ExternalModelError: it has no such layout.
    """
    kind, axes = _axes(how)
    if kind == "with":
        return np.expand_dims(torch, axes)
    if kind == "without" and all(torch.shape[axis] == 1 for axis in axes):
        return np.squeeze(torch, axes)
    for found in _candidates(torch, unflattened):
        if found.how == how:
            return found.array
    raise ExternalModelError(
        f"an array of the shape {torch.shape} cannot be brought into Keras's layout by {how!r}"
    )


def back(keras: Array, how: str, unflattened: tuple[int, ...] | None = None) -> Array:
    """A Keras array in the layout of its torch partner: the inverse of `again`."""
    kind, axes = _axes(how)
    if kind == "with":
        return np.squeeze(keras, axes)
    if kind == "without":
        return np.expand_dims(keras, axes)
    if how == "channels_first":
        return np.ascontiguousarray(np.moveaxis(keras, -1, 1))
    if how == "time_first":
        return np.ascontiguousarray(np.swapaxes(keras, 0, 1))
    if how == "flattened":
        if unflattened is None:
            raise ExternalModelError("to flatten channels first, the shape before it must be known")
        whole = keras.reshape(len(keras), *unflattened)
        return np.ascontiguousarray(np.moveaxis(whole, -1, 1)).reshape(keras.shape)
    return keras


def _candidates(torch: Array, unflattened: tuple[int, ...] | None) -> list[Alignment]:
    found = [Alignment(torch, "same")]
    if torch.ndim >= 3:
        found.append(Alignment(np.moveaxis(torch, 1, -1), "channels_first"))
        found.append(Alignment(np.swapaxes(torch, 0, 1), "time_first"))
    if torch.ndim == 2 and unflattened and torch.shape[1] == int(np.prod(unflattened)):
        *sides, channels = unflattened
        whole = torch.reshape(len(torch), channels, *sides)
        found.append(Alignment(np.moveaxis(whole, 1, -1).reshape(torch.shape), "flattened"))
    return found


def _of_other_ones(keras: Array, torch: Array) -> Alignment | None:
    """Where the shapes are equal but for axes of one element behind the batch, and only one of the two has such."""
    here, there = (tuple(axis for axis in range(1, a.ndim) if a.shape[axis] == 1) for a in (keras, torch))
    if bool(here) == bool(there):
        return None
    how = f"with {','.join(map(str, here))}" if here else f"without {','.join(map(str, there))}"
    found = again(torch, how)
    return Alignment(found, how) if found.shape == keras.shape else None


def _axes(how: str) -> tuple[str, tuple[int, ...]]:
    """('with', (1, 2)) of 'with 1,2'; without axes of what is not about them."""
    kind, _, axes = how.partition(" ")
    return kind, tuple(map(int, axes.split(","))) if axes else ()


def _distance(left: Array, right: Array) -> float:
    """Of what is finite in both; infinite where NaNs or infinities are at different places."""
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return float("inf")
    difference: Any = a[finite] - b[finite]
    return float(np.square(difference).sum())
