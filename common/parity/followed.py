"""The judgement on a followed run: each stage of each followed step by itself, as no error was carried to it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import NotComparableError
from parity.common.base.words import listed
from parity.common.parity.deviation import Curve
from parity.common.parity.rounding import (
    ELEMENTWISE_GROSS_ULPS,
    IN_FUNCTIONS,
    SCHEDULE_ULPS,
    Rounding,
    functions_round,
    of_constants,
    outline_of,
    rounded_from_the_start,
)
from parity.common.parity.sample_ids import steps_of_other_samples
from parity.common.record import RunRecord
from parity.common.record.fits import ELEMENTWISE_ULPS
from parity.common.record.followed import (
    ADDED,
    AVERAGED,
    CHANGED,
    FINAL,
    MEAN,
    OF_WEIGHTS,
    THROUGH,
    Measure,
    identity_of,
    measured,
    read_measures,
)
from parity.common.spec import ScriptInfo

Status = Literal["agrees", "undecided", "differs", "inherits", "not recorded"]
_BY_CONSTANTS = f"judged by what rounding makes of {IN_FUNCTIONS}, which TensorFlow takes through float32"
FIRST_GRADIENTS = "first gradients"
_AGREES, _UNDECIDED, _DIFFERS = range(3)
_WORDS: tuple[Status, ...] = ("agrees", "undecided", "differs")
# One step in so many may have a unit flipped by rounding.
_FLIPS_EVERY = 8
# At most of so many steps or more it cannot be that a few units flip, each by much.
_SEVERAL = 3
# Two factors by which averages move, or of a rounded penalty, are one number.
_ALIKE = 1e-3
# Of one factor that a tensor has at many steps, how far it is apart, as a share of what it is more than 1.
_SAME = 1e-2
# A single flip, in units of what many make together.
_FLIP = 4.0
# What is left beside a multiple of a tensor, as a share of it.
_REST = 0.1
# What batch norms keep, by the names of both frameworks.
_MEANS, _VARIANCES = ("moving_mean", "running_mean"), ("moving_variance", "running_var")
# The square root of a norm of n variances is the norm of their roots up to the fourth root of n.
_CHANNELS = 8.0
# What buffers are made of is no more than so many times larger; of so many units of rounding is what should be zero.
_LARGER, _NOTHING = 10.0, 8.0
# How many times as far averages move that differ by more than how their share is rounded, beyond 1.
_MOVED = 2e-2
# Of more tensors some are named.
_NAMED = 4
# What rounding of weights makes of a small update, as a share of it.
_LOST = 0.05
_FLOAT32, _FLOAT64 = 2.0**-23, 2.0**-52


@dataclass(frozen=True)
class FollowedStage:
    """One stage over all followed steps.

    status: "inherits": it differs, as what it is made from does at the same steps. step: the first that does not agree, or None.
    steps: at how many it does not agree. deviation, allowed: relative, at the worst step.
    """

    name: str
    status: Status
    text: str
    step: int | None = None
    steps: int = 0
    deviation: float = 0.0
    allowed: float = 0.0


def first_gradients_stage(reference: RunRecord, candidate: RunRecord) -> FollowedStage:
    """Judge the gradients of the first step of two trainings that begin alike, as `followed_stages` does."""
    ours, theirs = (
        {name.partition("/")[2]: array for name, array in record.state("first_gradients").items()}
        for record in (reference, candidate)
    )
    rows = [row for row in measured(0, "gradients", ours, theirs) if row.reference or row.difference]
    rounding = Rounding.of(reference, candidate)
    if rounding.proof and rounded_from_the_start(reference, candidate):
        rounding = rounding.in_float32
    return _normwise(FIRST_GRADIENTS, {0: rows}, [0], rounding)


def is_followed(record: RunRecord) -> bool:
    """Whether a record is of a script that followed another."""
    return isinstance(record.run_info, ScriptInfo) and record.run_info.follows is not None


def check_followed(reference: RunRecord, candidate: RunRecord) -> None:
    """Raise NotComparableError where either followed a record that is not the reference."""
    if is_followed(reference):
        raise NotComparableError(
            f"{reference.folder}: followed another script; give the followed one as the reference"
        )
    info = candidate.run_info
    if isinstance(info, ScriptInfo) and info.follows not in (None, identity_of(reference.folder)):
        raise NotComparableError(f"{candidate.folder}: followed another record than {reference.folder}")


def followed_steps(candidate: RunRecord) -> list[int]:
    """The steps that were measured."""
    return sorted({each.step for each in read_measures(candidate.folder)})


def followed_stages(reference: RunRecord, candidate: RunRecord) -> list[FollowedStage]:
    """Judge loss, gradients, optimizer slots, update and buffers, in the order of a step.

    What a step makes of other samples than the reference's says nothing of it; but for its update, by the reference's gradients.
    """
    measures, rounded = read_measures(candidate.folder), dict[int, float]()
    rounding = Rounding.of(reference, candidate)
    keras = any(_framework(record) == "tensorflow" for record in (reference, candidate))
    if rounding.proof and keras:
        measures, rounded = _without_rounded_penalties(reference, candidate, measures)
    passes = rounding_of_passes(reference, candidate)
    steps = sorted({each.step for each in measures})
    foreign = steps_of_other_samples(reference, candidate)
    alike = [step for step in steps if step not in foreign]
    by_stage: dict[str, dict[int, list[Measure]]] = {}
    for each in measures:
        # What neither used: torch has no gradient there, and Keras zeros.
        if each.reference or each.difference:
            stage = "update" if each.stage.startswith("slots/") else each.stage
            by_stage.setdefault(stage, {}).setdefault(each.step, []).append(each)
    through = {step: _wider(rows, passes) for step, rows in by_stage.get(THROUGH, {}).items()}
    penalised = set() if rounded else _penalised(reference, candidate, measures, alike)
    loss = _loss(reference, candidate, alike, passes, rounded, through, penalised)
    if passes.constants and loss.status == "agrees":
        loss = replace(loss, text=f"{loss.text}; {by_constants(passes)}")
    told_apart = _averages_told_apart(measures)
    gradients, buffers = (
        _normwise(
            name,
            {s: rows for s, rows in by_stage.get(name, {}).items() if s in alike},
            alike,
            passes,
            told_apart,
            through,
            _sizes_of_averages(measures),
            _farthest(by_stage.get("update", {})) if name == "buffers" else {},
        )
        for name in ("gradients", "buffers")
    )
    if (first_added := added_to_gradients(measures)) and gradients.status == "agrees":
        gradients = replace(gradients, text=f"{gradients.text}, {_added_words(first_added)}")
    if loss.status != "agrees":
        buffers = _inherited(buffers, "the loss", loss)
        # Another loss gives no tensor a gradient, and takes none away.
        if not any(row.only for step in alike for row in by_stage.get("gradients", {}).get(step, ())):
            gradients = _inherited(gradients, "the loss", loss)
    rows = by_stage.get("update", {})
    update = _elementwise(rows, steps, rounding, keras)
    rates = _unequal_rates(reference, candidate)
    largest: dict[str, float] = {}
    for each in (each for step in rows.values() for each in step if each.stage == "update"):
        largest[each.tensor] = max(each.reference, largest.get(each.tensor, 0.0))
    _, units = elementwise_units(rounding, keras)
    if update.status == "differs" and all(
        step in rates and _scaled(rows[step], rates[step], largest, keras, units)
        for step in steps
        if any(each.ulps > units for each in rows.get(step, ()))
    ):
        update = replace(update, status="inherits", text=f"as the learning rate does; {update.text}")
    if update.status == "differs" and penalised:
        added_at = {(each.step, each.tensor) for each in measures if each.stage == ADDED}
        apart = ((step, r.tensor) for step, of in rows.items() for r in of if r.only or r.ulps > units)
        if added_at.issuperset(apart):
            text = f"as the loss does, by gradients that have its penalty; {update.text}"
            update = replace(update, status="inherits", text=text)
    before = next((stage for stage in (loss, gradients) if stage.status == "differs"), None)
    changed = {each.step for each in measures if each.stage == CHANGED}
    if update.status == "differs" and before is not None and before.step == update.step:
        off = {step for step, each in rows.items() if any(row.only or row.ulps > units for row in each)}
        if off <= changed:
            text = f"as the {before.name} {'does' if before is loss else 'do'}, of weights that the script has changed itself; {update.text}"
            update = replace(update, status="inherits", text=text)
    return [loss, gradients, update, buffers]


def rounding_of_passes(reference: RunRecord, candidate: RunRecord) -> Rounding:
    """By what loss, gradients and buffers are judged: what comes before the optimizer is as exact as the functions that compute it."""
    if functions_round(reference, candidate):
        return of_constants(reference, candidate)
    return Rounding.of(reference, candidate)


def by_constants(rounding: Rounding) -> str:
    """By what a step of float64 is judged where `constants` are rounded, for a sentence."""
    return f"{_BY_CONSTANTS} ({rounding.smooth:.1e}, relative)"


def followed_final(
    reference: RunRecord, candidate: RunRecord, stages: Sequence[FollowedStage]
) -> FollowedStage:
    """Judge what a followed run has done after its last step, where that began with the reference's state: averages that are made there,
    statistics that are estimated anew.

    It goes through weights that one step's rounding and a framework's constants have moved, so that only what no rounding of float32 makes of a step
    counts.

    Args:
        stages: of its steps.
    """
    rows = [each for each in read_measures(candidate.folder) if each.stage == FINAL]
    if not rows:
        words = "only after a last step that was followed, where the reference leaves its trained weights as they are"
        return FollowedStage(FINAL, "not recorded", words)
    rounding = Rounding.of(reference, candidate)
    rounding = rounding.in_float32 if rounding.proof else rounding
    allowed = [
        rounding.gross * (each.reference + of)
        for each, of in zip(rows, _made_of(rows, _NOTHING * rounding.eps, {}), strict=True)
    ]
    shares = [
        each.difference / max(most, np.finfo(float).tiny) for each, most in zip(rows, allowed, strict=True)
    ]
    place = int(np.argmax(shares))
    worst, limit = rows[place], rounding.gross
    deviation = limit * shares[place]
    if shares[place] <= 1:
        # What the last step's own update and buffers are off by is judged there.
        more = f" but for {deviation:.1e}" if deviation else ""
        text = f"{len(rows)} tensors, no farther apart than they were as the last step ended{more}"
        return FollowedStage(FINAL, "agrees", text, None, 0, deviation, limit)
    apart = [each for each, share in zip(rows, shares, strict=True) if share > 1]
    text, status = _words(worst) + _listed(apart, rows), _WORDS[_DIFFERS]
    # Its last update was by the reference's gradients.
    others = (stage for stage in stages if stage.name != "gradients")
    if before := next((stage.name for stage in others if stage.status in ("differs", "inherits")), ""):
        verb = "do" if before == "buffers" else "does"
        status, text = "inherits", f"as the {before} {verb}; {text}"
    return FollowedStage(FINAL, status, text, None, 0, deviation, limit)


def _farthest(updates: Mapping[int, Sequence[Measure]]) -> dict[int, float]:
    """By step the largest norm by which the update of a tensor is off: an average of weights, which takes them in, is off by no more."""
    off = {
        step: [each.difference for each in rows if each.stage == "update" and not each.only]
        for step, rows in updates.items()
    }
    return {step: max(filter(math.isfinite, far), default=0.0) for step, far in off.items()}


def _wider(rows: Sequence[Measure], rounding: Rounding) -> dict[str, float]:
    """How many times what rounding explains a gradient may be off by tensor, as it goes through weights that another optimizer has updated.

    Where all weights are off by a unit of rounding, the limit is what it is without.
    """
    # Weights that are off go through all products, rounded or not.
    times = replace(rounding, constants=0.0).smooth / rounding.smooth
    return {each.tensor: 1 + times * each.reference / rounding.eps for each in rows}


def added_to_gradients(measures: Sequence[Measure], step: int | None = None) -> list[Measure]:
    """How many times its weights the candidate adds to its gradients, by tensor, at a step or the first one where it does; see `Measure`.

    Of tensors that are zero nothing is known.
    """
    rows = [each for each in measures if each.stage == ADDED and each.reference and step in (None, each.step)]
    return [each for each in rows if each.step == rows[0].step]


def _added_words(added: Sequence[Measure]) -> str:
    """What `added_to_gradients` gives, for a sentence on gradients."""
    times, count = added[0].factor, f"{len(added)} tensor{'s' * (len(added) != 1)}"
    whose = "candidate's have in them" if times > 0 else "reference's have in them"
    return f"but for {abs(times):.4g} times the weights, which of {count} the {whose}"


def penalty_of(added: Sequence[Measure]) -> float:
    """By how much the candidate's loss is larger, where what is added to its gradients comes of its loss: k / 2 times the squares of the weights."""
    return sum(each.factor / 2 * each.reference**2 for each in added)


