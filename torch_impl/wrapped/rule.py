"""Our rules as a `torch.optim.Optimizer`, for wrappers that want to hold one.

A wrapper may hand it whole parameters, a rank's share of them, or flat parts that hold pieces of many
(DeepSpeed). So only rules that treat each element by itself will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from parity.common.reference import AVERAGE
from parity.common.reference.optimizers import initial_slots
from parity.common.spec.optimizers import OptimizerBase
from parity.torch_impl.model import Model
from parity.torch_impl.wrapped.changes import average_into, changes_of


class RuleOptimizer(torch.optim.Optimizer):
    """The update of `Optimizer`, element by element, on whatever tensors its groups hold.

    A group (see `groups_of`) carries the rule of its tensors and the initial values of their slots.
    `state[tensor][slot]` are the slots. Gradients are clipped before they come here.
    """

    def __init__(self, groups: Any, **defaults: Any) -> None:
        super().__init__(groups, {"lr": 0.0, **defaults})
        self._scalars: Mapping[str, float] | None = None
        # By tensor, what the last step has changed it by; kept where it is not None.
        self.changes: dict[Tensor, Tensor] | None = None

    def set_step(self, scalars: Mapping[str, float]) -> None:
        """Say what the next calls of `step` are to use: the scalars of the step, as StepScalars gives them."""
        self._scalars = scalars
        for group in self.param_groups:
            # For wrappers that show it; the rules take it from the scalars.
            group["lr"] = scalars["learning_rate"]

    @torch.no_grad()
    def step(self) -> None:
        """Update all tensors that have a gradient. Before the first `set_step` it only makes the slots."""
        for group in self.param_groups:
            weights = [tensor for tensor in group["params"] if tensor.grad is not None]
            if weights:
                slots = {name: self._slot(weights, name, value) for name, value in group["slots"].items()}
                if self._scalars is not None:
                    self._update(group, weights, slots)

    def _slot(self, weights: list[Tensor], name: str, initial: float) -> list[Tensor]:
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.full_like(weight, initial)
        return [self.state[weight][name] for weight in weights]

    def _update(self, group: dict[str, Any], weights: list[Tensor], slots: dict[str, list[Tensor]]) -> None:
        scalars, gradients = self._scalars, [weight.grad for weight in weights]
        rule_slots = {name: tensors for name, tensors in slots.items() if name != AVERAGE}
        changes = changes_of(group["rule"], scalars, weights, gradients, rule_slots)
        torch._foreach_add_(weights, changes)
        if AVERAGE in slots:
            changes = average_into(slots[AVERAGE], weights, changes, scalars)
        if self.changes is not None:
            self.changes.update(zip(weights, changes, strict=True))


def groups_of(spec: OptimizerBase, model: Model) -> list[dict[str, Any]]:
    """Parameter groups of a model for `RuleOptimizer`: what is updated alike is in one group."""
    groups: dict[tuple, dict[str, Any]] = {}
    specs = model.specs
    for name, tensor in model.parameters.items():
        below, shape = name.removeprefix("parameters/"), specs[name].shape
        rule = spec.rule_for(below, shape)
        slots = {slot: initial.value for slot, initial in initial_slots(spec, below, shape).items()}
        key = (type(rule), rule.weight_decay, *slots.items())
        group = {"params": [], "rule": rule, "slots": slots}
        groups.setdefault(key, group)["params"].append(tensor.live)
    return list(groups.values())
