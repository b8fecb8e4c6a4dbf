"""Runs that end early: asked to stop they save first, and what goes wrong is named with its rank and last step."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base import stop
from parity.common.base.errors import RunError, StoppedError
from parity.common.base.stop import Stop
from parity.common.checkpoint import checkpoints_of, read_checkpoint
from parity.common.execution import ranks
from parity.common.execution.rank_failures import reached
from parity.common.execution.ranks import run_ranks
from parity.common.record import parts_of, read_record
from parity.common.spec import Placement, TrainSpec
from parity_tests.bodies.stop import FOREVER, record
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import config, small, tensorflow, torch
from parity_tests.helpers.processes import SECONDS, runs, wait_until
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache
from parity_tests.test_resume import BOTH, EXHAUSTIVE, FIELDS, going_on, label, light, saving


def run(body: str, folder: Path, *more: object, count: int = 2, stoppable: bool = True) -> None:
    arguments = (folder, *more)
    run_ranks(
        f"parity_tests.bodies.stop:{body}", arguments, count, folder / "logs", [], None, None, stoppable
    )


def heard(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("heard_*"))


@pytest.mark.sweep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("times", [1, 2])
def test_ranks_hear_a_signal_to_their_parent(tmp_path: Path, number: int, times: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(StoppedError, match=r"^stopped before step 3 as asked$"):
        run("asked", tmp_path, os.getpid(), number, times)
    assert heard(tmp_path) == ["heard_0", "heard_1"]
    assert signal.getsignal(number) is before


def test_a_signal_before_the_ranks_have_started_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("goes_on_without_being_asked", tmp_path)
    assert heard(tmp_path) == ["heard_0", "heard_1"]
    monkeypatch.setattr(stop, "_heard", type(stop._heard)())
    before = {number: signal.getsignal(number) for number in stop.SIGNALS}
    try:
        stop.listen()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StoppedError, match="stopped before step 1"):
            run("listens", tmp_path)
        # Nor does a further one end a process that has stopped.
        signal.raise_signal(signal.SIGUSR1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_run_that_does_not_save_is_ended_by_a_signal() -> None:
    """Nobody watches for it, in this process or in others."""
    before = signal.getsignal(signal.SIGTERM)
    mine = Stop(watching=False)
    assert signal.getsignal(signal.SIGTERM) is before and not mine.requested()


def test_the_last_recorded_step_is_named(tmp_path: Path) -> None:
    assert reached(tmp_path) == ""
    (tmp_path / "run").mkdir()
    record(tmp_path / "run", 3)
    assert reached(tmp_path / "run") == "; last recorded step: 2"
    # Half of a row that was being written does not count.
    with open(tmp_path / "run" / "steps.f64", "ab") as file:
        file.write(bytes(20))
    assert reached(tmp_path / "run") == "; last recorded step: 2"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "steps.f64").write_bytes(bytes(20))
    assert reached(tmp_path / "empty") == ""


@pytest.mark.sweep
@pytest.mark.parametrize(
    "said",
    [
        "waited 3 s in a collective for another rank",
        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation",
    ],
)
def test_a_rank_that_hangs_is_named_and_not_those_that_wait_for_it(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_GRACE_SECONDS", 1.0)
    with pytest.raises(RunError) as caught:
        run("one_hangs", tmp_path, said, count=3)
    message = str(caught.value)
    assert re.match(r"^rank 1 is stuck: rank [02] ended with code 1: ", message) and said in message
    assert message.endswith(f"; host: {platform.node()}; last recorded step: 2")


def test_a_rank_that_fails_by_itself_is_not_taken_for_one_that_waits(tmp_path: Path) -> None:
    """The control of the test above."""
    with pytest.raises(RunError, match=r"^rank [02] ended with code 1: the disk is gone \(log: "):
        run("one_hangs", tmp_path, "the disk is gone", count=3)


# The same of real runs: what was saved before is whole.


def test_a_rank_that_raises_is_named_with_the_last_step(run_cache: RunCache) -> None:
    with pytest.raises(RunError) as caught:
        run_cache.record(light(), saving(torch("ddp", 2), every=1, in_background=False), "a_rank_crashes")
    message = str(caught.value)
    assert "rank 1 ended with code 1: ValueError: the disk of rank 1 is gone (" in message
    found = re.search(r"\(log: (\S+)/logs/rank_1.log\); host: (\S+); last recorded step: (\d+)$", message)
    assert found and found[2] == platform.node() and found[3] in "345", message
    kept = checkpoints_of(Path(found[1]))
    assert read_checkpoint(kept[-1]).step in (int(found[3]), int(found[3]) + 1)


def rank_one_hangs(*arguments: Any) -> None:
    """A rank's training, where rank 1 does nothing any more before its sixth step."""
    from parity.torch_impl import train

    batches = train.data.batches

    def some(*given: Any) -> Iterator[Any]:
        for number, batch in enumerate(batches(*given)):
            if number == 5 and os.environ["RANK"] == "1":
                time.sleep(FOREVER)
            yield batch

    train.data.batches = some
    train.train_rank(*arguments)


@pytest.mark.slow
def test_a_rank_that_hangs_in_training_is_named_within_the_time(tmp_path: Path) -> None:
    placement, *options = config(saving(torch("ddp", 2), every=2), timeout_seconds=8).parts
    body, preload = "parity_tests.test_stop:rank_one_hangs", ["torch", "parity.torch_impl.train"]
    with pytest.raises(RunError) as caught:
        run_ranks(body, (light(), placement, tmp_path, *options), 2, tmp_path / "logs", preload)
    message = str(caught.value)
    assert message.startswith("rank 1 is stuck: rank 0 ended with code 1: ") and "\n" not in message, message
    found = re.search(r"; last recorded step: ([34])$", message)
    assert found, message
    assert read_checkpoint(checkpoints_of(tmp_path)[-1]).step == 4


