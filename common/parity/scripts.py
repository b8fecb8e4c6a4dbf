"""What a comparison of two recorded scripts cannot judge, and why."""

from __future__ import annotations

import numpy as np

from parity.common.parity.budget import CURVES
from parity.common.parity.deviation import recorded_rows
from parity.common.parity.sample_ids import has_ids
from parity.common.record import RunRecord
from parity.common.spec import ScriptInfo

IDS, EVALUATION, INVARIANTS, RATE = "sample ids", "evaluation", "invariants", "learning rate"
STATES = ("initial", "first_gradients", "final")
NOT_RECORDED = "not recorded"
UNNAMED = (
    "the tensors have other names in each; of Keras and torch, say which is which with --mapping mapping.yaml, or"
    " give the recorders mapping="
)
_COLUMNS = {RATE: "learning_rate", **{name: name for name in CURVES}}


def left_out(reference: RunRecord, candidate: RunRecord) -> dict[str, str]:
    """What is not judged -> why. Nothing of runs of a spec, which must record it all.

    Keys: of CURVES, of STATES, and the four names above.
    """
    pair = (reference, candidate)
    if all(record.train_spec is not None for record in pair):
        return {}
    found = {INVARIANTS: "scripts are not watched"}
    if not all(map(has_ids, pair)):
        found[IDS] = NOT_RECORDED
    for what, column in _COLUMNS.items():
        if not _rows(column, reference, candidate):
            found[what] = NOT_RECORDED
    for which in STATES:
        if not all(record.has(which) for record in pair):
            found[which] = NOT_RECORDED
        elif not named_alike(which, reference, candidate):
            found[which] = UNNAMED
    if not all(record.summary is not None and record.summary.eval_count for record in pair):
        found[EVALUATION] = NOT_RECORDED
    return found


def named_alike(which: str, reference: RunRecord, candidate: RunRecord) -> bool:
    """Whether two states can be compared by name: one naming, and a tensor that both have."""
    namings = {r.run_info.naming for r in (reference, candidate) if isinstance(r.run_info, ScriptInfo)}
    ours, theirs = (set(record.state(which)) - {"step"} for record in (reference, candidate))
    return len(namings) == 1 and bool(ours & theirs)


def in_words(details: dict[str, str], reference: RunRecord, candidate: RunRecord) -> str:
    """'not recorded: sample ids, update norm', and at how many steps what is there was recorded."""
    absent = [_titled(what) for what, why in details.items() if why == NOT_RECORDED]
    words = [f"{NOT_RECORDED}: {', '.join(absent)}"] if absent else []
    steps = len(reference.steps)
    few: dict[int, list[str]] = {}
    for what, column in _COLUMNS.items():
        if what not in details:
            few.setdefault(_rows(column, reference, candidate), []).append(_titled(what))
    few.pop(steps, None)
    words += [f"{', '.join(names)} at {count} of {steps} steps" for count, names in few.items()]
    return "; ".join(words)


def _rows(column: str, reference: RunRecord, candidate: RunRecord) -> int:
    """At how many steps both recorded a column."""
    return int(np.count_nonzero(recorded_rows(column, reference) & recorded_rows(column, candidate)))


def _titled(what: str) -> str:
    return {"initial": "initial state", "final": "final state"}.get(what, what.replace("_", " "))
