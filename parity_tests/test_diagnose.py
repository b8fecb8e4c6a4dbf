"""Diagnosis: what is injected, what deviates by itself, where runs diverge; each with what must not be found."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from parity.common.base.errors import RecordError, RunError
from parity.common.data.plan import BatchPlan
from parity.common.diagnosis import limits
from parity.common.diagnosis.isolate.comparison import StepComparer, rough_tolerances
from parity.common.diagnosis.isolate.findings import Grouping, KeyedFinding, merged, over_steps
from parity.common.diagnosis.isolate.first_step import chosen_steps, first_outside, narrowed
from parity.common.diagnosis.observe.replays import StepTrace, injections_of, state_before, traceable
from parity.common.diagnosis.replays import ReplaySource, diagnose
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison, When
from parity.common.execution.worker import Workers
from parity.common.parity.budget import proof_budget
from parity.common.record import read_record
from parity.common.record.trace import Trace
from parity.common.spec import Instrumentation, Placement, Replay, TrainSpec, override
from parity_tests.helpers.matrix import small, tensorflow, torch
from parity_tests.helpers.numpy_trainer import LAYERS, SPEC, Faults, placement, traced
from parity_tests.helpers.records import Run
from parity_tests.helpers.run_cache import RunCache

LATE = 11  # as in `parity_tests.late_fault`, which imports a framework
UNEVEN = 4  # the last step of the first epoch: 4 samples


def looked_at(faults: Faults, step: int = 0, ref: Trace | None = None) -> list[Finding]:
    """The findings of one forced step on two replicas, of which some places are wrong."""
    ref = ref or traced(step, 1)
    injections = injections_of(ref, BatchPlan.of(SPEC, placement(2)), step)
    forced = traced(step, 2, injections, faults, state_before(ref, step))
    seen = StepComparer(SPEC, ref, LAYERS).injected(injections, forced)
    return over_steps(Grouping(SPEC, LAYERS).of_step(step, seen))


def with_norm(statistics: str) -> TrainSpec:
    """A spec whose batch norm takes its statistics so."""
    norm = {"kind": "batch_norm", "statistics": statistics}
    return SPEC.model_copy(update={"model": override(SPEC, [f"model.layers.2={norm}"]).model})


def wrong(value, replica):
    """Wrong by a little in one element."""
    del replica
    value = np.array(value, np.float64)
    value.flat[value.size // 2] += 1e-9 * max(1.0, np.abs(value).max())
    return value


def on_replica_1(change):
    return lambda value, replica: change(value, replica) if replica == 1 else value


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("step", [0, UNEVEN])
def test_injected_are_the_plans_shares_of_the_references_rows(replicas: int, step: int) -> None:
    ref, plan = traced(step, 2), BatchPlan.of(SPEC, placement(replicas))
    injections = injections_of(ref, plan, step)
    assert len(injections) == replicas
    for replica, tensors in enumerate(injections):
        ids = plan.local_ids(step, replica)
        assert tensors["ids"].tolist() == ids.tolist()
        for name in ("inputs", "forward/dense_1", "backward/activation"):
            rows = dict(zip(ref.ids.tolist(), ref.rows(name), strict=True))
            expected = [rows[i] for i in ids.tolist()]
            assert np.array_equal(tensors[name], np.reshape(expected, tensors[name].shape))
        assert tensors["gradient/dense_1/kernel"] is ref.replicas[0]["gradient/dense_1/kernel"]
        # What is compared, or belongs to a replica, is not fed.
        assert not any(name.startswith(("before", "after", "local", "loss", "count")) for name in tensors)


def test_injected_are_the_references_own_rows_where_its_samples_are_not_the_plans() -> None:
    repeated = traced(0, 1, faults={"ids": lambda ids, _: np.repeat(ids[:5], 2)})
    injections = injections_of(repeated, BatchPlan.of(SPEC, placement(2)), 0)
    together = np.concatenate([tensors["ids"] for tensors in injections])
    assert np.array_equal(together, repeated.replicas[0]["ids"])
    rows = np.concatenate([tensors["forward/dense_2"] for tensors in injections])
    assert np.array_equal(rows, repeated.replicas[0]["forward/dense_2"])


@pytest.mark.parametrize("step", [0, UNEVEN])
def test_nothing_is_found_where_nothing_is_wrong(step: int) -> None:
    assert looked_at({}, step) == []


ONE_PLACE = {
    "ids": ("ids", lambda ids, _: ids[::-1]),
    "inputs": ("inputs", wrong),
    "targets": ("inputs", lambda targets, _: np.roll(targets, 1)),
    "forward/dense_1": ("forward", wrong),
    "forward/dense_2": ("forward", wrong),
    "loss_sum": ("loss", wrong),
    "backward/dense_2": ("backward", wrong),
    "backward/dense_1": ("backward", wrong),
    "local_gradient/dense_2/bias": ("local_gradient", wrong),
    "total/count": ("total", lambda count, _: count / 2),
    "gradient/dense_1/kernel": ("gradient", wrong),
    "clipped/dense_2/kernel": ("clipped", wrong),
    "scalar/learning_rate": ("scalar", wrong),
    "after/slots/momentum_velocity/dense_1/bias": ("slots", wrong),
    "after/parameters/dense_1/kernel": ("update", wrong),
    "updated": ("update", lambda updated, _: ~updated),
}


@pytest.mark.parametrize("name", ONE_PLACE)
def test_one_wrong_tensor_is_one_finding_at_its_place(name: str) -> None:
    stage, fault = ONE_PLACE[name]
    (found,) = looked_at({name: fault})
    assert (found.stage, found.name) == (stage, name)
    assert not any(seen.agrees for seen in found.tensors)
    assert all(seen.agrees for seen in found.agreeing)
    assert found.agreeing or name == "ids"


def test_what_one_replica_does_is_told() -> None:
    (found,) = looked_at({"forward/dense_2": on_replica_1(wrong)})
    assert found.replicas == (1,)
    (found,) = looked_at({"gradient/dense_1/bias": on_replica_1(wrong)})
    assert found.replicas == (1,)


def test_a_layer_is_one_finding_and_a_second_fault_behind_it_is_another() -> None:
    of_layer = dict.fromkeys(
        ("forward/dense_2", "backward/activation", "local_gradient/dense_2/kernel"), wrong
    )
    (found,) = looked_at(of_layer)
    assert found.name == "forward/dense_2"
    assert [seen.name for seen in found.tensors] == list(of_layer)
    both = looked_at({**of_layer, "clipped/dense_1/bias": wrong})
    assert [found.name for found in both] == ["forward/dense_2", "clipped/dense_1/bias"]


def test_replicas_that_begin_with_other_tensors_are_one_finding() -> None:
    def other_start(value, replica):
        return value * (1 + 1e-6 * np.arange(10)) if replica == 1 else value

    (found,) = looked_at({"before/parameters/dense_2/kernel": other_start})
    assert (found.stage, found.replicas) == ("before", (1,))
    assert {"forward/dense_2", "backward/activation"} <= {seen.name for seen in found.tensors}
    # On the other replica it is something else.
    found = looked_at(
        {
            "before/parameters/dense_2/kernel": other_start,
            "forward/dense_1": lambda value, replica: wrong(value, replica) if replica == 0 else value,
        }
    )
    assert [other.stage for other in found] == ["before", "forward"]


IN_REFERENCE = {
    "gradient/dense_2/bias": wrong,
    "total/loss_sum": wrong,
    "clipped/dense_1/kernel": on_replica_1(wrong),
    "after/parameters/dense_1/kernel": on_replica_1(wrong),
}


@pytest.mark.parametrize("name", IN_REFERENCE)
def test_what_the_reference_makes_wrong_of_its_own_is_found_too(name: str) -> None:
    ref = traced(0, 2, faults={name: IN_REFERENCE[name]})
    found = looked_at({}, ref=ref)
    assert found[0].name == name
    assert any(tensor.where.endswith("of the reference") for tensor in found[0].tensors)
    assert not looked_at({}, ref=traced(0, 2))


def test_what_the_references_replicas_drift_apart_by_is_not_another_defect() -> None:
    """Its gradients are not summed: what its replicas hold from then on, and evaluate with, follows."""
    spread = on_replica_1(lambda value, _: 2 * value)
    names = ("dense_1/kernel", "dense_1/bias", "dense_2/kernel", "dense_2/bias")
    gradients = {f"gradient/{name}": spread for name in names}
    drifted = {**gradients, **{f"before/parameters/{name}": spread for name in names}}
    found = []
    for step, faults in ((0, gradients), (1, drifted)):
        ref = traced(step, 2, faults=faults)
        injections = injections_of(ref, BatchPlan.of(SPEC, placement(2)), step)
        seen = StepComparer(SPEC, ref, LAYERS).injected(
            injections, traced(step, 2, injections, state=state_before(ref, step))
        )
        found += Grouping(SPEC, LAYERS).of_step(step, seen)
    assert [(f.finding.stage, f.finding.step) for f in found][:2] == [("gradient", 0), ("before", 1)]
    (finding,) = over_steps(found)
    assert (finding.stage, finding.step) == ("gradient", 0)
    # By itself it is one.
    assert next(f.stage for f in over_steps(found[1:])) == "before"


def test_what_replicas_evaluate_with_another_state_is_the_same_defect() -> None:
    def seen(name: str, replica: int) -> TensorComparison:
        return TensorComparison(name, replica, 1.0, 0.0)

    start = seen("before/parameters/dense_2/kernel", 1)
    begun = KeyedFinding(("before", ""), Finding(0, "before", start.name, (1,), (start,), ()))

    def evaluated(path: str, replica: int) -> KeyedFinding:
        shown = (seen(f"forward/{path}", replica),)
        return KeyedFinding(
            ("layer", path), Finding(None, "evaluation", shown[0].name, (replica,), shown, ())
        )

    assert over_steps([begun, evaluated("dense_2", 1)]) == [begun.finding]
    assert len(over_steps([begun, evaluated("dense_2", 0)])) == 2
    assert len(over_steps([begun, evaluated("dense_1", 1)])) == 2


def test_replicas_of_the_reference_that_begin_differently_are_one_finding() -> None:
    ref = traced(0, 2, faults={"before/parameters/dense_2/kernel": on_replica_1(lambda k, _: 2 * k)})
    (found,) = looked_at({}, ref=ref)
    assert found.stage == "before"


def test_a_wrong_local_gradient_is_no_wrong_reduction() -> None:
    (found,) = looked_at({"local_gradient/dense_1/kernel": wrong})
    assert found.stage == "local_gradient"


def test_gradients_wrong_of_every_layer_are_one_finding() -> None:
    names = [
        f"local_gradient/{name}/{kind}" for name in ("dense_1", "dense_2") for kind in ("kernel", "bias")
    ]
    (found,) = looked_at(dict.fromkeys(names, wrong))
    assert found.stage == "local_gradient"
    assert len(found.tensors) == 4


def test_the_last_digits_of_a_small_sum_of_large_terms_are_rounding() -> None:
    """A gradient that nearly cancels; wrong by more than its terms are rounded it is found nevertheless."""
    name = "local_gradient/dense_2/bias"

    def small(off: float):
        return {name: lambda value, _: 1e-9 * value + off}

    ref = traced(0, 1, faults=small(0))
    assert not looked_at(small(1e-16), ref=ref)
    assert looked_at(small(1e-13), ref=ref)
    # The same of one that does not cancel is rounding.
    assert not looked_at({name: lambda value, _: value + 1e-13})


def test_free_steps_are_compared_as_wholes_and_copies_one_by_one() -> None:
    ref = traced(0, 1)
    comparison = StepComparer(SPEC, ref, LAYERS)
    assert all(seen.agrees for seen in comparison.as_trained(traced(0, 2)))
    faulty = comparison.as_trained(traced(0, 2, faults={"gradient/dense_1/bias": on_replica_1(wrong)}))
    first = next(seen for seen in faulty if not seen.agrees)
    assert (first.name, first.replica) == ("gradient/dense_1/bias", 1)
    faulty = comparison.as_trained(traced(0, 2, faults={"forward/dense_1": wrong}))
    assert next(seen for seen in faulty if not seen.agrees).name == "forward/dense_1"


def test_statistics_of_each_replicas_own_are_no_deviation() -> None:
    """Moving statistics may part, and with them evaluations; all but replica 0 are fed others than their own."""

    def moved(value, replica):
        return value + replica

    buffers = {f"{when_}/buffers/norm/moving_mean": np.zeros(3) for when_ in ("before", "after")}
    for statistics, expected in (("per_replica", set()), ("global", {"before/buffers/norm/moving_mean"})):
        spec = with_norm(statistics)
        ref = traced(0, 2)
        ref = Trace(
            tuple({**r, **{n: moved(v, i) for n, v in buffers.items()}} for i, r in enumerate(ref.replicas))
        )
        injections = injections_of(ref, BatchPlan.of(SPEC, placement(2)), 0)
        forced = traced(0, 2, injections)
        forced = Trace(tuple({**r, **buffers} for r in forced.replicas), forced.injected_ids)
        seen = StepComparer(spec, ref, LAYERS).injected(injections, forced)
        assert expected <= {s.name for s in seen if not s.agrees}
        if not expected:
            assert all(s.agrees for s in seen)


def test_findings_with_one_explanation_are_one() -> None:
    def found(step: int, name: str, cause: str | None) -> Finding:
        why = cause and Explanation(cause, "", "likely", "", "")
        return Finding(step, "forward", name, (step,), (), (), why or None)

    findings = [found(0, "a", "gelu"), found(1, "b", "gelu"), found(1, "c", None), found(1, "d", None)]
    joined = merged([*findings, found(1, "e", "other")])
    assert [(finding.name, finding.replicas) for finding in joined] == [
        ("a", (0, 1)),
        ("c", (1,)),
        ("d", (1,)),
        ("e", (1,)),
    ]
    assert joined[0].explanation is not None
    assert joined[0].explanation.text.endswith("; so in 1 more place")


@pytest.mark.parametrize("sections", [8, 64])
@pytest.mark.parametrize("culprit", [0, 1, 7, 8, 63, 500, 998, 999])
def test_the_step_is_found_in_sections(culprit: int, sections: int) -> None:
    asked, trained = [], 0

    def differ(begin: int, points):
        nonlocal trained
        asked.append(len(points))
        trained += points[-1] - begin
        assert begin <= culprit
        assert points[0] > begin
        return {point: point > culprit for point in points}

    step, rounds = narrowed(0, 1000, differ, sections)
    assert step == culprit
    assert rounds == len(asked) <= 5
    assert max(asked) <= sections
    # What shows early is found without training the whole run again.
    assert trained <= 128 + 3 * culprit
    # Nor is any step trained more than once, but for a section.
    assert trained <= 1000 + 128 + 2 * 1000 / sections
    assert narrowed(0, 1000, lambda begin, points: dict.fromkeys(points, False)) is None


def test_chosen_steps_hold_the_borders_and_the_step_outside() -> None:
    plan = BatchPlan.of(SPEC, placement(2))
    assert chosen_steps(SPEC, plan, 4, None) == (0, 1)
    spec = override(SPEC, ["steps=200"])
    assert chosen_steps(spec, plan, 200, 77) == (0, 1, 4, 5, 9, 10, 77, 78)
    assert chosen_steps(spec, plan, 200, 199) == (0, 1, 4, 5, 9, 10, 199)


@pytest.fixture
def replayer(run_cache: RunCache) -> Workers:
    """Replays in the run cache's workers, which the runs to be diagnosed have started."""
    return run_cache.replayer()


