"""Each cause explains what it does, and a near miss of it does not; tried on steps that NumPy takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.common import reference
from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.diagnosis.explain import causes
from parity.common.diagnosis.explain.case import Case, TracedStep
from parity.common.diagnosis.explain.causes import CATALOGUE, explain, formula
from parity.common.diagnosis.explain.signatures.base import Match, low_type_of, rounded
from parity.common.diagnosis.explain.spec_variants import neighbours
from parity.common.diagnosis.isolate.comparison import StepComparer
from parity.common.diagnosis.isolate.findings import Grouping, over_steps
from parity.common.diagnosis.observe.replays import injections_of, state_before
from parity.common.record.trace import Trace
from parity.common.reference.schedules import StepScalars
from parity.common.spec import Placement, TrainSpec, override
from parity.common.state.canonical import State
from parity_tests.faults.registry import Diagnosed, trials
from parity_tests.helpers.numpy_trainer import LAYERS, SPEC, Faults, placement, traced

Fault = Callable[[Any, int], Any]
UNEVEN = 4  # the last step of the first epoch: 4 samples, of which 3 replicas have 2, 2 and none
STEPS = (0, 1, UNEVEN, 5)
RATES = StepScalars(SPEC)


@dataclass
class Planted:
    """A step on some replicas with something wrong, and what is to be said of it.

    faults: of a step, what each place makes instead. cause: None where no known cause fits.
    """

    cause: str | None
    faults: Callable[[int], Faults]
    step: int = 0
    replicas: int = 2
    confidence: str = "confirmed"
    spec: TrainSpec = SPEC
    others: tuple[int, ...] = ()

    def right(self, step: int, replicas: int) -> dict[str, Fault]:
        """What the NumPy trainer leaves to the run: the samples of the spec, and its learning rate."""
        plan, ids = BatchPlan.of(self.spec, placement(replicas)), {}
        own = self.faults(step).get("ids", lambda ids, _: ids) if replicas == self.replicas else None
        for replica in range(replicas):
            due = plan.local_ids(step, replica)
            ids[replica] = due if own is None else own(due, replica)
        rows = {replica: digits(self.spec).rows(own, plan.epoch(step)) for replica, own in ids.items()}
        return {
            "inputs": lambda _, replica: rows[replica][0],
            "targets": lambda _, replica: rows[replica][1],
            "scalar/learning_rate": lambda *_: np.array(StepScalars(self.spec).rate(step)),
        }

    def pair(self, step: int, injected: Sequence[State] | None = None) -> tuple[Trace, list[State], Trace]:
        """The reference's trace of a step, what the replicas are fed, and what they make of it."""
        ref = traced(step, 1, faults=self.right(step, 1), spec=self.spec)
        if self.spec.optimizer.clip_global_norm is not None:
            whole = {n: ref.replicas[0][f"gradient/{n}"] for n in PARAMETERS}
            due = reference.clip(self.spec.optimizer, whole)
            clipped = {f"clipped/{n}": lambda _, r, n=n: due[n] for n in PARAMETERS}
            ref = traced(step, 1, faults={**self.right(step, 1), **clipped}, spec=self.spec)
        given = (
            injections_of(ref, BatchPlan.of(self.spec, placement(self.replicas)), step)
            if injected is None
            else injected
        )
        right = self.right(step, self.replicas)
        faults = {
            name: after(right[name], wrong) if name in right else wrong
            for name, wrong in {**right, **self.faults(step)}.items()
        }
        made = traced(step, self.replicas, given, faults, state_before(ref, step), self.spec)
        return ref, list(given), made

    def _traced(self, step: int) -> TracedStep:
        """Another step, with the first finding there."""
        ref, given, made = self.pair(step)
        seen = StepComparer(self.spec, ref, LAYERS).injected(given, made)
        found = over_steps(Grouping(self.spec, LAYERS).of_step(step, seen))
        ids = tuple(np.asarray(own["ids"]) for own in given)
        return TracedStep(step, ref, replace(made, injected_ids=ids), found[0] if found else None)

    def evidence(self) -> list[Case]:
        ref, fed, forced = self.pair(self.step)
        seen = StepComparer(self.spec, ref, LAYERS).injected(fed, forced)
        others = [self._traced(step) for step in self.others]
        found = over_steps(Grouping(self.spec, LAYERS).of_step(self.step, seen))
        return [
            Case(
                spec=self.spec,
                reference=placement(1),
                candidate=placement(self.replicas),
                step=self.step,
                ref=ref,
                injected=forced,
                injections=fed,
                as_trained=None,
                others=others,
                finding=finding,
                allowed=1e-12,
                layers=LAYERS,
                experiments=NumpyLab(self),  # type: ignore[arg-type]
            )
            for finding in found
        ]


