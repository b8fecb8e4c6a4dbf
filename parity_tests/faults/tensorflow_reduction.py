"""Faults of sums over replicas and micro-batches, and of number types on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from parity.tf_impl import losses, step
from parity.tf_impl.model import Model
from parity.tf_impl.optimizers import Optimizer
from parity.tf_impl.strategy import Strategy
from parity_tests.faults.tensorflow_base import fault

# (strategy, sum over replicas, this replica's gradients of its loss sum, its count) -> what is taken for the sum
Change = Callable[[Strategy, Callable[[list], list], list, tf.Tensor], list]


def replica() -> int:
    """This replica's number, inside its step."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


def _sum_with(change: Change) -> Any:
    """Replace the sum over replicas of the gradients; the loss sum and the count stay right."""
    real = Strategy.sum

    def faulty(self: Any, values: list[tf.Tensor]) -> list[tf.Tensor]:
        if len(values) < 4:  # a barrier, or an evaluation
            return real(self, values)
        *gradients, loss_sum, count = values
        return [
            *change(self, lambda v: real(self, v), gradients, count),
            *real(self, [loss_sum, count]),
        ]

    return patch.object(Strategy, "sum", faulty)


def _times(values: list[tf.Tensor], factor: Any) -> list[tf.Tensor]:
    return [value * factor for value in values]


@fault
def gradients_never_summed() -> Iterator[None]:  # 1: a loop of one's own around Keras 3's optimizers
    with _sum_with(lambda strategy, total, gradients, count: gradients):
        yield


@fault
def mean_of_replica_means() -> Iterator[None]:  # 2: right whenever the replicas have equally many
    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        share = total([count])[0] / strategy.placement.replicas
        return total(_times(gradients, share / tf.maximum(count, 1)))

    with _sum_with(change):
        yield


def _scaled(factor: Callable[[Any], float]) -> Any:
    return _sum_with(lambda strategy, total, gradients, count: _times(total(gradients), factor(strategy)))


@fault
def gradients_averaged_over_replicas() -> Iterator[None]:  # 4: the other framework's reduction
    with _scaled(lambda strategy: 1 / strategy.placement.replicas):
        yield


@fault
def world_size_not_cancelled() -> Iterator[
    None
]:  # 4: a scalar loss, which Keras 3 does not divide by the replicas
    with _scaled(lambda strategy: strategy.placement.replicas):
        yield


@fault
def divided_by_micro_batches_again() -> Iterator[None]:  # 5
    with _scaled(lambda strategy: 1 / strategy.placement.micro_batches(0)):
        yield


@fault
def micro_batch_means_summed() -> Iterator[None]:  # 5: the division by their number left out
    with _scaled(lambda strategy: strategy.placement.micro_batches(0)):
        yield


@fault
def micro_batch_means() -> Iterator[None]:  # 3: as if all micro-batches had equally many samples
    real_init, real_loss, held = step.Step.__init__, losses.loss_sum_and_count, {}

    def init(self: Any, *arguments: Any, **more: Any) -> None:
        real_init(self, *arguments, **more)
        plan, steps = self._plan, np.arange(self.spec.steps)
        held["micro_batches"] = self.strategy.placement.micro_batches(0)
        held["sizes"] = plan.share_sizes(plan.batch_sizes(steps))

    def loss(spec: Any, outputs: tf.Tensor, targets: tf.Tensor, context: Any) -> tuple:
        loss_sum, count = real_loss(spec, outputs, targets, context)
        if not context.training:
            return loss_sum, count
        place = [tf.cast(number, tf.int64) for number in (context.step, replica())]
        local = tf.cast(tf.gather_nd(held["sizes"], tf.stack(place)), count.dtype)
        factor = local / (held["micro_batches"] * tf.maximum(count, 1))
        kept = tf.stop_gradient(loss_sum)
        return kept + (loss_sum - kept) * factor, count

    with patch.object(step.Step, "__init__", init), patch.object(losses, "loss_sum_and_count", loss):
        yield


