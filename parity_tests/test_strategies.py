"""Every way to train against one replica of PyTorch: the curve is the spec's alone."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from parity.common.parity.budget import Budget, ensemble_budget, proof_budget
from parity.common.parity.compare import Comparison, compare
from parity.common.record import RunRecord
from parity.common.spec import Placement, TrainSpec
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import config, torch
from parity_tests.helpers.run_cache import RunCache
from parity_tests.tables.strategies import (
    CUT,
    MICRO_BATCHES,
    RECIPES,
    ROWS,
    Row,
    StrategyTable,
    missing,
    spec_of,
)

REFERENCE = torch("single", 1)

# At the most replicas, of which one gets no sample of an epoch's last batch; the others at two, at the most where the page is written.
AT_MOST_IN_CI = ("tensorflow:mirrored", "torch:ddp", "torch:fsdp2")
CUT_IN_CI = ("tensorflow:mirrored", "torch:fsdp2")
# Our sharding under another's backward pass; on the recipe that trains fastest.
ENGINE_IN_CI = ("torch:fsdp2,engine=fabric", "dropout")

# A test may have to wait for the runs of all tests before it.
pytestmark = pytest.mark.timeout(7200)


def skip_without_its_package(row: Row) -> None:
    if not row.installed:
        pytest.skip(f"{row.package} is not installed")


def cases() -> list:
    """In CI each strategy as it usually is, on one recipe; the rest where the page is written."""
    params = []
    for row, recipe in itertools.product(ROWS, RECIPES):
        for replicas in row.replicas if row.trains(recipe) else ():
            plain = recipe == "digits_transformer" and not row.options
            few = replicas == (row.replicas[-1] if row.key in AT_MOST_IN_CI else min(2, row.replicas[-1]))
            chosen = few and (plain or (row.key, recipe) == ENGINE_IN_CI)
            marks = pytest.mark.slow if chosen else pytest.mark.exhaustive
            params.append(
                pytest.param(row, replicas, recipe, marks=marks, id=f"{row.key}-x{replicas}-{recipe}")
            )
    return params


def cut_cases() -> list:
    """Strategies and engines by 2 and by 3 on both recipes; other options once."""
    params = []
    for row, recipe, count in itertools.product(ROWS, CUT, MICRO_BATCHES):
        rare = "engine" not in row.options and row.options and (recipe, count) != ("digits_transformer", 3)
        if not row.accumulates or not row.trains(recipe) or rare:
            continue
        chosen = recipe == "digits_transformer" and count == 3 and row.key in CUT_IN_CI
        marks = pytest.mark.slow if chosen else pytest.mark.exhaustive
        params.append(pytest.param(row, recipe, count, marks=marks, id=f"{row.key}-{recipe}-by{count}"))
    return params


def budget_of(run_cache: RunCache, spec: TrainSpec, reference: RunRecord) -> Budget:
    if spec.precision == "float64":
        return proof_budget(reference)
    members = [REFERENCE.model_copy(update={"sample_order_seed": seed}) for seed in range(4)]
    return ensemble_budget(reference, [run_cache.record(spec, member) for member in members])


def proved(
    run_cache: RunCache, spec: TrainSpec, placement: Placement
) -> tuple[RunRecord, RunRecord, Comparison]:
    reference = run_cache.record(spec, REFERENCE)
    candidate = run_cache.record(spec, config(placement, digests=True))
    if placement.label == REFERENCE.label:
        # The reference itself, made a second time.
        candidate = run_cache.record(spec, config(placement, stop_at_step=spec.steps, digests=True))
    comparison = compare(reference, candidate, budget_of(run_cache, spec, reference))
    assert comparison.verdict == "parity", f"{candidate.label}: {comparison.reason}"
    assert len(candidate.steps) == 50
    if spec.precision == "float64":
        assert comparison.loss_deviation.max() <= 1e-12
    replicas_equal = [check for check in comparison.checks if check.name == "replicas equal"]
    assert len(replicas_equal) == (placement.replicas > 1), "replicas were not compared"
    assert [len(digests) for digests in candidate.fingerprints] == [50] * placement.replicas
    return reference, candidate, comparison


@pytest.fixture(scope="session")
def both_at_work(request: pytest.FixtureRequest, run_cache: RunCache) -> None:
    """Begin the runs of every selected case, so that neither framework waits for the other."""
    for item in request.session.items:
        given = getattr(item, "callspec", None)
        if given is None or "row" not in given.params or not given.params["row"].installed:
            continue
        if item.function is test_a_strategy_does_not_change_the_curve:
            placement = given.params["row"].placement(given.params["replicas"])
        elif item.function is test_micro_batches_do_not_change_the_curve:
            row = given.params["row"]
            placement = row.placement(row.replicas[-1], f"accumulation={given.params['count']}")
        else:
            continue
        spec = spec_of(given.params["row"], given.params["recipe"])
        # The reference first: every test waits for it.
        run_cache.begin(spec, REFERENCE)
        run_cache.begin(spec, placement)


@pytest.mark.usefixtures("both_at_work")
@pytest.mark.parametrize(("row", "replicas", "recipe"), cases())
def test_a_strategy_does_not_change_the_curve(
    run_cache: RunCache, strategies: StrategyTable, row: Row, replicas: int, recipe: str
) -> None:
    skip_without_its_package(row)
    reference, candidate, comparison = proved(run_cache, spec_of(row, recipe), row.placement(replicas))
    strategies.saw(row, recipe, comparison)
    if recipe == "digits_transformer":
        strategies.holds(row, candidate, reference)


@pytest.mark.usefixtures("both_at_work")
@pytest.mark.parametrize(("row", "recipe", "count"), cut_cases())
def test_micro_batches_do_not_change_the_curve(
    run_cache: RunCache, strategies: StrategyTable, row: Row, recipe: str, count: int
) -> None:
    """17 samples of a replica by 3 are 6, 6 and 5; 4 by 3 are 2, 1 and 1."""
    skip_without_its_package(row)
    placement = row.placement(row.replicas[-1], f"accumulation={count}")
    *_, comparison = proved(run_cache, spec_of(row, recipe), placement)
    strategies.saw(row, "micro-batches", comparison)


def test_every_strategy_engine_and_option_has_its_row() -> None:
    # A user's own file, and GPUs, are tried elsewhere.
    elsewhere = {
        "tensorflow:multi_worker:communication",
        "torch:deepspeed:config",
        "torch:fsdp1:checkpoint",
        "torch:tensor_parallel:ranks",
    }
    assert set(missing()) <= elsewhere


def test_rows_are_told_apart() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
    labels = [row.placement(row.replicas[-1]).label for row in ROWS]
    assert len(set(labels)) == len(labels)


def groups() -> list:
    """Rows that can be compared with each other: those of one spec."""
    params = []
    for overrides in dict.fromkeys(row.overrides for row in ROWS):
        rows = [row for row in ROWS if row.overrides == overrides and row.key != "torch:single"]
        if rows:
            params.append(pytest.param(overrides, rows, id=f"all {' '.join(overrides)}".strip()))
    return params


@pytest.mark.exhaustive
@pytest.mark.parametrize(("overrides", "rows"), groups())
def test_every_row_starts_from_the_command_line(
    tmp_path: Path, overrides: tuple[str, ...], rows: list[Row]
) -> None:
    out = tmp_path / "session"
    command = ["run", "--recipe=digits_transformer", "--set=steps=3", "--digests", "--timing-rounds=0"]
    command += [f"--set={override}" for override in ("global_batch_size=34", *overrides)]
    command += [f"--out={out}", "--placement=torch:single:1"]
    rows = [row for row in rows if row.installed]
    if not rows:
        pytest.skip("none of their packages is installed")
    for row in rows:
        replicas = next((count for count in row.replicas if count > 1), 1)
        command.append(f"--placement={row.text(replicas)}")
    done = subprocess.run(
        [sys.executable, "-m", "parity", *command],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((out / "runs").iterdir())) == len(rows) + 1
    assert done.stderr.count("effective batch") == len(rows) + 1
