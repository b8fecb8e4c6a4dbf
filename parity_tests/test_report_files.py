"""The verdict for programs and on the terminal: strict JSON, JUnit that parses, few lines, literal text."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from parity.common.base.terminal import Terminal
from parity.common.parity.compare import LedgerEntry
from parity.common.parity.result import Result, judge
from parity.common.report.files import to_json, write_data, write_junit
from parity.common.report.terminal import print_checks, print_verdict
from parity.common.scaling.result import Ratio, Scaling
from parity.common.spec import Placement
from parity_tests.helpers.records import DDP, MIRRORED, TENSORFLOW, TORCH, Run, tiny_spec, write_pair
from parity_tests.helpers.scaled import full_scaling

HOSTILE = "[red]<b>&amp;\"'[/] \\[x] \x00\x07\x1b[31m \ud800 \ufffe ]]>"
FSDP = Placement(framework="torch", strategy="fsdp2", replicas=2)


def strict(path: Path) -> Any:
    """The JSON of a file, by a parser that knows no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def pair(folder: Path, change: Callable[[Run], object] = lambda run: None, *assignments: str) -> Result:
    run = Run.of(tiny_spec(*assignments), TORCH)
    other = run.copy(MIRRORED)
    change(other)
    return judge([run.write(folder / "reference"), other.write(folder / "candidate")])


def lower_loss(run: Run) -> None:
    run.column("loss_sum")[2] *= 0.5


def nan_loss(run: Run) -> None:
    run.column("loss_sum")[2] = math.nan


