"""All parameters as few long tensors: PyTorch's optimizer updates them at once, where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from parity.torch_impl.sharding.tensors import CanonicalTensor


class JoinedTensors:
    """This rank's parts of all parameters, one by one or joined."""

    _weights: list[Tensor]
    _named: dict[str, CanonicalTensor]
    # The parameters of each long tensor, where they are joined.
    _runs = None
    # These long tensors, where the weights themselves lie in them.
    _long = None

    def join(self, parts: list[Tensor]) -> list[Tensor]:
        """This rank's parts of all parameters, or of their gradients, in as few pieces as there can be."""
        if self._runs is None:
            return parts
        return [torch.cat([parts[place].reshape(-1) for place in places]) for places in self._runs]

    def scaled(self, pieces: list[Tensor], factor: Tensor) -> list[Tensor]:
        """Gradients in pieces times a number; in place where `join` has made copies of them."""
        if self._runs is None:
            return list(torch._foreach_mul(pieces, factor))
        torch._foreach_mul_(pieces, factor)
        return pieces

    def apart(self, pieces: list[Tensor]) -> list[Tensor]:
        """The inverse of `join`: views of what it joined, in the order of the parameters."""
        if self._runs is None:
            return pieces
        parts = list(self._weights)
        for piece, places in zip(pieces, self._runs, strict=True):
            for place, part in zip(places, piece.split([parts[p].numel() for p in places]), strict=True):
                parts[place] = part.view(parts[place].shape)
        return parts

    @property
    def weights(self) -> list[Tensor]:
        """This rank's parts of the parameters, in pieces as of `join`: the weights themselves or copies."""
        return self.join(self._weights) if self._long is None else self._long

    def layout(self, name: str) -> CanonicalTensor:
        """How the slots that have a parameter's shape are laid out and sharded."""
        return self._named[name]

    def loaded(self) -> None:
        """Called after weights and slots have been set from outside."""
