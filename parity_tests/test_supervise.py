"""A training that dies and is started again: by our own supervisor, and by torchrun."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

from parity.common import recipes
from parity.common.base.errors import RunError
from parity.common.commands import manifest
from parity.common.execution.resume import Start, attempt_of, decide, follow
from parity.common.execution.supervise import supervise
from parity.common.record import parts_of, read_record
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small, torch
from parity_tests.helpers.processes import SECONDS, runs, wait_until
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache

pytestmark = pytest.mark.waits
STEPS = 300
WHAT = ("--recipe=digits_mlp", f"--set=steps={STEPS}", "--set=global_batch_size=34", "--save_every_steps=20")


@contextmanager
def training(*command: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def local_rank(pid: int, log: str) -> list[int]:
    """Of the descendants those that write to a rank's log."""
    found = []
    for child in descendants(pid):
        try:
            if Path(f"/proc/{child}/fd/1").readlink().name == log:
                found.append(child)
        except OSError:
            pass  # it has ended meanwhile
    return found


def launched_rank(pid: int, rank: int) -> list[int]:
    """Of the descendants those that a launcher has told to be a rank."""
    found = []
    for child in descendants(pid):
        try:
            if f"RANK={rank}".encode() in (Path(f"/proc/{child}") / "environ").read_bytes().split(b"\0"):
                found.append(child)
        except OSError:
            pass
    return found


def saved(run: Path) -> int:
    names = [path.name for path in (run / "checkpoints").glob("step_*") if path.suffix != ".partial"]
    return max((int(name.removeprefix("step_")) for name in names), default=0)


def is_the_straight_curve(run_cache: RunCache, run: Path) -> None:
    """No step lost or doubled, and every loss that of one replica that was never stopped, in float64."""
    straight = run_cache.record(small("digits_mlp", f"steps={STEPS}"), torch("single", 1))
    record = read_record(run)
    assert record.steps.tolist() == list(range(STEPS))
    assert np.abs(record.loss - straight.loss).max() <= 1e-12 * np.abs(straight.loss).max()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "strategy"),
    [("tf_impl", "multi_worker"), pytest.param("torch_impl", "ddp", marks=pytest.mark.exhaustive)],
)
def test_a_killed_worker_is_started_again(
    run_cache: RunCache, tmp_path: Path, module: str, strategy: str
) -> None:
    run = tmp_path / "run"
    flags = (*WHAT, f"--strategy={strategy}", "--replicas=2", "--restarts=2", f"--out={run}")
    with training(module, *flags) as process:
        wait_until("nothing was saved", lambda: saved(run) >= 60 or process.poll() is not None)
        (rank,) = local_rank(process.pid, "rank_1.log")
        others = descendants(process.pid)
        os.kill(rank, signal.SIGKILL)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    said = [line for line in err.splitlines() if line.startswith("supervisor: ")]
    assert (
        len(said) == 1 and "the training ended with code 2; start 1 of 2 more, from the checkpoint" in said[0]
    )
    assert "rank 1 was killed by signal 9" in err and "going on from" in out
    _, later = parts_of(run)
    assert np.fromfile(later / "steps.f64")[0] >= 60
    is_the_straight_curve(run_cache, run)
    assert not [pid for pid in others if runs(pid)]


@pytest.mark.exhaustive
def test_torchrun_starts_all_ranks_again(run_cache: RunCache, tmp_path: Path) -> None:
    """One is killed; torchrun ends the other, and both go on from the checkpoint that the first of them finds."""
    run = tmp_path / "run"
    agent = (
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=2",
        "-m",
        "torch_impl",
    )
    flags = ("--launcher=torchrun", "--strategy=ddp", "--replicas=2", "--resume=auto", f"--out={run}")
    with training(*agent, *WHAT, *flags) as process:
        wait_until("nothing was saved", lambda: saved(run) >= 60 or process.poll() is not None)
        (rank,) = launched_rank(process.pid, 1)
        os.kill(rank, signal.SIGKILL)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert out.count("going on from") == 1, "the first rank alone speaks"
    _, later = parts_of(run)
    assert np.fromfile(later / "steps.f64")[0] >= 60
    assert sorted(path.name for path in (later / "sample_ids").glob("*.ids")) == [
        "replica_0.ids",
        "replica_1.ids",
    ]
    is_the_straight_curve(run_cache, run)


