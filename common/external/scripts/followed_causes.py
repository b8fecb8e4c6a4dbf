"""Why a stage of a followed run differs, where what was measured of it says so: a norm that is clipped, a number times the weights, an average
that moves otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import StageSummary
from parity.common.parity.followed import added_to_gradients, penalty_of
from parity.common.record import RunRecord
from parity.common.record.fits import ELEMENTWISE_ULPS
from parity.common.record.followed import (
    ADDED,
    ALONE,
    AVERAGED,
    CARRIED,
    COUPLED,
    DECAYED,
    MEMORY,
    MOVED,
    OF_WEIGHTS,
    Measure,
)

_SHOWN = 5
# At fewer steps a norm may be one number by chance.
_CLIPPED = 3
# Gradients differ where they are so many times farther apart than rounding explains.
_FAR = 16
# Gradients that differ are so many times farther off than those that agree, of which there are several.
_APART, _TWO = 100, 2
# So many times what rounding explains.
_CLEARLY = 4
# A rate's factor is known less well where updates are small beside their weights.
_VARIES = 0.05
_OTHER = {"candidate": "reference", "reference": "candidate"}
# Slots that are a number times the gradient after an optimizer's first step.
_TAKEN = ("slots/first_moment", "slots/momentum_velocity")
_VARIANCES = ("running_var", "moving_variance")
_OF_WEIGHTS = {
    "old": "averages of weights ({names}) take in the candidate's weights before the update, and the reference's those after it: they are made before"
    " step() instead of behind it",
    "new": "averages of weights ({names}) take in the candidate's weights after the update, and the reference's those before it: they are made behind"
    " step() instead of before it",
}
_AVERAGES = {
    AVERAGED[
        "momentum"
    ]: "running averages ({names}) move {times:.4g} times as far in the candidate: another momentum (0.99 in Keras is 0.01 in torch), a step that"
    " moves them twice, or not at all",
    AVERAGED[
        "variance"
    ]: "running variances ({names}) take in those of batches of {values} values divided by {values} - 1, as torch's batch norm does and Keras's"
    " does not",
}


def common_factor(rows: Sequence[Measure]) -> float | None:
    """By which number all gradients of a step are the reference's times it; None where there is no such number."""
    rows = [row for row in rows if row.reference]
    factor = max(rows, key=lambda row: row.reference).factor if rows else 0.0
    slack = limits.SCRIPT_FACTOR * abs(factor)
    alike = (abs(row.factor - factor) <= slack and row.residual <= slack * row.reference for row in rows)
    return factor if factor and all(alike) else None


def told_factor(rows: Sequence[Measure]) -> float | None:
    """The `common_factor` of gradients that they differ by, those that are hardly more than rounding left out; None where as much is left beside it."""
    factor = common_factor(rows)
    return factor if factor and _is_other(factor) and _is_all(factor, _beyond_rounding(rows)) else None


def _is_other(factor: float) -> bool:
    """Whether a factor is another number than 1 as it is printed."""
    return f"{factor:.6g}" != "1"


def _beyond_rounding(rows: Sequence[Measure]) -> list[Measure]:
    """Gradients without those that may be zero but for rounding, as of the bias before a norm."""
    least = limits.SCRIPT_FACTOR * _norm(row.reference for row in rows)
    return [row for row in rows if row.reference > least]


def _is_all(factor: float, rows: Sequence[Measure]) -> bool:
    """Whether little is left of what tensors differ by beside one factor."""
    return all(
        math.hypot(row.residual, (row.factor - factor) * row.reference) <= limits.UNEXPLAINED * row.difference
        for row in rows
    )


