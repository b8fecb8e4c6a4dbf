"""Of specs: train one on several placements and compare; and over seeds, against a margin."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from parity.common import recipes
from parity.common.api.answers import Answer, Compared, Rows
from parity.common.base.errors import SpecError, check_least, did_you_mean
from parity.common.base.terminal import Terminal
from parity.common.execution import session
from parity.common.parity.result import trained
from parity.common.record import claim_folder
from parity.common.report.files import write_both
from parity.common.report.html.study import write_study_html
from parity.common.report.next_steps import NextStep, after_study
from parity.common.report.study import print_study, study_to_json
from parity.common.spec import RunConfig, TrainSpec, load_spec, override
from parity.common.spec.stock import refuse_stock
from parity.common.study.collect import collect, count_of_records
from parity.common.study.equivalence import Margin
from parity.common.study.judge import judge_study
from parity.common.study.metrics import METRICS, check_metrics, usual_metrics
from parity.common.study.question import (
    DEFAULT_MARGIN,
    STUDY,
    Arm,
    StudySpec,
    looks_of,
    read_question,
    with_more_seeds,
    write_question,
)
from parity.common.study.result import StudyResult
from parity.common.study.session import begin_study, room_for, run_study

Device = Literal["auto", "cpu", "gpu"]
Failed = Literal["error", "worst"]
Pairing = Literal["seed", "order", "none"]
MOST_SEEDS = 20
_ALL = ""


@dataclass(frozen=True, repr=False)
class Studied(Answer):
    """Trainings over seeds: 'equivalent', 'different' or 'undecided'. folder: of the study. report: as of `Compared`."""

    result: StudyResult
    folder: Path
    report: str

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    def _print(self, console: Terminal, every: bool) -> None:
        print_study(self.result, console, self.report)

    def _next_steps(self) -> Sequence[NextStep]:
        return after_study(self.result, self.folder)

    def to_html(self, path: str | Path) -> Path:
        write_study_html(self.result, Path(path))
        return Path(path)

    def _json(self) -> dict[str, Any]:
        return study_to_json(self.result)

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {"figures": self._figures}

    def _figures(self) -> Rows:
        return [
            {
                "candidate": one.candidate,
                "figure": one.figure.name,
                "difference": one.estimate,
                "low": one.interval[0],
                "high": one.interval[1],
                "margin": one.margin_size,
                "p_equivalence": one.p_equivalence,
                "p_different": one.p_different,
                "verdict": one.verdict,
            }
            for one in self.result.results
        ]


def read_spec(source: str | Path | TrainSpec, settings: Mapping[str, Any] | None = None) -> TrainSpec:
    """Return a complete spec, all defaults resolved.

    Args:
        source: the name of a recipe, such as 'digits_cnn' or 'gpt2:tiny'; a YAML or JSON file; or a spec.
        settings: fields to change, such as {'optimizer.learning_rate': 0.05}.

    Raises SpecError where there is no such recipe, file or field, or a value cannot be.

    Examples:
        >>> spec = parity.read_spec("digits_mlp", {"steps": 20, "optimizer.learning_rate": 0.05})
        >>> spec.steps, spec.precision, spec.optimizer.kind
        (20, 'float64', 'sgd')
    """
    if isinstance(source, TrainSpec):
        spec = source
    elif isinstance(source, Path) or Path(source).suffix in (".yaml", ".yml", ".json"):
        spec = load_spec(Path(source))
    else:
        spec = recipes.get(source)
    changes = [f"{name}={json.dumps(value)}" for name, value in (settings or {}).items()]
    return override(spec, changes).resolved()


def run(
    spec: str | Path | TrainSpec,
    placements: Sequence[str] = (),
    *,
    settings: Mapping[str, Any] | None = None,
    replicas: int = 2,
    out: str | Path | None = None,
    device: Device = "auto",
    digests: bool = False,
    timing_rounds: int = 3,
    overwrite: bool = False,
    quiet: bool = False,
) -> Compared:
    """Train a spec on several placements, compare them, and write records and reports, as `parity run`.

    Args:
        spec, settings: as `read_spec`.
        placements: 'framework:strategy:replicas[,field=value...]' each, the first is the reference; none: one replica of
            each framework, then `replicas` of every usual strategy.
        replicas: of the default placements.
        out: new folder [runs/NAME].
        digests: check after each step that replicas are equal.
        timing_rounds: interleaved, 0 for none.
        overwrite: remove a session or record that `out` holds.
        quiet: say no progress on standard error.

    Raises:
        SpecError: the spec or a placement cannot be.
        RecordError: `out` holds something else.
        RunError: a run failed, or a person interrupted.
    """
    chosen = read_spec(spec, settings)
    check_least(1, replicas=replicas)
    check_least(0, timing_rounds=timing_rounds)
    texts = list(placements) or session.default_placements(replicas)
    configs = [RunConfig.from_text(text, device=device, pin=True, digests=digests) for text in texts]
    folder = Path("runs") / chosen.name if out is None else Path(out)
    if chosen.stock:
        raise SpecError(refuse_stock(chosen.stock, f"--set stock={list(chosen.stock)}"))
    session.check(chosen, configs)
    if overwrite:
        session.remove(folder)
    claim_folder(folder)
    stages = session.stages_of(chosen, configs, folder, timing_rounds)
    found = trained(stages, chosen, configs, folder, Terminal(stderr=True, quiet=quiet))
    return Compared(found).written(folder)


def study(
    spec: str | Path | TrainSpec | None = None,
    placements: Sequence[str] = (),
    *,
    settings: Mapping[str, Any] | None = None,
    records: Sequence[str | Path] = (),
    margins: Mapping[str, str | float] | str | float | None = None,
    metrics: Sequence[str] = (),
    seeds: int | None = None,
    looks: Sequence[int] = (),
    first_seed: int | None = None,
    target_loss: float | None = None,
    alpha: float | None = None,
    failed: Failed | None = None,
    pairing: Pairing | None = None,
    device: Device = "auto",
    out: str | Path | None = None,
    parallel: int | None = None,
    quiet: bool = False,
) -> Studied:
    """Show over seeds, against a margin, whether trainings that cannot be equal are equivalent, as `parity study`.

    The same call goes on where it was stopped; with more `seeds` it adds some.

    Args:
        spec, settings: as `read_spec`; none where `records` are given.
        placements: the arms, the first is the reference, such as 'torch:ddp:2,stock=mixed_bfloat16'.
        records: instead, a folder of recorded scripts for each arm.
        margins: what is too small to matter: 0.2, '2%' of the reference's mean, '0.5sd' of its seeds; by figure, or one of all.
        metrics: the figures to compare [as the spec has them].
        seeds: how many at most [20].
        looks: after how many the study may end [40 %, 70 % and all].
        first_seed, target_loss, alpha, failed, pairing: as the flags of `parity study`.
        out: folder of the study, new or to go on with [runs/NAME-study].
        parallel: runs side by side [as cores or GPUs allow].
        quiet: say no progress on standard error.

    Raises:
        SpecError: the question cannot be asked so.
        ParityError: a run failed, or `out` holds something else.
    """
    told = margins if isinstance(margins, Mapping) else {} if margins is None else {_ALL: margins}
    question = study_question(
        None if spec is None else read_spec(spec, settings),
        [Arm.of(text, device=device) for text in placements],
        records=list(map(str, records)),
        margins=[f"{name}={size}" if name else str(size) for name, size in told.items()],
        metrics=metrics,
        seeds=seeds,
        looks=looks,
        first_seed=first_seed,
        target_loss=target_loss,
        alpha=alpha,
        failed=failed,
        pairing=pairing,
    )
    question, folder = begun(question, None if out is None else Path(out), seeds, failed)
    if question.spec is None:
        return studied(judge_study(question, collect(question, folder)), folder)
    console = Terminal(stderr=True, quiet=quiet)
    return studied(run_study(question, folder, console, parallel or room_for(question)), folder)


def study_question(
    spec: TrainSpec | None,
    arms: Sequence[Arm],
    *,
    records: Sequence[str] = (),
    margins: Sequence[str] = (),
    metrics: Sequence[str] = (),
    seeds: int | None = None,
    looks: Sequence[int] = (),
    at_once: bool = False,
    pairing: Pairing | None = None,
    **given: Any,
) -> StudySpec:
    """Return the question of a study; see `study`. Raises SpecError with one line.

    Args:
        margins: '[METRIC=]SIZE' each.
        at_once: whether all seeds are trained before the first look.
        given: fields of StudySpec; None is the default.
    """
    if records and (spec is not None or arms):
        raise SpecError("--records stand instead of --recipe, --spec and --placement; give either")
    if spec is not None and spec.stock:
        raise SpecError("stock modes belong to the arms: give them to --placement as stock=MODE+MODE")
    paired = pairing or "seed"
    if spec is not None and paired != "seed":
        raise SpecError(f"--pairing {paired} is for --records; runs of a seed begin alike, and are pairs")
    names = list(metrics) or (["loss_area"] if spec is None else usual_metrics(spec))
    check_metrics(names, spec)
    count = seeds or (MOST_SEEDS if spec is not None else count_of_records(list(records), paired))
    stage = [count] if at_once or spec is None else list(looks_of(count))
    if looks:
        stage = [*(look for look in looks if look < count), count]
    return StudySpec.parse(
        {
            "spec": None if spec is None else spec.to_dict(),
            "arms": [arm.to_dict() for arm in arms],
            "records": list(records),
            "figures": _figures(names, margins),
            "stages": [stage],
            "pairing": paired,
            **{name: value for name, value in given.items() if value is not None},
        }
    )


def begun(
    question: StudySpec, out: Path | None, seeds: int | None, failed: Failed | None
) -> tuple[StudySpec, Path]:
    """Make the folder of a study, or go on in one; gives the question as that holds it, and the folder.

    Raises ParityError where the folder holds something else, or an arm cannot train the spec.
    """
    folder = out or Path("runs") / f"{'records' if question.spec is None else question.spec.name}-study"
    if question.spec is None:
        _claim(folder)
        write_question(question, folder)
        return question, folder
    return continued(begin_study(question, folder), folder, seeds, failed), folder


def continued(question: StudySpec, folder: Path, seeds: int | None, failed: Failed | None) -> StudySpec:
    """A study's question with the seeds that are added, written again where there are any; raises SpecError where it has ended."""
    changed = question
    if seeds is not None and seeds > question.looks[-1]:
        found = judge_study(question, collect(question, folder))
        if found.verdict != "undecided":
            raise SpecError(
                f"--seeds {seeds}: the study has ended after {found.seeds} seeds, {found.verdict}; for another give"
                " another --out"
            )
        changed = with_more_seeds(question, seeds, found.seeds)
    if failed is not None and failed != question.failed:
        changed = changed.model_copy(update={"failed": failed})
    if changed != question:
        write_question(changed, folder)
    return changed


