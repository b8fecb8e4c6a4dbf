"""The verdict for programs: JSON and JUnit XML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from parity import __version__
from parity.common.base.files import replacing
from parity.common.parity.result import Result
from parity.common.record import RunRecord
from parity.common.scaling.result import Scaling

if TYPE_CHECKING:
    from parity.common.scaling.experiment import ScaleResult


def to_json(result: Result) -> dict[str, Any]:
    """The result as plain data; deviations that are infinite become the text 'inf'."""
    reference = result.records[0]
    return {
        **_head("parity-report", result),
        "spec": reference.run_info.to_dict(),
        "spec_hash": reference.header.spec_hash,
        "records": _records(result.records),
        "comparisons": [
            {
                "reference": comparison.reference,
                "candidate": comparison.candidate,
                "verdict": comparison.verdict,
                "reason": comparison.reason,
                "budget": comparison.budget_source,
                "unjudged": comparison.unjudged,
                "checks": [finite(asdict(check)) for check in comparison.checks],
                "excepted": [finite(asdict(entry)) for entry in comparison.excepted],
            }
            for comparison in result.comparisons
        ],
        "sample_ids": [asdict(audit) for audit in result.audits],
        "scaling": None if result.scaling is None else _scaling(result.scaling),
    }


def scale_to_json(result: ScaleResult) -> dict[str, Any]:
    """A scaling session as plain data; numbers that are not finite become text."""
    return {
        **_head("parity-scale-report", result),
        "question": result.question.to_dict(),
        "records": _records(result.records),
        "scaling": _scaling(result.scaling),
    }


def _head(form: str, result: Result | ScaleResult) -> dict[str, Any]:
    verdict = {"verdict": result.verdict, "exit_code": result.exit_code}
    return {"format": form, "schema_version": 1, "parity_version": __version__, **verdict}


def _records(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    return [
        {
            "label": record.label,
            "folder": str(record.folder),
            "global_batch_size": record.run_info.global_batch_size,
            "placement": record.placement.to_dict(),
            "run_options": record.run_options.to_dict(),
            "parts": [_part(part) for part in record.joined],
            "versions": record.header.versions,
            "devices": list(record.header.devices),
            "threads": record.header.threads,
            "host": record.header.host,
            "git_revision": record.header.git_revision,
        }
        for record in records
    ]


def _part(part: RunRecord) -> dict[str, Any]:
    """Of a run that went on, what was trained where."""
    steps = part.steps.tolist()
    return {
        "folder": str(part.folder),
        "first_step": steps[0] if steps else None,
        "steps": len(steps),
        "placement": part.placement.to_dict(),
        "run_options": part.run_options.to_dict(),
    }


def _scaling(scaling: Scaling) -> Any:
    """The analysis, and what is computed from it."""
    data = asdict(scaling) | {"samples_per_second": scaling.samples_per_second}
    for entry, ratio in zip(data["speedups"], scaling.speedups, strict=True):
        entry |= {"efficiency": asdict(ratio.efficiency_interval), "usual": ratio.expected}
    return finite(data)


def finite(value: Any) -> Any:
    """Plain data with text for the numbers that JSON has none for."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_data(data: dict[str, Any], path: Path) -> None:
    """Write finite data as JSON."""
    _write(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def write_junit(result: Result, path: Path) -> None:
    """Write one test case a check, so that a CI system shows the verdict beside its tests."""
    suites = ElementTree.Element("testsuites", name="parity")
    for comparison in result.comparisons:
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=_xml_text(f"{comparison.candidate} against {comparison.reference}"),
            tests=str(len(comparison.checks) + 1),
            failures=str(sum(not check.passed for check in comparison.checks)),
            errors=str(int(comparison.verdict == "inconclusive")),
        )
        whose = _xml_text(comparison.candidate)
        for check in comparison.checks:
            case = ElementTree.SubElement(suite, "testcase", classname=whose, name=check.name)
            message = f"deviation {check.deviation:.3g} at {check.where}, allowed {check.budget:.3g}"
            if not check.passed:
                ElementTree.SubElement(case, "failure", message=_xml_text(message))
        verdict = ElementTree.SubElement(suite, "testcase", classname=whose, name="verdict")
        if comparison.verdict == "inconclusive":
            ElementTree.SubElement(verdict, "error", message=_xml_text(comparison.reason))
    ElementTree.indent(suites)
    _write(path, ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n")


def _xml_text(text: str) -> str:
    """XML 1.0 has no way to write most control characters."""
    return re.sub("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_both(path: Path, data: dict[str, Any], write_page: Callable[[Path], None]) -> str:
    """Write finite data as PATH.json and a page as PATH.html; returns where the page lies."""
    page = path.with_suffix(".html")
    write_data(data, path.with_suffix(".json"))
    write_page(page)
    return str(page)
