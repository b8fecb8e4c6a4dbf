"""Strategies whose ranks each hold parts of parameters, gradients and slots."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

from parity.common.spec import Placement
from parity.torch_impl.private_names import (
    RESHARDS_BY_DEFAULT,
    CPUOffloadPolicy,
    FSDPModule,
    OffloadPolicy,
    all_gather,
    fully_shard,
    reshard_unit,
    settle_shards,
)
from parity.torch_impl.sharding.tensors import Shards
from parity.torch_impl.strategy.all_reduce import PendingSums, PiggybackedAllReduce, begin_sum
from parity.torch_impl.strategy.base import Strategy
from parity.torch_impl.strategy.blocks import blocks_of, checkpoint_blocks, wrap_blocks

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class Sharded(Strategy):
    """What both generations share: groups of ranks that share one copy, and copies that are replicated."""

    sharded = True
    # They are views of what is gathered.
    moves_parameters = False

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        self.averages_over = placement.replicas
        ranks, shared = placement.replicas, getattr(placement.options, "shard_group", None)
        # (ranks,), or where groups are asked for (copies, ranks that share one).
        sizes = {"shard": ranks} if shared is None else {"replicate": ranks // shared, "shard": shared}
        self.mesh = self.mesh_of(**sizes)

    def begin_sum_shards(self, values: list[Tensor]) -> PendingSums:
        if not self.sharded:
            return lambda: values
        # Within one copy: the others hold the same, and a value must count once.
        return begin_sum(values, self.mesh.get_group("shard"))


class FSDP2(Sharded):
    """fully_shard: parameters gathered for each pass, gradients averaged and scattered."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        self._offloads = placement.options.cpu_offload

    def _join(self, backend: str) -> None:
        # Shards in host memory are reduced there.
        offloads = self.placement.options.cpu_offload and backend == "nccl"
        super()._join("cpu:gloo,cuda:nccl" if offloads else backend)

    def wrap(self, model: Model) -> None:
        options = self.placement.options
        checkpoint_blocks(self.placement, model.module)
        blocks = (
            [layers[place] for layers, place in blocks_of(model.module)] if options.wrap == "blocks" else []
        )
        # Layers may return views; none of ours changes its input in place.
        warnings.filterwarnings("ignore", message=".*FSDP2-wrapped module .* returned a view")
        pinned = self.device != "cpu"
        offload = CPUOffloadPolicy(pin_memory=pinned) if options.cpu_offload else OffloadPolicy()
        # It needs the root's parameters to be whole from the forward pass to the backward pass, and others beside it.
        whole = not (options.reshard or blocks or options.cpu_offload)
        if whole and PiggybackedAllReduce.possible(self.averages_over):
            like = next(iter(model.parameters.values())).live
            self._carrier = PiggybackedAllReduce(model.module, like, self.averages_over, self.mesh.size(-1))
        reshard = RESHARDS_BY_DEFAULT if options.reshard is None else options.reshard
        for module in (*blocks, model.module):
            fully_shard(module, mesh=self.mesh, reshard_after_forward=reshard, offload_policy=offload)
        settle_shards(model.module)
        if self._carrier is not None:
            self._carrier.wrapped()

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        model.module.set_requires_gradient_sync(last)
        return nullcontext()

    def begin_sum(self, values: list[Tensor]) -> PendingSums:
        totals = super().begin_sum(values)
        return (lambda: [total.cpu() for total in totals()]) if self._offloads else totals

    def reshard(self, model: Model) -> None:
        for module in model.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


class FSDP1(Sharded):
    """FullyShardedDataParallel: the parameters of each unit as one flat tensor, of which ranks hold parts."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        # One rank alone has nothing to share: FSDP then does as for no_shard.
        self.sharded = placement.options.sharding != "no_shard" and placement.replicas > 1
        self._last = True

    def wrap(self, model: Model) -> None:
        options = self.placement.options
        # Those that are not trained too, where they are parameters of their module.
        shapes = {n: t.shape for n, t in model.tensors.items() if isinstance(t.live, nn.Parameter)}
        checkpoint_blocks(self.placement, model.module)
        if options.wrap == "blocks":
            wrap_blocks(model.module, self._unit)
        model.module = self._unit(model.module)
        if self.sharded:
            self._find_shards(model, shapes)

    def _unit(self, module: nn.Module) -> FullyShardedDataParallel:
        # no_shard is deprecated, and one rank alone becomes it; both are asked for here.
        for message in (".*NO_SHARD.*deprecated", ".*switching to use `NO_SHARD`"):
            warnings.filterwarnings("ignore", message=message)
        return FullyShardedDataParallel(
            module,
            device_mesh=self.mesh,
            sharding_strategy=ShardingStrategy[self.placement.options.sharding.upper()],
            # On CPU too: without it, FSDP takes whatever accelerator it finds.
            device_id=torch.device(self.device),
            # So that each parameter stays a tensor of its own: this rank's elements of it.
            use_orig_params=True,
        )

    def _find_shards(self, model: Model, shapes: dict[str, tuple[int, ...]]) -> None:
        """Learn how many elements of each parameter every rank has: units are cut wherever it falls."""
        group = self.mesh.get_group("shard")
        mine = torch.tensor([model.tensors[name].live.numel() for name in shapes], device=self.device)
        everyone = mine.new_empty(dist.get_world_size(group) * len(mine))
        all_gather(everyone, mine, group=group)
        for (name, shape), sizes in zip(shapes.items(), everyone.view(-1, len(mine)).T.tolist(), strict=True):
            model.tensors[name] = replace(model.tensors[name], flat=Shards(shape, tuple(sizes), group))
        self._empty = [t.live for t in model.parameters.values() if t.live.numel() == 0]

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        self._last = last
        return nullcontext() if last else model.module.no_sync()

    def backward(self, loss_sum: Tensor) -> None:
        super().backward(loss_sum)
        if self._last and self.sharded:
            for parameter in self._empty:
                # FSDP gives none to a parameter of which this rank has no element.
                parameter.grad = torch.zeros_like(parameter)

    def reshard(self, model: Model) -> None:
        for unit in FullyShardedDataParallel.fsdp_modules(model.module):
            if self.sharded:
                reshard_unit(unit)