class NumpyLab:
    """Experiments in NumPy: the step once more, with the same things wrong, fed something else."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted

    def corrected(self, step: int, injected: Sequence[State]) -> Trace:
        return self._planted.pair(step, injected)[2]

    def as_trained(self, step: int, placement: Placement, side: str) -> Trace:
        """Right, where the cause goes by the placement; else as wrong as ever."""
        del side
        constant = self._planted.cause == "scaled_by_constant"
        alone = (
            replace(self._planted, replicas=placement.replicas)
            if constant
            else Planted(None, lambda _: {}, replicas=1)
        )
        return alone.pair(step)[2]

    def trial(self, variants: Sequence[object], side: str = "") -> list[None]:
        del side
        return [None for _ in variants]


def after(right: Fault, wrong: Fault) -> Fault:
    return lambda value, replica: wrong(right(value, replica), replica)


@cache
def digits(spec: TrainSpec) -> Any:
    return sources.load_for(spec)[0]


PARAMETERS = ("dense_1/kernel", "dense_1/bias", "dense_2/kernel", "dense_2/bias")


def of_gradients(change: Fault) -> Callable[[int], Faults]:
    return lambda step: {f"gradient/{name}": change for name in PARAMETERS}


def own_gradients(make: Callable[[list[State], int, str, float], Any], *names: str) -> Callable[..., Any]:
    """Gradients made of the replicas' own ones: make(states, replica, name, count)."""

    def faults_of(planted: Planted) -> Callable[[int], Faults]:
        def faults(step: int) -> Faults:
            clean = Planted(None, lambda _: {}, step, planted.replicas, spec=planted.spec)
            _, _, made = clean.pair(step)
            count = float(made.replicas[0]["total/count"])
            states = list(made.replicas)
            return {
                f"gradient/{name}": lambda _, replica, name=name: make(states, replica, name, count)
                for name in names or PARAMETERS
            }

        return faults

    return faults_of


def share(states: list[State], replica: int, name: str) -> Any:
    return states[replica][f"local_gradient/{name}"]


def summed(states: list[State], name: str) -> Any:
    return np.sum([share(states, r, name) for r in range(len(states))], axis=0)


def planted(cause: str | None, make: Any, step: int = 0, replicas: int = 2, **more: Any) -> Planted:
    found = Planted(cause, lambda _: {}, step, replicas, **more)
    found.faults = make(found)
    return found


def norm_of(states: list[State], replica: int) -> float:
    return float(np.sqrt(sum(np.sum(share(states, replica, n) ** 2) for n in PARAMETERS)))


def clipped_share(states: list[State], replica: int, name: str, limit: float) -> Any:
    return share(states, replica, name) * min(1.0, limit / norm_of(states, replica))


def bfloat16(value: Any) -> Any:
    return rounded(value, 8)


