"""What two runs only record otherwise: where they train alike to the end, and their replays agree."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.isolate import first_step
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison, When
from parity.common.parity.budget import Budget
from parity.common.parity.deviation import column_deviation, tensor_deviation
from parity.common.record import RunRecord

# The stages that make what a step records.
_STAGES: Mapping[str, str] = {
    "ids": "ids",
    "loss_sum": "total",
    "count": "total",
    "gradient_norm": "gradient",
    "learning_rate": "scalar",
    "parameter_norm": "update",
    "update_norm": "update",
}
_NAMES = {"ids": "sample ids"}
_AT_THE_END = "the states at the end agree, and so does the first batch of the evaluation"


def only_recorded(reference: RunRecord, candidate: RunRecord, when: When, budget: Budget) -> Finding | None:
    """Return what differs of two float64 runs that train alike; None where their states differ at the end.

    Args:
        when: the first step at which what they recorded differs. All that was replayed of them agrees.
        budget: what float64 rounds.
    """
    if when.step is None:
        return None if when.only_state else _evaluated(reference, candidate, when, budget)
    stage, far = _STAGES.get(when.what), deviation(reference, candidate, when.what, when.step)
    if (
        stage is None
        or far <= limits.FAR_FROM_ROUNDING
        or first_step.at_the_end(reference, candidate, budget)
    ):
        return None
    what = _NAMES.get(when.what, when.what.replace("_", " "))
    differs = "differ" if what == "sample ids" else "differs"
    broke = [r.label for r in (reference, candidate) if any(v.step == when.step for v in r.violations)]
    why = Explanation(
        "recorded_differently",
        f"Only the recorded {what} {differs}; the runs train alike",
        "confirmed",
        f"record the {what} of the step",
        f"the traced steps agree when they are repeated; {_AT_THE_END}",
        broke[0] if len(broke) == 1 else "",
    )
    return finding(when, stage, when.what, far, why)


def _evaluated(reference: RunRecord, candidate: RunRecord, when: When, budget: Budget) -> Finding | None:
    """What differs over all of the evaluation, where its first batch agrees."""
    why = None
    ours, theirs = reference.summary, candidate.summary
    assert ours is not None
    assert theirs is not None
    off = {
        name: tensor_deviation(*(np.array(getattr(each, name), np.float64) for each in (ours, theirs)))
        for name in ("eval_count", "eval_correct", "eval_loss_sum")
    }
    if off["eval_count"]:
        first = "eval_count"
        why = Explanation(
            "evaluation_incomplete",
            f"The evaluation is over {theirs.eval_count:g} samples or tokens, where the reference's is over {ours.eval_count:g}",
            "likely",
            "evaluate every sample once, those of the last batch and of each replica, too",
            f"by what was counted; {_AT_THE_END}",
        )
    elif off["eval_loss_sum"] > budget.evaluation:
        first = "eval_loss_sum"
        if off[first] <= limits.FAR_FROM_ROUNDING:
            return None
    else:
        first = "eval_correct"
        why = Explanation(
            "recorded_differently",
            f"Only the count of correct predictions differs, {theirs.eval_correct} and {ours.eval_correct}",
            "confirmed",
            "count the samples or tokens whose largest output is that of their target",
            f"the losses of all that is evaluated agree; {_AT_THE_END}",
        )
    return finding(when, "evaluation", first, off[first], why)


def deviation(reference: RunRecord, candidate: RunRecord, column: str, step: int) -> float:
    """How far apart two records are in a column at a step; infinite where it is no column."""
    if column not in reference.columns:
        return math.inf
    row = int(np.flatnonzero(reference.steps == step)[0])
    return float(column_deviation(column, reference, candidate)[row])


def finding(when: When, stage: str, name: str, far: float, why: Explanation | None) -> Finding:
    """Return the finding of a number that was recorded, and is so far off."""
    return Finding(when.step, stage, name, (), (TensorComparison(name, None, far, 0.0),), (), why)
