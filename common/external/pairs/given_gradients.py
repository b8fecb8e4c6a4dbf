"""The users' own optimizers, both given the same gradients of the mapped tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from parity.common import reference
from parity.common.base.errors import ExternalModelError
from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Confidence, Explanation
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench, frozen_apart
from parity.common.external.pairs.code_edits import CodeEdit, fitting_edit
from parity.common.external.pairs.explain import made
from parity.common.external.pairs.observed_optimizers import CLIPPED, CLIPS
from parity.common.external.process.pass_result import Arrays
from parity.common.external.process.worker import ExternalWorker
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.target import Target
from parity.common.spec.optimizers import parse_optimizer
from parity.common.spec.optimizers.base import COMMON
from parity.common.state.zero_gradient import measured_zero_gradients

# The learning rate of all updates, or of each; None: the optimizers' own.
Rate = float | Sequence[float] | None
# Updates that are looked into for a common factor.
_STEPS = 4
# Times as many in which an edit has to hold.
_LONGER = 3
# How far beyond a limit a gradient is that shows it.
_BEYOND = 10.0
# How much smaller a limit is that is seen to clip more.
_LESS = 0.98
LISTED = 4  # names of tensors
# One that does something, and the other.
_SIDES = (("torch", "Keras"), ("Keras", "torch"))
_FACTORS = (1.0, -0.4, 0.7)  # of the gradients in each update, by turns


def mapped_alone(bench: Bench, state: Arrays) -> Arrays:
    """Of Keras's tensors those that have a counterpart."""
    names = {name for pair in bench.mapping.tensors for name in pair.keras if pair.torch}
    return {name: value for name, value in state.items() if name in names}


def moved_by(bench: Bench, gradients: Arrays, weights: Arrays) -> Arrays:
    """The gradients, by Keras's names, of weights that both sides train by more than rounding: an optimizer that divides by a gradient's size
    makes steps of what is only that.
    """
    zero = measured_zero_gradients(gradients).keys() | frozen_apart(bench).keys()
    return {name: value for name, value in gradients.items() if name in weights and name not in zero}


def as_torch_takes(bench: Bench, gradients: Arrays) -> Arrays:
    """Gradients of Keras's tensors as torch's optimizer is given them: of two biases one may be frozen, the other has it all.

    A part of a fused tensor that was left out, as nothing but rounding moves it, is zero.
    """
    shapes = {info.name: info.shape for info in bench.outlines[0].tensors}
    fused = (pair.keras for pair in bench.mapping.tensors if gradients.keys() & {*pair.keras})
    whole: Arrays = {name: np.zeros(shapes[name]) for names in fused for name in names}
    found = bench.mapping.to_torch(whole | gradients, partial=True)
    # A tied tensor is updated once, by the first of its names.
    tied = bench.mapping.tied.torch
    trained = {info.name for info in bench.outlines[1].tensors if info.trainable and info.name not in tied}
    for pair in bench.mapping.tensors:
        if pair.rule == "two_biases" and pair.torch[0] in found.keys() - trained:
            found[pair.torch[1]] = found[pair.torch[0]]
    return {name: value for name, value in found.items() if name in trained}


def numbers_held(bench: Bench) -> list[float]:
    """The positive numbers by which either optimizer may clip or decay, those of settings first."""
    infos = [outline.optimizer for outline in bench.outlines if outline.optimizer is not None]
    settings = [info.settings.get(name) for info in infos for name in (*CLIPS, "weight_decay")]
    held = [number for info in infos for number in info.numbers]
    return list(dict.fromkeys(float(v) for v in (*settings, *held) if isinstance(v, int | float) and v > 0))


def scaled(gradients: Arrays, number: int) -> Arrays:
    """Gradients of another size in each update, by tensor and by element."""
    found: Arrays = {}
    for name, value in gradients.items():
        ramp = 1.0 + 0.1 * (number % len(_FACTORS)) * np.linspace(-1.0, 1.0, value.size).reshape(value.shape)
        found[name] = _FACTORS[number % len(_FACTORS)] * value * ramp
    return found


