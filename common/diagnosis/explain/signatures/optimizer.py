"""Signatures of the update: slots and weights, from the clipped gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain import step_reference
from parity.common.diagnosis.explain.case import Case, TracedStep, once
from parity.common.diagnosis.explain.signatures.base import (
    Match,
    Tensors,
    below,
    farthest,
    float32_match,
    is_claimed,
    named_ratio,
    ratio_of,
    signature_of,
)
from parity.common.diagnosis.explain.spec_variants import neighbours, rounded_fields, said, setting
from parity.common.diagnosis.explain.step_reference import scalars_of
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.spec.optimizers import OptimizerBase

_AFTER = "after/parameters/"


@once
def _due(case: Case, replica: int) -> dict[str, Array]:
    """By the formulas, from what this replica was given."""
    return step_reference.updated(case, replica)


def _watched(case: Case, due: Tensors, head: str = "") -> list[str]:
    """Names of what the optimizer makes, but for zero-gradient directions."""
    made = case.made.replicas[0]
    return [n for n in due if n in made and n.startswith(head) and not case.is_zero_gradient(n)]


def _before(name: str) -> str:
    return f"before{name.removeprefix('after')}"


def _left(case: Case, replica: int, expected: Tensors, some: bool = False) -> float:
    """How far what a replica made is from some new state, of all tensors or of some; weights by their change."""
    if not some and not _due(case, 0).keys() <= expected.keys():
        return float("inf")  # another optimizer, without some of the slots
    made: Tensors = case.made.replicas[replica]
    worst = 0.0
    for name in _watched(case, expected):
        own, other, before = np.asarray(made[name], np.float64), expected[name], made.get(_before(name))
        far = tensor_deviation(other, own)
        if before is not None and name.startswith(_AFTER) and far:
            scale = max(np.abs(new - before).max(initial=0.0) for new in (other, own))
            apart = np.abs(own - other).max(initial=0.0)
            # A weight holds its change only to its own last places.
            rounding = limits.ULPS_OF_TERMS * np.finfo(np.float64).eps * np.abs(own).max(initial=0.0)
            far = float(apart / scale) if scale and apart > rounding else 0.0
        worst = max(worst, far)
    return worst


@once
def _wrong(case: Case) -> dict[int, float]:
    """Of the suspect's replicas, those that the update of is wrong, and how far it is off."""
    left = {r: _left(case, r, _due(case, r)) for r in range(len(case.made.replicas))}
    return {r: far for r, far in left.items() if far > case.allowed}


def _first_wrong(case: Case) -> int:
    return next(iter(_wrong(case)), 0)


# What is tried, in words; facts; the new state of a replica of a case; a free number that was fitted.
Expected = Callable[[Case, int], Tensors]
Other = tuple[str, dict[str, str], Expected, float | None]


@signature_of
def update_signature(case: Case, others: Callable[[Case], Iterable[Other]]) -> Iterator[Match]:
    """Other updates that give the new state of all replicas that are wrong."""
    wrong = _wrong(case)
    for tried, facts, expected, value in others(case):
        if not is_claimed(case, facts):
            continue
        replicas = wrong if case.claim is None else range(len(case.made.replicas))
        after = max((_left(case, r, expected(case, r)) for r in replicas), default=float("inf"))
        if after <= case.allowed or case.claim is not None:
            yield Match(facts, max(wrong.values(), default=0.0), after, tried, value=value)


def stale(case: Case) -> Match | None:
    """A replica's weights, or some of them, are still those before the step, and another replica's are not."""
    kept = _kept(case)
    everywhere = set.intersection(*map(set, kept.values())) if len(kept) == case.replicas else set()
    if not kept or not all(kept.values()) or everywhere:
        return None
    replicas = ", ".join(map(str, kept))
    tried = f"after the step replicas {replicas} hold, bit for bit, the weights that they began it with"
    facts = {"replicas": replicas, "names": listed(next(iter(kept.values())), 2)}
    return Match(facts, max(_wrong(case).values()), 0.0, tried)


