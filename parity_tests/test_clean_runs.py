"""No false alarm: of 200 pairs of runs in which nothing is wrong, none is diagnosed; a billionth is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from parity.common import recipes
from parity.common.base.terminal import Terminal
from parity.common.diagnosis.replays import diagnose
from parity.common.diagnosis.result import Diagnosis
from parity.common.execution import session
from parity.common.execution.worker import Workers
from parity.common.parity.result import judge, trained
from parity.common.spec import Placement, RunConfig, TrainSpec, override
from parity.common.state.canonical import parameter_specs
from parity_tests import clean_float32
from parity_tests.clean_runs import COUNT, CleanRun, clean_run
from parity_tests.helpers.run_cache import RunCache
from parity_tests.tables import float32
from parity_tests.tables.clean import CleanTable, nearest

# A few seconds each: both frameworks, several replicas, micro-batches, a mixed precision.
SAMPLE = (5, 39)
# Where the training itself takes rounding beyond 1e-12: what one bit of the parameters changes goes as far.
AMPLIFYING = {162}
# Two of TensorFlow's replicas, in float64.
CONTROL = 39
FAULT = "a_gradient_off_by_a_billionth"

pytestmark = pytest.mark.timeout(3600)


class Diagnoser:
    """Diagnoses of clean pairs on request, each made once; those with TensorFlow beside the others."""

    def __init__(self, run_cache: RunCache, folder: Path, stack: ExitStack) -> None:
        self._run_cache, self._folder = run_cache, folder
        self._made: dict[tuple[int, str | None], Future[Diagnosis]] = {}
        self._replayer = run_cache.replayer()
        self._lanes = {name: ThreadPoolExecutor(1, name) for name in ("tensorflow", "torch")}
        for lane in self._lanes.values():
            stack.callback(lane.shutdown, cancel_futures=True)

    def begin(self, number: int, fault: str | None = None) -> Future[Diagnosis]:
        """Have a pair trained and diagnosed, without waiting for it."""
        if (number, fault) not in self._made:
            run = clean_run(number)
            lane = self._lanes["tensorflow" if "tensorflow" in run.frameworks else "torch"]
            self._made[number, fault] = lane.submit(self._diagnosed, run, fault)
        return self._made[number, fault]

    def _diagnosed(self, run: CleanRun, fault: str | None) -> Diagnosis:
        reference = self._run_cache.record(run.spec, run.reference)
        candidate = self._run_cache.record(run.spec, run.candidate, fault)
        inside = None if fault is None else f"parity_tests.faults.{run.candidate.framework}:{fault}"
        folder = self._folder / f"{run.number}_{fault}"
        return diagnose(reference, candidate, self._replayer, folder, contexts=(None, inside))


@pytest.fixture(scope="module")
def diagnoser(
    request: pytest.FixtureRequest, run_cache: RunCache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Diagnoser]:
    """With every selected pair begun, so that neither lane waits for the other."""
    with ExitStack() as stack:
        made = Diagnoser(run_cache, tmp_path_factory.mktemp("clean_runs"), stack)
        for item in request.session.items:
            if item.module is request.module and hasattr(item, "callspec"):
                made.begin(item.callspec.params["number"])
        yield made


def numbers() -> list:
    """Of all pairs, marked by how soon they are due."""
    slow, rest = pytest.mark.slow, pytest.mark.exhaustive
    return [pytest.param(number, marks=slow if number in SAMPLE else rest) for number in range(COUNT)]


@pytest.mark.parametrize("number", numbers())
def test_nothing_is_found_where_nothing_is_wrong(
    diagnoser: Diagnoser, clean: CleanTable, number: int
) -> None:
    run, diagnosis = clean_run(number), diagnoser.begin(number).result()
    clean.add(run, diagnosis)
    what = [(finding.step, finding.name, finding.deviation) for finding in diagnosis.findings]
    expected = "inconclusive" if number in AMPLIFYING else "parity"
    assert diagnosis.verdict == expected, f"{run.id}: {diagnosis.when}, {what}"
    assert not what
    amplified = any("amplifies rounding" in note for note in diagnosis.notes)
    assert amplified == (number in AMPLIFYING)
    assert diagnosis.steps, "it looked into no step"
    assert nearest(diagnosis) <= 1


# Beyond the fixed limits after 12 steps, and at hundreds, where an update may be lost in the weights (1000).
LONG = ((162, 12), (1000, 400), (1005, 400), (1019, 400))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("number", "steps"), LONG)
def test_run_measures_what_a_training_makes_of_rounding(
    run_cache: RunCache, tmp_path: Path, number: int, steps: int
) -> None:
    run = clean_run(number)
    spec = override(run.spec, [f"steps={steps}"])
    configs = [RunConfig(placement=placement) for placement in (run.reference, run.candidate)]
    stages = session.stages_of(spec, configs, tmp_path, 0)
    found = trained(stages, spec, configs, tmp_path, Terminal(quiet=True), True, run_cache.replayer())
    beyond = judge(found.records).verdict == "divergent"
    assert found.verdict == "parity" and beyond >= (number in AMPLIFYING)
    assert ("float64 noise floor" in found.comparisons[0].budget_source) == beyond


@pytest.mark.slow
def test_a_billionth_in_one_tensor_is_found(diagnoser: Diagnoser) -> None:
    diagnosis = diagnoser.begin(CONTROL, FAULT).result()
    assert diagnosis.verdict == "divergent"
    (finding,) = diagnosis.findings
    last = list(parameters(clean_run(CONTROL).spec))[-1]
    assert (finding.stage, finding.name) == ("gradient", f"gradient/{last}")
    assert 1e-10 < finding.deviation < 1e-8
    assert nearest(diagnosis) > 1


def parameters(spec: TrainSpec) -> Iterator[str]:
    """Names of the trained tensors below `parameters/`, in the order of the layers."""
    return (name.removeprefix("parameters/") for name in parameter_specs(spec) if "parameters/" in name)


def test_the_pairs_are_of_all_kinds() -> None:
    runs = [clean_run(number) for number in range(COUNT)]
    assert len({run.id for run in runs}) == COUNT >= 200
    tiny = {f"{name}_tiny" for name in recipes.RECIPES if recipes.has_tiny(name)}
    # Made small, these two are vit_base.
    digits = {"digits_mlp", "digits_cnn", "digits_transformer"}
    assert {run.spec.name for run in runs} == tiny - {"vit_tiny_tiny", "vit_small_tiny"} | digits
    assert {run.spec.precision for run in runs} == {
        "float64",
        "float32",
        "bfloat16_mixed",
        "float16_mixed",
    }
    candidates = [run.candidate for run in runs]
    assert {placement.replicas for placement in candidates} == {1, 2, 3, 4}
    assert {placement.strategy for placement in candidates} == {
        *("ddp", "fsdp1", "fsdp2", "manual", "zero_redundancy"),
        *("mirrored", "multi_worker"),
    }
    assert sum(placement.accumulates for placement in candidates) > COUNT / 5
    assert len({run.spec.seed for run in runs}) > COUNT / 2


def test_a_pair_is_the_same_when_drawn_again() -> None:
    assert clean_run(17) == clean_run(17)
    assert clean_run(17).spec != clean_run(18).spec


@pytest.mark.slow
def test_of_three_runs_in_float32_a_wrong_one_alone_is_divergent(tmp_path: Path) -> None:
    placements = map(Placement.from_text, ("torch:single:1", "tensorflow:mirrored:2", "torch:ddp:2"))
    single, mirrored, ddp = (RunConfig(placement=placement) for placement in placements)
    runs = [single, mirrored, ddp.having(context="parity_tests.clean_float32:off_2")]
    spec = clean_float32.drawn(seed=1, number=0)
    with Workers(tmp_path / "logs") as workers:
        told = clean_float32.compared(spec, runs, tmp_path / "runs", workers)
    assert [one.verdict for one in told] == ["parity", "divergent", "divergent"]
    assert clean_float32.nearest(told[0]) <= 1 < clean_float32.nearest(told[1])


def test_the_page_of_float32_counts_false_alarms_by_kernels() -> None:
    line = {"seed": 1, "number": 0, "trained": "a net", "versions": {"torch": "2"}, "nearest": 0.5}
    good = line | {"kernels": "all", "verdicts": {"parity": 28}, "not parity": []}
    bad = line | {
        "kernels": "SSE",
        "verdicts": {"parity": 27, "divergent": 1},
        "not parity": ["a and b: why"],
    }
    text = float32.page([good, bad, {"resolved": "a net", "power": 4}])
    assert "**1 false alarms in 56 comparisons**, 0 inconclusive." in text
    assert "| SSE | 1 | 28 | 27 | 0 | 1 |" in text
    assert "- SSE, a net: a and b: why" in text
    assert "| a net | 1e-4 |" in text
