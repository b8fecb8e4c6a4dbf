"""Replays in TensorFlow: what a probe sees is what the run did, and what it feeds is what the run goes on with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.data.plan import BatchPlan
from common.diagnose.lab import Lab, Variant
from common.spec import Placement, walk
from common.state import State, load_state, null_directions, save_state
from common.trace import (
    FORCED,
    TRACE,
    Trace,
    is_of_samples,
    read_layers,
    state_file,
    step_folder,
    write_replica,
)
from parity_tests.conftest import Farm
from parity_tests.matrix import small, tensorflow
from parity_tests.test_replay_torch import (
    FEW,
    LIMIT,
    REPLAY,
    SPECS,
    assert_equal,
    deviation,
    fed,
    names_of,
    off,
    replayed,
    trace,
)

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
def feed(farm: Farm, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], str]:
    """The folder that feeds a replica count what one replica saw of a spec."""
    made: dict[tuple[str, int], str] = {}
    numbers = itertools.count()

    def of(name: str, replicas: int) -> str:
        if (name, replicas) not in made:
            folder = tmp_path_factory.mktemp("fed") / str(next(numbers))
            made[name, replicas] = fed(replayed(farm, SPECS[name], SINGLE), folder, replicas)
        return made[name, replicas]

    return of


def rarely(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


PLACEMENTS = [
    (MIRRORED, "mlp"),
    (tensorflow(2, accumulation=2), "cut"),
    rarely(MULTI_WORKER, "mlp"),
    rarely(MIRRORED, "cnn"),
    rarely(tensorflow(2, accumulation=2), "float16"),
    pytest.param(tensorflow(2, accumulation=2), "transformer", marks=pytest.mark.exhaustive),
]
IDS = [
    "-".join(map(str, (values[0].label, values[1])))
    for values in (getattr(p, "values", p) for p in PLACEMENTS)
]


@pytest.mark.parametrize(("placement", "name"), PLACEMENTS, ids=IDS)
def test_a_trace_does_not_depend_on_the_placement(
    farm: Farm, feed: Callable[[str, int], str], placement: Placement, name: str
) -> None:
    """Neither of steps as they are trained, nor of steps fed with those of one replica."""
    spec = SPECS[name]
    reference = replayed(farm, spec, SINGLE)
    record = replayed(farm, spec, placement, forced=feed(name, placement.replicas))
    for kind in (TRACE, FORCED):
        for step in (0, 2):
            seen = trace(record, step, kind)
            assert off(spec, trace(reference, step), seen) == set()
            for replica in seen.replicas:
                assert names_of(spec, placement) == {n for n in replica if not n.startswith("input/")}
        assert off(spec, trace(reference, None), trace(record, None, kind)) == set()
    # The replicas' own samples, not those of all.
    assert [len(ids) for ids in trace(record, 2).each("ids")] == [
        len(BatchPlan.of(spec, placement).local_ids(2, replica)) for replica in range(placement.replicas)
    ]


def test_looking_does_not_change_the_run(farm: Farm) -> None:
    """Bit for bit, though a traced step is another graph, and steps are forced after it."""
    plain, looked = farm.record(MLP, MIRRORED), replayed(farm, MLP, MIRRORED)
    for column in set(plain.columns) - {"seconds"}:
        assert (plain.columns[column] == looked.columns[column]).all(), column
    for which in ("initial", "first_gradients", "final"):
        assert_equal(plain.state(which), looked.state(which))
    assert plain.summary is not None and looked.summary is not None
    assert plain.summary.eval_loss_sum == looked.summary.eval_loss_sum
    assert_equal(looked.state("final"), load_state(state_file(looked.folder, 4)))
    for seen in trace(looked, 2).replicas:
        assert float(seen["total/loss_sum"]) + 0 < plain.columns["loss_sum"][2], "without the penalty"
        assert_equal(
            load_state(state_file(looked.folder, 2)),
            {name.removeprefix("before/"): seen[name] for name in seen if name.startswith("before/")},
        )


def test_a_run_goes_on_from_a_state_that_was_kept(farm: Farm) -> None:
    whole = replayed(farm, MLP, MIRRORED)
    begin, history = str(state_file(whole.folder, 2)), str(whole.folder)
    rest = replayed(farm, MLP, MIRRORED, first_step=2, begin=begin, history=history, trace=(2,), states=())
    assert rest.steps.tolist() == [2, 3]
    for column in set(whole.columns) - {"seconds"}:
        assert (whole.columns[column][2:] == rest.columns[column]).all(), column
    assert_equal(whole.state("final"), rest.state("final"))
    for ours, theirs in zip(trace(whole, 2).replicas, trace(rest, 2).replicas, strict=True):
        assert_equal(ours, theirs)


FAULTS = [
    ("one_parameter_never_reduced", "mlp", 0, ("gradient/dense_2/bias",)),
    rarely("labels_one_batch_late", "mlp", 1, ("targets",)),
    rarely("a_replica_keeps_stale_parameters", "mlp", 1, ("after/parameters/",)),
    rarely("evaluated_in_training_mode", "mlp", None, ("forward/batch_norm",)),
]


@pytest.mark.parametrize(("fault", "name", "step", "places"), FAULTS)
def test_a_forced_step_deviates_only_where_the_fault_is(
    farm: Farm,
    feed: Callable[[str, int], str],
    fault: str,
    name: str,
    step: int | None,
    places: tuple[str, ...],
) -> None:
    spec = SPECS[name]
    reference = replayed(farm, spec, SINGLE)
    record = replayed(farm, spec, MIRRORED, fault, forced=feed(name, 2))
    ours, theirs = trace(reference, step), trace(record, step, FORCED)
    found = off(spec, ours, theirs)
    if step is not None:
        # What all replicas should hold alike, of the second one too.
        kept = {n: a for n, a in theirs.replicas[1].items() if n.startswith(("gradient/", "after/"))}
        found |= off(spec, ours, Trace((kept,)))
    assert found and all(each.startswith(places) for each in found), found
    # Not fed, it shows in what follows, too.
    if step is not None:
        assert len(off(spec, trace(reference, 2), trace(record, 2))) > len(found)


def test_a_step_goes_on_with_what_it_is_fed(farm: Farm, tmp_path: Path) -> None:
    """With any numbers, and though it is cut."""
    reference = replayed(farm, CUT, SINGLE)
    (seen,) = trace(reference, 0).replicas
    draw = np.random.default_rng(0)
    strange = {
        name: array + 0.1 * draw.standard_normal(array.shape)
        for name, array in seen.items()
        if name.startswith(("forward/", "backward/activation", "total/"))
    }
    folders = [tmp_path / "single", tmp_path / "other"]
    for folder, replicas in zip(folders, (1, 2), strict=True):
        here = step_folder(folder, 0)
        here.mkdir(parents=True)
        save_state(here / "state.safetensors", reference.state("initial"))
        size = len(seen["ids"]) // replicas
        for replica in range(replicas):
            rows = slice(replica * size, (replica + 1) * size)
            cut = {n: array[rows] if is_of_samples(n) else array for n, array in strange.items()}
            write_replica(here, replica, cut)
    records = [
        replayed(farm, CUT, placed, forced=str(folder))
        for placed, folder in zip((SINGLE, tensorflow(2, accumulation=2)), folders, strict=True)
    ]
    ours, theirs = (trace(record, 0, FORCED) for record in records)
    assert off(CUT, ours, theirs) == set()
    assert deviation(ours.whole("gradient/dense_1/kernel"), seen["gradient/dense_1/kernel"]) > 1e-3
    # What is kept of a fed place is what the step itself had made there.
    assert (ours.replicas[0]["forward/flatten"] == seen["forward/flatten"]).all()


@pytest.mark.parametrize("name", ["mlp", rarely("transformer"), rarely("cnn")])
def test_a_layer_tried_by_itself_does_what_it_did_in_the_step(farm: Farm, tmp_path: Path, name: str) -> None:
    spec = SPECS[name].resolved()
    record = replayed(farm, spec, SINGLE)
    (seen,) = trace(record, 2).replicas
    sources = read_layers(step_folder(record.folder / TRACE, 2))
    nodes = [node for node in walk(spec.model.tree()) if node.path in sources]
    assert len(nodes) == len(sources) > 7
    variants = []
    for node in nodes:
        inside = tuple(f"/{each.path}/" for each in walk(node))
        variants.append(
            Variant(
                layer=node.spec,
                path=node.path,
                input_shape=node.input_shape,
                x=seen[sources[node.path]],
                tensors={
                    n.removeprefix("before/"): a
                    for n, a in seen.items()
                    if n.startswith(("before/parameters/", "before/buffers/")) and any(i in n for i in inside)
                },
                dy=seen.get(f"backward/{node.path}"),
                ids=seen["ids"],
                step=2,
                seed=spec.seed,
            )
        )
    results = tried(farm, tmp_path, [*variants, replace(variants[-1], tensors={})])
    assert results.pop() is None, "it lacked its kernel"
    for node, found in zip(nodes, results, strict=True):
        assert found is not None
        for result, array in found.items():
            kind, _, rest = result.partition("/")
            if kind == "dx":
                continue
            there = {"y": f"forward/{node.path}", "gradient": f"local_gradient/{rest}", "after": result}[kind]
            if not any(result.endswith(f"/{null}") for null in null_directions(spec)):
                assert deviation(seen[there], array) <= LIMIT, (node.path, result)


def tried(farm: Farm, folder: Path, variants: list[Variant]) -> list[State | None]:
    class ByFarm:
        def trial(self, framework: str, folder: Path) -> None:
            farm._workers[framework].trial(SINGLE, folder)

    lab = Lab(ByFarm(), folder, CUT, (SINGLE, SINGLE), (None, None), REPLAY)  # type: ignore[arg-type]
    return lab.trial(variants)
