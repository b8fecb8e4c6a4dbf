"""Followed runs: float32 scripts that start each step from another's state get a verdict, with step and stage."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common import api
from parity.common.base.errors import ExternalModelError, NotComparableError, RecordError
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.scripts.followed_causes import (
    clips_alone,
    moved_alike,
    of_averages,
    of_gradients,
    of_modes,
    of_some_tensors,
    of_update,
    scaled,
    told_factor,
    weighed,
)
from parity.common.external.scripts.outlines import setting_differences
from parity.common.external.scripts.recorded import diagnose_recorded, mapped
from parity.common.parity import followed as followed_stage
from parity.common.parity.budget import _check_beginning
from parity.common.parity.compare import Comparison, followed_evaluation
from parity.common.parity.followed import followed_stages
from parity.common.parity.result import judge
from parity.common.parity.rounding import Rounding
from parity.common.record import RunRecord, followed, read_record
from parity.common.record.fits import added_weights, averaged, averaged_weights, carried_gradients
from parity.common.record.followed import (
    ADDED,
    ALONE,
    AVERAGED,
    CARRIED,
    COUPLED,
    DECAYED,
    FINAL,
    MEMORY,
    MOVED,
    RUNNING,
    THROUGH,
    Measure,
    StateKeeper,
    measured,
    open_states,
    read_measures,
    worst_of,
)
from parity.common.record.header import header_of, read_header, write_summary
from parity.common.record.script_checks import ZEROED
from parity.common.report.next_steps import _more_proof
from parity.common.spec import Placement, ScriptInfo
from parity.common.spec.external.mapping import Mapping, read_mapping
from parity_tests.helpers import ROOT
from parity_tests.recorded.followed import BATCH, CROSS, FAULTS, LATER, OWN, RANK_FAULTS, STEPS, TWO, Due

_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("followed")
    for side, *part in (("torch", "first"), ("keras",), ("torch", "second")):
        command = [sys.executable, "-m", f"parity_tests.recorded.followed_{side}", str(folder), *part]
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=_ENVIRONMENT, timeout=500
        )
        assert ended.returncode == 0, ended.stderr
        assert "which changes this training" in ended.stderr
    return folder


def told(folder: Path, first: str, second: str, by: str = "mapping.yaml") -> tuple[Comparison, Diagnosis]:
    """Both judgements, which never contradict each other."""
    mapping = read_mapping(folder / by) if by else None
    pair = [read_record(folder / name) for name in (first, second)]
    if mapping is not None and ("keras" in f"{first} {second}" or first == "two" or by != "mapping.yaml"):
        pair = [mapped(record, mapping) for record in pair]
    comparison, diagnosis = judge(pair).comparisons[0], diagnose_recorded(pair[0], pair[1])
    assert comparison.verdict == diagnosis.verdict
    return comparison, diagnosis


CASES = [
    *((side, f"{side}_{fault}", due) for side, faults in FAULTS.items() for fault, due in faults.items()),
    *(("keras", f"keras_{fault}", due) for fault, due in CROSS.items()),
    *(("torch", f"torch_keras_{fault}", due) for fault, due in [*CROSS.items(), *OWN.items()]),
    *(("keras", f"keras_torch_{fault}", due) for fault, due in CROSS.items()),
    *(("two", f"two_{fault}", due) for fault, due in TWO.items()),
    # Keras's momentum has the rate in it, torch's has not.
    ("torch_drops", "keras_rate drops", [("update", LATER)]),
    ("torch_drops", "keras_rate is set", [("update", LATER)]),
    ("torch_drops", "keras_rate and velocity are set", []),
    ("keras_drops", "torch_rate drops", [("update", LATER)]),
    ("keras_drops", "torch_rate drops as a velocity does", []),
    # Weight decay that is the optimizer's on one side, and a line of the script's or a penalty in its loss on the other.
    ("decayed", "decayed_by hand", []),
    ("decayed", "decayed_penalty", [("loss", 0)]),
    ("decayed", "keras_decayed by hand", []),
    # An optimizer whose first turn comes later is given the reference's gradients, too.
    ("late", "late_scaled", [("loss", 0)]),
    ("keras", "keras_loop", []),
    ("keras", "keras_loop_scaled", [("loss", 0)]),
    ("runs/reference", "runs/candidate", []),
]


@pytest.fixture(scope="session")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts that update several times between two recorded steps."""
    folder = tmp_path_factory.mktemp("inner")
    command = [sys.executable, "-m", "parity_tests.recorded.followed_torch", str(folder), "inner"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_ENVIRONMENT, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return folder


def test_of_several_updates_the_last_is_the_recorded_one(inner: Path) -> None:
    """An evaluation that trains by the recorded optimizer, and puts the weights back, changes no record."""
    own, same = (read_record(inner / name) for name in ("own", "same"))
    assert np.array_equal(own.columns["gradient_norm"], same.columns["gradient_norm"])
    first = [record.state("first_gradients") for record in (own, same)]
    assert first[0] and all(np.array_equal(array, first[1][name]) for name, array in first[0].items())
    comparison = judge([own, same]).comparisons[0]
    assert comparison.verdict == "parity", comparison.reason


@pytest.mark.parametrize(
    ("reference", "candidate", "due"),
    [
        *((first, f"{second}_0.0", []) for first in ("own", "same") for second in ("own", "same")),
        ("epochs", "epochs_0.9", []),
        ("epochs", "epochs_0.8", ["loss", "update"]),
    ],
)
def test_a_step_of_several_updates_is_followed(
    inner: Path, reference: str, candidate: str, due: list[str]
) -> None:
    comparison, diagnosis = told(inner, reference, f"{reference}_{candidate}", "")
    assert comparison.verdict == ("divergent" if due else "parity"), comparison.reason
    assert sorted(finding.stage for finding in diagnosis.findings) == due


def test_weights_that_a_script_changes_between_steps_are_told(inner: Path) -> None:
    assert told(inner, "mixed", "mixed_0.5", "")[0].verdict == "parity"
    findings = told(inner, "mixed", "mixed_0.25", "")[1].findings
    assert [(finding.stage, finding.step) for finding in findings] == [("loss", 4)]
    assert findings[0].explanation is not None
    assert "the candidate changes its weights itself between" in findings[0].explanation.text


@pytest.mark.parametrize("candidate", ["estimated", "put", "nothing"])
@pytest.mark.parametrize("reference", ["estimated", "put", "nothing"])
def test_what_is_done_after_the_last_step_is_judged(inner: Path, reference: str, candidate: str) -> None:
    comparison, diagnosis = told(inner, reference, f"{reference}_{candidate}", "")
    if reference == "put":
        # It may have trained its weights on, which no rounding of one step limits.
        assert comparison.verdict == "parity", comparison.reason
        assert "and the final state are not judged" in comparison.unjudged
        return
    due = [] if candidate == reference else [("final state", None)]
    assert [(finding.stage, finding.step) for finding in diagnosis.findings] == due
    assert "began with and the steps between are not judged" in comparison.unjudged


@pytest.mark.slow
def test_the_first_gradients_of_several_optimizers_are_kept(runs: Path) -> None:
    found = read_record(runs / "two").state("first_gradients")
    assert len(found) == 4 and all(np.any(value) for value in found.values())


@pytest.mark.slow
def test_each_of_several_optimizers_is_described(runs: Path) -> None:
    told_apart, _ = setting_differences(runs / "two", runs / "two_momentum")
    assert any(line.startswith("optimizer 1: momentum is 0.9 and 0.8") for line in told_apart), told_apart
    assert ZEROED in api.check(runs / "two_").unchecked and not api.check(runs / "torch_").unchecked
    assert any(each.stage == THROUGH for each in read_measures(runs / "two_"))
    assert not any(each.stage == THROUGH for each in read_measures(runs / "torch_"))


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "due"), CASES)
def test_each_step_is_judged_by_itself(runs: Path, first: str, second: str, due: Due) -> None:
    comparison, diagnosis = told(runs, first, second)
    assert comparison.verdict == ("divergent" if due else "parity"), comparison.reason
    assert "followed: judged at 18 of 18 steps" in comparison.unjudged
    assert [(finding.stage, finding.step) for finding in diagnosis.findings] == due
    measures = read_measures(runs / second)
    assert {each.step for each in measures} == {*range(18)}
    assert {"gradients", "update"} < {each.stage for each in measures}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "due"),
    [
        ("keras_large", "keras_large_", []),
        ("torch_large", "torch_large_gradients of an evaluation", [("gradients", LATER)]),
    ],
)
def test_of_a_large_model_a_step_behind_an_evaluation_is_judged(
    runs: Path, first: str, second: str, due: Due
) -> None:
    _, diagnosis = told(runs, first, second)
    assert [(finding.stage, finding.step) for finding in diagnosis.findings] == due
    # No step but this, though torch's model is called without gradients within each.
    assert {each.step for each in read_measures(runs / second)} == {*range(9), LATER, 16}


