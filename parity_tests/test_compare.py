"""The verdict in float64: equal runs pass, and every single difference turns it red by its name."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import NotComparableError, RecordError
from parity.common.parity import budget
from parity.common.parity import compare as compare_module
from parity.common.parity import result as result_module
from parity.common.parity.compare import Comparison
from parity.common.parity.deviation import tensor_deviation
from parity.common.parity.result import judge
from parity.common.record import RunRecord
from parity.common.spec import Placement, RunOptions, TrainSpec
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import config
from parity_tests.helpers.records import (
    DDP,
    MIRRORED,
    TENSORFLOW,
    TORCH,
    Run,
    one_line,
    recipe_spec,
    tiny_spec,
    write_pair,
)

Change = Callable[[Run], object]
KERNEL = "parameters/dense_1/kernel"


def failures(comparison: Comparison) -> set[str]:
    return {check.name for check in comparison.checks if not check.passed}


def compared(
    folder: Path,
    change: Change,
    spec: TrainSpec | None = None,
    placement: Placement = MIRRORED,
    on_both: Change = lambda run: None,
) -> Comparison:
    """An honest run against one that `change` has spoiled."""
    reference = Run.of(spec or tiny_spec(), TORCH)
    on_both(reference)
    candidate = reference.copy(placement)
    change(candidate)
    result = judge([reference.write(folder / "reference"), candidate.write(folder / "candidate")])
    (comparison,) = result.comparisons
    assert (comparison.verdict == "divergent") == bool(failures(comparison))
    assert result.verdict == comparison.verdict
    return comparison


def scale(name: str, factor: float, step: int = 3) -> Change:
    def change(run: Run) -> None:
        run.column(name)[step] *= factor

    return change


def tensor(which: str, name: str, function: Callable[[np.ndarray], np.ndarray]) -> Change:
    def change(run: Run) -> None:
        before = run.states[which][name]
        after = function(before.copy())
        assert not np.array_equal(before, after, equal_nan=True), "the test changes nothing"
        run.states[which][name] = after

    return change


def touched(index: tuple[int, ...], factor: float) -> Callable[[np.ndarray], np.ndarray]:
    def function(value: np.ndarray) -> np.ndarray:
        value[index] *= factor
        return value

    return function


def one_bit(value: np.ndarray) -> np.ndarray:
    value[1, 2] = np.nextafter(value[1, 2], np.inf)
    return value


def put(which: str, name: str, value: np.ndarray) -> Change:
    return lambda run: run.states[which].__setitem__(name, value)


def drop(which: str, name: str) -> Change:
    return lambda run: run.states[which].pop(name)


def evaluated(loss: float, count: int, correct: int) -> Change:
    return lambda run: setattr(run, "evaluation", (loss, count, correct))


def ids(function: Callable[[list[np.ndarray], list[np.ndarray]], object], step: int = 1) -> Change:
    """Change what the replicas received at a step; the second argument is the next step's."""
    return lambda run: function(run.ids[step], run.ids[step + 1])


