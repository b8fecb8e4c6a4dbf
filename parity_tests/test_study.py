"""parity study: what it asks, trains, goes on with, and says."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common import api, recipes
from parity.common.api import trainings
from parity.common.base.errors import RunError, SpecError
from parity.common.commands.main import parser_of
from parity.common.record.files import write_json
from parity.common.record.header import header_of, write_summary
from parity.common.report.html.study import write_study_html
from parity.common.report.next_steps import after_study
from parity.common.spec import Placement, ScriptInfo, TrainSpec
from parity.common.study import session
from parity.common.study.collect import collect
from parity.common.study.judge import judge_study
from parity.common.study.question import Arm, StudySpec, looks_of, read_question, with_more_seeds
from parity.common.study.session import room_for
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import FACTS, one_line, tiny_spec
from parity_tests.helpers.studies import MadeUpWorkers

TORCH, TENSORFLOW = "torch:ddp:2,stock=mixed_bfloat16", "tf:mirrored:2,stock=mixed_bfloat16"
ASKED = ("--recipe", "digits_mlp", "--set", "precision=float32", "--set", "steps=12")
ARMS = ("--placement", TORCH, "--placement", TENSORFLOW)


class Study(Cli):
    """`parity study` in an empty folder, with made-up trainings."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(folder, capsys)
        self.workers = MadeUpWorkers()

    def study(self, *arguments: object) -> tuple[int, str, str]:
        return self("study", *arguments)

    def result(self, out: str = "out") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / out / "report.json").read_text())
        return found


def question_of(*arms: str, spec: TrainSpec | None = None) -> StudySpec:
    """Of 8 seeds."""
    return StudySpec.parse(
        {
            "spec": spec or tiny_spec("precision=float32"),
            "arms": [Arm.of(text, device="cpu") for text in arms],
            "figures": [{"name": "loss_area", "margin": {"kind": "sd", "value": 1.0}}],
            "stages": [[8]],
        }
    )


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Study:
    monkeypatch.chdir(tmp_path)
    found = Study(tmp_path, capsys)
    monkeypatch.setattr(session, "Workers", lambda *given: found.workers(*given))
    monkeypatch.setattr(session, "require", lambda framework: None)
    # Half a second each; one test looks at them.
    monkeypatch.setattr(trainings, "write_study_html", lambda result, path: path.touch())
    return found


def test_equivalent_different_and_undecided(parity: Study) -> None:
    code, out, _ = parity.study(*ASKED, *ARMS, "--margin", "5%", "--seeds", 10, "--looks", 10, "--out", "out")
    assert code == 0 and "equivalent" in out
    sentence = (
        r"over 10 seeds the final evaluation loss differs by -?[\d.e-]+, 90 % interval -?[\d.e-]+ to -?[\d.e-]+, within the"
        r" margin of 0\.0\d+ \(5%\)"
    )
    assert re.search(sentence, out) and "would take" not in out, out
    found = parity.result()
    assert (found["verdict"], found["exit_code"], found["seeds"]) == ("equivalent", 0, 10)
    assert {each["figure"] for each in found["results"]} == {"final_loss", "score", "loss_area"}
    assert all(
        each["saving"]["factor"] in ("inf",) or each["saving"]["factor"] > 20 for each in found["results"]
    )

    parity.workers = MadeUpWorkers(effect=lambda framework, seed: 0.2 * (framework == "torch"))
    code, out, _ = parity.study(
        *ASKED, *ARMS, "--margin", "5%", "--seeds", 10, "--looks", 10, "--out", "apart"
    )
    assert code == 1 and "beyond the margin" in out and parity.result("apart")["verdict"] == "different"

    parity.workers = MadeUpWorkers(noise=0.2)
    code, out, _ = parity.study(
        *ASKED, *ARMS, "--metric", "final_loss", "--margin", "5%", "--seeds", 8, "--out", "noisy"
    )
    (only,) = parity.result("noisy")["results"]
    assert code == 3 and "undecided" in out and "a verdict would take about" in out
    # (2.9 / 0.05)^2 times the variance of a difference, roughly
    assert 100 < only["seeds_needed"] < 1000


def test_a_real_but_small_difference_is_equivalent_and_said(parity: Study) -> None:
    parity.workers = MadeUpWorkers(effect=lambda framework, seed: 0.02 * (framework == "torch"), noise=0.003)
    code, out, _ = parity.study(*ASKED, *ARMS, "--margin", "10%", "--seeds", 8, "--out", "out")
    assert code == 0 and "that there is a difference is shown (p = " in out
    assert all(each["differs"] for each in parity.result()["results"] if each["figure"] != "score")


