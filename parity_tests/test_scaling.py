"""Speedups: medians of per-round ratios, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from common.parity.scaling import WARM_UP_STEPS, analyse, throughput
from common.record import RunRecord
from common.spec import Placement
from parity_tests.synthetic import DDP, MIRRORED, TENSORFLOW, TORCH, Run, timed, tiny_spec

FSDP = Placement(framework="torch", strategy="fsdp2", replicas=2)
STEPS = WARM_UP_STEPS + 10
# One batch an epoch: every step has 32 samples.
EVEN = tiny_spec("data.train_samples=32", "global_batch_size=32", f"steps={STEPS}")


def one(folder: Path, placement: Placement, spec: object = EVEN) -> RunRecord:
    return Run.of(spec, placement).write(folder / placement.label)  # type: ignore[arg-type]


def rounds_of(folder: Path, seconds: dict[Placement, list[float]]) -> list[list[RunRecord]]:
    """Rounds of runs whose steps all take the given seconds, one number a round."""
    records = {placement: one(folder, placement) for placement in seconds}
    count = len(next(iter(seconds.values())))
    return [[timed(records[p], times[number]) for p, times in seconds.items()] for number in range(count)]


def test_throughput_is_the_median_after_the_warm_up(tmp_path: Path) -> None:
    record = one(tmp_path, TORCH)
    slow_start = [100.0] * WARM_UP_STEPS
    # Per step 32/0.5, 32/1, 32/2: the median of equally many of each is 32.
    assert throughput(timed(record, [*slow_start, *[0.5, 1, 2] * 3, 1])) == 32.0
    # One very slow step does not move a median.
    assert throughput(timed(record, [*slow_start, *[0.5] * 9, 1000])) == 64.0
    assert throughput(timed(record, [*[0.001] * WARM_UP_STEPS, *[0.5] * 10])) == 64.0
    assert throughput(timed(record, [*[0.5] * (WARM_UP_STEPS - 1), *[1.0] * 11])) == 32.0


def test_a_smaller_tail_batch_counts_with_its_own_samples(tmp_path: Path) -> None:
    # Three batches an epoch: 16, 16, 5. Every sample takes a hundredth of a second.
    record = one(tmp_path, TORCH, tiny_spec(f"steps={STEPS}"))
    counts = record.columns["count"]
    assert set(counts.tolist()) == {16.0, 5.0}
    assert throughput(timed(record, list(counts / 100))) == pytest.approx(100.0)
    # Had the tail been taken for a whole batch, a median over steps of which half are tails would jump.
    halves = one(tmp_path / "halves", TORCH, tiny_spec("data.train_samples=20", f"steps={STEPS}"))
    assert throughput(timed(halves, list(halves.columns["count"] / 100))) == pytest.approx(100.0)


def test_speedups_are_medians_of_ratios_round_by_round(tmp_path: Path) -> None:
    result = analyse(
        rounds_of(
            tmp_path,
            {
                TORCH: [1.0, 2.0, 1.0],
                DDP: [0.5, 1.25, 0.8],  # ratios 2, 1.6, 1.25
                TENSORFLOW: [2.0, 2.0, 2.0],
                MIRRORED: [1.0, 1.0, 1.6],  # ratios 2, 2, 1.25
            },
        )
    )
    assert result is not None
    ddp, mirrored = result.speedups
    assert (ddp.name, ddp.replicas, ddp.rounds) == ("torch ddp x2", 2, 3)
    assert [ddp.median, ddp.low, ddp.high] == pytest.approx([1.6, 1.25, 2.0])
    assert ddp.efficiency == pytest.approx(0.8)
    assert [mirrored.median, mirrored.low, mirrored.high] == pytest.approx([2.0, 1.25, 2.0])
    # A ratio of medians would be 1 / 0.8 = 1.25.
    assert ddp.median != pytest.approx(1.25)
    assert result.samples_per_second == pytest.approx(
        {
            "torch single x1": 32.0,
            "torch ddp x2": 40.0,
            "tensorflow mirrored x1": 16.0,
            "tensorflow mirrored x2": 32.0,
        }
    )
    between = {ratio.name: ratio.median for ratio in result.between}
    assert between == pytest.approx(
        {
            "torch single x1 / tensorflow mirrored x1": 2.0,  # 2, 1, 2
            "torch ddp x2 / tensorflow mirrored x2": 2.0,  # 2, 0.8, 2
        }
    )
    assert result.timed_steps == 10 * 3


def test_the_order_inside_a_round_does_not_matter(tmp_path: Path) -> None:
    rounds = rounds_of(tmp_path, {TORCH: [1.0, 3.0], DDP: [0.5, 1.0]})
    result = analyse([rounds[0], rounds[1][::-1]])
    assert result is not None
    (ratio,) = result.speedups
    assert [ratio.median, ratio.low, ratio.high] == pytest.approx([2.5, 2.0, 3.0])


def test_every_strategy_is_measured_against_its_own_framework(tmp_path: Path) -> None:
    result = analyse(rounds_of(tmp_path, {TORCH: [1.0], TENSORFLOW: [9.0], DDP: [0.5], FSDP: [0.8]}))
    assert result is not None
    assert {r.name: r.median for r in result.speedups} == pytest.approx(
        {"torch ddp x2": 2.0, "torch fsdp2 x2": 1.25}
    )
    assert {r.name: r.median for r in result.between} == pytest.approx(
        {"torch single x1 / tensorflow mirrored x1": 9.0}
    )


def test_pinning_is_reported_only_where_all_runs_had_it(tmp_path: Path) -> None:
    pinned = [p.model_copy(update={"pin": True}) for p in (TORCH, DDP)]
    for name, placements, expected in (("a", pinned, True), ("b", [pinned[0], DDP], False)):
        result = analyse(rounds_of(tmp_path / name, {p: [1.0] for p in placements}))
        assert result is not None and result.pinned is expected


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


@pytest.mark.parametrize("steps", [1, WARM_UP_STEPS])
def test_runs_that_end_in_the_warm_up_have_no_speed(tmp_path: Path, steps: int) -> None:
    spec = tiny_spec(f"steps={steps}")
    records = [timed(one(tmp_path, placement, spec), 1.0) for placement in (TORCH, DDP)]
    assert math.isnan(throughput(records[0]))
    assert analyse([records]) is None, "a speedup of NaN says nothing"


def test_one_step_after_the_warm_up_is_timed(tmp_path: Path) -> None:
    spec = tiny_spec(f"steps={WARM_UP_STEPS + 1}")
    records = [one(tmp_path, placement, spec) for placement in (TORCH, DDP)]
    result = analyse([[timed(records[0], 1.0), timed(records[1], 0.5)]])
    assert result is not None and result.timed_steps == 1
    assert np.isclose(result.speedups[0].median, 2.0)
