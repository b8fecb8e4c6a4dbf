"""Runs that are killed at points drawn at random, and go on: python -m parity_tests.kills FRAMEWORK FOLDER.

Each kill point is a run that saves, with one SIGKILL, now and then two: to one rank, to the process that started
the ranks, or to all of them; at a moment drawn over the whole run, once a drawn step is recorded, or while a
checkpoint is being written. It then goes on as `--resume auto` would have it, until it is through. What it has
recorded and where it ends must be, bit for bit, what the same run shows that was never stopped and never saved.

Forks one server that has imported the framework, so that a process costs as good as nothing. Prints one line of
JSON for each kill point.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import RecordError
from parity.common.base.package import MODULES
from parity.common.checkpoint.files import FOLDER as CHECKPOINTS
from parity.common.execution.operating_system import die_with_parent
from parity.common.execution.resume import begin_or_resume
from parity.common.record import RunRecord, parts_of, read_record
from parity.common.record.header import ROW_BYTES, STEP_FIELDS
from parity.common.spec import Placement, RunConfig, TrainSpec
from parity.common.spec.run_options import Saving
from parity.common.spec.strategies import Framework
from parity.common.state.canonical import State
from parity_tests.helpers.matrix import config, small, tensorflow, torch
from parity_tests.helpers.processes import runs
from parity_tests.helpers.records import received_ids

PLACEMENTS: dict[Framework, tuple[Placement, ...]] = {
    "torch": (torch("single", 1), torch("ddp", 2), torch("fsdp2", 2)),
    "tensorflow": (tensorflow(1), tensorflow(2), tensorflow(2, strategy="multi_worker")),
}
_PRELOAD = {
    "torch": [
        "torch",
        "torch._dynamo",
        "torch.distributed.fsdp",
        "torch.distributed.tensor",
        "parity.torch_impl.train",
    ],
    "tensorflow": ["parity.tf_impl.train"],
}
STEPS = 100
# What a run records is told apart by these; of the time it took nothing is asked.
FIELDS = tuple(name for name in STEP_FIELDS if name != "seconds")
_TIMEOUT_SECONDS = 40
# A run, or the end of one of which a part was killed.
_PATIENCE_SECONDS = 240.0
# Of a kill that found nothing to kill; how often it is tried anew, and how much earlier each time.
_TOO_LATE = "nothing, the run was through"
_TRIES, _EARLIER = 8, 0.6


@dataclass(frozen=True)
class Kill:
    """One SIGKILL. who: "all", "parent" or a rank. when: "moment", a share of a whole run's time; "step", so many
    are recorded; "saving", so many checkpoints have been begun.
    """

    who: str
    when: str
    value: float


@dataclass(frozen=True)
class Point:
    """A run and how it is killed."""

    number: int
    config: RunConfig
    kills: tuple[Kill, ...]


@dataclass
class Outcome:
    """What came of a kill point. hit: of each kill what was running, and after how many recorded steps.

    late: how often a kill came when its run was through, so that all began anew with kills that come earlier.
    """

    number: int
    placement: str
    saving: str
    kills: list[str]
    hit: list[str] = field(default_factory=list)
    late: int = 0
    resumed_at: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def kill_spec() -> TrainSpec:
    """What the killed runs train: small, with all that a step can leave behind in a small model."""
    return small(
        "digits_mlp", f"steps={STEPS}", "precision=float32", "optimizer={kind: adam, learning_rate: 0.003}"
    )


def draw(framework: Framework, seed: int, count: int) -> list[Point]:
    """So many kill points; the same seed draws the same."""
    points = []
    for number in range(count):
        rng = random.Random(f"{framework} {seed} {number}")
        placement = rng.choice(PLACEMENTS[framework])
        saving = Saving(
            every_steps=rng.choice((1, 3, 10)), keep_last=rng.choice((1, 2)), keep_best=rng.choice((0, 1))
        )
        kills = tuple(_drawn(rng, placement) for _ in range(2 if rng.random() < 0.15 else 1))
        points.append(Point(number, config(placement, save=saving), kills))
    return points


def _drawn(rng: random.Random, placement: Placement) -> Kill:
    who = "all"
    if placement.processes > 1:
        who = rng.choice(("all", "parent", *(f"rank {rank}" for rank in range(placement.processes))))
    when = rng.choice(("moment", "step", "saving"))
    values = {"moment": rng.uniform(0.02, 1.0), "step": rng.randrange(STEPS), "saving": rng.randrange(1, 10)}
    return Kill(who, when, values[when])


def body(spec: dict[str, Any], config: dict[str, Any], run: str, log: str, address: str) -> None:
    """What a killed run does in its own process: all that the command line would."""
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    die_with_parent()
    # Its ranks are forked from the server from which it was.
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address, server.ensure_running = address, lambda: None
    tempfile.tempdir = str(Path(log).parent)
    placement, options, _ = RunConfig.parse(config).parts
    start = begin_or_resume(TrainSpec.parse(spec).resolved(), Path(run))
    train = importlib.import_module(f"{MODULES[placement.framework]}.train").train
    options = options.model_copy(update={"resume": start.checkpoint})
    train(start.spec, placement, start.part, options)


class Killer:
    """Makes runs of one framework, and kills them."""

    def __init__(self, framework: Framework, folder: Path) -> None:
        self._folder, self._spec = folder, kill_spec().resolved()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*_PRELOAD[framework], "sklearn.datasets"])
        self._straight: dict[Placement, tuple[RunRecord, float]] = {}

    def straight(self, placement: Placement) -> tuple[RunRecord, float]:
        """The record of a run that was neither stopped nor saved, and how long a run takes."""
        if placement not in self._straight:
            name = placement.label.replace(" ", "_")
            process = None
            # The first also waits for the server.
            for number in range(2):
                run, began = self._folder / f"straight_{name}_{number}" / "run", time.monotonic()
                process = self._begin(RunConfig(placement=placement), run)
                process.join(_PATIENCE_SECONDS)
                assert process.exitcode == 0, (run.parent / "log").read_text()
            self._straight[placement] = read_record(run), time.monotonic() - began
        return self._straight[placement]

    def _begin(self, config: RunConfig, run: Path) -> Any:
        run.parent.mkdir(exist_ok=True)
        # Once one process has been forked the server's address is known.
        self._context.Process(target=int).start() if self._address is None else None
        arguments = (
            self._spec.to_dict(),
            config.to_dict(),
            str(run),
            str(run.parent / "log"),
            self._address,
        )
        process = self._context.Process(target=body, args=arguments)
        process.start()
        return process

    @property
    def _address(self) -> Any:
        server: Any = forkserver._forkserver  # type: ignore[attr-defined]
        return server._forkserver_address

    def __call__(self, point: Point, keep: bool = False) -> Outcome:
        """Make a run, kill it, have it go on, and look at what it has recorded."""
        straight, seconds = self.straight(point.config.placement)
        folder, began = self._folder / f"kill_{point.number}", time.monotonic()
        saving = point.config.run_options.save
        assert saving is not None
        outcome = Outcome(
            point.number,
            point.config.label,
            f"every {saving.every_steps}, last {saving.keep_last}, best {saving.keep_best}",
            [f"{kill.who} at {kill.when} {kill.value:.3g}" for kill in point.kills],
        )
        kills = point.kills
        for outcome.late in range(_TRIES):
            outcome.hit = [
                self._killed(point.config, folder / "run", kill, seconds, outcome.problems) for kill in kills
            ]
            if outcome.problems or _TOO_LATE not in outcome.hit:
                break
            outcome.problems += problems_of(folder / "run", straight)
            shutil.rmtree(folder / "run")
            kills = tuple(replace(kill, value=_EARLIER * kill.value) for kill in kills)
        process = self._begin(point.config, folder / "run")
        process.join(_PATIENCE_SECONDS)
        if process.exitcode != 0:
            outcome.problems.append(
                f"did not go on: exit code {process.exitcode}: {_last_line(folder / 'log')}"
            )
            process.kill()
        else:
            outcome.problems += problems_of(folder / "run", straight)
        process.join()
        outcome.resumed_at = _went_on_at(folder / "run")
        left = [pid for pid in _children(self._server) if runs(pid)]
        outcome.problems += [f"process {pid} is left" for pid in left]
        outcome.seconds = round(time.monotonic() - began, 2)
        if not outcome.problems and not keep:
            shutil.rmtree(folder)
        return outcome

    @property
    def _server(self) -> int:
        server: Any = forkserver._forkserver  # type: ignore[attr-defined]
        return int(server._forkserver_pid)

    def _killed(self, config: RunConfig, run: Path, kill: Kill, seconds: float, problems: list[str]) -> str:
        """Begin, or go on with, a run and kill it; what was hit, and after how many steps."""
        began, saves, seen = time.monotonic(), 0, set[str]()
        before = len(parts_of(run)) if run.exists() else 0
        process = self._begin(config, run)
        while process.is_alive():
            if kill.when == "moment" and time.monotonic() - began > kill.value * seconds:
                break
            if kill.when == "step" and _rows(run, before) > kill.value:
                break
            if kill.when == "saving":
                seen |= {path.name for path in (run / CHECKPOINTS).glob("step_*.partial")}
                saves = len(seen)
                if saves >= kill.value and any((run / CHECKPOINTS).glob("step_*.partial")):
                    break
            time.sleep(0.0005)
        pid = process.pid
        ranks = sorted(set(_children(self._server)) - {pid})
        family = [pid, *ranks, *(child for rank in ranks for child in _children(rank))]
        chosen = {"all": [pid, *ranks], "parent": [pid]}.get(kill.who)
        if chosen is None:
            number = int(kill.who.split()[1])
            chosen = ranks[number : number + 1] or [pid]
        alive = process.is_alive()
        for each in chosen:
            if runs(each):
                os.kill(each, signal.SIGKILL)
        process.join(_PATIENCE_SECONDS)
        if process.is_alive():
            problems.append(f"{kill.who} was killed, and the run went on for {_PATIENCE_SECONDS:g} s")
            process.kill()
            process.join()
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while left := [each for each in family if runs(each)]:
            if time.monotonic() > deadline:
                problems.append(f"{len(left)} processes were left after {kill.who} was killed")
                for each in left:
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.005)
        writing = ", writing a checkpoint" if any((run / CHECKPOINTS).glob("step_*.partial")) else ""
        if not alive:
            return _TOO_LATE
        what = "all" if set(chosen) >= {pid, *ranks} else "parent" if chosen == [pid] else kill.who
        return f"{what} after {_rows(run, before)} steps{writing}"


def problems_of(run: Path, straight: RunRecord) -> list[str]:
    """In what a run that was killed and went on differs from one that was not; nothing, if in nothing."""
    left = [f"{path.name} is left" for path in run.rglob("*.partial")]
    try:
        record = read_record(run)
    except RecordError as error:
        return [*left, str(error)]
    if record.steps.tolist() != straight.steps.tolist():
        return [*left, f"its steps are {_runs(record.steps)}, should be {_runs(straight.steps)}"]
    if record.summary is None or straight.summary is None:
        return [*left, "it has no summary"]
    problems = [
        f"{name} differs first in step {int(np.argmax(record.columns[name] != straight.columns[name]))}"
        for name in FIELDS
        if record.columns[name].tobytes() != straight.columns[name].tobytes()
    ]
    if record.summary.eval_loss_sum != straight.summary.eval_loss_sum:
        problems.append("its evaluation differs")
    mine, theirs = received_ids(record), received_ids(straight)
    if not all(map(np.array_equal, itertools.chain(*mine), itertools.chain(*theirs))):
        problems.append("its samples differ")
    problems += [
        f"its final {name} differs" for name in differing(record.state("final"), straight.state("final"))
    ]
    problems += [f"{violation}" for violation in record.violations]
    return [*left, *problems]


def differing(one: State, other: State) -> list[str]:
    """The tensors that two states do not share, bit for bit."""
    names = sorted({*one, *other})
    return [
        name
        for name in names
        if name not in one or name not in other or one[name].tobytes() != other[name].tobytes()
    ]


def _rows(run: Path, before: int) -> int:
    """How many steps the part has recorded that came after so many others."""
    parts = parts_of(run)
    if len(parts) <= before and before:
        return 0
    try:
        return (parts[-1] / "steps.f64").stat().st_size // ROW_BYTES
    except OSError:
        return 0


def _runs(steps: Sequence[int]) -> str:
    """'0-4, 6-9'."""
    starts = [i for i, step in enumerate(steps) if i == 0 or step != steps[i - 1] + 1]
    ends = [*starts[1:], len(steps)]
    return ", ".join(f"{steps[a]}-{steps[b - 1]}" for a, b in zip(starts, ends, strict=True)) or "none"


def _went_on_at(run: Path) -> list[int]:
    """The first steps that the parts of a run took after the first."""
    try:
        return [int(part.steps[0]) for part in read_record(run).parts if len(part.steps)][1:]
    except RecordError:
        return []


def _children(pid: int) -> Iterator[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        text = ""
    return map(int, text.split())


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def main(arguments: list[str], tell: Callable[[str], None] = lambda line: print(line, flush=True)) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=sorted(PLACEMENTS))
    parser.add_argument("folder", type=Path, help="for the runs; made, and left with those that failed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the kill points to make")
    parser.add_argument("--keep", action="store_true", help="keep the runs")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    killer = Killer(options.framework, options.folder)
    failed = 0
    for point in draw(options.framework, options.seed, options.count):
        if options.only is None or point.number in options.only:
            outcome = killer(point, options.keep)
            failed += bool(outcome.problems)
            tell(json.dumps(asdict(outcome)))
    return 1 if failed else 0


if __name__ == "__main__":
    # Forked processes know this module by its name.
    from parity_tests import kills

    sys.exit(kills.main(sys.argv[1:]))