# A loss that is not finite.

RARE = [pytest.param(torch("ddp", 2), marks=pytest.mark.slow), pytest.param(tensorflow(2), marks=EXHAUSTIVE)]


def diverging() -> TrainSpec:
    return small("digits_mlp", "steps=30", "precision=float32", "optimizer.learning_rate=1e12")


@pytest.mark.parametrize("placement", BOTH, ids=label)
def test_a_run_that_saves_ends_at_its_first_step_that_is_not_finite(
    run_cache: RunCache, placement: Placement
) -> None:
    spec = diverging()
    whole = run_cache.record(spec, placement)
    bad = int(np.argmin(np.isfinite(whole.loss + whole.columns["update_norm"])))
    # One that does not save goes on to its end, as ever.
    assert 0 < bad < len(whole.steps) - 3 and len(whole.steps) == 30
    saved = saving(placement, every=1)
    with pytest.raises(RunError) as caught:
        run_cache.record(spec, saved)
    message = str(caught.value)
    assert f"step {bad}: the " in message and "all samples are finite" in message, message
    found = re.search(r"the last checkpoint before it is (\S+?)(;| \(|$)", message)
    assert found, message
    checkpoint = read_checkpoint(Path(found[1]))
    assert checkpoint.step == bad
    assert all(np.isfinite(value).all() for value in checkpoint.state().values())
    assert checkpoints_of(checkpoint.folder.parent.parent)[-1] == checkpoint.folder


@pytest.mark.parametrize("placement", RARE, ids=label)
def test_a_sample_that_is_not_finite_is_named(
    run_cache: RunCache, tmp_path: Path, placement: Placement
) -> None:
    spec, sample = with_a_bad_sample(tmp_path)
    with pytest.raises(RunError) as caught:
        run_cache.record(spec, saving(placement, every=1))
    found = re.search(r"step (\d+): .*; sample (\d+), of replica ([01]), is not finite;", str(caught.value))
    assert found and int(found[2]) == sample, caught.value


@pytest.mark.parametrize("placement", RARE, ids=label)
def test_with_taps_the_first_tensor_that_is_not_finite_is_named(
    run_cache: RunCache, placement: Placement
) -> None:
    tapped = config(saving(placement, every=1), taps=True)
    with pytest.raises(RunError, match=r"its first tensor that is not finite is \S+, of replica [01]"):
        run_cache.record(diverging(), tapped)


def with_a_bad_sample(folder: Path) -> tuple[TrainSpec, int]:
    """A spec of images, one of which holds a NaN, and that one's sample id."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(size=(120, 8, 8, 1))
    inputs[57, 3, 4] = np.nan
    np.savez(folder / "images.npz", x=inputs, y=np.arange(120) % 10)
    source = f"data.source={{kind: npz, path: {folder / 'images.npz'}}}"
    spec = small("digits_mlp", "steps=12", source, "data.train_samples=100", "data.eval_samples=20")
    return spec, 57


# The command.


@contextmanager
def started(module: str, out: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    flags = ["--recipe=digits_mlp", "--set=steps=3000", "--set=precision=float32", f"--out={out}", *more]
    # A signal that we were started to ignore, as by nohup, it would ignore too.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(
        [sys.executable, "-m", module, *flags, "--save_every_steps=100000"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGHUP, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        text = ""
    return [pid, *(each for child in text.split() for each in family(int(child)))]


@pytest.mark.parametrize(
    ("module", "placement", "number"),
    [
        pytest.param("torch_impl", torch("ddp", 2), signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("tf_impl", tensorflow(2), signal.SIGUSR1, marks=EXHAUSTIVE),
        pytest.param("tf_impl", tensorflow(2, strategy="multi_worker"), signal.SIGTERM, marks=EXHAUSTIVE),
    ],
    ids=lambda value: value.label if isinstance(value, Placement) else "",
)
def test_a_command_that_is_asked_to_stop_saves_and_can_go_on(
    run_cache: RunCache, tmp_path: Path, module: str, placement: Placement, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    with started(module, out, f"--strategy={placement.strategy}", "--replicas=2") as process:
        steps = out / "steps.f64"
        wait_until(
            "it did not train",
            lambda: process.poll() is not None or (steps.exists() and steps.stat().st_size > 2000),
        )
        pids = family(process.pid)
        process.send_signal(number)
        said = process.communicate(timeout=SECONDS)
    assert process.returncode == StoppedError.exit_code, said
    line = one_line(said[1])
    found = re.search(r"stopped before step (\d+) as asked; saved in (\S+); go on with --resume (\S+)", line)
    assert found, line
    wait_until("a process was left", lambda: not any(map(runs, pids)))
    assert not list(out.rglob("*.partial"))
    # Nothing of what it had trained is lost, and it goes on where it was.
    at, record = int(found[1]), read_record(parts_of(out)[0])
    assert record.steps.tolist() == list(range(at))
    spec = record.spec
    bounded = config(placement, stop_at_step=at + 40)
    whole = run_cache.record(spec, bounded)
    part = run_cache.record(spec, going_on(bounded, Path(found[2])))
    assert [*record.steps, *part.steps] == whole.steps.tolist()
    for name in FIELDS:
        both = np.concatenate([record.columns[name], part.columns[name]])
        assert both.tobytes() == whole.columns[name].tobytes(), name
