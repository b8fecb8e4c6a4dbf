"""Optimizers in either framework's convention; formulas as in `common/reference.py`.

All tensors are updated together by PyTorch's foreach kernels, as its own optimizers do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from common import reference
from common.spec import SGD
from common.spec.optimizers import OptimizerBase
from torch_impl.model import Model, local
from torch_impl.strategy import Strategy


class Optimizer:
    """Slots and the update of all tensors."""

    def __init__(self, spec: OptimizerBase, model: Model) -> None:
        self.spec = spec
        self.slots: dict[str, dict[str, Tensor]] = {
            slot: {name: torch.zeros_like(local(p.live.detach())) for name, p in model.parameters.items()}
            for slot in reference.slot_names(spec)
        }

    @torch.no_grad()
    def update(
        self,
        weights: list[Tensor],
        gradients: list[Tensor],
        scalars: tuple[float, float, float],
        slots: list[list[Tensor]],
    ) -> list[Tensor]:
        """Update this rank's weights and slots in place; return the changes that were applied."""
        spec = self.spec
        rate, step_size, second_correction = scalars
        decay = None
        if spec.weight_decay and spec.weight_decay_mode == "coupled":
            gradients = torch._foreach_add(gradients, weights, alpha=spec.weight_decay)
        elif spec.weight_decay:
            decay = torch._foreach_mul(weights, -rate * spec.weight_decay)
        if isinstance(spec, SGD):
            changes = self._sgd(gradients, rate, slots)
        else:
            first, second = slots
            torch._foreach_mul_(first, spec.beta_1)
            torch._foreach_add_(first, gradients, alpha=1 - spec.beta_1)
            torch._foreach_mul_(second, spec.beta_2)
            torch._foreach_addcmul_(second, gradients, gradients, 1 - spec.beta_2)
            root = torch._foreach_sqrt(second)
            torch._foreach_div_(root, second_correction)
            torch._foreach_add_(root, spec.epsilon)
            changes = torch._foreach_mul(first, -step_size)
            torch._foreach_div_(changes, root)
        if decay is not None:
            changes = torch._foreach_add(changes, decay)
        torch._foreach_add_(weights, changes)
        return list(changes)

    def _sgd(self, gradients: list[Tensor], rate: float, slots: list[list[Tensor]]) -> list[Tensor]:
        spec = self.spec
        if not slots:
            return torch._foreach_mul(gradients, -rate)
        (slot,) = slots
        torch._foreach_mul_(slot, spec.momentum)
        if spec.momentum_form == "velocity":
            torch._foreach_add_(slot, gradients, alpha=-rate)
            if not spec.nesterov:
                return slot
            return torch._foreach_add(torch._foreach_mul(slot, spec.momentum), gradients, alpha=-rate)
        torch._foreach_add_(slot, gradients)
        direction = torch._foreach_add(gradients, slot, alpha=spec.momentum) if spec.nesterov else slot
        return torch._foreach_mul(direction, -rate)

    def clip(self, gradients: list[Tensor], norm: Tensor) -> list[Tensor]:
        """Scale reduced gradients so that their global norm is at most the spec's."""
        limit = self.spec.clip_global_norm
        if limit is None:
            return gradients
        return torch._foreach_mul(gradients, (limit / (norm + self.spec.clip_epsilon)).clamp(max=1))


def build_optimizer(spec: OptimizerBase, model: Model, strategy: Strategy) -> Optimizer:
    """The optimizer of a resolved spec, its slots zero."""
    del strategy  # wrapping the model has already placed its tensors
    return Optimizer(spec, model)
