"""Whether two records may be compared at all. A comparison that compared nothing is an error."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from parity.common.base.errors import NotComparableError
from parity.common.record import RunRecord
from parity.common.spec import Placement, ScriptInfo
from parity.common.spec.stock import refuse_stock


def check_comparable(reference: RunRecord, candidate: RunRecord) -> None:
    """Raise NotComparableError, saying what was received, unless the records answer one question."""
    if reference.folder.resolve() == candidate.folder.resolve():
        raise NotComparableError(f"{candidate.folder}: compared with itself; name two different records")
    for record in (reference, candidate):
        if record.summary is None:
            raise NotComparableError(f"{record.folder}: the run did not finish ({_steps_recorded(record)})")
        if not len(record.steps):
            raise NotComparableError(f"{record.folder}: holds no steps, so there is nothing to compare")
        if record.train_spec is not None and record.train_spec.stock:
            raise NotComparableError(refuse_stock(record.train_spec.stock, str(record.folder)))
        made = next(
            (p.run_options.recording for p in record.parts if p.run_options.recording != "full"), None
        )
        if made is not None:
            raise NotComparableError(
                f"{record.folder}: made with recording {made}; run it again with recording full"
            )
    if reference.header.spec_hash != candidate.header.spec_hash:
        first, *_ = (*differences(reference, candidate), "their hashes differ")
        raise NotComparableError(
            f"{reference.folder} and {candidate.folder} are runs of different specs: {first}"
        )
    # A script that ends earlier than another one is another training.
    script = reference.train_spec is None
    rows = min(len(reference.steps), len(candidate.steps)) if script else None
    if not np.array_equal(reference.steps[:rows], candidate.steps[:rows]):
        raise NotComparableError(
            f"unequal step sets: {reference.folder} has {_span(reference)}, {candidate.folder} has {_span(candidate)}"
            + ("; parity diagnose compares the steps that both have" if script else "")
        )
    if reference.run_info.per_replica_statistics:
        _check_statistics(reference, candidate)


def _check_statistics(reference: RunRecord, candidate: RunRecord) -> None:
    """Each micro-batch of each replica has batch-norm statistics of its own: both must be cut alike."""
    questions = {"replicas": lambda placement: str(placement.replicas), "accumulation": _accumulation}
    for what, of in questions.items():
        pair = [_way(record, of) for record in (reference, candidate)]
        if pair[0] != pair[1]:
            raise NotComparableError(
                f"the spec takes batch-norm statistics, or a loss of the batch as a whole, per replica, so runs with {what} {pair[0]} and {pair[1]}"
                " are different mathematics; run both alike, or use 'statistics: global'"
            )


def _way(record: RunRecord, of: Callable[[Placement], str]) -> str:
    """What is said of a record's placement; of a run that went on elsewhere, '2, from step 10 4'."""
    placements = [(part.steps[0], of(part.placement)) for part in record.parts if len(part.steps)]
    changes = [
        f"from step {step} {now}" for (_, before), (step, now) in pairwise(placements) if now != before
    ]
    return ", ".join([placements[0][1], *changes])


def _accumulation(placement: Placement) -> str:
    return " then ".join(f"{count} from epoch {epoch}" for epoch, count in placement.accumulation)


def _steps_recorded(record: RunRecord) -> str:
    """'20 of 40 steps'; of a script, what it did not do."""
    steps = record.run_info.steps
    count = f"{len(record.steps)} steps" if steps is None else f"{len(record.steps)} of {steps} steps"
    return count if record.train_spec is not None else f"{count}, and its recorder's finish() was not called"


def _span(record: RunRecord) -> str:
    return f"steps {record.steps[0]}..{record.steps[-1]}"


def differences(reference: RunRecord, candidate: RunRecord) -> list[str]:
    """Every field of the specs that differs, with both values."""
    if (reference.train_spec is None) != (candidate.train_spec is None):
        return ["one was trained from a spec, the other is a recorded script"]
    a, b = (
        _flat(info.identity() if isinstance(info, ScriptInfo) else info.to_dict())
        for info in (reference.run_info, candidate.run_info)
    )
    return [
        f"{name} is {a.get(name, 'absent')!r} and {b.get(name, 'absent')!r}"
        for name in dict.fromkeys([*a, *b])
        if a.get(name, "absent") != b.get(name, "absent")
    ]


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict):
        items = [(f"{prefix}.{key}" if prefix else str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{prefix}.{index}", item) for index, item in enumerate(value)]
    else:
        return {prefix: value}
    return {name: leaf for key, item in items for name, leaf in _flat(item, key).items()}
