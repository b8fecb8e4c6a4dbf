"""What a wrapper of the module decides: how passes are made, and what reduces their gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout

from parity.torch_impl.strategy.groups import Sums, begin_sum, timeout_of

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class WrappedPasses:
    """The passes of a strategy that wraps the module; by itself, nothing is wrapped and nothing reduced.

    averages_over: by this the backward pass has divided the sum of the ranks' gradients.
    """

    averages_over = 1
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
        (loss_sum if self._carrier is None else self._carrier.take_along(loss_sum)).backward()

    def reduced(self, gradients: list[Tensor]) -> list[Tensor]:
        """This rank's parts of the gradients' sums over the ranks, divided by `averages_over`."""
        return gradients

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

    def mesh_of(self, **sizes: int) -> DeviceMesh:
        """The ranks as a mesh of named dimensions, the last of which changes from rank to rank."""
        kind = self.device.partition(":")[0]
        mesh = init_device_mesh(kind, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        for name in sizes:
            # A group made for a mesh would wait for as long as the default.
            _set_pg_timeout(timeout_of(self.placement), mesh.get_group(name))
        return mesh

    def by_replica(self, ids: Tensor) -> list[Tensor]:
        """The sample ids of this process's batch, for each replica that it speaks for."""
        return [ids] * len(self.recorded_replicas)