def not_updated(case: Case) -> Match | None:
    """Weights are on every replica still those before the step."""
    kept = list(_kept(case).values())
    if len(kept) < case.replicas or not kept[0] or any(names != kept[0] for names in kept):
        return None
    what = "all weights" if len(kept[0]) == len(_watched(case, _due(case, 0), _AFTER)) else listed(kept[0], 2)
    tried = "after the step every replica holds, bit for bit, the weights that it began it with"
    return Match({"names": what}, max(_wrong(case).values()), 0.0, tried)


@once
def _kept(case: Case) -> dict[int, list[str]]:
    """Of each replica whose update is wrong the weights that are still those before the step."""
    kept: dict[int, list[str]] = {}
    for replica in _wrong(case):
        tensors, due = case.made.replicas[replica], _due(case, replica)
        kept[replica] = [
            name.removeprefix(_AFTER)
            for name in _watched(case, due, _AFTER)
            if np.array_equal(tensors[name], tensors[_before(name)])
            and not np.array_equal(due[name], tensors[_before(name)])
        ]
    return kept


# Settings.


@update_signature
def other_setting(case: Case) -> Iterator[Other]:
    """The update is that of the same optimizer with one field changed."""
    optimizer = case.spec.optimizer
    other = "coupled" if optimizer.weight_decay_mode == "decoupled" else "decoupled"
    # Also where the class allows one mode only.
    turned = optimizer.model_copy(update={"weight_decay_mode": other})
    for field, value, changed in [("weight_decay_mode", other, turned), *neighbours(optimizer)]:
        if not field.startswith("clip") and (field != "weight_decay_mode" or optimizer.weight_decay):
            yield from _with(case, changed, field, value)
    yield from _rules_of_others(case)
    for field, value in _fits(case):
        # Rounded, since people round, or as it is.
        for number in dict.fromkeys((float(f"{value:.6g}"), value)):
            yield from _with(case, optimizer.model_copy(update={field: number}), field, number, number)


def _with(
    case: Case, optimizer: OptimizerBase, field: str, value: Any, fitted: float | None = None
) -> Iterator[Other]:
    """The other optimizer's update, with the scalars that were given or with those that are its own."""
    kind, facts = case.spec.optimizer.kind, setting(case.spec.optimizer, field, value, "optimizer")
    tried = f"NumPy's {kind} with {field} {said(value)} gives the new state, with {facts['own']} not"

    def own_scalars(at: Case) -> dict[str, float]:
        given = scalars_of(at.given)
        return reference.step_scalars(optimizer, at.step or 0, given["learning_rate"])

    def with_given(at: Case, replica: int, only: str | None = None) -> dict[str, Array]:
        return step_reference.updated(at, replica, optimizer, only=only)

    def with_own(at: Case, replica: int, only: str | None = None) -> dict[str, Array]:
        return step_reference.updated(at, replica, optimizer, own_scalars(at), only=only)

    given, own = scalars_of(case.given), own_scalars(case)
    if own.keys() <= given.keys() and _screened(case, with_given):
        yield tried, facts, with_given, fitted
    if own != given and _screened(case, with_own):
        yield tried, {**facts, "words": "and the scalars that go with it"}, with_own, fitted


def _screened(case: Case, other: Callable[..., Tensors]) -> bool:
    """Whether an update is as made for the finding's own parameter; large nets have many more."""
    name = case.finding.name.removeprefix(_AFTER)
    if name.startswith("after/slots/"):
        name = name.removeprefix("after/slots/").partition("/")[2]
    replica = _first_wrong(case)
    return (
        case.claim is not None or _left(case, replica, other(case, replica, name), some=True) <= case.allowed
    )