def swap_between(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[0][0], now[1][0] = int(now[1][0]), int(now[0][0])


def swap_inside(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[1] = now[1][::-1]


def swap_replicas(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[0], now[1] = now[1], now[0]


def double_inside(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[0][0] = now[0][1]


def double_between(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[0][0] = now[1][0]


def lose(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[1] = now[1][:-1]


def lose_all(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[1] = now[1][:0]


def add_foreign(now: list[np.ndarray], later: list[np.ndarray]) -> None:
    now[1] = np.append(now[1], later[0][:1])


def same_batch_twice(now: list[np.ndarray], later: list[np.ndarray]) -> None:
    later[:] = [np.resize(a, len(b)) for a, b in zip(now, later, strict=True)]


def same_on_all(now: list[np.ndarray], _: list[np.ndarray]) -> None:
    now[1] = now[0].copy()


# What differs -> (how, the check that must say so, words of its place).
DIFFERENCES: dict[str, tuple[Change, str, str]] = {
    "loss by 1e-11 at one step": (scale("loss_sum", 1 + 1e-11), "loss curve", "step 3"),
    "loss at the last step": (scale("loss_sum", 1 - 1e-11, 5), "loss curve", "step 5"),
    "a lower loss": (scale("loss_sum", 0.9, 0), "loss curve", "step 0"),
    "loss of the other sign": (scale("loss_sum", -1), "loss curve", "step 3"),
    "loss is NaN": (scale("loss_sum", math.nan), "loss curve", "step 3"),
    "loss is infinite": (scale("loss_sum", math.inf), "loss curve", "step 3"),
    "gradient norm": (scale("gradient_norm", 1 + 1e-9), "gradient norm", "step 3"),
    "parameter norm": (scale("parameter_norm", 1 + 1e-11), "parameter norm", "step 3"),
    "update norm": (scale("update_norm", 1 + 1e-9), "update norm", "step 3"),
    "learning rate by an ulp": (scale("learning_rate", 1 + 2**-52), "learning rate", "step 3"),
    "count": (scale("count", 2), "counts", "step 3"),
    "gradient transposed": (tensor("first_gradients", KERNEL, np.transpose), "first-step gradients", KERNEL),
    "gradient of other scale": (
        tensor("first_gradients", KERNEL, lambda g: g * 2),
        "first-step gradients",
        KERNEL,
    ),
    "one gradient element by 1e-11": (
        tensor("first_gradients", KERNEL, lambda g: g + 1e-11 * np.abs(g).max() * (g == g.max())),
        "first-step gradients",
        KERNEL,
    ),
    "gradient is NaN": (
        tensor("first_gradients", KERNEL, touched((0, 0), math.nan)),
        "first-step gradients",
        KERNEL,
    ),
    "final tensor permuted": (tensor("final", KERNEL, lambda w: w[::-1]), "final state", KERNEL),
    "final tensor negated": (tensor("final", KERNEL, lambda w: -w), "final state", KERNEL),
    "final tensor of another shape": (tensor("final", KERNEL, np.ravel), "final state", KERNEL),
    "final slot": (
        tensor("final", "slots/momentum_velocity/dense_2/bias", lambda v: v * (1 + 1e-8)),
        "final state",
        "slots/momentum_velocity/dense_2/bias",
    ),
    "final step counter": (tensor("final", "step", lambda s: s + 1), "final state", "step"),
    "final tensor infinite": (tensor("final", KERNEL, touched((3, 3), math.inf)), "final state", KERNEL),
    "one initial bit": (tensor("initial", KERNEL, one_bit), "initial state", KERNEL),
    "initial slot not zero": (
        put("initial", "slots/momentum_velocity/dense_1/bias", np.full(4, 1e-300)),
        "initial state",
        "slots/momentum_velocity/dense_1/bias",
    ),
    "a tensor more": (put("final", "parameters/extra", np.zeros(2)), "final state", "parameters/extra"),
    "a tensor fewer": (drop("final", "parameters/dense_2/bias"), "final state", "parameters/dense_2/bias"),
    "a gradient fewer": (drop("first_gradients", KERNEL), "first-step gradients", KERNEL),
    "an initial tensor fewer": (drop("initial", KERNEL), "initial state", KERNEL),
    "evaluation loss": (evaluated(3.5 * (1 + 1e-9), 5, 2), "evaluation", "loss over 5"),
    "evaluation is NaN": (evaluated(math.nan, 5, 2), "evaluation", "loss over 5"),
    "evaluation of fewer samples": (evaluated(3.5, 4, 2), "evaluation", "samples evaluated"),
    "evaluation left out": (evaluated(0.0, 0, 0), "evaluation", "samples evaluated"),
    "evaluation finds others correct": (evaluated(3.5, 5, 4), "evaluation", "correct"),
    "samples swapped between replicas": (ids(swap_between), "sample ids", "step 1: replica 0"),
    "order inside a replica": (ids(swap_inside), "sample ids", "step 1: replica 1"),
    "replicas swapped": (ids(swap_replicas), "sample ids", "step 1: replica 0"),
    "a sample doubled in a replica": (ids(double_inside), "sample ids", "step 1: replica 0 received sample"),
    "a sample on two replicas": (ids(double_between), "sample ids", "went to replicas 0 and 1"),
    "a sample missing": (ids(lose), "sample ids", "went to no replica (1 of 16"),
    "a replica without samples": (ids(lose_all), "sample ids", "went to no replica (8 of 16"),
    "a sample of another batch": (ids(add_foreign), "sample ids", "does not belong to this batch"),
    "the same batch again": (ids(same_batch_twice, 3), "sample ids", "step 4"),
    "all replicas get the same": (ids(same_on_all), "sample ids", "went to replicas 0 and 1"),
}


def test_equal_runs_are_parity(tmp_path: Path) -> None:
    comparison = compared(tmp_path, lambda run: None)
    assert comparison.verdict == "parity"
    assert {check.name for check in comparison.checks} == {
        "sample ids",
        "counts",
        "learning rate",
        "initial state",
        "first-step gradients",
        "loss curve",
        "gradient norm",
        "parameter norm",
        "update norm",
        "final state",
        "evaluation",
        "invariants",
    }
    assert comparison.steps.tolist() == list(range(6)) and len(comparison.loss_deviation) == 6
    assert comparison.excepted == () and comparison.first_failure is None


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_a_single_difference_turns_its_check_red(tmp_path: Path, difference: str) -> None:
    change, check, where = DIFFERENCES[difference]
    comparison = compared(tmp_path, change)
    assert comparison.verdict == "divergent"
    assert check in failures(comparison)
    found = next(c for c in comparison.checks if c.name == check)
    assert where in found.where and not found.deviation <= found.budget
    first = comparison.first_failure
    assert first is not None
    assert first.name in one_line(comparison.reason) and first.where in comparison.reason


# Differences that rounding may make; a check that sees these is too narrow.
ROUNDING: dict[str, Change] = {
    "loss by an ulp": scale("loss_sum", 1 + 2**-52),
    "gradients by an ulp": tensor("first_gradients", KERNEL, lambda g: g * (1 + 2**-52)),
    "weights by 1e-12": tensor("final", KERNEL, lambda w: w * (1 + 1e-12)),
    "evaluation by 1e-12": evaluated(3.5 * (1 + 1e-12), 5, 2),
}


@pytest.mark.parametrize("difference", ROUNDING)
def test_rounding_is_not_a_difference(tmp_path: Path, difference: str) -> None:
    comparison = compared(tmp_path, ROUNDING[difference])
    assert comparison.verdict == "parity"
    assert max(check.deviation for check in comparison.checks) > 0


BOTH: dict[str, tuple[Change, str]] = {
    "loss is NaN": (scale("loss_sum", math.nan), "loss curve"),
    "loss is infinite": (scale("loss_sum", math.inf), "loss curve"),
    "gradient norm is NaN": (scale("gradient_norm", math.nan), "gradient norm"),
    "gradient is NaN": (tensor("first_gradients", KERNEL, lambda g: g * math.nan), "first-step gradients"),
    "final is NaN": (tensor("final", KERNEL, lambda w: w * math.nan), "final state"),
    "evaluation is NaN": (evaluated(math.nan, 5, 0), "evaluation"),
    "a sample on two replicas": (ids(double_between), "sample ids"),
    "no evaluation where one was asked for": (evaluated(0.0, 0, 0), "evaluation"),
    "no gradients at all": (lambda run: run.states["first_gradients"].clear(), "first-step gradients"),
    "no final state at all": (lambda run: run.states["final"].clear(), "final state"),
    "no initial state at all": (lambda run: run.states["initial"].clear(), "initial state"),
}


@pytest.mark.parametrize("fault", BOTH)
def test_a_fault_on_both_sides_does_not_pass(tmp_path: Path, fault: str) -> None:
    """Two runs can share a mistake; equal nonsense proves nothing."""
    change, check = BOTH[fault]
    reference, candidate = Run.of(tiny_spec(), MIRRORED), Run.of(tiny_spec(), DDP)
    for run in (reference, candidate):
        change(run)
    (comparison,) = judge([reference.write(tmp_path / "a"), candidate.write(tmp_path / "b")]).comparisons
    assert comparison.verdict == "divergent"
    assert check in failures(comparison)


def test_a_spec_without_evaluation_needs_none(tmp_path: Path) -> None:
    assert compared(tmp_path, lambda run: None, tiny_spec("data.eval_samples=0")).verdict == "parity"


def test_one_divergent_candidate_is_enough(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    spoiled = run.copy(TENSORFLOW)
    spoiled.column("loss_sum")[2] *= 1 + 1e-11
    names = {"a": run, "b": run.copy(DDP), "c": spoiled}
    result = judge([other.write(tmp_path / name) for name, other in names.items()])
    assert [c.verdict for c in result.comparisons] == ["parity", "divergent"]
    assert (result.verdict, result.exit_code) == ("divergent", 1)
    assert judge(result.records[:2]).exit_code == 0


def pair(folder: Path, first: Run, second: Run) -> list[RunRecord]:
    return [first.write(folder / "first"), second.write(folder / "second")]


def refused(records: list[RunRecord], *words: str) -> None:
    """Neither order of the two records is compared, and the line says why."""
    for order in (records, records[::-1]):
        with pytest.raises(NotComparableError) as error:
            judge(order)
        text = one_line(error.value)
        assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("seed=1", ("seed", "0", "1")),
        ("optimizer.learning_rate=0.2", ("optimizer.learning_rate", "0.1", "0.2")),
        ("model.layers.2.use_bias=false", ("model.layers.2.use_bias", "True", "False")),
        ("precision=float32", ("precision", "float64", "float32")),
        ("steps=7", ("steps", "6", "7")),
    ],
)
def test_different_specs_are_not_compared(tmp_path: Path, assignment: str, words: tuple[str, ...]) -> None:
    records = pair(tmp_path, Run.of(tiny_spec(), TORCH), Run.of(tiny_spec(assignment), TORCH))
    refused(records, "different specs", *words)


def test_unequal_step_sets_are_not_compared(tmp_path: Path) -> None:
    stopped = config(TORCH, stop_at_step=4)
    records = pair(tmp_path, Run.of(tiny_spec(), TORCH), Run.of(tiny_spec(), stopped))
    refused(records, "unequal step sets", "0..5", "0..3")


def test_a_record_is_not_compared_with_itself(tmp_path: Path) -> None:
    record = Run.of(tiny_spec(), TORCH).write(tmp_path / "run")
    refused([record, record], "itself")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    refused([record, RunRecord(tmp_path / "link", record.header, record.summary, record.columns)], "itself")


def test_an_unfinished_run_is_not_compared(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    refused([run.write(tmp_path / "a"), run.write(tmp_path / "b", finished=False)], "did not finish")


def test_a_run_without_recording_is_not_compared(tmp_path: Path) -> None:
    silent = config(TORCH, recording="off")
    refused(pair(tmp_path, Run.of(tiny_spec(), TORCH), Run.of(tiny_spec(), silent)), "recording off")


def test_runs_without_steps_are_not_compared(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.numbers = run.numbers[:0]
    refused(pair(tmp_path, run, run.copy()), "holds no steps")


def test_statistics_per_replica_allow_equal_replica_counts_only(tmp_path: Path) -> None:
    spec = recipe_spec("digits_cnn", "steps=2", "model.layers.1.statistics=per_replica")
    one, two = Run.of(spec, TORCH), Run.of(spec, DDP)
    refused(pair(tmp_path, one, two), "per replica", "1", "2", "statistics: global")
    other = one.copy(MIRRORED).write(tmp_path / "third")
    assert judge([two.write(tmp_path / "fourth"), other]).verdict == "parity"


def test_a_comparison_needs_two_records(tmp_path: Path) -> None:
    record = Run.of(tiny_spec(), TORCH).write(tmp_path / "run")
    for records in ([], [record]):
        with pytest.raises(RecordError, match="needs a reference and a candidate"):
            judge(records)


def test_a_missing_state_is_an_error(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    records = pair(tmp_path, run, run.copy(TENSORFLOW))
    (tmp_path / "second" / "first_gradients.safetensors").unlink()
    with pytest.raises(RecordError, match="first_gradients") as error:
        judge(records)
    one_line(error.value)


# float32: judged against the noise floor of permuted runs.

FLOAT32 = tiny_spec("precision=float32")
NOISE = 1e-6


def in_float32(
    folder: Path,
    change: Change = lambda run: None,
    members: Change = lambda run: None,
    count: int = 4,
    noise: float = NOISE,
    spec: TrainSpec = FLOAT32,
    exact: Change | None = None,
) -> Comparison:
    """A pair whose candidate is off by twice the noise, with an ensemble of permuted runs.

    exact: is done to the candidate's first step in float64; None: there is no such run of either.
    """
    run = Run.of(spec, TORCH)
    candidate = run.noisy(2 * noise, 77).copy(MIRRORED)
    change(candidate)
    records = [run.write(folder / "reference"), candidate.write(folder / "candidate")]
    floors = []
    for seed in range(count):
        member = run.noisy(noise, seed)
        members(member)
        floors.append(member.write(folder / f"floor_{seed}"))
    for number, placement in enumerate((TORCH, MIRRORED) if exact is not None else ()):
        first = Run.of(spec.model_copy(update={"precision": "float64"}), placement)
        if exact is not None and number:
            exact(first)
        floors.append(first.write(folder / f"exact_{number}"))
    (comparison,) = judge(records, floors).comparisons
    return comparison


def test_float32_without_a_floor_is_undecided(tmp_path: Path) -> None:
    comparison = in_float32(tmp_path, count=0)
    assert comparison.verdict == "inconclusive" and "--floor" in one_line(comparison.reason)
    records = [
        Run.of(FLOAT32, placement).write(tmp_path / placement.framework) for placement in (TORCH, MIRRORED)
    ]
    assert judge(records).exit_code == 3


def test_float32_without_a_floor_still_sees_what_needs_none(tmp_path: Path) -> None:
    comparison = in_float32(tmp_path, ids(double_between), count=0)
    assert comparison.verdict == "divergent" and failures(comparison) == {"sample ids", "invariants"}


def test_float32_within_the_floor_is_parity(tmp_path: Path) -> None:
    comparison = in_float32(tmp_path)
    assert comparison.verdict == "parity"
    assert "4 torch single x1" in comparison.budget_source
    assert 0 < comparison.loss_deviation.max() < 2e-5
    # The budget never shrinks: what rounding has done once it may do again.
    assert (np.diff(comparison.loss_budget) >= 0).all()


OUTSIDE: dict[str, tuple[Change, str]] = {
    "loss": (scale("loss_sum", 1 + 1e-3), "loss curve"),
    "loss is NaN": (scale("loss_sum", math.nan), "loss curve"),
    "gradient norm": (scale("gradient_norm", 1 + 1e-3), "gradient norm"),
    "gradient transposed": (DIFFERENCES["gradient transposed"][0], "first-step gradients"),
    "final tensor": (tensor("final", KERNEL, lambda w: w * np.float32(1.001)), "final state"),
    "final step counter": (DIFFERENCES["final step counter"][0], "final state"),
    "initial bit": (tensor("initial", KERNEL, one_bit), "initial state"),
    "evaluation": (evaluated(3.6, 5, 2), "evaluation"),
}


@pytest.mark.parametrize("difference", OUTSIDE)
def test_float32_outside_the_floor_is_divergent(tmp_path: Path, difference: str) -> None:
    change, check = OUTSIDE[difference]
    comparison = in_float32(tmp_path, change)
    assert comparison.verdict == "divergent" and check in failures(comparison)


def test_in_float64_a_measured_floor_counts_where_it_is_more_than_the_limits(tmp_path: Path) -> None:
    """For a training that amplifies rounding; nothing that is not measured is allowed for."""
    spec = tiny_spec("precision=float64")
    without = in_float32(tmp_path / "none", noise=1e-11, count=0, spec=spec)
    assert without.verdict == "divergent" and without.budget_source == "float64 proof limits"
    assert in_float32(tmp_path / "alike", noise=1e-11, members=exact, spec=spec).verdict == "divergent"
    within = in_float32(tmp_path / "noisy", noise=1e-11, spec=spec)
    assert within.verdict == "parity" and "8 x float64 noise floor of 4" in within.budget_source
    wrong = in_float32(tmp_path / "wrong", scale("loss_sum", 1 + 1e-9), noise=1e-11, spec=spec)
    assert wrong.verdict == "divergent"


@pytest.mark.parametrize(
    ("loss", "share", "verdict"),
    [
        ("softmax_cross_entropy", 2e-12, "parity"),
        ("softmax_cross_entropy", 1e-9, "divergent"),
        ("mean_squared_error", 2e-12, "divergent"),
    ],
)
def test_a_cross_entropy_that_is_nearly_zero_is_as_exact_as_the_logits(
    tmp_path: Path, loss: str, share: float, verdict: str
) -> None:
    """It is what is left of a difference of logits."""

    def tiny(run: Run) -> None:
        run.column("loss_sum")[3] *= 1e-4

    spec = tiny_spec("precision=float64", f"loss={{kind: {loss}}}")
    change = scale("loss_sum", 1 + share)
    assert compared(tmp_path / "tiny", change, spec, on_both=tiny).verdict == verdict
    assert compared(tmp_path / "large", change, spec).verdict == "divergent"


def test_an_update_is_as_exact_as_the_parameters_that_it_is_added_to(tmp_path: Path) -> None:
    def lost(run: Run) -> None:
        run.column("update_norm")[3] = 1e-9 * run.column("parameter_norm")[3]

    spec = tiny_spec("precision=float64")
    for share, verdict in ((1e-7, "parity"), (1e-6, "divergent")):
        change = scale("update_norm", 1 + share)
        assert compared(tmp_path / f"{share}", change, spec, on_both=lost).verdict == verdict
        assert compared(tmp_path / f"{share} large", change, spec).verdict == "divergent"


def test_in_float64_what_began_small_may_be_what_a_training_makes_of_rounding(tmp_path: Path) -> None:
    """And what is far beyond a limit at once, or of other than sums, may not."""
    spec = tiny_spec("precision=float64", "steps=20")

    def grows(run: Run) -> None:
        run.column("loss_sum")[10:] *= 1 + 10.0 ** np.arange(-11, -1)

    changes = {
        "grows": (grows, True),
        "at once": (scale("loss_sum", 1 + 1e-8, 15), False),
        "early": (scale("loss_sum", 1 + 1e-11, 3), False),
        "final": (tensor("final", KERNEL, lambda w: w * (1 + 1e-9)), True),
        "final at once": (tensor("final", KERNEL, lambda w: w * (1 + 1e-6)), False),
        "first gradients": (tensor("first_gradients", KERNEL, lambda w: w * (1 + 1e-11)), False),
    }
    for name, (change, may_be) in changes.items():
        comparison = compared(tmp_path / name, change, spec)
        assert (comparison.verdict, comparison.amplifies("float64")) == ("divergent", may_be), name


def exact(member: Run) -> None:
    """As if rounding had done nothing to it."""
    plain = Run.of(member.spec, member.placement)
    member.numbers, member.states = plain.numbers, plain.states


def test_a_floor_of_exact_members_still_allows_an_ulp(tmp_path: Path) -> None:
    ulp = float(np.finfo(np.float32).eps)
    assert in_float32(tmp_path / "a", scale("loss_sum", 1 + ulp), noise=0).verdict == "parity"
    assert in_float32(tmp_path / "b", scale("loss_sum", 1 + 20 * ulp), noise=0).verdict == "divergent"


def flipped(share: float) -> Change:
    """One element of a first gradient off by a share of the largest, as where one unit is on the other side of a kink."""
    return tensor("first_gradients", KERNEL, lambda g: g + share * np.abs(g).max() * (g == g.max()))


@pytest.mark.parametrize(
    ("share", "exact", "verdict"),
    [
        (0.004, lambda run: None, "parity"),
        (0.004, None, "divergent"),
        (0.004, flipped(0.004), "divergent"),
        (0.03, lambda run: None, "divergent"),
    ],
    ids=["by rounding", "nothing to tell by", "in float64, too", "more than a unit"],
)
def test_a_unit_that_rounding_flips_is_no_defect(
    tmp_path: Path, share: float, exact: Change | None, verdict: str
) -> None:
    comparison = in_float32(tmp_path, flipped(share), exact=exact)
    assert comparison.verdict == verdict
    assert failures(comparison) == ({"first-step gradients"} if verdict == "divergent" else set())


@pytest.mark.parametrize(
    ("change", "exact", "failed"),
    [
        (scale("loss_sum", 1.001), lambda run: None, set()),
        (scale("loss_sum", 1.001), None, {"loss curve"}),
        (scale("loss_sum", 1.001), scale("loss_sum", 1.001), {"loss curve"}),
        (scale("loss_sum", 1.001, step=0), lambda run: None, {"loss curve"}),
        (tensor("final", KERNEL, lambda w: w * np.float32(1.001)), lambda run: None, set()),
        (evaluated(3.601, 5, 2), lambda run: None, set()),
    ],
    ids=["loss", "nothing to tell by", "in float64, too", "from the start", "final state", "evaluation"],
)
def test_what_rounding_made_of_one_run_later_is_no_defect(
    tmp_path: Path, change: Change, exact: Change | None, failed: set[str]
) -> None:
    """As a unit that flips at some step of one run. What float32 computes otherwise from the first step on is a defect."""
    assert failures(in_float32(tmp_path, change, exact=exact)) == failed


def test_a_float64_run_of_another_question_tells_nothing(tmp_path: Path) -> None:
    other = Run.of(tiny_spec("precision=float64", "seed=1"), TORCH).write(tmp_path / "other")
    runs = [Run.of(FLOAT32, where).write(tmp_path / where.framework) for where in (TORCH, MIRRORED)]
    members = [Run.of(FLOAT32, TORCH).noisy(NOISE, n).write(tmp_path / f"floor_{n}") for n in range(4)]
    with pytest.raises(NotComparableError, match=f"{tmp_path}/other: not {tmp_path}/torch in float64"):
        judge(runs, [*members, other])


def noisy_from(step: int) -> Change:
    """Rounding that grows beyond all use at a step."""

    def change(run: Run) -> None:
        run.column("loss_sum")[step:] *= 1.2

    return change


@pytest.mark.parametrize(
    ("steps", "from_step", "verdict"),
    [(6, 0, "inconclusive"), (6, 5, "inconclusive"), (30, 19, "inconclusive"), (30, 20, "parity")],
)
def test_a_floor_that_allows_anything_too_soon_is_undecided(
    tmp_path: Path, steps: int, from_step: int, verdict: str
) -> None:
    spec = tiny_spec("precision=float32", f"steps={steps}")
    comparison = in_float32(tmp_path, members=noisy_from(from_step), spec=spec)
    assert comparison.verdict == verdict
    words = "use float64" if verdict == "inconclusive" else f"sharp for the first {from_step} of {steps}"
    assert words in one_line(comparison.reason)


def nan_gradients(run: Run) -> None:
    run.states["first_gradients"][KERNEL] *= np.float32(math.nan)


def infinite_weights(run: Run) -> None:
    run.states["final"][KERNEL] *= np.float32(math.inf)


@pytest.mark.parametrize(
    ("members", "change"),
    [
        (scale("loss_sum", math.nan), scale("loss_sum", math.nan)),
        (scale("loss_sum", math.nan, 25), scale("loss_sum", math.nan, 25)),
        (scale("gradient_norm", math.nan), scale("gradient_norm", math.nan)),
        (nan_gradients, nan_gradients),
        (infinite_weights, infinite_weights),
        (evaluated(math.nan, 5, 0), evaluated(9.0, 5, 2)),
    ],
    ids=["loss", "late loss", "gradient norm", "gradient", "final", "evaluation"],
)
def test_members_that_are_not_finite_do_not_open_the_budget(
    tmp_path: Path, members: Change, change: Change
) -> None:
    """An infinite budget would allow anything, NaN too."""
    spec = tiny_spec("precision=float32", "steps=30")
    try:
        comparison = in_float32(tmp_path, change=change, members=members, spec=spec)
    except NotComparableError as error:
        one_line(error)
    else:
        assert comparison.verdict != "parity"


def unpermuted(run: Run) -> None:
    run.placement = run.placement.model_copy(update={"sample_order_seed": None})


def without_recording(run: Run) -> None:
    """What the trainers leave with recording off: no norms."""
    run.options = RunOptions(recording="off")
    for name in ("gradient_norm", "parameter_norm", "update_norm"):
        run.column(name)[:] = 0


def of_another_spec(run: Run) -> None:
    run.spec = tiny_spec("precision=float32", "seed=5")


def stopped(run: Run) -> None:
    run.options = RunOptions(stop_at_step=4)
    run.numbers, run.ids = run.numbers[:4], run.ids[:4]


@pytest.mark.parametrize(
    ("members", "count", "words"),
    [
        (lambda run: None, 3, "needs 4 runs, received 3"),
        (unpermuted, 4, "not permuted"),
        (of_another_spec, 4, "not an ensemble run"),
        (stopped, 4, "steps"),
        (without_recording, 4, "recording"),
    ],
)
def test_an_ensemble_that_shows_no_rounding_is_refused(
    tmp_path: Path, members: Change, count: int, words: str
) -> None:
    with pytest.raises(NotComparableError, match=words) as error:
        in_float32(tmp_path, members=members, count=count)
    one_line(error.value)


def test_members_of_a_placement_that_is_not_compared_are_refused(tmp_path: Path) -> None:
    def moved(run: Run) -> None:
        other = run.copy(DDP.model_copy(update={"sample_order_seed": run.placement.sample_order_seed}))
        run.placement, run.ids = other.placement, other.ids

    with pytest.raises(
        (NotComparableError, RecordError), match="no compared record is a run of torch ddp x2"
    ):
        in_float32(tmp_path, members=moved)


def test_the_noisier_framework_sets_the_budget(tmp_path: Path) -> None:
    run = Run.of(FLOAT32, TORCH)
    other = run.copy(TENSORFLOW)
    records = [run.write(tmp_path / "a"), run.noisy(4e-6, 9).copy(TENSORFLOW).write(tmp_path / "b")]
    quiet = [run.noisy(1e-8, seed).write(tmp_path / f"quiet_{seed}") for seed in range(4)]
    loud = [other.noisy(1e-6, seed).write(tmp_path / f"loud_{seed}") for seed in range(4)]
    assert judge(records, quiet).verdict == "divergent"
    assert judge(records, [*quiet, *loud]).verdict == "parity"


# The ledger of zero-gradient directions.

TRANSFORMER = recipe_spec("digits_transformer", "steps=2", "data.train_samples=64")
KEY_BIAS = "block_1/attend/self_attention/key_bias"
QUERY_BIAS = "block_1/attend/self_attention/query_bias"


def differing(which: str, name: str) -> Change:
    return tensor(which, name, lambda value: value + np.linspace(0.1, 1, value.size))


def test_a_null_direction_may_differ_and_is_listed(tmp_path: Path) -> None:
    names = [f"parameters/{KEY_BIAS}", f"slots/first_moment/{KEY_BIAS}"]

    def change(run: Run) -> None:
        for name in names:
            differing("final", name)(run)
        noise = run.states["first_gradients"][names[0]]
        run.states["first_gradients"][names[0]] = -noise

    comparison = compared(tmp_path, change, TRANSFORMER)
    assert comparison.verdict == "parity"
    assert "zero-gradient direction" in {check.name for check in comparison.checks}
    listed = {entry.tensor: entry for entry in comparison.excepted if entry.deviation > 0}
    assert set(listed) == set(names)
    assert all("softmax" in entry.reason for entry in listed.values())
    assert len(comparison.excepted) == 2 * (1 + 3)  # two blocks: a gradient, a weight and two moments


LEDGER_FAULTS: dict[str, tuple[Change, str]] = {
    "its neighbour differs": (differing("final", f"parameters/{QUERY_BIAS}"), "final state"),
    "a gradient that is not noise": (
        differing("first_gradients", f"parameters/{KEY_BIAS}"),
        "zero-gradient direction",
    ),
    "a gradient above noise": (
        put("first_gradients", f"parameters/{KEY_BIAS}", np.full(32, 1e-9)),
        "zero-gradient direction",
    ),
    "a gradient that is NaN": (
        put("first_gradients", f"parameters/{KEY_BIAS.replace('1', '2')}", np.full(32, np.nan)),
        "",
    ),
    "no gradient": (drop("first_gradients", f"parameters/{KEY_BIAS}"), ""),
    "its first value differs": (differing("initial", f"parameters/{KEY_BIAS}"), "initial state"),
    "weights that are NaN": (put("final", f"parameters/{KEY_BIAS}", np.full(32, np.nan)), ""),
    "weights of another shape": (put("final", f"parameters/{KEY_BIAS}", np.zeros((4, 8))), ""),
    "no weights": (drop("final", f"parameters/{KEY_BIAS}"), ""),
}


@pytest.mark.parametrize("fault", LEDGER_FAULTS)
def test_the_ledger_hides_no_fault(tmp_path: Path, fault: str) -> None:
    change, check = LEDGER_FAULTS[fault]
    comparison = compared(tmp_path, change, TRANSFORMER)
    assert comparison.verdict == "divergent"
    assert not check or failures(comparison) == {check}


COMPARES = """
import sys
from parity.common.commands import main
code = main.dispatch(main.parse(["parity", "compare", *sys.argv[1:3], "--out", sys.argv[3]]))
heavy = {"scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "tensorflow", "keras", "torch"}
print(code, sorted(heavy & sys.modules.keys()))
"""


def test_comparing_imports_nothing_that_takes_seconds(tmp_path: Path) -> None:
    write_pair(tmp_path, tiny_spec("precision=float64"))
    command = [sys.executable, "-c", COMPARES, *(tmp_path / n for n in ("reference", "candidate", "report"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.stdout.splitlines()[-1:] == ["0 []"], done


def test_each_record_is_audited_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = result_module.audit
    monkeypatch.setattr(result_module, "audit", lambda record: asked.append(record.label) or real(record))
    monkeypatch.setattr(compare_module, "audit", result_module.audit)
    spec = tiny_spec("precision=float64")
    records = [Run.of(spec, how).write(tmp_path / how.label) for how in (TORCH, DDP, MIRRORED)]
    assert judge(records).verdict == "parity"
    assert asked == [record.label for record in records]


def test_what_rounding_did_to_two_runs_adds_up_whatever_their_largest_elements() -> None:
    exact, ours, theirs = np.array([1.0, 0.5]), np.array([0.99, 0.51]), np.array([0.99, 0.49])
    each = [tensor_deviation(exact, run) for run in (ours, theirs)]
    # Relative to other elements than the two together.
    assert sum(each) < tensor_deviation(ours, theirs) <= budget._both(each) * (1 + 1e-12)
