"""Mixed precisions: what products round, loss scaling, noise floors, and the faults that must still be seen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import NotComparableError, RunError, SpecError
from parity.common.execution.checks import check_run
from parity.common.parity.budget import ensemble_budget, low_share
from parity.common.parity.compare import compare
from parity.common.parity.deviation import column_deviation, skipped
from parity.common.record import RunRecord
from parity.common.reference import LossScaler, StepScalars
from parity.common.spec import Placement, TrainSpec
from parity.common.state.canonical import initial_state
from parity_tests.helpers.floors import SINGLES, noise_floor
from parity_tests.helpers.layers import Case, both
from parity_tests.helpers.matrix import LOW_PRECISION, config, small, tensorflow, torch
from parity_tests.helpers.records import Run, one_line, tiny_spec
from parity_tests.helpers.run_cache import RunCache
from parity_tests.peers import Arrays, Peer

IMAGE = (6, 6, 4)
LAYERS = {
    "dense": Case(({"kind": "dense", "units": 5},), (4, 7)),
    "conv2d": Case(({"kind": "conv2d", "filters": 6, "strides": 2},), IMAGE),
    "grouped": Case(({"kind": "conv2d", "filters": 6, "groups": 2, "dilation": 2},), IMAGE),
    "conv1d": Case(({"kind": "conv1d", "filters": 6},), (9, 4)),
    "depthwise": Case(({"kind": "depthwise_conv2d", "depth_multiplier": 2},), IMAGE),
    "separable": Case(({"kind": "separable_conv2d", "filters": 6},), IMAGE),
    "transposed": Case(({"kind": "conv2d_transpose", "filters": 6, "strides": 2},), IMAGE),
    "attention": Case(({"kind": "self_attention", "heads": 2, "dropout": 0.3, "causal": True},), (5, 8)),
    "lstm": Case(({"kind": "lstm", "units": 5},), (4, 6)),
    "gru": Case(({"kind": "gru", "units": 5},), (4, 6)),
}
SPACING = {"bfloat16": 2.0**-7, "float16": 2.0**-10}


def single(case: Case) -> Arrays:
    return {n: v.astype(np.float32) if v.dtype.kind == "f" else v for n, v in case.arrays().items()}


def rounded(x: np.ndarray, low: str) -> np.ndarray:
    """To the nearest low number, ties to even."""
    if low == "float16":
        return x.astype(np.float16).astype(np.float64)
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def dense(arrays: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Input rows, kernel, bias and rows of the cotangent of a case of one dense layer."""
    x, dy = (arrays[name].reshape(-1, arrays[name].shape[-1]) for name in ("x", "cotangent"))
    return x, arrays["parameters/dense/kernel"], arrays["parameters/dense/bias"], dy


@pytest.mark.parametrize("low", SPACING)
def test_products_are_what_the_spec_says(peers: dict[str, Peer], low: str) -> None:
    case = Case(({"kind": "dense", "units": 6},), (4096,), batch=9)
    arrays = single(case)
    # All of one sign, so that a sum in a low type would come to a halt.
    for name in ("x", "parameters/dense/kernel"):
        arrays[name] = np.abs(arrays[name])
    x, kernel, bias, dy = dense(arrays)
    low_x, low_kernel, low_dy = (rounded(a, low) for a in (x, kernel, dy))
    expected = {
        "y": rounded(low_x @ low_kernel, low) + bias,
        "dx": rounded(low_dy @ low_kernel.T, low),
        "dparameters/dense/kernel": low_x.T @ low_dy,
        "dparameters/dense/bias": dy.sum(0),
    }
    for found in both(peers, "products:forward_backward", {**case.facts, "low": low}, arrays):
        for name, value in expected.items():
            off = np.abs(found[name].reshape(value.shape) - value) / np.abs(value).max()
            # A number halfway between two low ones may go either way; hardly any is.
            assert off.max() <= SPACING[low] and (off > 2e-6).mean() < 0.01, (name, off.max())
        unrounded = found["dparameters/dense/kernel"]
        assert np.abs(unrounded - expected["dparameters/dense/kernel"]).max() < 1e-5 * np.abs(unrounded).max()
        assert np.abs(rounded(unrounded, low) - unrounded).max() > 1e-4 * np.abs(unrounded).max()


