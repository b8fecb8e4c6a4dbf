"""The HTML report: one self-contained file that opens offline."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.common.data.plan import BatchPlan
from parity.common.parity.compare import Check
from parity.common.parity.result import Result
from parity.common.parity.sample_ids import SplitAudit
from parity.common.record import RunRecord
from parity.common.report import next_steps
from parity.common.report.html import plots, scaling_plots, splits
from parity.common.report.html.page import short, utc, write_page
from parity.common.report.html.scaling import titled
from parity.common.report.html.scaling import words as words_of_scaling
from parity.common.scaling.result import Scaling
from parity.common.spec import dump_yaml

if TYPE_CHECKING:
    from parity.common.scaling.experiment import ScaleResult

_TITLES = {"parity": "Parity", "divergent": "Divergent", "inconclusive": "Inconclusive"}


def write_html(result: Result, path: Path) -> None:
    """Write the report of a comparison, whole or not at all, replacing an older one.

    It links to the pages of diagnoses that lie beside it: diagnosis_N.html, N counting the records from 0; of a pair diagnosis.html.

    Raises:
        RecordError: the file cannot be written.
    """
    figures = _figures(result)
    pages = [(r.label, f"diagnosis_{number}.html") for number, r in enumerate(result.records)]
    pages.append(("it", "diagnosis.html"))
    links: dict[str, Any] = {
        "diagnoses": [(label, name) for label, name in pages if (path.parent / name).exists()]
    }
    # What is diagnosed is linked to instead.
    links["next_steps"] = [] if links["diagnoses"] else next_steps.after_comparison(result)
    write_page(path, "report.html.j2", _words(result, figures) | links, figures)


def write_scale_html(result: ScaleResult, path: Path) -> None:
    """Write the report of a scaling session; raises as `write_html`."""
    reference = result.records[0]
    figures = scaling_plots.figures(result.scaling)
    words = {
        "headline": {
            "verdict": result.verdict,
            "tone": "parity" if result.exit_code == 0 else "inconclusive",
            "title": result.verdict.capitalize(),
            "why": scale_why(result.scaling),
        },
        "ran": ran(result.records),
        "next_steps": next_steps.after_scaling(result, path.parent),
        "spec": result.question.spec,
        "spec_hash": reference.header.spec_hash,
        "rounds": f"{result.scaling.rounds} of {result.question.rounds}",
        "labels": [f"{r.label}, batch {r.spec.global_batch_size}" for r in result.records],
        **_scaling_words(result.scaling, figures),
        "facts": run_facts(result.records),
        "yaml": dump_yaml(result.question.spec),
    }
    write_page(path, "scale.html.j2", words, figures)


def _scaling_words(scaling: Scaling | None, figures: dict[str, plots.Figure]) -> dict[str, Any]:
    """What the scaling sections need besides their figures."""
    if scaling is None:
        return {"scaling": None}
    modes = dict.fromkeys(c.mode for c in scaling.configurations if c.replicas > 1)
    pinned = "Replicas were pinned to their own cores."
    if not scaling.pinned:
        pinned = "Replicas were not pinned to cores, so they may have shared them."
    seen = {"scaling": scaling, "modes": list(modes), "pinned": pinned, "drawn": set(figures)}
    return seen | words_of_scaling(scaling)


def scale_why(scaling: Scaling) -> str:
    """One sentence: the speedups, or which of them is not known."""
    unknown = [ratio for ratio in scaling.speedups if ratio.conclusion != "conclusive"]
    if unknown:
        return f"{titled(unknown[0].name, unknown[0].mode)}: {unknown[0].advice}."
    best = max(scaling.speedups, key=lambda ratio: ratio.efficiency)
    worst = min(scaling.speedups, key=lambda ratio: ratio.efficiency)
    first, last = (titled(ratio.name, ratio.mode) for ratio in (best, worst))
    text = (
        f"{first} is {best.median:.2f} times as fast as one replica, an efficiency of {best.efficiency:.0%}"
    )
    return text + (f"; {last} has {worst.efficiency:.0%}." if worst is not best else ".")


def _figures(result: Result) -> dict[str, plots.Figure]:
    loss, deviation = plots.loss_figure(result.records), plots.deviation_figure(result.comparisons)
    figures = {"loss": loss, "deviation": deviation}
    for number, (record, audit) in enumerate(zip(result.records, result.audits, strict=True)):
        if record.train_spec is not None:  # samples are drawn where the plan has them
            figures[f"split-{number}"] = splits.split_figure(record, _wrong_steps(audit))
    if result.scaling is not None:
        figures |= scaling_plots.figures(result.scaling)
    return figures


def _words(result: Result, figures: dict[str, plots.Figure]) -> dict[str, Any]:
    """Everything the template says, still unescaped: the template escapes."""
    records, comparisons = result.records, result.comparisons
    reference = records[0]
    done, wanted = len(reference.steps), reference.run_info.steps
    names = dict.fromkeys(check.name for c in comparisons for check in c.checks)
    per_comparison = [{check.name: check for check in c.checks} for c in comparisons]
    failing = [number for number, audit in enumerate(result.audits) if not audit.passed]
    planned = reference.train_spec is not None
    several = [number for number, record in enumerate(records) if splits.most_replicas(record) > 1]
    return {
        "headline": {"verdict": result.verdict, "title": _TITLES[result.verdict], "why": why(result)},
        "ran": ran(records),
        "spec": reference.run_info,
        "planned": planned,
        "spec_hash": reference.header.spec_hash,
        "steps": f"{done:,}" if wanted in (None, done) else f"{done:,} of {wanted:,}",
        "labels": [record.label for record in records],
        "comparisons": comparisons,
        "checks": [{"name": name, "cells": [c.get(name) for c in per_comparison]} for name in names],
        "budget_source": "; ".join(dict.fromkeys(c.budget_source for c in comparisons)),
        "ledger": [(c.candidate, entry) for c in comparisons for entry in c.excepted],
        "thinned": _thinned(reference),
        "has_budget": any(np.isfinite(c.loss_budget).any() for c in comparisons),
        "non_finite": any(not np.isfinite(c.loss_deviation).all() for c in comparisons),
        "ulp": float(np.finfo(reference.run_info.master_dtype).eps),
        "window": _window(records, result.audits) if planned else "",
        "shown_split": [*failing, *several, 0][0],
        "audits": [
            (a, _local_batches(r) if planned else "") for a, r in zip(result.audits, records, strict=True)
        ],
        **_scaling_words(result.scaling, figures),
        "facts": run_facts(records),
        "yaml": dump_yaml(reference.run_info),
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
    worst, comparison = max(checks, key=lambda pair: pair[0].deviation / (pair[0].budget or math.inf))
    if worst.deviation == 0:
        return f"All {len(checks)} checks found equal bits."
    return (
        f"All {len(checks)} checks are within budget. Closest to it: {worst.name} of {comparison.candidate} "
        f"at {worst.where}{_amount(worst)}."
    )


def _amount(check: Check) -> str:
    if check.is_unequal:
        return ""
    return f", deviation {short(check.deviation)} where {short(check.budget)} is allowed"


def _thinned(record: RunRecord) -> str:
    if len(record.steps) <= plots.MOST_POINTS:
        return ""
    return f" Long curves are thinned to {plots.MOST_POINTS:,} points that keep the extremes."


def _wrong_steps(audit: SplitAudit) -> list[int]:
    """The steps that an audit's problems begin with."""
    found = (re.match(r"step (\d+):", problem) for problem in audit.problems)
    return [int(match.group(1)) for match in found if match]


