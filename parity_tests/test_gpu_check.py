"""scripts/gpu_check: its page, its exit code, what its rows find, and all of it on a CPU."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parity.common.base.errors import RunError
from parity_tests.gpu import __main__ as command
from parity_tests.gpu import bench as benches
from parity_tests.gpu import page, precisions
from parity_tests.gpu.bench import Bench
from parity_tests.gpu.precisions import Apart
from parity_tests.gpu.rows import Measured, NotPossibleError, Row, outcomes
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import SHARDED

ROWS = {row.name: row for row in command.ROWS}
# What no CPU can have.
OF_GPUS = {"tf32", "float8_mixed", "recorder_waits", "memory"}
GPU = {"name": "A GPU", "bytes": 80 << 30, "capability": [9, 0]}
FACTS = {"versions": {"PyTorch": "2.13.0"}, "gpus": [GPU, GPU]}


class Answering(Bench):
    """Without processes: on a GPU, where functions of torch answer what is given."""

    def __init__(self, **answers: Any) -> None:
        super().__init__("gpu", Path())
        self._given = {"facts": FACTS, **answers}

    def ask(self, function: str) -> Any:
        return self._given[function]


def result_of(name: str, bench: Bench) -> str:
    (found,) = outcomes(bench, [ROWS[name]])
    return found.result


def raising(error: Exception) -> Row:
    def run(bench: Bench) -> Measured:
        raise error

    return Row(type(error).__name__, "something", "none", run)


def listed(text: str) -> dict[str, str]:
    """The results of a page by row."""
    return dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", text, re.MULTILINE))


def test_the_page_has_each_row_and_a_failed_one_makes_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Row("good", "a | b < c", "1e-12", lambda bench: Measured("loss 3e-16"))
    bad = Row("bad", "c and d", "1e-12", lambda bench: Measured("loss 1e-3", "another curve"))
    rows = [
        bad,
        raising(RunError("a line\nand more")),
        raising(NotPossibleError("one GPU")),
        raising(ValueError()),
        good,
    ]
    made = list(outcomes(Answering(), rows))
    out = tmp_path / "pages" / "gpu.md"
    assert page.write(out, page.machine(FACTS), made, True) == 1
    text = out.read_text()
    assert listed(text) == {
        "bad": "failed: another curve",
        "RunError": "failed: a line and more",
        "NotPossibleError": "not possible here: one GPU",
        "ValueError": "failed: ValueError",
        "good": "passed",
    }
    assert "Of 5 rows 1 passed, 1 were not possible here, 3 failed: bad, RunError, ValueError." in text
    assert "| `good` | a / b &lt; c | loss 3e-16 | 1e-12 | passed |" in text
    assert "| GPU x2 | A GPU, 80.0 GiB, compute capability 9.0 |" in text and "No GPU" not in text
    assert len(capsys.readouterr().err.splitlines()) == 5
    assert (
        page.write(out, {}, made[-1:], False) == 0 and "**No GPU has been at hand yet.**" in out.read_text()
    )


def test_no_row_begins_when_the_time_is_over() -> None:
    late = outcomes(Answering(), [raising(RunError("must not run"))], most_seconds=-1)
    assert [each.result for each in late] == ["not possible here: no time was left; run --only RunError"]


EQUAL = {"losses": 0, "tensors": 0, "steps": 24, "incomplete": []}
READ = {"usual": 0, "usual_steps": 14, "rare": 30, "control": 1, "alone": 0}
SIZES = {"float32": {"foretold": 1050, "measured": 1000}}


@pytest.mark.parametrize(
    ("name", "answer", "result"),
    [
        ("recorder", EQUAL, "passed"),
        ("recorder", EQUAL | {"losses": 2}, "failed: 2 losses differ"),
        ("recorder", EQUAL | {"tensors": 1}, "failed: 1 tensors differ"),
        ("recorder", EQUAL | {"incomplete": ["norms", "taps"]}, "failed: record without norms, taps"),
        ("waits", READ, "passed"),
        ("waits", READ | {"usual": 14}, "failed: waits 14 times, the loop alone 0"),
        ("waits", READ | {"control": 0}, "failed: reading a loss was not counted, so nothing is"),
        ("memory", SIZES, "passed"),
        ("memory", {"float32": {"foretold": 800, "measured": 1000}}, "failed: float32 is -20.0% off"),
        (
            "memory",
            {"float32": {"foretold": 1 << 40, "free": 1 << 30}},
            "not possible here: float32 needs 1.00 TiB, 1.00 GiB are free",
        ),
    ],
)
def test_what_torch_answers_is_judged(name: str, answer: dict[str, Any], result: str) -> None:
    assert result_of({"waits": "recorder_waits"}.get(name, name), Answering(**{name: answer})) == result


NEAR = Apart(1e-7, 1e-6, 1e-6, SimpleNamespace(loss=[2.0, 1.9]))  # type: ignore[arg-type]
BFLOAT16 = Apart(2e-2, 5e-2, 2e-1, NEAR.run)
TOO_MUCH = (
    "failed: digits_cnn deviates by more than {0} rounds; digits_transformer deviates by more than {0} rounds"
)


@pytest.mark.parametrize(
    ("name", "apart", "result"),
    [
        ("float32", NEAR, "passed"),
        ("float32", Apart(3e-4, 5e-4, 1e-3, NEAR.run), TOO_MUCH.format("float32")),  # as with TF32
        (
            "float32",
            NEAR._replace(gradients=1e-3),
            "failed: digits_transformer deviates by more than float32 rounds",
        ),
        ("tf32", Apart(3e-4, 5e-4, 1e-3, NEAR.run), "passed"),
        ("tf32", BFLOAT16, TOO_MUCH.format("tf32")),
        ("float8_mixed", BFLOAT16, "passed"),
        ("float8_mixed", BFLOAT16._replace(curve=math.nan), "failed: deviates by nan"),
        (
            "float8_mixed",
            BFLOAT16._replace(run=SimpleNamespace(loss=[2.0, 2.1])),
            "failed: the loss does not fall",
        ),
        ("attention", NEAR, "passed"),
        ("lstm", NEAR, "failed: no fast kernel ran"),
        ("attention", BFLOAT16, "failed: deviates by 0.05"),
    ],
)
def test_what_rounds_is_judged(name: str, apart: Apart, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precisions, "against_float64", lambda bench, spec: apart)
    kernels = {"attention": ["_scaled_dot_product_flash_attention"], "lstm": []}
    assert result_of(name, Answering(kernels=kernels)) == result


@pytest.mark.parametrize(
    ("name", "capability", "result"),
    [
        ("tf32", [7, 5], "not possible here: compute capability 7.5 has no TF32, 8.0 is the first"),
        (
            "bfloat16_mixed",
            [7, 0],
            "not possible here: compute capability 7.0 has no bfloat16, 8.0 is the first",
        ),
        (
            "float8_mixed",
            [8, 6],
            "not possible here: compute capability 8.6 has no float8 products, 8.9 is the first (Ada, Hopper)",
        ),
    ],
)
def test_what_a_gpu_is_too_old_for_is_said(name: str, capability: list[int], result: str) -> None:
    facts = {**FACTS, "gpus": [GPU | {"capability": capability}]}
    assert result_of(name, Answering(facts=facts)) == result


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PARITY_TORCH_PYTHON": sys.executable, **variables}
    call = ["scripts/gpu_check", *map(str, arguments)]
    return subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=590)


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["--only", "ddpp"], {}, "error: --only ddpp: known are float64_cnn, "),
        ([], {"PARITY_TORCH_PYTHON": "/no/python"}, "error: /no/python is no Python that runs; "),
    ],
)
def test_what_cannot_begin_ends_in_one_line(
    arguments: list[str], variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    done = run("--device", "cpu", "--out", tmp_path / "gpu.md", *arguments, **variables)
    assert (
        done.returncode == 2 and done.stderr.startswith(f"gpu_check: {said}") and done.stderr.count("\n") == 1
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_all_of_it_on_a_cpu(tmp_path: Path) -> None:
    done = run("--device", "cpu", "--out", tmp_path / "gpu.md")
    assert done.returncode == 0, done.stderr
    found = listed((tmp_path / "gpu.md").read_text())
    assert list(found) == list(ROWS)
    # Before 2.7 torch has FSDP2 for GPUs alone.
    absent = OF_GPUS if SHARDED == "fsdp2" else OF_GPUS | {"fsdp2"}
    assert {name for name, result in found.items() if result != "passed"} == absent, found
    assert all(found[name].startswith("not possible here: a CPU") for name in OF_GPUS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("float64_cnn", "labels_one_batch_late"),
        ("ddp", "replicas_never_synchronised"),
        ("frameworks", "labels_one_batch_late"),
        ("checkpoint", "labels_one_batch_late"),
        ("taps", "layer_norm_in_float32"),
        ("float16_mixed", "overflow_not_skipped"),
    ],
)
def test_a_planted_fault_fails_its_row(name: str, fault: str, tmp_path: Path) -> None:
    with Bench("cpu", tmp_path, f"parity_tests.faults.torch:{fault}") as bench:
        result = result_of(name, bench)
    assert result.startswith("failed: "), result


@pytest.mark.slow
def test_a_run_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "RUN_SECONDS", 0.05)
    with Bench("cpu", tmp_path) as bench:
        found = [result_of(name, bench) for name in ("float64_cnn", "recorder")]
    assert found == [
        "failed: took more than 0.05 s and was ended",
        "failed: recorder took more than 0.05 s and was ended",
    ]


def test_rows_have_names_of_their_own() -> None:
    assert len(ROWS) == len(command.ROWS) == 20
    assert command.chosen(["lstm", "ddp"]) == [ROWS["ddp"], ROWS["lstm"]] and command.chosen(None) == [
        *command.ROWS
    ]
