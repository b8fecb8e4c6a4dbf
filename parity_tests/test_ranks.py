"""Ranks on one machine: none is left behind, none is waited for in vain, and the one at fault is named."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from parity.common.base.errors import RunError
from parity.common.execution import ranks
from parity.common.execution.rank_failures import lost_peer
from parity.common.execution.ranks import run_ranks
from parity_tests.helpers import ROOT
from parity_tests.helpers.processes import runs, wait_until

SECONDS = 60.0


def run(body: str, folder: Path, count: int = 2, timeout_seconds: float | None = None) -> None:
    function = f"parity_tests.bodies.ranks:{body}"
    run_ranks(function, (folder,), count, folder / "logs", [], timeout_seconds)


def pids(folder: Path) -> dict[str, int]:
    return {path.stem: int(path.read_text()) for path in folder.glob("*.pid")}


def all_gone(folder: Path) -> bool:
    return not any(map(runs, pids(folder).values()))


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/"


class OwnError(RuntimeError):
    """Stands for torch's own of a collective."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(f"{GLOO}pair.cc:534] Connection closed by peer [::1]:38"), "Connection closed by peer [::1]:38"),
        (RuntimeError(f"Gloo connectFullMesh failed with {GLOO}pair.cc:144] no error"), "Gloo connectFullMesh failed with"),
        (RuntimeError(f"{GLOO}unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation"), "waited 3 s"),
        (RuntimeError(f"{GLOO}pair.cc:534] Application timeout caused pair closure"), "waited 3 s"),
        (OwnError("Broken pipe. This is typically because of a peer"), "Broken pipe"),
        # These only mention it.
        (ValueError("unknown backend 'gloo-x'"), None),
        (RuntimeError("the backend gloo has no reduce_scatter"), None),
        (RuntimeError("[enforce fail at /gloo/transport/tcp/device.cc:84] no interface eth9"), None),
        (KeyError("Timed out waiting 3ms for my operation"), None),
    ],
)  # fmt: skip
def test_an_error_that_mentions_gloo_is_not_yet_a_lost_peer(error: Exception, said: str | None) -> None:
    found = lost_peer(error, OwnError, 3)
    assert found == said if said is None else found is not None and found.startswith(said)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[object]:
    """Starts a process with two ranks in a session of its own; ends what a failed test leaves."""
    started = []

    def start(body: str, how: str, *awaited: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "parity_tests.bodies.ranks", body, how, str(tmp_path)]
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            start_new_session=True,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            # A shell has what it starts in the background ignore interrupts, and that is inherited.
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        started.append(child)
        wait_until("the ranks did not start", lambda: pids(tmp_path).keys() >= set(awaited))
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
    for pid in filter(runs, pids(tmp_path).values()):
        os.kill(pid, signal.SIGKILL)


def test_all_ranks_return(tmp_path: Path) -> None:
    run("returns", tmp_path, 3, timeout_seconds=SECONDS)
    assert pids(tmp_path).keys() == {"rank_0", "rank_1", "rank_2"}


def test_a_rank_that_raises_ends_the_others(tmp_path: Path) -> None:
    line = r"^rank 1 ended with code 1: ValueError: the disk of rank 1 is gone \(\S*ranks.py:\d+\) \(log: "
    with pytest.raises(RunError, match=line):
        run("one_raises", tmp_path)
    assert len(pids(tmp_path)) == 2 and all_gone(tmp_path)


