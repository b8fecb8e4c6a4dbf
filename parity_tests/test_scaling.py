"""The whole analysis: throughputs, ratios, causes of loss and targets, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import SpecError
from parity.common.record import RunRecord, read_record
from parity.common.scaling.analyse import analyse
from parity.common.scaling.result import Cause, Scaling
from parity.common.scaling.statistics import timing_of
from parity.common.spec import Placement, TrainSpec
from parity_tests.helpers.records import DDP, MIRRORED, TENSORFLOW, TORCH, Run, edit_json, timed, tiny_spec

FSDP = Placement(framework="torch", strategy="fsdp2", replicas=2)
STEPS = 20
# One batch an epoch: every step has 32 samples.
EVEN = tiny_spec("data.train_samples=32", "global_batch_size=32", f"steps={STEPS}")
DOUBLE = tiny_spec("data.train_samples=64", "global_batch_size=64", f"steps={STEPS}")


def one(folder: Path, placement: Placement, spec: TrainSpec = EVEN) -> RunRecord:
    return Run.of(spec, placement).write(folder / f"{placement.label} {spec.global_batch_size}")


def rounds_of(
    folder: Path, seconds: dict[Placement, list[float]], spec: TrainSpec = EVEN
) -> list[list[RunRecord]]:
    """Rounds of runs whose steps all take the given seconds, one number a round."""
    records = {placement: one(folder, placement, spec) for placement in seconds}
    count = len(next(iter(seconds.values())))
    return [[timed(records[p], times[number]) for p, times in seconds.items()] for number in range(count)]


def scaling_of(rounds: list[list[RunRecord]], **asked: Any) -> Scaling:
    result = analyse(rounds, **asked)
    assert result is not None
    return result


def with_phases(record: RunRecord, ranks: list[dict[str, float]], messages: list[Any]) -> RunRecord:
    """The record as if its phases had been timed, three times each, one of them disturbed."""
    facts = [
        {"seconds": {name: [value, 9 * value, value] for name, value in r.items()}, "messages": messages}
        for r in ranks
    ]
    changed = replace(record)
    changed.__dict__["phases"] = facts
    return changed


def phases(compute: float, exposed: float = 0.0, **other: float) -> dict[str, float]:
    """Of one rank: a third of the computation is the forward pass."""
    usual = {"data": 0.0, "communication": 2 * exposed, "optimizer": 0.0, "step": compute + exposed}
    return {
        **usual,
        "forward": compute / 3,
        "backward": 2 * compute / 3,
        "exposed_communication": exposed,
        **other,
    }


# --- throughput ---


def test_throughput_is_the_median_after_the_warm_up(tmp_path: Path) -> None:
    record = one(tmp_path, TORCH)
    assert timing_of(timed(record, 0.5)).median == 64.0
    # One very slow step does not move a median, wherever it is.
    for row in (0, 9, 19):
        seconds = [0.5] * STEPS
        seconds[row] = 1000
        assert timing_of(timed(record, seconds)).median == 64.0
    # Six slow ones at the start are warm-up; the control has them at the end.
    assert timing_of(timed(record, [100.0] * 6 + [0.5, 1.0] * 7)).median == pytest.approx(48.0)
    assert timing_of(timed(record, [0.5] * 14 + [1.0] * 6)).median == 64.0


def test_a_smaller_tail_batch_counts_with_its_own_samples(tmp_path: Path) -> None:
    # Three batches an epoch: 16, 16, 5. Every sample takes a hundredth of a second.
    record = one(tmp_path, TORCH, tiny_spec(f"steps={STEPS}"))
    counts = record.columns["count"]
    assert set(counts.tolist()) == {16.0, 5.0}
    assert timing_of(timed(record, list(counts / 100))).median == pytest.approx(100.0)


def test_steps_of_one_call_are_timed_together(tmp_path: Path) -> None:
    placement = TENSORFLOW.model_copy(update={"steps_per_call": 4})
    record = timed(one(tmp_path, placement), [2.0, 1e-6, 1e-6, 1e-6] * 5)
    assert timing_of(record).median == pytest.approx(4 * 32 / 2.0, rel=1e-5)
    assert timing_of(replace(record, header=one(tmp_path, TENSORFLOW).header)).median > 1e6, "the control"


def test_steps_that_time_nothing_do_not_count(tmp_path: Path) -> None:
    record = timed(one(tmp_path, TORCH), [0.0, 0.5] * (STEPS // 2))
    empty = record.columns["count"].copy()
    empty[1::4] = 0.0
    assert timing_of(replace(record, columns={**record.columns, "count": empty})).median == 64.0
    assert math.isnan(timing_of(timed(record, 0.0)).median)


def test_a_run_without_steps_has_no_speed(tmp_path: Path) -> None:
    record = one(tmp_path, TORCH)
    empty = replace(record, columns={name: values[:0] for name, values in record.columns.items()})
    assert math.isnan(timing_of(empty).median)
    assert analyse([[empty, one(tmp_path, DDP)]]) is None


# --- ratios ---


def test_speedups_are_medians_of_ratios_round_by_round(tmp_path: Path) -> None:
    times = {
        TORCH: [1.0, 2.0, 1.0],
        DDP: [0.5, 1.25, 0.8],  # ratios 2, 1.6, 1.25
        TENSORFLOW: [2.0, 2.0, 2.0],
        MIRRORED: [1.0, 1.0, 1.6],  # ratios 2, 2, 1.25
    }
    result = scaling_of(rounds_of(tmp_path, times))
    ddp, mirrored = result.speedups
    assert (ddp.name, ddp.replicas, ddp.rounds, ddp.framework) == ("torch ddp x2", 2, 3, "torch")
    # A ratio of medians would be 1 / 0.8 = 1.25.
    assert [ddp.median, mirrored.median] == pytest.approx([1.6, 2.0])
    assert ddp.efficiency == pytest.approx(0.8)
    assert ddp.low <= 1.25 and ddp.high >= 2.0, "the interval of three rounds is wider than they are"
    assert ddp.efficiency_interval.low == pytest.approx(ddp.low / 2)
    assert result.samples_per_second == pytest.approx(
        {
            "torch single x1": 32.0,
            "torch ddp x2": 40.0,
            "tensorflow mirrored x1": 16.0,
            "tensorflow mirrored x2": 32.0,
        }
    )
    assert {ratio.name: ratio.median for ratio in result.between} == pytest.approx(
        {
            "torch single x1 / tensorflow mirrored x1": 2.0,  # 2, 1, 2
            "torch ddp x2 / tensorflow mirrored x2": 2.0,  # 2, 0.8, 2
        }
    )
    assert result.timed_steps == STEPS * 3
    assert {ratio.conclusion for ratio in result.speedups} == {"too noisy to conclude"}


def test_quiet_rounds_are_conclusive(tmp_path: Path) -> None:
    result = scaling_of(rounds_of(tmp_path, {TORCH: [1.0, 1.01, 1.0], DDP: [0.55, 0.55, 0.55]}))
    (ratio,) = result.speedups
    assert (ratio.conclusion, result.notes) == ("conclusive", ())
    assert ratio.serial_fraction is not None
    assert ratio.serial_fraction.median == pytest.approx((0.55 - 0.5) / 0.5)
    assert ratio.serial_fraction.low <= ratio.serial_fraction.median <= ratio.serial_fraction.high
    assert ratio.expected == (1.8, 1.8)


def test_one_round_concludes_nothing(tmp_path: Path) -> None:
    result = scaling_of(rounds_of(tmp_path, {TORCH: [1.0], DDP: [0.5]}))
    assert result.speedups[0].conclusion == "too noisy to conclude"
    assert "rounds" in result.speedups[0].advice and "1 of at least 3 rounds" in result.notes[0]


def test_the_order_inside_a_round_does_not_matter(tmp_path: Path) -> None:
    rounds = rounds_of(tmp_path, {TORCH: [1.0, 3.0, 1.0], DDP: [0.5, 1.0, 0.7]})
    assert analyse(rounds) == analyse([rounds[0], rounds[1][::-1], rounds[2][::-1]])


def test_every_strategy_is_measured_against_its_own_framework(tmp_path: Path) -> None:
    result = scaling_of(rounds_of(tmp_path, {TORCH: [1.0], TENSORFLOW: [9.0], DDP: [0.5], FSDP: [0.8]}))
    assert {r.name: r.median for r in result.speedups} == pytest.approx(
        {"torch ddp x2": 2.0, "torch fsdp2 x2": 1.25}
    )
    assert {r.name: r.median for r in result.between} == pytest.approx(
        {"torch single x1 / tensorflow mirrored x1": 9.0}
    )


def test_weak_scaling_is_told_by_the_global_batch(tmp_path: Path) -> None:
    alone = rounds_of(tmp_path, {TORCH: [1.0] * 3, DDP: [0.6] * 3})
    weak = rounds_of(tmp_path / "weak", {DDP: [1.25] * 3}, DOUBLE)
    result = scaling_of([a + b for a, b in zip(alone, weak, strict=True)])
    found = {(r.name, r.mode): r for r in result.speedups}
    assert found["torch ddp x2", "strong"].median == pytest.approx(1 / 0.6)
    # Twice the samples in 1.25 times the seconds.
    both = found["torch ddp x2", "weak"]
    assert both.median == pytest.approx(1.6)
    # Gustafson's: 2 - 1.6 of 2 - 1.
    assert both.serial_fraction is not None and both.serial_fraction.median == pytest.approx(0.4)
    assert [c.global_batch for c in result.configurations] == [32, 32, 64]
    lost = {(loss.label, loss.mode): loss.lost_seconds for loss in result.losses}
    assert lost == pytest.approx({("torch ddp x2", "strong"): 0.1, ("torch ddp x2", "weak"): 0.25})


def test_another_batch_is_no_baseline(tmp_path: Path) -> None:
    odd = tiny_spec("data.train_samples=48", "global_batch_size=48", f"steps={STEPS}")
    rounds = [
        [
            timed(one(tmp_path, TORCH), 1.0),
            timed(one(tmp_path, DDP, odd), 0.6),
            timed(one(tmp_path, DDP), 0.5),
        ]
    ]
    result = scaling_of(rounds)
    assert [ratio.median for ratio in result.speedups] == pytest.approx([2.0])


def test_a_compiled_run_is_compared_with_a_compiled_one(tmp_path: Path) -> None:
    compiled = [p.model_copy(update={"compile": True}) for p in (TORCH, DDP)]
    times = {TORCH: [1.0], compiled[0]: [0.8], DDP: [0.5], compiled[1]: [0.5]}
    found = {r.name: r.median for r in scaling_of(rounds_of(tmp_path, times)).speedups}
    assert found == pytest.approx({"torch ddp x2": 2.0, "torch ddp x2 compile=true": 1.6})
    # Where there is none, the plain one is still the framework's own.
    del times[compiled[0]]
    found = {r.name: r.median for r in scaling_of(rounds_of(tmp_path / "b", times)).speedups}
    assert found["torch ddp x2 compile=true"] == pytest.approx(2.0)


def test_pinning_is_reported_only_where_all_runs_had_it(tmp_path: Path) -> None:
    pinned = [p.model_copy(update={"pin": True}) for p in (TORCH, DDP)]
    for name, placements, expected in (("a", pinned, True), ("b", [pinned[0], DDP], False)):
        assert scaling_of(rounds_of(tmp_path / name, {p: [1.0] for p in placements})).pinned is expected


@pytest.mark.parametrize(
    "placements",
    [[TORCH], [DDP], [DDP, FSDP], [TORCH, MIRRORED]],
    ids=lambda ps: ", ".join(p.label for p in ps),
)
def test_where_nothing_can_be_compared_there_is_nothing(tmp_path: Path, placements: list[Placement]) -> None:
    assert analyse(rounds_of(tmp_path, {placement: [1.0] for placement in placements})) is None


def test_without_whole_rounds_there_is_nothing(tmp_path: Path) -> None:
    assert analyse([]) is None
    rounds = rounds_of(tmp_path, {TORCH: [1.0, 1.0], DDP: [1.0, 1.0]})
    assert analyse(rounds) is not None
    assert analyse([rounds[0], rounds[1][:1]]) is None, "the second round is not complete"
    assert analyse([rounds[0], [*rounds[1], rounds[1][0]]]) is None, "one run twice"


def test_cores_and_crowding(tmp_path: Path) -> None:
    four = Placement(framework="torch", strategy="ddp", replicas=4)
    result = scaling_of(rounds_of(tmp_path, {TORCH: [1.0] * 3, DDP: [0.5] * 3, four: [0.5] * 3}))
    by_replicas = {c.replicas: c for c in result.configurations}
    assert [by_replicas[n].oversubscribed for n in (1, 2, 4)] == [False, False, True]
    assert (by_replicas[4].crowding, by_replicas[2].crowding) == (2.0, 1.0)
    assert by_replicas[2].per_unit.median == pytest.approx(32.0)
    assert by_replicas[2].unit == "core" and by_replicas[2].units == 2
    assert any("took turns" in note for note in result.notes)


def test_memory_is_of_one_replica(tmp_path: Path) -> None:
    for placement in (TORCH, MIRRORED, DDP):
        record = one(tmp_path, placement)
        (record.folder / "memory").mkdir()
        for rank in range(placement.processes):
            path = record.folder / "memory" / f"rank_{rank}.json"
            path.write_text("{}")
            edit_json(path, parameters=100, peak_resident=600)
    rounds = [[timed(one_read(tmp_path, p), 1.0) for p in (TORCH, TENSORFLOW, MIRRORED, DDP)]]
    held = {c.label: c.memory_bytes for c in scaling_of(rounds).configurations}
    assert held == {
        "torch single x1": {"parameters": 100, "peak_resident": 600},
        "tensorflow mirrored x1": {},
        "tensorflow mirrored x2": {"parameters": 100, "peak_resident": 300},  # one process has both replicas
        "torch ddp x2": {"parameters": 100, "peak_resident": 600},
    }


def one_read(folder: Path, placement: Placement) -> RunRecord:
    """The record of `one`, read once more, so that nothing of it is remembered."""
    path = folder / f"{placement.label} {EVEN.global_batch_size}"
    return read_record(path) if path.exists() else one(folder, placement)


# --- causes ---


def losses(rounds: list[list[RunRecord]]) -> dict[str, Cause]:
    (loss,) = scaling_of(rounds).losses
    assert sum(cause.seconds for cause in loss.causes) == pytest.approx(loss.lost_seconds)
    return {cause.name: cause for cause in loss.causes}


def pair_with_phases(
    folder: Path, alone: dict[str, float], together: list[dict[str, float]], seconds: float
) -> list[list[RunRecord]]:
    messages = [["all_reduce", 1000], ["all_reduce", 500]]
    return [
        [
            with_phases(timed(one(folder, TORCH), 1.0), [alone], []),
            with_phases(timed(one(folder, DDP), seconds), together, messages),
        ]
    ]


def test_exposed_communication_is_named(tmp_path: Path) -> None:
    rounds = pair_with_phases(tmp_path, phases(1.0), [phases(0.5, 0.1)] * 2, 0.62)
    found = losses(rounds)
    assert found["communication"].seconds == pytest.approx(0.1)
    assert found["communication"].share_of_step == pytest.approx(0.1 / 0.62)
    assert found["communication"].share_of_loss == pytest.approx(0.1 / 0.12)
    assert found["unexplained"].seconds == pytest.approx(0.02)
    assert all(found[name].seconds == pytest.approx(0) for name in ("data", "imbalance", "batch too small"))
    result = scaling_of(rounds)
    assert "communication that nothing hides" in result.losses[0].sentence
    times = result.configurations[1].phases
    assert times is not None
    assert (times.exposed, times.hidden) == pytest.approx((0.1, 0.1))
    assert (times.message_bytes, times.messages) == ({"all_reduce": 1500}, {"all_reduce": 2})


def test_a_replica_that_sends_nothing_exposes_nothing(tmp_path: Path) -> None:
    alone = phases(1.0, 0.05)
    result = scaling_of(pair_with_phases(tmp_path, alone, [phases(0.5, 0.05)] * 2, 0.55))
    first, second = (c.phases for c in result.configurations)
    assert first is not None and second is not None
    assert (first.exposed, first.hidden, first.communication) == (0.0, 0.0, 0.0)
    assert second.exposed == pytest.approx(0.05)


def test_phases_that_are_not_all_there_are_none(tmp_path: Path) -> None:
    some = phases(1.0)
    del some["forward"]
    result = scaling_of(pair_with_phases(tmp_path, some, [phases(0.5)] * 2, 0.6))
    assert result.configurations[0].phases is None and result.configurations[1].phases is not None
    assert [cause.name for cause in result.losses[0].causes] == ["unexplained"]


def test_reductions_that_speed_things_up_cost_nothing(tmp_path: Path) -> None:
    found = losses(pair_with_phases(tmp_path, phases(1.0), [phases(0.5, -0.01)] * 2, 0.5))
    assert found["communication"].seconds == 0.0


@pytest.mark.parametrize(
    ("together", "cause"),
    [
        ([phases(0.5, data=0.2)] * 2, "data"),
        ([phases(0.3), phases(0.7)], "imbalance"),
        ([phases(0.5, optimizer=0.2)] * 2, "optimizer"),
        ([phases(0.7)] * 2, "batch too small"),
    ],
)
def test_each_cause_is_found(tmp_path: Path, together: list[dict[str, float]], cause: str) -> None:
    found = losses(pair_with_phases(tmp_path, phases(1.0), together, 0.7))
    assert max(found.values(), key=lambda c: c.seconds).name == cause
    assert found[cause].seconds == pytest.approx(0.2)
    assert found["unexplained"].seconds == pytest.approx(0, abs=1e-12)


def test_weak_runs_tell_shared_cores_from_small_batches(tmp_path: Path) -> None:
    def found(weak_compute: float) -> dict[str, Cause]:
        (round_,) = pair_with_phases(tmp_path / str(weak_compute), phases(1.0), [phases(0.7)] * 2, 0.7)
        weak = timed(one(tmp_path / str(weak_compute), DDP, DOUBLE), 2 * weak_compute)
        result = scaling_of([[*round_, with_phases(weak, [phases(weak_compute)] * 2, [])]])
        (strong,) = (loss for loss in result.losses if loss.mode == "strong")
        return {cause.name: cause for cause in strong.causes}

    # The same batch a replica takes as long as alone: it is the smaller batch that costs.
    assert found(1.0)["batch too small"].seconds == pytest.approx(0.2)
    # It takes 1.4 times as long: the replicas stand in each other's way, and all is explained by that.
    assert found(1.4)["cores shared"].seconds == pytest.approx(0.2)


def test_without_phases_all_is_unexplained(tmp_path: Path) -> None:
    (loss,) = scaling_of(rounds_of(tmp_path, {TORCH: [1.0], DDP: [0.6]})).losses
    assert [cause.name for cause in loss.causes] == ["unexplained"]
    assert loss.lost_seconds == pytest.approx(0.1)
    assert "no phase times" in loss.sentence


def test_nothing_lost_is_said(tmp_path: Path) -> None:
    (loss,) = scaling_of(rounds_of(tmp_path, {TORCH: [1.0], DDP: [0.5]})).losses
    assert loss.sentence == "torch ddp x2 loses nothing that could be seen."
    assert math.isnan(loss.causes[0].share_of_loss)


# --- targets ---


def falling(folder: Path, placement: Placement, seconds: float) -> RunRecord:
    """Losses 20, 19, ... 1."""
    record = timed(one(folder, placement), seconds)
    losses = record.columns["count"] * np.arange(STEPS, 0, -1)
    return replace(record, columns={**record.columns, "loss_sum": losses})


def test_time_to_loss_by_hand(tmp_path: Path) -> None:
    rounds = [
        [falling(tmp_path / str(n), TORCH, 1.0 + n), falling(tmp_path / str(n), DDP, 0.5)] for n in range(3)
    ]
    alone, two = scaling_of(rounds, target_loss=10.0).targets
    # The median of nine losses is the fifth: 10 once the step with a loss of 6, the fifteenth, is done.
    assert (alone.steps, alone.samples, alone.reached) == (15.0, 15 * 32.0, True)
    assert alone.seconds == pytest.approx(15 * 2.0), "the median of the rounds"
    assert two.seconds == pytest.approx(7.5)
    assert alone.best == 5.0


def test_one_lucky_batch_reaches_nothing(tmp_path: Path) -> None:
    record = falling(tmp_path, TORCH, 1.0)
    lucky = record.columns["loss_sum"].copy()
    lucky[3:7] = 0.0
    rounds = [[replace(record, columns={**record.columns, "loss_sum": lucky}), falling(tmp_path, DDP, 0.5)]]
    targets = scaling_of(rounds, target_loss=2.0).targets
    assert not any(target.reached for target in targets)
    assert "not reached" in targets[0].note and math.isnan(targets[0].seconds)


def test_a_loss_that_is_no_number_reaches_nothing(tmp_path: Path) -> None:
    record = falling(tmp_path, TORCH, 1.0)
    broken = replace(record, columns={**record.columns, "loss_sum": np.full(STEPS, np.nan)})
    target = scaling_of([[broken, falling(tmp_path, DDP, 0.5)]], target_loss=50.0).targets[0]
    assert not target.reached


def test_time_to_accuracy(tmp_path: Path) -> None:
    rounds = rounds_of(tmp_path, {TORCH: [1.0], DDP: [0.5]})
    (record, _) = rounds[0]
    assert record.summary is not None
    reached = record.summary.eval_correct / record.summary.eval_count
    alone, two = scaling_of(rounds, target_accuracy=reached).targets
    assert (alone.reached, alone.seconds, two.seconds) == (True, STEPS * 1.0, STEPS * 0.5)
    missed = scaling_of(rounds, target_accuracy=reached + 0.01).targets[0]
    assert not missed.reached and missed.best == reached


# --- projection and laws, as parts of the whole ---


def test_projections_and_laws_say_why_they_are_missing(tmp_path: Path) -> None:
    result = scaling_of(rounds_of(tmp_path, {TORCH: [1.0], DDP: [0.6]}), devices=64)
    assert "phase" in result.projections[0].why_not and not result.projections[0].points
    assert all("replica counts" in law.why_not for law in result.laws)
    with pytest.raises(SpecError, match="alpha"):
        analyse(rounds_of(tmp_path / "b", {TORCH: [1.0], DDP: [0.6]}), link="fast")


def test_a_projection_of_recorded_phases(tmp_path: Path) -> None:
    rounds = pair_with_phases(tmp_path, phases(1.0), [phases(0.5, 0.1)] * 2, 0.6)
    (projection,) = scaling_of(rounds, devices=32, link="ndr").projections
    assert {(p.devices, p.mode) for p in projection.points} == {
        (2**n, mode) for n in range(6) for mode in ("strong", "weak")
    }
    assert "InfiniBand NDR" in projection.link and not projection.why_not
    assert scaling_of(rounds).projections == ()


def test_laws_are_fitted_where_there_are_cores_for_the_points(tmp_path: Path) -> None:
    sizes = {n: Placement(framework="torch", strategy="ddp", replicas=n, pin=True) for n in (2, 4, 8)}
    # A tenth of the work is serial. Pinned runs have cores enough.
    times = {sizes[n]: [0.1 + 0.9 / n] * 3 for n in sizes}
    result = scaling_of(rounds_of(tmp_path, {TORCH: [1.0] * 3} | times))
    amdahl, universal = result.laws
    assert amdahl.parameters["serial"].median == pytest.approx(0.1)
    assert amdahl.limit == pytest.approx(10)
    assert universal.parameters["sigma"].median == pytest.approx(0.1, abs=1e-6)
    assert universal.parameters["kappa"].median == pytest.approx(0, abs=1e-6)
    # The control: on two cores the larger ones only take turns, and nothing is fitted to them.
    crowded = {
        Placement(framework="torch", strategy="ddp", replicas=n): t
        for n, t in zip(sizes, times.values(), strict=True)
    }
    left_out = scaling_of(rounds_of(tmp_path / "crowded", {TORCH: [1.0] * 3} | crowded)).laws
    assert all("4, 8 with more threads than cores" in law.why_not for law in left_out)
