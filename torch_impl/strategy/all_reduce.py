"""All-reduces: sums over ranks, as messages of their own or along with the gradients, and what is summed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parity.common.execution.process_context import process_context
from parity.common.spec import Placement
from parity.torch_impl import runtime
from parity.torch_impl.private_names import DTensor

# Waits for sums that have been begun, and gives them.
PendingSums = Callable[[], list[Tensor]]
_ROW = 1024
_NAME = "_carrier"


def timeout_of(placement: Placement) -> timedelta:
    """How long a collective may take."""
    return timedelta(seconds=placement.timeout_seconds)


def device_of(placement: Placement) -> str:
    """The device of this rank."""
    if not runtime.uses_gpu(placement):
        return "cpu"
    return f"cuda:{process_context(placement).local_rank % torch.cuda.device_count()}"


def begin_sum(values: list[Tensor], group: dist.ProcessGroup | None = None) -> PendingSums:
    """Begin to sum scalars over the ranks of a group, by default all, in one message; call it for the sums."""
    stacked = torch.stack(values)
    work = dist.all_reduce(stacked, group=group, async_op=True)

    def wait() -> list[Tensor]:
        work.wait()
        return list(stacked)

    return wait


def norm_of(tensors: list[Tensor]) -> Tensor:
    """The L2 norm of all elements of some tensors.

    The CPU's kernel adds squares one after another, which for 10^6 float32 is 1e-5 off; of short rows, whose
    norms it takes then, it is not.
    """
    if tensors[0].device.type != "cpu":
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    norms = []
    for tensor in tensors:
        flat = tensor.reshape(-1)
        whole = flat.numel() // _ROW * _ROW
        if whole > 16 * _ROW:
            norms.append(
                torch.linalg.vector_norm(torch.linalg.vector_norm(flat[:whole].view(-1, _ROW), dim=1))
            )
            flat = flat[whole:]
        norms.append(torch.linalg.vector_norm(flat))
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


class Reading:
    """A step's numbers on their way to the host, which need not wait for anything that comes after them."""

    def __init__(self, known: list[Tensor], rest: PendingSums, more: list[Tensor]) -> None:
        self._known, self._rest, self._more, self._host = known, rest, more, None
        if known[0].is_cuda:
            # Asked for later, they would come behind all that the next step has queued.
            values = torch.stack([*known, *rest(), *more])
            self._host = torch.empty_like(values, device="cpu", pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def tolist(self) -> list[float]:
        if self._host is None:
            return torch.stack([*self._known, *self._rest(), *self._more]).tolist()
        self._arrived.synchronize()
        return self._host.tolist()


def added(total: list[Tensor], loss_sum: Tensor, count: Tensor) -> list[Tensor]:
    """A step's [loss sum, count] with those of one more micro-batch."""
    loss_sum = loss_sum.detach()
    return [total[0] + loss_sum, total[1] + count] if total else [loss_sum, count]


class PiggybackedAllReduce:
    """A parameter of a module whose gradient is what is to be summed, so that this needs no message of its own.

    A message costs a small step more than what is in it: each rank waits for the others once more.
    Register it before the module is wrapped; the wrapper then averages its gradient with the others'.
    """

    def __init__(
        self, module: nn.Module, like: Tensor, averages_over: int, shards: int = 1, most: int = 2
    ) -> None:
        """Give the module the parameter, of the type and on the device of `like`.

        averages_over: the replicas, as many as `possible` allows. shards: over how many ranks the wrapper scatters a
        gradient; each gets a row. most: how many numbers there may be to sum.
        """
        self._module, self._averages_over, self._shards, self._most = module, averages_over, shards, most
        self._values: Tensor | None = None
        module.register_parameter(_NAME, nn.Parameter(like.detach().new_zeros(shards, most)))

    @staticmethod
    def possible(replicas: int) -> bool:
        """Whether averages times their number are the sums, bit for bit."""
        return replicas & (replicas - 1) == 0

    def wrapped(self) -> None:
        """Call it once the module has been: it may have another parameter in its place now."""
        self._parameter = getattr(self._module, _NAME)

    def load(self, values: list[Tensor]) -> PendingSums:
        """Numbers to be summed by the next backward pass; call what is returned after it."""
        self._count = len(values)
        missing = [torch.zeros_like(values[0])] * (self._most - self._count)
        self._values = torch.stack([*values, *missing]).expand(self._shards, self._most)
        return self._arrived

    def take_along(self, loss_sum: Tensor) -> Tensor:
        """The loss to call `backward` on."""
        if self._values is None:
            return loss_sum
        values, self._values = self._values, None
        return _Loaded.apply(loss_sum, getattr(self._module, _NAME), values)

    def _arrived(self) -> list[Tensor]:
        gradient, self._parameter.grad = self._parameter.grad, None
        part = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        return list(part[0] * self._averages_over)[: self._count]


class _Loaded(torch.autograd.Function):
    """The loss as it is; its backward pass begins by giving the carrier its gradient."""

    @staticmethod
    def forward(ctx: Any, loss_sum: Tensor, carrier: Tensor, values: Tensor) -> Tensor:
        del carrier
        ctx.save_for_backward(values)
        return loss_sum.view_as(loss_sum)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, *ctx.saved_tensors, None
