"""A comparison as a table for a paper: Markdown, LaTeX or CSV, from the report that a comparison wrote."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from parity.common.base.errors import RecordError
from parity.common.base.plain import plain

_CHECKS = ("loss curve", "first-step gradients", "final state", "evaluation")
Cell = str | float


@dataclass(frozen=True)
class Table:
    """Cells are text or numbers; `notes` are sentences that belong below."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]


def table_of(report: Any, source: str, written: Callable[[Table], str], hardware: str | None = None) -> str:
    """A report (`parity.common.report.files.to_json`) as a table.

    Args:
        report: content of a report.json.
        source: where it is from, for errors.
        written: of FORMATS.
        hardware: what the machines are [the devices and cores that the records know].

    Raises:
        RecordError: it is no report of a comparison, or a part of it is missing.
    """
    if not isinstance(report, dict) or (report.get("format"), report.get("schema_version")) != (
        "parity-report",
        1,
    ):
        raise RecordError(
            f"{source}: not the report of a comparison; give the report.json of 'parity run', 'parity pair' or"
            " 'parity compare --out'"
        )
    try:
        return written(_table(report, hardware))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{source}: damaged or foreign ({type(error).__name__}: {error})") from None


def _table(report: dict[str, Any], hardware: str | None) -> Table:
    spec, records, comparisons = (report[name] for name in ("spec", "records", "comparisons"))
    found = [{check["name"]: check for check in each["checks"]} for each in comparisons]
    checks = [name for name in _CHECKS if any(name in each for each in found)]
    ratios = (report["scaling"] or {"speedups": []})["speedups"]
    speedups = {f"{each['name']} x{each['replicas']}": each for each in ratios}
    reference = records[0]["label"]
    rows: list[list[Cell]] = [[reference, "reference", *[""] * len(checks), ""]]
    for comparison, of in zip(comparisons, found, strict=True):
        deviations = [float(of[name]["deviation"]) if name in of else "" for name in checks]
        rows.append([comparison["candidate"], comparison["verdict"], *deviations, _most(of.values())])
    columns = ["run", "verdict", *checks, "of allowed"]
    if speedups:
        columns.append("speedup")
        for row in rows:
            row.append(_speedup(speedups.get(str(row[0]))))
    steps = spec.get("steps") or "an unknown number of"
    batch = records[0]["global_batch_size"]
    about = f"{spec['name']}, {spec['precision']}, {steps} steps" + (
        f", global batch {batch}" if batch else ""
    )
    budgets = sorted({each["budget"] for each in comparisons})
    notes = (
        f"Relative deviations from {reference}, each where it is largest; of allowed: the largest share of its budget"
        f" that any check took. Budget: {', '.join(budgets)}.",
        f"Versions: {_by_run(records, _versions)}.",
        f"Hardware: {hardware or _by_run(records, _hardware)}.",
        f"Spec {report['spec_hash']}; compared by parity {report['parity_version']}.",
    )
    return Table(f"Parity of {about}", tuple(columns), tuple(map(tuple, rows)), notes)


def _most(checks: Iterable[dict[str, Any]]) -> Cell:
    """The largest share of its budget that a check took; what must be equal has none."""
    shares = [float(c["deviation"]) / float(c["budget"]) for c in checks if float(c["budget"]) > 0]
    return max(shares, key=lambda share: math.inf if math.isnan(share) else share) if shares else ""


def _speedup(ratio: dict[str, Any] | None) -> str:
    return "" if ratio is None else "{median:.2f} [{low:.2f}, {high:.2f}]".format(**ratio)


def _by_run(records: Sequence[dict[str, Any]], fact: Callable[[dict[str, Any]], str]) -> str:
    """A fact of all runs, once where they share it."""
    facts: dict[str, list[str]] = {}
    for record in records:
        facts.setdefault(fact(record), []).append(record["label"])
    if len(facts) == 1:
        return next(iter(facts))
    return "; ".join(f"{' and '.join(labels)}: {text}" for text, labels in facts.items())


def _versions(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(record["versions"].items()))


def _hardware(record: dict[str, Any]) -> str:
    kinds = Counter(re.sub(r":\d+$", "", device).upper() for device in record["devices"])
    devices = ", ".join(f"{times} × {kind}" for kind, times in kinds.items())
    cores = record["threads"].get("cores")
    return f"{devices}, {cores} cores" if cores else devices


def _markdown(table: Table) -> str:
    def cell(value: Cell) -> str:
        text = plain(value) if isinstance(value, str) else f"{value:.1e}" if value else "0"
        return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", text)

    ruler = ["---" if column in ("run", "verdict") else "---:" for column in table.columns]
    rows = [[cell(value) for value in row] for row in (table.columns, *table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in (rows[0], ruler, *rows[1:])]
    notes = [f"{cell(note)}  " for note in table.notes]
    return "\n".join([f"**{cell(table.caption)}**", "", *lines, "", *notes]) + "\n"


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # after \\ it would begin a length
}


def _tex(text: str) -> str:
    """Text as any LaTeX sets it; signs beyond Latin are spelled out, since fonts lack them."""
    return "".join(
        _LATEX.get(sign, sign if sign < "\u0180" else f"U+{ord(sign):04X}") for sign in plain(text)
    )


def _latex(table: Table) -> str:
    def cell(value: Cell) -> str:
        if isinstance(value, str):
            return _tex(value)
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else r"$\infty$"
        if value == 0:
            return "$0$"
        digits, power = f"{value:.1e}".split("e")
        return rf"${digits} \times 10^{{{int(power)}}}$"

    letters = "".join("l" if column in ("run", "verdict") else "r" for column in table.columns)
    rows = [" & ".join(map(cell, row)) + r" \\" for row in table.rows]
    return "\n".join(
        [
            r"% Needs \usepackage{booktabs}.",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_tex(table.caption)}}}",
            rf"  \begin{{tabular}}{{{letters}}}",
            r"    \toprule",
            f"    {' & '.join(map(cell, table.columns))} \\\\",
            r"    \midrule",
            *(f"    {row}" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            "",
            r"  \medskip",
            rf"  \parbox{{\linewidth}}{{\footnotesize {' '.join(map(_tex, table.notes))}}}",
            r"\end{table}",
            "",
        ]
    )


def _csv(table: Table) -> str:
    """The rows alone, with every digit."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
    return text.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"csv": _csv, "latex": _latex, "markdown": _markdown}
