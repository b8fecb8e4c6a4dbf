"""Runs that follow each other in one folder: the records and timing rounds of `parity run` and `parity scale`."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from parity.common.base.errors import ParityError, RecordError, RunError, SpecError
from parity.common.base.terminal import Terminal
from parity.common.execution import progress
from parity.common.execution.checks import check_run, effective_batch
from parity.common.execution.interpreters import require
from parity.common.execution.worker import Workers
from parity.common.record.header import strangers_to_record
from parity.common.spec import Placement, RunConfig, TrainSpec

TIMED_STEPS = 40
_WORTH_SAYING_SECONDS = 60
MINIMUM_MEMBERS = 4  # permuted runs that a noise floor takes
PHASE_REPEATS = 5  # of each phase, after a run
TRAINING = "training"
QUESTION = "scale.json"  # in the folder of a scaling session: what was asked


@dataclass(frozen=True)
class Job:
    """One run of a session."""

    spec: TrainSpec
    config: RunConfig
    folder: Path


# What `parity run` and `parity scale` write into their folder.
_OF_A_SESSION = re.compile(
    rf"runs|floor|timing|logs|round_\d+|{re.escape(QUESTION)}|spec\.yaml|report\.(html|json|xml)|diagnosis_\d+\.(html|json)"
)
# A title, and the runs under it.
Stage = tuple[str, list[Job]]


def default_placements(replicas: int) -> list[str]:
    """The reference and every usual strategy beside it: one replica of each framework, then `replicas`."""
    chosen = ["torch:single:1", "tensorflow:mirrored:1"]
    if replicas > 1:
        chosen += [f"{name}:{replicas}" for name in ("tensorflow:mirrored", "torch:ddp", "torch:fsdp2")]
    return chosen


def check(spec: TrainSpec, configs: Sequence[RunConfig]) -> None:
    """Raise a ParityError unless a spec can be run on all of some placements, and these be compared."""
    labels = [config.label for config in configs]
    doubled = {label for label in labels if labels.count(label) > 1}
    if doubled:
        raise SpecError(f"--placement: {sorted(doubled)[0]} is given twice")
    if len(configs) < 2:
        raise SpecError("a comparison needs two placements or more; give --placement again")
    for config in configs:
        require(config.placement.framework)
        check_run(spec, *config.parts)


def work(
    stages: Iterable[Stage],
    folder: Path,
    console: Terminal,
    keep: bool = False,
    workers: Workers | None = None,
) -> None:
    """Run all jobs, one after the other, in worker processes that live as long as this call, or as `workers`.

    So each has the machine to itself.

    Raises:
        ParityError: a run failed, or a person interrupted; the folder keeps what was finished. It is
            removed where nothing was, unless `keep`, or a log inside says why it failed.
    """
    used = Workers(folder / "logs") if workers is None else workers
    stages = list(stages)
    outlook = _Outlook([job for _, jobs in stages for job in jobs], console)
    console.tell(f"{outlook.text}; records go into {folder}", "dim")
    try:
        with used if workers is None else nullcontext():
            for title, jobs in stages:
                _run_stage(title, jobs, used, console, outlook)
    except KeyboardInterrupt:
        raise RunError(f"interrupted; finished runs are in {folder}") from None
    except ParityError:
        if not (keep or used.log_matters or holds_runs_or_logs(folder)):
            shutil.rmtree(folder)
        raise


class _Outlook:
    """How much there is to run, and once the first run has shown how fast, about how long it takes."""

    def __init__(self, jobs: Sequence[Job], console: Terminal) -> None:
        self._steps = [job.config.run_options.steps_of(job.spec.steps) for job in jobs]
        self._console, self._began, self._told = console, time.monotonic(), False

    @property
    def text(self) -> str:
        """'20 runs, 5 of 200 steps and 15 of 40'."""
        parts = [f"{count} of {steps}" for steps, count in Counter(self._steps).items()]
        count, (first, *others) = len(self._steps), parts
        if not others:
            return f"{count} run{'s' * (count > 1)} of {self._steps[0]} steps"
        return f"{count} runs, {first} steps and {', '.join(others)}"

    def after_run(self) -> None:
        """After the first run print about how long the others take, by their steps, where that is long enough to matter."""
        if self._told:
            return
        self._told, seconds = True, time.monotonic() - self._began
        left = seconds * sum(self._steps[1:]) / self._steps[0]
        if left > _WORTH_SAYING_SECONDS:
            self._console.tell(
                f"the first run took {seconds:.0f} s: about {left / 60:.0f} min for the others, if they are like it",
                "dim",
            )


def holds_runs_or_logs(folder: Path) -> bool:
    """Whether a run below a folder was finished, or a rank has written into its log."""
    return any(folder.rglob("summary.json")) or any(log.stat().st_size for log in folder.rglob("rank_*.log"))


def rounds(jobs: Sequence[Job], folder: Path, count: int, phase_rounds: int) -> Iterator[Stage]:
    """Interleaved timing rounds: each runs every job once, in an order drawn anew.

    So a slow minute of the machine hits all of them. The first `phase_rounds` also time the phases of
    a step, once a run's steps are done.
    """
    for number in range(count):
        again = [
            Job(
                job.spec,
                _phased(job.spec, job.config) if number < phase_rounds else job.config,
                folder / f"round_{number}" / job.folder.name,
            )
            for job in jobs
        ]
        random.Random(number).shuffle(again)
        yield f"timing, round {number + 1} of {count}", again


def _phased(spec: TrainSpec, config: RunConfig) -> RunConfig:
    """The run with its phases timed, where they can be."""
    asked = config.having(phase_repeats=PHASE_REPEATS)
    try:
        check_run(spec, *asked.parts)
    except SpecError:
        return config
    return asked


def stages_of(
    spec: TrainSpec, configs: Sequence[RunConfig], folder: Path, timing_rounds: int
) -> Iterator[Stage]:
    """The runs of `parity run`: each placement's, those that show the noise floor (but in float64), those that are timed.

    They go into folder/runs, folder/floor and folder/timing.
    """

    yield TRAINING, _jobs(spec, configs, folder / "runs")
    if spec.precision != "float64":
        yield floor_of(spec, configs, folder)
    stop = min(TIMED_STEPS, spec.steps)
    timed = (config.having(stop_at_step=stop, digests=False) for config in configs)
    yield from rounds(_jobs(spec, timed, folder / "timing"), folder / "timing", timing_rounds, phase_rounds=1)


def floor_of(spec: TrainSpec, configs: Sequence[RunConfig], folder: Path) -> Stage:
    """The permuted runs that show what rounding alone does; in float32 each placement's first step in float64, too."""
    members = (
        config.having(sample_order_seed=seed, digests=False)
        for config in noisiest(configs)
        for seed in range(MINIMUM_MEMBERS)
    )
    jobs = _jobs(spec, members, folder / "floor")
    if spec.precision == "float32":
        steps = (config.having(stop_at_step=1, digests=False) for config in configs)
        jobs += _jobs(spec.in_float64(), steps, folder / "floor", first=len(jobs))
    return "measuring the noise floor", jobs


