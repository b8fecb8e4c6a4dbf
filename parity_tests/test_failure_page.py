"""The page that a failed assertion leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parity.common.assertions.assertions import write_failure
from parity.common.diagnosis.result import TensorComparison
from parity_tests.test_report_html import Page

HOSTILE = "<img src=x onerror=alert(1)>&{{ 7 * 7 }}"


def seen(name: str, deviation: float) -> TensorComparison:
    return TensorComparison(f"forward/{name}", None, deviation, 1e-6, "row of sample 3")


@pytest.mark.parametrize("limit", [None, 1e-3])
def test_the_page_shows_every_tensor_and_escapes(tmp_path: Path, limit: float | None) -> None:
    tensors = [seen("dense", 1e-9), seen(f"{HOSTILE}", 1e-4), seen("head", 0.5)]
    write_failure(tmp_path / "report.html", ["a and b differ", f"  first at {HOSTILE}"], tensors, limit)
    page = Page(tmp_path / "report.html")
    tags = {tag for tag, _ in page.elements}
    assert "script" not in tags and "img" not in tags and "noscript" not in tags
    assert page.text.count(HOSTILE) == 2 and "a and b differ" in page.text
    # Within a common limit or within its own.
    assert page.text.count("agrees") == (1 if limit is None else 2)
    assert page.text.count("differs") == (2 if limit is None else 1)
    (policy,) = [value for value in page.attribute("content") if value and "default-src" in value]
    assert "script-src 'none'" in policy
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["limit"] == limit and [one["deviation"] for one in data["tensors"]] == [1e-9, 1e-4, 0.5]
