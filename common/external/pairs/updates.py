"""The users' own optimizers, given the same gradients: what one makes of them that the other does not, and why.

Three updates by different gradients, so that slots and bias corrections are seen at work. The formulas of
`parity.common.reference` say which settings make the difference.
"""

from __future__ import annotations

import functools
import glob
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from parity.common import reference
from parity.common.base.errors import ExternalModelError
from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.lint.lint import Difference, optimizer_differences
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.explain import by_setting
from parity.common.external.pairs.given_gradients import (
    LISTED,
    beyond_rounding,
    mapped_alone,
    moved_by,
    numbers_held,
    scaled,
    updated_by_torch,
    why_updates_part,
)
from parity.common.external.pairs.observed_optimizers import CLIPPED, CLIPS, observed, with_fields
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.outline import OptimizerInfo
from parity.common.spec.external.target import Target
from parity.common.spec.optimizers import AdamW, OptimizerBase, parse_optimizer

Slots = dict[str, dict[str, Array]]
# By name of Keras's tensors the factors of their absolute values and of their squares in its loss.
Penalties = dict[str, tuple[float, float]]
_DECAYS = ("weight_decay", "weight_decay_mode", "decay_mask")
_UPDATES = 3  # that show slots and bias corrections at work


@dataclass(frozen=True)
class Updates:
    """What the optimizers made of the same gradients.

    tensors: of every tensor, the change after three updates. findings: why, one each. notes: what else was found. rule: what a training
    goes by, Keras's optimizer as a spec, or where `stands_in` gradient descent that moves the weights as far.
    """

    tensors: tuple[TensorComparison, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    rule: OptimizerBase | None = None
    stands_in: bool = False


def settled_updates(
    bench: Bench, optimizers: tuple[Target, Target], suspects: Sequence[Difference]
) -> Updates:
    """Give both optimizers the same gradients, of the models' losses; an L2 penalty of Keras's is what torch's weight decay is.

    `bench.decayed` is set where that makes up for the penalty, whatever else differs.

    Args:
        bench: both models, with equal weights.
        optimizers: Keras's and torch's.
        suspects: differences of their settings.

    Raises:
        ExternalModelError: an optimizer cannot be made or used.
    """
    reference = bench.reference(training=True)
    penalties = penalties_of(bench) if bench.penalty else None
    if penalties is not None:
        updates = compare_updates(bench, optimizers, reference.gradients, suspects, penalties)
        if all(one.explanation is not None for one in updates.findings):
            so = "but for what else differs in the optimizers " if updates.findings else ""
            bench.decayed = (
                f"Keras's model adds {reference.penalty:.3g} to its mean loss, which torch's optimizer makes up for: with the"
                f" gradients of that penalty three updates agree {so}(L2(c) is a coupled weight decay of 2c); the loss that"
                " Keras reports is higher by the penalty, and longer training was not compared"
            )
            return updates
    return compare_updates(bench, optimizers, reference.gradients, suspects)


def constrained_apart(bench: Bench, updates: Updates | None) -> dict[str, list[str]]:
    """Keras's tensors that it constrains after each update, and torch's optimizer does not so, by their constraint.

    Args:
        bench: both models.
        updates: of the user's own optimizers; None where none are given.
    """
    agreed = {one.name for one in updates.tensors if one.agrees} if updates is not None else set()
    found: dict[str, list[str]] = {}
    for info in bench.outlines[0].tensors:
        if info.constraint and info.trainable and f"update/{info.name}" not in agreed:
            found.setdefault(info.constraint, []).append(info.name)
    return found


def update_findings(bench: Bench, updates: Updates | None) -> list[Finding]:
    """Each constraint of Keras's that torch does not have, and of the updates what that leaves unexplained."""
    constraints = list(_unshared_constraints(bench, updates))
    known = {tensor.name for finding in constraints for tensor in finding.tensors}
    rest = [
        finding
        for finding in (updates.findings if updates is not None else ())
        if finding.explanation is not None or {tensor.name for tensor in finding.tensors} - known
    ]
    return constraints + rest


def _unshared_constraints(bench: Bench, updates: Updates | None) -> Iterator[Finding]:
    for constraint, names in constrained_apart(bench, updates).items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        text = f"Keras brings {names[0]}{more} to {constraint} after each update, and torch does nothing of the kind"
        fix = (
            "do the same after each step in torch, in an optimizer of your own that --torch-optimizer names, or take the"
            " constraint out of Keras"
        )
        evidence = "read from the live models: the constraint of Keras's variable; torch is given none"
        why = Explanation("constraint", text, "confirmed", fix, evidence)
        tensors = tuple(
            TensorComparison(f"update/{name}", None, math.inf, limits.LIVE_FLOAT64) for name in names
        )
        yield Finding(0, "update", tensors[0].name, (), tensors, (), explanation=why)


def compare_updates(
    bench: Bench,
    optimizers: tuple[Target, Target],
    gradients: Arrays,
    suspects: Sequence[Difference],
    penalties: Penalties | None = None,
) -> Updates:
    """Give both optimizers the same gradients.

    Args:
        bench: both models, with equal weights.
        optimizers: Keras's and torch's.
        gradients: canonical ones.
        suspects: differences of their settings.
        penalties: whose gradients Keras's optimizer is given too.

    Raises:
        ExternalModelError: an optimizer cannot be made or used.
    """
    before = mapped_alone(bench, bench.keras.read())
    named = moved_by(bench, gradients, before)
    sets = [scaled(named, number) for number in range(_UPDATES)]
    rate = max(bench.rates) if bench.rates else None
    with exact_constants(bench):
        ours = bench.keras.update(optimizers[0], sets if penalties is None else [], rate=rate)
        for number in range(len(sets) if penalties is not None else 0):
            # Of the weights as they are before each update.
            sets = [*sets[:number], _penalized(sets[number], ours, penalties or {}), *sets[number + 1 :]]
            ours = bench.keras.update(optimizers[0], sets[: number + 1], rate=rate)
    rounded = bench.keras.update(optimizers[0], sets, rate=rate)
    theirs = updated_by_torch(bench, optimizers[1], [scaled(named, n) for n in range(_UPDATES)], rate)
    moved, other = beyond_rounding(before, ours, theirs, sets)
    tensors = tuple(
        TensorComparison(
            f"update/{name}", None, tensor_deviation(moved[name], other[name]), limits.LIVE_FLOAT64
        )
        for name in named
    )
    off = [one for one in tensors if not one.agrees]
    notes: list[str] = []
    leak = max(tensor_deviation(np.subtract(rounded[name], before[name]), moved[name]) for name in named)
    if leak > limits.LIVE_FLOAT64:
        notes.append(
            f"Keras's optimizer takes constants through float32: in float64 its updates are off by {leak:.2g}, whatever"
            " its settings; compared without that"
        )
    if not off:
        followed = _rule(bench, before, moved, sets)
        if followed is not None:
            return Updates(tensors, (), tuple(notes), followed)
        rate = _length(moved) / (_length({n: np.sum([each[n] for each in sets], 0) for n in moved}) or 1.0)
        descent = parse_optimizer({"kind": "sgd", "learning_rate": rate}).resolve("keras")
        return Updates(tensors, (), tuple(notes), descent, stands_in=True)
    causes: list[Explanation] = []
    specs = [_as_adam(spec_of(bench, side)) for side in (0, 1)]
    if specs[0] is not None and specs[1] is not None:
        plain = [scaled(named, number) for number in range(_UPDATES)]
        decaying = None if penalties is None else _decaying(specs[0], specs[1], penalties, before)
        seen = (sets if decaying is None else plain, plain)
        numbers = numbers_held(bench)
        rules = [
            observed(spec, numbers, functools.partial(_changes, before), changed, gradients)
            for spec, changed, gradients in zip(
                (decaying or specs[0], specs[1]), (moved, other), seen, strict=True
            )
        ]
        if rules[0] is not None and rules[1] is not None:
            formula = _Formula(rules[0], rules[1], before, seen)
            own = any(info is not None and info.base for info in (each.optimizer for each in bench.outlines))
            if decaying is not None:
                suspects = _of_penalty(suspects, rules[0].weight_decay or 0.0, rules[1].weight_decay or 0.0)
            causes = formula.causes(_differences(rules[0], rules[1]) if own else suspects)
            notes += formula.notes
    if not causes and penalties is None and (why := why_updates_part(bench, optimizers, sets, 0, rate)):
        causes = [why]
    finding = Finding(0, "update", off[0].name, (), tuple(off), ())
    findings = tuple(replace(finding, explanation=cause) for cause in causes) or (finding,)
    return Updates(tensors, findings, tuple(notes))


def _rule(bench: Bench, before: Arrays, moved: Arrays, sets: Sequence[Arrays]) -> OptimizerBase | None:
    """Keras's optimizer as a spec; of a class of its own by what it does; None where no spec does that."""
    rule, info = spec_of(bench, 0), bench.outlines[0].optimizer
    if rule is None or info is None or info.kind:
        return rule
    return observed(rule, numbers_held(bench), functools.partial(_changes, before), moved, sets)


def _length(arrays: Arrays) -> float:
    return math.sqrt(sum(float(np.square(array).sum()) for array in arrays.values()))


def penalties_of(bench: Bench) -> Penalties | None:
    """Of Keras's tensors the factors of L1 and L2; None where these do not make up the penalty."""
    state = bench.keras.read()
    found = {info.name: info.penalty for info in bench.outlines[0].tensors if info.penalty and info.trainable}
    values = ((l1, l2, state[name]) for name, (l1, l2) in found.items())
    total = sum(l1 * float(np.abs(w).sum()) + l2 * float(np.square(w).sum()) for l1, l2, w in values)
    return found if abs(total - bench.penalty) <= limits.LIVE_FLOAT64 * bench.penalty else None


def _penalized(gradients: Arrays, state: Arrays, penalties: Penalties) -> Arrays:
    """Gradients of the mean loss with those of penalties at a state."""
    return gradients | {
        name: gradients[name] + l1 * np.sign(state[name]) + 2 * l2 * state[name]
        for name, (l1, l2) in penalties.items()
        if name in gradients
    }


def _differences(ours: OptimizerBase, theirs: OptimizerBase) -> list[Difference]:
    """Of two formulas, as lint tells differences of settings."""
    fields = [spec.to_dict() for spec in (ours, theirs)]
    plain = ({n: v for n, v in data.items() if n not in ("kind", "decay_mask", "ema")} for data in fields)
    infos = [
        OptimizerInfo(kind=data["kind"], type="", settings=v) for data, v in zip(fields, plain, strict=True)
    ]
    return list(optimizer_differences(infos[0], infos[1], []))


def spec_of(bench: Bench, side: int) -> OptimizerBase | None:
    """The user's optimizer of Keras (side 0) or torch (1) as a spec, tensors by Keras's names; None where ours have none.

    Of a class of one's own it is what its settings say, which need not be what it does.
    """
    info = bench.outlines[side].optimizer
    kind = "" if info is None else info.kind or info.base
    if info is None or not kind:
        return None
    undecayed = set(info.undecayed)
    if side:
        pairs = (pair for pair in bench.mapping.tensors if undecayed & set(pair.torch))
        undecayed = {name for pair in pairs for name in pair.keras}
    data: dict[str, object] = {"kind": kind}
    try:
        known = type(parse_optimizer({"kind": kind, "learning_rate": 1.0})).model_fields
        data |= {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in info.settings.items()
            if name in known and name not in ("ema", "decay_mask") and value is not None
        }
        if undecayed:
            data["decay_mask"] = sorted(glob.escape(name) for name in undecayed)
        return parse_optimizer(data).resolve("keras")
    except (ValidationError, ExternalModelError):
        return None


def _as_adam(spec: OptimizerBase | None) -> OptimizerBase | None:
    """AdamW is Adam with another mode of its weight decay."""
    return parse_optimizer({**spec.to_dict(), "kind": "adam"}) if isinstance(spec, AdamW) else spec


def _decaying(
    ours: OptimizerBase, theirs: OptimizerBase, penalties: Penalties, state: Arrays
) -> OptimizerBase | None:
    """Keras's optimizer with the L2 penalty as a coupled weight decay; None where it is none, or torch's has none."""
    coupled = not ours.weight_decay and theirs.weight_decay and theirs.weight_decay_mode == "coupled"
    factors = set(penalties.values())
    if not coupled or len(factors) > 1:
        return None
    ((l1, l2),) = factors
    decay = 2 * l2
    if l1:
        return None
    spared = sorted(glob.escape(name) for name in state.keys() - penalties.keys())
    mask = {"decay_mask": spared} if spared else {}
    return with_fields(ours, {"weight_decay": decay, "weight_decay_mode": "coupled", **mask})


def _of_penalty(suspects: Sequence[Difference], due: float, decay: float) -> list[Difference]:
    """Differences of settings where an L2 penalty of Keras's is its weight decay."""
    penalty = f"{due:g} (an L2 penalty of {due / 2:g})"
    return [
        suspect
        if suspect.setting != "weight_decay"
        else suspect.model_copy(
            update={
                "keras_value": penalty,
                "torch_value": decay,
                "fix_torch": f"weight_decay={due:g}",
                "fix_keras": f"L2({decay / 2:g})",
            }
        )
        for suspect in suspects
    ]


class _Formula:
    """Both optimizers as formulas, and between them those with some settings of one and some of the other.

    sets: by update the gradients that Keras's is given, and those that torch's is: where the former have those of a
    penalty, torch's weight decay stands for it.
    """

    def __init__(
        self,
        ours: OptimizerBase,
        theirs: OptimizerBase,
        before: Arrays,
        sets: tuple[Sequence[Arrays], Sequence[Arrays]],
    ) -> None:
        self.ours, self.theirs, self.before, self.sets = ours, theirs, before, sets
        self.notes: list[str] = []
        # An optimizer without weight decay has any mode of it.
        penalized = any(
            not np.array_equal(a[name], b[name]) for a, b in zip(*sets, strict=True) for name in a
        )
        self._alike = {name for name in _DECAYS if penalized}

    def causes(self, suspects: Sequence[Difference]) -> list[Explanation]:
        """The settings without which the two would still differ; none where all together do not explain it."""
        if type(self.ours) is not type(self.theirs):
            return []
        named = {suspect.setting: suspect for suspect in suspects}
        apart = {
            n for n in type(self.theirs).model_fields if getattr(self.ours, n) != getattr(self.theirs, n)
        }
        # A penalty may stand for what a setting lacks.
        fields = {n for n in apart if (n in named or n == "decay_mask") and n not in self._alike}
        # Of several ways to clip there is but one at a time.
        clips = apart & {*CLIPS, "clip_epsilon"}
        units = [{name} for name in sorted(fields - clips)] + ([clips] if clips else [])
        due, found = self._due(), []
        for unit in units:
            without = self._mixed((fields | clips) - unit)
            deviation = None if without is None else _off(due, self._changes(without))
            if deviation is None:
                continue
            (setting, *others) = unit
            suspect = None if others else named.get(setting)
            if deviation > limits.LIVE_FLOAT64:
                evidence = (
                    f"by formula: with Keras's value of all other settings the updates still differ by {deviation:.2g},"
                    " and with this one too they are equal"
                )
                if unit == clips and suspect is None:
                    found.append(self._clipping(evidence))
                elif suspect is None or setting == "decay_mask":
                    found.append(self._masks(evidence))
                else:
                    found.append(by_setting(suspect, "confirmed", evidence))
            elif suspect is not None:
                self.notes.append(f"{suspect.text}: of no consequence for these updates")
        every = self._mixed(fields | clips)
        explained = every is not None and _off(due, self._changes(every)) <= limits.LIVE_FLOAT64
        return found if explained else []

    def _clipping(self, evidence: str) -> Explanation:
        """Explain that gradients are clipped in other ways."""
        keras, torch = _clipped(self.ours), _clipped(self.theirs)
        if keras == torch and self.ours.clip_epsilon != self.theirs.clip_epsilon:
            epsilon = self.theirs.clip_epsilon or 0.0
            text = f"clipping: Keras {keras[0]}, and torch by that norm plus {epsilon:g} (row 17)"
            fix = (
                f"leave it, it is a share of {epsilon:g} of the norm; or in torch by hand: each gradient times the limit / norm, where the norm"
                " is above the limit"
            )
            return Explanation("setting:clip_epsilon", text, "confirmed", fix, evidence)
        fix = f"in Keras: {torch[1]}; or in torch: {keras[2]}"
        text = f"clipping: Keras {keras[0]}, torch {torch[0]}"
        return Explanation("setting:clipping", text, "confirmed", fix, evidence)

    def _masks(self, evidence: str) -> Explanation:
        """Explain that other tensors decay."""
        sides = {"Keras": self.ours, "torch": self.theirs}
        decaying = {
            side: {name for name, value in self.before.items() if spec.decays(name, value.shape)}
            for side, spec in sides.items()
        }
        told = [
            f"of {listed(sorted(decaying[side] - decaying[other]), LISTED)} in {side} only"
            for side, other in (("Keras", "torch"), ("torch", "Keras"))
            if decaying[side] - decaying[other]
        ]
        text = f"weight decay is {' and '.join(told)}"
        fix = (
            "in torch: param_groups with weight_decay=0 of what does not decay in Keras, and of nothing else"
        )
        return Explanation("setting:decay_mask", text, "confirmed", fix, evidence)

    def _mixed(self, of_keras: Iterable[str]) -> OptimizerBase | None:
        """Torch's with some settings of Keras's; None where there is no such optimizer."""
        return with_fields(self.theirs, {name: getattr(self.ours, name) for name in of_keras})

    def _due(self) -> Arrays:
        return _changes(self.before, self.ours, self.sets[0])

    def _changes(self, theirs: OptimizerBase) -> Arrays:
        return _changes(self.before, theirs, self.sets[1])


def _changes(
    before: Arrays, spec: OptimizerBase, sets: Sequence[Arrays], names: Collection[str] | None = None
) -> Arrays:
    """What a formula makes of the weights that have gradients, or of some of these."""
    weights = {n: np.array(before[n], np.float64) for n in (sets[0] if names is None else names)}
    slots = slots_of(spec, weights)
    for step, gradients in enumerate(sets):
        weights, slots = updated(spec, step, weights, gradients, slots)
    return {name: np.subtract(value, before[name]) for name, value in weights.items()}


def _clipped(spec: OptimizerBase) -> tuple[str, ...]:
    """What an optimizer clips, and how Keras and torch are told to do the same."""
    for name, texts in CLIPPED.items():
        limit = getattr(spec, name)
        if limit is not None:
            return tuple(text.format(limit) for text in texts)
    return (
        "clips nothing",
        "no clipnorm, global_clipnorm or clipvalue",
        "no clip_grad_norm_ or clip_grad_value_",
    )


def _off(due: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    return max((tensor_deviation(due[name], own[name]) for name in due), default=0.0)


# The formulas of `parity.common.reference`, on all tensors of a model at once.


def slots_of(optimizer: OptimizerBase, state: Arrays) -> Slots:
    """The slots of every tensor before the first step."""
    return {
        name: {
            slot: np.full(initial.shape, initial.value)
            for slot, initial in reference.initial_slots(optimizer, name, value.shape).items()
        }
        for name, value in state.items()
    }


def updated(
    optimizer: OptimizerBase,
    step: int,
    state: Arrays,
    gradients: Arrays,
    slots: Slots,
    rate: float | None = None,
) -> tuple[Arrays, Slots]:
    """State and slots after a step; tensors without a gradient as they are.

    Args:
        optimizer: resolved.
        step: its number, from 0.
        state: float64, by canonical name.
        gradients: of the mean loss, likewise; not clipped.
        slots: as `slots_of`, or as a step before has left them.
        rate: the learning rate of the step; None: the optimizer's.
    """
    scalars = reference.step_scalars(
        optimizer, step, (optimizer.learning_rate or 0.0) if rate is None else rate
    )
    clipped = reference.clip(optimizer, {name: gradients[name] for name in state if name in gradients})
    found, kept = dict(state), dict(slots)
    for name, gradient in clipped.items():
        found[name], kept[name] = reference.update(
            optimizer, scalars, state[name], gradient, slots[name], name
        )
    return found, kept
