"""What a recorder sees of a model's layers: fingerprints of their outputs. `parity.common.record.script_taps` says of what."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.external.process.pass_result import tap_name, tensors_in
from parity.common.record import taps
from parity.common.record.script import chosen_layers
from parity.common.record.script_taps import NUMBERS
from parity.tf_impl.external import names
from parity.tf_impl.private_names import gradient_record


class LayerTaps:
    """Watches the layers of a model, in passes that are differentiated, while it is open.

    What it sees is computed by the step's graph, which has to be traced after this was made.
    """

    def __init__(self, model: keras.Model, wanted: bool | Sequence[str]) -> None:
        """Begin to watch. wanted: the names of layers, or all.

        Raises:
            RecordError: there is no layer of such a name.
        """
        self._open = tf.Variable(False, trainable=False)
        self._is_open = False
        self._counts: dict[str, int] = {}
        self._traced: tf.Graph | None = None
        self._fingerprints: dict[str, tf.Variable] = {}
        self._vectors: dict[int, tf.Variable] = {}
        self._read: Callable[[], tf.Tensor] | None = None
        layers = names.layers(model)
        self._watched = [model, *(layers[path] for path in chosen_layers(list(layers), wanted))]
        paths = {id(layer): path for path, layer in layers.items()}
        for layer in self._watched:
            layer.__dict__["call"] = self._seeing(layer.call, paths.get(id(layer)))

    def open(self, wanted: bool) -> None:
        """A step begins. wanted: whether it is tapped."""
        if wanted != self._is_open:
            self._is_open = wanted
            self._open.assign(wanted)

    def table(self) -> dict[str, tf.Tensor]:
        """[3] by layer, in the order in which the outputs were computed; they begin at 0 again."""
        if not self._fingerprints:
            return {}
        if self._read is None:
            self._read = tf.function(self._taken)
        return dict(zip(self._fingerprints, tf.unstack(self._read()), strict=True))

    def end_pass(self) -> None:
        """A micro-batch is over: further calls of a layer are of the next one."""
        self._counts.clear()

    def close(self) -> None:
        """Watch no further."""
        for layer in self._watched:
            layer.__dict__.pop("call", None)

    def _taken(self) -> tf.Tensor:
        found = tf.stack([fingerprint.read_value() for fingerprint in self._fingerprints.values()])
        with tf.control_dependencies([found]):
            for fingerprint in self._fingerprints.values():
                fingerprint.assign(tf.zeros(NUMBERS, tf.float64))
        return found

    def _seeing(self, call: Callable[..., Any], path: str | None) -> Callable[..., Any]:
        # Short, as AutoGraph reads it in a loop that is a tf.function, and then also what the layer does.
        @functools.wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._begin(path)
            output = call(*args, **kwargs)
            self._end(path, output)
            return output

        return watched

    @tf.autograph.experimental.do_not_convert
    def _begin(self, path: str | None) -> None:
        if path is None:  # the model
            self.end_pass()

    @tf.autograph.experimental.do_not_convert
    def _end(self, path: str | None, output: Any) -> None:
        # Passes that only evaluate are no part of a step: they have no gradient tape.
        if path is None or not gradient_record.could_possibly_record():
            return
        if (traced := _traced_function()) is not self._traced:
            # A function that is traced again calls what it called before.
            self._traced = traced
            self.end_pass()
        number = self._counts[path] = self._counts.get(path, -1) + 1
        leaves = list(tensors_in(output, lambda value: isinstance(value, tf.Tensor)).values())
        for k, tensor in enumerate(leaves):
            if tensor.dtype.is_floating and tensor.shape.rank:
                self._add(tap_name(path, number, k if len(leaves) > 1 else None), tensor)

    def _add(self, name: str, values: tf.Tensor) -> None:
        if name not in self._fingerprints:
            try:
                with tf.init_scope():
                    self._fingerprints[name] = tf.Variable(tf.zeros(NUMBERS, tf.float64), trainable=False)
            except ValueError:
                return  # a graph that is traced again makes no variables: what it alone calls is not seen
            self._read = None
        kept = self._fingerprints[name]
        values = tf.stop_gradient(values)

        def add() -> tf.Tensor:
            kept.assign_add(self._fingerprint(values))
            return tf.constant(True)

        # One branch, which is not taken at most steps.
        tf.cond(self._open, add, lambda: tf.constant(False))

    def _fingerprint(self, values: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(values, tf.float64)
        total = tf.reduce_sum(wide, 0)
        squares, nothing = tf.reduce_sum(tf.square(wide)), tf.constant(math.nan, tf.float64)
        if not total.shape.is_fully_defined():
            return tf.stack([squares, nothing, nothing])
        vector = self._vector_of(int(np.prod(total.shape)))
        projection, moved = _product(total, vector), nothing
        if total.shape.rank > 1:
            moved = _product(tf.transpose(total, [*range(1, total.shape.rank), 0]), vector)
        return tf.stack([squares, projection, moved])

    def _vector_of(self, size: int) -> tf.Tensor:
        if size not in self._vectors:
            # Not a constant, of which a graph can hold only so much.
            with tf.init_scope():
                self._vectors[size] = tf.Variable(taps.script_vector(size), trainable=False)
        return self._vectors[size].read_value()


def _traced_function() -> tf.Graph | None:
    """The graph of the function that is traced now, the outermost one; None in eager code."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph.outer_graph, "building_function", False):
        graph = graph.outer_graph
    return graph


def _product(tensor: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.reshape(tensor, [-1]) * vector)