def _rules_of_others(case: Case) -> Iterator[Other]:
    """Rules that no setting names, but that someone may take for one."""
    spec: Any = case.spec.optimizer

    def other(field: str, words: str, new_weight: Rule) -> Other:
        tried = f"{spec.kind} with {field} {words} gives the new state"
        return tried, setting(spec, field, words, "optimizer"), partial(_by_rule, new_weight), None

    if spec.kind == "sgd" and spec.nesterov:
        # The look-ahead takes the new velocity as it is.
        def short(d: Array, g: Array, s: Tensors, scalars: Mapping[str, float]) -> Any:
            rate = scalars.get("learning_rate", 0.0)
            return d + _velocity(s, rate) - rate * g

        yield other("nesterov", "a momentum factor short", short)
    if spec.kind in ("adam", "adamw"):

        def inside(d: Array, _: Array, s: Tensors, scalars: Mapping[str, float]) -> Any:
            root = np.sqrt(s["second_moment"] + spec.epsilon) / scalars["second_correction"]
            return d - scalars["step_size"] * s["first_moment"] / root

        def inside_corrected(d: Array, _: Array, s: Tensors, scalars: Mapping[str, float]) -> Any:
            root = np.sqrt(s["second_moment"] / scalars["second_correction"] ** 2 + spec.epsilon)
            return d - scalars["step_size"] * s["first_moment"] / root

        yield other("epsilon_place", "inside the root", inside)
        yield other("epsilon_place", "inside the corrected root", inside_corrected)


def _velocity(slots: Tensors, rate: float) -> Array:
    return slots["momentum_velocity"] if "momentum_velocity" in slots else -rate * slots["momentum_buffer"]


# A new weight, of the decayed one, the gradient, the new slots and the scalars of the step.
Rule = Callable[[Array, Array, Tensors, Mapping[str, float]], Any]


def _by_rule(new_weight: Rule, case: Case, replica: int) -> dict[str, Array]:
    """The due slots, and weights by another rule."""
    found, optimizer, scalars = dict(_due(case, replica)), case.spec.optimizer, scalars_of(case.given)
    rate, clipped = scalars["learning_rate"], below(case.given, "clipped/")
    for name, weight in below(case.made.replicas[replica], "before/parameters/").items():
        if f"{_AFTER}{name}" not in found:
            continue
        rule, gradient = optimizer.rule_for(name, weight.shape), clipped[name]
        decay = float(rule.weight_decay or 0.0)
        decayed = weight
        if decay and rule.weight_decay_mode == "decoupled":
            decayed = weight - rate * decay * weight
        elif decay:
            gradient = gradient + decay * weight
        slots = step_reference.slots_of(_due(case, replica), name, "after")
        found[f"{_AFTER}{name}"] = new_weight(decayed, gradient, slots, scalars)
    return found


def _fits(case: Case) -> Iterator[tuple[str, float]]:
    """Fields and the values that the slots, or the change of the weights, tell of; of a claim that alone."""
    if case.claim is not None:
        if case.claim.value is not None and "field" in case.claim.facts:
            yield case.claim.facts["field"], case.claim.value
        return
    replica = _first_wrong(case)
    tensors: Tensors = case.made.replicas[replica]
    optimizer, after = case.spec.optimizer, _due(case, replica)
    slots = _decayed(optimizer)
    for slot, field in slots.items():
        old = below(tensors, f"before/slots/{slot}/")
        if not any(map(np.any, old.values())):
            continue
        # new = b old + rest, and the due one has the spec's b.
        new = below(tensors, f"after/slots/{slot}/")
        keeps, own = field != "momentum", float(getattr(optimizer, field))
        towards, moved = [], []
        for name, o in old.items():
            fresh = (after[f"after/slots/{slot}/{name}"] - own * o) / ((1 - own) if keeps else 1.0)
            towards.append(o - fresh if keeps else o)
            moved.append(new[name] - fresh)
        found = ratio_of(towards, moved)
        if found is not None:
            yield field, found
    rate, decay = scalars_of(case.given).get("learning_rate", 0.0), getattr(optimizer, "weight_decay", 0.0)
    if decay:
        weights = below(tensors, "before/parameters/")
        weights = {n: w for n, w in weights.items() if optimizer.decays(n, w.shape)}
        apart = [after[f"{_AFTER}{n}"] - tensors[f"{_AFTER}{n}"] for n in weights]
        found = ratio_of(weights.values(), apart)
        if found is not None and rate:
            yield "weight_decay", float(decay) + found / rate


