"""Several processes of one run on this machine, started together and ended together."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import platform
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from parity.common.base.errors import ParityError, RunError, StoppedError
from parity.common.base.stop import passing_on
from parity.common.execution.operating_system import die_with_parent
from parity.common.record.header import steps_in

READY = "is ready to meet the others"
_GRACE_SECONDS = 5
_POLL_SECONDS = 0.1
# What a rank says, in its framework's words or ours, that has waited for another.
_LATE = re.compile(r"Application timeout|Timed out waiting|timed out waiting|waited \d+ s in a collective")

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
        timeout_seconds: by then each rank must have called `arrive`; None: it need not.
        start: who starts the processes; default: the fork server.
        stoppable: pass on to the ranks when this process is asked to stop (`parity.common.base.stop`).

    Raises:
        RunError: a rank failed or did not arrive; the message names it and holds its last line.
        StoppedError: the ranks have stopped as asked.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    # Forking after OpenMP has started threads hangs, unless it may use only one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="parity-") as meeting_place:
        rendezvous = os.path.join(meeting_place, "rendezvous")
        processes: list[Any] = []
        with passing_on(rendezvous) if stoppable else nullcontext():
            try:
                try:
                    # One by one: those that have started must be ended if the next cannot be.
                    given = (function, arguments, ranks, rendezvous, log_dir)
                    for process in (start or _forked(preload))(_rank_main, given, ranks):
                        processes.append(process)
                except (OSError, EOFError) as error:
                    raise RunError(f"rank {len(processes)} could not be started: {error}") from None
                _wait(processes, log_dir, rendezvous, timeout_seconds)
            finally:
                _end(processes)


def reached(record: Path) -> str:
    """'; last recorded step: 41' of a run that ends early; nothing, where it has recorded none."""
    steps = steps_in(record / "steps.f64")
    return f"; last recorded step: {steps - 1}" if steps else ""


def arrive() -> None:
    """Say that this rank has started and is ready to meet the others: to `run_ranks`, or in srun's log."""
    rendezvous, known = os.environ.get("PARITY_RENDEZVOUS"), os.environ.get
    if rendezvous is not None:
        _arrival(rendezvous, int(os.environ["RANK"])).touch()
    elif "SLURM_STEP_NODELIST" in os.environ:
        who = f"rank {known('SLURM_PROCID')} of {known('SLURM_STEP_NUM_TASKS')} on {platform.node()}"
        print(f"{who} {READY}", flush=True)


def _arrival(rendezvous: str, rank: int) -> Path:
    return Path(f"{rendezvous}.{rank}")


def _forked(preload: list[str]) -> Start:
    def start(target: Callable[..., None], arguments: tuple[Any, ...], ranks: int) -> Iterable[Any]:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(preload)
        for rank in range(ranks):
            # No daemon: a rank may have loader workers of its own.
            process = context.Process(target=target, args=(rank, *arguments), name=f"rank {rank}")
            process.start()
            yield process

    return start


def _wait(processes: list[Any], log_dir: Path, rendezvous: str, timeout_seconds: float | None) -> None:
    running: dict[Any, int] = {process.sentinel: rank for rank, process in enumerate(processes)}
    awaited = set() if timeout_seconds is None else set(running.values())
    deadline = time.monotonic() + (timeout_seconds or 0)
    stopped = None
    while running:
        failed = []
        for sentinel in wait(list(running), _POLL_SECONDS if awaited else None):
            rank = running.pop(sentinel)
            processes[rank].join()
            if processes[rank].exitcode == StoppedError.exit_code:
                stopped = rank
            elif processes[rank].exitcode != 0:
                failed.append(rank)
        if failed:
            # One that fails takes others with it; the first to fall silent is the cause.
            rank = min(failed, key=lambda rank: _last_written(_log(log_dir, rank)))
            said = f"{how_it_ended(processes[rank].exitcode)}: {last_line(_log(log_dir, rank))}"
            stuck = _stuck(processes, running, said)
            cause = f"rank {rank} {said}" if stuck is None else f"rank {stuck} is stuck: rank {rank} {said}"
            raise RunError(f"{cause}; host: {platform.node()}{reached(log_dir.parent)}")
        awaited = {rank for rank in awaited & {*running.values()} if not _arrival(rendezvous, rank).exists()}
        if awaited and time.monotonic() > deadline:
            rank = min(awaited)
            raise RunError(
                f"rank {rank} was not ready within {timeout_seconds:g} s: {last_line(_log(log_dir, rank))};"
                f" host: {platform.node()}"
            )
    if stopped is not None:
        raise StoppedError(last_line(_log(log_dir, stopped)).partition(" (log: ")[0])


def _stuck(processes: list[Any], running: dict[Any, int], said: str) -> int | None:
    """The rank for which one that failed has waited in vain: those that wait as well end at about the same time."""
    if not _LATE.search(said):
        return None
    deadline = time.monotonic() + _GRACE_SECONDS
    for rank in running.values():
        processes[rank].join(max(0.0, deadline - time.monotonic()))
    return next((rank for rank in sorted(running.values()) if processes[rank].is_alive()), None)


def how_it_ended(code: int) -> str:
    """What the exit code of a process means."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _end(processes: list[Any]) -> None:
    """End what still runs: politely, then by force, so that a rank which ignores SIGTERM ends too."""
    running = [process for process in processes if process.is_alive()]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join(_GRACE_SECONDS)
        if not process.is_alive():
            process.close()


def _log(log_dir: Path, rank: int) -> Path:
    return log_dir / f"rank_{rank}.log"


def _last_written(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except OSError:
        return 0.0


def last_line(log: Path) -> str:
    """The last line of a log that says something, and where the rest is."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return f"{lines[-1]} (log: {log})" if lines else f"it said nothing (log: {log})"


def _rank_main(
    rank: int, function: str, arguments: tuple[Any, ...], ranks: int, rendezvous: str, log_dir: Path
) -> None:
    with open(_log(log_dir, rank), "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    die_with_parent()
    # Ctrl-C reaches the whole group; whoever started the ranks ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), PARITY_RENDEZVOUS=rendezvous
    )
    code = 1
    try:
        module, _, name = function.partition(":")
        getattr(importlib.import_module(module), name)(*arguments)
        code = 0
    except ParityError as error:
        print(error, file=sys.stderr)
        code = StoppedError.exit_code if isinstance(error, StoppedError) else code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads may abort a normal interpreter exit after everything has been written.
    os._exit(code)