def clips_alone(measures: Sequence[Measure], smooth: float) -> str:
    """That one side clips its gradients, and the other otherwise or not at all: wherever they differ the norm of one is one number, its largest.

    Args:
        measures: of all steps.
        smooth: relative, what rounding explains of gradients.
    """
    by_step = _gradients(measures)
    factors = {step: common_factor(rows) for step, rows in by_step.items()}
    ours = {step: _norm(row.reference for row in rows) for step, rows in by_step.items()}
    apart = [
        step
        for step, rows in by_step.items()
        if not _norm(row.difference for row in rows) <= _FAR * smooth * ours[step]
    ]
    norms = {"reference": ours}
    # Of gradients in another direction nothing says what norm they have.
    multiples = all(factors[step] is not None for step in apart)
    if multiples:
        norms = {"candidate": {step: norm * (factors[step] or 1) for step, norm in ours.items()}, **norms}
    for who, of in norms.items():
        clipped = [of[step] for step in apart]
        one = len(clipped) >= _CLIPPED and np.allclose(clipped, clipped[0], rtol=limits.SCRIPT_FACTOR, atol=0)
        if one and max(of.values()) <= clipped[0] * (1 + limits.SCRIPT_FACTOR):
            steps = f"{len(apart)} of {len(by_step)} steps"
            otherwise = "does so otherwise (each micro-batch, or each tensor), or not at all"
            return (
                f"the {who} clips its gradients to a norm of {clipped[0]:.4g}, at {steps}, and the {_OTHER[who]}"
                f" {'does not' if multiples else otherwise}"
            )
    return ""


def scaled(measures: Sequence[Measure], factors: Mapping[int, float]) -> str:
    """That a loss and all its gradients are the reference's times one number at each step, another at some; '' where that is not so.

    Args:
        measures: of all steps.
        factors: by step, of the losses.
    """
    sizes = _sizes(measures, factors)
    if not sizes or min(sizes) <= 0 or np.allclose(sizes, sizes[0], rtol=limits.SCRIPT_FACTOR, atol=0):
        return ""
    return (
        f"the loss and all gradients are the reference's times one number, {min(sizes):.4g} to {max(sizes):.4g}, by the batch: the same sum is divided by another"
        " number (of samples, tokens or positions; what a mask leaves out; the sum of weights)"
    )


def weighed(measures: Sequence[Measure], factors: Mapping[int, float]) -> str:
    """That a loss and all its gradients are the reference's times one number, the same at all steps; '' where that is not so.

    Args: as of `scaled`.
    """
    sizes = _sizes(measures, factors)
    if not sizes or not np.allclose(sizes, sizes[0], rtol=limits.SCRIPT_FACTOR, atol=0):
        return ""
    if not _is_other(sizes[0]):
        return ""
    return (
        f"the loss and all its gradients are {sizes[0]:.6g} times the reference's at each of the {len(sizes)} steps that train these tensors: it is weighed"
        " otherwise, or divided by another number"
    )


def _sizes(measures: Sequence[Measure], factors: Mapping[int, float]) -> list[float]:
    """By which number loss and gradients are the reference's, of each step; none where it is not one number, or steps are few."""
    found = {step: common_factor(_beyond_rounding(rows)) for step, rows in _gradients(measures).items()}
    agree = all(
        factor is not None and abs(factor - factors.get(step, math.nan)) <= limits.SCRIPT_FACTOR * abs(factor)
        for step, factor in found.items()
    )
    sizes = [factor for factor in found.values() if factor is not None]
    return sizes if agree and len(sizes) >= _CLIPPED else []