LAST = "backward/dense_2"
REDUCTION = {
    "each its own": planted("gradients_not_summed", own_gradients(lambda s, r, n, c: 2 * share(s, r, n) / c)),
    "each its own, not doubled": planted(
        "gradients_not_summed", own_gradients(lambda s, r, n, c: share(s, r, n) / c), replicas=3
    ),
    "one not summed": planted(
        "parameter_not_reduced",
        own_gradients(lambda s, r, n, c: 2 * share(s, r, n) / c, "dense_2/bias"),
    ),
    "only the first": planted(
        "gradients_not_summed", own_gradients(lambda s, r, n, c: 2 * share(s, 0, n) / c)
    ),
    "averaged": Planted("divided_by_world_size", of_gradients(lambda g, _: g / 3), replicas=3),
    "summed": Planted("scaled_by_world_size", of_gradients(lambda g, _: g * 2)),
    "by a constant that is the number of replicas": Planted(
        "scaled_by_constant", of_gradients(lambda g, _: g * 2), others=(1,)
    ),
    "by a constant": Planted("scaled_by_constant", of_gradients(lambda g, _: g * 1.7), others=(1,)),
    "by a constant, at one step": Planted(
        "scaled_by_constant", of_gradients(lambda g, _: g * 1.7), confidence="likely"
    ),
    "by an odd constant": Planted(
        "scaled_by_constant",
        of_gradients(lambda g, _: g * 1.7345678),
        others=(1, UNEVEN),
        confidence="likely",
    ),
    "by another number each step": Planted(
        None, lambda step: of_gradients(lambda g, _: g * (1.7 + step))(step), others=(1,)
    ),
    "means of unequal shares": planted(
        "mean_of_means",
        own_gradients(
            lambda s, r, n, c: sum(
                share(s, k, n) / (3 * float(s[k]["count"])) for k in range(3) if float(s[k]["count"])
            )
        ),
        step=0,
        replicas=3,
    ),
    "clipped first": planted(
        "clipped_before_reduction",
        own_gradients(lambda s, r, n, c: sum(clipped_share(s, k, n, 3.0) for k in range(2)) / c),
    ),
    "in bfloat16": planted(
        "reduced_in_low_precision",
        own_gradients(lambda s, r, n, c: bfloat16(sum(bfloat16(share(s, k, n)) for k in range(2))) / c),
    ),
    "rounded after": planted(
        "rounded_gradients", own_gradients(lambda s, r, n, c: bfloat16(summed(s, n) / c))
    ),
    "in float32": planted(
        "reduced_in_low_precision",
        own_gradients(
            lambda s, r, n, c: sum(np.float32(share(s, k, n)).astype(np.float64) for k in range(2)) / c
        ),
    ),
    "a little off": planted(
        "float32_leak",
        own_gradients(
            lambda s, r, n, c: (
                summed(s, n)
                / c
                * (1 + 3e-8 * np.sin(np.arange(s[0][f"local_gradient/{n}"].size)).reshape(summed(s, n).shape))
            )
        ),
        confidence="likely",
    ),
    "noise": planted(
        None,
        own_gradients(
            lambda s, r, n, c: (
                summed(s, n) / c + 0.01 * np.random.default_rng(1).normal(size=summed(s, n).shape)
            )
        ),
    ),
    "never zeroed": Planted("gradients_accumulate", lambda step: {}, step=1, others=(0, UNEVEN)),
    "the loss times two": Planted("scaled_by_world_size", lambda _: {LAST: lambda g, r: 2 * g}),
    "the loss by its share": Planted(
        "mean_of_means",
        lambda _: {LAST: lambda g, r: g * (10 / (3 * max(len(g), 1)))},
        replicas=3,
    ),
    "the loss through bfloat16": Planted("rounded_gradients", lambda _: {LAST: lambda g, r: bfloat16(g)}),
    "the loss of other labels": Planted(None, lambda _: {LAST: lambda g, r: np.roll(g, 1, axis=1)}),
    "the total divided": Planted(
        "divided_by_world_size", lambda _: {"total/count": lambda n, r: n / 3}, replicas=3
    ),
    "own totals": Planted("totals_not_summed", lambda _: {"total/count": lambda n, r: n / 2}),
    "another loss reported": Planted(
        "recorded_differently", lambda _: {"total/loss_sum": lambda n, r: n * 1.01}
    ),
}