@pytest.mark.slow
def test_what_fit_validates_at_its_end_is_recorded(runs: Path) -> None:
    summary = read_record(runs / "keras_large").summary
    last = json.loads((runs / "keras_large.json").read_text())
    assert summary is not None and summary.eval_count == BATCH
    assert summary.eval_loss_sum == pytest.approx(last["val_loss"] * BATCH, rel=1e-6)
    assert summary.eval_correct == round(last["val_accuracy"] * BATCH) > 0
    without = read_record(runs / "keras").summary
    assert without is not None and not without.eval_count


@pytest.mark.slow
def test_the_loss_of_a_train_step_without_compute_loss_is_what_its_tape_is_asked_for(runs: Path) -> None:
    own, due = (read_record(runs / name) for name in ("trainer", "keras"))
    assert np.abs(own.loss - due.loss).max() <= 1e-5 * np.abs(due.loss).max()
    assert (own.columns["count"] == BATCH).all()


@pytest.mark.slow
def test_one_bias_that_is_two_of_torch_moves_once(runs: Path) -> None:
    right, _ = told(runs, "recurrent", "recurrent_one bias", "recurrent.yaml")
    _, wrong = told(runs, "recurrent", "recurrent_two biases", "recurrent.yaml")
    assert right.verdict == "parity"
    assert "update: lstm.bias_ih_l0 is 2 times the reference's" in wrong.when.evidence


# Reference, what follows it, and what its one finding is told as.
NAMED = [
    (
        "torch",
        "torch_by hand",
        "weight decay: 0.0005 times the weights is in the candidate's gradients, and not in",
    ),
    (
        "decayed",
        "decayed_penalty",
        "a penalty is in the candidate's loss, and not in the reference's: 0.00025 times the squares of",
    ),
    ("gpt", "gpt_weight decay", "weight decay: the reference takes 0.1 times the weights more off"),
    ("torch", "torch_momentum", "the momentum is 0.1 smaller in the candidate"),
    ("keras", "keras_momentum", "the momentum is 0.1 smaller in the candidate"),
    ("torch", "torch_keras_momentum", "the momentum is 0.1 smaller in the candidate"),
    ("torch", "torch_not zeroed", "the gradients of the step before are in the candidate's, too"),
    ("torch", "torch_rate of a group", "the updates of head.bias, head.weight are 0.2 times the reference's"),
    ("torch", "torch_other classes' weights", "every layer that was recorded has the same output"),
    ("torch", "torch_stopped", "no gradient reaches conv.bias, conv.weight in the candidate: stopped"),
    ("torch", "torch_frozen", "no gradient reaches conv.weight in the candidate: stopped"),
    (
        "keras_drops",
        "torch_rate drops",
        "the learning rate has changed, and the momentum with it on one side alone",
    ),
    (
        "norm",
        "norm_momentum of averages",
        "running averages (norm.running_mean, norm.running_var) move 0.1 times as far",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "text"), NAMED)
def test_what_a_step_differs_by_is_named_where_it_is_one_number(
    runs: Path, first: str, second: str, text: str
) -> None:
    finding, *_ = told(runs, first, second)[1].findings
    assert finding.explanation is not None and finding.explanation.text.startswith(text)


def test_a_norm_that_is_one_number_wherever_gradients_differ_is_a_clip() -> None:
    def steps(norms: list[float], clip: float, turned: float = 0.0) -> list[Measure]:
        """Of a reference that clips and a candidate that does not; turned: in another direction, too."""
        found = []
        for step, norm in enumerate(norms):
            ours = min(norm, clip)
            residual = turned * (norm - ours)
            found.append(
                Measure(
                    step, "gradients", "w", ours, math.hypot(norm - ours, residual), norm / ours, residual
                )
            )
        return found

    plain, turned = steps([0.3, 2, 3, 4], 1), steps([0.3, 2, 3, 4], 1, 0.5)
    assert clips_alone(plain, 1e-6) == (
        "the reference clips its gradients to a norm of 1, at 3 of 4 steps, and the candidate does not"
    )
    assert "does so otherwise (each micro-batch, or each tensor), or not at all" in clips_alone(turned, 1e-6)
    assert not clips_alone(steps([0.3, 2, 3], 1), 1e-6)  # by chance
    assert not clips_alone(
        [*plain, Measure(9, "gradients", "w", 2.0, 0.0)], 1e-6
    )  # a larger norm is let through


def test_a_gradient_through_weights_that_another_optimizer_has_updated_is_off_as_these_are() -> None:
    rounding = Rounding(2**-23, False, 2, 16)
    off = 4 * rounding.smooth

    def status(share: float, factor: float = 1.0) -> str:
        rows = [Measure(0, "gradients", "d", 1.0, 0.0), Measure(0, "gradients", "g", 1.0, off, factor, off)]
        through = {0: {"g": 1 + share / rounding.eps}}
        return followed_stage._normwise("gradients", {0: rows}, [0], rounding, through=through).status

    assert status(0.0) == "undecided" and status(4 * rounding.eps) == "agrees"
    # By weights that are far off nothing is hidden but what they can make.
    rows = [
        Measure(0, "gradients", "g", 1.0, 0.1, 1.1, 1e-9),
        Measure(0, "gradients", "h", 1.0, 0.1, 1.1, 1e-9),
    ]
    through = {0: dict.fromkeys("gh", 1 + 1e-5 / rounding.eps)}
    assert (
        followed_stage._normwise("gradients", {0: rows}, [0], rounding, through=through).status == "differs"
    )


def test_gradients_of_one_of_two_models_that_are_a_number_times_the_others_differ() -> None:
    rounding = Rounding(2**-23, False, 2, 16)

    def status(*factors: float) -> str:
        rows = [
            Measure(0, "gradients", name, 1.0, abs(k - 1), k) for name, k in zip("abcd", factors, strict=True)
        ]
        return followed_stage._normwise("gradients", {0: rows}, [0], rounding).status

    assert status(1, 1, 1.0005, 1.0005) == "differs"
    assert status(1, 1, 1.0005, 1.0003) == status(1, 1, 1, 1.0005) == "undecided"


def test_an_average_of_weights_may_be_off_as_an_update_is() -> None:
    rounding = Rounding(2**-52, True, 2, 16)
    rows = {0: [Measure(0, "buffers", "ema", 1.0, 1e-9, 1.0, 1e-9)]}

    def status(off: float) -> str:
        updates = {0: [Measure(0, "update", "w", 1.0, off), Measure(0, "slots/x", "w", 1.0, 1.0)]}
        besides = followed_stage._farthest(updates)
        return followed_stage._normwise("buffers", rows, [0], rounding, besides=besides).status

    assert (status(2e-9), status(1e-10)) == ("agrees", "differs")


def test_only_a_multiple_is_told_as_times() -> None:
    row = Measure(0, "gradients", "w", 1.0, 1.0, 0.003, 0.05)
    assert followed_stage._words(row) == "w is off by 1 of its norm"
    assert followed_stage._words(replace(row, residual=1e-9)) == "w is 0.003 times the reference's"


def test_what_some_tensors_differ_by_is_told_where_it_is_one_number() -> None:
    def rows(stage: str, ulps: float = 0.0, **factors: float) -> list[Measure]:
        return [
            Measure(3, stage, name, 2.0, 2 * abs(k - 1), k, ulps=ulps * (k != 1))
            for name, k in factors.items()
        ]

    def update(**factors: float) -> str:
        return of_update(rows("update", 1e4, **factors), [0.1, 0.1], "torch")

    assert update(a=1, b=0.1, c=0.1).startswith("the updates of b, c are 0.1 times the reference's")
    assert update(a=1, b=0).startswith("the candidate's step leaves b as they are")
    assert update(a=2, b=2).startswith("every update is 2 times")
    assert not update(a=1, b=0.1, c=0.2) and not update(a=1)
    several = [*rows("update", 1e4, a=1, b=0.7), *rows("update", 1e4, a=1, b=1.4)]
    assert "0.7 to 1.4 times the reference's, by the step: no other learning rate" in of_update(
        several[:2], [0.1, 0.1], "torch", several
    )
    moved = [*rows("update", 1e4, a=1, b=0.7), Measure(3, MOVED, "b", 1.0, 0.0, -0.02)]
    assert of_update(moved, [0.1, 0.1], "torch").startswith("the momentum is 0.2 larger")
    assert of_update(moved, [0.2, 0.1], "torch").startswith("the learning rate has changed")
    # Of several optimizers the record has one's rate.
    assert "another momentum, or a learning rate that changes" in of_update(moved, [math.nan] * 2, "torch")
    told = of_gradients(rows("gradients", a=1, b=3), 1e-6)
    assert told.startswith("the gradients of b are 3 times the reference's")
    assert not of_gradients(rows("gradients", a=3, b=3), 1e-6)  # told as a factor of all
    assert not of_gradients(rows("gradients", a=1, b=3, c=2), 1e-6)
    came = [*rows("gradients", a=1), Measure(3, "gradients", "b", 0.0, 1.0, only="candidate")]
    assert of_gradients(came, 1e-6).startswith(
        "a gradient reaches b in the candidate, and none in the reference"
    )
    turned = [*rows("gradients", a=1), Measure(3, "gradients", "b", 2.0, 1.0, 0.5, residual=0.5)]
    assert not of_gradients(turned, 1e-6)
    carried = [Measure(3, CARRIED, name, 1.0, 0.0) for name in "bc"]
    assert "not zeroed" in of_gradients(turned + carried, 1e-6)
    assert "not zeroed" not in of_gradients([*turned, *rows("gradients", d=2), *carried], 1e-6)


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ([0.5, 0.5, 1, 1], "a, b are 0.5 times the reference's, and those of the other 2 tensors agree"),
        ([0.0, 0.0, 1, 1], "no gradient reaches a, b"),
        ([0.5, 2.0, 1, 1], "a term of the loss that reaches these alone"),
        # Where all differ, or those that agree hardly do so more than the others, nothing is told.
        ([0.5, 2.0, 3, 1], ""),
        ([0.5, 2.0, 1.01, 1], ""),
    ],
)
def test_a_loss_of_some_tensors_is_told_by_their_gradients(factors: list[float], told: str) -> None:
    here = [
        Measure(0, "gradients", name, 1.0, abs(factor - 1), factor, 0.0)
        for name, factor in zip("abcd", factors, strict=True)
    ]
    # Zero but for rounding, as a bias before a norm: it agrees with anything.
    here.append(Measure(0, "gradients", "zero", 1e-9, 1e-9, 2.0, 0.0))
    assert told in (said := of_some_tensors(here, 1e-2)) and bool(said) == bool(told)


