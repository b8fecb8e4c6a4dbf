"""A run whose checkpoints all ranks write goes on anywhere, and a shard that is missing or damaged is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import CheckpointError, SpecError
from parity.common.checkpoint import find, read_checkpoint
from parity.common.execution.checks import check_run
from parity.common.spec import Placement, RunConfig, TrainSpec
from parity.common.state.canonical import State, load_state
from parity_tests.helpers.matrix import config, small
from parity_tests.helpers.run_cache import RunCache

STEPS, SAVED_AT = 8, 4
CLOSE = 1e-12


def spec() -> TrainSpec:
    return small(
        "digits_transformer",
        f"steps={STEPS}",
        "optimizer={kind: adamw, learning_rate: 0.003, ema: {decay: 0.9}}",
        "precision=float64",
    ).resolved()


def placed(text: str, **more: object) -> RunConfig:
    return config(Placement.from_text(text), **more)


def sharded_run(run_cache: RunCache) -> Path:
    """A run of 4 ranks, stopped once it has saved."""
    save = {"every_steps": SAVED_AT, "sharded": True}
    return run_cache.begin(spec(), placed("torch:fsdp2:4", save=save, stop_at_step=SAVED_AT)).result()


def final(run_cache: RunCache, run: RunConfig) -> State:
    return load_state(run_cache.begin(spec(), run).result() / "final.safetensors")


def copied(run: Path, folder: Path) -> Path:
    """The checkpoint of a run, where it may be spoiled."""
    found, _ = find(run)
    return Path(shutil.copytree(found.folder, folder / found.folder.name))


@pytest.mark.slow
def test_shards_are_the_state_bit_for_bit(run_cache: RunCache) -> None:
    run = sharded_run(run_cache)
    checkpoint, damaged = find(run)
    assert damaged == [] and checkpoint.step == SAVED_AT and len(checkpoint.shards) == 4
    assert sorted(checkpoint.manifest.files) == sorted(checkpoint.shards)
    held, gathered = checkpoint.state(), load_state(run / "final.safetensors")
    assert held.keys() == gathered.keys()
    for name, value in gathered.items():
        assert held[name].dtype == value.dtype and held[name].tobytes() == value.tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("text", ["torch:fsdp2:2", "torch:ddp:1", "tensorflow:mirrored:2"])
def test_run_goes_on_from_shards_elsewhere(run_cache: RunCache, text: str) -> None:
    checkpoint, _ = find(sharded_run(run_cache))
    straight = final(run_cache, placed("torch:fsdp2:4"))
    resumed = final(run_cache, placed(text, resume=str(checkpoint.folder)))
    assert straight.keys() == resumed.keys()
    for name, value in straight.items():
        np.testing.assert_allclose(resumed[name], value, rtol=CLOSE, atol=CLOSE, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "shard_00002.safetensors: missing"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            "shard_00002.safetensors: holds .* cut short",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
            "shard_00002.safetensors: its SHA-256 is not",
        ),
    ],
    ids=["missing", "cut short", "one bit"],
)
def test_spoilt_shard_is_named(run_cache: RunCache, tmp_path: Path, spoil, said: str) -> None:
    folder = copied(sharded_run(run_cache), tmp_path)
    assert read_checkpoint(folder).step == SAVED_AT
    spoil(folder / "shard_00002.safetensors")
    with pytest.raises(CheckpointError, match=said) as error:
        read_checkpoint(folder)
    assert "\n" not in str(error.value)


def test_tensorflow_is_told_that_it_has_no_shards() -> None:
    save = {"every_steps": 5, "sharded": True}
    check_run(spec(), *placed("torch:fsdp2:2", save=save).parts)
    with pytest.raises(SpecError, match=r"leave out save\.sharded"):
        check_run(spec(), *placed("tensorflow:mirrored:2", save=save).parts)
