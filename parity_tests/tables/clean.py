"""What the diagnosis said of pairs in which nothing is wrong, as the Markdown page docs/evidence/clean.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from parity.common.diagnosis.result import Diagnosis
from parity.common.spec.precision import Precision
from parity_tests.clean_runs import COUNT, CleanRun

_HEAD = """# Pairs in which nothing is wrong, and what the diagnosis says of them

Written by `scripts/test -m "" parity_tests/test_clean_runs.py --clean=docs/evidence/clean.md`; do not edit.

Pairs of runs of one spec on two placements, drawn by a seeded generator (`parity_tests/clean_runs.py`): recipes made
small, optimizers, schedules, splits, conventions, precisions, strategies, replicas, micro-batches and seeds. `parity
diagnose` is given the two records and looks into up to 8 steps of 12 or 14. It must find nothing: *divergent* is a
false alarm. *Inconclusive*: the training itself amplifies rounding beyond the limits, and the diagnosis says so;
no tensor is blamed. *Nearest*: of all tensors, with the reference's injected at each step, how much of what it was allowed
the worst used; from 1 on it would have been a false alarm.
"""


@dataclass
class CleanTable:
    """Diagnoses of pairs by number."""

    diagnoses: dict[int, tuple[CleanRun, Diagnosis]] = field(default_factory=dict)

    def add(self, run: CleanRun, diagnosis: Diagnosis) -> None:
        """Take in what was said of a pair."""
        self.diagnoses[run.number] = run, diagnosis

    def write(self, path: Path) -> None:
        """Write the page; nothing, where there is nothing to say."""
        if self.diagnoses:
            path.write_text(self.page(), encoding="utf-8")

    def page(self) -> str:
        """All that was seen."""
        all_of_them = [self.diagnoses[number] for number in sorted(self.diagnoses)]
        alarms = sum(found.verdict == "divergent" or bool(found.findings) for _, found in all_of_them)
        lines = [_HEAD, f"**{alarms} false alarms in {len(all_of_them)} pairs** of {COUNT}.", ""]
        verdicts: dict[Precision, Counter[str]] = {}
        for run, found in all_of_them:
            verdicts.setdefault(run.spec.precision, Counter())[found.verdict] += 1
        lines += ["| precision | pairs | parity | inconclusive | divergent |", "| --- " * 5 + "|"]
        for precision, counted in verdicts.items():
            shown = [counted[verdict] for verdict in ("parity", "inconclusive", "divergent")]
            lines.append(f"| {precision} | {sum(shown)} | {' | '.join(map(str, shown))} |")
        lines += ["", "| # | trained | precision | runs | verdict | nearest | s |", "| --- " * 7 + "|"]
        return "\n".join([*lines, *(_row(run, found) for run, found in all_of_them)]) + "\n"


def _row(run: CleanRun, found: Diagnosis) -> str:
    spec = run.spec
    cells = [
        str(run.number),
        f"{spec.name}, {spec.optimizer.kind}, seed {spec.seed}",
        spec.precision,
        f"{run.reference.label} and {run.candidate.label}",
        found.verdict,
        f"{nearest(found):.2g}",
        f"{found.seconds:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def nearest(found: Diagnosis) -> float:
    """The largest part of its budget that a tensor used, each step fed with the reference's; 0: all were equal."""
    seen = [each for step in found.steps for each in step.injected if each.deviation > 0]
    return max(
        (each.deviation / each.allowed if each.allowed else float("inf") for each in seen), default=0.0
    )