def _penalised(
    reference: RunRecord, candidate: RunRecord, measures: Sequence[Measure], steps: Sequence[int]
) -> set[int]:
    """The steps at which the loss is larger by the penalty that gradients show, where these are most of several: no rounding does so, however small it is."""
    added = {each.step for each in measures if each.stage == ADDED} & {*steps}
    ours, theirs = (dict(zip(r.steps.tolist(), r.loss.tolist(), strict=True)) for r in (reference, candidate))
    found = set()
    for step in added & ours.keys() & theirs.keys():
        due = penalty_of(added_to_gradients(measures, step))
        if due and abs(theirs[step] - ours[step] - due) <= _SAME * abs(due):
            found.add(step)
    return found if len(found) >= _SEVERAL and 2 * len(found) > len(added) else set()


def _without_rounded_penalties(
    reference: RunRecord, candidate: RunRecord, measures: list[Measure]
) -> tuple[list[Measure], dict[int, float]]:
    """The measures without what is in gradients because Keras takes its regularizers' factors through float32, and by step what that adds to the
    candidate's loss; as they are where that is not all that is added to gradients.
    """
    # As they are written; an outline has what Keras made of them.
    factors = [np.float32(each) for record in (reference, candidate) for each in _regularizers(record)]
    off = [2 * abs(float(each) - float(str(each))) for each in factors]
    added = [each for each in measures if each.stage == ADDED and each.reference]
    if not all(any(abs(abs(row.factor) - far) <= _ALIKE * far for far in off if far) for row in added):
        return measures, {}
    steps = sorted({row.step for row in added})
    penalties = {step: penalty_of(added_to_gradients(measures, step)) for step in steps}
    found = []
    for each in measures:
        nearest = [row for row in added if row.tensor == each.tensor and each.stage == "gradients"]
        if nearest and each.step not in steps:
            # It was seen at other steps alone, as this one's rate is too small for an update to show it.
            row = min(nearest, key=lambda row: abs(row.step - each.step))
            due = abs(row.factor) * row.reference
            if abs(each.difference - due) <= _ALIKE * due:
                more = math.copysign(each.difference**2 / abs(row.factor) / 2, row.factor)
                penalties[each.step] = penalties.get(each.step, 0.0) + more
                each = replace(each, difference=abs(each.difference - due), factor=1.0, residual=0.0)
        found.append(each)
    return found, penalties


