"""Replays in TensorFlow: what a probe sees is what the run did, and what it feeds is what the run goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.common.record import read_record
from parity.common.record.trace import FORCED, Trace
from parity.common.spec import Instrumentation, Placement
from parity_tests.faults.registry import Forced, parameters, trials
from parity_tests.helpers.matrix import small, tensorflow
from parity_tests.helpers.replayed import (
    FEW,
    SPECS,
    Feed,
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

# Statistics over all replicas, a branch, clipped, and with a penalty; quick to trace.
MLP = small(
    "digits_mlp",
    *FEW,
    "optimizer.clip_global_norm=0.05",
    "loss.l2=0.01",
    "model.layers=[{kind: flatten}, {kind: dense, units: 16}, {kind: batch_norm}, {kind: activation, function: relu},"
    " {kind: residual, layers: [{kind: layer_norm}, {kind: dense, units: 16}]}, {kind: dense, units: 10}]",
)
# Without batch norm, so that a batch may be cut.
CUT = small("digits_mlp", *FEW)
SPECS = {**SPECS, "mlp": MLP, "cut": CUT}
SINGLE, MIRRORED = tensorflow(1), tensorflow(2)
MULTI_WORKER = Placement.parse({"framework": "tensorflow", "strategy": "multi_worker", "replicas": 2})


@pytest.fixture(scope="module")
def inject(run_cache: RunCache, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return feeding(run_cache, SPECS, SINGLE, tmp_path_factory.mktemp("fed"))


PLACEMENTS = [
    (MIRRORED, "mlp"),
    (tensorflow(2, accumulation=2), "cut"),
    rarely(MULTI_WORKER, "mlp"),
    rarely(MIRRORED, "cnn"),
    rarely(tensorflow(2, accumulation=2), "float16"),
    pytest.param(tensorflow(2, accumulation=2), "transformer", marks=pytest.mark.exhaustive),
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
    """Bit for bit, though a traced step is another graph, and steps are forced after it."""
    plain, looked = run_cache.record(MLP, MIRRORED), replayed(run_cache, MLP, MIRRORED)
    check_looked_into(plain, looked)
    for seen in trace(looked, 2).replicas:
        assert float(seen["total/loss_sum"]) + 0 < plain.columns["loss_sum"][2], "without the penalty"
        check_kept_state(looked, seen)


def test_a_run_goes_on_from_a_state_that_was_kept(run_cache: RunCache) -> None:
    check_goes_on(run_cache, MLP, MIRRORED)


@pytest.mark.parametrize("case", parameters(trials(Forced, "tensorflow")))
def test_a_forced_step_deviates_only_where_the_fault_is(
    run_cache: RunCache, inject: Feed, case: Forced
) -> None:
    spec, step = SPECS[case.spec], case.step
    reference = replayed(run_cache, spec, SINGLE)
    record = replayed(run_cache, spec, case.placement, case.fault, forced=inject(case.spec, 2))
    ours, theirs = trace(reference, step), trace(record, step, FORCED)
    found = off(spec, ours, theirs)
    if step is not None:
        # What all replicas should hold alike, of the second one too.
        kept = {n: a for n, a in theirs.replicas[1].items() if n.startswith(("gradient/", "after/"))}
        found |= off(spec, ours, Trace((kept,)))
    assert found and all(each.startswith(case.places) for each in found), found
    # Not fed, it shows in what follows, too.
    if step is not None:
        assert len(off(spec, trace(reference, 2), trace(record, 2))) > len(found)


def test_a_context_is_in_force_for_its_run_alone(run_cache: RunCache, tmp_path: Path) -> None:
    """The worker keeps traced steps; one traced in a context serves no run outside it, nor the other way round."""
    worker, context = run_cache.worker("tensorflow"), "parity_tests.faults.tensorflow:layer_norm_epsilon"
    contexts = {"before": None, "within": context, "after": None}
    losses = {
        name: read_record(
            worker.train(MLP, MIRRORED, tmp_path / name, instrumentation=Instrumentation(context=given))
        ).columns["loss_sum"]
        for name, given in contexts.items()
    }
    assert (losses["before"] == losses["after"]).all()
    assert (losses["before"] != losses["within"]).any()


def test_a_step_goes_on_with_what_it_is_fed(run_cache: RunCache, tmp_path: Path) -> None:
    """With any numbers, and though it is cut."""
    both = SINGLE, tensorflow(2, accumulation=2)
    seen, ours = check_strangely_fed(run_cache, CUT, both, "backward/activation", tmp_path)
    # What is kept of a fed place is what the step itself had made there.
    assert (ours.replicas[0]["forward/flatten"] == seen["forward/flatten"]).all()


@pytest.mark.parametrize("name", ["mlp", rarely("transformer"), rarely("cnn")])
def test_a_layer_tried_by_itself_does_what_it_did_in_the_step(
    run_cache: RunCache, tmp_path: Path, name: str
) -> None:
    check_layers_alone(run_cache, tmp_path, SPECS[name], SINGLE, 7)
