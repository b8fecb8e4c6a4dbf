"""A model's passes: blocks that a strategy wraps one by one, or that a backward pass computes anew; torch.compile."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from parity.common.execution.pass_context import Context
from parity.common.spec import Placement
from parity.torch_impl.layers.registry import Contextual, call


def blocks_of(module: nn.Module) -> Iterator[tuple[nn.ModuleList, int]]:
    """The places of a model's blocks: (list that holds it, index), in order.

    A block is a child that has children of its own; in a model without such children, every child
    that has parameters. Where all blocks are inside one child, as between an embedding and the logits
    tied to it, they are that child's.
    """
    layers, containers = module.layers, _containers(module)
    while len(containers) == 1 and _containers(layers[containers[0]]):
        layers, containers = layers[containers[0]].layers, _containers(layers[containers[0]])
    if not containers:
        containers = [
            place for place, layer in enumerate(layers) if next(layer.parameters(), None) is not None
        ]
    yield from ((layers, place) for place in containers)


def _containers(module: nn.Module) -> list[int]:
    return [place for place, layer in enumerate(module.layers) if hasattr(layer, "layers")]


def wrap_blocks(module: nn.Module, wrapped: Callable[[nn.Module], nn.Module]) -> None:
    """Put what `wrapped` makes of each block in its place."""
    for layers, place in blocks_of(module):
        layers[place] = wrapped(layers[place])


def checkpoint_blocks(placement: Placement, module: nn.Module) -> None:
    """Have the backward pass compute the blocks anew where the placement asks for that."""
    if getattr(placement.options, "checkpoint", False):
        wrap_blocks(module, Checkpointed)


class Checkpointed(Contextual):
    """A block of which only the input is kept for the backward pass, which computes the rest again."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    @property
    def layers(self) -> nn.ModuleList:
        """The block's children, so that it still counts as one."""
        return self.block.layers

    def forward(self, x: Tensor, context: Context) -> Tensor:
        if not context.training:
            return call(self.block, x, context)
        passes = itertools.count()

        def run(x: Tensor) -> Tensor:
            return call(self.block, x, context if next(passes) == 0 else context.again())

        # Masks are keyed: there is no generator whose state would have to be put back.
        return checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)


def compile_passes(placement: Placement, module: nn.Module) -> None:
    """Have a model's forward and backward pass compiled, the first time that it is called."""
    if placement.compile:
        # As for everything else, one thread a rank, and no processes besides.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        # In place: names, tensors and children stay where everything else looks for them.
        module.compile(dynamic=None)