def _regularizers(record: RunRecord) -> list[str]:
    """The factors of a Keras model's L2 regularizers, as its outline has them."""
    settings = (layer.get("settings", {}) for layer in outline_of(record).get("layers", ()))
    told = (str(value) for each in settings for name, value in each.items() if name.endswith("_regularizer"))
    return [number for each in told for number in re.findall(r"l2 ([0-9.e+-]+)", each)]


def mean_agrees(reference: RunRecord, candidate: RunRecord, step: int) -> bool:
    """Whether the mean over the ranks of a followed step's gradients is the reference's gradient."""
    rows = [m for m in read_measures(candidate.folder) if (m.stage, m.step) == (MEAN, step)]
    stage = _normwise("gradients", {step: rows} if rows else {}, [step], Rounding.of(reference, candidate))
    return stage.status == "agrees"


def _framework(record: RunRecord) -> str:
    return record.run_info.framework if isinstance(record.run_info, ScriptInfo) else ""


def _loss(
    reference: RunRecord,
    candidate: RunRecord,
    steps: Sequence[int],
    rounding: Rounding,
    rounded: Mapping[int, float],
    through: Mapping[int, Mapping[str, float]] = {},
    penalised: Set[int] = frozenset(),
) -> FollowedStage:
    """The loss; rounded: by step what the candidate's has more for a reason that counts for nothing. through: by step as `_wider`. penalised: steps, as of
    `_penalised`.
    """
    ours, theirs = ([int(s - r.steps[0]) for s in steps if s in r.steps] for r in (reference, candidate))
    if not ours or len(ours) != len(theirs):
        return FollowedStage("loss", "not recorded", "at no followed step with the same samples")
    first, second = reference.loss[ours], candidate.loss[theirs]
    norms = (reference.columns[name][ours] for name in ("gradient_norm", "parameter_norm"))
    wider = np.array([max(through.get(step, {}).values(), default=1.0) for step in steps])
    within, beyond = (limit * wider for limit in rounding.loss(first, *norms))
    with np.errstate(invalid="ignore"):
        more = np.array([rounded.get(step, 0.0) for step in steps])
        apart = np.where(np.isfinite(first) & np.isfinite(second), np.abs(first + more - second), np.inf)
    # Of two losses that are no numbers nothing is known.
    neither = ~np.isfinite(first) & ~np.isfinite(second)
    levels = (apart > within).astype(int) + (apart > beyond)
    levels[[step in penalised for step in steps]] = _DIFFERS
    # No unit that flips moves a loss: of 10 clean pairs none was off by a tenth of what rounding explains.
    levels = _settled(levels, apart > within, rounding)
    apart[neither], levels[neither] = 0.0, _UNDECIDED
    scale = np.where(neither, 1.0, np.maximum(np.abs(first), np.finfo(float).tiny))
    row = int(np.argmax(levels)) if levels.any() else int(np.argmax(apart))
    text = f"{first[row]:.9g} and {second[row]:.9g} at step {steps[row]}"
    if rounded and not levels.any():
        text += "; but for a regularizer's factor, which Keras takes through float32"
    times = f"{second[row] / first[row]:.6g}" if levels.max() == _DIFFERS and first[row] else "1"
    if times != "1":
        text += f", {times} times the reference's"
    allowed = np.nan_to_num(within / scale)
    return _stage("loss", steps, levels, apart / scale, allowed, text)


