"""Collective operations of both frameworks against NumPy, how bandwidth is counted, and `parity collectives`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import ParityError, RunError, SpecError
from parity.common.base.units import parse_size, parse_sizes, show_size
from parity.common.commands import collectives as command
from parity.common.planning.collectives.bench import DTYPES, Plan, conduct
from parity.common.planning.collectives.operations import (
    OPERATIONS,
    bandwidths,
    elements_of,
    inputs_of,
    wrong_elements,
)
from parity.common.planning.collectives.run import collect, rows_of

SENDING = [name for name, op in OPERATIONS.items() if op.gives != "nothing"]


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return parser.parse_args(["collectives", *arguments])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("80GB", 80 * 10**9),
        ("40GiB", 40 * 2**30),
        ("1.5 KiB", 1536),
        ("0.1KB", 100),
        ("2TB", 2 * 10**12),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "80", "GB", "-1GB", "80gb", "1e3GB", "0GB", "0.5B", "80G", "nanGB", "80GB ", "9" * 18 + "TB"]
)
def test_what_is_no_size_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(SpecError, match="--gpu-memory") as caught:
        parse_size(text, "--gpu-memory")
    assert "\n" not in str(caught.value) and repr(text) in str(caught.value)


def test_a_size_is_shown_with_three_digits() -> None:
    sizes = (0, 999, 1000, 1024, 1536, 10 * 2**20, 80 * 10**9, 2**50)
    assert [show_size(size) for size in sizes] == [
        "0 B", "999 B", "0.98 KiB", "1.00 KiB", "1.50 KiB", "10.0 MiB", "74.5 GiB", "1024 TiB",
    ]  # fmt: skip


def test_a_range_of_sizes() -> None:
    assert parse_sizes("1KiB:16KiB:x4") == (1024, 4096, 16384)
    assert parse_sizes("1KiB:17KiB:x4") == (1024, 4096, 16384)
    assert parse_sizes("1KB, 3B") == (1000, 3)


@pytest.mark.parametrize(
    "text", ["", "1KiB:", "1KiB:2KiB", "1KiB:2KiB:4", "2KiB:1KiB:x4", "1KiB:2KiB:x1", "1KiB,,2KiB"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--sizes"):
        parse_sizes(text)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--ranks", "0"), "--ranks"),
        (("--repeats", "0"), "--repeats"),
        (("--sizes", "1TB"), "--sizes"),
        (("--operations", "all_reduce,sum"), "'sum'"),
        (("--timeout-seconds", "0"), "--timeout-seconds"),
    ],
)
def test_flags_are_checked_before_anything_starts(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        command.run(parsed(*arguments))


def test_the_bus_factors_are_those_of_nccl_tests() -> None:
    factors = {name: operation.bus_factor(4) for name, operation in OPERATIONS.items()}
    assert factors == {
        "broadcast": 1,
        "reduce": 1,
        "all_reduce": 2 * 3 / 4,
        "scatter": 3 / 4,
        "gather": 3 / 4,
        "all_gather": 3 / 4,
        "reduce_scatter": 3 / 4,
        "barrier": 1,
    }
    assert bandwidths(OPERATIONS["all_reduce"], 8_000_000, 0.001, 2) == (8e9, 8e9)
    assert bandwidths(OPERATIONS["all_gather"], 8_000_000, 0.001, 2) == (8e9, 4e9)


@pytest.mark.parametrize("name", SENDING)
def test_the_referee_of_three_ranks(name: str) -> None:
    """Written out by hand for three ranks and six numbers."""
    operation = OPERATIONS[name]
    inputs = inputs_of(operation, 6, "float64", 3, whole_numbers=True)
    a, b, c = inputs
    total = a + b + c if operation.gives == "all" else None
    expected = {
        "broadcast": [a, a, a],
        "reduce": [total, None, None],
        "all_reduce": [total, total, total],
        "scatter": [a[:2], a[2:4], a[4:]],
        "gather": [np.r_[a, b, c], None, None],
        "all_gather": [np.r_[a, b, c]] * 3,
        "reduce_scatter": None if total is None else [total[:2], total[2:4], total[4:]],
    }[name]
    for rank, wanted in enumerate(expected):
        found = operation.referee(inputs, rank)
        assert (found is None) == (wanted is None)
        assert wanted is None or np.array_equal(found, wanted)
        assert wanted is None or len(wanted) * (1 if len(wanted) == 6 else 3) == 6


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SENDING)
def test_a_wrong_result_is_counted(name: str, dtype: str) -> None:
    operation = OPERATIONS[name]
    for whole_numbers in (True, False) if dtype.startswith("float") else (True,):
        inputs = inputs_of(operation, 12, dtype, 3, whole_numbers)
        right = operation.referee(inputs, 0)
        wrong = np.array(right)
        wrong[1] += 1
        swapped = np.array(right)[::-1]
        assert wrong_elements(operation, inputs, 0, right, whole_numbers) == 0
        assert wrong_elements(operation, inputs, 0, wrong, whole_numbers) == 1
        assert wrong_elements(operation, inputs, 0, swapped, whole_numbers) > 1
        assert wrong_elements(operation, inputs, 0, right[:-1], whole_numbers) == len(right)
        assert wrong_elements(operation, inputs, 0, right.astype(np.float16), whole_numbers) == len(right)
        assert wrong_elements(operation, inputs, 0, None, whole_numbers) == len(right)


def test_a_sum_of_floats_may_round_and_no_more() -> None:
    operation = OPERATIONS["all_reduce"]
    inputs = inputs_of(operation, 4000, "float32", 4, whole_numbers=False)
    other_order = (inputs[3] + inputs[1]) + (inputs[2] + inputs[0])
    assert not np.array_equal(other_order, operation.referee(inputs, 0))
    assert wrong_elements(operation, inputs, 0, other_order, exact=False) == 0
    bfloat = (other_order.view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert wrong_elements(operation, inputs, 0, bfloat, exact=False) > 3000
    assert wrong_elements(operation, inputs, 0, other_order * np.nan, exact=False) == 4000


def test_sizes_become_a_multiple_of_the_ranks() -> None:
    assert [elements_of(size, 4, 3) for size in (1, 24, 1000)] == [3, 6, 249]


class Alone:
    """A group of one rank, without a framework. `broken` goes wrong."""

    rank, ranks = 0, 1

    def __init__(self, broken: str = "") -> None:
        self.broken = broken

    def tensor(self, array):
        return np.array(array)

    def array(self, tensor):
        return tensor

    def wait(self):
        pass

    def how(self, operation):
        return "numpy"

    def prepare(self, operation, tensor):
        return lambda: None if operation == "barrier" else tensor + (operation == self.broken)


def test_a_rank_writes_a_line_for_each_case_and_wrong_ones_show(tmp_path: Path) -> None:
    plan = Plan(ranks=1, sizes=(8, 80), repeats=2)
    conduct(plan, Alone("gather"), tmp_path)
    rows = rows_of("torch", plan, tmp_path)
    assert len(rows) == len(plan.cases) == 15
    assert {(row.operation, row.bytes): row.wrong for row in rows if row.wrong} == {
        ("gather", 8): 4,
        ("gather", 80): 40,
    }


def test_ranks_that_did_less_are_an_error(tmp_path: Path) -> None:
    plan = Plan(ranks=1, sizes=(8,), repeats=2)
    conduct(plan, Alone(), tmp_path)
    lines = (tmp_path / "rank_0.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "rank_0.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(RunError, match="rank 0 did 7 of 8 cases"):
        rows_of("torch", plan, tmp_path)


def test_the_slowest_rank_counts_and_an_early_leaver_is_wrong(tmp_path: Path) -> None:
    plan = Plan(ranks=2, sizes=(8,), repeats=3, operations=("all_reduce", "barrier"))
    for rank, (seconds, crossings) in enumerate(
        [([3.0, 1.0, 2.0], [(0.0, 5.0), (7.0, 7.5)]), ([1.0, 1.5, 9.0], [(4.0, 5.0), (8.0, 8.5)])]
    ):
        lines = [
            {"operation": "all_reduce", "how": "", "bytes": 8, "elements": 2, "wrong": 0, "seconds": seconds},
            {"operation": "barrier", "how": "", "bytes": 0, "elements": 0, "wrong": 0, "seconds": seconds}
            | {"crossings": crossings},
        ]
        (tmp_path / f"rank_{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    reduced, barrier = rows_of("torch", plan, tmp_path)
    assert (reduced.median_seconds, reduced.fastest_seconds, reduced.slowest_seconds) == (3.0, 1.5, 9.0)
    assert (reduced.algorithm_bandwidth, reduced.wrong) == (8 / 3, 0)
    assert barrier.wrong == 1  # rank 0 left at 7.5, rank 1 came at 8.0


@pytest.mark.slow
def test_both_frameworks_from_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    arguments = (
        "--ranks",
        "2",
        "--sizes",
        "40B,12KB",
        "--repeats",
        "2",
        "--json",
        str(file),
        "--device",
        "cpu",
    )
    assert command.run(parsed(*arguments)) == 0
    assert "all 30 cases equal NumPy's results" in " ".join(capfd.readouterr().out.split())
    data = json.loads(file.read_text())
    assert data["bus_factors"]["all_gather"] == 0.5 and set(data["size_is"]) == set(OPERATIONS)
    seen = {(row["framework"], row["operation"]) for row in data["rows"]}
    assert seen == {(f, name) for f in ("torch", "tensorflow") for name in OPERATIONS}
    assert all(row["median_seconds"] > 0 and row["wrong"] == 0 for row in data["rows"])
    built = {row["operation"] for row in data["rows"] if row["how"].startswith("built from")}
    assert built == {"reduce", "scatter", "gather", "reduce_scatter", "barrier"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "fault", "dtype"),
    [
        ("torch", "all_reduce", "float64"),
        pytest.param("torch", "scatter", "int32", marks=pytest.mark.exhaustive),
        ("tensorflow", "all_gather", "int64"),
    ],
)
def test_a_corrupted_result_turns_it_red(framework, fault, dtype, tmp_path: Path, monkeypatch, capfd) -> None:
    entry = f"parity_tests.faults.collectives:{framework}_{fault}"
    monkeypatch.setattr(command, "collect", lambda name, plan, folder: collect(name, plan, folder, entry))
    flags = ("--framework", framework, "--ranks", "3", "--sizes", "120B", "--repeats", "1", "--dtype", dtype)
    assert command.run(parsed(*flags, "--device", "cpu")) == 1
    out = capfd.readouterr().out
    assert f"wrong results: {framework} {fault}" in " ".join(out.split())


@pytest.mark.slow
def test_gpus_that_are_not_there_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    flags = ("--framework", "tensorflow", "--ranks", "2", "--device", "gpu", "--sizes", "8B")
    with pytest.raises(ParityError, match="needs 2 GPUs, this machine has 0") as caught:
        command.run(parsed(*flags))
    assert "\n" not in str(caught.value) and "(log:" not in str(caught.value)