@update_signature
def decay_by_another_rate(case: Case) -> Iterator[Other]:
    """Decoupled decay goes by another factor than the step's learning rate."""
    optimizer = case.spec.optimizer
    if not optimizer.weight_decay or optimizer.weight_decay_mode != "decoupled":
        return
    peak = float(optimizer.learning_rate or 0.0)
    for words, rate in {f"the peak rate, {peak:g}": peak, "no rate at all": 1.0}.items():
        tried = f"NumPy's {optimizer.kind} whose weights decay by {words} gives the new state"
        yield tried, {"words": words}, partial(_with_decay_by, rate), None


def _with_decay_by(rate: float, case: Case, replica: int) -> dict[str, Array]:
    """The due state, but with weights that decay by `rate` times the weight decay."""
    found, optimizer = dict(_due(case, replica)), case.spec.optimizer
    off = (scalars_of(case.given)["learning_rate"] - rate) * float(optimizer.weight_decay or 0.0)
    for name, weight in below(case.made.replicas[replica], "before/parameters/").items():
        if f"{_AFTER}{name}" in found and optimizer.decays(name, weight.shape):
            found[f"{_AFTER}{name}"] = found[f"{_AFTER}{name}"] + off * weight
    return found


def _decayed(optimizer: Any) -> dict[str, str]:
    """The slots that keep a share of themselves, and the field that says which."""
    slots = {"first_moment": "beta_1", "second_moment": "beta_2", "momentum_buffer": "momentum"}
    slots |= {"momentum_velocity": "momentum"}
    if not hasattr(optimizer, "beta_2"):
        slots |= {"second_moment": "rho", "first_moment": "rho"}
    return {slot: field for slot, field in slots.items() if hasattr(optimizer, field)}


@update_signature
def term_scaled(case: Case) -> Iterator[Other]:
    """Of a slot, new = share old + rest, one of the two terms is multiplied by a number.

    What the weights become of it is not judged.
    """
    tensors, due = below(case.made.replicas[_first_wrong(case)], ""), _due(case, _first_wrong(case))
    for slot, field in _decayed(case.spec.optimizer).items():
        names = _watched(case, due, f"after/slots/{slot}/")
        kept = [getattr(case.spec.optimizer, field) * tensors[_before(n)] for n in names]
        rest = [due[n] - old for n, old in zip(names, kept, strict=True)]
        terms = {"what it was before": (kept, rest), "what is new": (rest, kept)}
        for term, (own, other) in terms.items():
            fitted = ratio_of(own, [tensors[n] - o for n, o in zip(names, other, strict=True)])
            if fitted is None or abs(fitted - 1) <= limits.FITS_READ_OFF:
                continue
            # A term that is left out comes out as rounding.
            times = case.fitted(fitted if abs(fitted) > limits.FITS_READ_OFF else 0.0)
            facts = {"what": slot, "words": term, "factor": f"{times:.9g}"}
            expected = partial(_with_term_scaled, slot, field, term == "what is new", times)
            yield f"{slot} has {term} {times:.9g} times", facts, expected, times


def _with_term_scaled(
    slot: str, field: str, is_new: bool, times: float, case: Case, replica: int
) -> dict[str, Array]:
    """The due slots but for this one, and the weights as made."""
    made, due = case.made.replicas[replica], _due(case, replica)
    expected = {n: made[n] if n.startswith(_AFTER) else value for n, value in due.items()}
    for name in _watched(case, due, f"after/slots/{slot}/"):
        kept = getattr(case.spec.optimizer, field) * np.asarray(made[_before(name)], np.float64)
        rest = due[name] - kept
        expected[name] = kept + times * rest if is_new else times * kept + rest
    return expected


