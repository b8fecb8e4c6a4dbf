"""Report a failed assertion: its lines, and the page that a test leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from parity.common.diagnosis.result import Finding, TensorComparison
from parity.common.external.lint.lint import Difference
from parity.common.external.pairs.bench import OUTPUT
from parity.common.report.files import finite, write_data
from parity.common.report.html.page import write_page


def told_of(finding: Finding, suspects: Sequence[Difference]) -> list[str]:
    """Why, in lines; of what no experiment explained, the settings there that differ."""
    why, place = finding.explanation, finding.name.partition("/")[2]
    if why is not None:
        return [f"  cause: {why.text}", f"    {why.confidence}: {why.evidence}", f"    fix: {why.fix}"]
    mine = [each for each in suspects if each.keras == place and each.changes == "forward"]
    return [f"  cause, not tried: {each.text}; {each.fix}" for each in mine] or [
        f"  cause of {place}: none that is known"
    ]


def place_of(one: TensorComparison) -> str:
    """Where a tensor is, without the stage of the step."""
    name = one.name.partition("/")[2]
    return f"the {name}" if name == OUTPUT else name


def where_of(one: TensorComparison) -> str:
    """' (row of sample 3)', or nothing."""
    return f" ({one.where})" if one.where else ""


def write_failure(
    path: Path, lines: list[str], tensors: Sequence[TensorComparison], limit: float | None
) -> None:
    """Write an HTML page without scripts, and the same as JSON beside it.

    Args:
        path: of the page.
        lines: what it says.
        tensors: in their order.
        limit: of the deviation of all; None: each has its own.

    Raises:
        RecordError: a file cannot be written.
    """
    words = {
        "headline": {"verdict": "divergent", "title": "Not the same", "why": lines[0]},
        "lines": lines,
        "tensors": [(one, one.deviation <= (limit or one.allowed)) for one in tensors],
        "limit": f"allowed {limit:g}" if limit else "relative to its largest element",
    }
    write_page(path, "failure.html.j2", words, {}, None)
    data = {"text": lines, "limit": limit, "tensors": [asdict(one) for one in tensors]}
    write_data(finite(data), path.with_suffix(".json"))
