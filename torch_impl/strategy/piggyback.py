"""Sums that travel with the gradients, and so need no message of their own.

A message costs a small step more than what is in it: each rank waits for the others once more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from parity.torch_impl.strategy.groups import Sums

_NAME = "_carrier"


class PiggybackedAllReduce:
    """A parameter of a module whose gradient is what is to be summed.

    Register it before the module is wrapped; the wrapper then averages its gradient with the others'.
    """

    def __init__(
        self, module: nn.Module, like: Tensor, averages_over: int, shards: int = 1, most: int = 2
    ) -> None:
        """
        Args:
            module: is given the parameter.
            like: of the type and on the device of the module's parameters.
            averages_over: the replicas, as many as `possible` allows.
            shards: over how many ranks the wrapper scatters a gradient; each gets a row.
            most: how many numbers there may be to sum.
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

    def load(self, values: list[Tensor]) -> Sums:
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
