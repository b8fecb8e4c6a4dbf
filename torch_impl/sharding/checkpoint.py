"""What each rank writes of a checkpoint: its parts of the tensors, as blocks in canonical layout."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from parity.common.checkpoint.shards import Box, Piece, Shard, boxes_of_run, share_out
from parity.torch_impl import state
from parity.torch_impl.model import Model
from parity.torch_impl.optimizers import Optimizer
from parity.torch_impl.private_names import DTensor, all_gather, own_box
from parity.torch_impl.sharding.tensors import CanonicalTensor
from parity.torch_impl.strategy import Strategy


class ShardWriter:
    """Exports this rank's share of the canonical state; nothing is gathered but, once, who holds what.

    Every rank must make it. What several ranks hold is divided among them, so that all write about as much.
    """

    def __init__(self, model: Model, optimizer: Optimizer, strategy: Strategy) -> None:
        self._model, self._optimizer, self._rank = model, optimizer, strategy.rank
        parts = list(state._parts(model, optimizer))
        names = [name for name, _, _ in parts]
        held = [(name, *native_boxes(tensor, part)[1:]) for name, tensor, part in parts]
        mine = [(name, _canonical(box, axes)) for name, axes, boxes in held for box in boxes]
        everyone = [mine] if not dist.is_initialized() else _gathered(mine, names, strategy.device)
        # A replica's own buffers differ where the spec lets them; a state has those of the first.
        buffers = [name for name in names if name.startswith("buffers/")]
        self._share, self._ranks = share_out(everyone, buffers)[strategy.rank], len(everyone)

    @torch.no_grad()
    def export(self, step: int) -> Shard:
        """Copies of this rank's share, in canonical layout. Not collective."""
        found = []
        for name, tensor, part in state._parts(self._model, self._optimizer):
            shape, axes, boxes = native_boxes(tensor, part)
            chosen = [box for box in boxes if (name, _canonical(box, axes)) in self._share]
            if not chosen:
                continue
            # In their order the boxes are the elements of this part.
            runs = part.reshape(-1).split([box.size for box in boxes])
            for box, run in zip(boxes, runs, strict=True):
                if box in chosen:
                    values = run.to("cpu", copy=True).numpy().reshape(box.shape)
                    values = values if axes is None else values.transpose(np.argsort(axes))
                    whole = _canonical(Box.whole(shape), axes).shape
                    found.append(Piece(name, whole, _canonical(box, axes).start, values))
        if self._rank == 0:
            found.append(Piece("step", (), (), np.array(step, np.int64)))
        return Shard(self._rank, self._ranks, found)


def native_boxes(
    tensor: CanonicalTensor | None, part: torch.Tensor
) -> tuple[tuple[int, ...], tuple[int, ...] | None, list[Box]]:
    """Of this rank's part of a tensor: the shape of the whole, its axes, and the part's blocks; in native layout."""
    if tensor is None:
        return tuple(part.shape), None, [Box.whole(part.shape)]
    if (flat := tensor.flat) is not None:
        rank = dist.get_rank(flat.group)
        run = boxes_of_run(flat.shape, sum(flat.sizes[:rank]), flat.sizes[rank])
        return flat.shape, tensor.axes, run
    live = tensor.live
    if not isinstance(live, DTensor):
        return tuple(live.shape), tensor.axes, [Box.whole(live.shape)]
    shape, start = own_box(live.shape, live.device_mesh, live.placements)
    box = Box(tuple(start), tuple(shape))
    return tuple(live.shape), tensor.axes, [box] if box.size else []


def _canonical(box: Box, axes: tuple[int, ...] | None) -> Box:
    return box if axes is None else box.transposed(np.argsort(axes).tolist())


def _gathered(mine: list[tuple[str, Box]], names: list[str], device: str) -> list[list[tuple[str, Box]]]:
    """What each rank holds; every rank has the same names in the same order."""
    number = {name: place for place, name in enumerate(names)}
    ranks = dist.get_world_size()
    sizes = torch.zeros(ranks, 2, dtype=torch.int64, device=device)
    widest = max((len(box.start) for _, box in mine), default=0)
    all_gather(sizes, torch.tensor([[len(mine), widest]], device=device))
    longest, widest = sizes.max(dim=0).values.tolist()
    # A row: which tensor, how many axes, where the block begins and how far it goes along each.
    rows = np.zeros((longest, 2 + 2 * widest), np.int64)
    for row, (name, box) in zip(rows, mine, strict=False):
        axes = len(box.start)
        row[: 2 + 2 * axes] = [number[name], axes, *box.start, *box.shape]
    found = torch.zeros(ranks * longest, rows.shape[1], dtype=torch.int64, device=device)
    all_gather(found, torch.from_numpy(rows).to(device))
    return [
        [
            (names[row[0]], Box(tuple(row[2 : 2 + row[1]]), tuple(row[2 + row[1] : 2 + 2 * row[1]])))
            for row in held[:count].tolist()
        ]
        for held, (count, _) in zip(found.view(ranks, longest, -1), sizes.tolist(), strict=True)
    ]
