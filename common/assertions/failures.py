"""A failed assertion told: its lines, and the page that a test leaves."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from parity.common.base.files import replacing
from parity.common.diagnosis.result import Finding, TensorComparison
from parity.common.external.pairs.bench import OUTPUT
from parity.common.external.pairs.explain import Suspect
from parity.common.report.files import finite


def told_of(finding: Finding, suspects: Sequence[Suspect]) -> list[str]:
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


def write_page(
    path: Path, lines: list[str], tensors: Sequence[TensorComparison], limit: float | None
) -> None:
    """Write an HTML page without scripts, and the same as JSON beside it.

    Args:
        path: of the page.
        lines: what it says.
        tensors: in their order.
        limit: of the deviation of all; None: each has its own.
    """
    rows = "".join(
        f"<tr class={'ok' if one.deviation <= (limit or one.allowed) else 'off'}><td>{html.escape(one.name)}</td>"
        f"<td>{one.deviation:.2g}</td><td>{html.escape(one.where)}</td></tr>"
        for one in tensors
    )
    text = html.escape("\n".join(lines))
    with replacing(path) as temporary:
        temporary.write_text(
            _PAGE.format(
                text=text,
                rows=rows,
                limit=f"allowed {limit:g}" if limit else "relative to its largest element",
            ),
            encoding="utf-8",
        )
    data = {"text": lines, "limit": limit, "tensors": [asdict(one) for one in tensors]}
    with replacing(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(finite(data), indent=1) + "\n", encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>parity: not the same</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>body {{ font: 15px sans-serif; margin: 2em auto; max-width: 60em }} pre {{ white-space: pre-wrap }}
td, th {{ padding: .2em 1em .2em 0; text-align: left }} .off {{ color: #b00020 }} .ok {{ color: #2e7d32 }}</style>
</head><body><h1>Not the same</h1><pre>{text}</pre>
<h2>Tensor by tensor, each from what came before it</h2>
<table><tr><th>tensor, as Keras calls it</th><th>deviation ({limit})</th><th></th></tr>{rows}</table></body></html>
"""
