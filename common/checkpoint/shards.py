"""A checkpoint that all ranks write: each its parts of the canonical tensors, put together when they are read.

    step_00000050/
        shard_00000.safetensors     what rank 0 wrote: blocks named `TENSOR@START,...`
        shard_00001.safetensors     ...; which rank wrote what does not matter to who reads
        manifest.json               size and SHA-256 of each

A block is a box of a tensor in canonical layout, and its name says where it begins, so that a file is understood
by itself and the state goes on in any framework and on any number of ranks. Its header also has the shapes of the
whole tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from parity.common.base.errors import CheckpointError, RecordError
from parity.common.base.files import unique_keys
from parity.common.record.files import read_json, write_json
from parity.common.state.canonical import State, load_state

Array = NDArray[np.generic]
# Of a file its size and SHA-256.
Written = tuple[int, str]
SHAPES = "shapes"
_START = re.compile(r"\d{1,18}(,\d{1,18})*", re.ASCII)
_NAME = re.compile(r"shard_\d{5,}\.safetensors")
_LOOK_SECONDS = 0.01
# Of a file: so many blocks of bytes are hashed and written at once.
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Box:
    """A block of a tensor: where it begins along each axis, and how far it goes."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        return cls((0,) * len(shape), tuple(shape))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def place(self) -> tuple[slice, ...]:
        """Where it lies in the tensor."""
        return tuple(
            slice(start, start + length) for start, length in zip(self.start, self.shape, strict=True)
        )

    def transposed(self, axes: Sequence[int]) -> Box:
        """The same block of the tensor whose axis i is this one's `axes[i]`."""
        return Box(tuple(self.start[axis] for axis in axes), tuple(self.shape[axis] for axis in axes))


def boxes_of_run(shape: Sequence[int], first: int, count: int) -> list[Box]:
    """A run of a tensor's elements, one after another, as the fewest boxes; in their order these are the run."""
    if not count:
        return []
    if not shape:
        return [Box((), ())]
    row_size = math.prod(shape[1:])
    row, into = divmod(first, row_size)

    def within(row: int, first: int, count: int) -> list[Box]:
        inner = boxes_of_run(shape[1:], first, count)
        return [Box((row, *box.start), (1, *box.shape)) for box in inner]

    if into:
        length = min(row_size - into, count)
        return within(row, into, length) + boxes_of_run(shape, first + length, count - length)
    rows, rest = divmod(count, row_size)
    whole = [Box((row, *(0 for _ in shape[1:])), (rows, *shape[1:]))] if rows else []
    return whole + within(row + rows, 0, rest)


@dataclass(frozen=True)
class Piece:
    """A block of a canonical tensor of shape `whole`, beginning at `start`."""

    name: str
    whole: tuple[int, ...]
    start: tuple[int, ...]
    values: Array


@dataclass(frozen=True)
class Shard:
    """What a rank writes of a state, of so many ranks that all write."""

    rank: int
    ranks: int
    pieces: Sequence[Piece]


def share_out(
    boxes: Sequence[Sequence[tuple[str, Box]]], first_only: Iterable[str] = ()
) -> list[set[tuple[str, Box]]]:
    """Who writes what: each block once, by one of those that hold it, so that all write about as much.

    Args:
        boxes: what each rank holds of which tensor.
        first_only: tensors that may differ where several ranks hold them: the first one's counts.
    """
    holders: dict[tuple[str, Box], list[int]] = {}
    for rank, owned in enumerate(boxes):
        for block in owned:
            if block[1].size:
                holders.setdefault(block, []).append(rank)
    apart = set(first_only)
    shares: list[set[tuple[str, Box]]] = [set() for _ in boxes]
    load = [0] * len(boxes)
    # What only one can write comes first, then the largest, so that small ones even out the rest.
    order = sorted(
        holders, key=lambda block: (len(holders[block]) > 1, -block[1].size, block[0], block[1].start)
    )
    for block in order:
        ranks = holders[block][:1] if block[0] in apart else holders[block]
        writer = min(ranks, key=lambda rank: (load[rank], rank))
        load[writer] += block[1].size
        shares[writer].add(block)
    return shares


