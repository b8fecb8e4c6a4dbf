"""Signatures of the update: slots and weights, from the clipped gradient."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain import step_reference
from parity.common.diagnosis.explain.signatures.base import (
    Case,
    Match,
    Tensors,
    farthest,
    named_ratio,
    once,
    ratio_of,
)
from parity.common.diagnosis.explain.spec_variants import neighbours, rounded_fields, said
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array, Trace
from parity.common.spec.optimizers import OptimizerBase


@once
def _due(case: Case, replica: int) -> dict[str, Array]:
    """By the formulas, from what this replica was given."""
    return step_reference.updated(case, replica)


def _watched(case: Case, due: Mapping[str, Array]) -> list[str]:
    """Names of what the optimizer makes, but for zero-gradient directions."""
    return [n for n in due if n in case.made.replicas[0] and not case.is_zero_gradient(n)]


def _left(case: Case, replica: int, expected: Tensors) -> float:
    """How far what a replica made is from some new state, of all tensors; weights by their change."""
    if not _due(case, 0).keys() <= expected.keys():
        return float("inf")  # another optimizer, without some of the slots
    return _left_of(case, replica, expected)


def _left_of(case: Case, replica: int, expected: Tensors) -> float:
    """The same of those tensors that are there."""
    made: Tensors = case.made.replicas[replica]
    worst = 0.0
    for name in _watched(case, expected):
        own, other = np.asarray(made[name], np.float64), expected[name]
        far = tensor_deviation(other, own)
        before = made.get(f"before{name.removeprefix('after')}")
        if before is not None and name.startswith("after/parameters/") and far:
            change = np.abs(other - before).max(initial=0.0)
            moved = np.abs(own - before).max(initial=0.0)
            scale = max(change, moved)
            apart = np.abs(own - other).max(initial=0.0)
            # A weight holds its change only to its own last places.
            rounding = limits.ULPS_OF_TERMS * np.finfo(np.float64).eps * np.abs(own).max(initial=0.0)
            far = float(apart / scale) if scale and apart > rounding else 0.0
        worst = max(worst, far)
    return worst


@once
def _replicas(case: Case) -> list[int]:
    """Of the suspect, those that the update of is wrong."""
    return [r for r in range(len(case.made.replicas)) if _left(case, r, _due(case, r)) > case.allowed]


def _explained(case: Case, expected: Callable[[int], Mapping[str, Array]]) -> tuple[float, float] | None:
    """(before, after) where a formula gives the new state of all replicas that are wrong."""
    wrong = _replicas(case)
    if not wrong:
        return None
    after = max(_left(case, r, expected(r)) for r in wrong)
    if not after <= case.allowed:
        return None
    return max(_left(case, r, _due(case, r)) for r in wrong), after


def stale(case: Case) -> Match | None:
    """A replica's weights, or some of them, are still those before the step."""
    kept: dict[int, list[str]] = {}
    for replica in _replicas(case):
        tensors, due = case.made.replicas[replica], _due(case, replica)
        still = []
        for name in _watched(case, due):
            before = tensors.get(f"before{name.removeprefix('after')}")
            if before is None or not name.startswith("after/parameters/"):
                continue
            if np.array_equal(tensors[name], before) and not np.array_equal(due[name], before):
                still.append(name.removeprefix("after/parameters/"))
        if not still:
            return None
        kept[replica] = still
    if not kept:
        return None
    replicas = ", ".join(map(str, kept))
    far = max(_left(case, r, _due(case, r)) for r in kept)
    tried = f"after the step replicas {replicas} hold, bit for bit, the weights that they began it with"
    return Match({"replicas": replicas, "names": _some(next(iter(kept.values())))}, far, 0.0, tried)


