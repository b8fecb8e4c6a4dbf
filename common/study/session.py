"""Training the seeds of a study: side by side where there is room, going on where it was stopped."""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.common.base.errors import ParityError, RecordError, RunError
from parity.common.base.terminal import Terminal
from parity.common.execution.interpreters import require
from parity.common.execution.worker import Workers
from parity.common.record import claim_folder
from parity.common.record.files import write_json
from parity.common.spec import TrainSpec
from parity.common.study.collect import ELAPSED, FAILED, collect, is_trained, write_failure
from parity.common.study.judge import judge_study
from parity.common.study.question import STUDY, Arm, StudySpec, read_question, write_question
from parity.common.study.result import StudyResult

# Runs of an arm that end in an error before the study does.
_MOST_FAILURES = 2


@dataclass(frozen=True)
class _Job:
    seed: int
    number: int
    arm: Arm
    spec: TrainSpec
    folder: Path


def begin_study(question: StudySpec, folder: Path) -> StudySpec:
    """Return the question of a study that begins, or goes on, in a folder.

    Raises:
        ParityError: an arm cannot train the spec, a framework is not there, or the folder holds something else.
    """
    question.check()
    for arm in question.arms:
        require(arm.placement.framework)
    if not (folder / STUDY).is_file():
        claim_folder(folder)
        write_question(question, folder)
        return question
    earlier = read_question(folder)
    if _asked(earlier) != _asked(question):
        raise RecordError(
            f"{folder}: holds a study of another question; give another --out, or leave out all but --out and --seeds"
        )
    return earlier


def _asked(question: StudySpec) -> dict[str, object]:
    """A question but for how many seeds answer it."""
    return {name: value for name, value in question.to_dict().items() if name not in ("stages", "failed")}


def run_study(question: StudySpec, folder: Path, console: Terminal, parallel: int) -> StudyResult:
    """Train seeds up to each look, and end at the first that has a verdict.

    Raises:
        ParityError: runs failed, or a person interrupted; what was trained stays, and the next call goes on.
    """
    result = judge_study(question, collect(question, folder))
    while not result.ended:
        look = next(each for each in question.looks if each > result.seeds)
        train_seeds(question, folder, look, console, parallel)
        result = judge_study(question, collect(question, folder))
        console.tell(f"after {look} seeds: {result.verdict}", "dim")
    return result


