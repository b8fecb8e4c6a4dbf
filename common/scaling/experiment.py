"""The runs of `parity scale` in one folder: the question, and the interleaved rounds that answer it.

scale.json        the question; written first, so that whatever was finished can be read again
round_N/NN_label  one record of each configuration
logs/             the output of the frameworks
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from parity.common.base.errors import RecordError, SpecError
from parity.common.base.files import numbered_folders
from parity.common.base.terminal import Terminal
from parity.common.execution import session
from parity.common.execution.checks import check_run
from parity.common.execution.interpreters import require
from parity.common.execution.session import QUESTION, Job
from parity.common.record import RunRecord, claim_folder, read_record
from parity.common.record.files import parse, write_json
from parity.common.scaling.analyse import analyse
from parity.common.scaling.projection import PROJECTED_DEVICES
from parity.common.scaling.result import Conclusion, Scaling
from parity.common.spec import Placement, RunConfig, TrainSpec, override
from parity.common.spec.base import PositiveInt, Spec

Mode = Literal["strong", "weak", "both"]
DEFAULT_PLACEMENTS = ("tensorflow:mirrored", "torch:ddp")


class Question(Spec):
    """What `parity scale` measures."""

    format: Literal["parity-scale"] = "parity-scale"
    schema_version: Literal[1] = 1
    spec: TrainSpec
    placements: tuple[RunConfig, ...]
    mode: Mode
    rounds: PositiveInt
    target_loss: float | None = None
    target_accuracy: float | None = Field(default=None, gt=0, le=1)
    project: PositiveInt = PROJECTED_DEVICES
    link: str | None = None


@dataclass(frozen=True)
class ScaleResult:
    """Everything that a report of a scaling session shows. `records` are those of the first round."""

    question: Question
    records: tuple[RunRecord, ...]
    scaling: Scaling

    @property
    def verdict(self) -> Conclusion:
        """Whether every speedup is known well enough."""
        known = all(ratio.conclusion == "conclusive" for ratio in self.scaling.speedups)
        return "conclusive" if known else "too noisy to conclude"

    @property
    def exit_code(self) -> int:
        return 0 if self.verdict == "conclusive" else 3


def placements_of(texts: Sequence[str], replicas: Sequence[int], **usual: object) -> list[RunConfig]:
    """Every strategy at every replica count, and one replica of each framework on its own.

    Args:
        texts: 'framework:strategy' or 'framework:strategy,field=value...', without a replica count.
        replicas: counts; 1 stands for the framework without any strategy, the baseline of all.
        usual: fields of all placements and their run options.

    Raises:
        SpecError: with one line.
    """
    if sorted(set(replicas)) != sorted(replicas) or min(replicas) != 1 or max(replicas) < 2:
        raise SpecError(
            f"--replicas {','.join(map(str, replicas))}: expected 1, against which speedups are taken, and at"
            " least one more count, each once"
        )
    found: list[RunConfig] = []
    for text in texts:
        head, more = Placement.split_text(text, "--replicas gives the numbers")
        for count in sorted(replicas):
            config = RunConfig.from_text(f"{head}:{count}{more}", **usual)
            if count == 1:
                # Without a strategy, which costs nothing that could flatter the others.
                alone = config.placement.to_dict() | {"strategy": "single", "options": {}}
                config = config.model_copy(update={"placement": Placement.parse(alone)})
            found.append(config)
    labels = [config.label for config in found if config.placement.replicas > 1]
    doubled = sorted({label for label in labels if labels.count(label) > 1})
    if doubled:
        raise SpecError(f"--placement: {doubled[0]} is given twice")
    return list(dict.fromkeys(found))


def configurations(question: Question, folder: Path) -> list[Job]:
    """One run of each placement, at the spec's global batch, at that times its replicas, or at both.

    Raises:
        SpecError: a placement cannot run the spec, or there are too few samples for a global batch.
    """
    jobs: list[Job] = []
    for config in question.placements:
        # Multiples of the global batch. One replica is the baseline of both kinds of scaling.
        multiples = {
            "strong": [1],
            "weak": [config.placement.replicas],
            "both": [1, config.placement.replicas],
        }
        for times in dict.fromkeys(multiples[question.mode]):
            spec = enlarged(question.spec, times)
            check_run(spec, *config.parts)
            name = f"{session.name_of(len(jobs), config.placement)}_batch_{spec.global_batch_size}"
            jobs.append(Job(spec, config, folder / name))
    return jobs


def enlarged(spec: TrainSpec, times: int) -> TrainSpec:
    """The spec with that many times its global batch: another spec, since the batch decides the curve.

    Raises:
        SpecError: there are too few samples.
    """
    size = spec.global_batch_size * times
    if size > spec.data.train_samples:
        raise SpecError(
            f"weak scaling to {times} replicas needs a global batch of {size}, but data.train_samples is"
            f" {spec.data.train_samples}; take a smaller global_batch_size, fewer replicas or --mode strong"
        )
    return override(spec, [f"global_batch_size={size}"]).resolved() if times > 1 else spec


def run_scale(question: Question, folder: Path, console: Terminal, overwrite: bool = False) -> None:
    """Write a scaling session; `overwrite`: in place of an earlier one.

    Raises:
        ParityError: a run failed or was interrupted; finished rounds can be read with `read_scale`.
    """
    placements = [config.placement for config in question.placements]
    for placement in placements:
        require(placement.framework)
    jobs = configurations(question, folder)
    if overwrite:
        session.remove(folder)
    claim_folder(folder)
    write_json(folder / QUESTION, question.to_dict())
    for line in crowded(placements):
        console.tell(line, "dim")
    stages = session.rounds(jobs, folder, question.rounds, phase_rounds=question.rounds)
    session.work(stages, folder, console)


def crowded(placements: Sequence[Placement]) -> list[str]:
    """Which placements have more replicas than this machine has cores for."""
    cores = len(os.sched_getaffinity(0))
    return [
        f"{placement.label}: {placement.replicas} replicas on {cores} cores"
        for placement in placements
        if placement.device != "gpu" and placement.replicas * placement.threads_per_replica > cores
    ]


def is_scale(folder: Path) -> bool:
    """Whether a folder is a scaling session."""
    return (folder / QUESTION).is_file()


def read_scale(folder: Path) -> ScaleResult:
    """Analyse all whole rounds of a scaling session.

    Raises:
        RecordError: a file is damaged, no round was finished, or nothing in it was timed.
    """
    question = parse(Question, folder / QUESTION)
    names = [job.folder.name for job in configurations(question, folder)]
    rounds = []
    for parent in numbered_folders(folder):
        # An interrupted round would compare what did not run side by side.
        if all((parent / name / "summary.json").is_file() for name in names):
            rounds.append([read_record(parent / name) for name in names])
    if not rounds:
        raise RecordError(f"{folder}: no round was finished, so there is nothing to report")
    scaling = analyse(
        rounds,
        target_loss=question.target_loss,
        target_accuracy=question.target_accuracy,
        devices=question.project,
        link=question.link,
    )
    if scaling is None:
        raise RecordError(f"{folder}: a run has no step that could be timed; take more --steps")
    return ScaleResult(question, tuple(rounds[0]), scaling)
