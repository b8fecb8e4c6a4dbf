"""Parallelism, all of it: replicas, where they run, and sums over them."""

from __future__ import annotations

import gc
import os
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from common.spec import Placement
from torch_impl import runtime

if TYPE_CHECKING:
    from torch_impl.model import Model


class Strategy:
    """This rank's place among the replicas, and the few things that training needs of it."""

    def __init__(self, placement: Placement) -> None:
        """Join the process group that the launcher's environment describes.

        RANK, LOCAL_RANK and WORLD_SIZE as torchrun sets them; our own launcher also sets
        PARITY_RENDEZVOUS, a file to meet at, so that local runs need no port.
        """
        self.placement = placement
        self.rank = rank = int(os.environ.get("RANK", 0))
        rendezvous = os.environ.get("PARITY_RENDEZVOUS")
        gpu = runtime.uses_gpu(placement)
        self.device = f"cuda:{os.environ.get('LOCAL_RANK', rank)}" if gpu else "cpu"
        if gpu:
            torch.cuda.set_device(self.device)
        if placement.strategy == "single":
            return
        if placement.launcher == "local":
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group(
            "nccl" if gpu else "gloo",
            init_method="env://" if rendezvous is None else f"file://{rendezvous}",
            rank=rank,
            world_size=placement.replicas,
            # The default of 30 minutes would make every mistake look like a hang.
            timeout=timedelta(seconds=placement.timeout_seconds),
        )

    @property
    def local_replicas(self) -> range:
        """The replicas that this process holds."""
        return range(self.rank, self.rank + 1)

    def wrap(self, model: Model) -> None:
        """Make the model's backward pass average gradients over the ranks."""
        if self.placement.strategy == "ddp":
            # Batch norm keeps its buffers equal, or takes rank 0's; broadcasting them again is a waste.
            model.module = DistributedDataParallel(
                model.module, forward_sync_buffers=False, gradient_as_bucket_view=True
            )
        elif self.placement.strategy == "fsdp2":
            kind = self.device.partition(":")[0]
            mesh = init_device_mesh(kind, (self.placement.replicas,))
            fully_shard(model.module, mesh=mesh)

    def sum(self, values: list[Tensor]) -> list[Tensor]:
        """Sums of scalars over the ranks, on every rank, in one message."""
        if self.placement.replicas == 1:
            return values
        stacked = torch.stack(values)
        dist.all_reduce(stacked)
        return list(stacked)

    def norms(self, *groups: list[Tensor]) -> list[Tensor]:
        """The global L2 norm of each group of tensors, of which this rank may hold shards."""
        return self._whole([torch.linalg.vector_norm(torch.stack(torch._foreach_norm(g))) for g in groups])

    def tensor_norms(self, tensors: list[Tensor]) -> list[Tensor]:
        """The L2 norm of each tensor, of which this rank may hold a shard."""
        return self._whole(list(torch._foreach_norm(tensors)))

    def _whole(self, norms: list[Tensor]) -> list[Tensor]:
        if self.placement.strategy != "fsdp2":
            return norms
        return [total.sqrt() for total in self.sum([norm.square() for norm in norms])]

    def sum_shards(self, values: list[Tensor]) -> list[Tensor]:
        """Sums over the ranks of what each computed from its shards of the parameters."""
        return self.sum(values) if self.placement.strategy == "fsdp2" else values

    def reshard(self, model: Model) -> None:
        """Let go of the whole parameters that a forward pass without a backward pass leaves behind."""
        if isinstance(model.module, FSDPModule):
            model.module.reshard()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if dist.is_initialized():
            dist.barrier()

    def close(self, model: Model) -> None:
        """Leave the process group. gloo deadlocks if a DDP object outlives it."""
        if not dist.is_initialized():
            return
        dist.barrier()
        del model.module
        gc.collect()
        dist.destroy_process_group()


def open_strategy(placement: Placement) -> Strategy:
    """The strategy of a placement."""
    return Strategy(placement)
