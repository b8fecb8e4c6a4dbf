"""`parity table`: what a paper says of a comparison is what the report says, and LaTeX takes it."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity.common.base.errors import RecordError
from parity.common.report.files import finite, to_json
from parity.common.report.table import FORMATS, table_of
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import one_line, tiny_spec, write_pair

HOSTILE = r"50% of_{a} \input{x} & b#c $x^2$ ~ <i> | ``q'' [1] \\ *µ* 漢"
SPEEDUP = {"name": "tensorflow mirrored", "replicas": 2, "median": 1.86, "low": 1.8, "high": 1.9}


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


@pytest.fixture
def report(tmp_path: Path) -> dict[str, Any]:
    """Of a pair, as report.json has it, with a speedup."""
    made = to_json(write_pair(tmp_path / "records", tiny_spec(), 1e-15))
    return json.loads(json.dumps(made | {"scaling": {"speedups": [SPEEDUP]}}))


def rows(text: str) -> list[list[str]]:
    """Of a Markdown table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_figures_are_those_of_the_report(report: dict[str, Any]) -> None:
    columns, ruler, reference, candidate = rows(table_of(report, "x", FORMATS["markdown"]))
    assert len(ruler) == len(columns) and reference[:2] == ["torch single x1", "reference"]
    checks = {check["name"]: check for check in report["comparisons"][0]["checks"]}
    found = dict(zip(columns, candidate, strict=True))
    assert found["run"] == "tensorflow mirrored x2" and found["verdict"] == "parity"
    assert found["loss curve"] == f"{checks['loss curve']['deviation']:.1e}" != "0"
    assert found["speedup"] == r"1.86 \[1.80, 1.90\]"
    exact = list(csv.reader(io.StringIO(table_of(report, "x", FORMATS["csv"]))))
    of = dict(zip(exact[0], exact[2], strict=True))
    assert float(of["final state"]) == checks["final state"]["deviation"]
    shares = [c["deviation"] / c["budget"] for c in checks.values() if c["budget"]]
    assert float(of["of allowed"]) == max(shares)


def test_versions_and_hardware_are_those_of_each_run(report: dict[str, Any]) -> None:
    text = table_of(report, "x", FORMATS["markdown"])
    assert "Versions: numpy 2, parity " in text and "Hardware: 1 × CPU, 2 cores." in text
    report["records"][1] |= {"versions": {"tensorflow": "2.21"}, "devices": ["GPU:0", "GPU:1"]}
    text = table_of(report, "x", FORMATS["markdown"])
    assert "torch single x1: numpy 2" in text and "tensorflow mirrored x2: tensorflow 2.21." in text
    assert "tensorflow mirrored x2: 2 × GPU, 2 cores." in text
    assert "Hardware: two of ours." in table_of(report, "x", FORMATS["markdown"], "two of ours")


def test_what_is_not_finite_has_its_sign(report: dict[str, Any]) -> None:
    checks = {check["name"]: check for check in report["comparisons"][0]["checks"]}
    checks["loss curve"]["deviation"], checks["final state"]["deviation"] = "inf", "nan"
    text = table_of(report, "x", FORMATS["latex"])
    assert r"& $\infty$ &" in text and "& NaN & " in text
    assert "| inf |" in table_of(report, "x", FORMATS["markdown"])


