"""The batch-split audit: what each replica really received, against the plan and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.common.data.plan import BatchPlan, Ids
from parity.common.record import RunRecord, mixing
from parity.common.record.samples import BLOCK_STEPS
from parity.common.record.version_0_1 import stored

# Of steps that a record keeps as hashes, so many sample ids are computed again from the plan, and at least
# the first and the last block of steps.
RECOMPUTED_IDS = 1 << 19
_IDS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class SplitAudit:
    """One record's splits. `problems` is empty where every replica got exactly what the plan says.

    replicas: of a run that went on, the most that it had.
    audited_steps: of `steps`, those whose samples were held against the plan.
    """

    label: str
    steps: int
    replicas: int
    samples: int
    empty_local_batches: int
    problems: tuple[str, ...]
    audited_steps: int

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def extent(self) -> str:
        """How many steps were audited, in words."""
        if self.audited_steps == self.steps:
            return f"{self.steps} steps"
        return f"{self.audited_steps:,} audited steps of {self.steps:,}"


def audit(record: RunRecord) -> SplitAudit:
    """Compare what the replicas recorded with the plan.

    Steps whose sample ids are there are compared id by id. Of those kept as hashes, blocks are computed
    again from the plan: all, or where that were too many the first, the last and some evenly between. Of a run
    that went on, each part is held against the plan of its own placement.
    """
    if record.train_spec is None:
        return _unplanned(record)
    found = [_audited(part) for part in record.parts]
    return SplitAudit(
        record.label,
        len(record.steps),
        max(part.replicas for part in found),
        sum(part.samples for part in found),
        sum(part.empty_local_batches for part in found),
        tuple(problem for part in found for problem in part.problems),
        sum(part.audited_steps for part in found),
    )


def has_ids(record: RunRecord) -> bool:
    """Whether a record says which samples were used; only that of a script may not."""
    return record.train_spec is not None or stored(record.folder, "sample_ids").is_dir()


def _unplanned(record: RunRecord) -> SplitAudit:
    """Of a recorded script: what was received is counted, and nobody says what should have been."""
    received = record.received if has_ids(record) else None
    counts = (0, 0) if received is None else (received.samples, received.empty)
    return SplitAudit(record.label, len(record.steps), record.placement.replicas, *counts, (), 0)


def _audited(record: RunRecord) -> SplitAudit:
    received, plan = record.received, BatchPlan.of(record.spec, record.placement)
    problems = _wrong_counts(record, plan)
    problems |= _wrong_steps(record, plan)
    last = int(record.steps[-1]) if len(record.steps) else -1
    for step in [step for step in received.kept if step <= last]:
        problem = _step_problem(plan, step, kept_ids(record, plan, step))
        if problem:
            problems[step] = problem
    chosen = _chosen_blocks(record, plan)
    found = [(step, f"step {step}: {problem}") for step, problem in problems.items()]
    found += filter(None, (_block_problem(record, plan, received.blocks[number]) for number in chosen))
    samples, empty, _ = _beyond(record, plan)
    counted = received.blocks["steps"][chosen, 0].clip(max=last + 1 - received.blocks["first"][chosen, 0])
    return SplitAudit(
        record.label,
        len(record.steps),
        record.placement.replicas,
        received.samples - samples,
        received.empty - empty,
        tuple(text for _, text in sorted(found)),
        received.whole + int(counted.sum()),
    )


def _beyond(record: RunRecord, plan: BatchPlan) -> tuple[int, int, int]:
    """(samples, empty, multiset): what the hashes of a record's last block hold of steps after the record's last.

    Such are there where a later part took these steps anew, and the one that a kill left without a row. From the
    plan, and the ids kept where it was not followed: hashes cannot be taken apart.
    """
    received = record.received
    if not len(received.blocks):
        return 0, 0, 0
    ends = received.blocks[-1]["first"] + received.blocks[-1]["steps"]
    first, stop = int(record.steps[-1]) + 1, int(ends.max())
    if first >= stop:
        return 0, 0, 0
    sizes, multiset, _ = _planned_id_hashes(plan, received.kept, first, stop)
    there = np.arange(first, stop)[:, None] < ends
    summed = int((multiset * there).sum(dtype=np.uint64))
    return int((sizes * there).sum()), int(((sizes == 0) & there).sum()), summed


def _wrong_counts(record: RunRecord, plan: BatchPlan) -> dict[int, str]:
    """Steps whose loss was divided by another number than their batch's samples, and what to say of them."""
    counted = record.spec.loss.counted(record.spec.model.output_shape())
    if counted is None:  # each sample adds what it likes
        return {}
    sizes, counts = plan.batch_sizes(record.steps), record.columns["count"]
    each = "" if counted == 1 else f" of {counted} each"
    wrong = np.flatnonzero(counts != sizes * counted)
    words = (
        f"the loss was divided by {counts[row]:g}, the batch has {sizes[row]} samples{each}" for row in wrong
    )
    return dict(zip(record.steps[wrong].tolist(), words, strict=True))


