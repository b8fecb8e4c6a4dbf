"""Replays in PyTorch: what a probe sees is what the run did, and what it feeds is what the run goes on with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import RunError
from parity.common.record.trace import FORCED, state_file
from parity.common.spec import Placement
from parity.common.spec.instrumentation import Replay
from parity_tests.faults.registry import Forced, parameters, trials
from parity_tests.helpers.matrix import config, small, torch
from parity_tests.helpers.replayed import (
    CNN,
    SPECS,
    TRANSFORMER,
    Feed,
    assert_equal,
    check_goes_on,
    check_kept_state,
    check_layers_alone,
    check_looked_into,
    check_strangely_fed,
    check_traces,
    feeding,
    ids_of,
    off,
    rarely,
    replayed,
    trace,
)
from parity_tests.helpers.run_cache import RunCache

GROWING = "loss_scale={initial: 1048576, growth_interval: 2}"
SINGLE, DDP = torch("single", 1), torch("ddp", 2)


@pytest.fixture(scope="module")
def inject(run_cache: RunCache, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return feeding(run_cache, SPECS, SINGLE, tmp_path_factory.mktemp("fed"))


PLACEMENTS = [
    (DDP, "cnn"),
    rarely(torch("fsdp2", 2), "transformer"),
    rarely(torch("ddp", 2, accumulation=2), "transformer"),
    rarely(torch("ddp", 4), "cnn"),
    rarely(torch("ddp", 2, options={"checkpoint": True}), "transformer"),
    rarely(torch("fsdp2", 2, options={"wrap": "blocks", "checkpoint": True}), "transformer"),
    rarely(torch("fsdp1", 2), "cnn"),
    rarely(torch("zero_redundancy", 2), "transformer"),
    rarely(torch("manual", 2), "cnn"),
    rarely(DDP, "float16"),
]


@pytest.mark.parametrize(("placement", "name"), PLACEMENTS, ids=ids_of(PLACEMENTS))
def test_a_trace_does_not_depend_on_the_placement(
    run_cache: RunCache, inject: Feed, placement: Placement, name: str
) -> None:
    """Neither of steps as they are trained, nor of steps fed with those of one replica."""
    reference = replayed(run_cache, SPECS[name], SINGLE)
    check_traces(
        reference, replayed(run_cache, SPECS[name], placement, forced=inject(name, placement.replicas))
    )


def test_looking_does_not_change_the_run(run_cache: RunCache) -> None:
    """Bit for bit, though steps are forced after it."""
    plain, looked = run_cache.record(CNN, DDP), replayed(run_cache, CNN, DDP)
    check_looked_into(plain, looked)
    seen = trace(looked, 2).replicas[0]
    assert float(seen["total/loss_sum"]) == plain.columns["loss_sum"][2]
    check_kept_state(looked, seen)


@pytest.mark.parametrize("name", ["cnn", rarely("float16")])
def test_a_run_goes_on_from_a_state_that_was_kept(run_cache: RunCache, name: str) -> None:
    check_goes_on(run_cache, SPECS[name], DDP)


@pytest.mark.slow
def test_steps_can_be_forced_where_none_is_trained(run_cache: RunCache, inject: Feed) -> None:
    """As permuted replays are, for the noise of low precisions."""
    forced, nothing = inject("cnn", 2), {"stop": 0, "trace": (), "states": (), "evaluation": False}
    after, alone = (replayed(run_cache, CNN, DDP, forced=forced, **more) for more in ({}, nothing))
    assert alone.steps.tolist() == []
    for step in (0, 1, 2):
        for ours, theirs in zip(
            trace(after, step, FORCED).replicas, trace(alone, step, FORCED).replicas, strict=True
        ):
            assert_equal(ours, theirs)


@pytest.mark.exhaustive
def test_a_history_may_be_in_several_records(run_cache: RunCache) -> None:
    """The loss scale of a step follows from all steps before it."""
    spec = small("digits_mlp", "steps=6", "data.train_samples=70", "precision=float16_mixed", GROWING)
    whole = run_cache.record(spec, config(DDP, replay=Replay(stop=6, states=(2, 4))))
    assert len(set(whole.columns["loss_scale"])) > 3
    history = run_cache.record(spec, config(DDP, replay=Replay(stop=2)))
    for first, stop in ((2, 4), (4, 6)):
        begin = str(state_file(whole.folder, first))
        replay = Replay(first_step=first, stop=stop, begin=begin, history=str(history.folder))
        history = run_cache.record(spec, config(DDP, replay=replay))
        for column in set(whole.columns) - {"seconds"}:
            same = np.array_equal(whole.columns[column][first:stop], history.columns[column], equal_nan=True)
            assert same, column


@pytest.mark.parametrize("case", parameters(trials(Forced, "torch")))
def test_a_forced_step_deviates_only_where_the_fault_is(
    run_cache: RunCache, inject: Feed, case: Forced
) -> None:
    spec, step = SPECS[case.spec], case.step
    reference = replayed(run_cache, spec, SINGLE)
    record = replayed(run_cache, spec, case.placement, case.fault, forced=inject(case.spec, 2))
    found = off(spec, trace(reference, step), trace(record, step, FORCED))
    assert found and all(each.startswith(case.places) for each in found), found
    # Not fed, it shows in what follows, too.
    if step is not None:
        assert len(off(spec, trace(reference, 2), trace(record, 2))) > len(found)


@pytest.mark.parametrize(
    "placement",
    [
        torch("ddp", 2, accumulation=2),
        rarely(torch("fsdp2", 2, options={"wrap": "blocks", "checkpoint": True})),
    ],
    ids=lambda p: p.label,
)
def test_a_step_goes_on_with_what_it_is_fed(
    run_cache: RunCache, tmp_path: Path, placement: Placement
) -> None:
    """With any numbers, also where it is computed again for the backward pass."""
    check_strangely_fed(run_cache, TRANSFORMER, (SINGLE, placement), "backward/residual/", tmp_path)


@pytest.mark.parametrize("name", ["transformer", rarely("cnn")])
def test_a_layer_tried_by_itself_does_what_it_did_in_the_step(
    run_cache: RunCache, tmp_path: Path, name: str
) -> None:
    check_layers_alone(run_cache, tmp_path, SPECS[name], SINGLE, 8)


@pytest.mark.exhaustive
def test_a_step_that_was_looked_into_is_let_go_of(run_cache: RunCache) -> None:
    """Hooks hold tensors that hold them where Python's collector cannot see it."""
    run = config(DDP, replay={"stop": 5, "trace": (0, 1, 2, 3, 4)})
    run_cache.record(SPECS["cnn"], run, "parity_tests.bodies.held_tensors:counted")
    with pytest.raises(RunError, match="tensors held after each step"):
        run_cache.record(SPECS["cnn"], run, "parity_tests.bodies.held_tensors:counted_unreleased")
