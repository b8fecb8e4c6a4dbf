"""Processes in which saving a checkpoint fails; started by `test_checkpoint.py`, each prints what it saw as JSON.

kills FOLDER STRIDE: one that saves, killed before every so many-th line that it runs.
full FOLDER: one whose files may not grow beyond a size, as on a disk that is full.

A killed process leaves what it has given to the system; that this also outlives a loss of power is what fsync
is for, and is not tried here.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import parity.common.base.files
import parity.common.checkpoint
from parity.common.base.errors import CheckpointError
from parity.common.checkpoint import CheckpointManager, find
from parity.common.record import files
from parity.common.reference import StepScalars
from parity.common.spec import Placement, RunOptions
from parity.common.spec.run_options import Saving
from parity.common.state.canonical import State, initial_state
from parity_tests.helpers.records import tiny_spec

SPEC = tiny_spec()
PLACEMENT = Placement(framework="torch", strategy="single")
OPTIONS = RunOptions(save=Saving(every_steps=1, keep_last=1, keep_best=1))
# Where a kill may come: in all that changes a file, and in what of the standard library removes folders.
_WATCHED = (
    os.path.dirname(parity.common.checkpoint.__file__),
    parity.common.base.files.__file__,
    files.__file__,
    shutil.__file__,
)
IN_BACKGROUND = RunOptions(save=Saving(every_steps=1, keep_last=9))


def state_at(step: int) -> State:
    """A state that is told apart from that of another step."""
    state = {name: value + step for name, value in initial_state(SPEC).items()}
    return {**state, "step": np.array(step, np.int64)}


def checkpoints(run: Path, first_step: int) -> CheckpointManager:
    return CheckpointManager(run, SPEC, PLACEMENT, first_step, True, list, OPTIONS)


def save(run: Path, first_step: int, *steps: int) -> None:
    """Train on from a step, as far as checkpoints are concerned."""
    kept = checkpoints(run, first_step)
    for step in steps:
        kept.observe(100.0 - step, 1.0)
        kept.stopping = True  # in this thread, whose lines are watched
        kept.save(step, state_at(step), StepScalars(SPEC).kept())
    kept.close()


class _Killer:
    """Ends this process, as kill -9 would, before the line of a number."""

    def __init__(self, line: int) -> None:
        self._left = line

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_WATCHED):
            return None
        if event == "line":
            if not self._left:
                os._exit(9)
            self._left -= 1
        return self


def killed_at(run: Path, line: int) -> bool:
    """Whether a process that goes on from step 5 was killed before this line; else it has come to its end."""
    child = os.fork()
    if not child:
        sys.settrace(_Killer(line))
        save(run, 5, 7, 9)
        sys.settrace(None)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def kills(folder: Path, stride: str) -> dict[str, int]:
    """How often which checkpoint was the latest whole one, over the kills."""
    os.fsync = lambda handle: None  # takes most of the time, and changes nothing of what a kill leaves
    begun = folder / "begun"
    save(begun, 0, 3, 5)
    found: Counter[str] = Counter()
    for line in range(0, 1_000_000, int(stride)):
        run = folder / "run"
        shutil.copytree(begun, run)
        killed = killed_at(run, line)
        checkpoint, damaged = find(run)
        same = all(
            np.array_equal(value, state_at(checkpoint.step)[name])
            for name, value in checkpoint.state().items()
        )
        found[f"step {checkpoint.step}, {'its own state' if same else 'ANOTHER STATE'}"] += 1
        found["damaged"] += len(damaged)
        # What goes on after the kill leaves what a run that was never killed would have.
        save(run, checkpoint.step, 11)
        names = {path.name for path in (run / "checkpoints").iterdir()}
        found["left over"] += len({name for name in names if "." in name})
        shutil.rmtree(run)
        if not killed:
            break
    return {"tried": line // int(stride), **found}


def full(folder: Path) -> dict[str, list[str]]:
    """What is said where there is room for so many bytes a file, and what is there then."""
    seen = {}
    for room in (0, 1000, 2000, 100_000):
        run = folder / str(room)
        save(run, 0, 3)
        kept, said = CheckpointManager(run, SPEC, PLACEMENT, 3, True, list, IN_BACKGROUND), "saved"
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        try:
            kept.save(5, state_at(5), StepScalars(SPEC).kept())
            kept.wait_until_written()
        except CheckpointError as error:
            said = str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        # With room again, the run could go on.
        kept.save(7, state_at(7), StepScalars(SPEC).kept())
        kept.close()
        seen[str(room)] = [said, *sorted(path.name for path in (run / "checkpoints").iterdir())]
    return seen


if __name__ == "__main__":
    name, where, *more = sys.argv[1:]
    print(json.dumps({"kills": kills, "full": full}[name](Path(where), *more)))
