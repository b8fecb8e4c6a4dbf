"""What a run shows of itself: tensors by canonical name, fingerprints of them, and the memory they take."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from parity.common.record import taps
from parity.common.spec import TrainSpec
from parity.common.state.canonical import State, parameter_fingerprint, parameter_specs
from parity.tf_impl.context import Context
from parity.tf_impl.model import Model
from parity.tf_impl.optimizers import Optimizer
from parity.tf_impl.strategy import Strategy


class StepTaps:
    """The taps of a model's steps, as part of their graph; `parity.common.record.taps` says what they are.

    Of an activation: a product of the matrix (samples, features) with a vector, and the norm of each row.
    That is two passes over memory, in the tensor's own type, which within a sample is as accurate as the
    layers' own products; samples are added up in float64.
    """

    def __init__(self, spec: TrainSpec, model: Model, strategy: Strategy) -> None:
        layers, specs = taps.layers_of(spec.model.tree()), parameter_specs(spec)
        self.names = taps.names_of(spec, strategy.placement)
        self._forward = [layer.path for layer in layers]
        self._backward = [layer.path for layer in layers if layer.differentiable]

        def variable(name: str, shape: tuple[int, ...]) -> tf.Variable:
            # On every replica's device; not a constant, of which a graph can hold only so much.
            return tf.Variable(taps.vector_of(name, shape).astype(spec.master_dtype), trainable=False)

        with strategy.native.scope():
            self._vectors = {
                layer.path: variable(layer.path, (_size(layer.output_shape),)) for layer in layers
            }
            self._parameter_vectors = [
                variable(name.removeprefix("parameters/"), specs[name].shape) for name in model.parameters
            ]

    @property
    def zeros(self) -> tf.Tensor:
        """What no sample adds to the fingerprints of activations."""
        return tf.zeros([len(self._forward) + len(self._backward), 2], tf.float64)

    def opened(self, context: Context) -> Context:
        """The context of a pass over a micro-batch, tapped."""
        return replace(context, taps=_Outputs())

    def watched(self, context: Context) -> list[tf.Tensor]:
        """The outputs whose gradients `activations` wants, once the pass has been made."""
        return [context.taps.outputs[path] for path in self._backward]

    def activations(self, context: Context, gradients: list[Any], scale: tf.Tensor | None) -> tf.Tensor:
        """[layers both ways, 2] of a pass, on its replica.

        Args:
            context: that the pass was made with.
            gradients: of the loss sum times `scale`, with respect to `watched`.
        """
        pairs = [(path, context.taps.outputs[path]) for path in self._forward]
        pairs += [(p, tf.convert_to_tensor(g)) for p, g in zip(self._backward, gradients, strict=True)]
        products, norms = [], []
        for path, values in pairs:
            vector = self._vectors[path].read_value()
            matrix = tf.reshape(values, [-1, vector.shape[0]])
            products.append(tf.linalg.matvec(matrix, vector))
            norms.append(tf.math.reduce_euclidean_norm(matrix, 1))
        weights = _sample_weights(context.sample_ids)
        projections = tf.linalg.matvec(tf.cast(tf.stack(products), tf.float64), weights)
        squares = tf.reduce_sum(tf.square(tf.cast(tf.stack(norms), tf.float64)), 1)
        table = tf.stack([squares, projections], 1)
        forward, backward = table[: len(self._forward)], table[len(self._forward) :]
        return tf.concat([forward, _unscaled(backward, scale)], 0)

    def values(
        self,
        activations: tf.Tensor,
        local: list[tf.Tensor],
        reduced: list[tf.Tensor],
        scale: tf.Tensor | None,
    ) -> tf.Tensor:
        """[names, 2] of the step, on its replica.

        Args:
            activations: added up over the micro-batches.
            local: this replica's gradients of the loss sum times `scale`.
            reduced: the global mean gradients.
        """
        of_local = _unscaled(self._gradients(local), scale)
        return tf.concat([activations, of_local, self._gradients(reduced)], 0)

    def _gradients(self, gradients: list[tf.Tensor]) -> tf.Tensor:
        # Sums of TensorFlow are pairwise: as accurate as those within a sample.
        vectors = [vector.read_value() for vector in self._parameter_vectors]
        products = [tf.reduce_sum(g * r) for g, r in zip(gradients, vectors, strict=True)]
        norms = [tf.math.reduce_euclidean_norm(gradient) for gradient in gradients]
        return tf.stack([tf.square(tf.cast(norms, tf.float64)), tf.cast(products, tf.float64)], 1)


class _Outputs:
    """The outputs of a pass by path."""

    def __init__(self) -> None:
        self.outputs: dict[str, tf.Tensor] = {}

    def __call__(self, path: str, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        if y is x:
            # With a gradient of its own: that of x is also of what else x is used for.
            y = tf.identity(y)
        self.outputs[path] = y
        return y


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


def _sample_weights(ids: tf.Tensor) -> tf.Tensor:
    """As `parity.common.record.taps.sample_weights`."""
    weights = tf.ones_like(ids, tf.float64)
    for part, table in enumerate(taps.sample_tables()):
        place = tf.bitwise.right_shift(ids, tf.constant(taps.ID_BITS * part, tf.int64))
        place = tf.bitwise.bitwise_and(place, tf.constant((1 << taps.ID_BITS) - 1, tf.int64))
        weights *= tf.gather(tf.constant(table), place)
    return weights


def _unscaled(table: tf.Tensor, scale: tf.Tensor | None) -> tf.Tensor:
    """Fingerprints of a gradient from those of the gradient times `scale`."""
    if scale is None:
        return table
    factor = tf.cast(scale, tf.float64)
    return table / tf.stack([tf.square(factor), factor])


def reduced_gradients(model: Model, gradients: list[Any]) -> State:
    """Copies of a step's global gradients, given in the order of `model.parameters`."""
    return {name: np.array(gradient) for name, gradient in zip(model.parameters, gradients, strict=True)}


def parameter_fingerprints(model: Model, strategy: Strategy) -> list[str]:
    """A fingerprint of all parameters, bit for bit, of each replica that this process speaks for."""
    replicas = zip(*(strategy.unpack(variable) for variable in model.parameters.values()), strict=True)
    return [parameter_fingerprint([np.asarray(copy) for copy in copies]) for copies in replicas]


def memory(model: Model, optimizer: Optimizer) -> dict[str, int]:
    """Bytes that one replica of this process holds between two steps.

    parameters, slots: of the variables of each kind. peak_resident: the most memory that the process,
    with all its replicas, has had since it began.
    """
    slots = [variable for variables in optimizer.slots.values() for variable in variables.values()]
    return {
        "parameters": _bytes(list(model.parameters.values())),
        "slots": _bytes(slots),
        "peak_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _bytes(variables: list[Any]) -> int:
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
