"""ZeroRedundancyOptimizer: each rank keeps the slots of some parameters, updates these, and sends them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer

from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.canonical import slots_of
from parity.torch_impl.model import Model
from parity.torch_impl.optimizers.base import Optimizer
from parity.torch_impl.sharding.tensors import CanonicalTensor, Shards, gather_all
from parity.torch_impl.strategy import Strategy
from parity.torch_impl.wrapped.rule import RuleOptimizer, groups_of


class ZeroOptimizer(Optimizer):
    """Our rules within ZeroRedundancyOptimizer.

    slots: as in `Optimizer`, but empty where another rank keeps them.
    """

    def __init__(self, spec: OptimizerBase, model: Model, strategy: Strategy) -> None:
        self.spec = spec
        self._strategy = strategy
        self._named = model.parameters
        self._tensors = list(self._named.values())
        self._parameters = [tensor.live for tensor in self._tensors]
        self._weights = [parameter.detach() for parameter in self._parameters]
        groups = groups_of(spec, model)
        self._zero = ZeroRedundancyOptimizer(groups, optimizer_class=RuleOptimizer)
        self._update([torch.zeros_like(weight) for weight in self._weights])
        self._layouts, self.slots = self._shards_of(model, strategy)

    def _shards_of(
        self, model: Model, strategy: Strategy
    ) -> tuple[dict[str, CanonicalTensor], dict[str, Any]]:
        ranks = strategy.placement.processes
        owner = {id(p): rank for p, rank in self._zero._param_to_rank.items()}
        layouts, slots = {}, {}
        initial = slots_of(self.spec, model.specs)
        for (name, tensor), parameter in zip(self._named.items(), self._parameters, strict=True):
            rank = owner[id(parameter)]
            sizes = tuple(parameter.numel() if each == rank else 0 for each in range(ranks))
            layouts[name] = replace(tensor, flat=Shards(tuple(parameter.shape), sizes, None))
            state = self._zero.optim.state[parameter] if rank == strategy.rank else {}
            for slot in initial[name]:
                kept = state[slot] if state else parameter.detach().new_empty(0)
                slots.setdefault(slot, {})[name] = kept
        return layouts, slots

    def layout(self, name: str) -> CanonicalTensor:
        return self._layouts[name]

    @torch.no_grad()
    def update(self, gradients: list[Tensor], scalars: dict[str, float]) -> list[Tensor]:
        old = [weight.clone() for weight in self._weights]
        self._zero.optim.set_step(scalars)
        self._update(gradients)
        return list(torch._foreach_sub(self._weights, old))

    def _update(self, gradients: list[Tensor]) -> None:
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._zero.step()
        for parameter in self._parameters:
            parameter.grad = None

    def _averages(self) -> list[Tensor]:
        return gather_all(list(self._layouts.values()), super()._averages())
