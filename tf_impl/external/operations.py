"""The operations of one pass of a live model in TensorFlow, below Keras's layers and functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.external.process.operations import Recording, plain
from parity.common.external.process.pass_result import Array
from parity.tf_impl.external import names
from parity.tf_impl.external.built_lines import line_built
from parity.tf_impl.external.calling import array_of, is_tensor
from parity.tf_impl.private_names import op_callbacks

# They give the elements of one tensor, each once or several times, and compute nothing.
_REARRANGING = frozenset(
    (
        *("Reshape", "Transpose", "ExpandDims", "Squeeze", "Identity", "IdentityN", "Cast", "Snapshot"),
        *("StopGradient", "PreventGradient", "BroadcastTo", "ReadVariableOp", "EnsureShape"),
        *("DepthToSpace", "SpaceToDepth"),
    )
)
_WITHOUT_NUMBERS = (tf.resource, tf.variant, tf.string)


@contextmanager
def recorded(model: keras.Layer, replaced: Mapping[str, Array], records: bool) -> Iterator[Recording]:
    """Record the operations of a pass, or have some give other results. Nothing is replaced here: Keras is the reference.

    Args:
        model: that is called within.
        replaced: by key of an operation, an array of its result's shape and type.
        records: whether operations are recorded.
    """
    recording = Recording(replaced, records)
    paths = {id(layer): path for path, layer in names.layers(model).items()}
    calling = keras.Layer.__call__
    operations = _Operations(recording)

    def called(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(layer))
        if path is None:
            return calling(layer, *args, **kwargs)
        recording.enter(path)
        try:
            return calling(layer, *args, **kwargs)
        finally:
            recording.leave()

    stock = keras.Operation.__call__

    def called_of_graph(operation: keras.Operation, *args: Any, **kwargs: Any) -> Any:
        line = line_built(operation)
        if not line:
            return stock(operation, *args, **kwargs)
        with recording.built(line):
            return stock(operation, *args, **kwargs)

    with ExitStack() as stack:
        stack.callback(setattr, keras.Layer, "__call__", calling)
        keras.Layer.__call__ = called
        stack.callback(setattr, keras.Operation, "__call__", stock)
        keras.Operation.__call__ = called_of_graph
        op_callbacks.add_op_callback(operations.seen)
        stack.callback(op_callbacks.remove_op_callback, operations.seen)
        yield recording


class _Operations:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        # By what a tensor is, its number; kept alive, so that no other comes to be it.
        self._numbers: dict[int, int] = {}
        # By what a variable's handle is, the number of what the pass has assigned to it.
        self._assigned: dict[int, int] = {}
        self._alive: list[Any] = []

    def seen(
        self, kind: Any, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        """What TensorFlow calls behind each operation."""
        recording, kind = self._recording, plain(kind)
        if graph is not None or recording.ignores or not recording.records:
            return
        variable = id(inputs[0]) if inputs and inputs[0].dtype == tf.resource else None
        if variable is not None and kind.startswith("Assign"):
            self._assigned.pop(variable, None)
            if kind == "AssignVariableOp":
                self._alive.append(inputs[0])
                self._assigned[variable] = self._number(inputs[1])
            return
        given, made = (
            [self._number(each) for each in tensors if is_tensor(each) and each.dtype not in _WITHOUT_NUMBERS]
            for tensors in (inputs, outputs)
        )
        if kind == "ReadVariableOp" and variable in self._assigned:
            given = [self._assigned[variable]]
        if made:
            pairs = zip((attributes or ())[::2], (attributes or ())[1::2], strict=True)
            settings = {plain(name): plain(value) for name, value in pairs}
            arguments = [{"value": number} for number in given]
            rearranges = kind in _REARRANGING or _takes_all(kind, inputs, outputs)
            recording.add(recording.key_of(kind), kind, arguments, made, rearranges, settings)

    def _number(self, tensor: tf.Tensor) -> int:
        if id(tensor) not in self._numbers:
            self._alive.append(tensor)
            self._numbers[id(tensor)] = self._recording.number_of(array_of(tensor))
        return self._numbers[id(tensor)]


def _takes_all(kind: str, inputs: Any, outputs: Any) -> bool:
    """Whether a slice is of all elements, in their order, as one that only adds axes."""
    if kind != "StridedSlice" or tf.size(inputs[0]) != tf.size(outputs[0]):
        return False
    return bool(np.array_equal(np.ravel(inputs[0]), np.ravel(outputs[0])))