def _wrong_steps(record: RunRecord, plan: BatchPlan) -> dict[int, str]:
    """Of the steps whose sample ids are there, those that are not as planned, and what to say of them."""
    received, problems = record.received, {}
    for rows in _pieces(received.whole, plan):
        steps = record.steps[rows]
        planned, sizes = plan.shares(int(steps[0]), int(steps[-1]) + 1)
        ids = received.flat(rows.start, rows.stop)
        if np.array_equal(sizes, received.sizes[rows]) and np.array_equal(planned, ids):
            continue
        for row, step in enumerate(steps.tolist(), rows.start):
            problem = _step_problem(plan, step, received.ids(row))
            if problem:
                problems[step] = problem
    return problems


def kept_ids(record: RunRecord, plan: BatchPlan, step: int) -> list[Ids]:
    """Return the sample ids, int64 (local batch,), that each replica received at a step.

    The ids of some replicas were kept, because they were not as planned; the others received their share of the plan.
    """
    planned, kept = plan.global_ids(step), record.received.kept[step]
    return [
        kept[replica] if replica in kept else plan.share(planned, replica) for replica in range(plan.replicas)
    ]


def _pieces(stop: int, plan: BatchPlan) -> Iterator[slice]:
    """0..stop-1 in pieces of so few steps that their ids take little memory."""
    count = max(1, _IDS_AT_ONCE // plan.global_batch_size)
    for start in range(0, stop, count):
        yield slice(start, min(start + count, stop))


def _step_problem(plan: BatchPlan, step: int, received: Sequence[Ids]) -> str | None:
    wanted = plan.global_ids(step)
    together = np.concatenate(received)
    for replica, ids in enumerate(received):
        values, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            return f"replica {replica} received sample {values[counts > 1][0]} more than once"
    values, counts = np.unique(together, return_counts=True)
    if (counts > 1).any():
        sample = values[counts > 1][0]
        holders = [replica for replica, ids in enumerate(received) if sample in ids]
        return f"sample {sample} went to replicas {holders[0]} and {holders[1]}"
    missing, unplanned = np.setdiff1d(wanted, values), np.setdiff1d(values, wanted)
    if len(missing):
        return f"sample {missing[0]} went to no replica ({len(missing)} of {len(wanted)} are missing)"
    if len(unplanned):
        return f"sample {unplanned[0]} does not belong to this batch"
    for replica, ids in enumerate(received):
        if not np.array_equal(ids, plan.share(wanted, replica)):
            return f"replica {replica} received the right batch's samples, but not its own share in order"
    return None


def _chosen_blocks(record: RunRecord, plan: BatchPlan) -> list[int]:
    """The blocks to compute again: all, or the first, the last, some evenly between and all of a wrong size."""
    blocks = record.received.blocks
    affordable = max(2, RECOMPUTED_IDS // (BLOCK_STEPS * min(plan.global_batch_size, plan.samples)))
    if len(blocks) <= affordable:
        return list(range(len(blocks)))
    chosen = set(np.linspace(0, len(blocks) - 1, affordable).round().astype(int).tolist())
    later = plan.batch_sizes(record.steps[record.received.whole :])
    firsts = blocks["first"][:, 0] - blocks["first"][0, 0]
    wrong = np.add.reduceat(later, firsts) != blocks["samples"].sum(axis=1)
    return sorted(chosen.union(np.flatnonzero(wrong).tolist()))


def _block_problem(record: RunRecord, plan: BatchPlan, rows: NDArray[np.void]) -> tuple[int, str] | None:
    """What is wrong with a block of steps, beyond the steps whose ids were kept: its first step, and words."""
    first, stop = int(rows["first"][0]), int((rows["first"] + rows["steps"]).max())
    parts = [
        _planned_id_hashes(plan, record.received.kept, first + piece.start, first + piece.stop)
        for piece in _pieces(stop - first, plan)
    ]
    # While a run is killed, some replicas may be a step ahead of others.
    counted = np.arange(stop - first)[:, None] < rows["steps"]
    sizes, multiset, placed = (np.concatenate(part) * counted for part in zip(*parts, strict=True))
    wrong = (rows["samples"] != sizes.sum(axis=0)) | (rows["empty"] != ((sizes == 0) & counted).sum(axis=0))
    wrong |= (rows["multiset"] != multiset.sum(axis=0)) | (rows["placed"] != placed.sum(axis=0))
    if not wrong.any():
        return None
    replica = int(np.argmax(wrong))
    where = f"steps {first} to {first + int(rows['steps'][replica]) - 1}"
    received, share = int(rows["samples"][replica]), int(sizes[:, replica].sum())
    if received != share:
        return first, f"{where}: replica {replica} received {received} samples, its share is {share}"
    if rows["multiset"].sum() == multiset.sum():
        return first, f"{where}: replica {replica} received the right samples, but not its own share in order"
    return first, f"{where}: replica {replica} received other samples than the plan's, as their hash says"


def _planned_id_hashes(
    plan: BatchPlan, kept: dict[int, dict[int, Ids]], first: int, stop: int
) -> tuple[Ids, mixing.Words, mixing.Words]:
    """[step, replica] local batch sizes and hashes of what the plan gives, or of the ids kept instead."""
    ids, sizes = plan.shares(first, stop)
    steps = np.arange(first, stop)
    multiset, placed = mixing.id_hashes(steps, np.arange(plan.replicas), ids, sizes)
    for step in kept.keys() & set(steps.tolist()):
        for replica, other in kept[step].items():
            size, at = np.array([[len(other)]]), (step - first, replica)
            words = mixing.id_hashes(np.array([step]), np.array([replica]), other, size)
            sizes[at], multiset[at], placed[at] = len(other), words[0].item(), words[1].item()
    return sizes, multiset, placed


def first_unequal_step(reference: RunRecord, candidate: RunRecord) -> str | None:
    """The first step whose global batches hold different samples, in words; None where all are equal.

    Steps whose ids are not there in both records are compared in blocks.
    """
    (ours, known), (theirs, known_too) = _step_id_hashes(reference), _step_id_hashes(candidate)
    known &= known_too
    unequal = reference.steps[known & (ours != theirs)]
    if not known.all():
        blocks = np.flatnonzero(_block_id_hashes(reference) != _block_id_hashes(candidate))
        begun, ended = reference.steps[[0, -1]].tolist()
        first = (begun // BLOCK_STEPS + int(blocks[0])) * BLOCK_STEPS if len(blocks) else ended
        last = min(first + BLOCK_STEPS - 1, ended)
        if len(blocks) and (not len(unequal) or last < unequal[0]):
            return f"steps {max(first, begun)} to {last}"
    return f"step {unequal[0]}" if len(unequal) else None


def steps_of_other_samples(reference: RunRecord, candidate: RunRecord) -> frozenset[int]:
    """The steps at which two records of scripts are known to have other samples than each other."""
    if not (has_ids(reference) and has_ids(candidate)):
        return frozenset()
    words = []
    for record in (reference, candidate):
        found, known = _step_id_hashes(record)
        words.append(dict(zip(record.steps[known].tolist(), found[known].tolist(), strict=True)))
    return frozenset(step for step, word in words[0].items() if words[1].get(step, word) != word)


def _step_id_hashes(record: RunRecord) -> tuple[mixing.Words, NDArray[np.bool_]]:
    """The multiset hashes of a record's steps, and of which they are known: those whose ids are there."""
    words, known = np.zeros(len(record.steps), np.uint64), np.zeros(len(record.steps), bool)
    first = 0
    for part in record.parts:
        rows = slice(first, first + part.received.whole)
        words[rows], known[rows] = part.received.step_id_hashes, True
        first += len(part.steps)
    return words, known


def _block_id_hashes(record: RunRecord) -> mixing.Words:
    """The multiset hashes of all blocks of a record's steps."""
    numbers = record.steps[[0, -1]] // BLOCK_STEPS
    words = np.zeros(int(numbers[1] - numbers[0]) + 1, np.uint64)
    for part in record.parts:
        if len(part.steps):
            own = part.received.block_id_hashes()
            if part.train_spec is not None:
                own[-1:] -= np.uint64(_beyond(part, BatchPlan.of(part.spec, part.placement))[2])
            first = int(part.steps[0] // BLOCK_STEPS - numbers[0])
            words[first : first + len(own)] += own
    return words
