"""The calls of one traced forward pass, as either framework's hooks report them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from parity.common.spec.external.outline import (
    LayerInfo,
    OperationInfo,
    Outline,
    Shape,
    TensorInfo,
)


@dataclass
class Call:
    """count: how often. inputs, outputs: shapes of the first call."""

    count: int = 0
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()


# Path of the layer, name in the layer, name in the outline, the tensor.
Owned = tuple[str, str, str, Any]


class Calls:
    """A trace under way.

    Functions are counted for the innermost layer, so that one that consists of a single known function can be taken
    for it. Calls inside of a layer of a known kind do not count.

    touched: gathers the ids of the tensors that the pass reads, in the order of their first use. passed: whether there was one.
    hidden: how many layers of a known kind what is called now belongs to.
    """

    def __init__(self, layers: Mapping[str, Any], reader: ModuleType, leaves: Iterable[str]) -> None:
        """
        Args:
            layers: by path, those that the outline lists.
            reader: says what they are in canonical terms: the module `{tf,torch}_impl/external/settings.py`.
            leaves: paths of those that hold no other layers.
        """
        self._layers, self._reader, self._leaves = layers, reader, frozenset(leaves)
        self._closed = {path for path, layer in layers.items() if reader.kind_of(layer)}
        self.passed = False
        self._inputs: dict[str, Shape] = {}
        self._outputs: dict[str, Shape] = {}
        self.begin()

    def begin(self) -> None:
        """The pass begins, once more where the model did not take its inputs in another form."""
        self.calls: dict[str, Call] = {}
        self.operations: list[OperationInfo] = []
        self.order: list[str] = []
        self.touched: dict[int, None] = {}
        self._functions: Counter[str] = Counter()
        self._stack: list[str] = []
        self.hidden = 0

    def enter(self, path: str) -> None:
        """A layer or model begins."""
        if not self.hidden and path in self._layers:
            self.calls.setdefault(path, Call())
            self.order.append(path)
        self._stack.append(path)
        self.hidden += path in self._closed

    def leave(self, path: str, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...]) -> None:
        """It ends, and has been given and has returned tensors of these shapes."""
        self._stack.pop()
        self.hidden -= path in self._closed
        if self.hidden or path not in self._layers:
            return
        call = self.calls[path]
        if not call.count:
            call.inputs, call.outputs = inputs, outputs
        call.count += 1

    def function(self) -> None:
        """Something was computed by a function."""
        if self._stack and not self.hidden:
            self._functions[self._stack[-1]] += 1

    def operation(self, name: str, **fields: Any) -> None:
        """A function of a known kind was called, outside of layers of a known kind; fields: of an `OperationInfo`."""
        owner = self._stack[-1] if self._stack else ""
        taken = {info.path for info in self.operations}
        path = free_name(f"{owner}/{name}" if owner else name, taken)
        self.operations.append(OperationInfo(path=path, calls=1, owner=owner, **fields))
        self.order.append(path)

    def end(self, inputs: Any, outputs: Mapping[str, Any]) -> None:
        """The pass is over: it was given an array or arrays by name, and gave tensors by name."""
        self.passed = True
        named = inputs if isinstance(inputs, dict) else {"inputs": inputs}
        self._inputs = {name: np.shape(value) for name, value in named.items()}
        self._outputs = {name: tuple(value.shape) for name, value in outputs.items()}

    def outline(
        self,
        model: Any,
        owned: Iterable[Owned],
        purpose: Callable[[Any, Any], tuple[bool, bool]],
        **told: Any,
    ) -> Outline:
        """Describe the model, and the pass where there was one.

        Args:
            model: the live one.
            owned: its tensors in the outline's order.
            purpose: of a layer and its tensor, whether that is trained, and whether it is a buffer.
            told: the fields of the outline that no trace tells.
        """
        tensors: list[TensorInfo] = []
        unused: list[str] = []
        first: dict[int, str] = {}
        for path, own, name, tensor in owned:
            layer = self._layers[path]
            same = first.setdefault(id(tensor), name)
            trainable, buffer = purpose(layer, tensor)
            info = TensorInfo(
                name=name,
                layer=path,
                role=self._reader.role_of(layer, own),
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                trainable=trainable,
                buffer=buffer,
                tied_to=None if same == name else same,
            )
            tensors.append(info)
            if self.passed and info.role != "num_batches_tracked" and id(tensor) not in self.touched:
                unused.append(name)
        layers = self._placed(tensors)
        arguments = {info.path: argument for info in layers if (argument := self._argument(info))}
        called = [[path, arguments[path].path] if path in arguments else [path] for path in self.order]
        random = [info.path for info in layers if self._reader.is_stochastic(self._layers[info.path])]
        random += [info.path for info in self.operations if info.kind == "dropout" and info.settings["rate"]]
        return Outline(
            type=qualified(type(model)),
            layers=layers,
            operations=(*self.operations, *arguments.values()),
            order=tuple(itertools.chain(*called)),
            tensors=tuple(tensors),
            inputs=self._inputs,
            outputs=self._outputs,
            stochastic=tuple(random),
            unused=tuple(unused),
            used=tuple(first[number] for number in self.touched if number in first),
            **told,
        )

    def _argument(self, info: LayerInfo) -> OperationInfo | None:
        """The function of a layer's `activation` argument."""
        function = self._reader.argument_of(self._layers[info.path])
        if function is None:
            return None
        fields = {"path": f"{info.path}/activation", "kind": "activation", "type": f"{info.type}(activation)"}
        shapes = {"inputs": info.outputs, "outputs": info.outputs}
        return OperationInfo(**fields, **shapes, settings=function, calls=info.calls, owner=info.path)

    def _placed(self, tensors: Sequence[TensorInfo]) -> tuple[LayerInfo, ...]:
        """The layers in order of first call with their calls; those that were not called at the end.

        A layer without kind, all of which was one known function, takes that function's kind and settings.
        """
        found = []
        for path in dict.fromkeys([*self.calls, *self._layers]):
            layer, call = self._layers[path], self.calls.get(path, Call())
            kind, settings = self._reader.kind_of(layer), self._reader.settings_of(layer)
            trained = [info.trainable for info in tensors if info.layer == path and not info.buffer]
            if trained and kind in self._reader.READERS:
                settings["trainable"] = any(trained)
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
            found.append(info)
        # The functions inside of a layer are a part of what it is, whether that is known or not.
        inner = {info.path for info in self.operations if info.owner in self._leaves}
        self.operations = [info for info in self.operations if info.path not in inner]
        self.order = [path for path in self.order if path not in inner]
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


def qualified(cls: type) -> str:
    """Return the full name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"
