"""Ranks of real trainings of which one fails after some steps: what `test_bounds.py` times."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FAILS_AT, WARM = 300, 40
FOREVER = 1000.0


def rank_one_fails(framework: str, how: str, *arguments: Any) -> None:
    """A rank's training, where rank 1 does something before step FAILS_AT; all note their threads at WARM and then."""
    train = importlib.import_module(f"parity.{framework}_impl.train")
    batches, rank, out = train.data.batches, os.environ["RANK"], Path(arguments[2])

    def some(*given: Any) -> Iterator[Any]:
        for number, batch in enumerate(batches(*given)):
            if number in (WARM, FAILS_AT):
                (out / f"threads_{rank}_{number}").write_text(str(len(os.listdir("/proc/self/task"))))
            if number == FAILS_AT and rank == "1":
                (out / "failed").write_text(repr(time.monotonic()))
                fail(how)
            yield batch

    train.data.batches = some
    train.train_rank(*arguments)


def fail(how: str) -> None:
    """Hang, run out of memory, or be sent a signal."""
    if how == "hangs":
        time.sleep(FOREVER)
    elif how == "memory":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (1 << 24)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        np.ones(1 << 28)
    else:
        os.kill(os.getpid(), signal.Signals[how])