def _accumulated(step: int) -> Faults:
    """Steps 0, 1 and 4 taken one after the other, from gradients of zero."""
    counts = {s: float(_clean(s).replicas[0]["total/count"]) for s in (0, 1, UNEVEN)}
    kept = dict.fromkeys(PARAMETERS, 0.0)
    for earlier in (0, 1, UNEVEN):
        for name in PARAMETERS:
            kept[name] = kept[name] + summed(list(_clean(earlier).replicas), name)
        if earlier == step:
            break
    return {f"gradient/{n}": lambda g, r, n=n: kept[n] / counts[step] for n in PARAMETERS}


@cache
def _clean(step: int) -> Trace:
    return Planted(None, lambda _: {}, step).pair(step)[2]


REDUCTION["never zeroed"].faults = _accumulated


def clip_faults(
    change: Callable[[dict[str, Any]], dict[str, Any]], spec: TrainSpec
) -> Callable[[int], Faults]:
    def faults(step: int) -> Faults:
        _, _, made = Planted(None, lambda _: {}, step, spec=spec).pair(step)
        whole = {n: made.replicas[0][f"gradient/{n}"] for n in PARAMETERS}
        clipped = change(whole)
        return {f"clipped/{n}": lambda g, r, n=n: clipped[n] for n in PARAMETERS}

    return faults


def halves(whole: dict[str, Any], limit: float) -> dict[str, Any]:
    """Each half of the rows clipped by its own norm."""
    result = {n: np.array(v) for n, v in whole.items()}
    for half in (0, 1):
        parts = {n: np.array_split(np.arange(len(v)), 2)[half] for n, v in whole.items()}
        norm = np.sqrt(sum(np.sum(whole[n][rows] ** 2) for n, rows in parts.items()))
        for n, rows in parts.items():
            result[n][rows] = whole[n][rows] * min(1.0, limit / norm)
    return result


def optimized(cause: str | None, change: Callable[[int], dict[str, Any]], **more: Any) -> Planted:
    """An update that is another: change(step) gives fields of the optimizer, or what is done with it."""
    found = Planted(cause, lambda _: {}, **more)

    def faults(step: int) -> Faults:
        _, _, made = Planted(None, lambda _: {}, step, spec=found.spec).pair(step)
        given, asked = made.replicas[0], change(step)
        optimizer = found.spec.optimizer.model_copy(update=asked.get("fields", {}))
        rate = float(given["scalar/learning_rate"])
        wrong: dict[str, Any] = {}
        for name in PARAMETERS:
            weight = given[f"before/parameters/{name}"]
            slot = {"momentum_velocity": given[f"before/slots/momentum_velocity/{name}"]}
            taken = asked.get("gradient", lambda n, g: g)(name, given[f"clipped/{name}"])
            new, slots = reference.update(optimizer, {"learning_rate": rate}, weight, taken, slot, name)
            new = weight + asked.get("times", 1.0) * (new - weight)
            new = asked.get("decayed", lambda old, new, rate: new)(weight, new, rate)
            wrong[f"after/parameters/{name}"] = lambda _, r, new=new: new
            slots = asked.get("slots", lambda old, new: new)(
                slot["momentum_velocity"], slots["momentum_velocity"]
            )
            wrong[f"after/slots/momentum_velocity/{name}"] = lambda _, r, s=slots: s
        return wrong

    found.faults = faults
    return found


def _gradient_of(step: int, name: str) -> Any:
    return _clean(step).replicas[0][f"clipped/{name}"]


def scheduled(cause: str | None, rate_of: Callable[[int], float], **more: Any) -> Planted:
    return Planted(
        cause,
        lambda step: {"scalar/learning_rate": lambda *_: np.array(rate_of(step))},
        step=1,
        others=(0, UNEVEN, 5),
        **more,
    )