def wrong_in_latex(text: str) -> list[str]:
    """What TeX would stumble over or read as more than text: braces, environments, bare special signs, unknown commands."""
    text = re.sub(r"^%.*\n", "", text)
    found = [f"bare {sign}" for sign in re.findall(r"(?<!\\)[#~\"<>|%]", text)]
    outside = re.sub(r"\$[^$]*\$", "", text.replace(r"\$", ""))
    found += [f"bare {sign}" for sign in re.findall(r"(?<!\\)[\^_$]", outside)]
    known = (
        r"begin|end|centering|caption|label|toprule|midrule|bottomrule|medskip|parbox|linewidth|footnotesize|times|infty"
        r"|text(backslash|asciitilde|asciicircum|less|greater|bar|quotedbl)"
    )
    found += [name for name in re.findall(r"\\([a-zA-Z]+)", text) if not re.fullmatch(known, name)]
    depth = 0
    for sign in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if sign == "{" else -1
        found += ["braces"] * (depth < 0)
    found += ["braces"] * (depth > 0)
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    if opened != [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")]:
        found.append("environments")
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    cells = {len(re.findall(r"(?<!\\)&", row)) for row in body.splitlines() if "&" in row}
    return found + ["columns"] * (len(cells) != 1)


def hostile(report: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(report).replace("tensorflow mirrored x2", json.dumps(HOSTILE)[1:-1]))


def test_latex_is_whole_whatever_names_it_holds(report: dict[str, Any], tmp_path: Path) -> None:
    text = table_of(hostile(report), "x", FORMATS["latex"], "50% of {it}")
    assert wrong_in_latex(text) == []
    assert r"\input" not in text and r"50\% of\_\{a\}" in text and "U+6F22" in text
    if shutil.which("pdflatex"):
        whole = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{text}\end{{document}}"
        (tmp_path / "paper.tex").write_text(whole)
        call = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("taken", "put"),
    [
        ("\\%", "%"),
        ("\\_", "_"),
        (r"\{a\}", "{a"),
        ("parity &", r"parity \&"),
        (r"\textbackslash{}input", r"\input"),
        (r"\end{tabular}", ""),
        ("$0$", "0$"),
    ],
)
def test_the_reader_of_latex_sees_what_is_wrong(report: dict[str, Any], taken: str, put: str) -> None:
    text = table_of(hostile(report), "x", FORMATS["latex"])
    assert taken in text and wrong_in_latex(text.replace(taken, put, 1))


def test_markdown_keeps_hostile_names_in_their_cell(report: dict[str, Any]) -> None:
    table = rows(table_of(hostile(report), "x", FORMATS["markdown"]))
    assert len({len(row) for row in table}) == 1
    assert re.sub(r"\\(.)", r"\1", table[3][0]) == HOSTILE
    report["records"][1]["host"] = report["comparisons"][0]["candidate"] = "a\n| b"
    assert len(rows(table_of(report, "x", FORMATS["markdown"]))) == 4


@pytest.mark.parametrize("form", FORMATS)
def test_records_and_their_report_give_one_table(parity: Cli, form: str) -> None:
    pair = write_pair(Path("records"), tiny_spec())
    paths = [record.folder for record in pair.records]
    assert parity("compare", *paths, "--out", "found")[0] == 0
    texts = [
        parity("table", *given, "--format", form)[1] for given in (paths, ["found"], ["found/report.json"])
    ]
    assert texts[0] and len(set(texts)) == 1
    assert parity("table", "found", "--format", form, "--out", "table.txt") == (0, "", "")
    assert Path("table.txt").read_text() == texts[0]


def test_what_is_refused(parity: Cli, report: dict[str, Any]) -> None:
    assert "one record" in parity.refused("table", "records/reference")
    assert "report.json" in parity.refused("table", "records")
    Path("study.json").write_text(json.dumps(report | {"format": "parity-study-report"}))
    assert "not the report of a comparison" in parity.refused("table", "study.json")
    assert "cannot be written" in parity.refused(
        "table", "records/reference", "records/candidate", "--out", "no/x"
    )


def test_damage_is_one_line(report: dict[str, Any]) -> None:
    """Each part in turn is missing, or something else."""
    refused = 0
    for name in report:
        for other in (
            {n: v for n, v in report.items() if n != name},
            report | {name: 7},
            report | {name: [{}]},
        ):
            try:
                table_of(other, "x", FORMATS["latex"])
            except RecordError as error:
                refused += len(one_line(error)) > 0
    assert refused > 3 * 5


def test_a_divergence_says_so(tmp_path: Path) -> None:
    result = write_pair(tmp_path / "pair", tiny_spec(), 1e-3)
    assert result.verdict == "divergent"
    result = replace(result, scaling=None)
    found = rows(table_of(finite(to_json(result)), "x", FORMATS["markdown"]))
    assert found[3][1] == "divergent" and float(found[3][found[0].index("of allowed")]) > 1