def in_the_gradients(
    first: StageSummary,
    measures: Sequence[Measure],
    records: Sequence[RunRecord],
    units: float = ELEMENTWISE_ULPS,
) -> str:
    """That weight decay is in the gradients of one script and not of the other, where that is what a loss or an update differs by; units: of rounding,
    within which updates agree.
    """
    if first.step is None or first.name not in ("loss", "update"):
        return ""
    added = added_to_gradients(measures, first.step)
    if not added:
        return ""
    times, who = abs(added[0].factor), ("candidate", "reference")[added[0].factor < 0]
    other = _OTHER[who]
    if first.name == "update":
        off = {(each.step, each.tensor) for each in measures if each.stage == "update" and each.ulps > units}
        here = {tensor for step, tensor in off if step == first.step}
        steps = {each.step for each in measures if each.stage == ADDED and each.step < first.step}
        if not here <= {each.tensor for each in added} or steps - {step for step, _ in off}:
            return ""  # what is in the gradients is not what differs, or updates agreed with it before
        return (
            f"weight decay: {times:.4g} times the weights is in the {who}'s gradients, and not in the {other}'s, whose optimizer does not add as much:"
            f" weight_decay={times:.4g} would, and so would a penalty of {times / 2:.4g} times their squares in its loss"
        )
    ours, theirs = (float(record.loss[record.steps == first.step][0]) for record in records)
    # A small penalty of a large loss is known as far as the loss is.
    rounding = ELEMENTWISE_ULPS * float(np.finfo(np.float32).eps) * max(abs(ours), abs(theirs))
    if abs(theirs - ours - penalty_of(added)) > limits.SCRIPT_FACTOR * abs(theirs - ours) + rounding:
        return ""
    return (
        f"a penalty is in the {who}'s loss, and not in the {other}'s: {times / 2:.4g} times the squares of the weights of {len(added)} tensors, as"
        f" regularizers have it; its gradient is there, too. The {other}'s optimizer may do the same by weight_decay={times:.4g}: then only the"
        " numbers that are called the loss differ"
    )


def of_update(
    here: Sequence[Measure],
    rates: Sequence[float],
    framework: str,
    measures: Sequence[Measure] = (),
    units: float = ELEMENTWISE_ULPS,
) -> str:
    """What an update differs by; '' where that is not known.

    Args:
        here: what was measured at its step.
        rates: the learning rate of the step before, and there; NaN where it is not known, as of the one or the other of several optimizers.
        framework: of the candidate.
        measures: of all steps.
        units: of rounding, within which updates agree.
    """
    if memory := [each for each in here if each.stage == MEMORY]:
        names = listed([each.tensor for each in memory if each.only == memory[0].only], _SHOWN)
        if memory[0].only == "reference":
            return (
                f"the candidate's optimizer begins without what the reference's has gathered ({names}): made anew, or its state (moments, count of"
                " updates) was not loaded"
            )
        return f"the candidate's optimizer begins with what it has gathered before ({names}), and the reference's with nothing: it is used again"
    alone = [each.tensor for each in here if each.only == "reference" and each.stage.startswith("slots/")]
    if alone:
        return f"the candidate's optimizer does not train {listed([*dict.fromkeys(alone)], _SHOWN)}: in no group of its, or frozen"
    if clipped := _clips_each(here):
        return clipped
    off = {each.tensor for each in here if each.stage == "update" and each.ulps > units}
    by_stage = {stage: {e.tensor: e.factor for e in here if e.stage == stage} for stage in (DECAYED, MOVED)}
    known, (before, rate) = bool(rates[1]) and math.isfinite(rates[1]), rates
    if (moved := by_stage[MOVED]) and off <= moved.keys():
        if math.isfinite(before) and abs(rate - before) > limits.SCRIPT_FACTOR * abs(before):
            return "the learning rate has changed, and the momentum with it on one side alone: Keras's velocity has the rate in it, and torch's buffer has not"
        times = next(iter(moved.values()))
        if not math.isfinite(rate):
            return (
                f"the momentum of {listed([*moved], _SHOWN)} goes on otherwise: another momentum, or a learning rate that changes, which Keras's velocity has in it,"
                " and torch's buffer has not"
            )
        more = times if framework == "tensorflow" else -times / rate if known else math.nan
        return f"the momentum is {abs(more):.4g} {'larger' if more > 0 else 'smaller'} in the candidate than in the reference (of Nesterov's: its square)"
    rows = [each for each in here if each.stage == "update"]
    # Where no update is off but the slots, what is added to it is rounding.
    apart = [each for each in rows if each.tensor in off]
    if not apart and (coupled := [each for each in here if each.stage == COUPLED]):
        names = listed((each.tensor for each in coupled), _SHOWN)
        return (
            f"weight decay: one script has it in its gradients, so that the momentum of {names} takes it in, too (coupled, as torch's SGD has it), and the other"
            " takes it off the weights alone (decoupled, as Keras's weight_decay does)"
        )
    if apart and (decayed := by_stage[DECAYED]) and _is_decay(decayed, apart):
        shares = [-factor / (rate if known else 1.0) for factor in decayed.values()]
        who = ("candidate", "reference")[shares[0] < 0]
        few, *_, many = sorted(map(abs, [*shares, shares[0]]))
        number = f"{few:.4g} to {many:.4g}" if many - few > _VARIES * many else f"{abs(shares[0]):.4g}"
        return (
            f"weight decay: the {who} takes {number} times the weights more off {listed([*decayed], _SHOWN)}, {'times the learning rate' if known else 'the learning rate in it'}:"
            " another weight_decay, or tensors that one side alone leaves out of it"
        )
    factor = _one_factor(apart)
    if factor is None:
        return ""
    if not factor:
        return f"the candidate's step leaves {listed(sorted(off), _SHOWN)} as they are: not in its optimizer's groups, frozen, or with a rate of 0"
    updates = [each for each in measures if each.stage == "update" and each.reference]
    at_all_steps = [each for each in updates if each.tensor in off]
    is_every = len(off) == len({each.tensor for each in updates} or rows)
    if np.ptp([factor, *(each.factor for each in at_all_steps)]) > _VARIES * abs(factor):
        which = "every tensor" if is_every else listed(sorted(off), _SHOWN)
        return _varying(which, [each for each in at_all_steps if each.ulps > units] or at_all_steps)
    if is_every:
        return f"every update is {factor:.6g} times the reference's, of equal gradients and slots: another learning rate than the one recorded"
    return f"the updates of {listed(sorted(off), _SHOWN)} are {factor:.6g} times the reference's, and the others agree: another learning rate of their group"