@update_signature
def rounded_setting(case: Case) -> Iterator[Other]:
    """The update is that of the same optimizer with a number that has been through float32."""
    tried = f"NumPy's {case.spec.optimizer.kind} with {{}} rounded to float32 gives the new state"
    for field, value, changed in rounded_fields(case.spec.optimizer):
        what = {"what": f"the optimizer's {field}"}
        yield tried.format(f"{field} {value:g}"), what, partial(_updated, optimizer=changed), None
    for name, number in scalars_of(case.given).items():
        if float(np.float32(number)) != number or case.claim is not None:
            narrow = partial(_with_scalars, partial(_narrow, name))
            yield tried.format(f"the {name}"), {"what": f"the {name}"}, narrow, None


def _narrow(name: str, scalars: Mapping[str, float]) -> dict[str, float]:
    return {**scalars, name: float(np.float32(scalars[name]))}


def _updated(case: Case, replica: int, optimizer: OptimizerBase) -> dict[str, Array]:
    return step_reference.updated(case, replica, optimizer)


def _with_scalars(
    change: Callable[[Mapping[str, float]], Mapping[str, float]], case: Case, replica: int
) -> dict[str, Array]:
    return step_reference.updated(case, replica, scalars=change(scalars_of(case.given)))


@update_signature
def uncorrected(case: Case) -> Iterator[Other]:
    """The update is that of Adam without bias correction."""
    given = scalars_of(case.given)
    if without_correction(given) != given:
        tried = "NumPy's update without bias correction gives the new state"
        yield tried, {}, partial(_with_scalars, without_correction), None


def without_correction(scalars: Mapping[str, float]) -> dict[str, float]:
    """The scalars of a step as if no moment were corrected."""
    plain = {name: 1.0 for name in ("first_correction", "second_correction") if name in scalars}
    if "step_size" in scalars:
        plain["step_size"] = scalars["learning_rate"]
    return {**scalars, **plain}


@update_signature
def scaled(case: Case) -> Iterator[Other]:
    """All weights change by one multiple of what is due, and the slots are in order."""
    replica = _first_wrong(case)
    tensors, due = below(case.made.replicas[replica], ""), _due(case, replica)
    names = _watched(case, due, _AFTER)
    changes = [due[n] - tensors[_before(n)] for n in names]
    fitted = ratio_of(changes, [tensors[n] - tensors[_before(n)] for n in names])
    if fitted is None:
        return
    ratio = case.fitted(fitted)
    _, words, free = named_ratio(case, ratio)

    def changed(at: Case, replica: int) -> Tensors:
        due, made = _due(at, replica), at.made.replicas[replica]
        weights = {
            n: made[_before(n)] + ratio * (due[n] - made[_before(n)]) for n in _watched(at, due, _AFTER)
        }
        return {**due, **weights}

    tried = f"all weights change by {ratio:.9g} times what is due"
    yield tried, {"factor": words}, changed, free


# Gradients that are not this step's.


def accumulated(case: Case) -> Match | None:
    """The optimizer is given this step's gradient and those of the steps before."""

    def kept_and_grown(before: TracedStep, now: TracedStep) -> tuple[Tensors, Tensors]:
        # What is kept has grown by the first's gradient when the second comes.
        clipped = below(now.given, "clipped/")
        return _taken(case, before), {n: value - clipped[n] for n, value in _taken(case, now).items()}

    return _earlier_match(case, kept_and_grown, "what the optimizer", " and its own gradient")


def one_step_late(case: Case) -> Match | None:
    """The optimizer is given the gradient of the step before."""

    def late_and_taken(before: TracedStep, now: TracedStep) -> tuple[Tensors, Tensors]:
        clipped, taken = below(before.given, "clipped/"), _taken(case, now)
        return {n: clipped[n] for n in taken}, taken

    return _earlier_match(case, late_and_taken, "the gradient that the optimizer")