# Stands for a training: it leaves what one would, and ends as it is told for each time that it is started.
FAKE = """
import faulthandler, json, os, signal, sys, time
from pathlib import Path

run = Path(os.environ["RUN"])
plan = json.loads((run.parent / "plan.json").read_text())
number = len(list(run.parent.glob("started_*")))
(run.parent / f"started_{number}").write_text(json.dumps(sys.argv[1:]))
saves, ends = plan[number]
part = run / "resumed" / f"{number:03d}" if number else run
if saves is not None:
    part.mkdir(parents=True)
    (part / "header.json").touch()
    (run / "checkpoints" / f"step_{saves:08d}").mkdir(parents=True, exist_ok=True)
if ends == "waits":
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
    (run.parent / "waits").touch()
    time.sleep(100)
if ends == "hangs":
    faulthandler.register(signal.SIGUSR2)
    time.sleep(100)
if ends < 0:
    os.kill(os.getpid(), -ends)
sys.exit(ends)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fake_training.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RUN", str(tmp_path / "run"))
    return tmp_path


def test_a_training_that_hangs_is_ended_and_started_again(
    fake: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (fake / "plan.json").write_text(json.dumps([(20, "hangs"), (40, 0)]))
    assert supervise("fake_training", [], fake / "run", 2, from_spec=True, silent_seconds=1.5) == 0
    said = capfd.readouterr().err
    assert "supervisor: the training has recorded nothing for 1.5 s" in said
    assert "fake_training.py" in said, "its stacks"
    assert (
        "the training was killed by signal 9; start 1 of 2 more, from the checkpoint before step 20" in said
    )


@pytest.mark.parametrize(
    ("plan", "restarts", "code", "started", "said"),
    [
        ([(20, 0)], 2, 0, 1, ""),
        ([(20, 75)], 2, 75, 1, ""),
        (
            [(20, -9), (40, 2), (60, 0)],
            2,
            0,
            3,
            "ended with code 2; start 2 of 2 more, from the checkpoint before",
        ),
        (
            [(20, -9), (40, -9), (60, 1)],
            2,
            1,
            3,
            "the training ended with code 1; given up after 2 more starts",
        ),
        (
            [(20, -9), (20, -9)],
            5,
            2,
            2,
            "again before it had saved more than the checkpoint before step 20; given up",
        ),
        (
            [(20, -9), (None, 2)],
            5,
            2,
            2,
            "ended with code 2 before its first step; given up after 1 more start",
        ),
        # Its own line says what is wrong with it.
        ([(None, 2)], 5, 2, 1, ""),
    ],
)
def test_when_it_is_started_again(
    fake: Path,
    capfd: pytest.CaptureFixture[str],
    plan: list[tuple[int | None, int]],
    restarts: int,
    code: int,
    started: int,
    said: str,
) -> None:
    (fake / "plan.json").write_text(json.dumps(plan))
    assert supervise("fake_training", ["--flag"], fake / "run", restarts, from_spec=True) == code
    calls = [json.loads(path.read_text()) for path in sorted(fake.glob("started_*"))]
    assert len(calls) == started
    assert calls[0] == ["--flag", "--restarts=0"], "the first start is what was asked for"
    assert all(call == ["--flag", "--resume=auto", "--restarts=0"] for call in calls[1:])
    lines = capfd.readouterr().err.splitlines()
    assert (said in lines[-1]) if said else not lines


def test_what_it_is_asked_to_do_the_training_hears(fake: Path) -> None:
    """And it is not started again; nor is it left when its supervisor is killed."""
    (fake / "plan.json").write_text(json.dumps([(20, "waits"), (40, "waits")]))
    code = (
        "import sys; from pathlib import Path; from parity.common.execution.supervise import supervise;"
        f"sys.exit(supervise('fake_training', [], Path({str(fake / 'run')!r}), 3, True))"
    )
    for number in (signal.SIGUSR1, signal.SIGKILL):
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{fake}"}
        )
        wait_until("no training", (fake / "waits").exists)
        (child,) = descendants(process.pid)
        process.send_signal(number)
        assert process.wait(SECONDS) == (75 if number == signal.SIGUSR1 else -9)
        wait_until("the training is left", lambda child=child: not runs(child))  # type: ignore[misc]
        (fake / "waits").unlink()


def refused(*flags: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torch_impl", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 2
    return one_line(done.stderr)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--out=x",), "--restarts 1 goes on from checkpoints; add --save_every_steps N"),
        (("--out=x", "--save_every_steps=5", "--launcher=torchrun"), "with torchrun take its --max-restarts"),
        (("--save_every_steps=5",), "--out is required"),
    ],
)
def test_what_cannot_be_supervised_is_refused_in_one_line(flags: tuple[str, ...], message: str) -> None:
    assert message in refused("--recipe=digits_mlp", "--restarts=1", *flags)


def begun(part: Path) -> Path:
    part.mkdir(parents=True, exist_ok=True)
    (part / "header.json").touch()
    return part


def test_all_ranks_begin_where_the_first_does(tmp_path: Path) -> None:
    """Whatever another process sees of the folder meanwhile; and not where an earlier start did."""
    spec, run = recipes.get("digits_mlp").resolved(), tmp_path / "run"
    first, second = (attempt_of("auto", None, {"TORCHELASTIC_RESTART_COUNT": str(n)}) for n in range(2))
    anew = Start(spec, run)
    # Before it has begun there is nothing to decide, and the folder stays empty.
    assert decide(run, first, lambda: anew) == anew == follow(run, first, anew, 0.1) and not run.exists()
    begun(run)
    chosen = Start(spec, run / "resumed" / "001", str(run / "checkpoints" / "step_00000040"))
    with pytest.raises(RunError, match=r"start.json: waited 0.1 s for rank 0 to say where the run goes on"):
        follow(run, second, anew, 0.1)
    assert decide(run, second, lambda: chosen) == chosen == follow(run, second, anew, 0.1)
    # Killed before it was trained on, it stands: another may have read it.
    assert decide(run, second, lambda: anew) == chosen
    # An earlier start's, or one that has been trained on, does not.
    for attempt, part in ((first, None), (second, chosen.part)):
        if part is not None:
            begun(part)
        with pytest.raises(RunError, match="waited"):
            follow(run, attempt, anew, 0.1)
    later = Start(spec, run / "resumed" / "002", chosen.checkpoint)
    assert decide(run, second, lambda: later) == later == follow(run, second, anew, 0.1)
    (run / "start.json").write_text("{")
    with pytest.raises(RunError, match="waited"):
        follow(run, second, anew, 0.1)


def test_a_manifest_goes_on_where_it_saves(capsys: pytest.CaptureFixture[str]) -> None:
    """Applied again it finds its run; one that saves nothing would only be refused."""

    def flags(more: str) -> list[str]:
        parser = argparse.ArgumentParser()
        manifest.add(parser.add_subparsers(required=True))
        asked = [
            "--image=x/parity:1",
            "--kind=job",
            f"--placement=torch:ddp:2,nodes=2{more}",
            "--recipe=digits_mlp",
        ]
        options = parser.parse_args(["manifest", *asked])
        assert options.command(options) == 0
        (job,) = [each for each in yaml.safe_load_all(capsys.readouterr().out) if each["kind"] == "Job"]
        found: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    saving = flags(",save={every_steps: 50}")
    assert "--save_every_steps=50" in saving and "--resume=auto" in saving
    assert not [flag for flag in flags("") if flag.startswith(("--resume", "--save"))]
