"""Faults of clipping, optimizers, schedules, and of what the replicas hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from parity.common import reference
from parity.common.execution.hooks import Hook
from parity.common.execution.step import LocalGradients, Reduced
from parity.common.spec.optimizers import SGD, Adam, AdamW, OptimizerBase
from parity.tf_impl.optimizers import Optimizer
from parity.tf_impl.step import Step
from parity_tests.faults.tensorflow_base import fault
from parity_tests.faults.tensorflow_reduction import replica
from parity_tests.helpers.hooks import hooked

# Clipping.


def _before_the_sum(change: Callable[[Any, list, tf.Tensor], list]) -> Any:
    """Change each replica's gradients, as shares of the global mean; change(optimizer's spec, shares, count)."""

    def summed(step: Step, part: Hook, local: LocalGradients) -> Reduced:
        total = step.strategy.sum([local.count])[0]
        shares = [gradient / total for gradient in local.gradients]
        changed = change(step.spec.optimizer, shares, local.count)
        return part(local._replace(gradients=[share * total for share in changed]))

    return hooked(sum_over_replicas=summed)


def _clip_with(clip: Callable[[Step, Reduced, tf.Tensor], list]) -> Any:
    """Replace the clipped gradients; the norm that is recorded stays right: clip(step, reduced, norm)."""

    def clipped(step: Step, part: Hook, reduced: Reduced) -> tuple[list, tf.Tensor]:
        _, norm = part(reduced)
        return clip(step, reduced, norm), norm

    return hooked(clip=clipped)


@fault
def clipped_before_the_reduction() -> Iterator[None]:  # 12: Keras 3's order
    def clip(spec: Any, shares: list, count: tf.Tensor) -> list:
        limit = tf.constant(spec.clip_global_norm, count.dtype)
        return tf.clip_by_global_norm(shares, limit)[0]

    with _before_the_sum(clip):
        yield


@fault
def clipped_by_local_norm() -> Iterator[None]:  # 13
    norms: dict[int, tf.Tensor] = {}

    def remember(spec: Any, shares: list, count: tf.Tensor) -> list:
        norms[replica()] = tf.linalg.global_norm(shares)
        return shares

    def clip(step: Step, reduced: Reduced, norm: tf.Tensor) -> list:
        return step.optimizer.clip(reduced.gradients, norms[replica()])

    with _before_the_sum(remember), _clip_with(clip):
        yield


@fault
def each_tensor_clipped_by_its_own_norm() -> Iterator[None]:  # 13: Keras's clipnorm for global_clipnorm
    def clip(step: Step, reduced: Reduced, norm: tf.Tensor) -> list:
        spec, one = step.spec.optimizer, tf.ones_like(norm)
        limit = tf.constant(spec.clip_global_norm, norm.dtype)
        return [g * tf.minimum(one, limit / (tf.norm(g) + spec.clip_epsilon)) for g in reduced.gradients]

    with _clip_with(clip):
        yield


@fault
def clipping_silently_off() -> Iterator[None]:  # 14
    with _clip_with(lambda step, reduced, norm: reduced.gradients):
        yield


@fault
def clipping_off_in_float32() -> Iterator[None]:  # 14: in one precision
    def clip(step: Step, reduced: Reduced, norm: tf.Tensor) -> list:
        gradients = reduced.gradients
        return gradients if norm.dtype == tf.float32 else step.optimizer.clip(gradients, norm)

    with _clip_with(clip):
        yield


# Rules.


def _rule(change: Callable[[Any], Any], *kinds: type) -> Any:
    """Give the rules of some optimizers another update; change(given) -> given."""
    return hooked(
        rule=lambda owner, part, given: part(change(given) if isinstance(given.spec, kinds) else given),
    )


def _setting(*kinds: type, **change: Any) -> Any:
    return _rule(lambda given: given._replace(spec=given.spec.model_copy(update=change)), *kinds)


def _rule_spec(change: Callable[[Any], dict[str, Any]]) -> Any:
    """Change the spec that a tensor is updated by."""
    real = OptimizerBase.rule_for

    def rule_for(self: Any, name: str, shape: tuple[int, ...]) -> OptimizerBase:
        rule = real(self, name, shape)
        return rule.model_copy(update=change(rule))

    return patch.object(OptimizerBase, "rule_for", rule_for)


@fault
def decay_coupled() -> Iterator[None]:  # 16
    with _rule_spec(lambda rule: {"weight_decay_mode": "coupled"}):
        yield


@fault
def decay_of_the_l2_penalty() -> Iterator[None]:  # 16: wd * sum(w^2), whose gradient is 2 * wd * w
    with _rule_spec(lambda rule: {"weight_decay": 2 * rule.weight_decay}):
        yield


@fault
def biases_decay_too() -> Iterator[None]:  # 16
    with patch.object(OptimizerBase, "decays", lambda self, name, shape: True):
        yield


@fault
def nesterov_forgotten() -> Iterator[None]:  # 18
    with _setting(SGD, nesterov=False):
        yield


@fault
def momentum_folds_the_learning_rate() -> Iterator[None]:  # 18: Keras's momentum, under a schedule
    def folded(given: Any) -> tf.Tensor:
        spec, slot = given.spec, given.slots["momentum_buffer"]
        return slot.assign(spec.momentum * slot - given.scalars["learning_rate"] * given.gradient)

    with hooked(rule=lambda owner, part, given: folded(given)):
        yield


@fault
def adam_without_bias_correction() -> Iterator[None]:  # 17
    real = reference.StepScalars.scalars

    def scalars(self: Any, number: int) -> Any:
        given = real(self, number)
        return {**given, "step_size": given["learning_rate"], "second_correction": 1.0}

    with patch.object(reference.StepScalars, "scalars", scalars):
        yield


@fault
def adam_steps_by_the_learning_rate() -> Iterator[None]:  # 17: the same in the rule itself
    def uncorrected(given: Any) -> Any:
        rate = given.scalars["learning_rate"]
        corrections = {"step_size": rate, "second_correction": tf.ones_like(rate)}
        return given._replace(scalars={**given.scalars, **corrections})

    with _rule(uncorrected, Adam, AdamW):
        yield


@fault
def adam_epsilon_in_the_other_place() -> Iterator[None]:  # 17
    real = reference.StepScalars.__init__

    def init(self: Any, spec: Any) -> None:
        optimizer = spec.optimizer.model_copy(update={"epsilon_place": "inside"})
        real(self, spec.model_copy(update={"optimizer": optimizer}))

    with patch.object(reference.StepScalars, "__init__", init):
        yield


@fault
def adam_epsilon_of_the_other_framework() -> Iterator[None]:  # 17
    with _setting(Adam, AdamW, epsilon=1e-8):
        yield


@fault
def learning_rate_off_by_two_percent() -> Iterator[None]:  # none that is recorded
    def update(step: Step, part: Hook, clipped: Any, scalars: Any, updated: Any) -> Any:
        rates = {name: scalars[name] * 1.02 for name in ("learning_rate", "step_size") if name in scalars}
        return part(clipped, {**scalars, **rates}, updated)

    with hooked(update=update):
        yield


def _update_with(change: Callable[..., Any]) -> Any:
    """Replace the update of one tensor on one replica: change(real, weight, gradient, slots)."""
    real = Optimizer._one

    def one(self: Any, *arguments: Any) -> Any:
        update = real(self, *arguments)
        return lambda *given: change(update, *given)

    return patch.object(Optimizer, "_one", one)


@fault
def moments_averaged_over_replicas() -> Iterator[None]:  # 6: aggregation "mean" of each replica's share
    real = Optimizer._one

    def one(self: Any, *arguments: Any) -> Any:
        update, replicas = real(self, *arguments), self._strategy.placement.replicas
        return lambda weight, gradient, slots: update(weight, gradient / replicas, slots)

    with patch.object(Optimizer, "_one", one):
        yield


@fault
def gradients_one_step_late() -> Iterator[None]:  # an update that does not wait for its gradients
    real_init, real_one = Optimizer.__init__, Optimizer._one

    def init(self: Any, spec: Any, model: Any, strategy: Any) -> None:
        real_init(self, spec, model, strategy)
        self._late = {
            name: tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False)
            for name, weight in model.parameters.items()
        }

    def one(self: Any, name: str, scalars: Any) -> Any:
        update = real_one(self, name, scalars)

        def late(weight: Any, gradient: tf.Tensor, slots: Any) -> Any:
            held = tf.identity(self._late[name])
            with tf.control_dependencies([held]):
                self._late[name].assign(gradient)
            return update(weight, held, slots)

        return late

    with patch.multiple(Optimizer, __init__=init, _one=one):
        yield


# Schedules.


def _rate(change: Callable[[Callable[[int], float], int], float]) -> Any:
    real = reference.StepScalars.rate
    return patch.object(
        reference.StepScalars, "rate", lambda self, step: change(lambda other: real(self, other), step)
    )


@fault
def warm_up_off_by_one() -> Iterator[None]:  # 25: read at iterations + 1
    with _rate(lambda real, step: real(step + 1)):
        yield


@fault
def schedule_stepped_twice() -> Iterator[None]:  # 25: once a replica, or a micro-batch, of two
    with _rate(lambda real, step: real(2 * step)):
        yield


@fault
def schedule_stepped_three_times() -> Iterator[None]:  # 25: the same of three
    with _rate(lambda real, step: real(3 * step)):
        yield


@fault
def rate_scaled_by_the_replicas() -> Iterator[None]:  # 25: the linear scaling rule, applied to a global batch
    with _rate(lambda real, step: 2 * real(step)):
        yield


@fault
def rate_through_float32() -> Iterator[None]:  # 33: a schedule's Python floats become float32
    with _rate(lambda real, step: float(np.float32(real(step)))):
        yield


# What the replicas hold.


def _is_second(tensor: Any) -> bool:
    """Whether a component of a mirrored variable is replica 1's, of two."""
    return tensor.device.endswith("CPU:1") or "task:1" in tensor.device


@fault
def a_replica_keeps_stale_parameters() -> Iterator[
    None
]:  # 11: it updates its slots, and uses the old weights
    def stale(update: Any, weight: Any, *rest: Any) -> Any:
        if not _is_second(weight):
            return update(weight, *rest)
        before = tf.identity(weight)
        update(weight, *rest)
        weight.assign(before)
        return tf.zeros_like(before)

    with _update_with(stale):
        yield


@fault
def a_replica_drifts() -> Iterator[None]:  # 10: something on one replica only
    def drifting(update: Any, weight: Any, *rest: Any) -> Any:
        change = update(weight, *rest)
        if _is_second(weight):
            weight.assign_add(1e-3 * tf.cos(tf.identity(weight)))
        return change

    with _update_with(drifting):
        yield


@fault
def a_replica_starts_elsewhere() -> Iterator[None]:  # 10: what was loaded reached the first replica only
    def load(run: Any, part: Hook, values: Any) -> None:
        part(values)
        for variable in run.model.parameters.values():
            copies = run.strategy.unpack(variable)
            for number, copy in zip(run.strategy.local_replicas, copies, strict=True):
                if number == 1:
                    copy.assign(1.1 * copy)

    with hooked(load=load):
        yield