def studied(result: StudyResult, folder: Path) -> Studied:
    """Write the reports of a study; raises RecordError where they cannot be."""
    shown = write_both(folder / "report", study_to_json(result), lambda page: write_study_html(result, page))
    return Studied(result, folder, shown)


def _claim(folder: Path) -> None:
    """Make the folder of a study of records; raises ParityError where it holds something else."""
    if (folder / STUDY).is_file():
        if read_question(folder).spec is not None:
            raise SpecError(f"--out {folder}: holds a study that was trained; give another")
        return
    claim_folder(folder)


def _figures(names: Sequence[str], margins: Sequence[str]) -> list[dict[str, Any]]:
    """The figures with their margins; one without a name is that of all others."""
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        near = did_you_mean(unknown[0], METRICS)
        raise SpecError(f"--metric {unknown[0]}: expected one of {', '.join(METRICS)}{near}")
    default, own = DEFAULT_MARGIN, {}
    for text in margins:
        name, equals, size = text.rpartition("=")
        if equals and name not in names:
            how = f"; add --metric {name}" if name in METRICS else did_you_mean(name, names)
            raise SpecError(
                f"--margin {text}: {name!r} is not compared; compared are {', '.join(names)}{how}"
            )
        if equals:
            own[name] = Margin.of(size)
        else:
            default = Margin.of(size)
    return [{"name": name, "margin": own.get(name, default).to_dict()} for name in names]