def test_a_study_ends_early_where_it_may(parity: Study) -> None:
    code, _, err = parity.study(*ASKED, *ARMS, "--margin", "20%", "--seeds", 20, "--out", "out")
    assert code == 0 and parity.result()["seeds"] == 8
    assert len(parity.workers.trained) == 16 and "after 8 seeds: equivalent" in err
    # A second call has nothing to train.
    assert parity.study("--out", "out")[0] == 0 and len(parity.workers.trained) == 16
    question = read_question(parity.folder / "out")
    assert question.looks == (8, 14, 20)
    # What the interval leaves outside at an early look is less than at the end.
    wide, usual = (
        judge_study(
            question.model_copy(update={"stages": (looks,)}), collect(question, parity.folder / "out")
        )
        .results[0]
        .interval
        for looks in ((8, 14, 20), (8,))
    )
    assert wide[1] - wide[0] > 1.5 * (usual[1] - usual[0])


def test_a_study_without_hope_ends_early(parity: Study) -> None:
    parity.workers = MadeUpWorkers(noise=1.0)
    code, out, _ = parity.study(
        *ASKED, *ARMS, "--metric", "loss_area", "--margin", "1%", "--seeds", 20, "--out", "out"
    )
    assert code == 3 and "ended early" in out and len(parity.workers.trained) == 16


def test_a_study_goes_on_and_grows(parity: Study) -> None:
    parity.workers = MadeUpWorkers(noise=0.1, failing={("tensorflow", 5)})
    flags = (
        *ASKED,
        *ARMS,
        "--metric",
        "final_loss",
        "--margin",
        "5%",
        "--seeds",
        8,
        "--looks",
        8,
        "--out",
        "out",
    )
    code, _, err = parity.study(*flags)
    assert (
        code == 2
        and "seed 5, tensorflow mirrored x2" in err
        and "out of memory" in err
        and "tries them again" in err
    )
    assert len(parity.workers.trained) == 16, "the other seeds were trained"
    parity.workers.failing.clear()
    # A run that was killed has left a part of its record.
    (parity.folder / "out" / "seeds" / "0007").rename(parity.folder / "moved")
    partial = next((parity.folder / "moved").glob("01_*"))
    shutil.copytree(partial, parity.folder / "out" / "seeds" / "0007" / partial.name)
    (parity.folder / "out" / "seeds" / "0007" / partial.name / "summary.json").unlink()
    code, _, _ = parity.study(*flags)
    assert code == 3 and parity.workers.trained[16:] == [("tensorflow", 5), ("torch", 7), ("tensorflow", 7)]
    code, out, _ = parity.study("--out", "out", "--seeds", 14)
    assert code == 3 and parity.result()["seeds"] == 14
    assert "each stage has an error of 5%, all together at most 10%" in out
    assert read_question(parity.folder / "out").stages == ((8,), (10, 12, 14))
    assert "holds a study of another question" in one_line(parity.study(*flags, "--alpha", 0.01)[2])


def test_a_study_that_has_ended_does_not_go_on(parity: Study) -> None:
    assert parity.study(*ASKED, *ARMS, "--margin", "20%", "--seeds", 8, "--out", "out")[0] == 0
    before = parity.listing()
    code, _, err = parity.study("--out", "out", "--seeds", 20)
    assert code == 2 and "has ended after 8 seeds, equivalent" in one_line(err) and parity.listing() == before


def test_failed_runs_may_count_as_the_worst(parity: Study) -> None:
    parity.workers = MadeUpWorkers(failing={("torch", seed) for seed in (1, 6)})
    flags = (*ASKED, *ARMS, "--margin", "0.1", "--seeds", 10, "--looks", 10)
    code, _, err = parity.study(*flags, "--out", "out")
    assert code == 2 and "--failed worst" in err
    assert len(parity.workers.trained) < 20, "an arm that goes on failing ends the study"
    code, out, _ = parity.study(*flags, "--failed", "worst", "--out", "worst")
    assert code == 3 and "seed 1, torch ddp x2 stock=mixed_bfloat16: " in out
    assert "is not finite in 2 runs of the reference and 0 of tensorflow" in out
    assert {each["method"] for each in parity.result("worst")["results"]} == {"ranks"}


