"""One rule applied to tensors of any owner: our optimizer, or one that a wrapper holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parity.common.execution.hooks import around
from parity.common.spec.optimizers import OptimizerBase
from parity.torch_impl.sharding.tensors import CanonicalTensor
from parity.torch_impl.strategy import Strategy


@dataclass(frozen=True)
class Update:
    """What a rule is given of the tensors that it updates, each this rank's part.

    decay: the change by decoupled decay, None where there is none. gradients: clipped, coupled decay
    added; not to be changed. slots: by slot name; to be changed in place.
    tensors: give the layout, and the whole tensors where a rule needs them.
    """

    spec: Any
    scalars: Mapping[str, float]
    weights: list[Tensor]
    decay: list[Tensor] | None
    gradients: list[Tensor]
    slots: dict[str, list[Tensor]]
    tensors: list[CanonicalTensor]
    strategy: Strategy | None

    @property
    def decayed(self) -> list[Tensor]:
        """The weights after the decay."""
        return self.weights if self.decay is None else list(torch._foreach_add(self.weights, self.decay))


# What is added to the decayed weights; may be a slot itself.
Rule = Callable[[Update], list[Tensor]]
_RULES: dict[type[OptimizerBase], Rule] = {}


def register(*kinds: type[OptimizerBase]) -> Callable[[Rule], Rule]:
    """Make a function the rule of some optimizers."""

    def take(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return take


def average_into(
    averages: list[Tensor], weights: list[Tensor], changes: list[Tensor], scalars: Mapping[str, float]
) -> list[Tensor]:
    """Take updated weights into their averages; the changes with that by which an average overwrites them."""
    kept = scalars["average_decay"]
    torch._foreach_mul_(averages, kept)
    torch._foreach_add_(averages, weights, alpha=1 - kept)
    if scalars["overwrite"]:
        changes = torch._foreach_add(changes, torch._foreach_sub(averages, weights))
        torch._foreach_copy_(weights, averages)
    return changes


def changes_of(
    rule: OptimizerBase,
    scalars: Mapping[str, float],
    weights: list[Tensor],
    gradients: list[Tensor],
    slots: dict[str, list[Tensor]],
    tensors: Sequence[CanonicalTensor] = (),
    strategy: Strategy | None = None,
) -> list[Tensor]:
    """The changes of weights by their decay and their rule; changes the slots in place.

    Rules that treat each element by itself need neither `tensors` nor `strategy`.
    """
    decay = None
    if rule.weight_decay and rule.weight_decay_mode == "coupled":
        gradients = torch._foreach_add(gradients, weights, alpha=rule.weight_decay)
    elif rule.weight_decay and rule.weight_decay_mode == "decoupled":
        decay = torch._foreach_mul(weights, -scalars["learning_rate"] * rule.weight_decay)
    given = Update(rule, scalars, weights, decay, gradients, slots, list(tensors), strategy)
    changes = around("rule", _RULES[type(rule)])(given)
    return changes if decay is None else torch._foreach_add(changes, decay)
