"""What ranks do in the tests of how they are started and ended; none of them knows a framework."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from parity.common.execution import ranks
from parity.common.execution.operating_system import die_with_parent
from parity.common.execution.ranks import arrive, run_ranks

FOREVER = 1000.0


def rank() -> int:
    return int(os.environ["RANK"])


def note(folder: Path, name: str = "rank") -> None:
    """Leave this process's id where the test finds it."""
    (folder / f"{name}_{rank()}.partial").write_text(str(os.getpid()))
    (folder / f"{name}_{rank()}.partial").rename(folder / f"{name}_{rank()}.pid")


def wait_for(folder: Path, *names: str) -> None:
    while not all((folder / f"{name}.pid").exists() for name in names):
        time.sleep(0.01)


def returns(folder: Path) -> None:
    arrive()
    note(folder)


def one_raises(folder: Path) -> None:
    note(folder)
    wait_for(folder, "rank_0", "rank_1")
    if rank() == 1:
        raise ValueError("the disk of rank 1 is gone")
    time.sleep(FOREVER)


def raises_several_lines(folder: Path) -> None:
    raise LookupError("the cause\n\n  some advice\n")


def records_slowly(folder: Path) -> None:
    """For longer than a rank may be silent, and never so long without a record."""
    note(folder)
    for _ in range(40):
        time.sleep(0.1)
        with open(folder / "steps", "ab") as file:
            file.write(b"x")


def one_is_killed(folder: Path) -> None:
    note(folder)
    wait_for(folder, "rank_0", "rank_1")
    if rank() == 1:
        print("last words of rank 1", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(FOREVER)


def others_follow(folder: Path) -> None:
    """Rank 2 fails, and the others because of it, before anyone looks."""
    note(folder)
    wait_for(folder, "rank_0", "rank_1", "rank_2")
    time.sleep(0 if rank() == 2 else 0.3)
    raise ValueError("no answer" if rank() != 2 else "the cause")


def deaf(folder: Path) -> None:
    """Rank 0 ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    one_raises(folder)


def one_is_late(folder: Path) -> None:
    if rank() == 1:
        print("rank 1 waits for its device", flush=True)
    else:
        arrive()
    note(folder)
    time.sleep(FOREVER)


def holds_the_lock(folder: Path) -> None:
    """Sleep in C without letting any other thread of Python run, as a framework's call that hangs."""
    note(folder)
    ctypes.PyDLL(None).sleep(int(FOREVER))


def has_a_child(folder: Path) -> None:
    """A rank with a process of its own, as a loader worker is."""
    child = multiprocessing.get_context("forkserver").Process(
        target=_child, args=(folder, rank()), daemon=True
    )
    child.start()
    note(folder)
    time.sleep(FOREVER)


def _child(folder: Path, number: int) -> None:
    die_with_parent()
    os.environ["RANK"] = str(number)
    note(folder, "child")
    time.sleep(FOREVER)


def unwatched(folder: Path) -> None:
    note(folder)
    time.sleep(FOREVER)


def spawned(target: Callable[..., None], arguments: tuple[Any, ...], count: int) -> Iterable[Any]:
    """Another way to start ranks."""
    for number in range(count):
        process = multiprocessing.get_context("spawn").Process(target=target, args=(number, *arguments))
        process.start()
        yield process


def unarmed(target: Callable[..., None], arguments: tuple[Any, ...], count: int) -> Iterable[Any]:
    """As the fork server, but the ranks do not die with their parent: what the tests must notice."""
    for number in range(count):
        process = multiprocessing.get_context("forkserver").Process(
            target=_unarmed_main, args=(number, target, arguments)
        )
        process.start()
        yield process


def _unarmed_main(number: int, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    with patch.object(ranks, "die_with_parent", lambda: None):
        target(number, *arguments)


STARTS = {"forked": None, "spawned": spawned, "unarmed": unarmed}


def main(body: str, how: str, folder: str) -> None:
    """A process that runs two ranks, for tests that end it."""
    run_ranks(
        f"parity_tests.bodies.ranks:{body}", (Path(folder),), 2, Path(folder) / "logs", [], None, STARTS[how]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