def beyond_limits(gradients: Arrays, limit: float, times: float) -> Arrays:
    """The gradients with a norm of so many times ten limits each, so that whatever clips by that limit does; those that are zero stay so."""
    norms = {name: float(np.linalg.norm(value)) for name, value in gradients.items()}
    return {
        name: value * (_BEYOND * limit * times / norms[name]) if norms[name] else value
        for name, value in gradients.items()
    }


def moves(
    bench: Bench,
    optimizers: tuple[Target, Target],
    sets: Sequence[Arrays],
    rate: Rate,
    theirs: Sequence[Arrays] | None = None,
) -> tuple[Arrays, Arrays]:
    """What either optimizer makes of the weights, by Keras's names; theirs: what torch's is given, if that is something else."""
    before = bench.keras.read()
    with exact_constants(bench):
        ours = bench.keras.update(optimizers[0], list(sets), rate=rate)
    given = sets if theirs is None else theirs
    return beyond_rounding(before, ours, updated_by_torch(bench, optimizers[1], given, rate), sets)


def updated_by_torch(bench: Bench, optimizer: Target, sets: Sequence[Arrays], rate: Rate) -> Arrays:
    """All weights by Keras's names, after torch's updates by gradients of Keras's tensors."""
    given = [as_torch_takes(bench, each) for each in sets]
    return bench.mapping.to_keras(
        bench.torch.read() | bench.torch.update(optimizer, given, rate=rate, shares=bench.shares)
    )


def beyond_rounding(
    before: Arrays, ours: Arrays, theirs: Arrays, sets: Sequence[Arrays]
) -> tuple[Arrays, Arrays]:
    """By how much either side has moved the weights that have gradients; the same where they differ by what rounding the weights moves alone.

    Args:
        before, ours, theirs: all weights, before the updates and after those of either side.
        sets: gradients of all updates.
    """
    moved, other = (
        {name: np.subtract(each[name], before[name]) for name in sets[0]} for each in (ours, theirs)
    )
    for name, value in moved.items():
        largest = np.maximum(np.abs(before[name]), np.abs(ours[name])).astype(np.float64)
        with np.errstate(invalid="ignore"):
            # Half a unit in the last place on either side, in an update of up to two operations on the weight.
            rounding = 2 * len(sets) * np.spacing(largest)
            other[name] = np.where(np.abs(other[name] - value) <= rounding, value, other[name])
    return moved, other


def why_updates_part(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, rate: Rate
) -> Explanation | None:
    """Return what one side alone does that makes all updates differ; None where no experiment shows it.

    Args:
        bench, optimizers: of the pair.
        sets: gradients of all updates. step: the first at which they part.
        rate: at which both are held, in all or in each.
    """
    ways = [_clipping_otherwise, _clipping_by_element, _clipping, _decay, _common_factors, _code]
    own, theirs = moves(bench, optimizers, sets, rate)
    if max(tensor_deviation(own[name], theirs[name]) for name in own) <= limits.ROUNDED_CONSTANT:
        ways = [_common_factors, _code]  # as close as that the others agree with anything
    found = (way(bench, optimizers, sets, step, rate) for way in ways)
    return next((why for why in found if why is not None), None)


def _clipping_by_element(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, rate: Rate
) -> Explanation | None:
    """That one side alone clips each element, or each tensor by its norm, by a number that it holds; None where that does not make all
    updates the same.
    """
    for (who, other), clip, limit in itertools.product(
        _SIDES, ("clip_value", "clip_norm"), numbers_held(bench)
    ):
        clipped = _clipped(sets, clip, limit)
        reached = (
            n
            for n, each in enumerate(sets)
            if any(not np.array_equal(value, clipped[n][name]) for name, value in each.items())
        )
        if next(reached, -1) < step:
            continue
        given = (clipped, sets) if who == "torch" else (sets, clipped)
        own, theirs = moves(bench, optimizers, given[0], rate, given[1])
        if max(tensor_deviation(own[name], theirs[name]) for name in own) <= limits.ROUNDED_CONSTANT:
            return _one_clips(who, other, clip, limit, len(sets))
    return None


