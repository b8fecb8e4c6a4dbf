"""Where a run begins: at its first step in a new folder, or at a checkpoint, in a further part of its run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from parity.common.base.errors import RecordError, RunError
from parity.common.checkpoint.files import FOLDER, check_fits, checkpoints_of, find
from parity.common.record import branch, next_part, parts_of, run_of
from parity.common.record.files import parse, write_json
from parity.common.record.header import read_header
from parity.common.spec import Spec, TrainSpec

START = "start.json"
_POLL_SECONDS = 0.05
# What a record holds that has no header yet.
_UNBEGUN = {
    "initial.safetensors",
    "header.json",
    "logs",
    "tensorboard",
    "sample_ids",
    "violations",
    "fingerprints",
    "taps",
    "lock",
}
# What tells one start of a run from its next, alike in all of its processes.
_ATTEMPT = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "MASTER_PORT",
)


@dataclass(frozen=True)
class Start:
    """What to train, into which new folder, and from which checkpoint on.

    said: what a person should know of it, in lines. ended: nothing is left to train; then `part` is the last.
    """

    spec: TrainSpec
    part: Path
    checkpoint: str | None = None
    said: tuple[str, ...] = ()
    ended: bool = False


class ResumeDecision(Spec):
    """RUN/start.json: the `Start` that the first process of a run has decided on for all. attempt: of `attempt_of`."""

    format: Literal["parity-start"] = "parity-start"
    schema_version: Literal[1] = 1
    attempt: str
    spec: TrainSpec
    part: str
    checkpoint: str | None = None
    ended: bool = False

    @property
    def start(self) -> Start:
        return Start(self.spec, Path(self.part), self.checkpoint, (), self.ended)


def begin_or_resume(spec: TrainSpec, out: Path) -> Start:
    """A run from its first step on, or, where it has begun before, from its latest checkpoint.

    Raises:
        CheckpointError: all of its checkpoints are damaged, or of another spec.
        RecordError: it is of another spec.
    """
    for part in parts_of(out):
        _remove_unbegun(part)
    if not _recorded(out):
        return Start(spec, out)
    _check_same(out, spec)
    if checkpoints_of(out):
        return resume_run(out, spec)
    return Start(spec, next_part(out), None, (f"{out}: holds no checkpoint yet, so the run begins again",))


def ended(spec: TrainSpec, out: Path, stop_at_step: int | None = None) -> Start | None:
    """What to say of a run that has trained all its steps, else None; raises RecordError for one of another spec."""
    last = parts_of(out)[-1]
    if not (last / "summary.json").exists():
        return None
    _check_same(out, spec)
    steps = spec.resolved().steps
    stop = min(steps, stop_at_step or steps)
    if read_header(last).run_options.steps_of(steps) < stop:
        return None
    return Start(spec, last, None, (f"{out}: has trained all {stop} steps; nothing is left to do",), True)


def resume_run(path: Path, spec: TrainSpec | None = None, out: Path | None = None) -> Start:
    """A run that goes on from a checkpoint.

    Args:
        path: the checkpoint's folder, or that of its run: then the latest that is whole.
        spec: of the run; None: whatever it is.
        out: the folder in which it goes on; None: its own.

    Raises:
        CheckpointError: there is no whole one, or it is of another spec.
        RecordError: `out` holds something else.
    """
    checkpoint, damaged = find(path)
    spec = (spec or checkpoint.spec).resolved()
    check_fits(checkpoint, spec, spec.steps)
    run = checkpoint.folder.parent.parent
    said = [f"passed over: {problem}" for problem in damaged]
    said.append(f"going on from {checkpoint.folder}, step {checkpoint.step} of {spec.steps}")
    if out is not None and out.resolve() != run.resolve():
        branch(run_of(run), out)
        run = out
    return Start(spec, next_part(run), str(checkpoint.folder.resolve()), tuple(said))


def run_to_resume(resume: str | None, out: Path | None) -> Path:
    """The folder of the run that a start trains into, as --resume and --out say."""
    if out is not None:
        return out
    given = Path(resume or "")
    return given.parent.parent if given.parent.name == FOLDER else given


def attempt_of(resume: str, stop_at_step: int | None, environment: Mapping[str, str] = os.environ) -> str:
    """A name of this start, the same in all of its processes, and another once a launcher starts them again."""
    said = [resume, stop_at_step, *(environment.get(name) for name in _ATTEMPT)]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def decide(run: Path, attempt: str, decision: Callable[[], Start]) -> Start:
    """Decide for all processes of a run, as its first.

    The others look for it in RUN/start.json once the run has begun before. Until then there is nothing to decide:
    they see it as the first does, since a record begins only after all have met.
    """
    told = _told(run, attempt)
    if told is not None and not told.ended:
        # Nothing has been trained on it yet, and others may have read it.
        return told.start
    start = decision()
    if _recorded(run):
        more = {"part": str(start.part), "checkpoint": start.checkpoint, "ended": start.ended}
        write_json(run / START, ResumeDecision(attempt=attempt, spec=start.spec, **more).to_dict())
    return start


def follow(run: Path, attempt: str, anew: Start | None, timeout_seconds: float) -> Start:
    """What the first process has decided; `anew`: what it decides where the run has not begun.

    Raises:
        RunError: it decided nothing within the time.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        if anew is not None and not _recorded(run):
            return anew
        told = _told(run, attempt)
        if told is not None:
            return told.start
        if time.monotonic() > deadline:
            raise RunError(
                f"{run / START}: waited {timeout_seconds:g} s for rank 0 to say where the run goes on; see what rank 0"
                " says, and that --out lies on storage that all nodes share"
            )
        time.sleep(_POLL_SECONDS)


def _told(run: Path, attempt: str) -> ResumeDecision | None:
    """What stands decided for an attempt; what an earlier attempt has begun to train on does not."""
    try:
        told = parse(ResumeDecision, run / START)
    except RecordError:
        return None
    stands = told.attempt == attempt and (told.ended or not _recorded(Path(told.part)))
    return told if stands else None


def _recorded(part: Path) -> bool:
    return (part / "header.json").exists()


def _check_same(out: Path, spec: TrainSpec) -> None:
    if read_header(out).spec_hash != spec.resolved().content_hash():
        raise RecordError(f"{out}: holds a run of another spec; give another --out, or the spec of that run")


def _remove_unbegun(part: Path) -> None:
    """Make room where a run was killed before it could say what it is; anybody else's files stay."""
    try:
        names = {path.name.removesuffix(".partial") for path in part.iterdir()}
    except OSError:
        return
    if names and names <= _UNBEGUN and not _recorded(part):
        shutil.rmtree(part)
