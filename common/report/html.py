"""The HTML report: one self-contained file that opens offline."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common import __version__
from common.data.plan import BatchPlan
from common.errors import MissingPackageError, RecordError, how_to_install
from common.parity.compare import Check
from common.parity.result import Result
from common.parity.scaling import EXPECTATION, WARM_UP_STEPS, Ratio, Scaling
from common.parity.splits import SplitAudit
from common.record import RunRecord
from common.report import html_plots as plots
from common.report import html_splits
from common.spec import dump_yaml

if TYPE_CHECKING:
    from jinja2 import Environment

SYMBOLS = {"parity": "✓", "divergent": "✕", "inconclusive": "?"}
_TITLES = {"parity": "Parity", "divergent": "Divergent", "inconclusive": "Inconclusive"}
_HERE = Path(__file__).parent


def write_html(result: Result, path: Path) -> None:
    """Write the report, whole or not at all, replacing an older one.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        RecordError: the file cannot be written.
    """
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingPackageError(f"the HTML report needs {error.name}; {how_to_install('report')}") from None
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    page = _render(environment, result, get_plotlyjs())
    temporary = path.with_name(path.name + ".partial")
    try:
        temporary.write_text(page, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        raise RecordError(f"{path}: the report cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _render(environment: Environment, result: Result, plotly_js: str) -> str:
    from markupsafe import Markup

    environment.filters |= {"short": _short, "spread": _spread, "breakable": _breakable}
    template = environment.from_string((_HERE / "report.html.j2").read_text(encoding="utf-8"))
    scripts = {
        "guard": (_HERE / "html_guard.js").read_text(encoding="utf-8"),
        "plotly": plotly_js.replace("\r\n", "\n").replace("</script", "<\\/script"),
        "page": (_HERE / "html_report.js").read_text(encoding="utf-8"),
    }
    figures = {name: Markup(plots.to_json(figure)) for name, figure in _figures(result).items()}
    return template.render(
        _words(result),
        policy=_policy(list(scripts.values())),
        scripts={name: Markup(text) for name, text in scripts.items()},
        figures=figures,
    )


def _policy(scripts: list[str]) -> str:
    """Nothing from any network, and no script but exactly these."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _figures(result: Result) -> dict[str, plots.Figure]:
    figures = {
        "loss": plots.loss_figure(result.records),
        "deviation": plots.deviation_figure(result.comparisons),
    }
    for number, (record, audit) in enumerate(zip(result.records, result.audits, strict=True)):
        figures[f"split-{number}"] = html_splits.split_figure(record, _wrong_steps(audit))
    if result.scaling is not None and result.scaling.speedups:
        figures["speedup"] = plots.speedup_figure(result.scaling.speedups)
    return figures


def _words(result: Result) -> dict[str, Any]:
    """Everything the template says, still unescaped: the template escapes."""
    records, comparisons = result.records, result.comparisons
    reference = records[0]
    names = dict.fromkeys(check.name for c in comparisons for check in c.checks)
    per_comparison = [{check.name: check for check in c.checks} for c in comparisons]
    failing = [number for number, audit in enumerate(result.audits) if not audit.passed]
    several = [number for number, record in enumerate(records) if record.placement.replicas > 1]
    return {
        "headline": {
            "verdict": result.verdict,
            "title": _TITLES[result.verdict],
            "why": why(result),
        },
        "symbols": SYMBOLS,
        "version": __version__,
        "spec": reference.spec,
        "digest": reference.header.digest,
        "steps": _steps(reference),
        "labels": [record.label for record in records],
        "comparisons": comparisons,
        "checks": [{"name": name, "cells": [c.get(name) for c in per_comparison]} for name in names],
        "budget_source": "; ".join(dict.fromkeys(c.budget_source for c in comparisons)),
        "ledger": [(c.candidate, entry) for c in comparisons for entry in c.excepted],
        "thinned": _thinned(reference),
        "has_budget": any(np.isfinite(c.loss_budget).any() for c in comparisons),
        "non_finite": any(not np.isfinite(c.loss_deviation).all() for c in comparisons),
        "ulp": float(np.finfo(reference.spec.master_dtype).eps),
        "window": _window(records, any(not audit.passed for audit in result.audits)),
        "shown_split": [*failing, *several, 0][0],
        "audits": [(a, _local_batches(r)) for a, r in zip(result.audits, records, strict=True)],
        "scaling": result.scaling,
        **_speed(result.scaling),
        "facts": _facts(records),
        "yaml": dump_yaml(reference.spec),
    }