@pytest.mark.sweep
@pytest.mark.parametrize("low", SPACING)
@pytest.mark.parametrize("name", LAYERS)
def test_frameworks_round_alike(peers: dict[str, Peer], name: str, low: str) -> None:
    case = LAYERS[name]
    arrays = single(case)
    tensorflow, torch = both(peers, "products:forward_backward", {**case.facts, "low": low}, arrays)
    (wide,) = both(peers, "layers:forward_backward", {**case.facts, "precision": "float32"}, arrays)[:1]
    for array, ours in tensorflow.items():
        largest = max(np.abs(ours).max(), 1e-3)
        off = np.abs(ours - torch[array]) / largest
        assert off.max() <= 2 * SPACING[low] and (off > 2e-6).mean() < 0.02, (array, off.max())
    # The negative control: it is not float32 that both compute.
    assert np.abs(tensorflow["y"] - wide["y"]).max() > 0.05 * SPACING[low] * np.abs(wide["y"]).max()


def test_kernels_of_either_kind_give_the_same(peers: dict[str, Peer]) -> None:
    case = LAYERS["conv2d"]
    results = [
        both(
            peers,
            "products:forward_backward",
            {**case.facts, "low": "bfloat16", "native": native},
            single(case),
        )
        for native in (True, False)
    ]
    for native, wide in zip(*results, strict=True):
        for name, value in native.items():
            assert np.abs(value - wide[name]).max() <= 2.0**-7 * max(np.abs(value).max(), 1e-3), name


def eighth(x: np.ndarray, bits: int, smallest: float, largest: float) -> np.ndarray:
    """Scaled to the type's largest number, rounded to `bits` significant bits, and scaled back."""
    scale = np.float32(np.abs(x).max() / largest)
    fraction, exponent = np.frexp((x / scale).astype(np.float64))
    unit = np.maximum(np.ldexp(1.0, exponent - bits), smallest)
    return np.round(np.ldexp(fraction, exponent) / unit) * unit * scale


def test_float8_products(peers: dict[str, Peer]) -> None:
    # CPU kernels know how, too slowly for training.
    case = Case(({"kind": "dense", "units": 5},), (4, 7))
    arrays = single(case)
    x, kernel, bias, dy = dense(arrays)
    a, b = (eighth(value, 4, 2.0**-9, 448) for value in (x, kernel))
    g = eighth(dy, 3, 2.0**-16, 57344)
    found = peers["torch"]("products:forward_backward", {**case.facts, "low": "float8"}, arrays)
    expected = {
        "y": rounded(a @ b, "bfloat16") + bias,
        "dx": rounded(g @ b.T, "bfloat16"),
        "dparameters/dense/kernel": a.T @ g,
    }
    for name, value in expected.items():
        off = np.abs(found[name].reshape(value.shape) - value) / np.abs(value).max()
        assert off.max() <= 2.0**-7 and np.median(off) < 1e-6, (name, off.max())


# --- loss scaling ---


def scales(
    initial: float, growth: float, backoff: float, interval: int, overflowed: list[bool]
) -> list[float]:
    """The referee: the scale of each step."""
    found, row = [initial], 0
    for wrong in overflowed:
        row = 0 if wrong else row + 1
        factor = backoff if wrong else growth if row == interval else 1.0
        row = 0 if row == interval else row
        found.append(found[-1] * factor)
    return found[:-1]


@pytest.mark.parametrize("interval", [1, 3, 7])
def test_scale_grows_and_backs_off(interval: int) -> None:
    rule = {"initial": 8.0, "growth": 2.0, "backoff": 0.25, "growth_interval": interval}
    spec = tiny_spec("precision=float16_mixed", f"loss_scale={rule}")
    overflowed = list(np.random.default_rng(interval).random(60) < 0.3)
    scaler, found = LossScaler(spec), []
    for wrong in overflowed:
        found.append(scaler.scale)
        scaler.observe(not wrong)
    assert found == scales(8.0, 2.0, 0.25, interval, overflowed)
    assert scaler.updates == 60 - sum(overflowed)


def test_scale_stays_a_number() -> None:
    scaler = LossScaler(tiny_spec("precision=float16_mixed"))
    for _ in range(1000):
        scaler.observe(False)
    assert scaler.scale == 2.0**-64


