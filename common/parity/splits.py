"""The batch-split audit: what each replica really received, against the plan and against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.data.plan import BatchPlan
from common.record import RunRecord


@dataclass(frozen=True)
class SplitAudit:
    """One record's splits. `problems` is empty where every replica got exactly what the plan says."""

    label: str
    steps: int
    replicas: int
    samples: int
    empty_local_batches: int
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems


def audit(record: RunRecord) -> SplitAudit:
    """Compare the ids read back from the replicas with the plan, step by step."""
    plan = BatchPlan.of(record.spec, record.placement)
    counted = record.spec.loss.counted(record.spec.model.output_shape())
    problems: list[str] = []
    samples = empty = 0
    for row, step in enumerate(record.steps.tolist()):
        received = [replica[row] for replica in record.splits]
        samples += sum(map(len, received))
        empty += sum(not len(ids) for ids in received)
        problem = _step_problem(plan, step, received)
        problem = problem or _count_problem(len(plan.global_ids(step)), counted, record.columns["count"][row])
        if problem:
            problems.append(f"step {step}: {problem}")
    return SplitAudit(
        record.label, len(record.steps), record.placement.replicas, samples, empty, tuple(problems)
    )


def _step_problem(plan: BatchPlan, step: int, received: Sequence[np.ndarray]) -> str | None:
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
    missing, foreign = np.setdiff1d(wanted, values), np.setdiff1d(values, wanted)
    if len(missing):
        return f"sample {missing[0]} went to no replica ({len(missing)} of {len(wanted)} are missing)"
    if len(foreign):
        return f"sample {foreign[0]} does not belong to this batch"
    for replica, ids in enumerate(received):
        if not np.array_equal(ids, plan.share(wanted, replica)):
            return f"replica {replica} received the right batch's samples, but not its own share in order"
    return None


def _count_problem(samples: int, counted: int | None, count: float) -> str | None:
    """`counted` is what each sample adds to the count, None where the loss leaves that to the sample."""
    if counted is None or count == samples * counted:
        return None
    each = "" if counted == 1 else f" of {counted} each"
    return f"the loss was divided by {count:g}, the batch has {samples} samples{each}"


def first_unequal_step(reference: RunRecord, candidate: RunRecord) -> int | None:
    """The first step whose global batches hold different samples; None where all are equal."""
    for row, step in enumerate(reference.steps.tolist()):
        ours = np.sort(np.concatenate([replica[row] for replica in reference.splits]))
        theirs = np.sort(np.concatenate([replica[row] for replica in candidate.splits]))
        if not np.array_equal(ours, theirs):
            return int(step)
    return None