MLP = small("digits_mlp", "steps=4")
ALONE = torch("single", 1)


def test_a_clean_pair_is_at_parity(run_cache: RunCache, replayer: Workers, tmp_path: Path) -> None:
    records = [run_cache.record(MLP, place) for place in (ALONE, tensorflow(2))]
    found = diagnose(*records, replayer, tmp_path / "replays")
    assert (found.verdict, found.findings, found.when) == ("parity", (), None)
    assert [step.step for step in found.steps] == [0, 1, None]
    assert all(step.injected and step.as_trained and step.first is None for step in found.steps)
    assert not (tmp_path / "replays").exists()


FAULTS = {
    "replicas_never_synchronised": torch("ddp", 2),
    "gradients_never_summed": tensorflow(2),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_at_its_step_and_place(
    run_cache: RunCache, replayer: Workers, tmp_path: Path, fault: str
) -> None:
    place = FAULTS[fault]
    records = run_cache.record(MLP, ALONE), run_cache.record(MLP, place, fault)
    inside = None, f"parity_tests.faults.{place.framework}:{fault}"
    found = diagnose(*records, replayer, tmp_path / "replays", contexts=inside, keep=True)
    assert found.verdict == "divergent"
    assert found.reproduced
    assert found.when is not None
    assert found.when.step == 0
    (finding,) = found.findings
    assert (finding.step, finding.stage, finding.replicas) == (0, "gradient", (0, 1))
    assert finding.explanation is not None
    assert finding.explanation.confidence == "confirmed"
    assert (tmp_path / "replays").exists()


@pytest.mark.exhaustive
def test_what_the_replays_leave_out_is_named(run_cache: RunCache, replayer: Workers, tmp_path: Path) -> None:
    """Replayed without what it was made inside, and on another strategy, a faulty run agrees."""
    reference, faulty = (
        run_cache.record(MLP, ALONE),
        run_cache.record(MLP, FAULTS["replicas_never_synchronised"], "replicas_never_synchronised"),
    )
    found = diagnose(reference, faulty, replayer, tmp_path / "a")
    assert (found.verdict, found.findings, found.reproduced) == ("divergent", (), False)
    assert any("the replays agree" in note for note in found.notes)
    deepspeed = torch("data_parallel", 2, launcher="mp_spawn")
    header = faulty.header.model_copy(update={"placement": deepspeed})
    found = diagnose(reference, dataclasses.replace(faulty, header=header), replayer, tmp_path / "b")
    (finding,) = found.findings
    assert finding.explanation is not None
    assert finding.explanation.cause == "only_with_strategy_data_parallel_and_launcher_mp_spawn"
    assert finding.explanation.confidence == "confirmed"


@pytest.mark.slow
def test_what_is_only_recorded_otherwise_is_named(
    run_cache: RunCache, replayer: Workers, tmp_path: Path
) -> None:
    reference, candidate = run_cache.record(MLP, ALONE), run_cache.record(MLP, tensorflow(2))
    norms = candidate.columns["gradient_norm"].copy()
    norms[2] = 0
    columns = {**candidate.columns, "gradient_norm": norms}
    candidate = dataclasses.replace(candidate, columns=columns)
    (finding,) = diagnose(reference, candidate, replayer, tmp_path / "a").findings
    assert (finding.step, finding.stage, finding.name) == (2, "gradient", "gradient_norm")
    assert finding.explanation is not None
    assert finding.explanation.cause == "recorded_differently"
    # Where the run ends elsewhere, something made it so that does not happen each time; barely outside, rounding may have.
    summary = candidate.summary.model_copy(update={"eval_correct": candidate.summary.eval_correct + 1})
    other = dataclasses.replace(candidate, summary=summary)
    assert not diagnose(reference, other, replayer, tmp_path / "c").findings
    norms[2] = reference.columns["gradient_norm"][2] * (1 + 1e-9)
    assert not diagnose(reference, candidate, replayer, tmp_path / "b").findings

    def evaluated(**changed: float) -> Finding | None:
        summary = candidate.summary.model_copy(update=changed)
        off = dataclasses.replace(run_cache.record(MLP, tensorflow(2)), summary=summary)
        return next(iter(diagnose(reference, off, replayer, tmp_path / str(*changed)).findings), None)

    for field, cause in (("eval_correct", "recorded_differently"), ("eval_count", "evaluation_incomplete")):
        found = evaluated(**{field: getattr(candidate.summary, field) + 1})
        assert found is not None
        assert found.explanation is not None
        assert (found.stage, found.name, found.explanation.cause) == ("evaluation", field, cause)
    found = evaluated(eval_loss_sum=candidate.summary.eval_loss_sum + 1)
    assert found is not None
    assert (found.name, found.explanation) == ("eval_loss_sum", None)
    assert evaluated(eval_loss_sum=candidate.summary.eval_loss_sum * (1 + 1e-9)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "searched"), [((), "2 rounds of steps 0 to 19"), ((4, 8, 14), "1 round of steps 8 to 13")]
)
def test_a_late_divergence_that_no_curve_shows_is_found_in_sections(
    run_cache: RunCache,
    replayer: Workers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept: tuple[int, ...],
    searched: str,
) -> None:
    """From the last states that both runs have kept on their way and that agree, where there are any."""
    # Far from the beginning, replays go on from states on the way.
    monkeypatch.setattr(limits, "FARTHEST_BORDER", 5)
    spec = small("digits_cnn", "steps=20", "data.eval_samples=0").resolved()
    inside = "parity_tests.late_fault:a_moving_mean_moves_late"
    replay = Replay(stop=20, states=kept) if kept else None
    reference, faulty = (
        read_record(
            replayer.train(
                spec, ALONE, tmp_path / name, instrumentation=Instrumentation(context=context, replay=replay)
            )
        )
        for name, context in (("reference", None), ("faulty", inside))
    )
    assert tuple(reference.kept_states()) == kept
    found = diagnose(reference, faulty, replayer, tmp_path / "replays", contexts=(None, inside))
    assert found.when is not None
    assert found.when.step == LATE
    assert found.when.evidence.startswith("final state")
    assert found.when.searched.endswith(searched)
    assert {(finding.step, finding.stage) for finding in found.findings} == {(LATE, "buffers")}
    assert [step.step for step in found.steps] == [0, 1, LATE - 1, LATE, LATE + 1]


