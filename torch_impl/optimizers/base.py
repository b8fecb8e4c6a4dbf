"""What every optimizer shares: slots, clipping, decay, the average of the weights.

Tensors with the same rule are updated together by PyTorch's foreach kernels, as its own optimizers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from common.reference import AVERAGE
from common.spec.optimizers import OptimizerBase
from common.state import parameter_specs, slots_of
from torch_impl.model import CanonicalTensor, Model, local
from torch_impl.strategy import Strategy


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


@dataclass(frozen=True)
class _Group:
    """Tensors that are updated alike: their places among the parameters, and their slots."""

    rule: OptimizerBase
    places: list[int]
    slots: dict[str, list[Tensor]]


class Optimizer:
    """Slots and the update of all tensors.

    slots: slot -> name of the parameter -> tensor; not every parameter has every slot. A slot of the
    parameter's shape is laid out and sharded as the parameter is; any other is canonical, and whole
    on every rank.
    """

    def __init__(self, spec: OptimizerBase, model: Model, strategy: Strategy) -> None:
        self.spec = spec
        self.slots: dict[str, dict[str, Tensor]] = {}
        self._strategy = strategy
        self._named = model.parameters
        self._tensors = list(self._named.values())
        self._weights = [local(tensor.live.detach()) for tensor in self._tensors]
        specs = parameter_specs(model.spec)
        for (name, slots), weight in zip(slots_of(spec, specs).items(), self._weights, strict=True):
            for slot, initial in slots.items():
                whole = weight.new_empty(initial.shape)
                like = weight if initial.shape == specs[name].shape else whole
                self.slots.setdefault(slot, {})[name] = torch.full_like(like, initial.value)
        self._groups = self._grouped({name: specs[name].shape for name in model.parameters})

    def _grouped(self, shapes: dict[str, tuple[int, ...]]) -> list[_Group]:
        groups: dict[tuple, _Group] = {}
        for place, (name, shape) in enumerate(shapes.items()):
            below = name.removeprefix("parameters/")
            rule = self.spec.rule_of(below, shape)
            if not self.spec.decays(below, shape):
                rule = rule.model_copy(update={"weight_decay": 0.0})
            slots = [slot for slot, tensors in self.slots.items() if name in tensors and slot != AVERAGE]
            key = (type(rule), rule.weight_decay, *slots)
            group = groups.setdefault(key, _Group(rule, [], {slot: [] for slot in slots}))
            group.places.append(place)
            for slot in slots:
                group.slots[slot].append(self.slots[slot][name])
        return list(groups.values())

    def layout(self, name: str) -> CanonicalTensor:
        """How the slots that have a parameter's shape are laid out and sharded."""
        return self._named[name]

    def loaded(self) -> None:
        """Called after weights and slots have been set from outside."""

    @torch.no_grad()
    def clip(self, gradients: list[Tensor], norm: Tensor) -> list[Tensor]:
        """Limit the reduced gradients as the spec says; `norm` is their global norm."""
        spec = self.spec
        if spec.clip_value is not None:
            return [gradient.clamp(-spec.clip_value, spec.clip_value) for gradient in gradients]
        if spec.clip_norm is not None:
            norms = self._strategy.tensor_norms(gradients, self._tensors)
            factors = [(spec.clip_norm / (each + spec.clip_epsilon)).clamp(max=1) for each in norms]
            return [gradient * factor for gradient, factor in zip(gradients, factors, strict=True)]
        if spec.clip_global_norm is not None:
            factor = (spec.clip_global_norm / (norm + spec.clip_epsilon)).clamp(max=1)
            return list(torch._foreach_mul(gradients, factor))
        return gradients

    @torch.no_grad()
    def update(self, gradients: list[Tensor], scalars: dict[str, float]) -> list[Tensor]:
        """Update weights and slots in place; return the changes of the weights."""
        changes = list(gradients)
        for group in self._groups:
            for place, change in zip(group.places, self._changes(group, gradients, scalars), strict=True):
                changes[place] = change
        torch._foreach_add_(self._weights, changes)
        if self.spec.ema is not None:
            changes = self._average(changes, scalars)
        return changes

    def _changes(self, group: _Group, all_gradients: list[Tensor], scalars: dict[str, float]) -> list[Tensor]:
        """The changes of one group's weights."""
        weights, gradients, tensors = (
            [values[place] for place in group.places]
            for values in (self._weights, all_gradients, self._tensors)
        )
        return changes_of(group.rule, scalars, weights, gradients, group.slots, tensors, self._strategy)

    def _average(self, changes: list[Tensor], scalars: dict[str, float]) -> list[Tensor]:
        """Take the new weights into their average; the changes, by which it may overwrite them, too."""
        averages, kept = list(self.slots[AVERAGE].values()), scalars["average_decay"]
        torch._foreach_mul_(averages, kept)
        torch._foreach_add_(averages, self._weights, alpha=1 - kept)
        if scalars["overwrite"]:
            changes = torch._foreach_add(changes, torch._foreach_sub(averages, self._weights))
            torch._foreach_copy_(self._weights, averages)
        return changes

    @contextmanager
    @torch.no_grad()
    def averaged(self) -> Iterator[None]:
        """Within it the weights are their average, where the spec evaluates with that."""
        ema = self.spec.ema
        if ema is None or not ema.evaluate:
            yield
            return
        kept = [weight.clone() for weight in self._weights]
        torch._foreach_copy_(self._weights, list(self.slots[AVERAGE].values()))
        yield
        torch._foreach_copy_(self._weights, kept)


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
    changes = _RULES[type(rule)](given)
    return changes if decay is None else torch._foreach_add(changes, decay)


def build_optimizer(spec: OptimizerBase, model: Model, strategy: Strategy) -> Optimizer:
    """The optimizer of a resolved spec, its slots at their initial values."""
    if strategy.placement.strategy == "zero_redundancy":
        from torch_impl.optimizers.zero import ZeroOptimizer

        return ZeroOptimizer(spec, model, strategy)
    if strategy.placement.strategy == "deepspeed":
        from torch_impl.strategy.deepspeed_parts import DeepSpeedOptimizer

        return DeepSpeedOptimizer(spec, model, strategy)
    return Optimizer(spec, model, strategy)