def test_losses_that_are_not_finite_are_counted(parity: Study) -> None:
    """More lost seeds in one arm than chance has: a difference by ranks, whatever the others say."""
    parity.workers = MadeUpWorkers(lost={("tensorflow", seed) for seed in range(8)})
    code, out, _ = parity.study(
        *ASKED, *ARMS, "--margin", "0.5", "--seeds", 10, "--looks", 10, "--out", "out"
    )
    found = parity.result()
    assert code == 1 and "not finite" in out
    assert all(each["b"].count("inf") + each["b"].count("-inf") == 8 for each in found["results"])
    parity.workers = MadeUpWorkers(lost={(framework, 3) for framework in ("tensorflow", "torch")})
    code, _, _ = parity.study(*ASKED, *ARMS, "--margin", "0.5", "--seeds", 10, "--looks", 10, "--out", "both")
    by_figure = {each["figure"]: each for each in parity.result("both")["results"]}
    assert code == 0 and by_figure["final_loss"]["p_different"] > 0.1
    # A margin in the reference's own terms is then not known.
    code, _, _ = parity.study(
        *ASKED, *ARMS, "--margin", "1sd", "--seeds", 10, "--looks", 10, "--out", "unknown"
    )
    assert code == 3


def test_several_candidates_are_corrected_for(parity: Study) -> None:
    third = "torch:single:1"
    code, out, _ = parity.study(
        *ASKED, *ARMS, "--placement", third, "--margin", "5%", "--seeds", 10, "--looks", 10, "--out", "out"
    )
    found = parity.result()
    assert code == 0 and len(found["results"]) == 6 and "corrected by Holm's rule" in out
    assert all(each["p_different"] >= each["p_difference"] for each in found["results"])
    assert any(each["p_different"] > each["p_difference"] for each in found["results"])
    assert "torch single x1: over 10 seeds" in out


def test_what_a_seed_shares_is_named(parity: Study) -> None:
    gpt = recipes.get("gpt2:tiny")
    own = "tf:mirrored:2,stock=dropout+shuffling"
    assert question_of(TORCH, TENSORFLOW).shared() == ["initial weights", "sample order"]
    assert question_of(TORCH, "tf:mirrored:2,stock=shuffling").shared() == ["initial weights"]
    shared = question_of(TORCH, TENSORFLOW, spec=gpt).shared()
    assert shared == ["initial weights", "sample order", "dropout masks"]
    assert question_of(TORCH, own, spec=gpt).shared() == ["initial weights"]


def test_the_plan_of_a_pilot(parity: Study) -> None:
    parity.workers = MadeUpWorkers(noise=0.05)
    code, out, _ = parity.study(*ASKED, *ARMS, "--margin", "5%", "--plan", "--out", "out")
    assert code == 0 and len(parity.workers.trained) == 8
    row = next(line for line in out.splitlines() if "final_loss" in line and "as seen" in line)
    eighty, _, ninety, _ = row.split()[-4:]
    assert 4 <= int(eighty) < int(ninety)
    assert not (parity.folder / "out" / "report.json").exists()
    # Its seeds are the first of the study.
    parity.study("--out", "out")
    assert len(parity.workers.trained) == len(set(parity.workers.trained)) >= 16


def test_seeds_side_by_side_and_one_by_one(parity: Study) -> None:
    flags = (*ASKED, *ARMS, "--margin", "5%", "--seeds", 8, "--first-seed", 100)
    parity.study(*flags, "--parallel", 3, "--out", "out")
    parity.study(*flags, "--parallel", 1, "--out", "alone")
    a, b = ([each["a"] for each in parity.result(out)["results"]] for out in ("out", "alone"))
    assert a == b
    assert {seed for _, seed in parity.workers.trained} == set(range(100, 108))
    parity.workers.trained.clear()
    for place in (3, 0):
        assert parity.study(*flags, "--element", place, "--out", "array")[0] == 0
    assert parity.workers.trained == [(f, s) for s in (103, 100) for f in ("torch", "tensorflow")]
    code, out, _ = parity.study("--out", "array", "--report")
    assert code == 3 and "1 of 8 seeds" in out


def test_how_many_runs_fit() -> None:
    many = question_of("torch:ddp:64", "torch:single:1")
    one = question_of("torch:single:1", "tf:single:1")
    assert room_for(many) == 1 <= room_for(one)