def test_conventions_of_a_skipped_step() -> None:
    adam = "optimizer={kind: adam, learning_rate: 0.01}"
    found = {}
    for convention in ("keras", "torch"):
        spec = tiny_spec("precision=float16_mixed", adam, "steps=40", f"convention={convention}")
        plain = StepScalars(tiny_spec(adam, "steps=40", f"convention={convention}"))
        scaler = StepScalars(spec)
        for step in range(10):
            scaler.observe(step, math.nan if step < 4 else 1.0, 1.0, updated=step >= 4)
        scalars = scaler.scalars(10)
        assert scalars.pop("loss_scale") == spec.loss_scale.initial / 16
        found[convention] = scalars, plain.scalars(6), plain.scalars(10)
    scalars, waited, _ = found["keras"]
    assert scalars == waited
    scalars, waited, advanced = found["torch"]
    assert scalars["learning_rate"] == advanced["learning_rate"] != waited["learning_rate"]
    # The bias correction counts updates all the same.
    assert scalars["step_size"] / scalars["learning_rate"] == pytest.approx(
        waited["step_size"] / waited["learning_rate"], rel=1e-15
    )


def test_only_float16_has_a_scale() -> None:
    assert "loss_scale" not in StepScalars(tiny_spec()).scalars(0)
    keras, torch = (tiny_spec("precision=float16_mixed", f"convention={c}") for c in ("keras", "torch"))
    assert keras.loss_scale.initial == 2.0**15 and torch.loss_scale.initial == 2.0**16


# --- what is refused ---


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        (["tf32=true"], "tf32"),
        (["precision=float32", "loss_scale={initial: 8.0}"], "loss_scale belongs to float16_mixed"),
        (["precision=float16_mixed", "loss_scale={initial: 3.0}"], "power of two"),
        (["precision=bfloat16"], "'bfloat16_mixed'"),
    ],
)
def test_specs_that_are_refused(assignments: list[str], told: str) -> None:
    with pytest.raises(SpecError, match=told) as error:
        tiny_spec(*assignments)
    one_line(error.value)


@pytest.mark.parametrize(
    ("precision", "placement", "told"),
    [
        ("float8_mixed", tensorflow(1), "no float8 products"),
        ("float8_mixed", torch("ddp", 2, accumulation=2), "no accumulation"),
        ("float16_mixed", torch("single", 1, engine="lightning"), "owns the loop"),
        ("float16_mixed", tensorflow(1, engine="keras"), "owns the loop"),
        ("float16_mixed", torch("deepspeed", 2), "DeepSpeed has its own"),
    ],
)
def test_runs_that_are_refused(precision: str, placement: Placement, told: str) -> None:
    with pytest.raises(SpecError, match=told) as error:
        check_run(tiny_spec(f"precision={precision}"), placement)
    one_line(error.value)


def test_float8_without_a_gpu_ends_in_one_line(run_cache: RunCache) -> None:
    spec = small("digits_mlp", "steps=2", "precision=float8_mixed")
    with pytest.raises(RunError, match=r"float8_mixed needs a GPU of compute capability 8\.9") as error:
        run_cache.record(spec, torch("single", 1, device="cpu"))
    one_line(error.value)


# --- how such runs are judged ---


def test_members_begin_a_little_off() -> None:
    for precision, spacing in (("bfloat16_mixed", 2.0**-7), ("float16_mixed", 2.0**-10)):
        spec = tiny_spec(f"precision={precision}")
        first, again, other, base = (initial_state(spec, member) for member in (1, 1, 2, None))
        name = next(n for n in base if n.startswith("parameters/") and base[n].any())
        assert np.array_equal(first[name], again[name]) and not np.array_equal(first[name], other[name])
        off = np.abs(first[name] / base[name] - 1).max()
        assert 0 < off <= 1.01 * spacing * 2.0**-13 + 2.0**-23
    wide = tiny_spec("precision=float32")
    assert all(np.array_equal(v, initial_state(wide)[n]) for n, v in initial_state(wide, 1).items())


def half(*assignments: str) -> TrainSpec:
    return tiny_spec("precision=float16_mixed", *assignments)


def with_skip(record: RunRecord, step: int, value: float) -> RunRecord:
    columns = {name: column.copy() for name, column in record.columns.items()}
    columns["gradient_norm"][step] = value
    return replace(record, columns=columns)


