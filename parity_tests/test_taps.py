"""Taps: the same numbers wherever a step was computed, those of NumPy, and blind to nothing that a norm is."""

from __future__ import annotations

import numpy as np
import pytest

from parity.common.base.errors import SpecError
from parity.common.data import sources
from parity.common.execution.checks import check_run
from parity.common.record import RunRecord, taps
from parity.common.spec import RunConfig, TrainSpec
from parity.common.state.canonical import load_state
from parity.common.state.zero_gradient import zero_gradient_directions
from parity_tests.faults.registry import Tapped, parameters, trials
from parity_tests.helpers.fingerprints import activation_fingerprint, gradient_fingerprint
from parity_tests.helpers.matrix import config, small, tensorflow, torch
from parity_tests.helpers.records import one_line, received_ids
from parity_tests.helpers.run_cache import RunCache

LIMIT = 1e-12
# The third batch has two samples: over four replicas two of them have none.
FEW = ("steps=3", "data.train_samples=70")
CNN = small("digits_cnn", *FEW)
# Dropout of attention weights, of features and of whole branches.
TRANSFORMER = small(
    "digits_mlp",
    *FEW,
    "model.layers=[{kind: patchify, size: 2}, {kind: dense, units: 8}, {kind: position_embedding},"
    " {kind: residual, drop_rate: 0.2, layers: [{kind: layer_norm}, {kind: self_attention, heads: 2,"
    " dropout: 0.2}, {kind: dropout, rate: 0.3}]}, {kind: add, layers: [{kind: identity},"
    " {kind: dense, units: 8}]}, {kind: global_average_pool}, {kind: dense, units: 10}]",
)
MLP = small("digits_mlp", "steps=3")
SPECS = {"cnn": CNN, "transformer": TRANSFORMER, "mlp": MLP}
SINGLE = config(torch("single", 1), taps=True)
DDP = config(torch("ddp", 2), taps=True)


def tapped(run_cache: RunCache, spec: TrainSpec, run: RunConfig, fault: str | None = None) -> RunRecord:
    return run_cache.record(spec, run, fault)


def totals(record: RunRecord) -> dict[str, np.ndarray]:
    assert record.taps is not None
    return taps.totals(record.taps)


def apart(a: RunRecord, b: RunRecord, row: int | slice = slice(None)) -> dict[str, float]:
    """By name, the largest deviation over some steps, where a gradient is more than rounding."""
    theirs, spec = totals(b), a.header.spec
    ignored = {f"gradient/{name}" for name in zero_gradient_directions(spec)}
    return {
        name: float(np.max(taps.deviations(table[row], theirs[name][row])))
        for name, table in totals(a).items()
        if name not in ignored
    }


def assert_same(a: RunRecord, b: RunRecord) -> None:
    found = apart(a, b)
    assert set(totals(a)) == set(totals(b)) and len(found) > 10
    worst = max(found, key=found.__getitem__)
    assert found[worst] < LIMIT, (worst, found[worst])


@pytest.mark.parametrize("run", [DDP, config(tensorflow(2), taps=True)], ids=lambda p: p.label)
def test_totals_do_not_depend_on_the_placement(run_cache: RunCache, run: RunConfig) -> None:
    assert_same(tapped(run_cache, CNN, SINGLE), tapped(run_cache, CNN, run))


def rarely(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.exhaustive)