def _normwise(
    name: str,
    by_step: dict[int, list[Measure]],
    steps: Sequence[int],
    rounding: Rounding,
    told_apart: Mapping[int, Mapping[str, bool]] = {},
    through: Mapping[int, Mapping[str, float]] = {},
    sizes: Mapping[int, Mapping[str, float]] = {},
    besides: Mapping[int, float] = {},
) -> FollowedStage:
    """Gradients, or buffers: tensors that products have made, by their norms.

    told_apart: of each step, buffers that differ by what flips do not make, and whether rounding makes it neither. through: of each step, as `_wider`.
    sizes: of each step, the norm of what averages of weights are made of. besides: of each step, by what norm they may be off for another reason.
    """
    if not by_step:
        words = "the models have none" if steps and name == "buffers" else "at no step with the same samples"
        return FollowedStage(name, "not recorded", words)
    beyond = rounding.gross_gradient if "gradients" in name else rounding.gross
    levels, deviations, large, limits = [], [], [], []
    allowances: list[list[float]] = []
    worst: list[Measure | None] = []
    rare = 0
    for step in steps:
        rows = by_step.get(step, [])
        total = math.sqrt(sum(each.reference**2 for each in rows))
        more = besides.get(step, 0.0)
        smooth = [rounding.smooth * through.get(step, {}).get(each.tensor, 1.0) for each in rows]
        made_of = [total] * len(rows)
        if name == "buffers":
            made_of = _made_of(rows, _NOTHING * rounding.eps, sizes.get(step, {}))
        allowed = [
            limit * (each.reference + of) + more
            for each, limit, of in zip(rows, smooth, made_of, strict=True)
        ]
        shares = [
            each.difference / max(most, np.finfo(float).tiny)
            for each, most in zip(rows, allowed, strict=True)
        ]
        far = [
            each.difference > beyond * each.reference + 8 * limit * of + more
            for each, limit, of in zip(rows, smooth, made_of, strict=True)
        ]
        place = int(np.argmax(shares)) if rows else 0
        level = _AGREES if not rows or shares[place] <= 1 else _DIFFERS if any(far) else _UNDECIDED
        if level and (rounding.proof or _is_multiple(rows, allowed)):
            level = _DIFFERS
        otherwise = told_apart.get(step, {})
        if level and rows[place].tensor in otherwise:
            level = _DIFFERS
        elif apart := [n for n, each in enumerate(rows) if otherwise.get(each.tensor)]:
            level, place = _DIFFERS, max(apart, key=shares.__getitem__)
        if any(each.only for each in rows):
            level = _DIFFERS
            place = next(i for i, each in enumerate(rows) if each.only)
        of = rows[place].reference + made_of[place] if rows else 0.0
        units = rows[place].difference / (rounding.gross * of) if level else 0.0
        rare += level == _UNDECIDED and units <= _FLIP
        large.append(units > 1)
        levels.append(level)
        worst.append(rows[place] if rows else None)
        limits.append(smooth[place] if rows else rounding.smooth)
        allowances.append(allowed)
        deviations.append(_relative(rows[place], made_of[place]) if rows else 0.0)
    off: NDArray[np.int64] = np.array(levels)
    if not off.any():
        text = f"{_most(by_step)} tensors, within {max(deviations):.1e}"
        return _stage(name, steps, off, np.array(deviations), np.array(limits), text)

    def told() -> str:
        """What the first of the steps that are farthest off shows."""
        row = int(np.argmax(off == off.max()))
        first, rows = worst[row], by_step[steps[row]]
        assert first is not None
        apart = [
            each
            for each, most in zip(rows, allowances[row], strict=True)
            if each.only or not each.difference <= most or told_apart.get(steps[row], {}).get(each.tensor)
        ]
        return _words(first) + _listed(apart, rows)

    undecided = int((off == _UNDECIDED).sum())
    steady = _steady([each for each, one in zip(worst, off, strict=True) if one and each is not None])
    if off.max() == _UNDECIDED and undecided == rare <= len(off) // _FLIPS_EVERY:
        flipped = steps[int(np.argmax(off))]
        text = f"within rounding but for step {flipped}, as where it flips a unit: {told()}"
        return _stage(name, steps, np.zeros_like(off), np.array(deviations), np.array(limits), text)
    # Flips are rare, and this is at every other step; or always by one factor, as of one number.
    # What a constant moves a little flips no unit of what is averaged on the way forward.
    if name == "buffers" and rounding.constants and undecided >= _SEVERAL:
        rare = 0
    systematic = 2 * max(undecided - rare, steady) > len(off) or _by_one_factor(by_step, worst, off)
    if off.max() == _UNDECIDED and not rounding.proof and systematic:
        off = np.where(off == _UNDECIDED, _DIFFERS, off)
    off = _settled(off, np.array(large), rounding)
    return _stage(name, steps, off, np.array(deviations), np.array(limits), told())


