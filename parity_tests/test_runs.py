"""Whole runs: spec features on both sides, 20 clean pairs, torchrun, determinism, and runs that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import RunError
from parity.common.execution.worker import Worker
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.parity.sample_ids import audit
from parity.common.record import read_record
from parity.common.spec import Instrumentation, Placement
from parity_tests.helpers.matrix import CORE, config, matrix_spec, small, tensorflow, torch
from parity_tests.helpers.records import read_events, without_progress
from parity_tests.helpers.run_cache import RunCache

FEATURES = {
    "nesterov-velocity": (
        "digits_mlp",
        "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true}",
    ),
    "nesterov-buffer": (
        "digits_mlp",
        "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true}",
        "convention=torch",
    ),
    "plain-sgd": ("digits_mlp", "optimizer={kind: sgd, learning_rate: 0.1}"),
    "sgd-decoupled-decay": (
        "digits_mlp",
        "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.01}",
    ),
    "sgd-coupled-decay": (
        "digits_mlp",
        "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.01}",
        "convention=torch",
    ),
    "adam-coupled-decay": (
        "digits_mlp",
        "optimizer={kind: adam, learning_rate: 0.003, weight_decay: 0.01}",
        "convention=torch",
    ),
    "clipping": ("digits_transformer", "optimizer.clip_global_norm=2.0", "convention=torch"),
    "constant-schedule": ("digits_mlp", "schedule={kind: constant}"),
    "strided-split": ("digits_cnn", "data.split=strided"),
    "dropped-tail": ("digits_cnn", "data.tail=drop"),
    "fewer-samples-than-replicas": ("digits_cnn", "data.train_samples=7", "global_batch_size=3", "steps=12"),
    "asymmetric-padding": ("digits_cnn", "model.layers.3.strides=2"),
    "valid-padding": ("digits_cnn", "model.layers.0.padding=valid"),
    "useless-bias-under-adam": (
        "digits_cnn",
        "model.layers.0.use_bias=true",
        "optimizer={kind: adam, learning_rate: 0.003}",
    ),
    "other-flatten-order": ("digits_cnn", "model.layers.7.order=chw"),
}

# What these are made of, the tests of optimizers and of layers hold as well.
EXHAUSTIVE = {
    "plain-sgd",
    "dropped-tail",
    "nesterov-velocity",
    "nesterov-buffer",
    "sgd-decoupled-decay",
    "sgd-coupled-decay",
    "adam-coupled-decay",
    "constant-schedule",
    "asymmetric-padding",
    "valid-padding",
    "useless-bias-under-adam",
    "other-flatten-order",
    "clipping",
}


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize(
    "feature",
    [
        pytest.param(
            name,
            marks=pytest.mark.exhaustive if name in EXHAUSTIVE else (),
        )
        for name in FEATURES
    ],
)
def test_feature_means_the_same_on_every_placement(run_cache: RunCache, feature: str) -> None:
    recipe, *overrides = FEATURES[feature]
    spec = small(recipe, "steps=46", *overrides)
    placements = [torch("single", 1), tensorflow(2), tensorflow(4), torch("ddp", 2), torch("fsdp2", 2)]
    for placement in placements:
        run_cache.begin(spec, placement)
    reference, *candidates = [run_cache.record(spec, placement) for placement in placements]
    for candidate in candidates:
        comparison = compare(reference, candidate, proof_budget(reference))
        assert comparison.verdict == "parity", f"{candidate.label}: {comparison.reason}"


def test_local_batch_norm_is_the_same_at_equal_replica_counts(run_cache: RunCache) -> None:
    """Per-replica statistics depend on the replica count, and on nothing else."""
    local = ["model.layers.1.statistics=per_replica", "model.layers.4.statistics=per_replica"]
    spec = small("digits_cnn", "steps=46", *local)
    reference = run_cache.record(spec, tensorflow(4))
    comparison = compare(reference, run_cache.record(spec, torch("ddp", 4)), proof_budget(reference))
    assert comparison.verdict == "parity", comparison.reason
    fewer = run_cache.record(spec, tensorflow(2))
    assert not np.allclose(fewer.loss, reference.loss, rtol=1e-6)


def test_empty_local_batches_were_really_trained_on(run_cache: RunCache) -> None:
    spec = small("digits_cnn", "steps=46")
    for placement in (tensorflow(4), torch("ddp", 4)):
        seen = audit(run_cache.record(spec, placement))
        assert seen.passed
        assert seen.empty_local_batches == 1


@pytest.mark.exhaustive
def test_twenty_clean_pairs_are_green(run_cache: RunCache) -> None:
    specs = [small("digits_mlp", "steps=46", f"seed={seed}") for seed in range(20)]
    pair = (tensorflow(2), torch("ddp", 2))
    for spec in specs:
        for placement in pair:
            run_cache.begin(spec, placement)
    verdicts = []
    for spec in specs:
        reference, candidate = (run_cache.record(spec, placement) for placement in pair)
        verdicts.append(compare(reference, candidate, proof_budget(reference)).verdict)
    assert verdicts == ["parity"] * 20


@pytest.mark.parametrize(
    "placement", [tensorflow(2), torch("ddp", 2), torch("fsdp2", 2)], ids=lambda p: p.label
)
def test_a_repeated_float32_run_is_bit_identical(run_cache: RunCache, placement: Placement) -> None:
    spec = small("digits_cnn", "steps=20", "precision=float32")
    # The same run under another key of the cache. TensorFlow's process runs its traced step
    # again, on variables that the first run has left changed.
    again = config(placement, stop_at_step=spec.steps)
    first, second = run_cache.record(spec, placement), run_cache.record(spec, again)
    assert np.array_equal(first.columns["loss_sum"], second.columns["loss_sum"])
    one, other = first.state("final"), second.state("final")
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.exhaustive
def test_one_changed_default_is_divergent_in_float32(run_cache: RunCache) -> None:
    from parity_tests.test_parity_matrix import noise

    spec = matrix_spec(*CORE[2], "float32")
    budget = noise(run_cache, spec)
    reference = run_cache.record(spec, tensorflow(1))
    faulty = run_cache.record(spec, torch("ddp", 2), "batch_norm_epsilon")
    assert compare(reference, run_cache.record(spec, torch("ddp", 2)), budget).verdict == "parity"
    assert compare(reference, faulty, budget).verdict == "divergent"


@pytest.mark.exhaustive
def test_torchrun_gives_the_same_curve(run_cache: RunCache, tmp_path: Path) -> None:
    spec = small("digits_mlp", "steps=46")
    command = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    flags = ["--launcher=torchrun", "--strategy=ddp", "--replicas=2", f"--out={tmp_path / 'run'}"]
    assignments = ["--recipe=digits_mlp", "--set=steps=46", "--set=global_batch_size=34"]
    run = [sys.executable, *command, "-m", "torch_impl", *flags, *assignments]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("torch ddp x2 launcher=torchrun: 46 steps") == 1
    reference = run_cache.record(spec, tensorflow(2))
    comparison = compare(reference, read_record(tmp_path / "run"), proof_budget(reference))
    assert comparison.verdict == "parity", comparison.reason


def test_a_crashed_rank_is_named_with_its_last_words(run_cache: RunCache) -> None:
    spec = small("digits_mlp", "steps=20")
    with pytest.raises(RunError, match=r"rank 1 ended with code 1: ValueError: the disk of rank 1 is gone"):
        run_cache.record(spec, torch("ddp", 2), "a_rank_crashes")
    # The worker serves on.
    assert run_cache.record(spec, torch("ddp", 2)).summary is not None


def test_a_dead_process_is_reported_with_its_last_words(tmp_path: Path) -> None:
    spec = small("digits_mlp", "steps=20")
    last_words = pytest.raises(
        RunError, match=r"ended with code 9: tensorflow: out of memory, says this line"
    )
    with Worker("tensorflow", 1, tmp_path / "log") as worker, last_words:
        fault = "parity_tests.faults.tensorflow:the_process_dies"
        worker.train(spec, tensorflow(1), tmp_path / "run", instrumentation=Instrumentation(context=fault))
    # What was written is still there, and known to be unfinished. It dies while it launches step 5; step 4 has
    # been launched too, and would have been read after that.
    record = read_record(tmp_path / "run")
    assert record.summary is None
    assert len(record.steps) == 4


def test_more_replicas_than_devices(run_cache: RunCache) -> None:
    # A process takes its number of devices from its first run.
    run_cache.record(small("digits_mlp"), tensorflow(1))
    with pytest.raises(RunError, match="needs 8 devices, this process was started with 4"):
        run_cache.record(small("digits_mlp"), tensorflow(8))
    with pytest.raises(RunError, match="needs 2 GPUs, this machine has 0"):
        run_cache.record(small("digits_mlp"), torch("ddp", 2, device="gpu"))
    with pytest.raises(RunError, match="needs 2 GPUs, this machine has 0"):
        run_cache.record(small("digits_mlp"), tensorflow(2, device="gpu"))


@pytest.mark.exhaustive
def test_tensorboard_scalars_are_written(tmp_path: Path) -> None:
    for module in ("tf_impl", "torch_impl"):
        out = tmp_path / module
        command = [
            sys.executable,
            "-m",
            module,
            "--recipe=digits_mlp",
            "--set=steps=3",
            f"--out={out}",
            "--tensorboard",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert without_progress(done.stderr) == ""
        assert f"record: {out}" in done.stdout
        read, record = read_events(out / "tensorboard"), read_record(out)
        for name, column in {"loss": record.loss, **record.columns}.items():
            if name != "step":
                found = [[event.step, event.value] for event in read.Scalars(name)]
                assert found == [[step, float(np.float32(value))] for step, value in enumerate(column)]
