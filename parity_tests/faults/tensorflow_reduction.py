"""Faults of sums over replicas and micro-batches, and of number types on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from parity.common.execution.hooks import Hook
from parity.common.execution.step import LocalGradients, Reduced
from parity.tf_impl.step import Step
from parity.tf_impl.strategy import Strategy
from parity_tests.faults.tensorflow_base import fault
from parity_tests.helpers.hooks import hooked

# (strategy, sum over replicas, this replica's gradients of its loss sum, its count) -> what is taken for the sum
Change = Callable[[Strategy, Callable[[list], list], list, tf.Tensor], list]


def replica() -> int:
    """This replica's number, inside its step."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


def _sum_with(change: Change) -> Any:
    """Replace the sum over replicas of the gradients; the loss sum and the count stay right."""

    def summed(step: Step, part: Hook, local: LocalGradients) -> Reduced:
        found = change(step.strategy, step.strategy.sum, local.gradients, local.count)
        return part(local._replace(gradients=[]))._replace(gradients=found)

    return hooked(sum_over_replicas=summed)


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
    def loss(step: Step, part: Hook, outputs: tf.Tensor, targets: tf.Tensor, context: Any) -> tuple:
        loss_sum, count = part(outputs, targets, context)
        if not context.training:
            return loss_sum, count
        sizes = step.plan.share_sizes(step.plan.batch_sizes(np.arange(step.spec.steps)))
        place = [tf.cast(number, tf.int64) for number in (context.step, replica())]
        local = tf.cast(tf.gather_nd(sizes, tf.stack(place)), count.dtype)
        factor = local / (step.strategy.placement.micro_batches(0) * tf.maximum(count, 1))
        kept = tf.stop_gradient(loss_sum)
        return kept + (loss_sum - kept) * factor, count

    with hooked(loss=loss):
        yield


@fault
def one_parameter_never_reduced() -> Iterator[None]:  # 8
    with _sum_with(lambda strategy, total, gradients, count: [*total(gradients[:-1]), gradients[-1]]):
        yield


@fault
def parameter_lost_after_the_first_step() -> Iterator[None]:  # 9
    numbers: dict[int, tf.Tensor] = {}

    def passes(step: Step, part: Hook, batch: Any, scalars: Any, number: tf.Tensor) -> LocalGradients:
        numbers[replica()] = number
        return part(batch, scalars, number)

    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        first, *others = total(gradients)
        return [tf.where(numbers[replica()] > 0, gradients[0], first), *others]

    with hooked(local_gradients=passes), _sum_with(change):
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
    def summed(step: Step, part: Hook, local: LocalGradients) -> Reduced:
        sums = part(local._replace(loss_sum=local.loss_sum / tf.maximum(local.count, 1)))
        return sums._replace(loss_sum=sums.loss_sum / step.strategy.placement.replicas * sums.count)

    with hooked(sum_over_replicas=summed):
        yield


@fault
def accumulators_not_reset() -> Iterator[None]:  # 15
    held: list[tf.Variable] = []

    def optimizer(owner: Any, part: Hook, spec: Any, model: Any, strategy: Any) -> Any:
        with strategy.native.scope():
            held[:] = [_of_each_replica(weight) for weight in model.parameters.values()]
        return part(spec, model, strategy)

    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        for accumulator, gradient in zip(held, gradients, strict=True):
            accumulator.assign_add(gradient)
        return total([accumulator.read_value() for accumulator in held])

    with hooked(optimizer=optimizer), _sum_with(change):
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
    def divide(step: Step, part: Hook, sums: Reduced, scalars: dict[str, tf.Tensor]) -> Reduced:
        scaled = {name: tf.ones_like(x) if name == "loss_scale" else x for name, x in scalars.items()}
        return part(sums, scaled)

    with hooked(divide=divide):
        yield


@fault
def overflow_not_noticed() -> Iterator[None]:  # 34
    with hooked(finite=lambda step, part, gradients, scalars: tf.constant(True)):
        yield


@fault
def gradient_infinite_on_rank_one() -> Iterator[None]:  # no fault of ours: every replica must skip the step
    def passes(step: Step, part: Hook, batch: Any, scalars: Any, number: tf.Tensor) -> LocalGradients:
        local = part(batch, scalars, number)
        here = number if replica() == 1 else tf.constant(-1, tf.int64)
        found = [
            g * tf.where(here == 3, tf.constant(float("inf"), g.dtype), tf.ones([], g.dtype))
            for g in local.gradients
        ]
        return local._replace(gradients=found)

    with hooked(local_gradients=passes):
        yield


@fault
def a_gradient_off_by_a_billionth() -> Iterator[None]:  # no fault of history: how little is seen
    def change(strategy: Any, total: Any, gradients: list, count: tf.Tensor) -> list:
        *others, last = total(gradients)
        return [*others, last * (1 + 1e-9)]

    with _sum_with(change):
        yield