def shard_file(rank: int) -> str:
    """What a rank's part of a checkpoint is called."""
    return f"shard_{rank:05d}.safetensors"


def is_shard(name: str) -> bool:
    """Whether a file of a checkpoint is a rank's part of its state."""
    return _NAME.fullmatch(name) is not None


def write_shard(partial: Path, shard: Shard) -> None:
    """Write a rank's part of a checkpoint, and beside it what `gather` waits for: once it is on the disk.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    partial.mkdir(parents=True, exist_ok=True)
    tensors = {f"{piece.name}@{','.join(map(str, piece.start))}": piece.values for piece in shard.pieces}
    shapes = {piece.name: list(piece.whole) for piece in shard.pieces}
    write_announced(partial / shard_file(shard.rank), tensors, {SHAPES: json.dumps(shapes)})


def write_announced(path: Path, tensors: Mapping[str, Array], about: Mapping[str, str] | None = None) -> None:
    """As `write_tensors`, arrays of any shape, and say beside the file that all of it is on the disk."""
    write_json(_note(path), write_tensors(path, tensors, about))


def gather(partial: Path, names: Iterable[str], seconds: float) -> dict[str, Written]:
    """Wait until all processes have announced the files that they write, and take their notes away.

    Raises:
        CheckpointError: some have not within that time.
    """
    waiting = [partial / name for name in names]
    count = len(waiting)
    found: dict[str, Written] = {}
    until = time.monotonic() + seconds
    while True:
        for path in [path for path in waiting if _note(path).exists()]:
            size, digest = read_json(_note(path))
            found[path.name] = size, digest
            _note(path).unlink()
            waiting.remove(path)
        if not waiting:
            return found
        if time.monotonic() > until:
            raise CheckpointError(
                f"waited {seconds:g} s for {waiting[0].name} and {len(waiting) - 1} more of {count};"
                " do all processes reach this folder?"
            )
        time.sleep(_LOOK_SECONDS)


def write_tensors(
    path: Path, tensors: Mapping[str, Array], about: Mapping[str, str] | None = None
) -> Written:
    """Write a safetensors file and sync it to the disk.

    Args:
        tensors: arrays of any shape and dtype, by name. One that is not contiguous is copied, one at a time.
        about: the metadata of the file.

    Returns:
        Size in bytes and SHA-256 of the file, computed while it is written.
    """
    # Those of large items first, so that all lie at multiples of their size.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    ends = np.cumsum([0, *(tensors[name].nbytes for name in names)]).tolist()
    header: dict[str, Any] = {"__metadata__": dict(about)} if about else {}
    for name, span in zip(names, pairwise(ends), strict=True):
        shape = list(tensors[name].shape)
        header[name] = {"dtype": _type_name(tensors[name].dtype), "shape": shape, "data_offsets": list(span)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(path, "wb", buffering=0) as file:
        _append(file, digest, memoryview(len(text).to_bytes(8, "little") + text))
        for name in names:
            _append(file, digest, np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data)
        os.fsync(file.fileno())
    return 8 + len(text) + ends[-1], digest.hexdigest()


def _append(file: FileIO, digest: hashlib._Hash, data: memoryview) -> None:
    for first in range(0, len(data), _CHUNK):
        part = data[first : first + _CHUNK]
        digest.update(part)
        while part:
            part = part[file.write(part) :]


class ShardedState(Mapping[str, Array]):
    """The canonical state in a sharded checkpoint: each tensor put together when it is asked for.

    The files must stay as long as it is used.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Looks at the headers only.

        Args:
            folder: of the checkpoint.
            names: of its shards.

        Raises:
            CheckpointError: a file is damaged, or together they are not whole tensors.
        """
        self._folder = folder
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._blocks: dict[str, list[tuple[Box, Array]]] = {}
        for name in sorted(names):
            self._add(folder / name)
        for name in self._shapes:
            self._check(name)

    def outlines(self) -> State:
        """Arrays of the tensors' shapes and types, that take no memory; what they hold means nothing."""
        return {
            name: np.broadcast_to(np.zeros((), blocks[0][1].dtype), self._shapes[name])
            for name, blocks in self._blocks.items()
        }

    def __getitem__(self, name: str) -> Array:
        blocks = self._blocks[name]
        whole = np.empty(self._shapes[name], blocks[0][1].dtype)
        for box, values in blocks:
            whole[box.place] = values
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def _add(self, path: Path) -> None:
        try:
            with safe_open(path, framework="np") as file:
                about = file.metadata() or {}
            tensors = load_state(path, mapped=True)
        except FileNotFoundError:
            raise CheckpointError(f"{path}: missing; without it the state is not whole") from None
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: not a whole safetensors file: {error}") from None
        except RecordError as error:
            raise CheckpointError(str(error)) from None
        shapes = _shapes_of(path, about)
        for key, values in tensors.items():
            name, _, at = key.rpartition("@")
            start = tuple(map(int, at.split(","))) if _START.fullmatch(at) else ()
            whole = shapes.get(name)
            if whole is None or not len(whole) == len(start) == values.ndim:
                raise CheckpointError(
                    f"{path}: {_short(key)} is no block of a tensor whose shape the file gives"
                )
            if any(
                first + length > end for first, length, end in zip(start, values.shape, whole, strict=True)
            ):
                raise CheckpointError(f"{path}: {_short(key)} of shape {values.shape} goes beyond {whole}")
            before = self._blocks.setdefault(name, [])
            if self._shapes.setdefault(name, whole) != whole or (
                before and before[0][1].dtype != values.dtype
            ):
                raise CheckpointError(
                    f"{path}: {_short(name)} is of another shape or type than in the shards before it"
                )
            before.append((Box(start, values.shape), values))

    def _check(self, name: str) -> None:
        """Whether the blocks of a tensor make it up, each element once."""
        boxes, shape = [box for box, _ in self._blocks[name]], self._shapes[name]
        owned, size = sum(box.size for box in boxes), math.prod(shape)
        if owned < size:
            raise CheckpointError(
                f"{self._folder}: {_short(name)}: its shards hold {owned} of {size} elements; one is missing"
            )
        starts = np.array([box.start for box in boxes], np.int64).reshape(len(boxes), -1)
        stops = starts + np.array([box.shape for box in boxes], np.int64).reshape(len(boxes), -1)
        for number in range(1, len(boxes)):
            apart = (stops[:number] <= starts[number]) | (stops[number] <= starts[:number])
            if not apart.any(axis=1).all():
                raise CheckpointError(
                    f"{self._folder}: {_short(name)}: two of its shards hold the same elements"
                )


def _shapes_of(path: Path, about: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    try:
        found = json.loads(about[SHAPES], object_pairs_hook=unique_keys)
        shapes = {name: tuple(shape) for name, shape in found.items()}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{path}: its header gives no shapes of tensors; it is no shard") from None
    for name, shape in shapes.items():
        if not all(type(length) is int and length > 0 for length in shape):
            raise CheckpointError(f"{path}: its header gives {_short(name)} a shape that is none")
    return shapes


def _short(name: str) -> str:
    """A name that may be anyone's."""
    return repr(name[:80])


def _note(path: Path) -> Path:
    """Where a rank says what it has written."""
    return path.with_suffix(".json")


def _type_name(dtype: np.dtype[Any]) -> str:
    """Safetensors' name for a type."""
    return "BOOL" if dtype == np.dtype(bool) else f"{dtype.kind.upper()}{8 * dtype.itemsize}"
