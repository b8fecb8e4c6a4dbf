"""What to do next where two runs diverge, or where a verdict needs more: a reason and a command, for page and terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from parity.common import recipes
from parity.common.base.files import numbered_folders
from parity.common.diagnosis.result import Diagnosis
from parity.common.parity.followed import is_followed
from parity.common.parity.result import Result
from parity.common.record import RunRecord
from parity.common.record.followed import STATES, read_measures
from parity.common.spec import ScriptInfo

if TYPE_CHECKING:
    from parity.common.scaling.experiment import ScaleResult
    from parity.common.study.result import StudyResult


class NextStep(NamedTuple):
    """why: what it is for, as a part of a sentence. command: to be copied into a shell; "" where there is none."""

    why: str
    command: str = ""

    @property
    def line(self) -> str:
        """Both in one line, for a terminal."""
        return f"{self.why}: {self.command}" if self.command else self.why


_IN_FLOAT64 = "record both scripts in float64 (model.double(), inputs too): there rounding explains nothing"
_PAIR_IN_FLOAT64 = NextStep("repeat the command with --precision float64, where rounding hides nothing")


def after_comparison(result: Result) -> list[NextStep]:
    """Return what to do about the first comparison that has the result's verdict; nothing after parity."""
    if result.verdict == "parity":
        return []
    reference = result.records[0]
    number = [c.verdict for c in result.comparisons].index(result.verdict)
    comparison, candidate = result.comparisons[number], result.records[number + 1]
    if result.verdict == "inconclusive":
        return _more_proof(reference, candidate, comparison.budget_source == "none")
    floor, out = _floor_of(reference), _beside(candidate, "-diagnosis")
    steps = [
        NextStep(
            "find the first step, layer and cause", _command("diagnose", reference, candidate, floor, out)
        )
    ]
    if reference.train_spec is not None and reference.run_info.precision != "float64":
        steps.append(_in_float64(reference, candidate))
    elif reference.train_spec is not None and not floor and comparison.amplifies("float64"):
        steps.append(_with_a_floor(reference, candidate))
    return steps


def after_diagnosis(diagnosis: Diagnosis, records: Sequence[RunRecord] = ()) -> list[NextStep]:
    """Return what to do about a diagnosis.

    Args:
        records: reference and candidate; none after `parity pair`, which has models instead.
    """
    if diagnosis.verdict == "parity":
        return []
    if diagnosis.verdict == "inconclusive":
        if not records:
            return [_PAIR_IN_FLOAT64]
        return _more_proof(records[0], records[1], not _floor_of(records[0]))
    if not diagnosis.findings:
        return [
            NextStep("compare the settings of both sides and the code around the first step that differs")
        ]
    first = diagnosis.findings[0]
    fix = first.explanation.fix if first.explanation is not None else ""
    repair = f"fix the first defect ({fix})" if fix else f"fix what computes {first.name}"
    if not records:
        return [NextStep(f"{repair}, then repeat the command with --overwrite")]
    return [
        NextStep(f"{repair}, train the candidate again, then", _command("compare", records[0], records[1]))
    ]


def after_study(result: StudyResult, folder: Path) -> list[NextStep]:
    """Return how to go on with a study that decided nothing, or what a difference calls for."""
    if result.verdict == "equivalent":
        return []
    if result.verdict == "different":
        return [
            NextStep(
                "train both arms with parity run, in float64 and without stock modes: there only a defect differs"
            )
        ]
    command = f"parity study --out {_quoted(folder)}"
    if not result.ended:
        return [NextStep("train the remaining seeds", command)]
    needed = [each.seeds_needed or 0 for each in result.results if each.verdict == "undecided"]
    planned = result.question.looks[-1]
    # Where no number is known that would decide, twice as many at least narrow the interval.
    seeds = max(needed) if needed and max(needed) > planned else 2 * planned
    return [NextStep("add seeds", f"{command} --seeds {seeds}")]


def after_scaling(result: ScaleResult, folder: Path) -> list[NextStep]:
    """Return how to measure speedups again that were too noisy; nothing where all are known."""
    advice = [r.advice for r in result.scaling.speedups if r.conclusion != "conclusive"]
    if not advice:
        return []
    rounds = [int(n) for text in advice for n in re.findall(r"about (\d+) rounds", text)]
    most = max([2 * result.question.rounds if not rounds else 0, *rounds])
    why = "measure on a quiet machine, with more rounds: repeat the command with"
    return [NextStep(why, f"--out {_quoted(folder)} --rounds {most} --overwrite")]