def test_arms_as_they_are_typed() -> None:
    arm = Arm.of("torch:fsdp2:4,wrap=blocks,stock=mixed_bfloat16+dropout,context=mine:faulty")
    assert arm.stock == ("mixed_bfloat16", "dropout") and arm.context == "mine:faulty"
    assert arm.label == "torch fsdp2 x4 wrap=blocks stock=mixed_bfloat16+dropout context=faulty"
    assert Arm.parse(arm.to_dict()) == arm
    assert looks_of(20) == (8, 14, 20) and looks_of(8) == (8,) and looks_of(100) == (40, 70, 100)
    assert looks_of(40, 20) == (28, 34, 40)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ((*ASKED, "--placement", TORCH), "two arms or more"),
        ((*ASKED, "--placement", TORCH, "--placement", TORCH), "given twice"),
        ((*ASKED, *ARMS, "--seeds", 3), "the first at least 4"),
        ((*ASKED, *ARMS, "--looks", "8,4"), "growing numbers"),
        ((*ASKED, *ARMS, "--margin", "x"), "expected a number above 0"),
        ((*ASKED, *ARMS, "--margin", "speed=2"), "is not compared"),
        ((*ASKED, *ARMS, "--metric", "speed"), "expected one of"),
        ((*ASKED, *ARMS, "--metric", "steps_to_target"), "need --target-loss"),
        ((*ASKED, *ARMS, "--alpha", "0.7"), "alpha"),
        ((*ASKED, *ARMS, "--pilot", "2"), "--pilot must be at least 4"),
        ((*ASKED, *ARMS, "--pairing", "none"), "--pairing none is for --records"),
        ((*ASKED, "--placement", TORCH, "--placement", "tf:mirrored:2,stock=bf16"), "stock"),
        ((*ASKED, "--set", "stock=[dropout]", *ARMS), "stock modes belong to the arms"),
        ((*ASKED, "--set", "precision=float64", *ARMS), "must be float32"),
        ((*ASKED, "--set", "data.eval_samples=0", *ARMS, "--metric", "score"), "evaluates no classes"),
        (("--out", "nowhere"), "holds no study"),
        ((*ASKED, *ARMS, "--records", "a"), "--records stand instead"),
        (("--records", "a", "--records", "b"), "holds no records"),
    ],
)
def test_what_is_refused(parity: Study, flags: tuple[object, ...], why: str) -> None:
    assert why in parity.refused("study", *flags)
    assert not parity.workers.trained


def write_script(folder: Path, loss: float, seed: int | None, framework: str = "torch") -> None:
    """A recorded script of ten steps."""
    folder.mkdir(parents=True)
    info = ScriptInfo(kind="script", framework=framework, settings={} if seed is None else {"seed": seed})
    write_json(
        folder / "header.json", header_of(info, Placement.from_text("torch:single:1"), FACTS).to_dict()
    )
    rows = [[step, loss * (1 + np.exp(-step)), 1, 0.1, 1, 1, 1, 1, 0.5] for step in range(10)]
    np.array(rows).astype("<f8").tofile(folder / "steps.f64")
    write_summary(folder, 10, 5.0, (loss, 1.0, 0))


def test_records_of_scripts(parity: Study) -> None:
    random = np.random.default_rng(0)
    of_seed, noise = 1 + 0.1 * random.standard_normal(10), 0.005 * random.standard_normal(10)
    for place in range(10):
        write_script(parity.folder / "a" / f"run_{place}", of_seed[place], place)
        other = 9 - place
        write_script(parity.folder / "b" / f"run_{place}", of_seed[other] + noise[other], other, "jax")
    flags = "--records", "a", "--records", "b", "--metric", "final_loss", "--margin", "3%"
    code, out, _ = parity.study(*flags, "--out", "by_seed")
    assert code == 0 and "by the seed that they recorded" in out
    (paired,) = parity.result("by_seed")["results"]
    assert paired["saving"]["factor"] > 50
    answer = api.study(records=["a", "b"], metrics=["final_loss"], margins={"final_loss": "3%"}, out="again")
    assert answer.verdict == "equivalent" and str(answer).splitlines()[0] == out.splitlines()[0]
    assert answer.table("figures")["difference"].tolist() == [paired["estimate"]]
    with pytest.raises(SpecError, match=r"'score' is not compared.*; add --metric score"):
        api.study(records=["a", "b"], metrics=["final_loss"], margins={"score": 0.1}, out="other")
    # In order they are pairs of different seeds, and without pairs their spread is that of the seeds.
    for pairing in ("order", "none"):
        code, _, _ = parity.study(*flags, "--pairing", pairing, "--out", pairing)
        assert code == 3, pairing
        (found,) = parity.result(pairing)["results"]
        assert found["estimate"] == pytest.approx(paired["estimate"])
    shutil.rmtree(parity.folder / "b" / "run_0")
    assert "seed 9 is not in all of" in one_line(parity.study(*flags, "--out", "fewer")[2])
    assert parity.study(*flags, "--pairing", "none", "--out", "unequal")[0] == 3
    write_script(parity.folder / "b" / "run_0", 1.0, None)
    assert "do not each have a seed" in one_line(parity.study(*flags, "--out", "nameless")[2])