def _varying(which: str, updates: Sequence[Measure]) -> str:
    """What updates differ by that are another number times the reference's at each step; which: of what tensors."""
    factors = [each.factor for each in updates]
    text = f"the updates of {which} are {min(factors):.4g} to {max(factors):.4g} times the reference's, by the step"
    by_step: dict[int, list[Measure]] = {}
    for each in updates:
        by_step.setdefault(each.step, []).append(each)
    several = len({each.tensor for each in updates}) > 1
    if several and all(_one_factor(rows) is not None for rows in by_step.values()):
        return f"{text}, all of them by one number at each: another learning rate of theirs, as of a schedule that goes otherwise or is stepped elsewhere"
    return f"{text}: no other learning rate, but something that is added (weight decay), kept (momentum) or clipped there"


def _is_decay(decayed: Mapping[str, float], off: Sequence[Measure]) -> bool:
    """Whether updates are off by numbers times the weights: of most tensors that is seen, and the others, of few elements or small weights, are off by
    no larger share.
    """
    shares = {each.tensor: each.difference / each.reference for each in off if each.reference}
    seen = [share for name, share in shares.items() if name in decayed]
    others = [share for name, share in shares.items() if name not in decayed]
    return len(shares) == len(off) and (not others or (len(seen) > len(others) and max(others) <= max(seen)))


