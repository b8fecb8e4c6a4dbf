"""One rule applied to tensors of any owner: our optimizer, or one that a wrapper holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import parity.torch_impl.optimizers.base as base
from parity.common.execution.hooks import around
from parity.common.spec.optimizers import OptimizerBase
from parity.torch_impl.sharding.tensors import CanonicalTensor
from parity.torch_impl.strategy import Strategy


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
    given = base.Update(rule, scalars, weights, decay, gradients, slots, list(tensors), strategy)
    changes = around("rule", base._RULES[type(rule)])(given)
    return changes if decay is None else torch._foreach_add(changes, decay)
