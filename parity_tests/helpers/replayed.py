"""What the tests of replays share: specs, runs that are looked into, and what must hold of them in either framework."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.common.data.plan import BatchPlan
from parity.common.diagnosis.explain.counterfactuals import Counterfactuals, Variant
from parity.common.record import RunRecord, taps
from parity.common.record.trace import (
    FORCED,
    TRACE,
    Trace,
    is_of_samples,
    read_layers,
    state_file,
    step_folder,
    write_replica,
)
from parity.common.reference import StepScalars
from parity.common.spec import Placement, TrainSpec, walk
from parity.common.spec.instrumentation import Replay
from parity.common.state.canonical import State, initial_state, load_state, save_state
from parity.common.state.zero_gradient import zero_gradient_directions
from parity_tests.helpers.matrix import config, small, torch
from parity_tests.helpers.run_cache import RunCache

# (name of a spec, replicas) -> the folder that feeds so many what one replica saw.
Feed = Callable[[str, int], str]

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
SPECS = {"cnn": CNN, "transformer": TRANSFORMER, "float16": HALF}
REPLAY = Replay(stop=4, trace=(0, 1, 2), states=(2, 4), evaluation=True)


def replayed(
    run_cache: RunCache, spec: TrainSpec, placement: Placement, fault: str | None = None, **more: object
) -> RunRecord:
    replay = REPLAY.model_copy(update=more)
    return run_cache.record(spec, config(placement, replay=replay), fault)


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
    ends = tuple(f"/{name}" for name in zero_gradient_directions(spec))
    names = {name for name in reference.names if name in other.names and not name.startswith("input/")}
    assert len(names) > 8
    return {
        name
        for name in names
        if not name.endswith(ends) and not deviation(reference.whole(name), other.whole(name)) <= limit
    }


def injected(reference: RunRecord, folder: Path, replicas: int) -> str:
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


def feeding(run_cache: RunCache, specs: Mapping[str, TrainSpec], single: Placement, parent: Path) -> Feed:
    """Feeds what a single replica saw; each folder is made once."""
    made: dict[tuple[str, int], str] = {}
    numbers = itertools.count()

    def of(name: str, replicas: int) -> str:
        if (name, replicas) not in made:
            folder = parent / str(next(numbers))
            made[name, replicas] = injected(replayed(run_cache, specs[name], single), folder, replicas)
        return made[name, replicas]

    return of


def rarely(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def ids_of(placements: list) -> list[str]:
    """Names of the parameters (placement, name of a spec)."""
    values = (getattr(parameters, "values", parameters) for parameters in placements)
    return [f"{placement.label}-{name}" for placement, name in values]


def names_of(spec: TrainSpec, placement: Placement) -> set[str]:
    """Of a step, as `parity.common.record.trace` lists them."""
    spec = spec.resolved()
    return {
        *("ids", "inputs", "targets", "loss_sum", "count", "total/loss_sum", "total/count", "updated"),
        *taps.names_of(spec, placement),
        *(f"clipped/{name}" for name in taps.tapped_parameters(spec)),
        *(f"{when}/{name}" for when in ("before", "after") for name in initial_state(spec)),
        *(f"scalar/{name}" for name in StepScalars(spec).scalars(0)),
    }


def assert_equal(a: State, b: State) -> None:
    assert set(a) == set(b) and len(a) > 3
    assert all((a[name] == b[name]).all() for name in a)


def check_traces(reference: RunRecord, record: RunRecord) -> None:
    """Neither steps as they are trained nor steps fed with those of one replica depend on the placement."""
    spec, placement = reference.spec, record.placement
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


def check_looked_into(plain: RunRecord, looked: RunRecord) -> None:
    """Looking changes no bit of the run."""
    for column in set(plain.columns) - {"seconds"}:
        assert (plain.columns[column] == looked.columns[column]).all(), column
    for which in ("initial", "first_gradients", "final"):
        assert_equal(plain.state(which), looked.state(which))
    assert plain.summary is not None and looked.summary is not None
    assert plain.summary.eval_loss_sum == looked.summary.eval_loss_sum
    assert_equal(looked.state("final"), load_state(state_file(looked.folder, 4)))


def check_kept_state(looked: RunRecord, seen: State) -> None:
    """What a replica began step 2 with is the state that was kept."""
    before = {name.removeprefix("before/"): seen[name] for name in seen if name.startswith("before/")}
    assert_equal(load_state(state_file(looked.folder, 2)), before)


def check_goes_on(run_cache: RunCache, spec: TrainSpec, placement: Placement) -> None:
    """A run that begins with a state that another has kept goes on as that one did."""
    whole = replayed(run_cache, spec, placement)
    begin, history = str(state_file(whole.folder, 2)), str(whole.folder)
    rest = replayed(
        run_cache, spec, placement, first_step=2, begin=begin, history=history, trace=(2,), states=()
    )
    assert rest.steps.tolist() == [2, 3]
    for column in set(whole.columns) - {"seconds"}:
        assert (whole.columns[column][2:] == rest.columns[column]).all(), column
    assert_equal(whole.state("final"), rest.state("final"))
    for ours, theirs in zip(trace(whole, 2).replicas, trace(rest, 2).replicas, strict=True):
        assert_equal(ours, theirs)


def check_strangely_fed(
    run_cache: RunCache, spec: TrainSpec, placements: tuple[Placement, Placement], fed_back: str, folder: Path
) -> tuple[State, Trace]:
    """Fed with any numbers, one replica and two go on with the same; what was seen before, and what then is."""
    reference = replayed(run_cache, spec, placements[0])
    (seen,) = trace(reference, 0).replicas
    draw = np.random.default_rng(0)
    strange = {
        name: array + 0.1 * draw.standard_normal(array.shape)
        for name, array in seen.items()
        if name.startswith(("forward/", fed_back, "total/"))
    }
    records = []
    for number, placement in enumerate(placements):
        here, replicas = step_folder(folder / str(number), 0), placement.replicas
        here.mkdir(parents=True)
        save_state(here / "state.safetensors", reference.state("initial"))
        size = len(seen["ids"]) // replicas
        for replica in range(replicas):
            rows = slice(replica * size, (replica + 1) * size)
            cut = {n: array[rows] if is_of_samples(n) else array for n, array in strange.items()}
            write_replica(here, replica, cut)
        records.append(replayed(run_cache, spec, placement, forced=str(folder / str(number))))
    ours, theirs = (trace(record, 0, FORCED) for record in records)
    assert off(spec, ours, theirs) == set()
    assert deviation(ours.whole("gradient/dense_1/kernel"), seen["gradient/dense_1/kernel"]) > 1e-3
    return seen, ours


def check_layers_alone(
    run_cache: RunCache, folder: Path, spec: TrainSpec, single: Placement, least: int
) -> None:
    """Each layer tried by itself does what it did in the step; there are more than `least` of them."""
    spec = spec.resolved()
    record = replayed(run_cache, spec, single)
    (seen,) = trace(record, 2).replicas
    sources = read_layers(step_folder(record.folder / TRACE, 2))
    nodes = [node for node in walk(spec.model.tree()) if node.path in sources]
    assert len(nodes) == len(sources) > least
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
    results = _tried(run_cache, folder, spec, single, [*variants, replace(variants[-1], tensors={})])
    assert results.pop() is None, "it lacked its kernel"
    for node, found in zip(nodes, results, strict=True):
        assert found is not None
        for result, array in found.items():
            kind, _, rest = result.partition("/")
            if kind == "dx":
                continue
            there = {"y": f"forward/{node.path}", "gradient": f"local_gradient/{rest}", "after": result}[kind]
            if not any(result.endswith(f"/{null}") for null in zero_gradient_directions(spec)):
                assert deviation(seen[there], array) <= LIMIT, (node.path, result)


def _tried(
    run_cache: RunCache, folder: Path, spec: TrainSpec, single: Placement, variants: list[Variant]
) -> list[State | None]:
    class ByRunCache:
        def trial(self, framework: str, folder: Path) -> None:
            run_cache.worker(framework).trial(single, folder)

    lab = Counterfactuals(ByRunCache(), folder, spec, (single, single), (None, None), REPLAY)  # type: ignore[arg-type]
    return lab.trial(variants)