def _window(records: Sequence[RunRecord], audits: Sequence[SplitAudit]) -> str:
    """What the split figure shows of the records, in words."""
    record = records[0]
    rows, positions = splits.split_rows(record), splits.split_positions(record)
    per_epoch = BatchPlan.of(record.spec, record.placement).steps_per_epoch
    batch, first = record.spec.global_batch_size, splits.FIRST_STEPS
    words = []
    if len(rows) < len(record.steps):
        tail = " and the end of the first epoch" if len(rows) > first else ""
        audited = min(audit.audited_steps for audit in audits)
        seen = "all" if audited == len(record.steps) else f"{audited:,} of {len(record.steps):,}"
        words.append(f"Drawn are the first {min(len(rows), first)} steps{tail}; the audit saw {seen}.")
    for part in record.parts:
        if part.received.whole < len(part.steps):
            start = f" from step {part.steps[0]}" if record.joined else ""
            whole = f"{part.received.whole:,} steps{start}"
            words.append(
                f"After the first {whole} the record keeps hashes of the samples instead of their ids; those"
                " of all steps are compared."
            )
    if len(positions) < min(batch, record.spec.data.train_samples):
        which = "first" if record.spec.data.split == "strided" else "evenly chosen"
        words.append(f"Of {batch:,} positions, {len(positions)} {which} ones are drawn.")
    if per_epoch < len(record.steps):
        words.append(f"A dotted line ends an epoch of {per_epoch} steps.")
    if max(map(splits.most_replicas, records)) > len(plots.PALETTE):
        words.append(f"Colours repeat after {len(plots.PALETTE)} replicas; point at a cell for its number.")
    if any(not audit.passed for audit in audits):
        words.append("A cross marks a step that is not as planned.")
    return " ".join(words)