def exact_of(spec: TrainSpec, configs: Sequence[RunConfig], folder: Path) -> Stage:
    """Runs of a float32 spec in float64, as a whole: what rounding does to each of them. They go into folder/floor."""
    whole = (config.having(digests=False) for config in configs)
    first = sum(path.is_dir() for path in (folder / "floor").iterdir())
    return "in float64, to see what rounding does", _jobs(spec.in_float64(), whole, folder / "floor", first)


def _jobs(spec: TrainSpec, chosen: Iterable[RunConfig], parent: Path, first: int = 0) -> list[Job]:
    return [
        Job(spec, config, parent / name_of(number, config.placement))
        for number, config in enumerate(chosen, start=first)
    ]


def noisiest(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """Whose permuted runs show what rounding does: each framework's first, and the one with most replicas.

    A net with kinks may meet one when its batches are summed in many parts that one replica never does.
    """
    firsts = {config.placement.framework: config for config in reversed(configs)}
    divided = max(configs, key=lambda config: config.placement.replicas)
    return list(dict.fromkeys([*firsts.values(), divided]))


def name_of(number: int, placement: Placement) -> str:
    """The folder of a run among others."""
    return f"{number:02d}_{placement.label.replace(' ', '_')}"


def _run_stage(
    title: str, jobs: Sequence[Job], workers: Workers, console: Terminal, outlook: _Outlook
) -> None:
    several = len({job.spec.global_batch_size for job in jobs}) > 1
    for number, job in enumerate(jobs, start=1):
        placement, run_options, instrumentation = job.config.parts
        batch = f", {effective_batch(job.spec, placement)}" if several or title == TRAINING else ""
        line = f"{title}: {placement.label} ({number} of {len(jobs)}){batch}"
        console.tell(line, "dim")
        steps = run_options.steps_of(job.spec.steps)
        with progress.watch({placement.label: job.folder}, steps, shown=not console.quiet):
            workers.train(job.spec, placement, job.folder, run_options, instrumentation)
        outlook.after_run()


def remove(folder: Path) -> None:
    """Remove an earlier session or record; raises RecordError for a folder that is neither, or holds anything else.

    A mistyped --out must not cost anyone their files.
    """
    if not folder.exists():
        return
    names, what = {path.name for path in folder.iterdir()}, "session"
    if (folder / "header.json").is_file():
        names, what = strangers_to_record(folder), "record"
    stranger = foreign(names)
    if stranger is not None or not (what == "record" or {"runs", QUESTION} & names):
        why = "no session and no record" if stranger is None else f"{stranger!a}, which is of no {what}"
        raise RecordError(f"{folder}: holds {why}, so --overwrite leaves it alone")
    shutil.rmtree(folder)


def foreign(names: Iterable[str]) -> str | None:
    """The first of some names in a folder that no session writes; None where all are a session's."""
    return min(
        (name for name in names if not _OF_A_SESSION.fullmatch(name.removesuffix(".partial"))), default=None
    )
