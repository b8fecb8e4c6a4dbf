"""Strategies whose ranks, or GPUs, each hold the whole model."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from parity.common.execution.pass_context import Context
from parity.common.spec import Placement, strategies
from parity.torch_impl.layers.registry import Contextual, call
from parity.torch_impl.private_names import SYNC_BUFFERS
from parity.torch_impl.strategy.all_reduce import PiggybackedAllReduce
from parity.torch_impl.strategy.base import Strategy
from parity.torch_impl.strategy.blocks import checkpoint_blocks

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


def ddp_options(placement: Placement) -> dict[str, Any]:
    """DistributedDataParallel's arguments; zero_redundancy leaves none of them to choose."""
    given = placement.options
    options = given if isinstance(given, strategies.DDP) else strategies.DDP()
    return {
        # Batch norm keeps its buffers equal, or takes rank 0's; broadcasting them again is a waste.
        SYNC_BUFFERS: False,
        "bucket_cap_mb": options.bucket_mb,
        "find_unused_parameters": options.find_unused_parameters,
        "gradient_as_bucket_view": options.gradient_as_bucket_view,
        "static_graph": options.static_graph,
    }


class Manual(Strategy):
    """Every gradient summed by an all-reduce of its own after the backward pass, as tutorials teach it."""

    def reduced(self, gradients: list[Tensor]) -> list[Tensor]:
        for gradient in gradients:
            dist.all_reduce(gradient)
        return gradients


class DDP(Strategy):
    """DistributedDataParallel: gradients averaged in buckets while the backward pass goes on."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        self.averages_over = placement.replicas

    def wrap(self, model: Model) -> None:
        checkpoint_blocks(self.placement, model.module)
        options, like = ddp_options(self.placement), next(iter(model.parameters.values())).live
        # These options look in the forward pass for what there is to reduce.
        looks = options["find_unused_parameters"] or options["static_graph"]
        if PiggybackedAllReduce.possible(self.averages_over) and not looks:
            # Loss sum, count, and that by which the replicas are compared.
            self._carrier = PiggybackedAllReduce(model.module, like, self.averages_over, most=3)
        model.module = DistributedDataParallel(model.module, **options)
        if self._carrier is not None:
            self._carrier.wrapped()

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        # A static graph may not skip a reduction (an internal assertion of torch 2.13). Reduced each time,
        # what was averaged before stays as it is, being equal on all ranks.
        if last or getattr(self.placement.options, "static_graph", False):
            return nullcontext()
        return model.module.no_sync()


class DataParallel(Strategy):
    """nn.DataParallel: one process that gives each of its GPUs a part of every batch, in threads.

    The model is copied to all GPUs at every step; outputs and gradients come together on the first. So the loss is that of the whole batch, and nothing has to be reduced. Without GPUs nn.DataParallel
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