def test_clips_of_each_tensor_are_told_from_those_of_all() -> None:
    def update(norms: list[float], factors: list[float], residual: float = 0.0) -> str:
        rows = [
            Measure(0, "slots/first_moment", f"{place}", norm, norm * abs(k - 1), k, residual)
            for place, (norm, k) in enumerate(zip(norms, factors, strict=True))
        ]
        return of_update(rows, [math.nan, 0.1], "torch")

    each, of_all = [0.5, 0.5, 0.5, 0.2], [0.8, 0.48, 0.36]
    rest = math.sqrt(1 - sum(k**2 for k in of_all)) / 0.4
    assert "reference clips the gradient of each" in update(each, [*of_all, rest])
    assert "their common norm, of the same limit" in update(each, [*of_all, rest])
    assert update(each, [0.9, 0.5, 0.4, 1]).endswith("the candidate does not")
    assert "candidate clips the gradient of each" in update([0.6, 0.7, 0.8, 0.1], [5 / 6, 5 / 7, 5 / 8, 1])
    assert not update(each, [1, 1, 1, 0.5]) and not update(each, [*of_all, rest], residual=0.01)
    assert not update([0.5, 0.5, 0.4, 0.2], [*of_all, 1])


def test_gradients_of_the_step_before_are_told_from_others() -> None:
    random = np.random.default_rng(8)
    right, before, other = ({n: random.standard_normal((4, 4)) for n in "ab"} for _ in range(3))
    made = {"a": right["a"] + before["a"], "b": right["b"] + other["b"]}
    assert carried_gradients(right, made, before, 2**-52) == ["a"]
    assert not carried_gradients(right, right, before, 2**-52)
    assert not carried_gradients(right, made, {}, 2**-52)


def test_weights_in_gradients_are_told_from_what_else_differs() -> None:
    random = np.random.default_rng(5)
    weights = {name: random.standard_normal((4, 4)) for name in "abcd"}
    right = {name: random.standard_normal((4, 4)) for name in "abcd"}
    other = random.standard_normal((4, 4))

    def found(turned: str, decayed: str = "abcd") -> dict[str, float]:
        made = {n: g + 0.01 * weights[n] * (n in decayed) + other * (n in turned) for n, g in right.items()}
        return {name: round(times, 6) for name, times in added_weights(right, made, weights, 2**-52).items()}

    assert found("") == dict.fromkeys("abcd", 0.01)
    assert found("", "ab") == dict.fromkeys("ab", 0.01)
    # What one of several differs in besides is left, and a single one shows nothing.
    assert found("d") == dict.fromkeys("abcd", 0.01)
    assert found("bcd") == {} == found("abcd") == found("", "")


def test_a_penalty_on_one_network_is_not_taken_for_one_on_another() -> None:
    """Whose gradients are off by what a rounded constant makes of them."""
    random = np.random.default_rng(3)
    weights, right = ({n: random.standard_normal((8, 8)) for n in "abcd"} for _ in range(2))
    made = {n: g + (2e-5 * weights[n] if n in "ab" else 1e-10 * g) for n, g in right.items()}
    assert added_weights(right, made, weights, 2**-52).keys() == {*"ab"}


@pytest.mark.parametrize(("times", "status"), [(1.0, "differs"), (1.5, "agrees"), (-1.0, "agrees")])
def test_a_penalty_that_losses_and_gradients_show_is_no_rounding(
    tmp_path: Path, times: float, status: str
) -> None:
    """Though the loss is off by less than what another optimizer's update may make of it."""
    norms, penalty = [7.0, 7.1, 7.2, 7.3], 2e-9
    reference = written(tmp_path / "first", "tensorflow", [2.0] * 4, [0.1] * 4)
    losses = [2.0 + times * penalty / 2 * norm**2 for norm in norms]
    candidate = written(tmp_path / "second", "torch", losses, [0.1] * 4)
    rows = [Measure(step, ADDED, "w", norm, 0.0, penalty) for step, norm in enumerate(norms)]
    rows += [Measure(step, THROUGH, name, 1e-8, 0.0) for step in range(4) for name in "wv"]
    rows += [Measure(step, "gradients", name, 1.0, 0.0) for step in range(4) for name in "wv"]
    rows += [Measure(step, "update", "w", 1.0, 1.0, ulps=1e15) for step in range(2)]
    text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    (candidate.folder / "followed.jsonl").write_text(text)
    loss, _, update, _ = followed_stages(reference, candidate)
    assert loss.status == status
    assert update.status == ("inherits" if status == "differs" else "differs")


def test_small_weight_decay_in_gradients_is_told_below_what_rounding_might_make() -> None:
    """As 1.2e-6 of a language model: what rounding leaves goes along no weights of two tensors."""
    random = np.random.default_rng(11)
    weights, right = ({n: random.standard_normal((16, 16), np.float32) for n in "abc"} for _ in range(2))

    def found(factors: dict[str, float]) -> dict[str, float]:
        made = {
            n: (g + np.float32(factors.get(n, 0)) * weights[n]).astype(np.float32) for n, g in right.items()
        }
        for array in made.values():
            array *= 1 + 2.0**-23 * random.integers(-1, 2, array.shape).astype(np.float32)
        return added_weights(right, made, weights, 2.0**-23)

    assert found(dict.fromkeys("abc", 5e-6)) == dict.fromkeys("abc", pytest.approx(5e-6, rel=0.05))
    assert found({}) == {} == found({"a": 5e-6})


def test_an_average_of_weights_before_their_update_is_told() -> None:
    random = np.random.default_rng(6)
    before = {name: random.standard_normal(12) for name in ("teacher", "student", "other")}
    after = {name: array + 0.1 * random.standard_normal(12) for name, array in before.items()}
    by_old, by_new = (0.9 * before["teacher"] + 0.1 * of["student"] for of in (before, after))

    def told(due: np.ndarray, made: np.ndarray, **own: np.ndarray) -> str:
        states = after | {"teacher": due}, after | own | {"teacher": made}
        found = averaged_weights("teacher", before, *states, ["other", "student"], 2**-52)
        return found[0] if found else ""

    assert told(by_new, by_old) == "old" and told(by_old, by_new) == "new"
    assert told(by_new, 0.8 * before["teacher"] + 0.2 * after["student"]) == "otherwise"
    assert told(by_new, by_new) == "right" == told(by_old, by_old)
    assert told(before["teacher"] + random.standard_normal(12), by_new) == ""
    # Weights that an update has made otherwise are in it, too.
    student = after["student"] + 0.01
    assert told(by_new, 0.9 * before["teacher"] + 0.1 * student, student=student) == "right"


def test_the_share_of_an_average_is_as_exact_as_its_type() -> None:
    """1 - 0.9999 is 1.00016e-4 in float32: an average that begins at zero is as far off, and little beside its weights."""
    random = np.random.default_rng(7)
    before = {"teacher": np.zeros(12), "student": random.standard_normal(12)}
    after = {"teacher": 1e-4 * before["student"], "student": before["student"]}
    trained, eps = ["student"], 2**-23
    for share, due in ((float(1 - np.float32(0.9999)), "right"), (1.1e-4, "otherwise")):
        made = after | {"teacher": share * before["student"]}
        how, size = averaged_weights("teacher", before, after, made, trained, eps) or ("", 0.0)
        assert how == due and size == pytest.approx(np.linalg.norm(before["student"]))
        row = Measure(0, "buffers", "teacher", 1e-4 * size, abs(share - 1e-4) * size, share / 1e-4, 0.0)
        told = [Measure(0, followed.OF_WEIGHTS[how], "teacher", size, 0.0)]
        stage = followed_stage._normwise(
            "buffers",
            {0: [row]},
            [0],
            Rounding(eps, False, 4, 64),
            followed_stage._averages_told_apart(told),
            sizes=followed_stage._sizes_of_averages(told),
        )
        assert stage.status == ("agrees" if due == "right" else "differs"), stage


