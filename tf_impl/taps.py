"""What a run shows of itself: tensors by canonical name, fingerprints of them, and the memory they take."""

from __future__ import annotations

import math
import resource
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.record import taps
from parity.common.spec import TrainSpec
from parity.common.state.canonical import State, parameter_fingerprint, parameter_specs
from parity.tf_impl.graphs.taps import ActivationGraph, unscaled
from parity.tf_impl.model import Model
from parity.tf_impl.optimizers import Optimizer
from parity.tf_impl.strategy import Strategy


class StepTaps(ActivationGraph):
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
                layer.path: variable(layer.path, (math.prod(layer.output_shape),)) for layer in layers
            }
            self._parameter_vectors = [
                variable(name.removeprefix("parameters/"), specs[name].shape) for name in model.parameters
            ]

    def opened(self, context: Context) -> Context:
        """The context of a pass over a micro-batch, tapped."""
        return replace(context, taps=_Outputs())

    def values(self, local: Any, gradients: list[tf.Tensor], scale: tf.Tensor | None) -> tf.Tensor:
        """[names, 2] of the step, on its replica.

        Args:
            local: what the passes have left, added up over the micro-batches.
            gradients: the global mean gradients.
            scale: what the loss was multiplied by before the backward pass; None: by nothing.
        """
        of_local = unscaled(self._gradients(local.gradients), scale)
        return tf.concat([local.tapped, of_local, self._gradients(gradients)], 0)

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