def _one_clips(who: str, other: str, clip: str, limit: float, updates: int, besides: str = "") -> Explanation:
    """That one side alone clips, found by experiment. besides: what else is to say of it."""
    does, *ways = (text.format(limit) for text in CLIPPED[clip])
    told = dict(zip(("Keras", "torch"), ways, strict=True))
    text = f"clipping: {who} {does}, and {other} does not so{besides}"
    fix = f"in {other}: {told[other]}; or no clipping in {who}"
    evidence = f"by experiment: given gradients that are clipped so, {other}'s optimizer makes the same {updates} updates"
    return Explanation("setting:clipping", text, "confirmed", fix, evidence)


def _clipping(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, rate: Rate
) -> Explanation | None:
    """That one side alone clips gradients by their common norm; None where that does not make all updates the same."""
    norms = [math.sqrt(sum(float(np.square(value).sum()) for value in each.values())) for each in sets]
    for who, other in _SIDES:

        def made(shares: Sequence[float], who: str = who) -> tuple[Arrays, Arrays]:
            whole = sets[: len(shares)]
            clipped = [
                {name: share * value for name, value in each.items()}
                for share, each in zip(shares, whole, strict=True)
            ]
            # What one side clips by itself the other is given clipped.
            return moves(
                bench, optimizers, *((clipped, rate, whole) if who == "torch" else (whole, rate, clipped))
            )

        def apart(shares: Sequence[float]) -> float:
            own, theirs = made(shares)
            return max(tensor_deviation(own[name], theirs[name]) for name in own)

        moved, theirs = made([1.0] * (step + 1))
        name = max(moved, key=lambda each: float(np.abs(moved[each] - theirs[each]).max()))
        place = int(np.abs(moved[name] - theirs[name]).argmax())

        def off(share: float, name: str = name, place: int = place) -> float:
            one, another = made([*[1.0] * step, share])
            return float(one[name].flat[place] - another[name].flat[place])

        share = _root(off)
        if share is None:
            continue
        # What is added to the norm that is divided by, as torch's own function does.
        ways = [
            (float(f"{share * (norms[step] + epsilon):.6g}"), epsilon) for epsilon in COMMON["clip_epsilon"]
        ]
        holding = (
            limit
            for limit, epsilon in ways
            if apart([min(1.0, limit / (norm + epsilon)) for norm in norms]) <= limits.ROUNDED_CONSTANT
        )
        limit = next(holding, None)
        if limit is None:
            continue
        norm = f"; at step {step} that norm is {norms[step]:.6g}"
        return _one_clips(who, other, "clip_global_norm", limit, len(sets), norm)
    return None


def _clipping_otherwise(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, rate: Rate
) -> Explanation | None:
    """That both sides clip, by other norms: each makes the same updates of gradients that are clipped already as it does; None where that is
    not so.
    """
    sides = (
        (bench.keras, [mapped_alone(bench, each) for each in sets]),
        # Of each of two biases the norm is its own.
        (bench.torch, [as_torch_takes(bench, each) for each in sets]),
    )
    does = []
    for (side, given), optimizer in zip(sides, optimizers, strict=True):
        with exact_constants(bench):
            clip = _clip_of(side, optimizer, given, rate, numbers_held(bench))
        if clip is None:
            return None
        does.append(clip)
    (ours, theirs), rules = (each[:2] for each in does), does[0][2]
    if ours == theirs:
        return None
    # What is clipped as the first does is small enough for the second, where that is the smaller.
    own, other = moves(bench, optimizers, sets, rate, rules)
    alike = max(tensor_deviation(own[name], other[name]) for name in own) <= limits.ROUNDED_CONSTANT
    told = [CLIPPED[clip][0].format(limit) for clip, limit in (ours, theirs)]
    fixes = CLIPPED[ours[0]][2].format(ours[1]), CLIPPED[theirs[0]][1].format(theirs[1])
    return Explanation(
        "setting:clipping",
        f"clipping: Keras {told[0]}, and torch {told[1]}",
        "confirmed" if alike else "likely",
        f"in torch: {fixes[0]}; or in Keras: {fixes[1]}",
        f"by experiment: of gradients that are clipped so already each makes the same {len(sets)} updates"
        + (", and torch's of those clipped as Keras does are Keras's" if alike else ""),
    )


