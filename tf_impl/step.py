"""One training step, readable on one screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from common import reference
from common.spec import TrainSpec
from common.spec.losses import LossBase
from tf_impl import losses
from tf_impl.model import Model
from tf_impl.optimizers import Optimizer
from tf_impl.strategy import Strategy


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global.
    ids: the sample ids of each local replica.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]


def build_step(
    spec: TrainSpec, model: Model, optimizer: Optimizer, strategy: Strategy, recording: bool
) -> Callable[[Any, Any, int], StepResult]:
    """step(batch, scalars, number) -> StepResult; changes the model and the optimizer in place."""
    weights = list(model.parameters.values())
    scalar_names = reference.step_scalars(spec.optimizer, 0, 1.0).keys()
    needs_norm = recording or spec.optimizer.clip_global_norm is not None

    def gradients_of(inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor, number: tf.Tensor) -> tuple:
        context = model.context(True, inputs, ids, number)
        with tf.GradientTape() as tape:
            outputs = model(inputs, context)
            loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
        # Of an embedding it is sparse, with an entry for each use of a row.
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss_sum, weights)]
        *gradients, loss_sum, count = strategy.sum([*gradients, loss_sum, count])
        gradients = [gradient / count for gradient in gradients]
        loss_sum, gradients = _penalized(spec.loss, weights, loss_sum, count, gradients)
        norm = tf.linalg.global_norm(gradients) if needs_norm else tf.zeros_like(count)
        clipped = optimizer.clip(gradients, norm)
        return (loss_sum, count, norm), ids, gradients, clipped

    @tf.function(
        input_signature=[
            _any_batch(spec, strategy),
            tf.TensorSpec([len(scalar_names)], spec.precision),
            tf.TensorSpec([], tf.int64),
        ]
    )
    def step(batch: Any, scalars: tf.Tensor, number: tf.Tensor) -> tuple:
        numbers, ids, gradients, clipped = strategy.native.run(gradients_of, args=(*batch, number))
        changes = optimizer.update(clipped, dict(zip(scalar_names, tf.unstack(scalars), strict=True)))
        numbers = [strategy.unpack(number)[0] for number in numbers]
        if recording:
            numbers += [
                tf.linalg.global_norm([w.read_value() for w in weights]),
                tf.linalg.global_norm(changes),
            ]
        else:
            numbers += [tf.zeros_like(numbers[0])] * 2
        return tf.stack(numbers), strategy.unpack(ids), [strategy.unpack(g)[0] for g in gradients]

    def run(batch: Any, scalars: Any, number: int) -> StepResult:
        values = tf.constant(list(scalars.values()), spec.precision)
        numbers, ids, gradients = step(batch, values, tf.constant(number, tf.int64))
        return StepResult(numbers, ids, gradients)

    return run


def _penalized(
    loss: LossBase, weights: list, loss_sum: tf.Tensor, count: tf.Tensor, gradients: list[tf.Tensor]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The global loss sum and the mean gradients with the loss's penalties on the weights."""
    if not (loss.l1 or loss.l2):
        return loss_sum, gradients
    penalized = list(gradients)
    for place, weight in enumerate(weights):
        if loss.penalize == "all" or weight.shape.rank >= 2:
            size = loss.l1 * tf.reduce_sum(tf.abs(weight)) + loss.l2 * tf.reduce_sum(tf.square(weight))
            loss_sum += count * size
            penalized[place] += loss.l1 * tf.sign(weight) + 2 * loss.l2 * weight
    return loss_sum, penalized


def _any_batch(spec: TrainSpec, strategy: Strategy) -> Any:
    """Type of a distributed batch of any size, so that the tail of an epoch is not traced anew."""

    def of_size(size: int) -> Any:
        def local(context: tf.distribute.ValueContext) -> tuple:
            del context
            inputs = tf.zeros([size, *spec.model.input_shape], spec.input_dtype)
            return inputs, tf.zeros([size, *spec.target_shape], spec.target_dtype), tf.zeros([size], tf.int64)

        return [tf.type_spec_from_value(value) for value in strategy.distribute(local)]

    pairs = zip(of_size(1), of_size(2), strict=True)
    return tuple(one.most_specific_common_supertype([two]) for one, two in pairs)


def evaluate(spec: TrainSpec, model: Model, strategy: Strategy, batch: Any) -> tuple[float, float, int]:
    """(loss sum, count, correct) over a batch distributed to the replicas, in inference mode."""

    weights = list(model.parameters.values())

    def replica(inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor) -> tuple:
        context = model.context(False, inputs, ids)
        outputs = model(inputs, context)
        loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
        correct = losses.correct(spec.loss, outputs, targets, context)
        loss_sum, count, correct = strategy.sum([loss_sum, count, correct])
        return _penalized(spec.loss, weights, loss_sum, count, weights)[0], count, correct

    # Run eagerly: it is one batch, and tracing would cost more than it saves.
    loss_sum, count, correct = (
        float(strategy.unpack(total)[0]) for total in strategy.native.run(replica, args=batch)
    )
    return loss_sum, count, int(correct)
