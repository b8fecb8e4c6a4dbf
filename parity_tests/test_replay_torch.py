"""Replays in PyTorch: what a probe sees is what the run did, and what it feeds is what the run goes on with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common import taps
from common.data.plan import BatchPlan
from common.diagnose.lab import Lab, Variant
from common.record import RunRecord
from common.reference import RateKeeper
from common.spec import Placement, TrainSpec, walk
from common.spec.replay import Replay
from common.state import State, initial_state, load_state, null_directions, save_state
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
from parity_tests.matrix import small, torch

LIMIT = 1e-12
# The third batch has six samples.
FEW = ("steps=4", "data.train_samples=70")
CNN = small("digits_cnn", *FEW)
# Dropout of attention weights, of features and of whole branches; clipped, and with a penalty.
TRANSFORMER = small(
    "digits_mlp",
    *FEW,
    "optimizer.clip_global_norm=0.05",
    "loss.l2=0.01",
    "model.layers=[{kind: patchify, size: 2}, {kind: dense, units: 8}, {kind: position_embedding},"
    " {kind: residual, drop_rate: 0.2, layers: [{kind: layer_norm}, {kind: self_attention, heads: 2,"
    " dropout: 0.2}, {kind: dropout, rate: 0.3}]}, {kind: add, layers: [{kind: identity},"
    " {kind: dense, units: 8}]}, {kind: global_average_pool}, {kind: dense, units: 10}]",
)
HALF = small("digits_mlp", *FEW, "precision=float16_mixed")
GROWING = "loss_scale={initial: 1048576, growth_interval: 2}"
SPECS = {"cnn": CNN, "transformer": TRANSFORMER, "float16": HALF}
REPLAY = Replay(stop=4, trace=(0, 1, 2), states=(2, 4), evaluation=True)
SINGLE, DDP = torch("single", 1), torch("ddp", 2)


def replayed(
    farm: Farm, spec: TrainSpec, placement: Placement, fault: str | None = None, **more: object
) -> RunRecord:
    replay = REPLAY.model_copy(update=more)
    return farm.record(spec, placement.model_copy(update={"replay": replay}), fault)


def trace(record: RunRecord, step: int | None, kind: str = TRACE) -> Trace:
    return Trace.read(step_folder(record.folder / kind, step), record.placement.replicas)


def deviation(a: np.ndarray, b: np.ndarray) -> float:
    """Relative to the largest element."""
    if a.shape != b.shape:
        return float("inf")
    ours, theirs = a.astype(np.float64), b.astype(np.float64)
    scale = max(np.abs(ours).max(initial=0), np.abs(theirs).max(initial=0), np.finfo(np.float64).tiny)
    return float(np.abs(ours - theirs).max(initial=0) / scale)


def off(spec: TrainSpec, reference: Trace, other: Trace) -> set[str]:
    """What deviates, of all that both have; but for gradients that are rounding only."""
    # float32 products, summed in another order.
    limit = LIMIT if spec.resolved().master_dtype == "float64" else 2e-5
    ends = tuple(f"/{name}" for name in null_directions(spec))
    names = {name for name in reference.names if name in other.names and not name.startswith("input/")}
    assert len(names) > 8
    return {
        name
        for name in names
        if not name.endswith(ends) and not deviation(reference.whole(name), other.whole(name)) <= limit
    }


def fed(reference: RunRecord, folder: Path, replicas: int) -> str:
    """A folder that feeds all that can be fed of the steps and the evaluation that a single replica traced."""
    plan = BatchPlan.of(reference.spec, torch("ddp", replicas))
    for step in (*REPLAY.trace, None):
        (seen,) = trace(reference, step).replicas
        here = step_folder(folder, step)
        here.mkdir(parents=True)
        begin = {name.removeprefix("before/"): seen[name] for name in seen if name.startswith("before/")}
        save_state(here / "state.safetensors", begin or reference.state("final"))
        for replica in range(replicas):
            rows = np.flatnonzero(np.isin(seen["ids"], plan.share(seen["ids"], replica)))
            named = {name: array[rows] for name, array in seen.items() if is_of_samples(name)}
            heads = ("total/", "gradient/", "clipped/", "scalar/")
            write_replica(here, replica, named | {n: a for n, a in seen.items() if n.startswith(heads)})
    return str(folder)


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
    (DDP, "cnn"),
    (torch("fsdp2", 2), "transformer"),
    rarely(torch("ddp", 2, accumulation=2), "transformer"),
    rarely(torch("ddp", 4), "cnn"),
    rarely(torch("ddp", 2, options={"checkpoint": True}), "transformer"),
    rarely(torch("fsdp2", 2, options={"wrap": "blocks", "checkpoint": True}), "transformer"),
    rarely(torch("fsdp1", 2), "cnn"),
    rarely(torch("zero_redundancy", 2), "transformer"),
    rarely(torch("manual", 2), "cnn"),
    rarely(DDP, "float16"),
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


def names_of(spec: TrainSpec, placement: Placement) -> set[str]:
    """Of a step, as `common.trace` lists them."""
    spec = spec.resolved()
    return {
        *("ids", "inputs", "targets", "loss_sum", "count", "total/loss_sum", "total/count", "updated"),
        *taps.names_of(spec, placement),
        *(f"clipped/{name}" for name in taps.tapped_parameters(spec)),
        *(f"{when}/{name}" for when in ("before", "after") for name in initial_state(spec)),
        *(f"scalar/{name}" for name in RateKeeper(spec).scalars(0)),
    }


def test_looking_does_not_change_the_run(farm: Farm) -> None:
    """Bit for bit, though steps are forced after it."""
    plain, looked = farm.record(CNN, DDP), replayed(farm, CNN, DDP)
    for column in set(plain.columns) - {"seconds"}:
        assert (plain.columns[column] == looked.columns[column]).all(), column
    for which in ("initial", "first_gradients", "final"):
        assert_equal(plain.state(which), looked.state(which))
    assert plain.summary is not None and looked.summary is not None
    assert plain.summary.eval_loss_sum == looked.summary.eval_loss_sum
    assert_equal(looked.state("final"), load_state(state_file(looked.folder, 4)))
    seen = trace(looked, 2).replicas[0]
    assert float(seen["total/loss_sum"]) == plain.columns["loss_sum"][2]
    assert_equal(
        load_state(state_file(looked.folder, 2)),
        {name.removeprefix("before/"): seen[name] for name in seen if name.startswith("before/")},
    )


def assert_equal(a: State, b: State) -> None:
    assert set(a) == set(b) and len(a) > 3
    assert all((a[name] == b[name]).all() for name in a)


@pytest.mark.parametrize("name", ["cnn", rarely("float16")])
def test_a_run_goes_on_from_a_state_that_was_kept(farm: Farm, name: str) -> None:
    whole = replayed(farm, SPECS[name], DDP)
    begin, history = str(state_file(whole.folder, 2)), str(whole.folder)
    rest = replayed(farm, SPECS[name], DDP, first_step=2, begin=begin, history=history, trace=(2,), states=())
    assert rest.steps.tolist() == [2, 3]
    for column in set(whole.columns) - {"seconds"}:
        assert (whole.columns[column][2:] == rest.columns[column]).all(), column
    assert_equal(whole.state("final"), rest.state("final"))
    for ours, theirs in zip(trace(whole, 2).replicas, trace(rest, 2).replicas, strict=True):
        assert_equal(ours, theirs)


@pytest.mark.slow
def test_steps_can_be_forced_where_none_is_trained(farm: Farm, feed: Callable[[str, int], str]) -> None:
    """As permuted replays are, for the noise of low precisions."""
    forced, nothing = feed("cnn", 2), {"stop": 0, "trace": (), "states": (), "evaluation": False}
    after, alone = (replayed(farm, CNN, DDP, forced=forced, **more) for more in ({}, nothing))
    assert alone.steps.tolist() == []
    for step in (0, 1, 2):
        for ours, theirs in zip(
            trace(after, step, FORCED).replicas, trace(alone, step, FORCED).replicas, strict=True
        ):
            assert_equal(ours, theirs)


@pytest.mark.slow
def test_a_history_may_be_in_several_records(farm: Farm) -> None:
    """The loss scale of a step follows from all steps before it."""
    spec = small("digits_mlp", "steps=6", "data.train_samples=70", "precision=float16_mixed", GROWING)
    whole = farm.record(spec, DDP.model_copy(update={"replay": Replay(stop=6, states=(2, 4))}))
    assert len(set(whole.columns["loss_scale"])) > 3
    history = farm.record(spec, DDP.model_copy(update={"replay": Replay(stop=2)}))
    for first, stop in ((2, 4), (4, 6)):
        begin = str(state_file(whole.folder, first))
        replay = Replay(first_step=first, stop=stop, begin=begin, history=str(history.folder))
        history = farm.record(spec, DDP.model_copy(update={"replay": replay}))
        for column in set(whole.columns) - {"seconds"}:
            same = np.array_equal(whole.columns[column][first:stop], history.columns[column], equal_nan=True)
            assert same, column


BATCH_NORM = tuple(
    f"{kind}_{number}{rest}"
    for number in (1, 2)
    for kind, rest in (
        ("forward/batch_norm", ""),
        ("backward/conv2d", ""),
        ("local_gradient/batch_norm", "/gamma"),
        ("gradient/batch_norm", "/gamma"),
    )
)
FAULTS = [
    ("batch_norm_epsilon", "cnn", 0, BATCH_NORM),
    ("labels_one_batch_late", "cnn", 1, ("targets",)),
    rarely("clipping_silently_off", "transformer", 0, ("clipped/",)),
    rarely(
        "dropout_keyed_by_place",
        "transformer",
        0,
        (
            "forward/residual",
            "backward/residual",
            "local_gradient/residual/self_attention",
            "gradient/residual/self_attention",
        ),
    ),
    rarely("evaluated_in_training_mode", "cnn", None, ("forward/batch_norm_",)),
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
    record = replayed(farm, spec, DDP, fault, forced=feed(name, 2))
    found = off(spec, trace(reference, step), trace(record, step, FORCED))
    assert found and all(each.startswith(places) for each in found), found
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
def test_a_step_goes_on_with_what_it_is_fed(farm: Farm, tmp_path: Path, placement: Placement) -> None:
    """With any numbers, also where it is computed again for the backward pass."""
    spec = TRANSFORMER
    reference = replayed(farm, spec, SINGLE)
    (seen,) = trace(reference, 0).replicas
    draw = np.random.default_rng(0)
    strange = {
        name: array + 0.1 * draw.standard_normal(array.shape)
        for name, array in seen.items()
        if name.startswith(("forward/", "backward/residual/", "total/"))
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
        replayed(farm, spec, placed, forced=str(folder))
        for placed, folder in zip((SINGLE, placement), folders, strict=True)
    ]
    ours, theirs = (trace(record, 0, FORCED) for record in records)
    assert off(spec, ours, theirs) == set()
    assert deviation(ours.whole("gradient/dense_1/kernel"), seen["gradient/dense_1/kernel"]) > 1e-3


@pytest.mark.parametrize("name", ["transformer", rarely("cnn")])
def test_a_layer_tried_by_itself_does_what_it_did_in_the_step(farm: Farm, tmp_path: Path, name: str) -> None:
    spec = SPECS[name].resolved()
    record = replayed(farm, spec, SINGLE)
    (seen,) = trace(record, 2).replicas
    sources = read_layers(step_folder(record.folder / TRACE, 2))
    nodes = [node for node in walk(spec.model.tree()) if node.path in sources]
    assert len(nodes) == len(sources) > 8
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

    lab = Lab(ByFarm(), folder, CNN, (SINGLE, SINGLE), (None, None), REPLAY)  # type: ignore[arg-type]
    return lab.trial(variants)