def _some(names: list[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def other_setting(case: Case) -> tuple[str, Match] | None:
    """(field, match): the update is that of the same optimizer with one field changed."""
    optimizer = case.spec.optimizer
    other = "coupled" if optimizer.weight_decay_mode == "decoupled" else "decoupled"
    # Also where the class allows one mode only.
    turned = optimizer.model_copy(update={"weight_decay_mode": other})
    for field, value, changed in [("weight_decay_mode", other, turned), *neighbours(optimizer)]:
        if field.startswith("clip") or (field == "weight_decay_mode" and not optimizer.weight_decay):
            continue
        found = _with(case, changed, field, value)
        if found is not None:
            return field, found
    return _rules_of_others(case) or _fitted_setting(case)


def _with(case: Case, optimizer: OptimizerBase, field: str, value: Any) -> Match | None:
    """The other optimizer's update, with the scalars that were given or with those that are its own."""
    given = step_reference.case_scalars(case)
    own_scalars = reference.step_scalars(optimizer, case.step or 0, given["learning_rate"])
    for scalars in [given] if own_scalars == given else [given, own_scalars]:
        if not own_scalars.keys() <= scalars.keys():
            continue
        other = functools.partial(step_reference.updated, case, optimizer=optimizer, scalars=scalars)
        if not _screened(case, other):
            continue
        explained = _explained(case, other)
        if explained is not None:
            own = said(getattr(case.spec.optimizer, field))
            kind = case.spec.optimizer.kind
            tried = f"NumPy's {kind} with {field} {said(value)} gives the new state, with {own} not"
            facts = {"field": field, "value": said(value), "own": own, "where": "optimizer"}
            return Match(facts, *explained, tried)
    return None


def _screened(case: Case, other: Callable[..., Mapping[str, Array]]) -> bool:
    """Whether an update is as made for the finding's own parameter; large nets have many more."""
    name = case.name.removeprefix("after/parameters/")
    if name.startswith("after/slots/"):
        name = name.removeprefix("after/slots/").partition("/")[2]
    replica = (_replicas(case) or [0])[0]
    return _left_of(case, replica, other(replica=replica, only=name)) <= case.allowed


def _rules_of_others(case: Case) -> tuple[str, Match] | None:
    """Rules that no setting names, but that someone may take for one."""
    spec: Any = case.spec.optimizer
    scalars = step_reference.case_scalars(case)
    rate = scalars.get("learning_rate", 0.0)
    rules: list[tuple[str, str, Any]] = []
    if spec.kind == "sgd" and spec.nesterov:
        # The look-ahead takes the new velocity as it is.
        rules.append(
            ("nesterov", "a momentum factor short", lambda d, g, s: d + _velocity(s, rate) - rate * g)
        )
    if spec.kind in ("adam", "adamw"):
        correction, step_size = scalars["second_correction"], scalars["step_size"]
        for words, root in (
            ("inside the root", lambda v: np.sqrt(v + spec.epsilon) / correction),
            ("inside the corrected root", lambda v: np.sqrt(v / correction**2 + spec.epsilon)),
        ):

            def rule(d: Array, g: Array, s: Mapping[str, Array], root: Any = root) -> Array:
                return d - step_size * s["first_moment"] / root(s["second_moment"])  # type: ignore[no-any-return]

            rules.append(("epsilon_place", words, rule))
    for field, words, new_weight in rules:
        explained = _explained(case, functools.partial(_by_rule, case, new_weight))
        if explained is not None:
            own = said(getattr(spec, field))
            facts = {"field": field, "value": words, "own": own, "where": "optimizer"}
            return field, Match(facts, *explained, f"{spec.kind} with {field} {words} gives the new state")
    return None


def _velocity(slots: Mapping[str, Array], rate: float) -> Array:
    return slots["momentum_velocity"] if "momentum_velocity" in slots else -rate * slots["momentum_buffer"]


def _by_rule(case: Case, new_weight: Any, replica: int) -> dict[str, Array]:
    """The due slots, and weights by another rule: new_weight(decayed weight, gradient, new slots)."""
    due, made = _due(case, replica), case.made.replicas[replica]
    optimizer, rate = case.spec.optimizer, step_reference.case_scalars(case)["learning_rate"]
    found = dict(due)
    for name in due:
        if not name.startswith("after/parameters/"):
            continue
        short = name.removeprefix("after/parameters/")
        weight = np.asarray(made[f"before/parameters/{short}"], np.float64)
        rule = optimizer.rule_for(short, weight.shape)
        decay = float(rule.weight_decay or 0.0)
        decoupled = decay and rule.weight_decay_mode == "decoupled"
        decayed = weight - rate * decay * weight if decoupled else weight
        gradient = np.asarray(case.given.replicas[0][f"clipped/{short}"], np.float64)
        gradient = gradient + decay * weight if decay and not decoupled else gradient
        found[name] = new_weight(decayed, gradient, step_reference.slots_of(due, short, "after"))
    return found


def _fitted_setting(case: Case) -> tuple[str, Match] | None:
    """A number of any value, read off what was made."""
    for field, value in _fits(case):
        rounded = float(f"{value:.6g}")
        for tried in (rounded, value):
            changed = case.spec.optimizer.model_copy(update={field: tried})
            found = _with(case, changed, field, tried)
            if found is not None:
                return field, found
    return None


def _fits(case: Case) -> Iterator[tuple[str, float]]:
    """Fields and the values that the slots, or the change of the weights, tell of."""
    replica = (_replicas(case) or [0])[0]
    tensors: Tensors = case.made.replicas[replica]
    optimizer = case.spec.optimizer
    slots = {"first_moment": "beta_1", "second_moment": "beta_2", "momentum_buffer": "momentum"}
    slots |= {"momentum_velocity": "momentum"}
    if not hasattr(optimizer, "beta_2"):
        slots |= {"second_moment": "rho", "first_moment": "rho"}
    for slot, field in slots.items():
        names = [n for n in case.given.names if n.startswith(f"before/slots/{slot}/")]
        old = [np.asarray(tensors[n], np.float64) for n in names]
        if not names or not hasattr(optimizer, field) or not any(map(np.any, old)):
            continue
        # new = b old + rest, and the due one has the spec's b.
        due = [np.asarray(_due(case, replica)[f"after{n.removeprefix('before')}"]) for n in names]
        new = [np.asarray(tensors[f"after{n.removeprefix('before')}"], np.float64) for n in names]
        keeps = field in ("beta_1", "beta_2", "rho")
        own = float(getattr(optimizer, field))
        fresh = [(d - own * o) / ((1 - own) if keeps else 1.0) for d, o in zip(due, old, strict=True)]
        towards = [o - f if keeps else o for o, f in zip(old, fresh, strict=True)]
        moved = [n - f for n, f in zip(new, fresh, strict=True)]
        found = ratio_of(towards, moved)
        if found is not None:
            yield field, found
    if getattr(optimizer, "weight_decay", 0.0):
        names = [n for n in tensors if n.startswith("before/parameters/")]
        rate = step_reference.case_scalars(case).get("learning_rate", 0.0)
        names = [n for n in names if optimizer.decays(n.removeprefix("before/parameters/"), tensors[n].shape)]
        weights = [np.asarray(tensors[n], np.float64) for n in names]
        apart = [_due(case, replica)[f"after{n[6:]}"] - tensors[f"after{n[6:]}"] for n in names]
        found = ratio_of(weights, apart)
        if found is not None and rate:
            yield "weight_decay", float(optimizer.weight_decay or 0.0) + found / rate


def rounded_setting(case: Case) -> Match | None:
    """The update is that of the same optimizer with a number that has been through float32."""
    for field, value, changed in rounded_fields(case.spec.optimizer):
        explained = _explained(case, functools.partial(step_reference.updated, case, optimizer=changed))
        if explained is not None:
            tried = f"NumPy's {case.spec.optimizer.kind} with {field} {value:g} rounded to float32 gives the new state"
            return Match({"what": f"the optimizer's {field}"}, *explained, tried)
    scalars = step_reference.case_scalars(case)
    for name, number in scalars.items():
        narrow = {**scalars, name: float(np.float32(number))}
        explained = _explained(case, functools.partial(step_reference.updated, case, scalars=narrow))
        if explained is not None and narrow != scalars:
            tried = (
                f"NumPy's {case.spec.optimizer.kind} with the {name} rounded to float32 gives the new state"
            )
            return Match({"what": f"the {name}"}, *explained, tried)
    return None


def uncorrected(case: Case) -> Match | None:
    """The update is that of Adam without bias correction."""
    given = step_reference.case_scalars(case)
    plain = without_correction(given)
    if plain == given:
        return None
    explained = _explained(case, lambda replica: step_reference.updated(case, replica, None, plain))
    if explained is None:
        return None
    return Match({}, *explained, "NumPy's update without bias correction gives the new state")


def without_correction(scalars: Mapping[str, float]) -> dict[str, float]:
    """The scalars of a step as if no moment were corrected."""
    plain = {name: 1.0 for name in ("first_correction", "second_correction") if name in scalars}
    if "step_size" in scalars:
        plain["step_size"] = scalars["learning_rate"]
    return {**scalars, **plain}


def scaled(case: Case) -> Match | None:
    """All weights change by one multiple of what is due, and the slots are in order."""
    ratios = []
    for replica in _replicas(case):
        tensors: Tensors = case.made.replicas[replica]
        due = _due(case, replica)
        names = [n for n in _watched(case, due) if n.startswith("after/parameters/")]
        before = {n: np.asarray(tensors[f"before{n.removeprefix('after')}"], np.float64) for n in names}
        changes = [due[n] - before[n] for n in names]
        ratio = ratio_of(changes, [tensors[n] - before[n] for n in names])
        if ratio is None:
            return None
        ratios.append(ratio)
        expected = {**due, **{n: before[n] + ratio * (due[n] - before[n]) for n in names}}
        if _left(case, replica, expected) > case.allowed:
            return None
    if not ratios or max(ratios) - min(ratios) > limits.FITS_READ_OFF * max(map(abs, ratios)):
        return None
    _, words = named_ratio(case, ratios[0])
    tried = f"all weights change by {ratios[0]:.9g} times what is due"
    far = max(_left(case, r, _due(case, r)) for r in _replicas(case))
    return Match({"factor": words}, far, 0.0, tried)


# Gradients that are not this step's.


def _implied(case: Case) -> dict[str, Array]:
    """What the weights were updated with, less the clipped gradient."""
    replica = (_replicas(case) or [0])[0]
    tensors = case.made.replicas[replica]
    found = step_reference.implied_gradients(case, tensors, tensors, step_reference.case_scalars(case))
    return {n: v for n, v in found.items() if n not in case.zero_gradients}


def _off_its_gradient(case: Case) -> float | None:
    """How far what the weights were updated with is from the clipped gradient; None where it is that."""
    implied, given = _implied(case), _given_gradients(case.given)
    far = farthest({n: given[n] for n in implied}, implied)
    return far if far > case.allowed * 100 else None


def accumulated(case: Case) -> Match | None:
    """The optimizer is given this step's gradient and those of the steps before."""
    far = _off_its_gradient(case)
    if far is None:
        return None
    for first, second, before, now in _in_a_row(case):
        # What is kept has grown by the first's gradient when the second comes.
        kept, grown = _taken(case, *before), _taken(case, *now, less_own=True)
        left = farthest(kept, grown) if kept.keys() == grown.keys() else float("inf")
        if left <= max(limits.FITS_READ_OFF, case.allowed):
            tried = f"what the optimizer took at step {second} is that of step {first} and its own gradient, to {left:.0e}"
            return Match({"step": str(first)}, far, left, tried)
    return None


def one_step_late(case: Case) -> Match | None:
    """The optimizer is given the gradient of the step before."""
    far = _off_its_gradient(case)
    if far is None:
        return None
    for first, second, before, now in _in_a_row(case):
        taken, due = _taken(case, *now), _given_gradients(before[1])
        left = farthest({n: due[n] for n in taken}, taken) if taken else float("inf")
        if left <= max(limits.FITS_READ_OFF, case.allowed):
            tried = f"the gradient that the optimizer took at step {second} is that of step {first}, to {left:.0e}"
            return Match({"step": str(first)}, far, left, tried)
    return None


Taken = tuple[Trace, Trace]


def _in_a_row(case: Case) -> Iterator[tuple[int, int, Taken, Taken]]:
    """(step, step taken next, (made, given) of both), of which the finding's step is one."""
    if case.step is None:
        return
    steps = {step: (made, given) for step, given, made in case.traced()}
    steps[case.step] = (case.made, case.given)
    order = sorted(steps)
    for first, second in itertools.pairwise(order):
        if case.step in (first, second):
            yield first, second, steps[first], steps[second]


def _given_gradients(given: Trace) -> dict[str, Array]:
    named = given.replicas[0].items()
    return {n.partition("/")[2]: np.asarray(v, np.float64) for n, v in named if n.startswith("clipped/")}


def _taken(case: Case, made: Trace, given: Trace, less_own: bool = False) -> dict[str, Array]:
    """The gradient that the optimizer took in a step, or that less the step's own."""
    tensors: Tensors = made.replicas[0]
    named = given.replicas[0].items()
    scalars = {n.partition("/")[2]: float(v) for n, v in named if n.startswith("scalar/")}
    implied, own = step_reference.implied_gradients(case, tensors, tensors, scalars), _given_gradients(given)
    return {n: v - own[n] if less_own else v for n, v in implied.items() if n not in case.zero_gradients}


def moments_averaged(case: Case) -> Match | None:
    """The moments are means over the replicas of what each made of its own gradient."""
    if case.replicas == 1:
        return None
    sources = []
    if step_reference.has_local_gradients(case):
        sources += [
            (local, factor)
            for local in [step_reference.local_gradients(case)]
            for factor in (1.0, case.replicas)
        ]
    whole = {
        n.partition("/")[2]: np.asarray(v, np.float64)
        for n, v in case.given.replicas[0].items()
        if n.startswith("clipped/")
    }
    sources.append(([whole] * case.replicas, 1.0 / case.replicas))
    for local, factor in sources:

        def mean_of(replica: int, local: Any = local, factor: float = factor) -> dict[str, Array]:
            each = [
                step_reference.updated(case, replica, None, None, {n: factor * v for n, v in own.items()})
                for own in local
            ]
            slots = {n: np.mean([new[n] for new in each], axis=0) for n in each[0] if "/slots/" in n}
            return {**_due(case, replica), **slots}

        wrong = [r for r in _replicas(case) if _slots_left(case, r, _due(case, r)) > case.allowed]
        if wrong and all(_slots_left(case, r, mean_of(r)) <= case.allowed for r in wrong):
            far = max(_left(case, r, _due(case, r)) for r in wrong)
            tried = "the slots are the means over the replicas of what each makes of its own gradient"
            return Match({}, far, 0.0, tried)
    return None


def _slots_left(case: Case, replica: int, expected: Mapping[str, Array]) -> float:
    made = case.made.replicas[replica]
    names = [n for n in _watched(case, expected) if "/slots/" in n]
    if not names:
        return float("inf")
    return max(tensor_deviation(expected[n], np.asarray(made[n], np.float64)) for n in names)


def not_skipped(case: Case) -> Match | None:
    """A step with gradients that are not finite was an update, or one with finite ones was none."""
    flags = [bool(np.all(state["updated"])) for state in case.made.replicas if "updated" in state]
    due = bool(np.all(case.given.replicas[0].get("updated", True)))
    if case.spec.loss_scale is None or not flags or all(flag == due for flag in flags):
        return None
    wrong = ", ".join(str(r) for r, flag in enumerate(flags) if flag != due)
    tried = f"replicas {wrong} {'skipped' if due else 'did not skip'} the step"
    return Match({"replicas": wrong}, 1.0, 0.0, tried)


def leaks_float32(case: Case) -> Match | None:
    """The new state deviates by about the rounding of float32."""
    wrong = _replicas(case)
    far = max((_left(case, r, _due(case, r)) for r in wrong), default=0.0)
    if not limits.FITS < far < limits.FLOAT32_LARGEST:
        return None
    tried = f"the deviation, {far:.0e}, is that of a float32 number in a float64 path"
    return Match({"what": "the optimizer"}, far, far, tried)


def replicas_apart(case: Case) -> Match | None:
    """The replicas have different weights or slots after the step, though they began it with the same."""
    states = case.made.replicas
    if len(states) == 1:
        return None
    apart = [r for r in range(1, len(states)) if not _same_after(case, states[0], states[r])]
    if not apart:
        return None
    replicas = ", ".join(map(str, apart))
    far = max((_left(case, r, _due(case, r)) for r in apart), default=1.0)
    return Match(
        {"replicas": replicas}, far, far, f"after the step replicas {replicas} differ from replica 0"
    )


def _same_after(case: Case, one: Tensors, other: Tensors) -> bool:
    names = [
        n for n in one if n.startswith(("after/parameters/", "after/slots/")) and not case.is_zero_gradient(n)
    ]
    return all(tensor_deviation(np.asarray(one[n]), np.asarray(other[n])) <= case.allowed for n in names)