def _steady(rows: Sequence[Measure]) -> int:
    """At how many steps a running average is the reference's times a number, always larger or always smaller, as units that flip do not make it."""
    scaled = [
        row
        for row in rows
        if row.stage == "buffers"
        and row.reference
        and abs(row.factor - 1) > 4 * row.residual / row.reference
        # Of one element everything is a multiple.
        and row.residual > np.finfo(float).eps * 1e3 * row.reference
    ]
    often = Counter((row.tensor, row.factor > 1) for row in scaled)
    most = max(often.values(), default=0)
    return most if most >= _SEVERAL else 0


def _by_one_factor(
    by_step: Mapping[int, Sequence[Measure]], worst: Sequence[Measure | None], off: NDArray[np.int64]
) -> bool:
    """Whether a tensor that is farthest off is the reference's times one number at most of the steps at which it has a gradient."""
    found: dict[str, list[Measure]] = {}
    for each, level in zip(worst, off.tolist(), strict=True):
        if each is None or not level or each.stage != "gradients":
            continue
        if each.residual <= _REST * each.difference < math.inf:
            found.setdefault(each.tensor, []).append(each)
    for tensor, rows in found.items():
        turns = sum(any(one.tensor == tensor and one.reference for one in of) for of in by_step.values())
        apart = [each.factor - 1 for each in rows]
        if 2 * len(rows) > turns >= _SEVERAL and np.ptp(apart) <= _SAME * np.abs(apart).min():
            return True
    return False


