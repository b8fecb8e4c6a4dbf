"""Long trainings, watched from outside: python -m parity_tests.soak FOLDER [--steps 100000] [--only PLACEMENT ...]

Trains a small spec on each placement, one after the other, as the command line does, and looks at all of its processes
some hundred times on the way. Flat is: no thread, no descriptor and no memory more at the end than near the beginning, and
a record that takes no more bytes for each step. Prints one line of JSON, an `Outcome`, for each placement.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from parity.common.base.package import MODULES
from parity.common.checkpoint.files import FOLDER as CHECKPOINTS
from parity.common.execution.flags import flags_of
from parity.common.execution.processes.child import command
from parity.common.record.header import steps_in
from parity.common.spec import RunConfig
from parity.common.spec.io import dump_yaml
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small
from parity_tests.helpers.processes import ranks_of

PLACEMENTS = (
    "torch:single:1",
    "torch:ddp:2",
    "torch:fsdp2:2",
    "tensorflow:single:1",
    "tensorflow:mirrored:2",
    "tensorflow:multi_worker:2",
)
STEPS = 100_000
SAMPLES = 300
_LOOK_SECONDS = 0.1
_SAVING = "save={every_steps: 500, keep_last: 2, keep_best: 1}"
# Shares of the steps: what begins once all is warm, and what is compared with it. The least of each is taken, since a
# checkpoint that is being written takes a thread and a descriptor. Not the very end, which writes and closes files.
EARLY, LATE = (0.1, 0.3), (0.8, 0.98)
# A record opens a file once it goes over from sample ids to their hashes. What each step, or each of 140 checkpoints, leaves
# behind is more.
SLACK_COUNT = 2
# What memory may grow by: malloc's own, and less a step than any object that is left behind.
SLACK_BYTES, BYTES_A_STEP = 2 << 20, 32.0
# By which share the record's bytes a step may grow, and how many checkpoints there may be: as many as are kept, and one.
RATE_SHARE, CHECKPOINTS_AT_ONCE = 0.01, 4


@dataclass(frozen=True)
class Look:
    """One look at a process: after how many steps, its threads, open descriptors, and bytes of its own in memory."""

    steps: int
    threads: int
    descriptors: int
    memory: int


@dataclass
class Outcome:
    """What a training was seen to take. processes: by name, (early, late) of threads, descriptors and bytes."""

    placement: str
    steps: int
    seconds: float
    processes: dict[str, list[tuple[int, int]]]
    record_bytes_a_step: tuple[float, float]
    checkpoints: int
    problems: list[str] = field(default_factory=list)


def judged(
    placement: str,
    steps: int,
    seconds: float,
    looks: dict[str, list[Look]],
    record: Sequence[tuple[int, int]],
    checkpoints: int,
) -> Outcome:
    """Say whether a training was flat.

    Args:
        looks: of each process, in the order of time.
        record: (steps, bytes of the record without its checkpoints), likewise.
        checkpoints: the most that were there at once.
    """
    outcome = Outcome(placement, steps, seconds, {}, (0.0, 0.0), checkpoints)
    for name, seen in looks.items():
        early, late = (_within(seen, share, steps) for share in (EARLY, LATE))
        if not early or not late:
            outcome.problems.append(f"{name} was not there from the beginning to the end")
            continue
        pairs = [
            (min(getattr(look, what) for look in early), min(getattr(look, what) for look in late))
            for what in ("threads", "descriptors", "memory")
        ]
        outcome.processes[name] = pairs
        allowed = SLACK_BYTES + BYTES_A_STEP * (LATE[0] - EARLY[0]) * steps
        for what, (before, after), more in zip(
            ("threads", "descriptors", "bytes"), pairs, (SLACK_COUNT, SLACK_COUNT, allowed), strict=True
        ):
            if after - before > more:
                outcome.problems.append(f"{name}: {before} {what} have become {after}")
    rates = [
        _rate([each for each in record if share[0] * steps <= each[0] <= share[1] * steps])
        for share in (EARLY, LATE)
    ]
    outcome.record_bytes_a_step = rates[0], rates[1]
    if not rates[0] or rates[1] / rates[0] > 1 + RATE_SHARE:
        outcome.problems.append(f"the record took {rates[0]:.1f} bytes a step, then {rates[1]:.1f}")
    if not 0 < checkpoints <= CHECKPOINTS_AT_ONCE:
        outcome.problems.append(f"{checkpoints} checkpoints at once")
    return outcome


def _within(looks: Iterable[Look], share: tuple[float, float], steps: int) -> list[Look]:
    return [look for look in looks if share[0] * steps <= look.steps <= share[1] * steps]


def _rate(record: Sequence[tuple[int, int]]) -> float:
    """Bytes a step between the first and the last look."""
    if len(record) < 2 or record[0][0] == record[-1][0]:
        return 0.0
    (first, before), (last, after) = record[0], record[-1]
    return (after - before) / (last - first)


def soak(text: str, folder: Path, steps: int) -> Outcome:
    """Train on the placement of a text and watch it."""
    config = RunConfig.from_text(f"{text},{_SAVING}")
    folder.mkdir(parents=True)
    spec, run = folder / "spec.yaml", folder / "run"
    spec.write_text(dump_yaml(small("digits_mlp", f"steps={steps}", "precision=float32")))
    flags = [f"--spec={spec}", f"--out={run}", *flags_of(config.placement, config.run_options)]
    began = time.monotonic()
    looks: dict[str, list[Look]] = defaultdict(list)
    record: list[tuple[int, int]] = []
    most, due = 0, 1
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            command(MODULES[config.placement.framework], *flags),
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                time.sleep(_LOOK_SECONDS)
                done = steps_in(run / "steps.f64")
                if done < due:
                    continue
                due = done + steps // SAMPLES
                for name, pid in {"training": process.pid, **ranks_of(process.pid, run)}.items():
                    if (look := _look(pid, done)) is not None:
                        looks[name].append(look)
                record.append((done, _size(run)))
                kept = [path for path in (run / CHECKPOINTS).glob("step_*") if path.is_dir()]
                most = max(most, len(kept))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    outcome = judged(
        config.placement.label, steps, round(time.monotonic() - began, 1), dict(looks), record, most
    )
    if process.returncode or steps_in(run / "steps.f64") != steps:
        outcome.problems.insert(
            0, f"ended with code {process.returncode}: {(folder / 'log').read_text()[-300:]}"
        )
    return outcome


def _look(pid: int, steps: int) -> Look | None:
    """None where the process has gone."""
    proc = Path("/proc", str(pid))
    try:
        anonymous = next(
            line for line in (proc / "status").read_text().splitlines() if line.startswith("RssAnon")
        )
        memory = 1024 * int(anonymous.split()[1])
        return Look(steps, len(os.listdir(proc / "task")), len(os.listdir(proc / "fd")), memory)
    except (OSError, StopIteration):
        return None


def _size(run: Path) -> int:
    """Bytes of a record without its checkpoints."""
    total = 0
    for parent, names, files in os.walk(run):
        names[:] = [name for name in names if name != CHECKPOINTS]
        total += sum(os.stat(os.path.join(parent, name)).st_size for name in files)
    return total


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the runs; they are left there")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--only", nargs="*", default=PLACEMENTS, help="placements")
    options = parser.parse_args(arguments)
    failed = False
    for text in options.only:
        outcome = soak(text, options.folder / text.replace(":", "_"), options.steps)
        failed |= bool(outcome.problems)
        print(json.dumps(asdict(outcome)), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
