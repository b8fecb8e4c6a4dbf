"""The calls of one traced forward pass, as either framework's hooks report them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from parity.common.spec.external.outline import LayerInfo, OperationInfo, Setting, Shape, TensorInfo

Tensor = TypeVar("Tensor")


@dataclass
class Call:
    """count: how often. inputs, outputs: shapes of the first call. place: layers first called before it."""

    place: int
    count: int = 0
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()


class LayerReader(Protocol):
    """What a layer is, in canonical terms: the module `{tf,torch}_impl/external/settings.py`."""

    def kind_of(self, layer: Any) -> str:
        """Return the canonical kind, '' where it is none that we know."""

    def settings_of(self, layer: Any, tensors: Sequence[TensorInfo]) -> dict[str, Setting]:
        """Return the canonical settings; `tensors` are the layer's own."""

    def is_overridden(self, layer: Any) -> bool:
        """Return whether the class computes otherwise than the framework's own that it derives from."""

    def role_of(self, layer: Any, name: str) -> str:
        """Return the canonical role of a tensor by its name in the layer; that name where it has none."""


# Path of the layer, name in the layer, name in the outline, the tensor.
Owned = tuple[str, str, str, Any]


class Calls:
    """A trace under way.

    Functions are counted for the innermost layer, so that one that consists of a single known function can be taken
    for it. Calls inside of a layer of a known kind do not count.
    """

    def __init__(self, layers: Mapping[str, Any], reader: LayerReader, leaves: Iterable[str]) -> None:
        """
        Args:
            layers: by path, those that the outline lists.
            reader: says what they are.
            leaves: paths of those that hold no other layers.
        """
        self._layers, self._reader, self._leaves = layers, reader, frozenset(leaves)
        self._closed = {path for path, layer in layers.items() if reader.kind_of(layer)}
        self.calls: dict[str, Call] = {}
        self.operations: list[OperationInfo] = []
        self.order: list[str] = []
        self._functions: Counter[str] = Counter()
        self._stack: list[str] = []
        self._inside = 0

    @property
    def hidden(self) -> bool:
        """Whether what is called now belongs to a layer of a known kind."""
        return bool(self._inside)

    def enter(self, path: str) -> None:
        """A layer or model begins."""
        if not self._inside and path in self._layers:
            self.calls.setdefault(path, Call(len(self.calls)))
            self.order.append(path)
        self._stack.append(path)
        self._inside += path in self._closed

    def leave(self, path: str, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...]) -> None:
        """It ends, and has been given and has returned tensors of these shapes."""
        self._stack.pop()
        self._inside -= path in self._closed
        if self._inside or path not in self._layers:
            return
        call = self.calls[path]
        if not call.count:
            call.inputs, call.outputs = inputs, outputs
        call.count += 1

    def function(self) -> None:
        """Something was computed by a function."""
        if self._stack and not self._inside:
            self._functions[self._stack[-1]] += 1

    def operation(
        self,
        name: str,
        type_: str,
        kind: str,
        settings: dict[str, Setting],
        inputs: tuple[Shape, ...],
        outputs: tuple[Shape, ...],
    ) -> None:
        """A function of a known kind was called, outside of layers of a known kind."""
        owner = self._stack[-1] if self._stack else ""
        taken = {info.path for info in self.operations}
        path = free_name(f"{owner}/{name}" if owner else name, taken)
        info = OperationInfo(
            path=path,
            kind=kind,
            type=type_,
            settings=settings,
            calls=1,
            inputs=inputs,
            outputs=outputs,
            owner=owner,
        )
        self.operations.append(info)
        self.order.append(path)

    def placed(self, tensors: Sequence[TensorInfo]) -> tuple[LayerInfo, ...]:
        """The layers in order of first call with their calls; those that were not called at the end.

        A layer without kind, all of which was one known function, takes that function's kind and settings.
        """
        result = []
        for path, layer in self._layers.items():
            call = self.calls.get(path, Call(len(self.calls)))
            kind = self._reader.kind_of(layer)
            settings = self._reader.settings_of(layer, [info for info in tensors if info.layer == path])
            own = [] if kind else self._whole(path, call.count)
            info = LayerInfo(
                path=path,
                kind=own[0].kind if own else kind,
                type=qualified(type(layer)),
                settings=own[0].settings if own else settings,
                calls=call.count,
                inputs=call.inputs,
                outputs=call.outputs,
                overridden=self._reader.is_overridden(layer),
            )
            result.append((call.place, info))
        # The functions inside of a layer are a part of what it is, whether that is known or not.
        inner = {info.path for info in self.operations if info.owner in self._leaves}
        self.operations = [info for info in self.operations if info.path not in inner]
        self.order = [path for path in self.order if path not in inner]
        return tuple(info for _, info in sorted(result, key=lambda placed: placed[0]))

    def tensors(
        self, owned: Iterable[Owned], purpose: Callable[[Any, Any], tuple[bool, bool]]
    ) -> tuple[TensorInfo, ...]:
        """Describe tensors.

        Args:
            owned: in the outline's order.
            purpose: of a layer and its tensor, whether that is trained, and whether it is a buffer.
        """
        found: list[TensorInfo] = []
        first: dict[int, str] = {}
        for path, own, name, tensor in owned:
            same = first.setdefault(id(tensor), name)
            trainable, buffer = purpose(self._layers[path], tensor)
            found.append(
                TensorInfo(
                    name=name,
                    layer=path,
                    role=self._reader.role_of(self._layers[path], own),
                    shape=tuple(tensor.shape),
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    trainable=trainable,
                    buffer=buffer,
                    tied_to=None if same == name else same,
                )
            )
        return tuple(found)

    def _whole(self, path: str, count: int) -> list[OperationInfo]:
        """The operations of a layer that is nothing but one known function; else none."""
        own = [info for info in self.operations if info.owner == path]
        same = all((info.kind, info.settings) == (own[0].kind, own[0].settings) for info in own)
        return own if len(own) == count == self._functions[path] and same else []


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, or where it is taken the first free one of name~2, name~3, ..."""
    numbered = (f"{name}~{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def without_ties(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return each object once, by the first of its names."""
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(id(tensor), name)
    return {name: tensors[name] for name in first.values()}


def qualified(cls: type) -> str:
    """Return the full name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"
