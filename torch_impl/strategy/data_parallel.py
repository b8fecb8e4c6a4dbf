"""nn.DataParallel: one process that gives each of its GPUs a part of every batch, in threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from parity.common.execution.pass_context import Context
from parity.common.spec import Placement
from parity.torch_impl.layers.registry import Contextual, call
from parity.torch_impl.strategy.base import Strategy

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class DataParallel(Strategy):
    """The model is copied to all GPUs at every step; outputs and gradients come together on the first.

    So the loss is that of the whole batch, and nothing has to be reduced. Without GPUs nn.DataParallel
    calls the module itself, whatever the number of replicas (`runtime.configure` refuses that).
    """

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        self._gpus = list(range(placement.replicas)) if self.device != "cpu" else None

    def _join(self, backend: str) -> None:
        """There is nobody to join."""

    def by_replica(self, ids: Tensor) -> list[Tensor]:
        parts = list(ids.chunk(self.placement.replicas))
        return parts + [ids[:0]] * (self.placement.replicas - len(parts))

    def wrap(self, model: Model) -> None:
        model.module = _Scattered(nn.DataParallel(_Part(model.module), self._gpus))


class _Scattered(Contextual):
    """nn.DataParallel with the context's tensors among what it divides."""

    def __init__(self, parallel: nn.DataParallel) -> None:
        super().__init__()
        self.parallel = parallel

    def forward(self, x: Tensor, context: Context) -> Tensor:
        facts = (context.training, context.seed, context.step)
        y, penalties = self.parallel(x, context.sample_ids, context.token_mask, facts)
        context.penalties.append(penalties.sum())
        return y


class _Part(nn.Module):
    """The model on one GPU's part of a batch: its output, and its penalties."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(
        self, x: Tensor, sample_ids: Tensor, token_mask: Tensor | None, facts: tuple
    ) -> tuple[Tensor, Tensor]:
        context = Context(*facts, sample_ids, token_mask)
        y = call(self.module, x, context)
        return y, torch.stack([y.new_zeros(()), *context.penalties]).sum()[None]