DECAYED = override(SPEC, ["optimizer.weight_decay=0.04", "optimizer.weight_decay_mode=decoupled"]).resolved()
UPDATE = {
    "stale on one": Planted(
        "stale_parameters",
        lambda _: {
            "after/parameters/dense_1/bias": lambda new, r: np.zeros_like(new) if r else new,
            "after/parameters/dense_1/kernel": lambda new, r: (
                _clean(0).replicas[0]["before/parameters/dense_1/kernel"] if r else new
            ),
        },
    ),
    "drifting": Planted(
        "replicas_differ",
        lambda _: {"after/parameters/dense_1/kernel": lambda new, r: new * (1 + 1e-4 * r)},
        confidence="likely",
    ),
    "nesterov": optimized("setting:nesterov", lambda _: {"fields": {"nesterov": True}}),
    "momentum": optimized("setting:momentum", lambda _: {"fields": {"momentum": 0.85}}, step=1),
    "twice the change": optimized("update_scaled", lambda _: {"times": 1.02}, others=(1,)),
    "another multiple of the change each step": optimized(
        None, lambda step: {"times": 1.02 + step}, others=(1,)
    ),
    "nesterov at one step": optimized(
        "setting:nesterov", lambda s: {"fields": {"nesterov": not s}}, others=(1,), confidence="likely"
    ),
    "a multiple of the change at one step": optimized(
        None, lambda step: {"times": 1.0 if step else 1.02}, others=(1,)
    ),
    "decay by the peak rate": optimized(
        "decay_by_another_rate",
        lambda _: {"decayed": lambda w, new, rate: new + (rate - DECAYED.optimizer.learning_rate) * 0.04 * w},
        step=1,
        others=(0, UNEVEN),
        spec=DECAYED,
    ),
    "no change": optimized("not_updated", lambda _: {"times": 0.0}, others=(1,)),
    "one term of the velocity": optimized(
        "term_scaled",
        lambda _: {"slots": lambda old, new: 0.9 * old + 2.5 * (new - 0.9 * old)},
        step=1,
        others=(0, UNEVEN),
    ),
    "another multiple of a term each step": optimized(
        None,
        lambda step: {"slots": lambda old, new: 0.9 * old + (2.5 + step) * (new - 0.9 * old)},
        step=1,
        others=(0, UNEVEN),
    ),
    "one step late": optimized(
        "one_step_late", lambda _: {"gradient": lambda n, g: _gradient_of(0, n)}, step=1, others=(0,)
    ),
    "kept": optimized(
        "gradients_accumulate",
        lambda step: {"gradient": lambda n, g: g + (_gradient_of(0, n) if step else 0)},
        step=1,
        others=(0,),
    ),
    "another gradient": optimized(None, lambda _: {"gradient": lambda n, g: np.cos(g)}, step=1, others=(0,)),
    "one per replica": scheduled("schedule_per_replica", lambda s: RATES.rate(s * 2)),
    "one ahead": scheduled("schedule_shifted", lambda s: RATES.rate(s + 1)),
    "half the rate": scheduled("schedule_scaled", lambda s: RATES.rate(s) / 2),
    "float32 rate": scheduled("float32_leak", lambda s: float(np.float32(RATES.rate(s)))),
    "no schedule": scheduled(None, lambda s: 0.0123 + 0.001 * s**2),
}

IDS_AND_ROWS = {
    "reversed epoch": Planted("wrong_order", lambda s: {"ids": lambda ids, r: ids + 1}),
}


def ids_of(make: Callable[[BatchPlan, int, int], Any], replicas: int = 2) -> Callable[[int], Faults]:
    plan = BatchPlan.of(SPEC, placement(replicas))
    return lambda step: {"ids": lambda _, replica: make(plan, step, replica)}


def rows_of(which: str, make: Callable[[int, int], Any]) -> Callable[[int], Faults]:
    return lambda step: {which: lambda _, replica: make(step, replica)}