def _more_proof(reference: RunRecord, candidate: RunRecord, floor_missing: bool) -> list[NextStep]:
    """What decides an inconclusive pair: float64, a noise floor, or a followed run."""
    if reference.train_spec is not None:
        steps = [_in_float64(reference, candidate)]
        if floor_missing and reference.spec.model.imported is None:
            steps.append(_with_a_floor(reference, candidate))
        return steps
    if is_followed(candidate):
        if not any(each.stage == "gradients" for each in read_measures(candidate.folder)):
            return [
                NextStep(
                    "give the candidate's recorder the optimizer that is stepped, and where that is given a closure, call its before_update() in it, after"
                    " backward: it saw no gradients"
                )
            ]
        return [NextStep(_IN_FLOAT64)]
    if not all(map(_has_optimizer, (reference, candidate))):
        # To follow is to update by the reference's gradients, which an optimizer of one's own does not ask for.
        return [NextStep(_IN_FLOAT64), _in_other_orders(reference, candidate)]
    kept = (reference.folder / STATES).is_dir()
    first = "" if kept else "the reference with states=True and "
    followed = f"record {first}the candidate once more with follow=, which judges each step by itself"
    return [
        *([] if _is_replicated_tensorflow(candidate) else [NextStep(followed)]),
        _in_other_orders(reference, candidate),
    ]


def _in_other_orders(reference: RunRecord, candidate: RunRecord) -> NextStep:
    return NextStep(
        "or record four runs of the reference with order=1 to order=4, which show what rounding alone does",
        _command("compare", reference, candidate, " --floor ORDERED_RUN..."),
    )


def _has_optimizer(record: RunRecord) -> bool:
    """Whether a script's recorder was given one, whose learning rates it then has."""
    return bool(np.isfinite(record.columns["learning_rate"]).any())


def _is_replicated_tensorflow(record: RunRecord) -> bool:
    """Whether a record is of a script that cannot follow, see `tf_impl.recorder`."""
    info = record.run_info
    return isinstance(info, ScriptInfo) and info.framework == "tensorflow" and info.world_size > 1


def _with_a_floor(reference: RunRecord, candidate: RunRecord) -> NextStep:
    """The comparison with permuted runs."""
    floor = _floor_of(reference) or " --floor PERMUTED_RUN..."
    return NextStep(
        "or give four runs with --sample_order_seed 0 to 3, which show what rounding alone does",
        _command("compare", reference, candidate, floor, _beside(candidate, "-report")),
    )


def _in_float64(*records: RunRecord) -> NextStep:
    """The same spec and placements in float64, where any difference is a defect."""
    spec = records[0].spec
    if spec.model.imported is not None:
        return _PAIR_IN_FLOAT64
    name = spec.name if spec.name in recipes.RECIPES else ""
    known = name and recipes.get(name).model_copy(update={"precision": spec.precision}).resolved() == spec
    which = f"--recipe {name}" if known else "--spec spec.yaml"
    where = "" if known else " (spec.yaml: the full spec, as report.html shows it)"
    placements = "".join(
        f" --placement {p.framework}:{p.strategy}:{p.replicas}"
        for p in (record.placement for record in records)
    )
    out = _quoted(f"runs/{spec.name}-float64")
    command = f"parity run {which} --set precision=float64{placements} --out {out} --diagnose"
    return NextStep(f"prove it in float64, where only a defect differs{where}", command)


def _command(name: str, reference: RunRecord, candidate: RunRecord, floor: str = "", out: str = "") -> str:
    return f"parity {name} {_quoted(reference.folder)} {_quoted(candidate.folder)}{floor}{out}"


def _floor_of(record: RunRecord) -> str:
    """' --floor SESSION/floor/*' where a record is of a session that measured its noise floor."""
    floor = record.folder.parent.parent / "floor"
    there = record.folder.parent.name == "runs" and numbered_folders(floor)
    return f" --floor {_quoted(floor)}/*" if there else ""


def _beside(record: RunRecord, suffix: str) -> str:
    """' --out FOLDER': a new one beside the record's session, which takes no files of others."""
    parent = record.folder.parent
    numbered = parent.name == "runs" and re.match(r"\d\d_", record.folder.name)
    session = parent.parent if numbered else record.folder
    return f" --out {_quoted(f'{session}{suffix}')}"


def _quoted(path: Path | str) -> str:
    return shlex.quote(str(path))