def why(result: Result) -> str:
    """One sentence: what failed first, or what came closest to its budget."""
    for comparison in result.comparisons:
        failure = comparison.first_failure
        if result.verdict == "divergent" and failure is not None:
            failed = sum(not check.passed for check in comparison.checks)
            return (
                f"{comparison.candidate} differs from {comparison.reference}: {failure.name} at {failure.where}"
                f"{_amount(failure)} ({failed} of {len(comparison.checks)} checks fail)."
            )
        if result.verdict == "inconclusive" and comparison.verdict == "inconclusive":
            return f"{comparison.candidate} against {comparison.reference}: {comparison.reason}."
    checks = [(check, c) for c in result.comparisons for check in c.checks]
    worst, comparison = max(checks, key=lambda pair: _share_of_budget(pair[0]))
    if worst.deviation == 0:
        return f"All {len(checks)} checks found equal bits."
    return (
        f"All {len(checks)} checks are within budget. Closest to it: {worst.name} of {comparison.candidate} "
        f"at {worst.where}{_amount(worst)}."
    )


def _amount(check: Check) -> str:
    # What must be equal and is not says enough by its place; "infinite" would say less.
    if math.isinf(check.deviation) and not check.budget:
        return ""
    return f", deviation {_short(check.deviation)} where {_short(check.budget)} is allowed"


def _share_of_budget(check: Check) -> float:
    return check.deviation / check.budget if check.budget else 0.0


def _short(value: float) -> str:
    if math.isnan(value):
        return "not known"
    return "infinite" if math.isinf(value) else f"{value:.2g}"


def _breakable(name: str) -> str:
    """A tensor's name, escaped, that may be broken at its slashes."""
    from markupsafe import Markup, escape

    return Markup(str(escape(name)).replace("/", "/<wbr>"))


def _spread(ratio: Ratio) -> str:
    if math.isnan(ratio.median):
        return "too few steps"
    return f"{ratio.median:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"


def _steps(record: RunRecord) -> str:
    done, planned = len(record.steps), record.spec.steps
    return f"{done:,}" if done == planned else f"{done:,} of {planned:,}"


def _thinned(record: RunRecord) -> str:
    if len(record.steps) <= plots.MOST_POINTS:
        return ""
    return f" Long curves are thinned to {plots.MOST_POINTS:,} points that keep the extremes."


def _wrong_steps(audit: SplitAudit) -> list[int]:
    """The steps that an audit's problems begin with."""
    found = (re.match(r"step (\d+):", problem) for problem in audit.problems)
    return [int(match.group(1)) for match in found if match]


def _window(records: Sequence[RunRecord], wrong: bool) -> str:
    """What the split figure shows of the records, in words."""
    record = records[0]
    rows, positions = html_splits.split_rows(record), html_splits.split_positions(record)
    per_epoch = BatchPlan.of(record.spec, record.placement).steps_per_epoch
    batch, first = record.spec.global_batch_size, html_splits.FIRST_STEPS
    words = []
    if len(rows) < len(record.steps):
        tail = " and the end of the first epoch" if len(rows) > first else ""
        words.append(f"Drawn are the first {min(len(rows), first)} steps{tail}; the audit saw all.")
    if len(positions) < min(batch, record.spec.data.train_samples):
        which = "first" if record.spec.data.split == "strided" else "evenly chosen"
        words.append(f"Of {batch:,} positions, {len(positions)} {which} ones are drawn.")
    if per_epoch < len(record.steps):
        words.append(f"A dotted line ends an epoch of {per_epoch} steps.")
    if max(record.placement.replicas for record in records) > len(plots.PALETTE):
        words.append(f"Colours repeat after {len(plots.PALETTE)} replicas; point at a cell for its number.")
    if wrong:
        words.append("A cross marks a step that is not as planned.")
    return " ".join(words)


