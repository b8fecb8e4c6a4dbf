"""Jobs of a SLURM cluster: which of slurm/'s scripts trains a placement, with which options of sbatch.

A submission is a folder:

spec.yaml        what is trained; the jobs read this copy, whatever becomes of the original
submission.json  the jobs' ids
runs/, floor/    records, as `parity run` lays them out
scale.json       and round_N/ instead, of a sweep
study.json       and seeds/ instead, of a study
logs/            what each job and each rank said
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import parity
from parity.common.base.errors import ParityError, RecordError, RunError, SpecError
from parity.common.execution import slurm
from parity.common.execution.checks import check_run
from parity.common.execution.flags import flags_of
from parity.common.execution.session import QUESTION, noisiest
from parity.common.record import claim_folder
from parity.common.record.files import parse, write_json
from parity.common.scaling.experiment import Question
from parity.common.spec import Placement, RunConfig, TrainSpec, dump_yaml
from parity.common.spec.base import NonNegativeInt, Spec
from parity.common.study.question import STUDY, Arm, StudySpec

SUBMISSION = "submission.json"
SCRIPTS = Path(parity.__file__).parent / "slurm"
# What a script finds out by itself.
_BY_SCRIPT = ("--replicas=", "--nodes=", "--launcher=")


class Submitted(Spec):
    """A job that SLURM has accepted. `record`: of its training, in the submission's folder."""

    name: str
    id: NonNegativeInt
    record: str | None = None


class Submission(Spec):
    """What was submitted together; the last job reports on the others."""

    format: Literal["parity-submission"] = "parity-submission"
    schema_version: Literal[1] = 1
    jobs: tuple[Submitted, ...]


@dataclass(frozen=True)
class Size:
    """Nodes, and processes or GPUs on each."""

    nodes: int
    per_node: int
    gpus: bool

    def options(self) -> list[str]:
        """What sbatch takes."""
        found = [f"--nodes={self.nodes}", f"--ntasks-per-node={self.per_node}"]
        return [*found, f"--gpus-per-node={self.per_node}"] if self.gpus else found


@dataclass(frozen=True)
class Job:
    """One call of sbatch. `after`: names of jobs that must have succeeded before."""

    name: str
    script: str
    options: tuple[str, ...]
    flags: tuple[str, ...]
    record: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()

    def command(self, ids: Mapping[str, str]) -> list[str]:
        """sbatch and its arguments, with what stands for the ids of other jobs."""
        wait = [f"--dependency=afterok:{':'.join(ids[name] for name in self.after)}"] if self.after else []
        # Without it, a job whose condition cannot come true waits for ever.
        wait += ["--kill-on-invalid-dep=yes"] if self.after else []
        name = f"--job-name={self.name}"
        return ["sbatch", "--parsable", name, *self.options, *wait, str(SCRIPTS / self.script), *self.flags]


def sized(text: str, size: Size) -> tuple[RunConfig, Size]:
    """The placement 'torch:fsdp2,wrap=blocks' that fills nodes of a size, and what is left of the size.

    Raises:
        SpecError: the text is no placement, or one that the scripts cannot start.
    """
    gives = "--nodes with --gpus-per-node or --tasks-per-node gives the number"
    head, more = Placement.split_text(text, gives)
    # Refused here where there is no such strategy.
    kind = Placement.from_text(f"{head}:1")
    alone = kind.strategy == "single"
    one_process = not (alone or kind.options.process_per_replica)
    if one_process and kind.framework == "torch":
        raise SpecError(f"--placement {text}: no script starts {kind.strategy}; take torch:ddp")
    if one_process and size.nodes > 1:
        raise SpecError(
            f"--placement {text}: {kind.strategy} is one process, which cannot use {size.nodes} nodes; take"
            " tf:multi_worker, or --nodes 1"
        )
    if alone:
        size = Size(1, 1, size.gpus)
    local = kind.framework == "tensorflow" and kind.strategy != "multi_worker"
    devices = size.nodes * size.per_node
    device, launcher = "gpu" if size.gpus else "cpu", "local" if local else "srun"
    usual = {"launcher": launcher, "nodes": size.nodes, "device": device}
    config = RunConfig.from_text(f"{head}:{devices}{more}", **usual)
    placement = config.placement
    if placement.processes < devices and not one_process:
        raise SpecError(
            f"--placement {text}: the scripts start a process for each device; leave replicas_per_worker out"
        )
    if placement.ranks_per_replica > 1:
        replicas, rest = divmod(devices, placement.ranks_per_replica)
        if rest:
            raise SpecError(
                f"--placement {text}: {devices} devices cannot be divided by {placement.ranks_per_replica} ranks"
            )
        config = config.having(replicas=replicas)
    return config, size


