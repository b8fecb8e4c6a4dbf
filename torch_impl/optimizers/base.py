"""What every optimizer shares: slots, clipping, decay, the average of the weights.

Tensors with the same rule are updated together: by PyTorch's foreach kernels, as its own optimizers do, or
joined into one long tensor. On a CPU foreach is a loop over kernels, which for small tensors is all overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parity.common.base.registry import Registry
from parity.common.reference import AVERAGE
from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.canonical import slots_of
from parity.torch_impl.model import Model
from parity.torch_impl.sharding.tensors import CanonicalTensor, local
from parity.torch_impl.strategy import Strategy
from parity.torch_impl.wrapped.changes import average_into, changes_of
from parity.torch_impl.wrapped.joined import JoinedTensors

# Elements that are updated at once: what a rule reads and writes of them fits a core's cache.
_PART = 1 << 17


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
_RULES: Registry[Rule] = Registry()
register = _RULES.register


@dataclass(frozen=True)
class _Group:
    """Tensors that are updated alike, and their slots.

    places: where their pieces are in what `Optimizer.join` gives.
    """

    rule: OptimizerBase
    places: list[int]
    slots: dict[str, list[Tensor]]


class Optimizer(JoinedTensors):
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
        specs = model.specs
        shapes = {name: spec.shape for name, spec in specs.items()}
        alike: dict[tuple, tuple[OptimizerBase, list[int]]] = {}
        initial = list(slots_of(spec, specs).values())
        for place, name in enumerate(self._named):
            rule = spec.rule_for(name.removeprefix("parameters/"), shapes[name])
            alike.setdefault((type(rule), rule.weight_decay, *initial[place]), (rule, []))[1].append(place)
        elementwise = spec.elementwise and spec.clip_norm is None
        if strategy.joins and elementwise and all(w.device.type == "cpu" for w in self._weights):
            self._runs = [places for _, places in alike.values()]
            if strategy.moves_parameters:
                self._long = self.join(self._weights)
                self._weights = self.apart(self._long)
                for tensor, weight in zip(self._tensors, self._weights, strict=True):
                    tensor.live.data = weight
        self._groups = [
            _Group(rule, places if self._runs is None else [number], self._made(initial, places, shapes))
            for number, (rule, places) in enumerate(alike.values())
        ]
        # In the order of the parameters, whatever the groups.
        self.slots = {
            slot: {n: parts[n] for n in self._named if n in parts} for slot, parts in self.slots.items()
        }
        averages = [piece for group in self._groups for piece in group.slots.pop(AVERAGE, [])]
        self._average = averages if self._runs else self._averages()

    def _made(
        self, initial: list[dict[str, Any]], places: list[int], shapes: dict[str, tuple[int, ...]]
    ) -> dict[str, list[Tensor]]:
        """The slots of one group, in pieces as of `join`; each tensor's own go into `slots`."""
        names, found = list(self._named), {}
        for slot in initial[places[0]]:
            parts = {}
            for place in places:
                weight, given = self._weights[place], initial[place][slot]
                like = weight if given.shape == shapes[names[place]] else weight.new_empty(given.shape)
                parts[names[place]] = torch.full_like(like, given.value)
            found[slot] = list(parts.values())
            if self._runs is not None:
                found[slot] = [torch.cat([part.reshape(-1) for part in parts.values()])]
                pieces = found[slot][0].split([part.numel() for part in parts.values()])
                parts = {n: p.view(part.shape) for (n, part), p in zip(parts.items(), pieces, strict=True)}
            self.slots.setdefault(slot, {}).update(parts)
        return found

    @torch.no_grad()
    def clip(self, gradients: list[Tensor], norm: Tensor) -> list[Tensor]:
        """Limit the reduced gradients, in pieces as of `join`, as the spec says; `norm` is their global norm."""
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
        """Update weights and slots in place; return the changes of the weights, all in pieces as of `join`."""
        weights, changes = self.weights, list(gradients)
        for group in self._groups:
            if self._runs:
                (place,) = group.places
                changes[place] = _in_parts(group, scalars, weights[place], gradients[place])
                continue
            mine = [[values[place] for place in group.places] for values in (weights, gradients)]
            tensors = [self._tensors[place] for place in group.places]
            changed = changes_of(group.rule, scalars, *mine, group.slots, tensors, self._strategy)
            torch._foreach_add_(mine[0], changed)
            for place, change in zip(group.places, changed, strict=True):
                changes[place] = change
        if self._average:
            changes = average_into(self._average, weights, changes, scalars)
        if self._runs and self._long is None:
            torch._foreach_copy_(self._weights, self.apart(weights))
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
        torch._foreach_copy_(self._weights, self._averages())
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, kept)

    def _averages(self) -> list[Tensor]:
        """This rank's parts of the weights' averages; collective where the slots are divided otherwise."""
        return list(self.slots.get(AVERAGE, {}).values())


def _in_parts(group: _Group, scalars: dict[str, float], weight: Tensor, gradient: Tensor) -> Tensor:
    """Update one long tensor, a part at a time, which stays in the cache; its changes.

    A rule that looks at whole tensors keeps all from being joined.
    """
    changes = torch.empty_like(weight)
    slots = [slot.split(_PART) for (slot,) in group.slots.values()]
    parts = (tensor.split(_PART) for tensor in (weight, gradient, changes))
    for w, g, change, *own in zip(*parts, *slots, strict=True):
        named = {name: [part] for name, part in zip(group.slots, own, strict=True)}
        change.copy_(changes_of(group.rule, scalars, [w], [g], named)[0])
        w.add_(change)
    return changes


def build_optimizer(spec: OptimizerBase, model: Model, strategy: Strategy) -> Optimizer:
    """The optimizer of a resolved spec, its slots at their initial values."""
    spec = model.own_rules(spec)
    if strategy.placement.strategy == "zero_redundancy":
        from parity.torch_impl.wrapped.zero import ZeroOptimizer

        return ZeroOptimizer(spec, model, strategy)
    if strategy.placement.strategy == "deepspeed":
        from parity.torch_impl.strategy.deepspeed_parts import DeepSpeedOptimizer

        return DeepSpeedOptimizer(spec, model, strategy)
    return Optimizer(spec, model, strategy)