def _clips_each(here: Sequence[Measure]) -> str:
    """That one side clips the gradient of each tensor by its norm, and the other otherwise: at a first step, of which slots are multiples of what the
    optimizer took, those of several tensors have one norm, the largest.
    """
    rows = [each for each in here if each.stage in _TAKEN and each.reference]
    if any(not each.residual <= limits.SCRIPT_FACTOR * each.reference for each in rows):
        return ""
    norms = {
        "reference": [e.reference for e in rows],
        "candidate": [abs(e.factor) * e.reference for e in rows],
    }
    alike = {
        who: np.isclose(of, max(of, default=0.0), rtol=limits.SCRIPT_FACTOR, atol=0)
        for who, of in norms.items()
    }
    for who, other in _OTHER.items():
        # Of those that are below the limit, the other has divided all by one number.
        below = [each.factor for each, at_limit in zip(rows, alike[who], strict=True) if not at_limit]
        divided = len(below) > 1 and np.ptp(below) <= limits.SCRIPT_FACTOR * max(map(abs, below))
        if alike[who].sum() >= _CLIPPED - divided and alike[other].sum() < _CLIPPED - divided:
            common = math.isclose(_norm(norms[other]), max(norms[who]), rel_tol=limits.SCRIPT_FACTOR)
            does = "clips all of them by their common norm, of the same limit" if common else "does not"
            return f"the {who} clips the gradient of each tensor by its own norm, and the {other} {does}"
    return ""


def of_gradients(here: Sequence[Measure], smooth: float) -> str:
    """Why gradients of a step differ; '' where that is not known.

    Args:
        here: what was measured at the step.
        smooth: relative, what rounding explains of gradients.
    """
    rows = [each for each in here if each.stage == "gradients"]
    total = _norm(each.reference for each in rows)
    apart = [each for each in rows if each.only or not each.difference <= smooth * (each.reference + total)]
    names = [each.tensor for each in apart]
    if names and {*names} <= {each.tensor for each in here if each.stage == CARRIED}:
        return f"the gradients of the step before are in the candidate's, too ({listed(names, _SHOWN)}): they were not zeroed after it"
    if len(apart) == len(rows):
        return ""
    if apart and not any(each.reference for each in apart):
        return f"a gradient reaches {listed(names, _SHOWN)} in the candidate, and none in the reference, which stops it (detach, stop_gradient) or has frozen them"
    times = _one_factor(apart)
    if times == 0:
        return f"no gradient reaches {listed(names, _SHOWN)} in the candidate: stopped (detach, stop_gradient, no_grad), frozen, or zeroed before the update"
    if times is not None:
        return (
            f"the gradients of {listed(names, _SHOWN)} are {times:.6g} times the reference's, and those of the others agree: what they alone belong to is weighed"
            " otherwise on the way back (a hook, a part that is stopped, a loss of its own)"
        )
    return ""


def of_some_tensors(here: Sequence[Measure], smooth: float) -> str:
    """What a loss differs by, where some tensors' gradients differ with it and those of others agree clearly; '' where that is not so.

    Args: as of `of_gradients`.
    """
    every = [each for each in here if each.stage == "gradients"]
    total, rows = _norm(each.reference for each in every), _beyond_rounding(every)
    apart = [each for each in rows if not each.difference <= smooth * (each.reference + total)]
    rest = [each for each in rows if each not in apart]
    # The gradient of a single one may be what no loss changes.
    if (
        not apart
        or len(rest) < _TWO
        or any(each.only or not math.isfinite(each.difference) for each in every)
    ):
        return ""
    nearest, farthest = (
        pick(each.difference / each.reference for each in of) for pick, of in ((min, apart), (max, rest))
    )
    if nearest < _APART * farthest:
        return ""
    names, times = listed((each.tensor for each in apart), _SHOWN), _one_factor(apart)
    if times == 0:
        return f"no gradient reaches {names} in the candidate, and those of the other {len(rest)} tensors agree: the term of the loss that trains them is missing there, or stopped"
    if times is not None:
        return (
            f"the gradients of {names} are {times:.6g} times the reference's, and those of the other {len(rest)} tensors agree: the loss that trains these alone is weighed otherwise,"
            " or divided by another number"
        )
    return (
        f"the gradients of {names} differ with the loss, and those of the other {len(rest)} tensors agree: what differs is a term of the loss that reaches these alone: one that one side lacks,"
        " weighs otherwise or makes of other targets, or of weights that were updated before"
    )


