"""What every optimizer shares: slots, clipping, decay, the average of the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from parity.common.base.registry import Registry
from parity.common.execution.hooks import around
from parity.common.reference import AVERAGE
from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.canonical import slots_of
from parity.tf_impl.model import Model
from parity.tf_impl.strategy import Strategy


class Update(NamedTuple):
    """What a rule is given of one tensor on one replica.

    weight: before the decay. decayed: after it. gradient: clipped, coupled decay added.
    slots: by slot name; the rule sets them anew.
    """

    spec: Any
    scalars: dict[str, tf.Tensor]
    weight: tf.Tensor
    decayed: tf.Tensor
    gradient: tf.Tensor
    slots: dict[str, tf.Variable]


# What is added to the decayed weight.
Rule = Callable[[Update], tf.Tensor]
_RULES: Registry[Rule] = Registry()
register = _RULES.register


class Optimizer:
    """Slots and the update of all tensors.

    slots: slot -> name of the parameter -> variable; not every parameter has every slot.
    """

    def __init__(self, spec: OptimizerBase, model: Model, strategy: Strategy) -> None:
        self.spec = spec
        self.slots: dict[str, dict[str, tf.Variable]] = {}
        self._strategy = strategy
        self._weights = model.parameters
        self._specs = model.specs
        for name, slots in slots_of(spec, self._specs).items():
            for slot, initial in slots.items():
                value = np.full(initial.shape, initial.value, model.spec.master_dtype)
                self.slots.setdefault(slot, {})[name] = tf.Variable(value, trainable=False)

    def clip(self, gradients: list[tf.Tensor], norm: tf.Tensor) -> list[tf.Tensor]:
        """Limit the reduced gradients as the spec says; `norm` is their global norm."""
        spec = self.spec
        if spec.clip_value is not None:
            limit = tf.constant(spec.clip_value, norm.dtype)
            return [tf.clip_by_value(gradient, -limit, limit) for gradient in gradients]
        if spec.clip_norm is not None:
            return [self._limited(g, tf.norm(g), spec.clip_norm) for g in gradients]
        if spec.clip_global_norm is not None:
            return [self._limited(g, norm, spec.clip_global_norm) for g in gradients]
        return gradients

    def _limited(self, gradient: tf.Tensor, norm: tf.Tensor, limit: float) -> tf.Tensor:
        total = norm + self.spec.clip_epsilon
        return gradient * tf.minimum(tf.ones_like(norm), tf.constant(limit, norm.dtype) / total)

    def update(self, gradients: list[tf.Tensor], scalars: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        """Update weights and slots in place; return the changes of the weights.

        Where the scalars have `updated`, and it is false, all stay as they are, whatever the gradients.
        """
        changes = []
        for (name, weight), gradient in zip(self._weights.items(), gradients, strict=True):
            slots = {slot: variables[name] for slot, variables in self.slots.items() if name in variables}
            change = self._strategy.native.extended.update(
                weight, self._one(name, scalars), args=(gradient, slots), group=False
            )
            changes.append(change[0])
        return changes

    def _one(self, name: str, scalars: dict[str, tf.Tensor]) -> Callable[..., tf.Tensor]:
        """The update of one tensor on one replica."""
        below, shape = name.removeprefix("parameters/"), self._specs[name].shape
        rule = self.spec.rule_for(below, shape)

        def update(weight: tf.Variable, gradient: tf.Tensor, slots: dict[str, tf.Variable]) -> tf.Tensor:
            before = decayed = tf.convert_to_tensor(weight)
            decay = None
            kept_slots = {name: tf.convert_to_tensor(slot) for name, slot in slots.items()}
            if rule.weight_decay and rule.weight_decay_mode == "coupled":
                gradient = gradient + rule.weight_decay * before
            elif rule.weight_decay and rule.weight_decay_mode == "decoupled":
                decay = -scalars["learning_rate"] * rule.weight_decay * before
                decayed = before + decay
            given = Update(rule, scalars, before, decayed, gradient, slots)
            change = around("rule", _RULES[type(rule)])(given)
            if decay is not None:
                change = change + decay
            after = before + change
            if AVERAGE in slots:
                kept = scalars["average_decay"]
                average = slots[AVERAGE].assign(kept * slots[AVERAGE] + (1 - kept) * after)
                overwritten = tf.where(scalars["overwrite"] > 0, average, after)
                change, after = change + (overwritten - after), overwritten
            if "updated" in scalars:
                updated = scalars["updated"]
                for name, kept in kept_slots.items():
                    slots[name].assign(tf.where(updated, slots[name], kept))
                change, after = (
                    tf.where(updated, new, old)
                    for new, old in ((change, tf.zeros_like(change)), (after, before))
                )
            weight.assign(after)
            return change

        return update

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the weights are their average, where the spec evaluates with that."""
        ema = self.spec.ema
        if ema is None or not ema.evaluate:
            yield
            return
        kept = {name: np.array(weight.numpy()) for name, weight in self._weights.items()}
        for name, weight in self._weights.items():
            weight.assign(np.array(self.slots[AVERAGE][name].numpy()))
        try:
            yield
        finally:
            for name, weight in self._weights.items():
                weight.assign(kept[name])


def build_optimizer(spec: OptimizerBase, model: Model, strategy: Strategy) -> Optimizer:
    """The optimizer of a resolved spec, its slots at their initial values."""
    with strategy.native.scope():
        return Optimizer(spec, model, strategy)
