"""Several processes of one run on this machine, started together and ended together."""

from __future__ import annotations

import functools
import gc
import importlib
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from parity.common.base.errors import RunError, StoppedError
from parity.common.base.plain import print_line
from parity.common.base.scratch import make_scratch, scratch_folder
from parity.common.base.stop import passing_on
from parity.common.execution.operating_system import die_with_parent
from parity.common.execution.processes.child import NOTHING_SAID, how_it_ended
from parity.common.execution.processes.liveness import growth, report_stacks, silence_limit, whereabouts
from parity.common.execution.rank_failures import (
    LATE,
    Failures,
    log_of,
    reached,
    report,
    reports_to,
)
from parity.import_path import children_leaving_working_folder

READY = "is ready to meet the others"
# By its name: what this process imports, the fork server would import before the framework.
FORK_SERVER = "parity.common.execution.processes.fork_server"
_GRACE_SECONDS = 5
_POLL_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_SHOWN = 4  # ranks that are named where all hang

# (function of a rank and more, those more arguments, how many ranks) -> processes, as they are started.
Start = Callable[[Callable[..., None], tuple[Any, ...], int], Iterable[Any]]


def run_ranks(
    function: str,
    arguments: tuple[Any, ...],
    ranks: int,
    log_dir: Path,
    preload: list[str],
    timeout_seconds: float | None = None,
    start: Start | None = None,
    stoppable: bool = False,
) -> None:
    """Run `module:function(*arguments)` in `ranks` processes and wait for all.

    Each gets RANK, LOCAL_RANK, WORLD_SIZE and PARITY_RENDEZVOUS in its environment, one thread for
    OpenMP, and its output in `log_dir/rank_N.log`. When one fails, the others are ended, by force if
    need be. When this process ends, however it ends, so do they.

    Args:
        function: "package.module:name"; imported in each rank.
        arguments: picklable.
        ranks: how many.
        log_dir: created.
        preload: modules that the fork server imports once, so that each rank starts in 0.05 s.
        timeout_seconds: by then each rank must have called `arrive`; None: it need not. The ranks are also ended
            where nothing changes in the folder of `log_dir` for `silence_limit`.
        start: who starts the processes; default: the fork server.
        stoppable: pass on to the ranks when this process is asked to stop (`parity.common.base.stop`).

    Raises:
        RunError: a rank failed, did not arrive or hangs; the message names it and holds its error or last line.
        StoppedError: the ranks have stopped as asked.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    # Forking after OpenMP has started threads hangs, unless it may use only one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with scratch_folder() as meeting_place:
        rendezvous = str(meeting_place / "rendezvous")
        processes: list[Any] = []
        reader, writer = multiprocessing.Pipe(duplex=False)
        with reader, writer, passing_on(rendezvous) if stoppable else nullcontext():
            try:
                try:
                    # One by one: those that have started must be ended if the next cannot be.
                    given = (function, arguments, ranks, rendezvous, log_dir, writer)
                    for process in (start or functools.partial(_forked, preload))(_rank_main, given, ranks):
                        processes.append(process)
                except (OSError, EOFError) as error:
                    raise RunError(f"rank {len(processes)} could not be started: {error}") from None
                _wait(processes, log_dir, rendezvous, timeout_seconds, Failures(reader, log_dir))
            finally:
                _end(processes)


def arrive() -> None:
    """Say that this rank has started and is ready to meet the others: to `run_ranks`, or in srun's log."""
    rendezvous, known = os.environ.get("PARITY_RENDEZVOUS"), os.environ.get
    if rendezvous is not None:
        _arrival(rendezvous, int(os.environ["RANK"])).touch()
    elif "SLURM_STEP_NODELIST" in os.environ:
        who = f"rank {known('SLURM_PROCID')} of {known('SLURM_STEP_NUM_TASKS')} on {platform.node()}"
        print_line(f"{who} {READY}")
        sys.stdout.flush()


def _arrival(rendezvous: str, rank: int) -> Path:
    return Path(f"{rendezvous}.{rank}")


def _forked(
    preload: list[str], target: Callable[..., None], arguments: tuple[Any, ...], ranks: int
) -> Iterable[Any]:
    # Where the fork server's socket is, and would be left if this process were killed.
    config: dict[str, Any] = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    if "tempdir" not in config:
        config["tempdir"] = str(make_scratch())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*preload, FORK_SERVER])
    for rank in range(ranks):
        # No daemon: a rank may have loader workers of its own.
        process = context.Process(target=target, args=(rank, *arguments), name=f"rank {rank}")
        with children_leaving_working_folder():
            process.start()
        yield process


