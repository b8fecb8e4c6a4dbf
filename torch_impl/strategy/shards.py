"""Norms and sums of what ranks hold in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from parity.torch_impl.sharding.tensors import CanonicalTensor, gather_all, local
from parity.torch_impl.strategy.groups import Sums, norm_of

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class ShardSums:
    """What a strategy computes from shards; by itself, every rank holds whole tensors.

    sharded: whether this rank holds only parts of parameters and slots.
    joins: whether all of this rank's parts may be treated as one long tensor.
    moves_parameters: whether parameters may be laid somewhere else in memory.
    """

    sharded = False
    joins = True
    moves_parameters = True

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
        return gather_all(tensors, [local(tensor.live.detach()) for tensor in tensors])

    def reshard(self, model: Model) -> None:
        """Let go of the whole parameters that a forward pass without a backward pass leaves behind."""