def train_seeds(
    question: StudySpec, folder: Path, count: int, console: Terminal, parallel: int, only: Sequence[int] = ()
) -> None:
    """Train what is missing of the first `count` seeds; of some of them where `only` says which, by their place.

    Raises:
        ParityError: runs failed, or a person interrupted.
    """
    places = [place for place in (only or range(count)) if place < count]
    jobs = [
        job
        for place in places
        for job in _jobs(question, folder, question.first_seed + place)
        if not _is_done(job, question)
    ]
    if not jobs:
        return
    each = f"{len(jobs)} run{'s' * (len(jobs) > 1)} of {jobs[0].spec.steps} steps, {parallel} side by side"
    console.tell(f"{each}; records go into {folder}", "dim")
    room = _Room(jobs, console, question.failed == "error")
    slots = list(range(max(1, min(parallel, len(jobs)))))
    # Elements of a job array share the folder, and each has logs of its own.
    whose = [f"seed_{question.first_seed + place}" for place in only] or [f"slot_{slot}" for slot in slots]
    logs = [folder / "logs" / name for name in whose[: len(slots)]]
    threads = [
        threading.Thread(target=room.work, args=(log, _environment_of(slot, question, parallel)))
        for slot, log in zip(slots, logs, strict=True)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        room.interrupt()
        for thread in threads:
            thread.join()
        raise RunError(
            f"interrupted; {folder} keeps what was trained, and the same command goes on"
        ) from None
    if room.unforeseen is not None:
        raise room.unforeseen
    if room.failed and question.failed == "error":
        job, error = room.failed[0]
        raise RunError(
            f"seed {job.seed}, {job.arm.label}: {error}; {len(room.failed)} of {len(jobs)} runs failed, the same command"
            " tries them again, and --failed worst has them count as the worst"
        )


def _jobs(question: StudySpec, folder: Path, seed: int) -> list[_Job]:
    assert question.spec is not None
    return [
        _Job(seed, number, arm, arm.spec_of(question.spec, seed), question.folder_of(folder, seed, number))
        for number, arm in enumerate(question.arms)
    ]


def _is_done(job: _Job, question: StudySpec) -> bool:
    counted = question.failed == "worst" and (job.folder.parent / f"{job.folder.name}.{FAILED}").is_file()
    return is_trained(job.folder) or counted


class _Room:
    """Jobs, and the threads that do them. failed: those that ended in an error, with it; after some of an arm it gives up."""

    def __init__(self, jobs: Sequence[_Job], console: Terminal, gives_up: bool) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        for job in jobs:
            self._jobs.put(job)
        self._console, self._gives_up, self._total = console, gives_up, len(jobs)
        self._done = 0
        self._lock = threading.Lock()
        self._stopped, self._interrupted = threading.Event(), threading.Event()
        self._workers: list[Workers] = []
        self.failed: list[tuple[_Job, ParityError]] = []
        self.unforeseen: BaseException | None = None

    def interrupt(self) -> None:
        """End what is being trained, and begin no further job."""
        self._interrupted.set()
        self._stopped.set()
        for workers in list(self._workers):
            workers.__exit__(None, None, None)

    def work(self, logs: Path, variables: Mapping[str, str]) -> None:
        """Do jobs until there are none, each arm in a process of its own."""
        by_arm: dict[int, Workers] = {}
        try:
            while not self._stopped.is_set():
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    return
                if job.number not in by_arm:
                    by_arm[job.number] = Workers(logs / f"arm_{job.number:02d}", variables)
                    self._workers.append(by_arm[job.number])
                self._do(job, by_arm[job.number])
        except BaseException as error:
            # What nobody foresaw ends the study, in the thread that waits for this one.
            self.unforeseen = error
            self._stopped.set()
        finally:
            for each in by_arm.values():
                each.__exit__(None, None, None)

    def _do(self, job: _Job, workers: Workers) -> None:
        # What a run that was killed has left.
        shutil.rmtree(job.folder, ignore_errors=True)
        failed = job.folder.parent / f"{job.folder.name}.{FAILED}"
        failed.unlink(missing_ok=True)
        began = time.perf_counter()
        try:
            workers.train(job.spec, job.arm.placement, job.folder, *job.arm.config.parts[1:])
        except ParityError as error:
            if not self._interrupted.is_set():
                self._failed(job, error)
            return
        seconds = time.perf_counter() - began
        write_json(job.folder / ELAPSED, {"seconds": seconds})
        self._note(job, f"{seconds:.1f} s")

    def _failed(self, job: _Job, error: ParityError) -> None:
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        write_failure(job.folder, error)
        self._note(job, f"failed: {error}")
        with self._lock:
            self.failed.append((job, error))
            again = sum(other.number == job.number for other, _ in self.failed)
        if self._gives_up and again >= _MOST_FAILURES:
            self._stopped.set()

    def _note(self, job: _Job, text: str) -> None:
        with self._lock:
            self._done += 1
            line = f"seed {job.seed}, {job.arm.label} ({self._done} of {self._total} runs): {text}"
            self._console.tell(line, "dim")


def room_for(question: StudySpec) -> int:
    """Return how many runs fit side by side: by this machine's GPUs where the arms may use them, else by its cores."""
    most = max(arm.placement.replicas for arm in question.arms)
    if gpus := _gpus(question):
        return max(1, len(gpus) // most)
    threads = max(arm.placement.replicas * arm.placement.threads_per_replica for arm in question.arms)
    return max(1, len(os.sched_getaffinity(0)) // threads)


def _gpus(question: StudySpec) -> list[str]:
    """This machine's GPUs as the processes would be told of them, where an arm may use them."""
    if all(arm.placement.device == "cpu" for arm in question.arms):
        return []
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
    return there if seen is None else [name for name in seen.split(",") if name]


def _environment_of(slot: int, question: StudySpec, parallel: int) -> dict[str, str]:
    """What the processes of a slot have in their environment: GPUs of their own, where several runs share a machine's."""
    gpus, most = _gpus(question), max(arm.placement.replicas for arm in question.arms)
    if parallel == 1 or not gpus:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus[slot * most : (slot + 1) * most])}