@fault
def one_parameter_never_reduced() -> Iterator[None]:  # 8
    with _sum_with(lambda strategy, total, gradients, count: [*total(gradients[:-1]), gradients[-1]]):
        yield


@fault
def parameter_lost_after_the_first_step() -> Iterator[None]:  # 9
    real, numbers = Model.context, {}

    def context(self: Any, training: bool, inputs: Any, ids: Any, *number: Any) -> Any:
        if number:
            numbers[replica()] = number[0]
        return real(self, training, inputs, ids, *number)

    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        first, *others = total(gradients)
        return [tf.where(numbers[replica()] > 0, gradients[0], first), *others]

    with patch.object(Model, "context", context), _sum_with(change):
        yield


def _narrowed(dtype: tf.DType) -> Change:
    """The sum taken in a narrower type."""

    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        return [tf.cast(g, count.dtype) for g in total([tf.cast(g, dtype) for g in gradients])]

    return change


@fault
def reduced_in_float32() -> Iterator[None]:  # 35
    with _sum_with(_narrowed(tf.float32)):
        yield


@fault
def reduced_in_bfloat16() -> Iterator[None]:  # 35
    with _sum_with(_narrowed(tf.bfloat16)):
        yield


@fault
def gradients_rounded_to_bfloat16() -> Iterator[None]:  # 35: a gradient that once was of a low type
    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        return [tf.cast(tf.cast(g, tf.bfloat16), g.dtype) for g in total(gradients)]

    with _sum_with(change):
        yield


@fault
def loss_reported_as_mean_of_means() -> Iterator[None]:  # what Keras's Mean metric shows; training is right
    real = Strategy.sum

    def faulty(self: Any, values: list[tf.Tensor]) -> list[tf.Tensor]:
        if len(values) < 4:
            return real(self, values)
        *gradients, loss_sum, count = values
        *summed, loss_mean, total = real(self, [*gradients, loss_sum / tf.maximum(count, 1), count])
        return [*summed, loss_mean / self.placement.replicas * total, total]

    with patch.object(Strategy, "sum", faulty):
        yield


@fault
def accumulators_not_reset() -> Iterator[None]:  # 15
    real, held = Optimizer.__init__, []

    def init(self: Any, spec: Any, model: Any, strategy: Any) -> None:
        real(self, spec, model, strategy)
        held[:] = [_of_each_replica(weight) for weight in model.parameters.values()]

    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        for accumulator, gradient in zip(held, gradients, strict=True):
            accumulator.assign_add(gradient)
        return total([accumulator.read_value() for accumulator in held])

    with patch.object(Optimizer, "__init__", init), _sum_with(change):
        yield


def _of_each_replica(weight: Any) -> tf.Variable:
    return tf.Variable(
        tf.zeros(weight.shape, weight.dtype),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


@fault
def loss_scale_not_divided_out() -> Iterator[None]:  # 34
    real = step.Step.reduced

    def reduced(self: Any, sums: tuple, scale: Any = None) -> tuple:
        return real(self, sums, None if scale is None else tf.ones_like(scale))

    with patch.object(step.Step, "reduced", reduced):
        yield


@fault
def overflow_not_noticed() -> Iterator[None]:  # 34
    with patch.object(tf.math, "is_finite", lambda x: tf.ones_like(x, tf.bool)):
        yield


@fault
def gradient_infinite_on_rank_one() -> Iterator[None]:  # no fault of ours: every replica must skip the step
    real = step.Step.gradients

    def gradients(self: Any, batch: Any, number: tf.Tensor, scale: Any = None) -> Any:
        *found, loss_sum, count = real(self, batch, number, scale)
        here = number if replica() == 1 else tf.constant(-1, tf.int64)
        found = [
            g * tf.where(here == 3, tf.constant(float("inf"), g.dtype), tf.ones([], g.dtype)) for g in found
        ]
        return *found, loss_sum, count

    with patch.object(step.Step, "gradients", gradients):
        yield


@fault
def a_gradient_off_by_a_billionth() -> Iterator[None]:  # no fault of history: how little is seen
    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        *others, last = total(gradients)
        return [*others, last * (1 + 1e-9)]

    with _sum_with(change):
        yield