def test_a_loss_that_is_divided_by_another_number_at_each_step_is_told() -> None:
    def steps(*factors: float, residual: float = 0.0) -> list[Measure]:
        return [
            Measure(step, "gradients", name, 1.0, abs(factor - 1), factor, residual)
            for step, factor in enumerate(factors)
            for name in "ab"
        ]

    losses = {0: 0.5, 1: 0.6, 2: 0.7}
    assert "0.5 to 0.7, by the batch" in scaled(steps(0.5, 0.6, 0.7), losses)
    assert not scaled(steps(0.5, 0.6, 0.7, residual=0.1), losses)
    assert not scaled(steps(0.5, 0.5, 0.5), dict.fromkeys(losses, 0.5))  # a constant is told as that
    assert not scaled(steps(1.0, 1.0, 1.0), losses)
    assert not scaled(steps(-0.5, 0.6, 0.7), losses | {0: -0.5})  # nothing is divided by a negative number


def test_a_gradient_that_is_always_the_same_multiple_is_divergent() -> None:
    """Of one number, at each turn of its optimizer, by less than flipped units may make; not of factors that come and go."""

    def judged(*factors: float) -> str:
        rows = {
            3 * turn: [Measure(3 * turn, "gradients", "log_alpha", 1.0, abs(factor - 1), factor)]
            for turn, factor in enumerate(factors)
        }
        return followed_stage._normwise(
            "gradients", rows, range(3 * len(factors)), Rounding(2.0**-23, False, 4, 64)
        ).status

    assert judged(*[1.0005] * 6) == "differs" and judged(1.0005, 1.0, 0.9995, 1.0, 1.0, 1.0) != "differs"


def test_averages_that_move_alike_explain_a_loss_that_is_made_with_them() -> None:
    def moved(*factors: float) -> list[Measure]:
        averages = [Measure(5, AVERAGED["momentum"], f"t{n}", 1.0, 0.0, f) for n, f in enumerate(factors)]
        return [*averages, *(Measure(5, "buffers", f"t{n}", 1.0, 0.5) for n in range(4))]

    assert (
        moved_alike(moved(199.0, 199.0, 199.001))
        and not moved_alike(moved(199.0))
        and not moved_alike(moved(2.0, 3.0))
    )
    # One that hardly moves shows no number; of few that do nothing is said.
    assert "199 times as far" in of_averages(moved(199.0, 199.0, 199.0), 5, 1e-6)
    assert not of_averages(moved(199.0, 199.0), 5, 1e-6)


def test_what_moves_an_average_otherwise_is_told_apart() -> None:
    random = np.random.default_rng(3)
    before, batch = 1 + random.random((2, 16))
    due = (0.9 * before + 0.1 * batch).astype(np.float32)

    def fits(kept: float, taken: float) -> tuple[str, float] | None:
        return averaged(
            before.astype(np.float32), due, (kept * before + taken * batch).astype(np.float32), 2**-23
        )

    assert fits(0.9, 0.1) is None
    assert fits(0.99, 0.01) == ("momentum", pytest.approx(0.1, rel=1e-3))
    assert fits(1.0, 0.0) == ("momentum", pytest.approx(0.0, abs=1e-3))
    assert fits(0.9, 0.1 * 16 / 15) == ("variance", pytest.approx(16 / 15, rel=1e-3))
    assert fits(0.9, 0.1 * 1.3) is None


@pytest.mark.slow
def test_what_is_little_more_than_rounding_at_most_steps_is_divergent(runs: Path) -> None:
    """An epsilon of 1e-3 for 1e-5, which moves the loss by 3e-5: here more, there less than rounding explains."""
    _, diagnosis = told(runs, "gpt", "gpt_epsilon")
    (finding,) = diagnosis.findings
    assert finding.stage == "loss" and finding.explanation is not None
    # The gradients are off from the first step on.
    assert "begins after it" not in finding.explanation.text


@pytest.mark.slow
@pytest.mark.parametrize(("more", "verdict"), [(1, "parity"), (5, "divergent"), (None, "parity")])
def test_samples_that_are_counted_otherwise_are_seen(
    runs: Path, tmp_path: Path, more: int | None, verdict: str
) -> None:
    """Of equal losses: by another threshold. One may be next to it; None: the script counts none."""
    copied(runs / "norm_", tmp_path / "norm_")
    path = tmp_path / "norm_" / "summary.json"
    summary = read_record(runs / "norm").summary
    assert summary is not None and summary.eval_correct
    correct = 0 if more is None else summary.eval_correct + more
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eval_correct": correct}))
    pair = [read_record(runs / "norm"), read_record(tmp_path / "norm_")]
    found = diagnose_recorded(*pair)
    assert (judge(pair).comparisons[0].verdict, found.verdict) == (verdict, verdict)
    words = f"{summary.eval_correct} and {correct} correct, of one loss"
    assert (words in str(found.when)) is (verdict == "divergent")


@pytest.mark.slow
def test_a_record_that_has_fewer_steps_is_divergent(runs: Path, tmp_path: Path) -> None:
    copied(runs / "torch_", tmp_path / "torch_")
    steps = tmp_path / "torch_" / "steps.f64"
    rows = np.fromfile(steps, "<f8").reshape(STEPS, -1)
    rows[: STEPS - 2].tofile(steps)
    path = tmp_path / "torch_" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"steps": STEPS - 2}))
    pair = [read_record(runs / "torch"), read_record(tmp_path / "torch_")]
    found = diagnose_recorded(*pair)
    assert f"{STEPS - 2} that both have were compared" in " ".join(found.notes)
    assert [(finding.stage, finding.step) for finding in found.findings] == [("steps", STEPS - 2)]
    assert judge(pair).verdict == found.verdict == "divergent"
    # Other steps are no shorter training.
    rows[: STEPS - 2, read_header(tmp_path / "torch_").columns.index("step")] += 1
    rows[: STEPS - 2].tofile(steps)
    with pytest.raises(NotComparableError, match="unequal step sets"):
        judge([pair[0], read_record(tmp_path / "torch_")])


@pytest.mark.slow
def test_a_faithful_counterpart_is_not_the_same_bits(runs: Path) -> None:
    for name in ("torch_", "gpt_", "keras_torch_", "torch_keras_"):
        gradients = [each for each in read_measures(runs / name) if each.stage == "gradients"]
        assert max(each.difference for each in gradients) > 0


@pytest.mark.slow
def test_what_follows_from_another_stage_is_marked(runs: Path) -> None:
    stages = {
        stage.name: stage
        for stage in followed_stages(read_record(runs / "torch"), read_record(runs / "torch_loss scale"))
    }
    assert stages["loss"].status == "differs" and "4 times the reference's" in stages["loss"].text
    assert stages["gradients"].status == "inherits" and stages["update"].status == "agrees"


# Several ranks.


@pytest.fixture(scope="session")
def ranks(runs: Path) -> Path:
    command = [
        sys.executable,
        "-W",
        "error::UserWarning",
        "-m",
        "parity_tests.recorded.followed_ranks",
        str(runs),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_ENVIRONMENT, timeout=500)
    assert ended.returncode == 0, ended.stderr
    # Rank 0 says it.
    assert ended.stderr.count("ddp_ follows") == 2  # and in gpt_ddp_
    return runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "due"),
    [
        *(
            ("gpt", f"{kind}_{fault}", due)
            for kind, faults in RANK_FAULTS.items()
            for fault, due in faults.items()
        ),
        ("ddp", "gpt_ddp_", []),
        ("ddp", "gpt_ddp_weight decay", [("update", 0)]),
    ],
)
def test_ranks_follow_one_process_and_one_process_ranks(
    ranks: Path, first: str, second: str, due: Due
) -> None:
    comparison, diagnosis = told(ranks, first, second)
    assert comparison.verdict == ("divergent" if due else "parity"), comparison.reason
    assert [(finding.stage, finding.step) for finding in diagnosis.findings] == due
    assert {each.step for each in read_measures(ranks / second)} == {*range(18)}
    why = [finding.explanation.text for finding in diagnosis.findings if finding.explanation is not None]
    words = {
        "ddp_added up": "2 times the reference's (the candidate's world size, as of gradients that are added up over ranks",
        "ddp_not reduced": "the gradients were not reduced over the ranks",
    }
    for name, said in words.items():
        assert any(said in text for text in why) == (second == name), why
    # Of sharded parameters there is no state, and none that is empty either.
    assert (ranks / second / "final.safetensors").exists() != second.startswith("fsdp_")
    # Updates by equal gradients keep replicas equal, whatever the script does.
    info = read_record(ranks / second).run_info
    assert isinstance(info, ScriptInfo) and "replicas equal" not in info.invariants


@pytest.mark.parametrize(
    ("levels", "large", "due"),
    [
        ([1] * 16, 12, [2] * 16),  # most are off by more than flips make
        ([1] * 16, 8, [1] * 16),  # half of them
        ([1, 1, 0], 2, [1, 1, 0]),  # too few steps to tell
        ([2] + [1] * 5 + [0] * 10, 0, [2] * 6 + [0] * 10),  # beside one that differs
        ([2, 1] + [0] * 14, 0, [2, 1] + [0] * 14),  # a single flip
        ([0] * 16, 0, [0] * 16),
    ],
)
def test_what_most_steps_show_is_no_flip(levels: list[int], large: int, due: list[int]) -> None:
    rounding = Rounding(2.0**-23, False, 4, 64)
    steps = np.arange(len(levels)) < large
    assert followed_stage._settled(np.array(levels), steps, rounding).tolist() == due
    proof = Rounding(2.0**-52, True, 4, 64)
    assert followed_stage._settled(np.array(levels), steps, proof).tolist() == levels