def _one_factor(rows: Sequence[Measure]) -> float | None:
    """The number by which all differ from the reference, 0 where nothing is there; None where there is no such number."""
    if not rows or any(not each.reference or not math.isfinite(each.difference) for each in rows):
        return None
    factor = max(rows, key=lambda each: each.reference).factor
    if not _is_other(factor) or not _is_all(factor, rows):
        return None
    return factor if abs(factor) > limits.UNEXPLAINED else 0.0


def moved_alike(here: Sequence[Measure]) -> bool:
    """Whether several running averages move as many times as far as they should at a step, and do move: what they are of is the reference's, and no
    loss does that.
    """
    factors = [each.factor for each in here if each.stage == AVERAGED["momentum"]]
    moves = min(map(abs, factors), default=0.0) > limits.UNEXPLAINED
    return (
        moves and len(factors) > 1 and bool(np.ptp(factors) <= limits.SCRIPT_FACTOR * max(map(abs, factors)))
    )


def of_modes(here: Sequence[Measure]) -> str:
    """That a layer is in another mode, as running averages say that one script alone moves at a step; '' where none is so."""
    rows = [each for each in here if each.stage == ALONE]
    if not rows or len({each.only for each in rows}) > 1:
        return ""
    return (
        f"running averages ({listed((each.tensor for each in rows), _SHOWN)}) move in the {rows[0].only} alone: what they are of is in training mode there, and in"
        " the other script in inference (train, eval, training=), or is called there alone"
    )


def of_averages(
    measures: Sequence[Measure], step: int | None, smooth: float, settings: Iterable[str] = ()
) -> str:
    """How running averages come out otherwise; '' where that is not known.

    Args:
        measures: of all steps.
        step: theirs.
        smooth: relative, what rounding explains.
        settings: that differ.
    """
    here = [each for each in measures if each.step == step]

    def off_by(times: float) -> list[str]:
        buffers = (each for each in here if each.stage == "buffers")
        return [each.tensor for each in buffers if each.difference > times * smooth * each.reference]

    off = off_by(1)
    # Where a copy is what it is of, as at first, an average does not move at all.
    for how, text in _OF_WEIGHTS.items():
        every = {each.tensor for each in measures if each.stage == OF_WEIGHTS[how]}
        now = [each.tensor for each in here if each.stage == OF_WEIGHTS[how]]
        if every and {*off} <= every and (off or now):
            return text.format(names=listed(off or now, _SHOWN))
    # What is hardly off shows no number.
    due = off_by(_CLEARLY) or off
    for stage, text in _AVERAGES.items():
        rows = [each for each in here if each.stage == stage]
        names = [each.tensor for each in rows]
        # Most of several that move alike, as one that hardly moves shows no number.
        most = 2 * len(names) > len(due) and moved_alike(rows)
        if rows and due and (most or {*due} <= {*names}):
            values = round(rows[0].factor / (rows[0].factor - 1)) if rows[0].factor > 1 else 0
            return text.format(names=listed(names, _SHOWN), times=rows[0].factor, values=values)
    # What rounding leaves of a number does not say it.
    if (
        off
        and all(name.endswith(_VARIANCES) for name in off)
        and any(" running_variance is " in each for each in settings)
    ):
        return (
            f"running variances ({listed(off, _SHOWN)}) come out otherwise, and only one side takes those of batches over n - 1 values, as torch's batch norm does"
            " and Keras's does not"
        )
    return ""


def _gradients(measures: Sequence[Measure]) -> dict[int, list[Measure]]:
    """Those of gradients, by step."""
    found: dict[int, list[Measure]] = {}
    for each in measures:
        if each.stage == "gradients":
            found.setdefault(each.step, []).append(each)
    return found


def _norm(numbers: Iterable[float]) -> float:
    """Of a vector that is given in parts, by their norms."""
    return math.sqrt(sum(number**2 for number in numbers))
