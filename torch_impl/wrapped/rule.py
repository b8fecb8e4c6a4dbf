"""Our rules as a `torch.optim.Optimizer`, for wrappers that want to hold one.

A wrapper may hand it whole parameters, a rank's share of them, or flat parts that hold pieces of many
(DeepSpeed). So only rules that treat each element by itself will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    A group (see `groups_of`) carries the rule of its tensors, the initial values of their slots, and
    the limit of each element's gradient. `state[tensor][slot]` are the slots.
    """

    def __init__(self, groups: Any, **defaults: Any) -> None:
        super().__init__(groups, {"lr": 0.0, **defaults})
        self._scalars: Mapping[str, float] | None = None
        self._factor: float | Tensor = 1.0
        # By tensor, what the last step has changed it by; kept where it is not None.
        self.changes: dict[Tensor, Tensor] | None = None

    def set_step(self, scalars: Mapping[str, float], gradient_factor: float | Tensor = 1.0) -> None:
        """Say what the next calls of `step` are to use.

        Args:
            scalars: of the step, as StepScalars gives them.
            gradient_factor: times `tensor.grad` it is the global mean gradient, clipped by global norm
                where the spec says so. Clipping by value is done here.
        """
        self._scalars, self._factor = scalars, gradient_factor
        for group in self.param_groups:
            # For wrappers that show it; the rules take it from the scalars.
            group["lr"] = scalars["learning_rate"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all tensors that have a gradient. Before the first `set_step` it only makes the slots."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [tensor for tensor in group["params"] if tensor.grad is not None]
            if weights:
                slots = {name: self._slot(weights, name, value) for name, value in group["slots"].items()}
                if self._scalars is not None:
                    self._update(group, weights, slots)
        return loss

    def _slot(self, weights: list[Tensor], name: str, initial: float) -> list[Tensor]:
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.full_like(weight, initial)
        return [self.state[weight][name] for weight in weights]

    def _update(self, group: dict[str, Any], weights: list[Tensor], slots: dict[str, list[Tensor]]) -> None:
        scalars, limit = self._scalars, group["clip_value"]
        gradients = list(torch._foreach_mul([weight.grad for weight in weights], self._factor))
        if limit is not None:
            torch._foreach_clamp_min_(gradients, -limit)
            torch._foreach_clamp_max_(gradients, limit)
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
        group = {"params": [], "rule": rule, "slots": slots, "clip_value": spec.clip_value}
        groups.setdefault(key, group)["params"].append(tensor.live)
    return list(groups.values())