@pytest.mark.parametrize(
    ("factors", "residual", "status"),
    [
        ((1.0005, 1.0005), 0.0, "differs"),  # clipped by another norm
        ((1.0005, 0.9995), 0.0, "undecided"),
        ((1.0005, 1.0005), 5e-4, "undecided"),  # turned, as a unit that flips does
    ],
)
def test_gradients_that_are_one_multiple_are_no_flip(
    factors: tuple[float, float], residual: float, status: str
) -> None:
    by_step = {
        step: [
            Measure(
                step, "gradients", str(place), 1.0, float(np.hypot(factor - 1, residual)), factor, residual
            )
            for place, factor in enumerate(factors)
        ]
        for step in range(2)
    }
    stage = followed_stage._normwise("gradients", by_step, range(2), Rounding(2.0**-23, False, 4, 64))
    assert stage.status == status, stage


@pytest.mark.parametrize(
    ("moved", "status"),
    [({"a": 0.0, "b": 0.0}, "differs"), ({"a": 0.0, "b": 0.5}, "undecided"), ({"a": 0.0}, "undecided")],
)
def test_averages_that_move_alike_are_no_flip(moved: dict[str, float], status: str) -> None:
    """Of one number everything is a multiple."""
    rounding = Rounding(2.0**-23, False, 4, 64)
    # Below what rounding may make of products, an average that moves otherwise shows at several steps alone.
    for off, steps, factors, due in (
        (5e-4, 1, moved, status),
        (5e-4, 1, {}, "undecided"),
        (1e-6, 1, moved, "agrees"),
        (1e-6, 3, moved, "differs" if status == "differs" else "agrees"),
    ):
        told = [
            Measure(step, AVERAGED["momentum"], name, 1.0, 0.0, times)
            for step in range(steps)
            for name, times in factors.items()
        ]
        rows = {n: [Measure(n, "buffers", name, 1.0, off, 1.0, off) for name in "ab"] for n in range(steps)}
        apart = followed_stage._averages_told_apart(told)
        stage = followed_stage._normwise("buffers", rows, [0, 1, 2], rounding, apart)
        assert stage.status == due, stage


@pytest.mark.parametrize(
    ("tensors", "status"),
    [
        ({"large": (1e6, 1e-3), "small": (10.0, 1e-6)}, "agrees"),
        ({"large": (1e6, 1e-3), "small": (10.0, 3.0)}, "differs"),  # which is little beside the large one
        ({"large": (1e6, 1e-3), "zero": (0.1, 0.1)}, "agrees"),
        ({"n.running_mean": (1e-6, 1e-6), "n.running_var": (1.0, 1e-7)}, "agrees"),
        ({"n.running_mean": (1e-6, 1e-3), "n.running_var": (1.0, 1e-7)}, "differs"),
        ({"n.running_mean": (1e2, 1e-6), "n.running_var": (1.0, 1e-2)}, "agrees"),  # of squares
        ({"n.running_mean": (1e-1, 1e-8), "n.running_var": (1.0, 1e-2)}, "differs"),
        ({"first/moving_variance": (1e4, 1e-3), "second/moving_variance": (1.0, 1e-2)}, "differs"),
    ],
)
def test_a_buffer_is_judged_by_what_it_is_made_of(
    tensors: dict[str, tuple[float, float]], status: str
) -> None:
    rows = [Measure(0, "buffers", name, norm, off, 1.0, off) for name, (norm, off) in tensors.items()]
    by_step = {step: [replace(row, step=step) for row in rows] for step in range(4)}
    stage = followed_stage._normwise("buffers", by_step, range(4), Rounding(2.0**-23, False, 4, 64))
    assert stage.status == status, stage


@pytest.mark.parametrize(
    ("factors", "residual", "status"),
    [
        ([1.00003] * 8, 1e-7, "differs"),  # a variance over n - 1 values
        ([1.00003] * 8, 3e-5, "undecided"),
        ([1.00003] * 8, 0.0, "undecided"),  # of one element
        ([1.00003, 0.99997] * 4, 1e-7, "undecided"),
        ([1.00003] * 4 + [1.0] * 4, 1e-7, "undecided"),
    ],
)
def test_what_is_one_number_at_most_steps_is_no_flip(
    factors: list[float], residual: float, status: str
) -> None:
    by_step = {
        step: [
            Measure(
                step, "buffers", "variance", 1.0, float(np.hypot(factor - 1, residual)), factor, residual
            ),
            Measure(step, "buffers", "mean", 1.0, 0.0),
        ]
        for step, factor in enumerate(factors)
    }
    stage = followed_stage._normwise("buffers", by_step, range(8), Rounding(2.0**-23, False, 4, 64))
    assert stage.status == status, stage


@pytest.mark.slow
def test_a_rule_that_is_broken_where_they_part_is_the_cause(runs: Path) -> None:
    _, diagnosis = told(runs, "norm", "norm_still in inference")
    why = diagnosis.findings[0].explanation
    assert why is not None and why.text.startswith("trained in one mode was broken at this step")


def test_running_averages_that_one_script_alone_moves_tell_a_mode() -> None:
    def moved(tensor: str, only: str) -> Measure:
        return Measure(0, ALONE, tensor, 1.0, 0.0, only=only)

    rows = [moved(f"norm.{name}", "candidate") for name in RUNNING[:2]]
    said = of_modes(rows)
    assert "norm.running_mean, norm.running_var" in said and "move in the candidate alone" in said
    # Where both have one that the other has not, or none, it is no mode.
    assert not of_modes([*rows, moved("other.running_mean", "reference")]) and not of_modes([])


def test_decay_that_the_momentum_alone_takes_in_is_coupled() -> None:
    rows = [
        Measure(0, "update", "a", 1.0, 1e-9, ulps=1.0),
        Measure(0, "slots/momentum_velocity", "a", 1.0, 0.2, ulps=1e6),
        Measure(0, DECAYED, "a", 1.0, 0.0, 1e-10),
        Measure(0, COUPLED, "a", 1.0, 0.0, 0.005),
    ]
    said = of_update(rows, [0.1, 0.1], "tensorflow")
    assert said.startswith("weight decay: one script has it in its gradients") and "decoupled" in said
    # A number that is rounding is no decay, where no weight is off.
    assert not of_update(rows[:3], [0.1, 0.1], "tensorflow")
    # Where the weights are off, too, it is another decay.
    off = [replace(rows[0], difference=0.1, ulps=1e6), *rows[1:2], replace(rows[2], factor=0.005), rows[3]]
    assert "another weight_decay" in of_update(off, [0.1, 0.1], "tensorflow")


def test_of_several_ranks_the_worst_counts() -> None:
    def row(tensor: str, difference: float, step: int = 3) -> Measure:
        return Measure(step, "update", tensor, 1.0, difference)

    far, near, equal = row("a", 0.5), row("a", 0.1), row("b", 0.0)
    assert worst_of([[near, equal], [far, equal]]) == worst_of([[far, equal], [near, equal]]) == [far, equal]
    assert worst_of([[near], []]) == [near]


# Without following.


@pytest.mark.slow
def test_equal_bits_are_parity_in_float32(runs: Path) -> None:
    comparison, _ = told(runs, "torch", "torch_again")
    assert comparison.verdict == "parity" and "bit for bit" in comparison.reason


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["loss scale", "learning rate", "not zeroed"])
def test_a_first_step_beyond_rounding_is_divergent(runs: Path, fault: str) -> None:
    comparison, diagnosis = told(runs, "torch", f"free_{fault}")
    assert comparison.verdict == "divergent"
    names = {"loss scale": "loss curve at step 0", "learning rate": "learning rate at step 0"}
    assert comparison.reason.startswith(names.get(fault, ""))
    assert diagnosis.findings[0].step == (1 if fault == "not zeroed" else 0)


@pytest.mark.slow
def test_what_rounding_may_have_made_is_inconclusive(runs: Path, tmp_path: Path) -> None:
    copy = copied(runs / "torch", tmp_path / "copy")
    record = read_record(copy)
    column = list(record.columns).index("loss_sum")
    rows = np.fromfile(copy / "steps.f64", "<f8").reshape(-1, len(record.columns))
    for step, factor, verdict in (
        (0, 1 + 1e-7, "inconclusive"),
        (17, 1.5, "inconclusive"),
        (0, 1.5, "divergent"),
    ):
        changed = rows.copy()
        changed[step, column] *= factor
        changed.tofile(copy / "steps.f64")
        again = read_record(copy)
        assert judge([read_record(runs / "torch"), again]).verdict == verdict
        assert diagnose_recorded(read_record(runs / "torch"), again).verdict == verdict


