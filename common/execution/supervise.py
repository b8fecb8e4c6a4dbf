"""A training in a process of its own, started again from its latest checkpoint when it dies."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parity.common.base.errors import ParityError, StoppedError
from parity.common.base.plain import print_error
from parity.common.base.stop import handling
from parity.common.checkpoint.files import checkpoints_of, step_of
from parity.common.execution.processes.child import command, environment, how_it_ended
from parity.common.execution.processes.liveness import SILENT_SECONDS, STACK_SIGNAL, growth
from parity.common.record import parts_of

_STACK_SECONDS = 1.0
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl, from linux/prctl.h


def supervise(
    module: str,
    flags: Sequence[str],
    run: Path,
    restarts: int,
    from_spec: bool,
    silent_seconds: float = SILENT_SECONDS,
) -> int:
    """Train with `python -m module flags`, and again when that dies; returns the exit code of the last.

    It is given up once it has been started again `restarts` times, where it dies before it has trained, and where it
    dies twice without a checkpoint between. What it was asked to do, such as to stop, it has done.

    Args:
        module: tf_impl or torch_impl.
        flags: as the command line has them.
        run: the folder that it trains into.
        restarts: how often at most.
        silent_seconds: a training that records nothing for so long is ended, and dies so.
        from_spec: whether the flags say what is trained; else that is what the run says.
    """
    reached: int | None = None
    again = ["--resume=auto"] if from_spec else [f"--resume={run}", f"--out={run}"]
    for number in range(restarts + 1):
        begun = _begun(run)
        flags_now = [*flags, *(again if number else ()), "--restarts=0"]
        code, asked = _train(command(module, *flags_now), run, silent_seconds)
        if code in (0, StoppedError.exit_code):
            return code
        if asked:
            # It was to end, and has not come to save.
            return 128 + asked
        died = f"the training {how_it_ended(code)}"
        folders = checkpoints_of(run)
        step = step_of(folders[-1]) if folders else None
        if _begun(run) == begun:
            return _given_up(code, number, f"{died} before its first step")
        if number and step == reached:
            return _given_up(code, number, f"{died} again before it had saved more than {_named(step)}")
        if number == restarts:
            return _given_up(code, number, died)
        reached = step
        _say(f"{died}; start {number + 1} of {restarts} more, from {_named(step)}")
    raise AssertionError("unreachable")


def _given_up(code: int, number: int, why: str) -> int:
    # Of what was never begun, or never started again, its own words say all.
    if number:
        _say(f"{why}; given up after {number} more start{'s' if number > 1 else ''}")
    return code if code > 0 else ParityError.exit_code


def _say(line: str) -> None:
    print_error(f"supervisor: {line}")


def _named(step: int | None) -> str:
    return "its first step" if step is None else f"the checkpoint before step {step}"


def _begun(run: Path) -> int:
    """How many parts of a run have recorded something."""
    return sum((part / "header.json").exists() for part in parts_of(run))


def _train(line: Sequence[str], run: Path, silent_seconds: float) -> tuple[int, int]:
    """Train into `run` in a process that ends with this one, and hears of the signals that ask this one to stop.

    Returns its exit code, and the first of those signals, or 0.
    """
    asked: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: Any) -> None:
        asked.append(number)
        if child is not None:
            child.send_signal(number)

    with handling(pass_on):
        child = subprocess.Popen(line, env=environment(threads=None), preexec_fn=_die_with(os.getpid()))
        for number in asked:
            child.send_signal(number)
        seen = growth(run)
        while True:
            try:
                return child.wait(silent_seconds), asked[0] if asked else 0
            except KeyboardInterrupt:
                asked.append(signal.SIGINT)  # it has reached the whole group
            except subprocess.TimeoutExpired:
                before, seen = seen, growth(run)
                if before == seen:
                    _say(
                        f"the training has recorded nothing for {silent_seconds:g} s; its stacks, and its end:"
                    )
                    child.send_signal(STACK_SIGNAL)
                    time.sleep(_STACK_SECONDS)
                    child.kill()


def _die_with(parent: int) -> Callable[[], None]:
    """For a child of this process to call: the kernel kills it when this process has ended, however it did."""
    library = ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(ParityError.exit_code)

    return ask