def _clip_of(
    side: ExternalWorker, optimizer: Target, given: Sequence[Arrays], rate: Rate, held: Sequence[float]
) -> tuple[str, float, list[Arrays]] | None:
    """How an optimizer clips, by one of some numbers, and gradients that are clipped so already; None where it does by none."""
    before, plain = side.read(), side.update(optimizer, given, rate=rate)

    def off(clipped: Sequence[Arrays]) -> float:
        made = side.update(optimizer, clipped, rate=rate)
        moves = ((np.subtract(each[name], before[name]) for each in (plain, made)) for name in given[0])
        return max(tensor_deviation(*pair) for pair in moves)

    for clip, limit in itertools.product(CLIPS, held):
        clipped = _clipped(given, clip, limit)
        if all(np.array_equal(a[n], b[n]) for a, b in zip(given, clipped, strict=True) for n in a):
            continue
        # A larger limit changes nothing either; one that is a little smaller does.
        if off(clipped) <= limits.FITS_SPEC_NORM < off(_clipped(given, clip, limit * _LESS)):
            return clip, limit, clipped
    return None


def _clipped(given: Sequence[Arrays], clip: str, limit: float) -> list[Arrays]:
    """Gradients as a rule clips them."""
    rule = parse_optimizer({"kind": "sgd", "learning_rate": 1.0, clip: limit, "clip_epsilon": 0.0})
    return [reference.clip(rule, each) for each in given]


def _decay(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, rate: Rate
) -> Explanation | None:
    """That one side alone adds a multiple of some weights to their gradients; None where that does not make all updates the same."""
    if step >= _STEPS:
        return None  # a decay acts from the first update on
    # A weight that is zero at first shows it some updates later.
    sides, sets = ("Keras", "torch"), sets[: step + _STEPS]
    before = bench.keras.read()
    seen = [moves(bench, optimizers, sets[:count], rate) for count in range(1, len(sets) + 1)]
    ours, theirs = seen[-1]
    names = [name for name in ours if tensor_deviation(ours[name], theirs[name]) > limits.LIVE_FLOAT64]
    if not names:
        return None
    name = max(names, key=lambda each: float(np.abs(ours[each] - theirs[each]).max()))
    place = int(np.abs(ours[name] - theirs[name]).argmax())
    for adding, who in enumerate(sides):

        def made(factor: float, adding: int = adding) -> tuple[Arrays, Arrays]:
            # Of the weights as they are before each update, where all is the same.
            moved = [{}, *(both[adding] for both in seen[:-1])]
            decayed = [
                each | {n: each[n] + factor * (before[n] + there.get(n, 0.0)) for n in names}
                for each, there in zip(sets, moved, strict=True)
            ]
            given = (decayed, sets) if adding else (sets, decayed)
            return moves(bench, optimizers, given[0], rate, given[1])

        def off(factor: float, name: str = name, place: int = place) -> float:
            one, another = made(factor)
            return float(one[name].flat[place] - another[name].flat[place])

        found = _root(off)
        if found is None:
            continue
        factor = float(f"{found:.6g}")
        own, another = made(factor)
        if max(tensor_deviation(own[n], another[n]) for n in own) > limits.ROUNDED_CONSTANT:
            continue
        other = sides[1 - adding]
        return Explanation(
            "setting:weight_decay",
            f"weight decay: {who} adds {factor:g} times the weight to the gradient of {listed(names, LISTED)}, and {other} does not",
            "confirmed",
            f"in {other}: do so for these, too; or leave them out in {who}, as one does with biases and scales of norms",
            f"by experiment: given gradients with that term, {other}'s optimizer makes the same {len(sets)} updates",
        )
    return None


def _root(off: Callable[[float], float]) -> float | None:
    """Where between 0 and 1 something is zero; None where nothing says that it is."""
    from scipy import optimize  # slow, and seldom needed

    if not off(0.0) * off(1.0) < 0:  # nor of what is no number
        return None
    return float(optimize.brentq(off, 0.0, 1.0, xtol=limits.SAME_NUMBER, maxiter=100))