@pytest.mark.slow
def test_evaluations_that_differ_are_one_verdict(runs: Path, tmp_path: Path) -> None:
    pair = [copied(runs / "torch", tmp_path / name) for name in ("a", "b")]
    for folder, correct in zip(pair, (8, 9), strict=True):
        path = folder / "summary.json"
        summary = json.loads(path.read_text())
        path.write_text(json.dumps({**summary, "eval_loss_sum": 3.5, "eval_count": 10.0 + correct}))
    records = [read_record(folder) for folder in pair]
    assert judge(records).verdict == diagnose_recorded(*records).verdict == "divergent"
    assert diagnose_recorded(*records).findings[0].stage == "evaluation"


def copied(source: Path, target: Path) -> Path:
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (target / path.name).write_bytes(path.read_bytes())
    return target


# What is refused.


@pytest.mark.slow
def test_another_record_than_the_followed_one_is_not_compared(runs: Path) -> None:
    reference, again, candidate = (read_record(runs / n) for n in ("torch", "torch_again", "torch_"))
    with pytest.raises(NotComparableError, match="followed another record than"):
        judge([again, candidate])
    with pytest.raises(NotComparableError, match="give the followed one as the reference"):
        judge([candidate, reference])
    with pytest.raises(NotComparableError, match="followed another record than"):
        diagnose_recorded(again, candidate)


class Nothing:
    """A recorder's view of a model without tensors."""

    def tensors_now(self) -> dict:
        return {}

    def first_names(self) -> dict:
        return {}

    def slots_now(self) -> dict:
        return {}

    def put(self, tensors: dict) -> None: ...

    def put_slots(self, slots: dict) -> None: ...

    def slot_factors(self, slot: str) -> dict:
        return {}


def test_once_the_states_take_too_much_a_few_steps_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "EVERY_STEP_BYTES", 0)
    keeper = StateKeeper(tmp_path, Nothing())
    kept = []
    for step in range(70):
        keeper.begin(step)
        kept += [step] if keeper.wants(step) else []
    assert kept == [*range(9), 16, 32, 64] and followed.spans(kept) == "0 to 8, 16, 32, 64"
    # Behind each is the state that it left.
    states = sorted(int(path.stem) for path in (tmp_path / followed.STATES).iterdir())
    assert states == [*range(10), 16, 17, 32, 33, 64, 65]


