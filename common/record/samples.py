"""The sample ids that replicas received: whole while there are few, then as hashes of blocks of steps.

sample_ids/replica_N.ids     for each step and replica: step, replica, number of samples, their ids
sample_ids/replica_N.hashes  for each block of steps and replica: the fields of BLOCK_FIELDS

Both are little-endian 64-bit words, one pair of files for each process, N being the first replica it
holds. The ids of the first steps are whole, as many as `whole_steps` says; a run that ends within them
has no hashes. Of the steps after them there are hashes, and whole ids only where a replica did not
receive what the plan says. The block that is being filled is written anew at every step, in place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RecordError
from parity.common.data.plan import BatchPlan
from parity.common.record import mixing
from parity.common.record.files import append, read_words
from parity.common.record.version_0_1 import HASHES

Ids = NDArray[np.int64]

# Steps of a block. Blocks begin at its multiples, so that the blocks of two runs are the same steps.
BLOCK_STEPS = 256
BLOCK_FIELDS = ("replica", "first", "steps", "samples", "empty", "multiset", "placed")
_BLOCK = np.dtype(
    [(name, "<i8") for name in BLOCK_FIELDS[:-2]] + [(name, "<u8") for name in BLOCK_FIELDS[-2:]]
)

# Whole ids are kept up to this many words a run: 8 MiB, and 512 KiB where replicas are many.
WHOLE_WORDS = 1 << 20
FEW_REPLICAS, WHOLE_WORDS_OF_MANY = 8, 1 << 16
# Of later steps that are not as planned, a process keeps the ids of at most this many.
WRONG_STEPS = 1 << 12
_HEAD = 3  # words before the ids: step, replica, number of samples


def whole_steps(plan: BatchPlan) -> int:
    """How many steps' ids are kept whole; at least one."""
    bound = WHOLE_WORDS if plan.replicas <= FEW_REPLICAS else WHOLE_WORDS_OF_MANY
    return max(1, bound // (_HEAD * plan.replicas + min(plan.global_batch_size, plan.samples)))


class SampleWriter:
    """Writes what the replicas of one process receive."""

    def __init__(
        self, folder: Path, plan: BatchPlan | None, replicas: range, kept_whole: bool = True
    ) -> None:
        """plan: None where nobody planned, as in a recorded script: its first 2^20 words are kept whole.

        kept_whole: whether the ids of the first steps are, also where they are as planned.
        """
        self._plan, self._replicas = plan, replicas
        self._whole = whole_steps(plan) if plan is not None and kept_whole else 0
        self._wrong = WRONG_STEPS
        self._room = WHOLE_WORDS if plan is None else 0
        self._ids: IO[bytes] | None = None
        self._id_hashes: _BlockWriter | None = None
        if replicas:
            folder.mkdir(exist_ok=True)
            self._path = folder / f"replica_{replicas[0]}.ids"
            self._ids = open(self._path, "xb")

    def write(self, step: int, ids: Sequence[Ids]) -> None:
        """Append one step.

        Args:
            ids: of each local replica in order, its sample ids, int64 (local batch,).

        Raises:
            ValueError: there are not as many as local replicas.
        """
        if len(ids) != len(self._replicas):
            raise ValueError(f"{len(self._replicas)} replicas, received the ids of {len(ids)}")
        if self._ids is None:
            return
        ids = [np.asarray(local_ids, np.int64) for local_ids in ids]
        if self._whole > 0 or self._room > 0:
            self._whole -= 1
            self._room -= sum(_HEAD + len(local_ids) for local_ids in ids)
            self._keep(step, ids, self._replicas)
            return
        if self._id_hashes is None:
            self._id_hashes = _BlockWriter(self._path.with_suffix(".hashes"), self._replicas)
        if self._wrong > 0 and self._plan is not None:
            wrong = [
                place
                for place, share in enumerate(self._shares(self._plan, step))
                if ids[place].tobytes() != share.tobytes()
            ]
            if wrong:
                self._wrong -= 1
                self._keep(step, [ids[place] for place in wrong], [self._replicas[place] for place in wrong])
        self._id_hashes.add(step, ids)

    def _shares(self, plan: BatchPlan, step: int) -> list[Ids]:
        if len(self._replicas) == 1:
            return [plan.local_ids(step, self._replicas[0])]
        planned = plan.global_ids(step)
        return [plan.share(planned, replica) for replica in self._replicas]

    def _keep(self, step: int, ids: list[Ids], replicas: Any) -> None:
        assert self._ids is not None
        parts = []
        for replica, local_ids in zip(replicas, ids, strict=True):
            parts += [np.array([step, replica, len(local_ids)], np.int64), local_ids]
        append(self._ids, np.concatenate(parts).astype("<i8", copy=False).tobytes())

    def close(self) -> None:
        """Stop writing."""
        for file in (self._ids, self._id_hashes):
            if file is not None:
                file.close()


class _BlockWriter:
    """Adds up the hashes of a block of steps in a row a replica, written anew at every step."""

    def __init__(self, path: Path, replicas: range) -> None:
        self._file = open(path, "xb", buffering=0)
        self._replicas = np.array(replicas, np.int64)
        self._rows = np.zeros((len(replicas), len(BLOCK_FIELDS)), "<u8")
        self._rows[:, 0] = self._replicas
        self._block, self._offset = -1, -self._rows.nbytes
        self._sizes: list[int] = []

    def add(self, step: int, ids: list[Ids]) -> None:
        """Add one step."""
        block, within = divmod(step, BLOCK_STEPS)
        if block != self._block:
            self._begin(step, block)
        sizes = [len(local_ids) for local_ids in ids]
        if sizes != self._sizes:
            self._lay_out(sizes)
        together = ids[0] if len(ids) == 1 else np.concatenate(ids)
        words = mixing.multiset_words(self._step_words[within : within + 1], together)
        self._added[:, 3] = self._summed(words)
        self._added[:, 4] = self._summed(mixing.mix(words + self._places))
        self._rows[:, 2:] += self._added
        os.pwrite(self._file.fileno(), self._rows.data, self._offset)

    def _begin(self, step: int, block: int) -> None:
        self._block = block
        self._offset += self._rows.nbytes
        self._rows[:, 1], self._rows[:, 2:] = step, 0
        steps = np.arange(block * BLOCK_STEPS, (block + 1) * BLOCK_STEPS)
        self._step_words = mixing.mix(steps.astype(np.uint64))

    def _lay_out(self, sizes: list[int]) -> None:
        """What is the same at all steps of these local batch sizes."""
        self._sizes, self._counts = sizes, np.array(sizes, np.int64)
        self._places = mixing.place_words(self._counts, self._replicas)
        self._added = np.zeros((len(sizes), 5), np.uint64)
        self._added[:, :3] = np.column_stack([np.ones_like(self._counts), self._counts, self._counts == 0])

    def _summed(self, words: mixing.Words) -> mixing.Words:
        if len(self._sizes) == 1:
            return np.add.reduce(words, keepdims=True)
        return mixing.sums(words, self._counts)

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Received:
    """What replicas received, read back.

    whole: of so many steps, the first ones, the ids are there; of those after them, hashes.
    blocks: [block, replica] rows of BLOCK_FIELDS, of the steps after the whole ones. The last may hold steps
        that come after those asked for.
    kept: step -> replica -> ids, of the blocks' steps that the writer kept nevertheless.
    """

    whole: int
    blocks: NDArray[np.void]
    kept: dict[int, dict[int, Ids]]
    _steps: NDArray[np.int64]
    _words: Ids
    _starts: NDArray[np.int64]  # [row, replica]: where in _words the ids begin
    sizes: NDArray[np.int64]  # [row, replica]: local batch sizes, of the whole steps

    @classmethod
    def read(cls, folder: Path, replicas: int, steps: NDArray[np.int64]) -> Received:
        """Read what all processes wrote of some steps.

        Args:
            steps: int64 (steps,), consecutive.

        Raises:
            RecordError: the files do not cover every replica and step.
        """
        blocks = _read_blocks(folder, replicas, steps)
        whole = int(blocks["first"][0, 0] - steps[0]) if len(blocks) else len(steps)
        words, entries = _read_entries(folder)
        place = entries[np.lexsort((entries["replica"], entries["step"]))]
        ends = (blocks["first"] + blocks["steps"]).ravel() if len(blocks) else steps + 1
        place = place[place["step"] < ends.max(initial=0)]
        first, rest = np.split(place, [whole * replicas if len(blocks) else len(place)])
        # No more than can be missing: a header that is damaged may speak of a thousand million replicas.
        wanted_rows = np.arange(min(whole * replicas, len(first) + 1))
        wanted = steps[wanted_rows // replicas], wanted_rows % replicas
        _check_entries(folder, first, *wanted)
        kept: dict[int, dict[int, Ids]] = {}
        for step, replica, start, size in rest.tolist():
            kept.setdefault(step, {})[replica] = words[start : start + size]
        shape = (whole, replicas)
        return cls(
            whole, blocks, kept, steps, words, first["start"].reshape(shape), first["size"].reshape(shape)
        )

    def ids(self, row: int) -> list[Ids]:
        """Return the sample ids, int64 (local batch,), of each replica at one of the whole steps."""
        starts, sizes = self._starts[row].tolist(), self.sizes[row].tolist()
        return [self._words[start : start + size] for start, size in zip(starts, sizes, strict=True)]

    def flat(self, first: int, stop: int) -> Ids:
        """Return the ids of whole steps first..stop-1 in one row, int64 (ids,): step by step, and within a step replica by replica."""
        starts, sizes = self._starts[first:stop].ravel(), self.sizes[first:stop].ravel()
        offsets = starts - (np.cumsum(sizes) - sizes)
        return self._words[np.repeat(offsets, sizes) + np.arange(int(sizes.sum()))]

    @property
    def samples(self) -> int:
        """How many samples were received."""
        return int(self.sizes.sum()) + int(self.blocks["samples"].sum())

    @property
    def empty(self) -> int:
        """How many local batches were empty."""
        return int((self.sizes == 0).sum()) + int(self.blocks["empty"].sum())

    @cached_property
    def step_id_hashes(self) -> mixing.Words:
        """The multiset hash of each whole step, uint64 (whole steps,)."""
        per_step = self.sizes.sum(axis=1)
        step_words = mixing.mix(self._steps[: self.whole].astype(np.uint64))
        words = mixing.multiset_words(np.repeat(step_words, per_step), self.flat(0, self.whole))
        return mixing.sums(words, per_step)

    def block_id_hashes(self) -> mixing.Words:
        """Return the multiset hashes, uint64 (blocks,), of all blocks of the record's steps, whole or not."""
        numbers = self._steps // BLOCK_STEPS
        result = np.zeros(int(numbers[-1] - numbers[0]) + 1, np.uint64)
        np.add.at(result, numbers[: self.whole] - numbers[0], self.step_id_hashes)
        if len(self.blocks):
            here = self.blocks["first"][:, 0] // BLOCK_STEPS - numbers[0]
            result[here] += self.blocks["multiset"].sum(axis=1, dtype=np.uint64)
        return result


def _check_entries(
    folder: Path, found: NDArray[np.void], steps: NDArray[np.int64], replicas: NDArray[np.int64]
) -> None:
    """Whether the ids found are those of all steps and replicas, each once."""
    count = min(len(found), len(steps))
    unequal = (found["step"][:count] != steps[:count]) | (found["replica"][:count] != replicas[:count])
    at = int(np.argmax(unequal)) if unequal.any() else count
    if at < len(steps):
        there = (
            f"replica {found['replica'][at]} at step {found['step'][at]}" if at < len(found) else "no more"
        )
        raise RecordError(
            f"{folder}: its steps are not those of steps.f64: expected the sample ids of replica {replicas[at]}"
            f" at step {steps[at]}, found {there}"
        )
    if len(found) > len(steps):
        extra = found[len(steps)]
        raise RecordError(
            f"{folder}: sample ids of replica {extra['replica']} at step {extra['step']}, which there is not"
        )


_ENTRY = np.dtype([(name, np.int64) for name in ("step", "replica", "start", "size")])


def _read_entries(folder: Path) -> tuple[Ids, NDArray[np.void]]:
    """All words of the ids files, one file after another, and where in them each entry's ids lie."""
    paths = sorted(folder.glob("replica_*.ids"))
    files = [read_words(path) for path in paths]
    entries, base = [], 0
    for path, words in zip(paths, files, strict=True):
        # Memory views hand out Python's integers, several times faster than arrays do.
        view, at, end = words.data, 0, len(words) - _HEAD
        while at <= end:
            size = view[at + 2]
            if size < 0:
                raise RecordError(
                    f"{path}: {size} sample ids in step {view[at]}; the file is damaged or foreign"
                )
            if at + size > end:
                break  # the last entry of a run that was killed
            entries.append((view[at], view[at + 1], base + at + _HEAD, size))
            at += _HEAD + size
        base += len(words)
    return np.concatenate([np.empty(0, np.int64), *files]), np.array(entries, _ENTRY)


def _read_blocks(folder: Path, replicas: int, steps: NDArray[np.int64]) -> NDArray[np.void]:
    """The blocks up to the last step, [block, replica]; none where there are no hashes."""
    parts = [np.empty(0, np.int64)]
    for path in sorted(path for ending in HASHES for path in folder.glob(f"replica_*.{ending}")):
        words = read_words(path)
        parts.append(words[: len(words) // len(BLOCK_FIELDS) * len(BLOCK_FIELDS)])
    rows = np.concatenate(parts).view(_BLOCK)
    rows = rows[rows["first"] <= (steps[-1] if len(steps) else -1)]
    if not len(rows):
        return rows.reshape(0, replicas)
    rows = rows[np.lexsort((rows["replica"], rows["first"]))]
    blocks = rows[: len(rows) // replicas * replicas].reshape(-1, replicas)
    first, last = blocks["first"], blocks["first"] + blocks["steps"] - 1
    whole = (
        rows.size == blocks.size
        and (blocks["replica"] == np.arange(replicas)).all()
        and (first == first[:, :1]).all()
        and first[0, 0] >= steps[0]
        and (last >= first).all()
        and (first // BLOCK_STEPS == last // BLOCK_STEPS).all()
        and (first[1:] == last[:-1] + 1).all()
        and (last[-1] >= steps[-1]).all()
    )
    if not whole:
        raise RecordError(f"{folder}: the hashes' blocks of steps do not cover every replica and step once")
    return blocks