def _common_factors(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, rate: Rate
) -> Explanation | None:
    """That torch's update of every tensor is Keras's times one number, at each of a few steps, or of some tensors always times one number and of
    the others Keras's; None where it is not.
    """
    factors: list[dict[str, float]] = []
    digits = 9
    made = moves(bench, optimizers, sets[:step], rate) if step else ({}, {})
    for count in range(step + 1, min(step + _STEPS, len(sets)) + 1):
        before, made = made, moves(bench, optimizers, sets[:count], rate)
        ours, theirs = (
            {name: value - was.get(name, 0.0) for name, value in now.items()}
            for now, was in zip(made, before, strict=True)
        )
        squares = {name: float(np.square(value).sum()) for name, value in ours.items()}
        moved = {name: value for name, value in ours.items() if squares[name]}
        found = {name: float((value * theirs[name]).sum()) / squares[name] for name, value in moved.items()}
        apart = [tensor_deviation(found.get(name, 1.0) * value, theirs[name]) for name, value in ours.items()]
        if factors and limits.LIVE_FLOAT64 < max(apart, default=0.0) <= limits.SCRIPT_FACTOR:
            digits = 3  # a decay is of the weights, which the update before has made others
        elif not found or not max(apart) <= limits.LIVE_FLOAT64:
            return None
        factors.append(found)
    # One update may be so whatever differs: Adam's first is nearly a sign.
    if len(factors) < 2:
        return None
    steps = f"at steps {step} to {step + len(factors) - 1}"
    left = (
        "nothing else differs" if digits > 3 else "little else differs (a decay of weights that differ since)"
    )
    evidence = f"by experiment: both were given the same gradients, and {left} in these updates"
    by_step = [{*_rounded(each.values(), digits)} for each in factors]
    confidence: Confidence = "confirmed" if digits > 3 else "likely"
    if all(len(each) == 1 for each in by_step):
        told = ", ".join(f"{factor:.6g}" for (factor,) in by_step)
        text = f"torch's updates of all tensors are those of Keras times one number: {told} {steps}"
        fix = "compare what both optimizers multiply by: learning rate, schedule, bias corrections; and whether the step counts from 0 or from 1"
        return Explanation("updates:factor", text, confidence, fix, evidence)
    always = {name: {*_rounded((each.get(name, 1.0) for each in factors), digits)} for name in factors[0]}
    off = {name: min(each) for name, each in always.items() if each != {1.0}}
    if any(len(each) > 1 for each in always.values()) or len({*off.values()}) > 1 or not off:
        return None
    text = f"torch's updates of {listed(off, LISTED)} are {min(off.values()):.6g} times those of Keras {steps}, and all others are Keras's"
    fix = "compare the learning rates of the groups of parameters, and which parameters are in which"
    return Explanation("updates:group", text, confidence, fix, evidence)


def _code(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, rate: Rate
) -> Explanation | None:
    """A small edit of a class of the user's with which torch makes the same updates; None where there is none."""
    info = bench.outlines[1].optimizer
    if info is None or not info.code or step:
        return None  # what begins later an edit may put off further
    few = sets[:_STEPS]
    before = bench.keras.read()
    # In other sizes, and for longer: what differs may be put off here, too.
    several = few, [scaled(each, number + 1) for number, each in enumerate([*few] * _LONGER)]
    # A training may have fewer steps.
    held = [rate[n % len(rate)] for n in range(len(several[1]))] if isinstance(rate, Sequence) else rate
    with exact_constants(bench):
        due = [bench.keras.update(optimizers[0], list(each), rate=held) for each in several]

    def apart(edit: CodeEdit) -> float:
        worst = 0.0
        for given, ours in zip(several, due, strict=True):
            try:
                with made(bench, [edit]):
                    found = updated_by_torch(bench, optimizers[1], given, held)
            except ExternalModelError:
                return math.inf
            own, theirs = beyond_rounding(before, ours, found, given)
            worst = max(worst, *(tensor_deviation(own[name], theirs[name]) for name in own))
            if worst > limits.LIVE_FLOAT64:
                break
        return worst

    fitting = fitting_edit(bench, info.code, apart, others=("rest",))
    if fitting is None:
        return None
    counts = " and ".join(str(len(each)) for each in several)
    evidence = (
        f"by experiment: with it torch's optimizer makes the same {counts} updates, of two sets of gradients"
    )
    return fitting[0].explanation(True, evidence, ())


def _rounded(factors: Iterable[float], digits: int) -> list[float]:
    return [float(f"{factor:.{digits}g}") for factor in factors]
