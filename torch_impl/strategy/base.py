"""What training needs of any strategy; by itself, one process alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout

from parity.common.execution.process_context import process_context
from parity.common.spec import Placement
from parity.torch_impl import runtime
from parity.torch_impl.strategy.groups import Sums, begin_sum, norm_of, timeout_of

if TYPE_CHECKING:
    from parity.torch_impl.model import CanonicalTensor, Model


class Strategy:
    """This rank's place among the replicas, and the few things that training needs of it.

    averages_over: by this the backward pass has divided the sum of the ranks' gradients.
    sharded: whether this rank holds only parts of parameters and slots.
    joins: whether all of this rank's parts may be treated as one long tensor.
    moves_parameters: whether parameters may be laid somewhere else in memory.
    """

    averages_over = 1
    sharded = False
    joins = True
    moves_parameters = True
    # Takes sums along with the gradients, where it can be.
    _carrier = None

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.place = place = process_context(placement)
        self.rank = place.rank
        gpu = runtime.uses_gpu(placement)
        self.device = f"cuda:{place.local_rank % torch.cuda.device_count()}" if gpu else "cpu"
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

    def mesh_of(self, **sizes: int) -> DeviceMesh:
        """The ranks as a mesh of named dimensions, the last of which changes from rank to rank."""
        kind = self.device.partition(":")[0]
        mesh = init_device_mesh(kind, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        for name in sizes:
            # A group made for a mesh would wait for as long as the default.
            _set_pg_timeout(timeout_of(self.placement), mesh.get_group(name))
        return mesh

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

    def by_replica(self, ids: Tensor) -> list[Tensor]:
        """The sample ids of this process's batch, for each replica that it speaks for."""
        return [ids] * len(self.recorded_replicas)

    def wrap(self, model: Model) -> None:
        """Put `model.module` into what makes its backward pass reduce gradients over the ranks."""

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        """Around the passes of one micro-batch; gradients need to be reduced only by the last."""
        del model, last
        return nullcontext()

    def backward(self, loss_sum: Tensor) -> None:
        """Add this micro-batch's gradients to `parameter.grad`."""
        (loss_sum if self._carrier is None else self._carrier.take_along(loss_sum)).backward()

    def reduced(self, gradients: list[Tensor]) -> list[Tensor]:
        """This rank's parts of the gradients' sums over the ranks, divided by `averages_over`."""
        return gradients

    def sum(self, values: list[Tensor]) -> list[Tensor]:
        """Sums of scalars over the replicas, on every rank, in one message."""
        return self.begin_sum(values)()

    def begin_sum(self, values: list[Tensor]) -> Sums:
        """Begin `sum`; what is returned waits for it. Until then all may go on."""
        return (lambda: values) if self.placement.processes == 1 else begin_sum(values)

    @property
    def sums_with_gradients(self) -> bool:
        """Whether `begin_sum_with_gradients` sends nothing of its own."""
        return self._carrier is not None

    def begin_sum_with_gradients(self, values: list[Tensor]) -> Sums:
        """Begin `sum` of a few numbers, which the next backward pass may take along; wait for it after that."""
        return self.begin_sum(values) if self._carrier is None else self._carrier.load(values)

    def norms(self, *groups: list[Tensor]) -> list[Tensor]:
        """The global L2 norm of each group of tensors, of which this rank may hold shards.

        A group has one of each parameter, in the order of `model.parameters`, or what `Optimizer.join`
        makes of these.
        """
        return self.begin_norms(*groups)()

    def begin_norms(self, *groups: list[Tensor]) -> Sums:
        """Begin `norms`; what is returned waits for them."""
        norms = [norm_of(group) for group in groups]
        if not self.sharded:
            return lambda: norms
        squares = self.begin_sum_shards([norm.square() for norm in norms])
        return lambda: [total.sqrt() for total in squares()]

    def tensor_norms(self, parts: list[Tensor], tensors: list[CanonicalTensor]) -> list[Tensor]:
        """The L2 norm of each tensor, of which this rank may hold a part only."""
        del tensors
        return self._whole(list(torch._foreach_norm(parts)))

    def _whole(self, norms: list[Tensor]) -> list[Tensor]:
        if not self.sharded:
            return norms
        return [total.sqrt() for total in self.sum_shards([norm.square() for norm in norms])]

    def sum_shards(self, values: list[Tensor]) -> list[Tensor]:
        """Sums over the ranks of what each computed from its shards of the parameters."""
        return self.begin_sum_shards(values)()

    def begin_sum_shards(self, values: list[Tensor]) -> Sums:
        """Begin `sum_shards`; what is returned waits for it."""
        return lambda: values

    def counts(self, tensor: CanonicalTensor) -> bool:
        """Whether this rank's part of a tensor counts in `sum_shards`; not, if another holds the same."""
        del tensor
        return True

    def wholes(self, tensors: Sequence[CanonicalTensor]) -> list[Tensor]:
        """The whole parameters that this rank's passes compute with; collective where they are sharded."""
        from parity.torch_impl.model import gather_all, local

        return gather_all(tensors, [local(tensor.live.detach()) for tensor in tensors])

    def reshard(self, model: Model) -> None:
        """Let go of the whole parameters that a forward pass without a backward pass leaves behind."""

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
        dist.destroy_process_group()
