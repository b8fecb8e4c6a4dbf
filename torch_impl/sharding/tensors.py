"""One tensor of a model, whatever has become of it: its place, its layout, and which part of it a rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from parity.torch_impl.private_names import DTensor, all_gather, distribute


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds: its shard under FSDP, else all of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; collective where it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(native: Tensor, live: Tensor) -> Tensor:
    """A whole tensor, sharded as another is."""
    if not isinstance(live, DTensor):
        return native
    return distribute(native, live.device_mesh, live.placements)


def tensor_like(array: np.ndarray, live: Tensor) -> Tensor:
    """A new tensor of an array's values, of another's type, on its device and sharded as it is."""
    return shard_like(torch.from_numpy(np.array(array)).to(live.device, live.dtype), live)


@dataclass(frozen=True)
class Shards:
    """How a tensor's elements, one after another, are divided over ranks: `sizes[rank]` of them each."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    group: dist.ProcessGroup | None

    def part(self, whole: Tensor) -> Tensor:
        """This rank's elements, without a shape."""
        rank = dist.get_rank(self.group)
        return whole.reshape(-1).narrow(0, sum(self.sizes[:rank]), self.sizes[rank])


@dataclass(frozen=True)
class CanonicalTensor:
    """One tensor of the model, whatever has become of it: plain, replicated or sharded.

    flat: set where each rank holds a run of the tensor's elements, which may cut a row or be empty.
    """

    owner: nn.Module
    attribute: str
    axes: tuple[int, ...] | None
    flat: Shards | None = None

    @property
    def live(self) -> Tensor:
        """The tensor itself. Looked up anew, since sharding replaces it."""
        return getattr(self.owner, self.attribute)

    @property
    def held(self) -> list[Tensor]:
        """What this rank's passes compute with; another than `live` where that is updated apart from them."""
        return [self.live]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor, in native layout."""
        return tuple(self.live.shape) if self.flat is None else self.flat.shape

    @property
    def shards(self) -> Shards | None:
        """How it is divided; None where it is whole, or cut along another axis than the first."""
        live = self.live
        if self.flat is not None or not isinstance(live, DTensor):
            return self.flat
        cut = [axis for axis, placed in enumerate(live.placements) if placed.is_shard()]
        if len(cut) != 1 or not live.placements[cut[0]].is_shard(0):
            return None
        rows, group = live.shape[0], live.device_mesh.get_group(cut[0])
        ranks = dist.get_world_size(group)
        most = -(-rows // ranks)
        held = (max(0, min(most, rows - rank * most)) for rank in range(ranks))
        return Shards(tuple(live.shape), tuple(each * live.shape[1:].numel() for each in held), group)

    def shard(self, value: np.ndarray) -> Tensor:
        """This rank's part of a canonical array, in native layout. Copies."""
        native = value if self.axes is None else value.transpose(self.axes)
        live = self.live
        full = torch.from_numpy(np.array(native, order="C")).to(device=live.device, dtype=live.dtype)
        return self._share(full)

    def _share(self, native: Tensor) -> Tensor:
        live = self.live
        if self.flat is not None:
            return self.flat.part(native)
        return local(shard_like(native, live))

    def gather(self, part: Tensor) -> Tensor:
        """The whole tensor of which `part` is this rank's shard; collective where it is sharded."""
        (whole,) = gather_all([self], [part])
        return whole

    def whole(self, part: Tensor) -> Tensor:
        """The whole tensor, in canonical layout, of which `part` is this rank's; collective as `gather`."""
        native = self.gather(part)
        return native if self.axes is None else native.permute(*np.argsort(self.axes).tolist())

    def part(self, whole: Tensor) -> Tensor:
        """This rank's part, in native layout, of a whole tensor in canonical layout."""
        return self._share(whole if self.axes is None else whole.permute(self.axes))

    def to_canonical(self, native: Tensor) -> np.ndarray:
        """A copy in canonical layout."""
        array = np.array(native.detach().cpu().numpy())
        return array if self.axes is None else array.transpose(np.argsort(self.axes)).copy()


def gather_all(tensors: Sequence[CanonicalTensor], parts: Sequence[Tensor]) -> list[Tensor]:
    """The whole tensors of which `parts` are this rank's shards; collective where they are sharded.

    One message for all whose elements are divided in order, and one for each that is cut otherwise.
    """
    wholes: list[Tensor] = []
    divided = [(place, shards) for place, tensor in enumerate(tensors) if (shards := tensor.shards)]
    for tensor, part in zip(tensors, parts, strict=True):
        live = tensor.live
        if tensor.shards is None and isinstance(live, DTensor):
            mesh, stride = live.device_mesh, live.stride()
            part = DTensor.from_local(part, mesh, live.placements, shape=live.shape, stride=stride)
            part = part.full_tensor()
        wholes.append(part)
    if divided:
        places, shards = zip(*divided, strict=True)
        for place, whole in zip(places, _joined([parts[place] for place in places], shards), strict=True):
            wholes[place] = whole
    return wholes


def _joined(parts: list[Tensor], shards: Sequence[Shards]) -> list[Tensor]:
    group = shards[0].group
    held = list(zip(*(each.sizes for each in shards), strict=True))
    longest = max(map(sum, held))
    mine = parts[0].new_zeros(longest)
    torch.cat([part.reshape(-1) for part in parts], out=mine[: sum(part.numel() for part in parts)])
    everyone = mine.new_empty(len(held) * longest)
    all_gather(everyone, mine, group=group)
    pieces = [
        row[: sum(sizes)].split(sizes) for row, sizes in zip(everyone.view(-1, longest), held, strict=True)
    ]
    return [
        torch.cat(runs).view(each.shape) for runs, each in zip(zip(*pieces, strict=True), shards, strict=True)
    ]