def _averages_told_apart(measures: Sequence[Measure]) -> dict[int, dict[str, bool]]:
    """By step the averages that differ by what units that flip do not make: of weights, or where several move as many times as far as they should; and
    whether no rounding makes it either, as where these are several steps.
    """
    found: dict[int, dict[str, bool]] = {}
    moved: dict[int, dict[str, float]] = {}
    for each in measures:
        if each.stage in OF_WEIGHTS.values() and each.stage != OF_WEIGHTS["right"]:
            found.setdefault(each.step, {})[each.tensor] = True
        elif each.stage == AVERAGED["momentum"]:
            moved.setdefault(each.step, {})[each.tensor] = each.factor
    alike = {s: of for s, of in moved.items() if len(of) > 1 and np.ptp([*of.values()]) <= _ALIKE}
    # A share as small as 1e-4 has few digits itself.
    surely = [step for step, of in alike.items() if all(abs(times - 1) > _MOVED for times in of.values())]
    for step, of in alike.items():
        for name in of:
            found.setdefault(step, {}).setdefault(name, len(surely) >= _SEVERAL and step in surely)
    return found


def _sizes_of_averages(measures: Sequence[Measure]) -> dict[int, dict[str, float]]:
    """By step and tensor the norm of what an average of weights is made of."""
    found: dict[int, dict[str, float]] = {}
    for each in measures:
        if each.stage in OF_WEIGHTS.values():
            found.setdefault(each.step, {})[each.tensor] = each.reference
    return found


