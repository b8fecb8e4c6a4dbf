"""How gradients, losses and norms are reduced over ranks: what each strategy decides of passes and sums."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from parity.torch_impl.private_names import set_group_timeout
from parity.torch_impl.sharding.tensors import CanonicalTensor, gather_all, local
from parity.torch_impl.strategy.all_reduce import PendingSums, begin_sum, norm_of, timeout_of

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class GradientReduction:
    """By itself, the module is not wrapped, every rank holds whole tensors, and nothing is reduced.

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

    def wrap(self, model: Model) -> None:
        """Put `model.module` into what makes its backward pass reduce gradients over the ranks."""

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        """Around the passes of one micro-batch; gradients need to be reduced only by the last."""
        del model, last
        return nullcontext()

    def backward(self, loss_sum: Tensor) -> None:
        """Add this micro-batch's gradients to `parameter.grad`."""
        self.with_sums(loss_sum).backward()

    def with_sums(self, loss_sum: Tensor) -> Tensor:
        """The loss whose backward pass also sums what `begin_sum_with_gradients` was given."""
        return loss_sum if self._carrier is None else self._carrier.take_along(loss_sum)

    def reduced(self, gradients: list[Tensor]) -> list[Tensor]:
        """This rank's parts of the gradients' sums over the ranks, divided by `averages_over`."""
        return gradients

    def begin_sum(self, values: list[Tensor]) -> PendingSums:
        """Begin `sum`; what is returned waits for it. Until then all may go on."""
        return (lambda: values) if self.placement.processes == 1 else begin_sum(values)

    @property
    def sums_with_gradients(self) -> bool:
        """Whether `begin_sum_with_gradients` sends nothing of its own."""
        return self._carrier is not None

    def begin_sum_with_gradients(self, values: list[Tensor]) -> PendingSums:
        """Begin `sum` of a few numbers, which the next backward pass may take along; wait for it after that."""
        return self.begin_sum(values) if self._carrier is None else self._carrier.load(values)

    def mesh_of(self, **sizes: int) -> DeviceMesh:
        """The ranks as a mesh of named dimensions, the last of which changes from rank to rank."""
        kind = self.device.partition(":")[0]
        mesh = init_device_mesh(kind, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        for name in sizes:
            # A group made for a mesh would wait for as long as the default.
            set_group_timeout(timeout_of(self.placement), mesh.get_group(name))
        return mesh

    def by_replica(self, ids: Tensor) -> list[Tensor]:
        """The sample ids of this process's batch, for each replica that it speaks for."""
        return [ids] * len(self.recorded_replicas)

    def norms(self, *groups: list[Tensor]) -> list[Tensor]:
        """The global L2 norm of each group of tensors, of which this rank may hold shards.

        A group has one of each parameter, in the order of `model.parameters`, or what `Optimizer.join`
        makes of these.
        """
        return self.begin_norms(*groups)()

    def begin_norms(self, *groups: list[Tensor]) -> PendingSums:
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
        """PendingSums over the ranks of what each computed from its shards of the parameters."""
        return self.begin_sum_shards(values)()

    def begin_sum_shards(self, values: list[Tensor]) -> PendingSums:
        """Begin `sum_shards`; what is returned waits for it."""
        return lambda: values

    def counts(self, tensor: CanonicalTensor) -> bool:
        """Whether this rank's part of a tensor counts in `sum_shards`; not, if another holds the same."""
        del tensor
        return True

    def wholes(self, tensors: Sequence[CanonicalTensor]) -> list[Tensor]:
        """The whole parameters that this rank's passes compute with; collective where they are sharded."""
        return gather_all(tensors, [local(tensor.live.detach()) for tensor in tensors])

    def reshard(self, model: Model) -> None:
        """Let go of the whole parameters that a forward pass without a backward pass leaves behind."""
