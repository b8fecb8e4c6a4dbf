"""Several processes of one run on this machine, started together and ended together."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import tempfile
import traceback
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from common.errors import ParityError, RunError

_GRACE_SECONDS = 10


def run_ranks(
    function: str, arguments: tuple[Any, ...], ranks: int, log_dir: Path, preload: list[str]
) -> None:
    """Run `module:function(*arguments)` in `ranks` processes and wait for all.

    Each gets RANK, LOCAL_RANK, WORLD_SIZE and PARITY_RENDEZVOUS in its environment, one thread for
    OpenMP, and its output in `log_dir/rank_N.log`. When one fails, the others are ended.

    Args:
        function: "package.module:name"; imported in each rank.
        arguments: picklable.
        ranks: how many.
        log_dir: created.
        preload: modules that the fork server imports once, so that each rank starts in 0.05 s.

    Raises:
        RunError: a rank failed; the message holds its last line.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload)
    # Forking after OpenMP has started threads hangs, unless it may use only one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="parity-") as meeting_place:
        rendezvous = os.path.join(meeting_place, "rendezvous")
        processes = [
            context.Process(
                target=_rank_main,
                args=(function, arguments, rank, ranks, rendezvous, log_dir / f"rank_{rank}.log"),
                name=f"rank {rank}",
                daemon=True,
            )
            for rank in range(ranks)
        ]
        try:
            for process in processes:
                process.start()
            _wait(processes, log_dir)
        finally:
            _end(processes)


def _wait(processes: list[Any], log_dir: Path) -> None:
    running: dict[Any, int] = {process.sentinel: rank for rank, process in enumerate(processes)}
    while running:
        for sentinel in wait(list(running)):
            rank = running.pop(sentinel)
            processes[rank].join()
            code = processes[rank].exitcode
            if code != 0:
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise RunError(f"rank {rank} {how}: {last_line(log_dir / f'rank_{rank}.log')}")


def _end(processes: list[Any]) -> None:
    for process in processes:
        if process.pid is not None and process.is_alive():
            process.terminate()
    for process in processes:
        if process.pid is not None:
            process.join(_GRACE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


def last_line(log: Path) -> str:
    """The last line of a log that says something, and where the rest is."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return f"{lines[-1]} (log: {log})" if lines else f"it said nothing (log: {log})"


def _rank_main(
    function: str, arguments: tuple[Any, ...], rank: int, ranks: int, rendezvous: str, log: Path
) -> None:
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
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
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads may abort a normal interpreter exit after everything has been written.
    os._exit(code)
