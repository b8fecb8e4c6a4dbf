"""Faults of the TensorFlow side. Each is a context manager around one run in the worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import keras
import tensorflow as tf

from common import reference
from tf_impl import data, layers, optimizers, step, train
from tf_impl.model import Model
from tf_impl.strategy import Strategy


def fault(body: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
    """A context manager that keeps traced steps from passing between faulty and clean runs."""
    manager = contextmanager(body)

    @contextmanager
    def in_worker() -> Iterator[None]:
        train._build.cache_clear()
        try:
            with manager():
                yield
        finally:
            train._build.cache_clear()

    return in_worker


def _sum_with(change: Callable[[Any, list[tf.Tensor]], list[tf.Tensor]]) -> Any:
    """Replace the sum over replicas of gradients; the loss sum and the count stay right."""
    real = Strategy.sum

    def faulty(self: Any, values: list[tf.Tensor]) -> list[tf.Tensor]:
        *gradients, loss_sum, count = values
        if not gradients or len(gradients) == 1:  # an evaluation
            return real(self, values)
        return [*change(self, gradients), *real(self, [loss_sum, count])]

    return patch.object(Strategy, "sum", faulty), real


@fault
def gradients_never_summed() -> Iterator[None]:  # 1
    patched, _ = _sum_with(lambda self, gradients: gradients)
    with patched:
        yield


@fault
def gradients_averaged_over_replicas() -> Iterator[None]:  # the other framework's reduction
    patched, real = _sum_with(
        lambda self, gradients: [g / self.placement.replicas for g in real(self, gradients)]
    )
    with patched:
        yield


@fault
def one_parameter_never_reduced() -> Iterator[None]:  # 8
    patched, real = _sum_with(lambda self, gradients: [*real(self, gradients[:-1]), gradients[-1]])
    with patched:
        yield


@fault
def reduced_in_float32() -> Iterator[None]:  # 35
    def narrow(self: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.cast(g, tf.float64) for g in real(self, [tf.cast(g, tf.float32) for g in gradients])]

    patched, real = _sum_with(narrow)
    with patched:
        yield


@fault
def clipped_before_the_reduction() -> Iterator[None]:  # 12
    def clip_then_sum(self: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        clipped, _ = tf.clip_by_global_norm(gradients, tf.constant(20.0, gradients[0].dtype))
        return real(self, clipped)

    patched, real = _sum_with(clip_then_sum)
    with patched:
        yield


@fault
def a_replica_keeps_stale_parameters() -> Iterator[None]:  # 11
    real = optimizers.Optimizer._one

    def one(self: Any, *arguments: Any) -> Any:
        update = real(self, *arguments)

        def stale(weight: Any, *rest: Any) -> Any:
            return tf.zeros_like(weight) if weight.device.endswith("CPU:1") else update(weight, *rest)

        return stale

    with patch.object(optimizers.Optimizer, "_one", one):
        yield


@fault
def dropout_keyed_by_place() -> Iterator[None]:  # 26: the same masks on every replica
    real = Model.context

    def context(self: Any, training: bool, inputs: Any, ids: Any, *rest: Any) -> Any:
        return real(self, training, inputs, tf.range(tf.size(ids, tf.int64)), *rest)

    with patch.object(Model, "context", context):
        yield


def _batch_norm(**change: Any) -> Any:
    real = layers.normalization.BatchNorm.__init__

    def init(self: Any, spec: Any) -> None:
        real(self, spec.model_copy(update=change))

    return patch.object(layers.normalization.BatchNorm, "__init__", init)


@fault
def batch_norm_statistics_per_replica() -> Iterator[None]:  # 20
    with _batch_norm(statistics="per_replica"):
        yield


@fault
def running_variance_unbiased() -> Iterator[None]:  # 19
    with _batch_norm(running_variance="unbiased"):
        yield


@fault
def gelu_through_float32() -> Iterator[None]:  # 33: Keras's own, about 5e-9 off
    with patch.object(layers.core, "gelu", lambda x: keras.activations.gelu(x, approximate=False)):
        yield


@fault
def softmax_over_the_wrong_axis() -> Iterator[None]:  # 31
    real = tf.nn.softmax
    with patch.object(tf.nn, "softmax", lambda x: real(x, axis=-2)):
        yield


@fault
def layer_norm_epsilon() -> Iterator[None]:  # 32
    from common.spec.layers import LayerNorm

    def build(node: Any) -> Any:
        return keras.layers.LayerNormalization(epsilon=1e-5)

    with patch.dict(layers.registry._BUILDERS, {LayerNorm: build}):
        yield


@fault
def adam_without_bias_correction() -> Iterator[None]:  # 17
    real = reference.RateKeeper.scalars

    def scalars(self: Any, number: int) -> Any:
        given = real(self, number)
        return {**given, "step_size": given["learning_rate"], "second_correction": 1.0}

    with patch.object(reference.RateKeeper, "scalars", scalars):
        yield


@fault
def warm_up_off_by_one() -> Iterator[None]:  # 25
    real = reference.RateKeeper.scalars
    with patch.object(reference.RateKeeper, "scalars", lambda self, number: real(self, number + 1)):
        yield


@fault
def adam_epsilon_in_the_other_place() -> Iterator[None]:  # 17
    real = reference.RateKeeper.__init__

    def init(self: Any, spec: Any) -> None:
        optimizer = spec.optimizer.model_copy(update={"epsilon_place": "inside"})
        real(self, spec.model_copy(update={"optimizer": optimizer}))

    with patch.object(reference.RateKeeper, "__init__", init):
        yield


@fault
def labels_one_batch_late() -> Iterator[None]:  # 24
    real = data.batches

    def batches(*arguments: Any) -> Iterator[Any]:
        late = None
        for inputs, labels, ids in real(*arguments):
            strategy = arguments[2]
            sizes = [len(x) for x in strategy.unpack(labels)]
            usable = late is not None and [len(x) for x in strategy.unpack(late)] == sizes
            yield inputs, late if usable else labels, ids
            late = labels

    with patch.object(data, "batches", batches):
        yield


@fault
def the_process_dies() -> Iterator[None]:
    real = data.batches

    def batches(*arguments: Any) -> Iterator[Any]:
        for number, batch in enumerate(real(*arguments)):
            if number == 5:
                print("tensorflow: out of memory, says this line", flush=True)
                os._exit(9)
            yield batch

    with patch.object(data, "batches", batches):
        yield


@fault
def learning_rate_off_by_two_percent() -> Iterator[None]:  # none that is recorded
    real = optimizers.Optimizer.update

    def update(self: Any, gradients: Any, scalars: Any) -> Any:
        rates = {name: scalars[name] * 1.02 for name in ("learning_rate", "step_size") if name in scalars}
        return real(self, gradients, {**scalars, **rates})

    with patch.object(optimizers.Optimizer, "update", update):
        yield


@fault
def reduced_in_bfloat16() -> Iterator[None]:  # 35
    def narrow(self: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.cast(g, tf.float32) for g in real(self, [tf.cast(g, tf.bfloat16) for g in gradients])]

    patched, real = _sum_with(narrow)
    with patched:
        yield


@fault
def loss_scale_not_divided_out() -> Iterator[None]:
    real = step.Step.reduced
    with patch.object(step.Step, "reduced", lambda self, sums, scale: real(self, sums, tf.ones_like(scale))):
        yield


def _times_in_step_three(value: tf.Tensor, number: tf.Tensor, factor: float) -> tf.Tensor:
    return value * tf.where(number == 3, tf.constant(factor, value.dtype), tf.ones([], value.dtype))


@fault
def gradient_infinite_on_rank_one() -> Iterator[None]:  # no fault of ours: every replica must skip the step
    real = step.Step.gradients

    def gradients(self: Any, batch: Any, number: tf.Tensor, scale: Any = None) -> Any:
        *found, loss_sum, count = real(self, batch, number, scale)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        here = tf.where(tf.equal(replica, 1), number, tf.constant(-1, tf.int64))
        found = [_times_in_step_three(gradient, here, float("inf")) for gradient in found]
        return *found, loss_sum, count

    with patch.object(step.Step, "gradients", gradients):
        yield
