"""What training needs of any strategy; by itself, one process alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from parity.common.execution.process_context import process_context
from parity.common.spec import Placement
from parity.torch_impl import runtime
from parity.torch_impl.private_names import process_groups
from parity.torch_impl.strategy.all_reduce import device_of, timeout_of
from parity.torch_impl.strategy.gradient_reduction import GradientReduction

if TYPE_CHECKING:
    from parity.torch_impl.model import Model

# The groups that were left. gloo's own thread may be about to let go of a tensor, for which it needs Python's lock;
# who drops the last reference to the group waits for that thread, and holds the lock (seen with torch 2.4).
_LEFT: list[dist.ProcessGroup] = []


class Strategy(GradientReduction):
    """This rank's place among the replicas, and the few things that training needs of it."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.place = place = process_context(placement)
        self.rank = place.rank
        gpu = runtime.uses_gpu(placement)
        self.device = device_of(placement)
        if gpu:
            torch.cuda.set_device(self.device)
        if placement.strategy != "single":
            self._join("nccl" if gpu else "gloo")

    def _join(self, backend: str) -> None:
        """Join the process group."""
        if self.place.one_machine:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            backend,
            init_method=self.place.meeting_point,
            rank=self.rank,
            world_size=self.place.processes,
            # The default of 30 minutes would make every mistake look like a hang.
            timeout=timeout_of(self.placement),
        )

    @cached_property
    def local_replicas(self) -> range:
        """The replicas whose samples this process is given."""
        first = self.rank // self.placement.ranks_per_replica * self.placement.replicas_per_process
        return range(first, first + self.placement.replicas_per_process)

    @cached_property
    def recorded_replicas(self) -> range:
        """The replicas that this process speaks for: each replica has one process that does."""
        speaks = self.rank % self.placement.ranks_per_replica == 0
        return self.local_replicas if speaks else range(0)

    def sum(self, values: list[Tensor]) -> list[Tensor]:
        """PendingSums of scalars over the replicas, on every rank, in one message."""
        return self.begin_sum(values)()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if dist.is_initialized():
            dist.barrier()

    def agreed(self, values: Sequence[float]) -> list[float]:
        """Of some numbers of each rank their sums over the ranks; every rank must call it."""
        if not dist.is_initialized():
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    def close(self, model: Model) -> None:
        """Leave the process group. gloo deadlocks if a DDP object outlives it."""
        if not dist.is_initialized():
            return
        dist.barrier()
        del model.module
        gc.collect()
        _LEFT.extend(process_groups())
        dist.destroy_process_group()