def test_skipped_steps(tmp_path: Path) -> None:
    record = Run.of(half(), Placement(framework="torch", strategy="single")).write(tmp_path / "a")
    once, nan = with_skip(record, 2, math.inf), with_skip(record, 2, math.nan)
    assert skipped(once).tolist() == [False, False, True, False, False, False]
    assert column_deviation("gradient_norm", once, nan).max() == 0
    assert column_deviation("gradient_norm", once, record)[2] == math.inf
    assert column_deviation("gradient_norm", once, with_skip(nan, 3, math.nan))[3] == math.inf
    # Without loss scaling nothing is skipped: a norm that is no number is a broken run.
    wide = Run.of(tiny_spec("precision=float32"), record.placement).write(tmp_path / "b")
    both_broken = with_skip(wide, 2, math.inf)
    assert column_deviation("gradient_norm", both_broken, both_broken)[2] == math.inf


def test_members_that_skip_other_steps_are_refused(tmp_path: Path) -> None:
    run = Run.of(half(), Placement(framework="torch", strategy="single"))
    base = run.write(tmp_path / "base")
    members = [run.noisy(1e-6, seed).write(tmp_path / str(seed)) for seed in range(4)]
    assert "float16_mixed noise floor" in ensemble_budget(base, members).source
    with pytest.raises(NotComparableError, match="skipped other steps") as error:
        ensemble_budget(base, [*members[:3], with_skip(members[3], 1, math.inf)])
    one_line(error.value)
    # Where all of them skip, the rest is judged as ever.
    ensemble_budget(with_skip(base, 1, math.inf), [with_skip(member, 1, math.inf) for member in members])


# --- real runs ---

FLOAT16 = LOW_PRECISION["float16"]
DDP, MIRRORED = config(torch("ddp", 2), digests=True), config(tensorflow(2), digests=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("precision", LOW_PRECISION)
def test_frameworks_agree_within_the_floor(run_cache: RunCache, precision: str) -> None:
    spec = LOW_PRECISION[precision]
    budget = noise_floor(run_cache, spec)
    reference = run_cache.record(spec, SINGLES[0])
    for placement in (SINGLES[1], DDP, MIRRORED, torch("ddp", 2, accumulation=2)):
        comparison = compare(reference, run_cache.record(spec, placement), budget)
        assert comparison.verdict == "parity", f"{placement.label}: {comparison.reason}"
        assert precision in comparison.budget_source
        # Well under the multiple, and not by chance: the floor is no wider than what it allows for.
        assert (comparison.loss_deviation <= budget.curves["loss_sum"] / 2).all()
    assert budget.curves["loss_sum"][0] < 1e-2


def test_recorded_scales_are_the_referees(run_cache: RunCache) -> None:
    for placement in (SINGLES[0], MIRRORED):
        record = run_cache.record(FLOAT16, placement)
        overflowed = skipped(record).tolist()
        assert any(overflowed) and not all(overflowed)
        expected = scales(131072.0, 2.0, 0.5, 3, overflowed)
        assert record.columns["loss_scale"].tolist() == expected
        assert not record.columns["update_norm"][overflowed].any()
        assert max(expected[4:]) > min(expected)


def test_low_share_of_a_low_reduction(run_cache: RunCache) -> None:
    spec = LOW_PRECISION["bfloat16"]
    assert low_share(run_cache.record(spec, DDP))[0] < 0.1
    assert low_share(run_cache.record(spec, DDP, "reduced_in_bfloat16"))[0] == 1


@pytest.mark.parametrize("placement", [DDP, MIRRORED], ids=lambda p: p.placement.framework)
def test_an_infinite_gradient_on_one_replica_skips_the_step_on_all(
    run_cache: RunCache, placement: Placement
) -> None:
    spec = small("digits_mlp", "steps=8", "precision=float16_mixed", "loss_scale={initial: 1024.0}")
    clean = run_cache.record(spec, placement)
    record = run_cache.record(spec, placement, "gradient_infinite_on_rank_one")
    assert not skipped(clean).any()
    assert np.flatnonzero(skipped(record)).tolist() == [3]
    assert record.columns["loss_scale"].tolist() == [1024.0] * 4 + [512.0] * 4
    ours, theirs = record.fingerprints
    assert ours == theirs and ours[2] == ours[3] != ours[4]
    # Nothing of it is left: what follows is as in a run without that batch's update.
    assert np.isfinite(record.columns["loss_sum"]).all()
    assert record.columns["parameter_norm"][3] == record.columns["parameter_norm"][2]