def test_one_overflow_is_like_another() -> None:
    def overflowed(at: int):
        def change(value, _):
            value = np.array(value)
            value.flat[at] = np.inf
            return value

        return {"clipped/dense_1/kernel": change}

    ref = traced(0, 1, faults=overflowed(3))
    assert not looked_at(overflowed(3), ref=ref)
    assert looked_at(overflowed(4), ref=ref)[0].name == "clipped/dense_1/kernel"
    assert looked_at({}, ref=ref)[0].name == "clipped/dense_1/kernel"


def test_sharded_gradients_are_held_against_the_references() -> None:
    """Where either has no local gradients."""

    def without(trace: Trace) -> Trace:
        kept = [{n: v for n, v in r.items() if not n.startswith("local_")} for r in trace.replicas]
        return dataclasses.replace(trace, replicas=tuple(kept))

    ref, fault = traced(0, 1), {"gradient/dense_1/bias": wrong}
    plan = BatchPlan.of(SPEC, placement(2))
    injections = injections_of(ref, plan, 0)
    for of_ref, of_candidate in ((without, without), (without, lambda t: t), (lambda t: t, without)):
        comparison = StepComparer(SPEC, of_ref(ref), LAYERS)
        for faults, wrong_ones in (({}, set()), (fault, {"gradient/dense_1/bias"})):
            forced = of_candidate(traced(0, 2, injections, faults))
            seen = [s.name for s in comparison.injected(injections, forced) if not s.agrees]
            assert set(seen) == wrong_ones
            assert all(s.agrees for s in comparison.as_trained(of_candidate(traced(0, 2))))