def hostile(result: Result) -> Result:
    """The result with unkind text wherever a check, the ledger or a verdict takes text."""
    (comparison,) = result.comparisons
    first, *others = comparison.checks
    return replace(
        result,
        comparisons=(
            replace(
                comparison,
                candidate=HOSTILE,
                reference=HOSTILE,
                reason=HOSTILE,
                verdict="divergent",
                checks=(replace(first, passed=False, deviation=math.inf, where=HOSTILE), *others),
                excepted=(LedgerEntry(HOSTILE, HOSTILE, math.inf),),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("change", "assignments", "verdict", "code"),
    [
        (lambda run: None, (), "parity", 0),
        (lower_loss, (), "divergent", 1),
        (nan_loss, (), "divergent", 1),
        (lambda run: None, ("precision=float32",), "inconclusive", 3),
    ],
    ids=["parity", "divergent", "NaN", "inconclusive"],
)
def test_json_is_strict_and_says_the_verdict(
    tmp_path: Path, change: Callable[[Run], object], assignments: tuple[str, ...], verdict: str, code: int
) -> None:
    result = pair(tmp_path, change, *assignments)
    write_data(to_json(result), tmp_path / "report.json")
    data = strict(tmp_path / "report.json")
    assert (data["verdict"], data["exit_code"]) == (verdict, code)
    assert data["spec_hash"] == result.records[0].header.spec_hash
    assert data["spec"] == result.records[0].spec.to_dict()
    assert [r["label"] for r in data["records"]] == ["torch single x1", "tensorflow mirrored x2"]
    (comparison,) = data["comparisons"]
    assert comparison["verdict"] == verdict
    checks = {check["name"]: check for check in comparison["checks"]}
    assert checks["sample ids"]["passed"] is True
    if verdict == "divergent":
        assert checks["loss curve"]["passed"] is False
        assert checks["loss curve"]["deviation"] == ("inf" if change is nan_loss else 0.5)
    assert [audit["problems"] for audit in data["sample_ids"]] == [[], []]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["candidate", "reference", "report.json"]


def test_the_strict_parser_refuses_nan(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": NaN}')
    with pytest.raises(AssertionError, match="NaN"):
        strict(tmp_path / "x.json")


def test_json_keeps_speeds_that_are_not_numbers_and_hostile_text(tmp_path: Path) -> None:
    ratio = Ratio(HOSTILE, 2, math.nan, -math.inf, math.inf, 3)
    full = full_scaling()
    unknown = replace(full.configurations[0].samples_per_second, median=math.nan)
    configuration = replace(full.configurations[0], label=HOSTILE, samples_per_second=unknown)
    scaling = replace(full, configurations=(configuration,), speedups=(ratio,))
    result = replace(hostile(pair(tmp_path)), scaling=scaling)
    write_data(to_json(result), tmp_path / "report.json")
    data = strict(tmp_path / "report.json")
    assert data["scaling"]["speedups"][0]["median"] == "nan"
    assert data["comparisons"][0]["checks"][0]["where"] == HOSTILE
    assert data["comparisons"][0]["excepted"][0]["tensor"] == HOSTILE
    assert to_json(result)["scaling"]["samples_per_second"] == {HOSTILE: "nan"}


def suites(result: Result, folder: Path) -> list[ElementTree.Element]:
    write_junit(result, folder / "report.xml")
    root = ElementTree.parse(folder / "report.xml").getroot()
    assert root.tag == "testsuites"
    return list(root)


@pytest.mark.parametrize(
    ("change", "assignments", "failures", "errors"),
    [
        (lambda run: None, (), 0, 0),
        (lower_loss, (), 1, 0),
        (lambda run: None, ("precision=float32",), 0, 1),
    ],
    ids=["parity", "divergent", "inconclusive"],
)
def test_junit_counts_what_it_holds(
    tmp_path: Path, change: Callable[[Run], object], assignments: tuple[str, ...], failures: int, errors: int
) -> None:
    (suite,) = suites(pair(tmp_path, change, *assignments), tmp_path)
    assert suite.get("name") == "tensorflow mirrored x2 against torch single x1"
    cases = suite.findall("testcase")
    assert int(suite.get("tests", "")) == len(cases) > 4
    assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure")) == failures
    assert int(suite.get("errors", "")) == len(suite.findall("testcase/error")) == errors
    assert all(case.get("classname") and case.get("name") for case in cases)
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["loss curve"] * failures
    if failures:
        message = suite.find("testcase/failure").get("message")  # type: ignore[union-attr]
        assert message == "deviation 0.5 at step 2, allowed 1e-12"


def test_junit_survives_hostile_text(tmp_path: Path) -> None:
    (suite,) = suites(hostile(pair(tmp_path)), tmp_path)
    failure = suite.find("testcase/failure")
    assert failure is not None
    message = failure.get("message", "")
    assert "[red]<b>&amp;\"'[/]" in message and "]]>" in message
    assert "\x00" not in message and "\x1b" not in message
    assert "[red]<b>" in suite.get("name", "") and "\x07" not in suite.get("name", "")
    assert int(suite.get("failures", "")) == 1


def shown(result: Result, report: str | None = None, checks: bool = False, width: int = 250) -> list[str]:
    stream = io.StringIO()
    console = Terminal(file=stream, width=width)
    if checks:
        for comparison in result.comparisons:
            print_checks(comparison, console)
    print_verdict(result, console, report)
    return stream.getvalue().splitlines()


def test_four_candidates_with_speedups_take_a_dozen_lines(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    placements = [TORCH, TENSORFLOW, MIRRORED, DDP, FSDP]
    result = judge([run.copy(p).write(tmp_path / p.label) for p in placements])
    speedups = tuple(Ratio(p.label, 2, 1.61, 1.5, 1.7, 3) for p in (MIRRORED, DDP, FSDP))
    lines = shown(replace(result, scaling=Scaling((), speedups, (), True, 90, 3)), "out/report.html")
    assert len(lines) <= 12
    text = "\n".join(lines)
    for words in (
        "✓ parity  tiny, float64, 6 steps, reference torch single x1",
        "✓ torch fsdp2 x2: loss curve 0.0e+00",
        "the same samples at every step, none missing or doubled",
        "torch ddp x2 1.61x [1.50, 1.70], efficiency 80%",
        "report: out/report.html",
    ):
        assert words in text


def test_a_divergence_is_told_in_its_line(tmp_path: Path) -> None:
    lines = shown(pair(tmp_path, lower_loss))
    assert lines[0].startswith("✗ divergent")
    assert "✗ tensorflow mirrored x2: loss curve at step 2: deviation 0.5, allowed 1e-12" in lines[1]


def test_a_wrong_split_is_told(tmp_path: Path) -> None:
    def lose(run: Run) -> None:
        run.ids[1][1] = run.ids[1][1][:-1]

    text = "\n".join(shown(pair(tmp_path, lose)))
    assert "NOT as planned" in text and "none missing" not in text


def test_every_check_is_listed_on_request(tmp_path: Path) -> None:
    result = pair(tmp_path, lower_loss)
    text = "\n".join(shown(result, checks=True))
    assert all(check.name in text for check in result.comparisons[0].checks)
    assert text.count("✗") == 1 + 2  # the check, the comparison, the verdict


MARKUP = ["[red]", "[/]", "[/red]", "[bold]x[/bold]", "[link=file:///x]y[/link]", "\\[a]", "[", "a\\"]


@pytest.mark.parametrize("text", MARKUP)
def test_markup_in_text_is_shown_as_it_is(tmp_path: Path, text: str) -> None:
    result = pair(tmp_path)
    (comparison,) = result.comparisons
    first, *others = comparison.checks
    changed = replace(
        comparison,
        candidate=f"C{text}C",
        reason=f"R{text}R",
        verdict="divergent",
        checks=(replace(first, where=f"W{text}W"), *others),
        excepted=(LedgerEntry(f"T{text}T", f"L{text}L", 0.5),),
    )
    audit = replace(result.audits[0], label=f"A{text}A", problems=(f"P{text}P",))
    result = replace(result, comparisons=(changed,), audits=(audit,))
    everything = "\n".join(shown(result, report=f"/F{text}F", checks=True))
    for letter in "CRWTLAP":
        assert f"{letter}{text}{letter}" in everything
    assert f"/F{text}F" in everything


def test_a_pair_of_the_shared_helper_is_what_it_says(tmp_path: Path) -> None:
    assert write_pair(tmp_path / "equal", tiny_spec()).verdict == "parity"
    assert write_pair(tmp_path / "noisy", tiny_spec(), noise=1e-6).verdict == "divergent"
