"""What ranks do in the tests of how runs end early; none of them knows a framework."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from parity.common.base.errors import RunError, StoppedError
from parity.common.base.stop import Stop
from parity.common.record import RecordWriter
from parity.common.record.invariants import StepFacts
from parity.common.spec import Placement
from parity_tests.helpers.records import FACTS, tiny_spec

FOREVER = 1000.0


def wait_until(true: Callable[[], object]) -> None:
    while not true():
        time.sleep(0.01)


def asked(folder: Path, parent: int, number: int, times: int) -> None:
    """Rank 0 has the process that started it asked to stop; each rank stops once it has heard of it."""
    mine = Stop(watching=True)
    rank = int(os.environ["RANK"])
    if rank == 0:
        for _ in range(times):
            os.kill(parent, number)
            wait_until(mine.requested)
    wait_until(mine.requested)
    (folder / f"heard_{rank}").touch()
    raise StoppedError("stopped before step 3 as asked")


def listens(folder: Path) -> None:
    """Waits for nothing: it was asked before it began."""
    mine = Stop(watching=True)
    assert mine.requested()
    (folder / f"heard_{os.environ['RANK']}").touch()
    raise StoppedError("stopped before step 1 as asked")


def goes_on_without_being_asked(folder: Path) -> None:
    assert not Stop(watching=True).requested()
    (folder / f"heard_{os.environ['RANK']}").touch()


def one_hangs(folder: Path, said: str) -> None:
    """Rank 0 records a step, and so does rank 1, which then does nothing any more; rank 2 waits as well."""
    rank = int(os.environ["RANK"])
    if rank == 0:
        record(folder, 3)
    if rank == 1:
        print("rank 1 reads its disk", flush=True)
        (folder / "hangs").touch()
        time.sleep(FOREVER)
    wait_until((folder / "hangs").exists)
    raise RunError(said)


def record(folder: Path, steps: int) -> None:
    spec = tiny_spec()
    writer = RecordWriter(folder, spec, Placement(framework="torch", strategy="single"), range(1), FACTS)
    for step in range(steps):
        writer.step(step, StepFacts(0.1, (1.0, 16.0, 1.0, 1.0, 1.0), [np.arange(16)]))
    writer.close()