def test_below_float64_what_rounding_does_is_no_deviation() -> None:
    spec = override(SPEC, ["precision=float32"]).resolved()
    rough = rough_tolerances(spec, {"forward/dense_1": 1e-3})
    assert rough.of("forward/dense_2") < 1e-5 < rough.of("forward/dense_1") == 1e-3
    assert rough_tolerances(SPEC, {"forward/dense_1": 1e-3}).of("forward/dense_1") == 1e-12
    low = rough_tolerances(override(spec, ["precision=bfloat16_mixed"]).resolved(), {})
    # Products are rounded to bfloat16, the weights' gradients and what follows them are not.
    assert low.of("forward/dense_2") > 2**-7
    assert low.of("local_gradient/dense_2/kernel") == low.of("clipped/dense_2/kernel") < 1e-5


def test_what_cannot_be_looked_into_is_left_out() -> None:
    placed = torch("ddp", 2, compile=True, options={"static_graph": True}, accumulation=2)
    simple, left_out = traceable(placed)
    assert left_out == ["compile"]
    assert simple == torch("ddp", 2, options={"static_graph": True}, accumulation=2)
    assert traceable(torch("deepspeed", 2)) == (torch("ddp", 2), ["strategy deepspeed"])
    assert traceable(tensorflow(2, steps_per_call=4)) == (tensorflow(2), ["steps_per_call 4"])
    assert traceable(simple) == (simple, [])