def _made_of(rows: Sequence[Measure], rounding: float, averages: Mapping[str, float]) -> list[float]:
    """Of each buffer how large what it is made of may be beside itself.

    A mean is made of values as large as the square root of the variance beside it, and that of squares of the mean. Of others nothing is known: they
    are made of nothing that is much larger than they are, unless they are no more than rounding of all together; rounding: relative. averages: of
    weights, what they are made of.
    """
    total = math.sqrt(sum(each.reference**2 for each in rows))
    sizes = {each.tensor: each.reference for each in rows}
    found = []
    for each in rows:
        if each.tensor in averages:
            found.append(averages[each.tensor])
        elif (beside := _beside(each.tensor, _VARIANCES, _MEANS)) in sizes:
            found.append(sizes[beside] ** 2)
        elif (beside := _beside(each.tensor, _MEANS, _VARIANCES)) in sizes:
            # Of as many elements as a layer has channels.
            found.append(_CHANNELS * math.sqrt(sizes[beside]))
        else:
            found.append(min(total, _LARGER * each.reference) if each.reference > rounding * total else total)
    return found


def _beside(name: str, ends: Sequence[str], others: Sequence[str]) -> str:
    """The name of the mean beside a variance, or the other way round; '' of another tensor."""
    for end, other in zip(ends, others, strict=True):
        if name.endswith(end):
            return name.removesuffix(end) + other
    return ""


def _is_multiple(rows: Sequence[Measure], allowed: Sequence[float]) -> bool:
    """Whether the gradients that are off are those of the reference times one number, up to what each may be off: a unit that flips changes
    their direction.
    """
    off = [(each, most) for each, most in zip(rows, allowed, strict=True) if not each.difference <= most]
    largest = max((each for each, _ in off), key=lambda each: each.reference)
    return len(off) > 1 and all(
        math.isfinite(each.difference)
        and math.hypot(each.residual, (each.factor - largest.factor) * each.reference) <= most
        for each, most in off
    )


def _settled(levels: NDArray[np.int64], large: NDArray[np.bool_], rounding: Rounding) -> NDArray[np.int64]:
    """Levels of steps, where those that are undecided differ: as most steps do, or are off by more than many flips make.

    A few units that flip are a few steps' matter, and of many the sum is within the gross level.
    """
    undecided = levels == _UNDECIDED
    if rounding.proof or not undecided.any():
        return levels
    systematic = large.sum() >= _SEVERAL and 2 * large.sum() > len(levels)
    with_others = (levels == _DIFFERS).any() and undecided.sum() > len(levels) / _FLIPS_EVERY
    return np.where(undecided, _DIFFERS, levels) if systematic or with_others else levels


def _elementwise(
    by_step: dict[int, list[Measure]], steps: Sequence[int], rounding: Rounding, keras: bool
) -> FollowedStage:
    """What the optimizer makes of equal gradients, slots and weights: update and slots."""
    if not by_step:
        return FollowedStage("update", "not recorded", "at no step")
    eps = _FLOAT64 if rounding.proof else _FLOAT32
    within, beyond = elementwise_units(rounding, keras)
    levels, ulps = [], []
    worst: list[Measure | None] = []
    for step in steps:
        rows = by_step.get(step, [])
        if not rows:
            levels.append(_AGREES)
            ulps.append(0.0)
            worst.append(None)
            continue
        # The update tells more than a slot; a slot shows where the update does not yet.
        each = max(
            rows,
            key=lambda row: (
                row.only != "",
                row.ulps > beyond,
                row.ulps > within,
                row.stage == "update",
                row.difference,
            ),
        )
        largest = math.inf if each.only else max(row.ulps for row in rows)
        levels.append(int(largest > within) + (largest > beyond))
        ulps.append(largest)
        worst.append(each)
    off: NDArray[np.int64] = np.array(levels)
    farthest = np.array(ulps)
    allowed = np.full(len(off), ELEMENTWISE_ULPS * eps)
    if off.any():
        row = int(np.argmax(off == off.max()))
        first, rows = worst[row], by_step[steps[row]]
        assert first is not None
        text = _words(first) + _listed([each for each in rows if each.only or each.ulps > within], rows)
    else:
        text = f"{_most(by_step)} tensors of updates and slots, within "
        if farthest.max() > ELEMENTWISE_ULPS:
            text += f"{farthest.max() * eps:.1e}, relative: as a constant that Keras rounds to float32 (learning rate, momentum, beta) changes them"
        else:
            text += f"{farthest.max():.3g} units of rounding"
    return _stage("update", steps, off, farthest * eps, allowed, text)


def elementwise_units(rounding: Rounding, keras: bool) -> tuple[float, float]:
    """Return units of rounding: within which an update agrees, and beyond which it differs.

    In float64, what Keras takes through float32 is named and is no defect of either script.
    """
    if rounding.proof and keras:
        return (ELEMENTWISE_GROSS_ULPS * _FLOAT32 / _FLOAT64,) * 2
    return ELEMENTWISE_ULPS, ELEMENTWISE_GROSS_ULPS