MORE = [
    (config(tensorflow(1), taps=True), "transformer"),
    (config(tensorflow(2, accumulation=2), taps=True), "transformer"),
    rarely(config(tensorflow(4), taps=True), "cnn"),
    (config(torch("ddp", 4), taps=True), "cnn"),
    (config(torch("ddp", 2, accumulation=2), taps=True), "transformer"),
    (config(torch("ddp", 2, options={"checkpoint": True}), taps=True), "transformer"),
    rarely(config(torch("ddp", 2, engine="fabric"), taps=True), "cnn"),
    rarely(config(torch("ddp", 2, engine="accelerate"), taps=True), "cnn"),
    rarely(config(torch("manual", 2), taps=True), "transformer"),
    rarely(config(torch("zero_redundancy", 2), taps=True), "cnn"),
    (config(torch("fsdp1", 2), taps=True), "transformer"),
    (config(torch("fsdp2", 2), taps=True), "cnn"),
    (config(torch("fsdp2", 2, options={"wrap": "blocks", "checkpoint": True}), taps=True), "transformer"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("run", "name"), MORE, ids=lambda value: getattr(value, "label", value))
def test_totals_of_all_that_can_be_tapped(run_cache: RunCache, run: RunConfig, name: str) -> None:
    assert_same(tapped(run_cache, SPECS[name], SINGLE), tapped(run_cache, SPECS[name], run))


@pytest.mark.parametrize("run", [SINGLE, config(tensorflow(2), taps=True)], ids=lambda p: p.label)
def test_the_digests_are_those_of_numpy(run_cache: RunCache, run: RunConfig) -> None:
    """Two dense layers by hand, at the first step."""
    record = tapped(run_cache, MLP, run)
    weights, gradients = (
        load_state(record.folder / f"{n}.safetensors") for n in ("initial", "first_gradients")
    )
    ids = np.concatenate([replica[0] for replica in received_ids(record)])
    samples, _ = sources.load_for(record.header.spec)
    inputs, labels = samples.rows(ids, 0)
    outputs = {"flatten": inputs.reshape(len(ids), -1)}
    dense = {
        name: (weights[f"parameters/{name}/kernel"], weights[f"parameters/{name}/bias"])
        for name in ("dense_1", "dense_2")
    }
    outputs["dense_1"] = outputs["flatten"] @ dense["dense_1"][0] + dense["dense_1"][1]
    outputs["activation"] = np.maximum(outputs["dense_1"], 0)
    outputs["dense_2"] = outputs["activation"] @ dense["dense_2"][0] + dense["dense_2"][1]
    likely = np.exp(outputs["dense_2"] - outputs["dense_2"].max(1, keepdims=True))
    backward = {"dense_2": likely / likely.sum(1, keepdims=True) - np.eye(10)[labels]}
    backward["activation"] = backward["dense_2"] @ dense["dense_2"][0].T
    backward["dense_1"] = backward["activation"] * (outputs["dense_1"] > 0)
    expected = {f"forward/{path}": activation_fingerprint(path, y, ids) for path, y in outputs.items()}
    expected |= {f"backward/{path}": activation_fingerprint(path, y, ids) for path, y in backward.items()}
    for name, gradient in gradients.items():
        below = name.removeprefix("parameters/")
        expected[f"gradient/{below}"] = gradient_fingerprint(below, gradient)
    found = totals(record)
    assert set(found) == set(expected)
    wrong = {n: taps.deviations(found[n][0], expected[n]) for n in found}
    assert max(wrong.values()) < LIMIT, wrong


@pytest.mark.parametrize("run", [DDP, config(tensorflow(2), taps=True)], ids=lambda p: p.label)
def test_local_gradients_add_up_to_the_reduced_ones(run_cache: RunCache, run: RunConfig) -> None:
    record = tapped(run_cache, CNN, run)
    assert record.taps is not None
    names, values = record.taps.names, record.taps.values
    for name in taps.tapped_parameters(record.header.spec):
        local = values[:, :, names.index(f"local_gradient/{name}"), taps.PROJECTION]
        reduced = values[:, :, names.index(f"gradient/{name}")]
        assert (reduced[0] == reduced[1]).all(), "each replica has the reduced gradient whole"
        size = np.sqrt(reduced[0, :, taps.SUM_OF_SQUARES])
        whole = local.sum(0) / record.columns["count"]
        assert (np.abs(whole - reduced[0, :, taps.PROJECTION]) < LIMIT * size).all()
        # Of one replica alone they are not.
        assert (np.abs(2 * local[0] / record.columns["count"] - whole) > 1e-6 * size).all()


def _activation() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    return draw.standard_normal((6, 4, 4, 5)), np.array([7, 3, 900, 12, 2**33, 1])


CHANGES = {
    "two channels exchanged": lambda x: x[..., [1, 0, 2, 3, 4]],
    "two samples exchanged": lambda x: x[[1, 0, 2, 3, 4, 5]],
    "height and width exchanged": lambda x: x.swapaxes(1, 2),
    "shifted by a column": lambda x: np.roll(x, 1, 2),
    "two numbers of one sample exchanged": lambda x: _exchanged(x, (0, 0, 0, 0), (0, 3, 2, 1)),
    "sign of one channel": lambda x: x * np.array([1, 1, -1, 1, 1]),
}


def _exchanged(x: np.ndarray, a: tuple[int, ...], b: tuple[int, ...]) -> np.ndarray:
    y = x.copy()
    y[a], y[b] = x[b], x[a]
    return y


@pytest.mark.parametrize("name", CHANGES)
def test_the_projection_sees_what_a_norm_does_not(name: str) -> None:
    x, ids = _activation()
    right, wrong = (activation_fingerprint("conv", each, ids) for each in (x, CHANGES[name](x)))
    assert np.isclose(right[0], wrong[0], rtol=1e-14)
    assert taps.deviations(right, wrong) > 1e-3


def test_a_transposed_square_gradient_is_seen() -> None:
    gradient = np.random.default_rng(4).standard_normal((8, 8))
    right, wrong = (gradient_fingerprint("dense/kernel", g) for g in (gradient, gradient.T))
    assert np.isclose(right[0], wrong[0], rtol=1e-14) and taps.deviations(right, wrong) > 1e-3


def test_digests_of_parts_add_up_in_any_order() -> None:
    x, ids = _activation()
    whole, order = activation_fingerprint("conv", x, ids), np.array([5, 0, 3, 1, 4, 2])
    parts = [activation_fingerprint("conv", x[part], ids[part]) for part in (order[:1], order[1:], order[:0])]
    assert taps.deviations(whole, sum(parts)) < LIMIT
    # With the ids of other samples they do not.
    assert taps.deviations(whole, activation_fingerprint("conv", x, ids[order])) > 1e-3


@pytest.mark.parametrize("case", parameters(trials(Tapped)))
def test_a_fault_shows_first_where_it_is(run_cache: RunCache, case: Tapped) -> None:
    spec = SPECS[case.spec]
    clean, faulty = (
        tapped(run_cache, spec, case.run),
        tapped(run_cache, spec, case.run, case.fault),
    )
    off = [name for name, found in apart(clean, faulty, 0).items() if found > 1e-9]
    assert off[0] == case.first


@pytest.mark.parametrize("run", [DDP, config(tensorflow(2), taps=True)], ids=lambda p: p.label)
def test_taps_do_not_touch_the_training(run_cache: RunCache, run: RunConfig) -> None:
    plain = run_cache.record(MLP, run.having(taps=False))
    record = tapped(run_cache, MLP, run)
    assert plain.taps is None and not (plain.folder / "taps").exists()
    for name in ("loss_sum", "gradient_norm", "parameter_norm"):
        assert (plain.columns[name] == record.columns[name]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [SINGLE, pytest.param(config(tensorflow(1), taps=True), marks=pytest.mark.exhaustive)],
    ids=lambda p: p.label,
)
def test_the_loss_scale_is_taken_out(run_cache: RunCache, run: RunConfig) -> None:
    exact, scaled = (
        totals(tapped(run_cache, small("digits_mlp", "steps=3", f"precision={precision}"), run))
        for precision in ("float32", "float16_mixed")
    )
    for name, table in exact.items():
        assert taps.deviations(table[0], scaled[name][0]) < 0.02, name


REFUSED = [
    config(torch("tensor_parallel", 1), taps=True),
    config(torch("deepspeed", 2), taps=True),
    config(torch("ddp", 2, engine="lightning"), taps=True),
    config(torch("ddp", 2, compile=True), taps=True),
    config(tensorflow(2, engine="keras"), taps=True),
    config(tensorflow(2, steps_per_call=4), taps=True),
]


@pytest.mark.parametrize("run", REFUSED, ids=lambda p: p.label)
def test_what_cannot_be_tapped_is_refused(run: RunConfig) -> None:
    spec = small("digits_transformer", "precision=float32").resolved()
    with pytest.raises(SpecError, match="cannot be tapped") as caught:
        check_run(spec, *run.parts)
    one_line(caught.value)
    check_run(spec, run.placement)


def test_names_follow_the_order_of_execution() -> None:
    names = taps.names_of(TRANSFORMER.resolved(), SINGLE.placement)
    forward = [name.removeprefix("forward/") for name in names if name.startswith("forward/")]
    assert forward.index("residual/self_attention") < forward.index("residual") < forward.index("add")
    # Nothing trainable comes before: there is no gradient to see.
    assert "patchify" in forward and "backward/patchify" not in names
    sharded = taps.names_of(TRANSFORMER.resolved(), torch("fsdp2", 2))
    assert sharded == [name for name in names if not name.startswith("local_gradient/")]
