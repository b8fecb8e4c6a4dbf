"""`parity run`: train one spec on several placements, measure their speed, leave everything in a folder."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from common.errors import ParityError, RecordError, RunError, SpecError
from common.launch import progress
from common.launch.worker import Worker, require
from common.parity.budget import MINIMUM_MEMBERS
from common.record import claim_folder
from common.spec import Placement, TrainSpec
from common.spec.run import check_run, effective_batch

TIMED_STEPS = 40
TRAINING = "training"


@dataclass(frozen=True)
class Job:
    """One run of a session."""

    placement: Placement
    folder: Path


def default_placements(replicas: int) -> list[str]:
    """The reference and every usual strategy beside it: one replica of each framework, then `replicas`."""
    chosen = ["torch:single:1", "tensorflow:mirrored:1"]
    if replicas > 1:
        chosen += [f"{name}:{replicas}" for name in ("tensorflow:mirrored", "torch:ddp", "torch:fsdp2")]
    return chosen


def run_session(
    spec: TrainSpec, placements: Sequence[Placement], folder: Path, timing_rounds: int, console: Console
) -> None:
    """Write folder/runs, folder/floor (float32 only) and folder/timing.

    Runs follow each other, so that each has the machine to itself. Timing runs are interleaved: a
    round has one short run of each placement, in an order drawn anew, so that a slow minute of the
    machine hits all of them.

    Raises:
        ParityError: a run failed; the folder keeps what was finished, and the failed run's logs.
    """
    labels = [placement.label for placement in placements]
    doubled = {label for label in labels if labels.count(label) > 1}
    if doubled:
        raise SpecError(f"--placement: {sorted(doubled)[0]} is given twice")
    if len(placements) < 2:
        raise SpecError("a comparison needs two placements or more; give --placement again")
    for placement in placements:
        require(placement.framework)
        check_run(spec, placement)
    claim_folder(folder)
    try:
        with ExitStack() as stack:
            workers = _Workers(stack, folder / "logs")
            for title, jobs in _stages(spec, placements, folder, timing_rounds):
                _run_stage(spec, title, jobs, workers, console)
    except KeyboardInterrupt:
        raise RunError(f"interrupted; finished runs are in {folder}") from None
    except ParityError as error:
        # Leave nothing half-written, unless a run is finished or the message points to a log inside.
        if str(folder) not in str(error) and not any(folder.glob("runs/*/summary.json")):
            shutil.rmtree(folder)
        raise


def _stages(
    spec: TrainSpec, placements: Sequence[Placement], folder: Path, timing_rounds: int
) -> Iterator[tuple[str, list[Job]]]:
    yield (
        TRAINING,
        [
            Job(placement, folder / "runs" / _name(number, placement))
            for number, placement in enumerate(placements)
        ],
    )
    if spec.precision != "float64":
        yield "measuring the noise floor", _floor_jobs(placements, folder)
    for round_number in range(timing_rounds):
        jobs = [
            Job(
                placement.model_copy(update={"stop_at_step": min(TIMED_STEPS, spec.steps), "digests": False}),
                folder / "timing" / f"round_{round_number}" / _name(number, placement),
            )
            for number, placement in enumerate(placements)
        ]
        random.Random(round_number).shuffle(jobs)
        yield f"timing, round {round_number + 1} of {timing_rounds}", jobs


def _floor_jobs(placements: Sequence[Placement], folder: Path) -> list[Job]:
    """Permuted runs of the first placement of each framework, and of the one with most replicas.

    A net with kinks may meet one when its batches are summed in many parts that one replica never does.
    """
    bases = [*{placement.framework: placement for placement in reversed(placements)}.values()]
    divided = max(placements, key=lambda placement: placement.replicas)
    jobs: list[Job] = []
    for placement in dict.fromkeys([*bases, divided]):
        for seed in range(MINIMUM_MEMBERS):
            member = placement.model_copy(update={"sample_order_seed": seed, "digests": False})
            jobs.append(Job(member, folder / "floor" / _name(len(jobs), placement)))
    return jobs


def _name(number: int, placement: Placement) -> str:
    return f"{number:02d}_{placement.label.replace(' ', '_')}"


def _run_stage(spec: TrainSpec, title: str, jobs: Sequence[Job], workers: _Workers, console: Console) -> None:
    for number, job in enumerate(jobs, start=1):
        batch = f", {effective_batch(spec, job.placement)}" if title == TRAINING else ""
        line = f"{title}: {job.placement.label} ({number} of {len(jobs)}){batch}"
        console.print(f"[dim]{line}[/dim]", highlight=False, soft_wrap=True)
        steps = job.placement.steps_of(spec.steps)
        with progress.watch({job.placement.label: job.folder}, steps):
            workers.of(job.placement).train(spec, job.placement, job.folder)


class _Workers:
    """The session's worker processes, each started when first asked for."""

    def __init__(self, stack: ExitStack, logs: Path) -> None:
        self._stack = stack
        self._logs = logs
        self._started: dict[str, Worker] = {}

    def of(self, placement: Placement) -> Worker:
        """The process that runs a placement."""
        # TensorFlow's thread count belongs to its process; torch starts its ranks anew for every run.
        size = placement.replicas if placement.framework == "tensorflow" else 1
        name = f"{placement.framework}_{size}"
        if name not in self._started:
            self._logs.mkdir(exist_ok=True)
            worker = Worker(placement.framework, size, self._logs / f"{name}.log")
            self._started[name] = self._stack.enter_context(worker)
        return self._started[name]


def remove(folder: Path) -> None:
    """Remove an earlier session or record; raises RecordError for a folder that is neither.

    A mistyped --out must not cost anyone their files.
    """
    if not folder.exists():
        return
    if not ((folder / "runs").is_dir() or (folder / "header.json").is_file()):
        raise RecordError(f"{folder}: holds no session and no record, so --overwrite leaves it alone")
    shutil.rmtree(folder)