def _most(by_step: Mapping[int, Sequence[Measure]]) -> int:
    """How many tensors were measured at the step with most of them."""
    return max(map(len, by_step.values()))


def _stage(
    name: str,
    steps: Sequence[int],
    levels: NDArray[np.int64],
    deviations: Curve,
    allowed: Curve,
    text: str,
) -> FollowedStage:
    off = np.flatnonzero(levels == levels.max()) if levels.any() else np.empty(0, np.int64)
    row = int(off[0]) if len(off) else int(np.argmax(deviations))
    status = _WORDS[int(levels.max(initial=0))]
    # With those that are undecided by themselves.
    count = int(np.count_nonzero(levels))
    if len(off) and name != FIRST_GRADIENTS:
        text += f" (at step {steps[row]}, and in all at {count} of {len(steps)} followed steps)"
    step = steps[row] if len(off) else None
    return FollowedStage(name, status, text, step, count, float(deviations[row]), float(allowed[row]))


def _inherited(stage: FollowedStage, cause: str, upstream: FollowedStage) -> FollowedStage:
    """The stage, whose deviation is upstream's, where upstream deviates from the same step on and as often."""
    if stage.status != "differs" or upstream.status != "differs" or upstream.steps < stage.steps:
        return stage
    if stage.step is None or upstream.step is None or upstream.step > stage.step:
        return stage
    return replace(stage, status="inherits", text=f"as {cause} does; {stage.text}")


def _relative(row: Measure, total: float) -> float:
    return row.difference / (row.reference + total) if row.difference else 0.0


def _words(row: Measure) -> str:
    what = (
        f"{row.tensor} ({row.stage.removeprefix('slots/')})" if row.stage.startswith("slots/") else row.tensor
    )
    if row.only:
        return f"{what} only in the {row.only}"
    if not math.isfinite(row.difference):
        return f"{what} is not finite in one, or of another shape"
    multiple = row.residual <= _REST * abs(row.factor) * row.reference or not row.residual
    times = f"{row.factor:.6g}"
    if row.reference and multiple and times != "1" and abs(row.factor - 1) > 4 * row.residual / row.reference:
        return f"{what} is {times} times the reference's"
    if not row.reference:
        return f"{what} is 0 in the reference, and here {row.difference:.2g} (norm)"
    return f"{what} is off by {row.difference / row.reference:.2g} of its norm"


def _listed(apart: Sequence[Measure], rows: Sequence[Measure]) -> str:
    """Which tensors of a step are apart, where that is not all of them."""
    names = list(dict.fromkeys(each.tensor for each in apart))
    every = len({each.tensor for each in rows})
    if len(names) in (1, every) or not names:
        return "" if len(names) != 1 or every == 1 else f", and the other {every - 1} agree"
    return f"; of {every} tensors {len(names)}: {listed(names, _NAMED)}"


def _unequal_rates(reference: RunRecord, candidate: RunRecord) -> dict[int, float]:
    """By step, candidate over reference where the learning rates are not one number up to float32 rounding; infinite over 0."""
    ours, theirs = (record.columns["learning_rate"] for record in (reference, candidate))
    found, cancelled = {}, SCHEDULE_ULPS * _FLOAT32 * float(np.nanmax(np.abs(ours), initial=0.0))
    for step, first, second in zip(reference.steps.tolist(), ours, theirs, strict=False):
        if abs(first - second) > max(2 * _FLOAT32 * abs(first), cancelled):
            found[step] = second / first if first else math.inf
    return found


def _scaled(
    rows: Sequence[Measure], ratio: float, largest: Mapping[str, float], keras: bool, units: float
) -> bool:
    """Whether updates are the reference's times the ratio of the learning rates, and slots those of the reference.

    An update that is small beside the largest of its tensor loses digits in the weights; within some units of rounding one is as it should be.

    Keras has the rate in its momentum, whose next update is then no multiple.
    """
    if any(row.only for row in rows):
        return False
    if keras and any(row.stage == "slots/momentum_velocity" for row in rows):
        return True
    if math.isinf(ratio):
        return not any(row.reference for row in rows if row.stage == "update")
    slack = 4 * math.sqrt(_FLOAT32)
    return all(
        math.hypot((row.factor - ratio) * row.reference, row.residual)
        <= abs(ratio) * min(slack * largest[row.tensor], _LOST * row.reference)
        if row.stage == "update"
        else row.ulps <= units
        for row in rows
        if row.ulps > units
    )