def _local_batches(record: RunRecord) -> str:
    """Local batch sizes of a whole global batch and, where there is one, of the smallest; of each part."""
    if record.joined:
        parts = [part for part in record.joined if len(part.steps)]
        return "\n".join(f"from step {part.steps[0]}: {_local_batches(part)}" for part in parts)
    by_step = record.received.sizes
    totals = by_step.sum(axis=1)
    whole, least = int(totals.argmax()), int(totals.argmin())
    lines = [" + ".join(_counted(by_step[whole].tolist()))]
    if totals[least] < totals[whole]:
        lines.append(f"{' + '.join(_counted(by_step[least].tolist()))} at step {record.steps[least]}")
    return "\n".join(lines)


def _counted(values: Iterable[object]) -> list[str]:
    """Each value once, with how often it occurs."""
    return [f"{times} × {value}" if times > 1 else f"{value}" for value, times in Counter(values).items()]


def ran(records: Sequence[RunRecord]) -> dict[str, str]:
    """When, where and with what all of some records were run, for the head of a page; nothing of none."""
    headers = [part.header for record in records for part in record.parts]
    if not headers:
        return {}
    times = sorted({utc(header.started) for header in headers})
    versions = dict.fromkeys(
        f"{name} {version}" for header in headers for name, version in header.versions.items()
    )
    return {
        "Run": " to ".join(dict.fromkeys((times[0], times[-1]))),
        "Host": ", ".join(dict.fromkeys(header.host for header in headers)),
        "Versions": ", ".join(versions),
    }


def run_facts(records: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Rows of the table of runs, one cell a record."""
    columns = [_facts(record) for record in records]
    return [(name, [cells[name] for cells in columns]) for name in columns[0]]


def _facts(record: RunRecord) -> dict[str, str]:
    """What the record says; of a run that went on, all that its headers say."""
    summary = record.summary
    evaluated, classes = "none", record.train_spec is None or record.train_spec.loss.classes
    if summary is not None and summary.eval_count and classes:
        share = summary.eval_correct / summary.eval_count
        evaluated = f"{share:.2%}\n({summary.eval_correct} of {summary.eval_count:g})"
    headers = [
        {
            "Started": utc(header.started),
            "Host": header.host,
            "Devices": "\n".join(_counted(header.devices)),
            "Threads": "\n".join(f"{name} {count}" for name, count in header.threads.items()),
            "Versions": "\n".join(f"{name} {version}" for name, version in header.versions.items()),
            "Git revision": header.git_revision or "not known",
            "Folder": str(record.folder),
        }
        for header in (part.header for part in record.parts)
    ]
    return {
        "Final loss": f"{record.loss[-1]:.8g}",
        "Evaluation accuracy": evaluated,
        "Wall time": "did not finish" if summary is None else f"{summary.wall_seconds:,.2f} s",
        **{name: "\n".join(dict.fromkeys(cells[name] for cells in headers)) for name in headers[0]},
    }