def _local_batches(record: RunRecord) -> str:
    """Local batch sizes of a whole global batch and, where there is one, of the smallest."""
    by_step = list(zip(*([len(ids) for ids in replica] for replica in record.splits), strict=True))
    totals = [sum(sizes) for sizes in by_step]
    whole, least = totals.index(max(totals)), totals.index(min(totals))
    lines = [_sizes(by_step[whole])]
    if totals[least] < totals[whole]:
        lines.append(f"{_sizes(by_step[least])} at step {record.steps[least]}")
    return "\n".join(lines)


def _sizes(sizes: tuple[int, ...]) -> str:
    return " + ".join(
        f"{times} × {size}" if times > 1 else f"{size}" for size, times in Counter(sizes).items()
    )


def _speed(scaling: Scaling | None) -> dict[str, Any]:
    if scaling is None:
        return {"speeds": [], "pinned": "", "rounds": "", "warm_up": 0}
    ratios = {ratio.name: ratio for ratio in scaling.speedups}
    rows = []
    for label, throughput in scaling.samples_per_second.items():
        ratio = ratios.get(label)
        low, high = EXPECTATION.get(ratio.replicas, (math.nan, math.nan)) if ratio else (math.nan, math.nan)
        rows.append(
            {
                "label": label,
                "throughput": "too few steps" if math.isnan(throughput) else f"{throughput:,.0f}",
                "speedup": _spread(ratio) if ratio else "–",
                "ideal": f"{ratio.replicas}x" if ratio else "–",
                "usual": "–" if math.isnan(low) else f"{low:g}x" + (f" to {high:g}x" if high > low else ""),
                "efficiency": f"{ratio.efficiency:.0%}" if ratio and not math.isnan(ratio.median) else "–",
            }
        )
    pinned = "Replicas were pinned to their own cores."
    if not scaling.pinned:
        pinned = "Replicas were not pinned to cores, so they may have shared them."
    rounds = {ratio.rounds for ratio in (*scaling.speedups, *scaling.between)}
    text = f" over {max(rounds)} interleaved rounds" if rounds else ""
    return {"speeds": rows, "pinned": pinned, "rounds": text, "warm_up": WARM_UP_STEPS}


def _facts(records: tuple[RunRecord, ...]) -> list[tuple[str, list[str]]]:
    """Rows of the table of runs, one cell a record."""
    rows: dict[str, list[str]] = {}
    for record in records:
        header, summary = record.header, record.summary
        assert summary is not None  # check_alignment refuses unfinished runs
        devices = Counter(header.devices).items()
        evaluated = "none"
        if summary.eval_count and record.spec.loss.classes:
            share = summary.eval_correct / summary.eval_count
            evaluated = f"{share:.2%}\n({summary.eval_correct} of {summary.eval_count:g})"
        for name, cell in {
            "Final loss": f"{record.loss[-1]:.8g}",
            "Evaluation accuracy": evaluated,
            "Wall time": f"{summary.wall_seconds:,.2f} s",
            "Started": header.started.replace("T", " ").replace("+00:00", " UTC"),
            "Host": header.host,
            "Devices": "\n".join(f"{times} × {name}" if times > 1 else name for name, times in devices),
            "Threads": "\n".join(f"{name} {count}" for name, count in header.threads.items()),
            "Versions": "\n".join(f"{name} {version}" for name, version in header.versions.items()),
            "Git revision": header.git_revision or "not known",
            "Folder": str(record.folder),
        }.items():
            rows.setdefault(name, []).append(cell)
    return list(rows.items())