def labels(step: int, replica: int, replicas: int = 2) -> Any:
    plan = BatchPlan.of(SPEC, placement(replicas))
    return digits(SPEC).rows(plan.local_ids(step, replica), plan.epoch(step))[1]


def images(step: int, replica: int) -> Any:
    plan = BatchPlan.of(SPEC, placement(2))
    return digits(SPEC).rows(plan.local_ids(step, replica), plan.epoch(step))[0]


DATA = {
    "the first epoch's order": Planted(
        "not_reshuffled", ids_of(lambda p, s, r: p.local_ids(s % p.steps_per_epoch, r)), step=5
    ),
    "the same for all": Planted("replicas_see_the_same", ids_of(lambda p, s, r: p.local_ids(s, 0))),
    "padded": Planted(
        "padded_with_repeats",
        ids_of(lambda p, s, r: p.share(np.concatenate([p.global_ids(s), p.global_ids(s)[:2]]), r), 4),
        replicas=4,
    ),
    "dropped": Planted("samples_dropped", ids_of(lambda p, s, r: p.local_ids(s, r)[:3])),
    "overlapping": Planted(
        "replicas_overlap",
        ids_of(lambda p, s, r: p.global_ids(s)[4 * r : 4 * r + 5]),
    ),
    "strided": Planted("wrong_order", ids_of(lambda p, s, r: p.global_ids(s)[r::2])),
    "strangers": Planted(None, ids_of(lambda p, s, r: np.arange(5) + 30 + 5 * r)),
    "labels of the step before": Planted(
        "labels_shifted", rows_of("targets", lambda s, r: labels(max(0, s - 1), r)), step=1
    ),
    "labels backwards": Planted("labels_permuted", rows_of("targets", lambda s, r: labels(s, r)[::-1])),
    "inputs scaled": Planted("inputs_differ", rows_of("inputs", lambda s, r: images(s, r) / 16)),
    "inputs off": Planted(
        "float32_leak",
        rows_of("inputs", lambda s, r: (images(s, r) * np.float32(1.1)) / 1.1),
        confidence="likely",
    ),
    "another start": Planted(
        "replicas_differ_at_start",
        lambda _: {"before/parameters/dense_2/kernel": lambda w, r: w * (1 + 1e-6 * r)},
    ),
}
UPDATE.pop("momentum")


def of_norm(whole: dict[str, Any], limit: float) -> dict[str, Any]:
    norm = np.sqrt(sum(np.sum(value**2) for value in whole.values()))
    return {name: value * limit / norm for name, value in whole.items()}


CLIPPED = override(SPEC, ["optimizer.clip_global_norm=0.5"]).resolved()
CLIPPING = {
    "not at all": Planted("clipping_off", lambda _: {}, spec=CLIPPED, others=(1,)),
    "by halves": Planted(
        "clipped_by_local_norm", clip_faults(lambda w: halves(w, 0.5), CLIPPED), spec=CLIPPED
    ),
    "tensor by tensor": Planted(
        "setting:clip_norm",
        clip_faults(lambda w: {n: v * min(1.0, 0.5 / np.linalg.norm(v)) for n, v in w.items()}, CLIPPED),
        spec=CLIPPED,
    ),
    "to another limit": Planted(
        "setting:clip_global_norm",
        clip_faults(lambda w: of_norm(w, 0.37), CLIPPED),
        spec=CLIPPED,
        others=(1,),
    ),
    "to another limit each step": Planted(
        None,
        lambda step: clip_faults(lambda w: of_norm(w, 0.37 + 0.01 * step), CLIPPED)(step),
        spec=CLIPPED,
        others=(1,),
    ),
    "turned round": Planted(
        None, clip_faults(lambda w: {n: -v for n, v in w.items()}, CLIPPED), spec=CLIPPED
    ),
}
ALL = {**REDUCTION, **UPDATE, **DATA, **CLIPPING}


