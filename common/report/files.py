"""The verdict for programs: JSON and JUnit XML."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from common import __version__
from common.parity.result import Result


def to_json(result: Result) -> dict[str, Any]:
    """The result as plain data; deviations that are infinite become the text 'inf'."""
    reference = result.records[0]
    return {
        "format": "parity-report",
        "schema_version": 1,
        "parity_version": __version__,
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "spec": reference.spec.to_dict(),
        "digest": reference.header.digest,
        "records": [
            {
                "label": record.label,
                "folder": str(record.folder),
                "placement": record.placement.to_dict(),
                "versions": record.header.versions,
                "devices": list(record.header.devices),
                "threads": record.header.threads,
                "host": record.header.host,
                "git_revision": record.header.git_revision,
            }
            for record in result.records
        ],
        "comparisons": [
            {
                "reference": comparison.reference,
                "candidate": comparison.candidate,
                "verdict": comparison.verdict,
                "reason": comparison.reason,
                "budget": comparison.budget_source,
                "checks": [_finite(asdict(check)) for check in comparison.checks],
                "excepted": [_finite(asdict(entry)) for entry in comparison.excepted],
            }
            for comparison in result.comparisons
        ],
        "splits": [asdict(audit) for audit in result.audits],
        "scaling": None if result.scaling is None else _finite(asdict(result.scaling)),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_json(result: Result, path: Path) -> None:
    """Write the result as JSON."""
    _write(path, json.dumps(to_json(result), indent=2, allow_nan=False) + "\n")


def write_junit(result: Result, path: Path) -> None:
    """Write one test case a check, so that a CI system shows the verdict beside its tests."""
    suites = ElementTree.Element("testsuites", name="parity")
    for comparison in result.comparisons:
        failures = sum(not check.passed for check in comparison.checks)
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=_xml_text(f"{comparison.candidate} against {comparison.reference}"),
            tests=str(len(comparison.checks) + 1),
            failures=str(failures),
            errors="0" if comparison.verdict != "inconclusive" else "1",
        )
        for check in comparison.checks:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_xml_text(comparison.candidate), name=check.name
            )
            message = f"deviation {check.deviation:.3g} at {check.where}, allowed {check.budget:.3g}"
            if not check.passed:
                ElementTree.SubElement(case, "failure", message=_xml_text(message))
        verdict = ElementTree.SubElement(
            suite, "testcase", classname=_xml_text(comparison.candidate), name="verdict"
        )
        if comparison.verdict == "inconclusive":
            ElementTree.SubElement(verdict, "error", message=_xml_text(comparison.reason))
    ElementTree.indent(suites)
    _write(path, ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n")


def _xml_text(text: str) -> str:
    """XML 1.0 has no way to write most control characters."""
    return "".join(
        c if c in "\t\n" or 32 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE or ord(c) > 0xFFFF else "?"
        for c in text
    )


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
