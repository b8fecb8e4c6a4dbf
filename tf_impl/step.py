"""One training step, readable on one screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from common import reference
from common.spec import TrainSpec
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
    slots = [[slot[name] for slot in optimizer.slots.values()] for name in model.parameters]

    needs_norm = recording or spec.optimizer.clip_global_norm is not None

    def gradients_of(inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor, number: tf.Tensor) -> tuple:
        context = model.context(True, inputs, ids, number)
        with tf.GradientTape() as tape:
            outputs = model(inputs, context)
            loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
        gradients = tape.gradient(loss_sum, weights)
        *gradients, loss_sum, count = strategy.sum([*gradients, loss_sum, count])
        gradients = [gradient / count for gradient in gradients]
        norm = tf.linalg.global_norm(gradients) if needs_norm else tf.zeros_like(count)
        clipped = optimizer.clip(gradients, norm)
        return (loss_sum, count, norm), ids, gradients, clipped

    def update(scalars: tf.Tensor, clipped: list) -> list[tf.Tensor]:
        changes = []
        for weight, gradient, weight_slots in zip(weights, clipped, slots, strict=True):
            change = strategy.native.extended.update(
                weight,
                lambda w, g, *s: optimizer.update(w, g, scalars, list(s)),
                args=(gradient, *weight_slots),
                group=False,
            )
            changes.append(change[0])
        return changes

    @tf.function(
        input_signature=[
            _any_batch(spec, strategy),
            tf.TensorSpec([len(reference.step_scalars(spec, 0))], spec.precision),
            tf.TensorSpec([], tf.int64),
        ]
    )
    def step(batch: Any, scalars: tf.Tensor, number: tf.Tensor) -> tuple:
        numbers, ids, gradients, clipped = strategy.native.run(gradients_of, args=(*batch, number))
        changes = update(scalars, clipped)
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
        constants = tf.constant(scalars, spec.precision), tf.constant(number, tf.int64)
        numbers, ids, gradients = step(batch, *constants)
        return StepResult(numbers, ids, gradients)

    return run


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


def evaluate(spec: TrainSpec, model: Model, strategy: Strategy, batch: Any) -> tuple[float, int, int]:
    """(loss sum, samples, correct) over a batch distributed to the replicas, in inference mode."""

    def replica(inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor) -> list[tf.Tensor]:
        context = model.context(False, inputs, ids)
        outputs = model(inputs, context)
        loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
        correct = losses.correct(spec.loss, outputs, targets, context)
        return strategy.sum([loss_sum, count, correct])

    # Run eagerly: it is one batch, and tracing would cost more than it saves.
    loss_sum, count, correct = (
        float(strategy.unpack(total)[0]) for total in strategy.native.run(replica, args=batch)
    )
    return loss_sum, int(count), int(correct)