def test_of_a_tiny_model_no_more_steps_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "EVERY_STEP_COUNT", 12)
    keeper = StateKeeper(tmp_path, Nothing())
    kept = []
    for step in range(40):
        keeper.begin(step)
        kept += [step] if keeper.wants(step) else []
    assert kept == [*range(12), 16, 32] and not keeper.saw_any
    keeper.saw(32, {"w": np.ones(2)})
    assert keeper.saw_any


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "framework", "states", "why", "words"),
    [
        ("torch_again", "torch", False, None, "has no states; record that script with states=True"),
        ("torch", "tensorflow", False, None, "is of torch; give mapping="),
        ("torch", "torch", True, None, "go not together"),
        ("torch", "torch", False, "needs one rank", "follow: needs one rank"),
        ("nothing", "torch", False, None, "not a run record"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    runs: Path, tmp_path: Path, reference: str, framework: str, states: bool, why: str | None, words: str
) -> None:
    with pytest.raises(RecordError, match=words) as raised:
        open_states(tmp_path, states, runs / reference, framework, None, Nothing(), lambda: why)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_mapping_that_does_not_fit_is_refused_at_once(runs: Path, tmp_path: Path) -> None:
    mapping = read_mapping(runs / "mapping.yaml")
    lacks = mapping.model_copy(update={"tensors": mapping.tensors[1:]})
    with pytest.raises(
        ExternalModelError, match=r"^follow: .*does not name the torch tensor 'conv"
    ) as raised:
        open_states(tmp_path, False, runs / "torch", "tensorflow", lacks, Nothing(), lambda: None)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_of_a_script_that_did_not_finish_nothing_is_called_parity(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "torch_", tmp_path / "ended")
    assert api.diagnose(runs / "torch", tmp_path / "ended", quiet=True).verdict == "parity"
    (tmp_path / "ended" / "summary.json").unlink()
    with pytest.raises(NotComparableError, match="up to there nothing differs"):
        api.diagnose(runs / "torch", tmp_path / "ended", quiet=True)


@pytest.mark.slow
def test_a_run_does_not_follow_itself(runs: Path) -> None:
    """With overwrite=True it would remove what it follows."""
    with pytest.raises(RecordError, match="is where this run is recorded itself"):
        open_states(runs / "torch", False, runs / "torch", "torch", None, Nothing(), lambda: None)


@pytest.mark.slow
def test_a_model_with_other_tensors_is_refused(runs: Path, tmp_path: Path) -> None:
    follower = open_states(tmp_path, False, runs / "torch", "torch", None, Nothing(), lambda: None)
    assert follower is not None
    with pytest.raises(RecordError, match="this model has it not"):
        follower.begin(0)


# float64, where Keras takes constants through float32.


def written(
    folder: Path,
    framework: str,
    losses: list[float],
    rates: list[float],
    momentum: float = 0.9,
    precision: str = "float64",
) -> RunRecord:
    info = ScriptInfo.parse({"kind": "script", "framework": framework, "precision": precision})
    rows = [
        [step, 4 * loss, 4, rate, 1, 1, 1, 1, 0.1]
        for step, (loss, rate) in enumerate(zip(losses, rates, strict=True))
    ]
    folder.mkdir()
    facts = {"versions": {}, "devices": ["cpu"], "threads": {}}
    placement = Placement(framework="torch", strategy="single")
    (folder / "header.json").write_text(json.dumps(header_of(info, placement, facts).to_dict()))
    np.array(rows, "<f8").tofile(folder / "steps.f64")
    (folder / "outline.json").write_text(json.dumps({"optimizer": {"settings": {"momentum": momentum}}}))
    write_summary(folder, len(rows), 1.0, (np.nan, 0.0, 0))
    return read_record(folder)


def test_layers_without_tensors_are_compared_where_their_order_tells(tmp_path: Path) -> None:
    """torch's functions are not recorded, so that one layer of its may be any of Keras's."""

    def outlined(framework: str, *rates: float) -> Path:
        layers = [
            {"path": f"drop{n}", "kind": "dropout", "type": "keras.A", "settings": {"rate": rate}}
            for n, rate in enumerate(rates)
        ]
        folder = tmp_path / f"{framework}{len(rates)}"
        folder.mkdir()
        outline = {
            "framework": framework,
            "target": "m",
            "type": "m",
            "versions": {},
            "layers": layers,
            "tensors": [],
        }
        (folder / "outline.json").write_text(json.dumps(outline))
        return folder

    keras, torch = outlined("tensorflow", 0.1, 0.2), outlined("torch", 0.1, 0.3)
    mapping = Mapping()
    told, _ = setting_differences(keras, torch, mapping)
    assert told == ["drop1: rate is 0.2 and 0.3"]
    assert setting_differences(keras, outlined("torch", 0.3), mapping)[0] == []


def test_what_a_recorder_did_not_see_is_what_it_is_to_be_given(tmp_path: Path) -> None:
    reference = written(tmp_path / "first", "torch", [1.0], [0.1], precision="float32")
    candidate = written(tmp_path / "second", "torch", [1.0], [0.1], precision="float32")
    header = candidate.header.model_copy(
        update={"spec": candidate.run_info.model_copy(update={"follows": "x"})}
    )
    candidate = replace(candidate, header=header)
    (step,) = _more_proof(reference, candidate, False)
    assert "before_update()" in step.why
    (candidate.folder / "followed.jsonl").write_text(
        json.dumps({"step": 0, "stage": "gradients", "tensor": "w", "reference": 1.0, "difference": 0.0})
        + "\n"
    )
    (step,) = _more_proof(reference, candidate, False)
    assert "float64" in step.why


def test_a_step_without_a_rate_in_either_is_of_another_optimizer(tmp_path: Path) -> None:
    turns = [0.1, math.nan, 0.1]
    first, again = (written(tmp_path / name, "torch", [1.0, 0.5, 0.25], turns) for name in ("first", "again"))
    assert judge([first, again]).comparisons[0].verdict == diagnose_recorded(first, again).verdict == "parity"
    other = written(tmp_path / "other", "torch", [1.0, 0.5, 0.25], [0.1, math.nan, 0.2])
    assert judge([first, other]).comparisons[0].reason.startswith("learning rate at step 2")


@pytest.mark.parametrize(
    ("framework", "function", "model", "apart", "verdict"),
    [
        ("tensorflow", "rescale", "keras.Sequential", 1e-9, "inconclusive"),
        ("tensorflow", "rescale", "keras.Sequential", 1e-5, "divergent"),
        ("tensorflow", "exact rescale", "keras.Sequential", 1e-9, "divergent"),
        ("tensorflow", "leaky_relu", "keras.Sequential", 1e-9, "inconclusive"),
        ("tensorflow", "exact leaky_relu", "keras.Sequential", 1e-9, "divergent"),
        ("tensorflow", "gelu", "keras.Sequential", 1e-9, "inconclusive"),
        ("tensorflow", "gelu", "keras.Sequential", 1e-5, "divergent"),
        ("tensorflow", "relu", "keras.Sequential", 1e-9, "divergent"),
        # What code of one's own calls nobody knows: of the model, or of a layer around others.
        ("tensorflow", "relu", "model.Gpt", 1e-9, "inconclusive"),
        ("tensorflow", "within", "keras.Sequential", 1e-9, "inconclusive"),
        ("torch", "gelu", "keras.Sequential", 1e-9, "divergent"),
    ],
)
def test_a_constant_that_a_function_takes_through_float32_decides_nothing(
    tmp_path: Path, framework: str, function: str, model: str, apart: float, verdict: str
) -> None:
    first = written(tmp_path / "first", "torch", [1.0, 0.5], [0.125, 0.125], 0.5)
    second = written(tmp_path / "second", framework, [1.0 + apart, 0.5], [0.125, 0.125], 0.5)
    slope, rounded = (0.25, "") if "exact" in function else (0.3, "scale")
    function = function.removeprefix("exact ")
    settings: dict[str, Any] = {"function": function, "negative_slope": slope}
    layer = {"path": "act", "kind": "activation", "type": "a", "settings": settings}
    if function == "rescale":
        layer = {"path": "r", "kind": "rescale", "type": "a", "settings": {"rounded": rounded}}
    tensors = [{"name": "block/act/w", "layer": "block/act"}] if function == "within" else []
    outline = {"type": model, "layers": [layer], "tensors": tensors}
    (second.folder / "outline.json").write_text(json.dumps(outline))
    comparison, diagnosis = judge([first, second]).comparisons[0], diagnose_recorded(first, second)
    assert comparison.verdict == diagnosis.verdict == verdict, comparison.reason
    assert ("GELU" in comparison.reason) == (verdict == "inconclusive")


def test_what_rounded_constants_make_of_a_followed_step_is_less_than_float32_makes(tmp_path: Path) -> None:
    def judged(name: str, apart: float) -> tuple[Comparison, Diagnosis]:
        first = written(tmp_path / f"{name}_", "tensorflow", [1.0] * 4, [0.125] * 4, 0.5)
        layer = {
            "path": "a",
            "kind": "activation",
            "settings": {"function": "leaky_relu", "negative_slope": 0.3},
        }
        (first.folder / "outline.json").write_text(json.dumps({"type": "keras.Model", "layers": [layer] * 4}))
        # What is off by little at first, and by more at each step after it.
        losses = [1 + 1e-9, *[1.0 + apart] * 3]
        second = written(tmp_path / name, "torch", losses, [0.125] * 4, 0.5)
        info = second.run_info.model_copy(update={"follows": followed.identity_of(first.folder)})
        second = replace(second, header=second.header.model_copy(update={"spec": info}))
        rows = [Measure(s, stage, "w", 1.0, 0.0) for s in range(4) for stage in ("gradients", "update")]
        text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
        (second.folder / "followed.jsonl").write_text(text)
        return judge([first, second]).comparisons[0], diagnose_recorded(first, second)

    comparison, diagnosis = judged("little", 1e-8)
    assert comparison.verdict == diagnosis.verdict == "parity"
    assert "LeakyReLU" in comparison.reason and "1.3e-06, relative" in comparison.reason
    # Of float32 this would be parity.
    comparison, diagnosis = judged("more", 1e-5)
    assert comparison.verdict == diagnosis.verdict == "divergent"
    within = Rounding(2.0**-52, True, 1, 1).in_float32
    assert replace(within, constants=1.0).smooth == within.smooth


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_an_equal_loss_of_another_number_of_correct_samples_is_counted_otherwise(
    tmp_path: Path, precision: str
) -> None:
    first, second, other = (
        written(tmp_path / name, "torch", [1.0], [0.1], precision=precision) for name in ("a", "b", "c")
    )
    for record, loss, correct in ((first, 10.0, 8), (second, 10.0, 12), (other, 11.0, 12)):
        write_summary(record.folder, 1, 1.0, (loss, 20.0, correct))
    first, second, other = (read_record(record.folder) for record in (first, second, other))
    stage = followed_evaluation(first, second, [], [0])
    assert stage.status == "differs" and "8 and 12 correct, of one loss" in stage.text
    assert "of one loss" not in followed_evaluation(first, other, [], [0]).text
    if precision == "float64":
        (finding,) = diagnose_recorded(first, second).findings
        assert (
            finding.explanation is not None and "counted as correct: by another" in finding.explanation.text
        )


def test_scripts_without_an_optimizer_are_not_told_to_follow(tmp_path: Path) -> None:
    first = written(tmp_path / "first", "torch", [1.0], [0.1], precision="float32")
    second = written(tmp_path / "second", "torch", [1.0], [math.nan], precision="float32")
    assert "follow=" in _more_proof(first, first, True)[0].why
    steps = [step.why for step in _more_proof(first, second, True)]
    assert "float64" in steps[0] and "order=1" in steps[1] and not any("follow=" in each for each in steps)


def test_a_noise_floor_of_another_script_is_refused(tmp_path: Path) -> None:
    base = written(tmp_path / "base", "torch", [1.0, 0.5], [0.1, 0.1], precision="float32")
    _check_beginning(
        base, written(tmp_path / "same", "torch", [1.0001, 0.4], [0.1, 0.1], precision="float32")
    )
    other = written(tmp_path / "other", "torch", [1.1, 0.5], [0.1, 0.1], precision="float32")
    with pytest.raises(
        NotComparableError, match=r"loss sum at the first step is off by 0.09.* of that script"
    ):
        _check_beginning(base, other)


def test_what_cancels_at_the_end_of_a_schedule_of_keras_is_rounding(tmp_path: Path) -> None:
    losses, torch = [2.0, 1.0, 0.5], [0.1, 0.05, 1e-6]
    reference = written(tmp_path / "torch", "torch", losses, torch, precision="float32")
    zero = written(tmp_path / "zero", "torch", losses, [0.1, 0.05, 0.0], precision="float32")
    for number, (first, side, last, differs) in enumerate(
        [
            (reference, "tensorflow", 1.02e-6, False),
            (reference, "tensorflow", 2e-6, True),
            (reference, "torch", 1.02e-6, True),
            (zero, "tensorflow", 1e-8, False),
            (zero, "tensorflow", 1e-3, True),
        ]
    ):
        other = written(tmp_path / f"{number}", side, losses, [*torch[:2], last], precision="float32")
        comparison = judge([first, other]).comparisons[0]
        assert (comparison.verdict == "divergent") == differs, comparison.reason
        assert comparison.reason.startswith("learning rate at step 2") == differs
        assert (diagnose_recorded(first, other).verdict == "divergent") == differs


@pytest.mark.parametrize(
    ("penalty", "missing", "verdict"),
    [
        (1e-3, 0.0, "parity"),
        (1e-3, 1e-10, "divergent"),
        (0.25, 0.0, "divergent"),  # it is no number that float32 rounds
    ],
)
def test_a_regularizer_that_keras_takes_through_float32_is_no_divergence(
    tmp_path: Path, penalty: float, missing: float, verdict: str
) -> None:
    reference, candidate = (
        written(tmp_path / side, side, [2.0] * 4, [0.1] * 4) for side in ("tensorflow", "torch")
    )
    layers = [{"path": "a", "settings": {"kernel_regularizer": f"l2 {penalty}"}}]
    (reference.folder / "outline.json").write_text(json.dumps({"layers": layers}))
    times = -2 * (float(np.float32(1e-3)) - 1e-3) + missing
    norms = [7.0, 7.1, 7.2, 7.3]
    rows = [
        Measure(step, ADDED, "w", norm, 0.0, times)
        if step < 3
        # What no update could show is left in the gradient.
        else Measure(step, "gradients", "w", 1.0, abs(times) * norm, residual=abs(times) * norm)
        for step, norm in enumerate([*norms[:3], 7.2003])
    ]
    losses = [2.0 + times / 2 * norm**2 for norm in [*norms[:3], 7.2003]]
    found, more = followed_stage._without_rounded_penalties(reference, candidate, rows)
    stage = followed_stage._loss(
        reference,
        replace(candidate, columns={**candidate.columns, "loss_sum": 4 * np.array(losses)}),
        range(4),
        Rounding(2.0**-52, True, 4, 64),
        more,
    )
    assert (stage.status == "agrees") == (verdict == "parity"), (stage, more)
    assert (found[-1].difference < 1e-12) == (verdict == "parity")


def test_a_rounded_constant_is_named_and_hides_nothing(tmp_path: Path) -> None:
    def write(name: str, framework: str, momentum: float, losses: list[float], rate: float) -> RunRecord:
        return written(tmp_path / name, framework, losses, [rate] * len(losses), momentum)

    losses = [2.0, 1.0, 0.5]
    torch = write("torch", "torch", 0.9, losses, 0.1)
    rate = float(np.float32(0.1))
    cases = [
        ("keras", 0.9, [2.0, 1 + 1e-9, 0.5 + 1e-8], rate, "inconclusive", "momentum 0.9"),
        ("keras", 0.9, [2.0, 1 + 1e-9, 0.501], rate, "inconclusive", "the learning rate"),
        ("keras", 0.9, [2.0, 1.9, 0.5], rate, "divergent", "loss curve at step 1"),
        ("keras", 0.9, [2.0 + 1e-9, 1.0, 0.5], rate, "divergent", "loss curve at step 0"),
        ("keras", 0.875, [2.0, 1 + 1e-9, 0.5], 0.1, "divergent", "loss curve at step 1"),
        ("torch", 0.9, [2.0, 1 + 1e-9, 0.5], 0.1, "divergent", "loss curve at step 1"),
        ("torch", 0.9, losses, rate, "divergent", "learning rate at step 0"),
    ]
    for number, (side, momentum, curve, used, verdict, words) in enumerate(cases):
        framework = "tensorflow" if side == "keras" else "torch"
        other = write(f"{number}", framework, momentum, curve, used)
        comparison = judge([torch, other]).comparisons[0]
        assert (comparison.verdict, words in comparison.reason) == (verdict, True), comparison.reason
        assert diagnose_recorded(torch, other).verdict == verdict


def test_what_rounding_may_have_grown_to_in_float64_is_not_decided(tmp_path: Path) -> None:
    """What two correct scripts are apart by after some hundred steps; a defect is far outside at once, or too early."""
    steps = np.arange(100)
    losses, rates = np.exp(-steps / 50), [0.1] * len(steps)
    reference = written(tmp_path / "reference", "torch", losses.tolist(), rates)
    grown = 1e-16 * 1.2**steps
    cases = {
        "grown": (grown, "inconclusive"),
        "within": (1e-14 * np.ones(100), "parity"),
        "at once": (np.where(steps < 40, grown, 1e-6), "divergent"),
        "early": (np.where(steps < 3, 1e-17, 2e-12), "divergent"),
    }
    for name, (apart, verdict) in cases.items():
        other = written(tmp_path / name, "torch", (losses * (1 + apart)).tolist(), rates)
        comparison = judge([reference, other]).comparisons[0]
        assert comparison.verdict == verdict, (name, comparison.reason)
        assert diagnose_recorded(reference, other).verdict == verdict, name


# The limits.


def test_elementwise_rounding_is_counted_in_units() -> None:
    weight = {"w": np.full(4, 100.0)}
    due = {"w": np.array([1.0, -1.0, 0.5, 0.0])}
    eps = 2.0**-23
    (within,) = measured(0, "update", due, {"w": due["w"] + 300 * eps}, eps, weight)
    assert within.ulps == 0  # a weight of 100 rounds by so much
    (beyond,) = measured(0, "update", due, {"w": due["w"] + 1e4 * eps}, eps, weight)
    assert beyond.ulps > 2048
    (doubled,) = measured(0, "gradients", due, {"w": 2 * due["w"]})
    assert doubled.factor == 2 and doubled.residual == 0 and doubled.difference == pytest.approx(1.5)
    (alone,) = measured(0, "gradients", due, {})
    assert alone == Measure(0, "gradients", "w", 1.5, 1.5, 0.0, 0.0, 0.0, "reference")
    (nan,) = measured(0, "gradients", due, {"w": due["w"] * np.nan})
    assert nan.difference == np.inf


def test_what_agrees_says_what_was_compared(tmp_path: Path) -> None:
    first, second = (written(tmp_path / side, side, [1.0], [0.1]) for side in ("tensorflow", "torch"))
    # The mean is off as the step has left it, and nothing came after.
    (second.folder / "followed.jsonl").write_text(json.dumps(asdict(Measure(0, FINAL, "w", 1.0, 0.0))) + "\n")
    final = followed_stage.followed_final(first, second, [])
    assert (final.status, final.text) == (
        "agrees",
        "1 tensors, no farther apart than they were as the last step ended",
    )
    rounding, rows = Rounding(2.0**-52, True, 4, 64), {0: [Measure(0, "update", "w", 1.0, 1e-7, ulps=2e10)]}
    update = followed_stage._elementwise(rows, [0], rounding, True)
    assert update.status == "agrees" and "within 4.4e-06, relative: as a constant" in update.text


@pytest.mark.slow
def test_limits_follow_precision_and_sizes(runs: Path) -> None:
    small = Rounding.of(read_record(runs / "torch"))
    assert (small.layers, small.terms) == (2, 36)
    assert small.smooth < small.gross < small.gross_gradient < 0.5
    proof = Rounding(2.0**-52, True, 2, 36)
    assert proof.smooth == proof.gross == proof.gross_gradient == 1e-12
    low = Rounding(2.0**-7, False, 50, 4096)
    assert low.smooth == low.gross / 8 and low.gross < 0.5  # what agrees is sharp, or it is undecided


def test_what_an_optimizer_has_gathered_before_is_measured() -> None:
    """A slot that begins as one number is no memory."""
    filled, begun = np.array([0.5, -0.25]), np.full(2, 0.1)
    slots = {"first_moment": {"a": filled, "b": begun, "c": np.zeros(0)}}
    for given, who in (((slots, {}), "reference"), (({}, slots), "candidate")):
        (found,) = followed._memories(0, *given)
        assert (found.stage, found.tensor, found.only) == (MEMORY, "a", who)
        said = of_update([found, Measure(0, "update", "a", 1.0, 0.5, ulps=1e6)], (math.nan, 0.1), "torch")
        assert ("begins without" if who == "reference" else "is used again") in said
    assert followed._memories(0, slots, slots) == []


def test_an_update_by_another_rate_is_told_from_another_update() -> None:
    """Of a small update the weights keep few digits; of a rate of zero there is none."""
    largest = {"a": 1.0}
    small = Measure(3, "update", "a", 1e-3, 5e-4, 0.503, 2e-6, ulps=1e6)
    of_torch = {"keras": False, "units": 2048.0}
    assert followed_stage._scaled([small], 0.5, largest, **of_torch)
    assert not followed_stage._scaled([replace(small, reference=1.0)], 0.5, largest, **of_torch)
    assert not followed_stage._scaled([replace(small, factor=0.6)], 0.5, largest, **of_torch)
    still = Measure(3, "update", "a", 0.0, 0.1, ulps=math.inf)
    assert followed_stage._scaled([still], math.inf, largest, **of_torch)
    assert not followed_stage._scaled([small], math.inf, largest, **of_torch)


def test_a_rate_of_some_tensors_is_told_from_what_is_added() -> None:
    """A schedule gives another number at each step, and none where both rates are zero; decay gives each tensor another one."""

    def rows(step: int, times: float, other: float = 1.0) -> list[Measure]:
        due = 0.0 if step == 0 else 1.0
        factors = {"a": times, "b": times * other, "c": 1.0}
        return [
            Measure(step, "update", name, due, abs(factor - 1) * due, factor, 0.0, 1e6 * (factor != 1))
            for name, factor in factors.items()
        ]

    for second, other, said in (
        (1.5, 1.0, "the updates of a, b are 1.5 times the reference's, and the others agree"),
        (3.0, 1.0, "are 1.5 to 3 times the reference's, by the step, all of them by one number at each"),
        (3.0, 1.2, "no other learning rate, but something that is added"),
    ):
        measures = [*rows(0, 1.0), *rows(1, 1.5), *rows(2, second, other)]
        here = [each for each in measures if each.step == 1]
        assert said in of_update(here, [0.1, 0.1], "torch", measures), said


def test_decay_of_other_tensors_is_told_though_small_weights_do_not_show_it() -> None:
    updates = [Measure(1, "update", name, 1.0, 0.01, 1.0, 0.01, 1e6) for name in "abc"]
    updates.append(Measure(1, "update", "small", 1.0, 0.002, 1.0, 0.002, 1e5))
    decayed = [
        Measure(1, DECAYED, name, 1.0, 0.0, -2e-5 * k) for name, k in zip("abc", (1, 1, 2), strict=True)
    ]
    assert "takes 2e-05 to 4e-05 times the weights more off a, b, c" in of_update(
        [*updates, *decayed], [math.nan, math.nan], "torch"
    )
    updates[-1] = replace(updates[-1], difference=0.2, residual=0.2)
    assert "weight decay" not in of_update([*updates, *decayed], [math.nan, math.nan], "torch")


def test_a_loss_and_gradients_that_are_one_number_times_the_references_are_weighed() -> None:
    measures = [
        Measure(step, "gradients", name, norm, norm, 2.0, 0.0)
        for step in range(4)
        for name, norm in (("a", 1.0), ("b", 0.5))
    ]
    # A bias before a norm has a gradient that is rounding alone.
    measures += [Measure(step, "gradients", "zero", 1e-9, 3e-9, -1.0, 2e-9) for step in range(4)]
    assert "are 2 times the reference's at each of the 4 steps" in weighed(
        measures, dict.fromkeys(range(4), 2.0)
    )
    assert not weighed(measures, dict.fromkeys(range(4), 1.5))
    assert not weighed(measures[:2], {0: 2.0})


def test_a_factor_that_is_printed_as_1_is_none() -> None:
    rows = [Measure(step, "gradients", "a", 1.0, 5e-9, 1 + 5e-9, 0.0) for step in range(4)]
    assert not weighed(rows, dict.fromkeys(range(4), 1 + 5e-9))
    assert told_factor(rows[:1]) is None
    assert not of_gradients([*rows[:1], Measure(0, "gradients", "b", 1.0, 0.0)], 1e-12)