def script_of(placement: Placement) -> str:
    """The batch script that starts a placement."""
    if placement.framework == "tensorflow":
        return "tf_multi_worker.sbatch" if placement.launcher == "srun" else "tf_mirrored.sbatch"
    if placement.engine == "lightning":
        return "torch_lightning.sbatch"
    for strategy in ("fsdp", "deepspeed"):
        if placement.strategy.startswith(strategy):
            return f"torch_{strategy}.sbatch"
    return "torch_ddp.sbatch"


def comparison(
    spec: TrainSpec, texts: Sequence[str], size: Size, options: Sequence[str], folder: Path
) -> list[Job]:
    """A job for each placement, and one that compares the others with the first.

    Raises:
        SpecError: a placement cannot run the spec.
    """
    placed = [sized(text, size) for text in texts]
    if len(placed) < 2 or len({config for config, _ in placed}) < len(placed):
        raise SpecError("a comparison needs two different placements or more; give --placement again")
    floor = [] if spec.precision == "float64" else noisiest([config for config, _ in placed])
    jobs = []
    for number, (config, own) in enumerate(placed):
        check_run(spec.resolved(), *config.parts)
        placement = config.placement
        name = f"{number}_{placement.framework}_{placement.strategy}"
        by_script = (*_BY_SCRIPT, f"--device={'gpu' if own.gpus else 'cpu'}")
        flags = [flag for flag in flags_of(placement, config.run_options) if not flag.startswith(by_script)]
        if placement.ranks_per_replica > 1:
            flags.append(f"--replicas={placement.replicas}")
        variables = {"PARITY_FLOOR": str(folder / "floor")} if config in floor else {}
        record = f"runs/{name}"
        flags += [f"--spec={folder / 'spec.yaml'}", f"--out={folder / record}"]
        given, variables = (*options, *own.options(), _output(folder)), _environment(folder) | variables
        jobs.append(Job(name, script_of(placement), given, tuple(flags), record, variables))
    return [*jobs, _report(folder, options, [job.name for job in jobs])]


def sweep(
    question: Question, counts: Sequence[int], size: Size, options: Sequence[str], folder: Path
) -> list[Job]:
    """A job array over numbers of replicas, and a job that collects what they took."""
    array, output = f"--array=0-{len(counts) - 1}", f"--output={folder}/logs/%x-%A_%a.log"
    for config in question.placements:
        check_run(question.spec, *config.parts)
    given = (*options, *size.options(), array, output)
    job = Job("scale", "scale.sbatch", given, (str(folder),), environment=_environment(folder))
    return [job, _report(folder, options, [job.name])]


def arm_of(text: str, size: Size) -> Arm:
    """Return the arm 'torch:ddp,stock=dropout' of a study on the devices of one node.

    Raises:
        SpecError: the text is no arm, or there are several nodes.
    """
    if size.nodes > 1:
        raise SpecError(f"--study trains each seed on one node, received --nodes {size.nodes}; leave it out")
    head, more = Placement.split_text(text, "--gpus-per-node or --tasks-per-node gives the number")
    replicas = 1 if head.endswith(":single") else size.per_node
    return Arm.of(f"{head}:{replicas}{more}", device="gpu" if size.gpus else "cpu")


