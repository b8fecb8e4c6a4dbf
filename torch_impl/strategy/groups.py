"""Groups of ranks: how long one waits for them, sums over them, and what is summed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from parity.common.execution.process_context import process_context
from parity.common.spec import Placement
from parity.torch_impl import runtime

# Waits for sums that have been begun, and gives them.
Sums = Callable[[], list[Tensor]]
_ROW = 1024


def timeout_of(placement: Placement) -> timedelta:
    """How long a collective may take."""
    return timedelta(seconds=placement.timeout_seconds)


def device_of(placement: Placement) -> str:
    """The device of this rank."""
    if not runtime.uses_gpu(placement):
        return "cpu"
    return f"cuda:{process_context(placement).local_rank % torch.cuda.device_count()}"


def begin_sum(values: list[Tensor], group: dist.ProcessGroup | None = None) -> Sums:
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

    def __init__(self, known: list[Tensor], rest: Sums, more: list[Tensor]) -> None:
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