def _taken(case: Case, step: TracedStep, replica: int = 0) -> dict[str, Array]:
    """The gradient that a replica's optimizer took at a step."""
    implied = step_reference.implied_gradients(case, step.made.replicas[replica], scalars_of(step.given))
    return {n: value for n, value in implied.items() if n not in case.zero_gradients}


def _earlier_match(
    case: Case,
    alike: Callable[[TracedStep, TracedStep], tuple[Tensors, Tensors]],
    what: str,
    more: str = "",
) -> Match | None:
    """A match with an earlier step, where the weights were not updated with the clipped gradient.

    alike: of two steps in a row, gradients that are the same if the earlier one's is in what the later one took.
    """
    taken, due = _taken(case, case.steps[0], _first_wrong(case)), below(case.given, "clipped/")
    far = farthest({n: due[n] for n in taken}, taken)
    for before, now in case.in_a_row() if far > case.allowed * 100 else ():
        one, other = alike(before, now)
        left = farthest(one, other) if one and one.keys() == other.keys() else float("inf")
        if left <= max(limits.FITS_READ_OFF, case.allowed):
            tried = f"{what} took at step {now.step} is that of step {before.step}{more}, to {left:.0e}"
            return Match({"step": str(before.step)}, far, left, tried)
    return None


def moments_averaged(case: Case) -> Match | None:
    """The moments are means over the replicas of what each made of its own gradient."""
    if case.replicas == 1:
        return None
    sources = [([below(case.given, "clipped/")] * case.replicas, 1.0 / case.replicas)]
    local = step_reference.local_gradients(case.steps[0])
    if local is not None:
        sources = [(local, 1.0), (local, float(case.replicas)), *sources]
    wrong = {r: far for r, far in _wrong(case).items() if _slots_left(case, r, _due(case, r)) > case.allowed}
    for gradients, factor in sources:
        shares = [{n: factor * v for n, v in own.items()} for own in gradients]
        each = {r: [step_reference.updated(case, r, gradients=own) for own in shares] for r in wrong}
        means = {r: {n: np.mean([new[n] for new in of], axis=0) for n in of[0]} for r, of in each.items()}
        if wrong and all(_slots_left(case, r, mean) <= case.allowed for r, mean in means.items()):
            tried = "the slots are the means over the replicas of what each makes of its own gradient"
            return Match({}, max(wrong.values()), 0.0, tried)
    return None


def _slots_left(case: Case, replica: int, expected: Tensors) -> float:
    made = case.made.replicas[replica]
    names = _watched(case, expected, "after/slots/")
    return max((tensor_deviation(expected[n], made[n]) for n in names), default=float("inf"))


def not_skipped(case: Case) -> Match | None:
    """A step with gradients that are not finite was an update, or one with finite ones was none."""
    flags = [bool(np.all(state["updated"])) for state in case.made.replicas if "updated" in state]
    due = bool(np.all(case.given.get("updated", True)))
    wrong = ", ".join(str(r) for r, flag in enumerate(flags) if flag != due)
    if case.spec.loss_scale is None or not wrong:
        return None
    tried = f"replicas {wrong} {'skipped' if due else 'did not skip'} the step"
    return Match({"replicas": wrong}, 1.0, 0.0, tried)


def leaks_float32(case: Case) -> Match | None:
    """The new state deviates by about the rounding of float32."""
    return float32_match(case, max(_wrong(case).values(), default=0.0), "the optimizer")


def replicas_apart(case: Case) -> Match | None:
    """The replicas have different weights or slots after the step, though they began it with the same."""
    zero, *others = case.made.replicas
    names = [*_watched(case, zero, _AFTER), *_watched(case, zero, "after/slots/")]
    apart = [
        replica
        for replica, other in enumerate(others, 1)
        if any(tensor_deviation(zero[n], other[n]) > case.allowed for n in names)
    ]
    if not apart:
        return None
    replicas = ", ".join(map(str, apart))
    far = max(_left(case, r, _due(case, r)) for r in apart)
    tried = f"after the step replicas {replicas} differ from replica 0"
    return Match({"replicas": replicas}, far, far, tried)