def study(question: StudySpec, size: Size, options: Sequence[str], folder: Path) -> list[Job]:
    """A job array over the seeds of a study, and a job that analyses them."""
    question.check()
    array, output = f"--array=0-{question.looks[-1] - 1}", f"--output={folder}/logs/%x-%A_%a.log"
    given = (*options, *size.options(), array, output)
    job = Job("study", "study.sbatch", given, (str(folder),), environment=_environment(folder))
    return [job, _report(folder, options, [job.name])]


def _report(folder: Path, options: Sequence[str], after: Sequence[str]) -> Job:
    # It needs a core for a minute, whatever the trainings ask for.
    own = [option for option in options if option.startswith(("--partition=", "--account="))]
    given, variables = (*own, _output(folder)), _environment(folder)
    return Job("report", "report.sbatch", given, (str(folder),), None, variables, tuple(after))


def _output(folder: Path) -> str:
    return f"--output={folder}/logs/%x-%j.log"


def _environment(folder: Path) -> dict[str, str]:
    return {"PARITY_SLURM": str(SCRIPTS), "PARITY_LOGS": str(folder / "logs")}


def script(jobs: Sequence[Job]) -> str:
    """What `submit` does, as commands for a shell."""
    lines = []
    for job in jobs:
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in job.environment.items())
        words = job.command({name: f"$job_{name}" for name in job.after})
        call = " ".join(word if "=afterok:" in word else shlex.quote(word) for word in words)
        lines.append(f"job_{job.name}=$({variables}{call})\n")
    return "".join(lines)


def submit(
    jobs: Sequence[Job], spec: TrainSpec, folder: Path, question: Question | StudySpec | None = None
) -> Submission:
    """Write a submission's folder, with the question of a sweep or a study, and hand its jobs to SLURM.

    Raises:
        ParityError: the folder is taken, there is no SLURM here, or it refused a job; then those that it had
            accepted are cancelled.
    """
    for job in jobs:
        if not (SCRIPTS / job.script).is_file():
            raise RunError(
                f"{SCRIPTS / job.script} is not there; install the toolkit with: pip install -e FOLDER"
            )
    slurm.ask("sbatch", "--version")
    claim_folder(folder)
    (folder / "logs").mkdir()
    (folder / "spec.yaml").write_text(dump_yaml(spec), encoding="utf-8")
    if question is not None:
        name = QUESTION if isinstance(question, Question) else STUDY
        write_json(folder / name, question.to_dict())
    accepted: list[Submitted] = []
    try:
        for job in jobs:
            ids = {other.name: str(other.id) for other in accepted}
            accepted.append(Submitted(name=job.name, id=_sbatch(job, ids), record=job.record))
    except ParityError:
        if accepted:
            slurm.ask("scancel", *(str(job.id) for job in accepted))
        shutil.rmtree(folder, ignore_errors=True)
        raise
    submission = Submission(jobs=tuple(accepted))
    write_json(folder / SUBMISSION, submission.to_dict())
    return submission


def _sbatch(job: Job, ids: Mapping[str, str]) -> int:
    done = slurm.ask(*job.command(ids), **job.environment)
    number = done.stdout.strip().partition(";")[0]
    if done.returncode != 0 or not number.isdecimal():
        message = "; ".join(line.removeprefix("sbatch: error: ") for line in done.stderr.splitlines() if line)
        raise RunError(f"SLURM does not accept the job {job.name}: {message or 'sbatch printed nothing'}")
    return int(number)


def read_submission(folder: Path) -> Submission:
    """Return what `submit` wrote into a folder.

    Raises:
        RecordError: there is no submission in the folder, or it is damaged.
    """
    path = folder / SUBMISSION
    if not path.is_file():
        raise RecordError(f"{path}: is not there; give the folder of 'parity submit' or slurm/pair.sh")
    return parse(Submission, path)