def test_the_page(parity: Study) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    parity.study(*ASKED, *ARMS, "--metric", "final_loss", "--metric", "curve", "--seeds", 8, "--out", "out")
    question = read_question(parity.folder / "out")
    result = judge_study(question, collect(question, parity.folder / "out"))
    write_study_html(result, parity.folder / "out" / "report.html")
    text = (parity.folder / "out" / "report.html").read_text()
    for name in ("differences", "seeds-0", "curves-0", "band-0"):
        assert f'data-figure="figure-{name}"' in text and f'id="figure-{name}"' in text
    for word in ("final evaluation loss", "initial weights, sample order", "mixed_bfloat16"):
        assert word in text
    arms = (question.arms[0], question.arms[1].model_copy(update={"context": f"x:{hostile}"}))
    spoiled = question.model_copy(update={"arms": arms})
    write_study_html(replace(result, question=spoiled, notes=(hostile,)), parity.folder / "page.html")
    page = (parity.folder / "page.html").read_text()
    assert hostile not in page and html.escape(hostile) in page
    (step,) = after_study(replace(result, verdict="undecided", ended=True), parity.folder / "out")
    assert step.command.startswith("parity study --out") and "--seeds" in step.command
    parser_of().parse_args(shlex.split(step.command)[1:])
    assert not after_study(replace(result, verdict="equivalent"), parity.folder)


def test_curves_are_a_figure_like_others(parity: Study) -> None:
    flags = (*ASKED, *ARMS, "--metric", "curve", "--seeds", 10, "--looks", 10)
    assert parity.study(*flags, "--margin", "10%", "--out", "out")[0] == 0
    parity.workers = MadeUpWorkers(effect=lambda framework, seed: 0.3 * (framework == "torch"))
    code, out, _ = parity.study(*flags, "--margin", "10%", "--out", "apart")
    assert code == 1 and "training loss at every step differs most" in out
    (band,) = parity.result("apart")["bands"]
    low, lowest = np.array(band["low"]), np.array(band["lowest"])
    assert (lowest <= low + 1e-12).all() and band["seeds"] == 10


def test_steps_to_a_target(parity: Study) -> None:
    flags = (*ASKED, *ARMS, "--metric", "steps_to_target", "--seeds", 8, "--looks", 8, "--margin", "3")
    code, _, _ = parity.study(*flags, "--target-loss", 1.5, "--out", "out")
    (found,) = parity.result()["results"]
    assert code == 0 and all(9 <= steps <= 12 for steps in found["a"])
    code, _, _ = parity.study(*flags, "--target-loss", 0.1, "--out", "never")
    (found,) = parity.result("never")["results"]
    assert set(found["a"]) == {"inf"} and found["method"] == "ranks"


def test_an_unforeseen_error_ends_a_study(parity: Study) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("x")

    parity.workers.train = fails  # type: ignore[method-assign]
    code, _, err = parity.study(*ASKED, *ARMS, "--seeds", 8, "--parallel", 2, "--out", "out")
    assert code == 2 and "ZeroDivisionError" in err


def test_an_interrupted_study_says_how_to_go_on(parity: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    question = question_of("torch:single:1", "tf:single:1")

    def interrupted(self: Any, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    real = session.threading.Thread.join
    calls = iter([interrupted])
    monkeypatch.setattr(
        session.threading.Thread, "join", lambda self, timeout=None: next(calls, real)(self, timeout)
    )
    with pytest.raises(RunError, match="the same command goes on"):
        session.train_seeds(question, parity.folder / "out", 8, session.Terminal(), 1)


def test_more_seeds_than_there_are(parity: Study) -> None:
    question = question_of("torch:single:1", "tf:single:1")
    with pytest.raises(SpecError, match="has 8 already"):
        with_more_seeds(question, 8, 8)
    assert with_more_seeds(question, 20, 0).stages == ((8, 14, 20),)
