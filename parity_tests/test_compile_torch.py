"""torch.compile as a switch: it changes no curve, and where it cannot be had a line says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from parity.common.base.errors import MissingPackageError, RunError
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.spec import RunConfig
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import config, small, torch
from parity_tests.helpers.run_cache import RunCache
from parity_tests.tables.strategies import COMPILER, Row, spec_of

# Compiling takes its time: the other rows only where the page of strategies is written.
COMPILED = [
    pytest.param(Row("torch:single", "compile=true", (1,)), marks=pytest.mark.exhaustive, id="single"),
    pytest.param(Row("torch:ddp", "compile=true", (2,)), marks=pytest.mark.exhaustive, id="ddp"),
]


@pytest.mark.parametrize("row", COMPILED)
def test_a_compiled_pass_does_not_change_the_curve(run_cache: RunCache, row: Row) -> None:
    """With dropout, whose masks are keyed by step and sample, and a batch whose size changes."""
    if not row.installed:
        pytest.skip(f"no C++ compiler ({COMPILER}) on this machine")
    spec = spec_of(row, "dropout")
    reference = run_cache.record(spec, torch("single", 1))
    record = run_cache.record(spec, row.placement(row.replicas[0]))
    comparison = compare(reference, record, proof_budget(reference))
    assert comparison.verdict == "parity", comparison.reason
    assert len(record.steps) == 50 and comparison.loss_deviation.max() <= 1e-12
    # Compiled by something else than what made the reference: not bit for bit the same.
    assert record.placement.compile and comparison.loss_deviation.max() > 0


@pytest.mark.exhaustive
def test_what_the_compiler_makes_is_what_trains(run_cache: RunCache) -> None:
    spec = small("digits_mlp", "steps=6")
    reference = run_cache.record(spec, torch("single", 1))
    verdicts = {
        compiled: compare(
            reference,
            run_cache.record(
                spec, config(torch("single", 1, compile=compiled), digests=True), "compiled_pass_changed"
            ),
            proof_budget(reference),
        ).verdict
        for compiled in (False, True)
    }
    assert verdicts == {False: "parity", True: "divergent"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "torch:tensor_parallel:1",
            "strategy tensor_parallel was not seen to keep parity compiled; take single",
        ),
        ("torch:fsdp1:2", "strategy fsdp1 was not seen to keep parity compiled"),
        ("torch:ddp:2,checkpoint=true", "checkpoint=true computes blocks again"),
        ("torch:ddp:2,taps=true", "cannot be tapped: a compiled graph fuses layers"),
        ("torch:ddp:2,engine=fabric", "engine fabric hooks into the model's passes; take engine own"),
    ],
)
def test_what_cannot_be_compiled_says_so(run_cache: RunCache, text: str, line: str) -> None:
    run = RunConfig.from_text(f"{text},compile=true")
    if not Row(text.rpartition(":")[0], text.partition(",")[2].replace("taps=true", "")).installed:
        pytest.skip("the engine's package is not installed")
    with pytest.raises(RunError, match=line) as error:
        run_cache.record(small("digits_transformer", "steps=2"), run)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_missing_compiler_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_impl", "--recipe=digits_mlp", "--compile", "--out=/nowhere/at/all"],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={**os.environ, "CXX": "/no/such/compiler"},
    )
    assert done.returncode == MissingPackageError.exit_code, done.stderr
    assert "--compile needs a C++ compiler, and none was found" in done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 2