def _wait(
    processes: list[Any], log_dir: Path, rendezvous: str, timeout_seconds: float | None, failures: Failures
) -> None:
    running: dict[Any, int] = {process.sentinel: rank for rank, process in enumerate(processes)}
    awaited = set() if timeout_seconds is None else set(running.values())
    deadline = time.monotonic() + (timeout_seconds or 0)
    limit = silence_limit(timeout_seconds)
    seen, silent = growth(log_dir.parent), time.monotonic() + limit
    stopped = None
    while running:
        failed = []
        for sentinel in wait(list(running), _POLL_SECONDS if awaited else _LOOK_SECONDS):
            rank = running.pop(sentinel)
            processes[rank].join()
            if processes[rank].exitcode == StoppedError.exit_code:
                stopped = rank
            elif processes[rank].exitcode != 0:
                failed.append(rank)
        failures.read()
        if failed:
            # One that fails takes others with it; the first to fall silent is the cause.
            rank = min(failed, key=failures.time)
            code = processes[rank].exitcode
            said = f"{how_it_ended(code)}: {failures.said(rank)}"
            if code == -signal.SIGKILL and failures.text(rank) == NOTHING_SAID:
                said += "; the kernel ends processes so where memory runs out"
            cause = f"{_stuck(processes, running, said)}rank {rank} {said}"
            raise RunError(f"{cause}; host: {platform.node()}{reached(log_dir.parent)}")
        awaited = {rank for rank in awaited & {*running.values()} if not _arrival(rendezvous, rank).exists()}
        if awaited and time.monotonic() > deadline:
            rank = min(awaited)
            said = failures.said(rank) + whereabouts(processes[rank].pid, log_of(log_dir, rank))
            raise RunError(
                f"rank {rank} was not ready within {timeout_seconds:g} s: {said}; host: {platform.node()}"
            )
        if running and time.monotonic() > silent:
            before, seen, silent = seen, growth(log_dir.parent), time.monotonic() + limit
            if before == seen:
                places = "; ".join(
                    f"rank {rank}{whereabouts(processes[rank].pid, log_of(log_dir, rank))}"
                    for rank in sorted(running.values())[:_SHOWN]
                )
                raise RunError(
                    f"nothing was recorded for {limit:g} s: {places}; host: {platform.node()}"
                    f"{reached(log_dir.parent)} (logs: {log_dir})"
                )
    if stopped is not None:
        raise StoppedError(failures.text(stopped))


def _stuck(processes: list[Any], running: dict[Any, int], said: str) -> str:
    """'rank 1 is stuck: ' of the rank for which one that failed has waited in vain; '' where it failed by itself.

    Others that wait as well end at about the same time.
    """
    if not LATE.search(said):
        return ""
    deadline = time.monotonic() + _GRACE_SECONDS
    for rank in sorted(running.values()):
        if _stopped(processes[rank].pid):
            return f"rank {rank} is stopped (SIGSTOP): "
    for rank in running.values():
        processes[rank].join(max(0.0, deadline - time.monotonic()))
    stuck = next((rank for rank in sorted(running.values()) if processes[rank].is_alive()), None)
    return "" if stuck is None else f"rank {stuck} is stuck: "


def _stopped(pid: int) -> bool:
    """Whether a process was told to stop, and not yet to go on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _end(processes: list[Any]) -> None:
    """End what still runs: politely, then by force, so that a rank which ignores SIGTERM ends too."""
    running = [process for process in processes if process.is_alive()]
    for process in running:
        process.terminate()
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)  # one that is stopped would not hear it
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join(_GRACE_SECONDS)
        if not process.is_alive():
            process.close()


def _rank_main(
    rank: int,
    function: str,
    arguments: tuple[Any, ...],
    ranks: int,
    rendezvous: str,
    log_dir: Path,
    failures: Connection,
) -> None:
    code = 1
    reports_to(failures, rank)
    try:
        with open(log_of(log_dir, rank), "ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        report_stacks()
        die_with_parent()
        # Ctrl-C reaches the whole group; whoever started the ranks ends them.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), PARITY_RENDEZVOUS=rendezvous
        )
        module, _, name = function.partition(":")
        entry = getattr(importlib.import_module(module), name)
        # The frameworks' own hundreds of thousands of objects are never garbage: no collection walks through them.
        gc.freeze()
        entry(*arguments)
        code = 0
    except BaseException as error:
        code = report(error)
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # gloo's threads may abort a normal interpreter exit after everything has been written.
    os._exit(code)
