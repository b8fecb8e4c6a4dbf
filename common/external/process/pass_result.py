"""What one pass through a user's model gave, as plain arrays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class PassResult:
    """Results of a forward pass, and of a backward pass where one was asked for.

    outputs: by name: 'output' for a model that gives one tensor, '0', '1', ... for a tuple or list, the keys of a
        dict; nested ones are joined by '/'.
    activations: what each layer computed, by tap name, in the order in which the calls ended: 'path', 'path#1' for
        a layer's second call, 'path:0' and 'path:1' where a call gave several tensors. For a layer that was fed,
        this is what it computed itself, not what took its place.
    activation_gradients: of loss_sum / count with respect to what went on from the layer, same names; where no
        gradient arrived there is none.
    terms: the mean of each loss that was added up, by name. output_gradients: of loss_sum / count with respect to each
        output, (batch, ...); where no gradient arrived there is none.
    gradients: of loss_sum / count, by the tensor's native name; trained tensors that no gradient reached are in
        `untouched` and not here.
    buffers: every tensor that the pass changed, with its new value.
    penalty: what the model itself adds to the mean loss (Keras: regularizers, add_loss); 0 where nothing.
    """

    outputs: Arrays
    activations: Arrays = field(default_factory=dict)
    activation_gradients: Arrays = field(default_factory=dict)
    loss_sum: float | None = None
    count: float | None = None
    terms: dict[str, float] = field(default_factory=dict)
    output_gradients: Arrays = field(default_factory=dict)
    gradients: Arrays = field(default_factory=dict)
    untouched: tuple[str, ...] = ()
    buffers: Arrays = field(default_factory=dict)
    penalty: float = 0.0


def tap_name(path: str, call: int, output: int | None) -> str:
    """'path', with '#1' for the second call and ':0' where a call gives several tensors."""
    return path + (f"#{call}" if call else "") + ("" if output is None else f":{output}")


def same(left: Array, right: Array) -> bool:
    """Whether two arrays are of one shape and hold the same values; NaN is the same as NaN."""
    return left.shape == right.shape and bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))


def tensors_in(value: Any, is_tensor: Callable[[Any], bool]) -> dict[str, Any]:
    """The tensors of a nested result by name, in order; whatever else is in it (None, caches, numbers) is left out."""
    return {"/".join(keys) or "output": tensor for keys, tensor in _walk(value, is_tensor, ())}


def _walk(
    value: Any, is_tensor: Callable[[Any], bool], keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if is_tensor(value):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, is_tensor, (*keys, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, is_tensor, (*keys, str(index)))
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from _walk(getattr(value, part.name), is_tensor, (*keys, part.name))


def with_tensors(value: Any, is_tensor: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """A nested result with each of its tensors, in the order of `tensors_in`, replaced by what `change` gives."""
    if is_tensor(value):
        return change(value)
    if isinstance(value, MutableMapping):
        new = copy.copy(value)
        for key in value:
            new[key] = with_tensors(value[key], is_tensor, change)
        return new
    if isinstance(value, list | tuple):
        items = [with_tensors(item, is_tensor, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        changed: Any = copy.copy(value)
        for part in fields(value):
            object.__setattr__(changed, part.name, with_tensors(getattr(value, part.name), is_tensor, change))
        return changed
    return value