def test_a_message_of_several_lines_keeps_its_type_and_its_first_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^rank 0 ended with code 1: LookupError: the cause some advice \("):
        run("raises_several_lines", tmp_path, 1)
    assert "Traceback" in (tmp_path / "logs" / "rank_0.log").read_text()


def test_a_full_disk_does_not_lose_the_reason(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for rank in range(2):
        (tmp_path / "logs" / f"rank_{rank}.log").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"^rank 1 ended with code 1: ValueError: the disk of rank 1 is gone "):
        run("one_raises", tmp_path)


def hours_pass(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int) -> None:
    """Between two looks at a clock, from when all ranks are at work."""
    hours = itertools.count()

    def now() -> float:
        return 1e4 * next(hours) if len(pids(folder)) == count else 0.0

    monkeypatch.setattr(ranks, "time", SimpleNamespace(monotonic=now, time=time.time))


def test_ranks_that_record_nothing_are_ended_and_say_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours_pass(monkeypatch, tmp_path, 2)
    place = r"it is at \(\S*ranks.py:\d+\)"
    with pytest.raises(
        RunError, match=rf"^nothing was recorded for 3600 s: rank 0, {place}; rank 1, {place}; host: "
    ):
        run("unwatched", tmp_path)
    assert all_gone(tmp_path)


def test_ranks_that_record_something_are_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours_pass(monkeypatch, tmp_path, 1)
    run("records_slowly", tmp_path, 1)


def test_a_rank_that_is_killed_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^rank 1 was killed by signal 9: last words of rank 1 \(log: "):
        run("one_is_killed", tmp_path)
    assert len(pids(tmp_path)) == 2 and all_gone(tmp_path)


def test_of_several_that_failed_the_first_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ranks.wait

    def late(*arguments: object) -> object:
        wait_until("they did not end", lambda: len(pids(tmp_path)) == 3 and all_gone(tmp_path))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ranks, "wait", late)
    with pytest.raises(RunError, match=r"^rank 2 ended with code 1: ValueError: the cause"):
        run("others_follow", tmp_path, 3)


def test_a_rank_that_ignores_the_signal_is_ended_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_GRACE_SECONDS", 0.3)
    with pytest.raises(RunError, match=r"^rank 1 ended with code 1"):
        run("deaf", tmp_path)
    assert len(pids(tmp_path)) == 2 and all_gone(tmp_path)


def test_a_rank_that_hangs_at_its_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.monotonic
    # The time is over as soon as both have come as far as they will.
    monkeypatch.setattr(ranks.time, "monotonic", lambda: real() + (1000 if len(pids(tmp_path)) == 2 else 0))
    with pytest.raises(
        RunError, match=r"^rank 1 was not ready within 999 s: rank 1 waits for its device \(log: "
    ):
        run("one_is_late", tmp_path, timeout_seconds=999)
    assert len(pids(tmp_path)) == 2 and all_gone(tmp_path)


def test_a_rank_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    def start(target: object, arguments: object, count: int) -> Iterator[object]:
        yield from rank_bodies.spawned(target, arguments, 1)  # type: ignore[arg-type]
        raise OSError("no memory for another process")

    from parity_tests.bodies import ranks as rank_bodies

    with pytest.raises(RunError, match=r"^rank 1 could not be started: no memory for another process"):
        run_ranks("parity_tests.bodies.ranks:unwatched", (tmp_path,), 2, tmp_path / "logs", [], None, start)
    assert all_gone(tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["forked", "spawned"])
@pytest.mark.parametrize("body", ["unwatched", "holds_the_lock"])
def test_ranks_die_with_a_killed_parent(parent, tmp_path: Path, body: str, how: str) -> None:
    child = parent(body, how, "rank_0", "rank_1")
    child.kill()
    wait_until(f"{pids(tmp_path)} outlived their parent", lambda: all_gone(tmp_path))


def test_ranks_that_were_not_told_outlive_their_parent(parent, tmp_path: Path) -> None:
    """The control of the test above."""
    child = parent("unwatched", "unarmed", "rank_0", "rank_1")
    child.kill()
    child.wait()
    time.sleep(1)
    assert all(map(runs, pids(tmp_path).values()))


def test_children_of_a_rank_die_with_it(parent, tmp_path: Path) -> None:
    child = parent("has_a_child", "forked", "rank_0", "rank_1", "child_0", "child_1")
    child.kill()
    wait_until(f"{pids(tmp_path)} outlived the rank", lambda: all_gone(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_parent_leaves_nothing(parent, tmp_path: Path, number: signal.Signals) -> None:
    child = parent("unwatched", "forked", "rank_0", "rank_1")
    # As a terminal does: to everyone in the foreground.
    os.killpg(child.pid, number)
    assert child.wait(SECONDS) != 0
    wait_until(f"{pids(tmp_path)} outlived their parent", lambda: all_gone(tmp_path))
    if number == signal.SIGINT:
        left = [path.name for path in tmp_path.iterdir() if re.match("parity-|pymp-", path.name)]
        assert left == []


def test_what_the_fork_server_imports_last_is_there() -> None:
    """It passes over a module that it does not find."""
    assert importlib.util.find_spec(ranks.FORK_SERVER) is not None