@pytest.mark.parametrize("name", ALL)
def test_what_is_wrong_is_named(name: str) -> None:
    wanted = ALL[name]
    cases = wanted.evidence()
    found = [explain(case) for case in cases]
    assert not any(case.failures for case in cases), cases[0].failures
    assert found, "nothing was found to explain"
    named = [None if why is None else why.cause for why in found]
    assert named[0] == wanted.cause, found
    if wanted.cause is not None:
        assert found[0] is not None
        assert found[0].confidence == wanted.confidence, found[0]
        assert found[0].culprit == placement(wanted.replicas).label


class Unimpressed(NumpyLab):
    """A step that comes out as wrong with the corrected tensors as without."""

    def corrected(self, step: int, injected: Sequence[State]) -> Trace:
        trace = super().corrected(step, injected)
        wrong = {name: 3.0 * trace.replicas[0][name] for name in trace.names if name.startswith("gradient/")}
        return Trace(tuple({**state, **wrong} for state in trace.replicas))


def test_a_repair_that_leaves_the_deviation_refutes_the_cause_unless_another_finding_may_be_the_rest() -> (
    None
):
    planted = ALL["the loss times two"]
    (case,) = planted.evidence()
    case = replace(case, experiments=Unimpressed(planted))  # type: ignore[arg-type]
    assert explain(case) is None
    found = explain(replace(case, beside=[case.finding]))
    assert found is not None
    assert (found.cause, found.confidence) == (planted.cause, "likely")


def test_a_formula_that_does_not_give_what_was_made_refutes_the_cause() -> None:
    (case,) = ALL["nesterov"].evidence()
    said = [formula(case, Match({}, 0.5, after, ""))[0] for after in (1e-13, 1e-9, 1e-3)]
    assert said == ["confirmed", "likely", "refuted"]


def test_what_is_right_is_never_blamed() -> None:
    """Each tensor of the reference, too, is what is due: whatever the candidate made, no cause is in the reference."""
    for planted in ALL.values():
        # The NumPy trainer knows no decay.
        for case in planted.evidence() if planted.spec is not DECAYED else ():
            found = explain(replace(case, suspect="reference"))
            assert found is None or found.culprit != placement(1).label, found


def test_a_signature_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case) -> None:
        raise KeyError("what is missing")

    (case,) = ALL["nesterov"].evidence()
    assert explain(case) is not None
    assert case.failures == []
    cause = replace(next(cause for cause in CATALOGUE if "update" in cause.stages), signature=broken)
    monkeypatch.setattr(causes, "CATALOGUE", (cause,))
    assert explain(case) is None
    assert "what is missing" in case.failures[0]
    assert case.failures[0].startswith(causes.FAILED)


def test_catalogue_says_what_to_do_of_every_cause_that_the_suite_expects() -> None:
    keys = {cause.key for cause in CATALOGUE}
    for cause in CATALOGUE:
        assert cause.text and cause.fix and cause.stages, cause.key
        assert "\n" not in cause.text + cause.fix
    for case in trials(Diagnosed):
        expected = ("setting:*" if key.startswith("setting:") else key for key in case.cause.split("|"))
        assert any(fnmatchcase(key, pattern) for pattern in expected for key in keys), case.id


def test_neighbours_are_valid_and_never_the_spec_itself() -> None:
    for spec in (SPEC.optimizer, SPEC.loss, SPEC.schedule, *SPEC.model.layers):
        for name, value, other in neighbours(spec):
            assert getattr(other, name) == value
            assert other != spec


def test_grids_of_narrow_types() -> None:
    values = np.random.default_rng(0).normal(size=100)
    assert low_type_of([values]) is None
    assert low_type_of([rounded(values, 8)]) == "bfloat16"
    assert low_type_of([values.astype(np.float16).astype(np.float64)]) == "float16"
    assert low_type_of([values.astype(np.float32).astype(np.float64) / 7], [7.0]) == "float32"
    assert low_type_of([np.zeros(5)]) is None