def test_the_first_step_outside_is_read_off_the_records(run_cache: RunCache) -> None:
    reference, candidate = run_cache.record(MLP, ALONE), run_cache.record(MLP, tensorflow(2))
    budget = proof_budget(reference)
    assert first_outside(reference, candidate, budget) is None

    def off(column: str, step: int, factor: float) -> When | None:
        values = candidate.columns[column].copy()
        values[step] *= factor
        columns = {**candidate.columns, column: values}
        return first_outside(reference, dataclasses.replace(candidate, columns=columns), budget)

    for column, said in (("loss_sum", "loss off by"), ("learning_rate", "learning rate"), ("count", "count")):
        found = off(column, 2, 1 + 1e-9)
        assert found is not None
        assert (found.step, said in found.evidence) == (2, True)
    assert off("gradient_norm", 1, 1 + 1e-13) is None
    for field, said in (("eval_loss_sum", "evaluation: loss over"), ("eval_correct", "evaluation: ")):
        changed = {field: getattr(candidate.summary, field) + 1}
        summary = candidate.summary.model_copy(update=changed)
        found = first_outside(reference, dataclasses.replace(candidate, summary=summary), budget)
        assert found is not None
        assert (found.step, found.evidence.startswith(said)) == (None, True)


def on_one_replica(folder: Path, candidate: Placement, answer: Trace | Exception) -> list[str]:
    """The notes on an unexplained finding of step 0, where the replay on one replica ends with `answer`."""
    records = [Run.of(SPEC, place).write(folder / place.strategy) for place in (ALONE, candidate)]
    source = ReplaySource((records[0], records[1]), Workers(folder / "logs"), folder, (None, None), (), None)
    source.notes.clear()
    source.traced = [cast(StepTrace, SimpleNamespace(step=0, findings=["unexplained"], ref=traced(0, 1)))]

    def step_of(placement: Placement, step: int) -> Trace:
        assert (placement.replicas, placement.strategy, step) == (1, candidate.strategy, 0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    source.replays.step_of = step_of  # type: ignore[method-assign]
    source._try_one_replica()
    return source.notes


def test_only_a_strategy_without_a_single_replica_is_not_tried_on_one(tmp_path: Path) -> None:
    ddp = torch("ddp", 2)
    (stays,) = on_one_replica(tmp_path / "a", ddp, traced(0, 1, faults={"forward/dense_2": wrong}))
    assert "the divergence stays: forward/dense_2 is the first to deviate" in stays
    (goes,) = on_one_replica(tmp_path / "b", ddp, traced(0, 1))
    assert "goes away" in goes
    # A replay that fails is named, and takes away nothing that was found; a defect of ours is not hidden.
    (failed,) = on_one_replica(tmp_path / "c", ddp, RunError("torch ddp x1: no memory"))
    assert failed == "the candidate could not be replayed on one replica: torch ddp x1: no memory"
    with pytest.raises(RecordError, match="damaged"):
        on_one_replica(tmp_path / "d", ddp, RecordError("the trace is damaged"))
    grouped = torch("fsdp2", 4, options={"shard_group": 2})
    assert on_one_replica(tmp_path / "e", grouped, RunError("it was tried")) == []


def test_every_limit_stands_in_one_table_with_its_reason() -> None:
    table = {name: value for name, value in vars(limits).items() if isinstance(value, limits.Limit)}
    assert len(table) > 20
    assert not [name for name, limit in table.items() if len(limit.reason) < 10]
    folder = Path(limits.__file__).parent
    sources = [*folder.rglob("*.py"), *(folder.parent / "external" / "pairs").glob("*.py")]
    sources += (folder.parent / "external" / "scripts").glob("*.py")
    # Values that settings of a spec usually have are no limits.
    own = {folder / "limits.py", folder / "explain" / "spec_variants.py"}
    found = [
        f"{path.name}:{node.lineno}"
        for path in sources
        if path not in own
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < abs(node.value) < 0.01
    ]
    assert not found
