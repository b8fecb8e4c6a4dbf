"""What the diagnosis said of every planted fault, as the Markdown page docs/evidence/faults.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parity.common.diagnosis.result import Diagnosis, Finding
from parity_tests.faults.registry import BEHAVIOURS, Diagnosed, FaultPair, every_pair, trials

CASES: list[Diagnosed] = trials(Diagnosed)
PAIRS: list[FaultPair] = every_pair()

MUTANTS = "## Random mutants"  # the part of the page that `parity_tests.mutants` writes
_HEAD = """# Faults, and what the diagnosis says of them

Written by `scripts/test -m "" parity_tests/test_diagnosis.py --diagnoses=docs/evidence/faults.md`; do not edit.

Each fault is a silent bug from the frameworks' history, planted in one side of a pair of runs. `parity diagnose`
is given the two records, and must say in which tensor of which stage they part first, and why. *Detected*: it says
that they part. *Place*: stage and tensor are those where the fault is. *Cause*: the catalogue's entry is the right
one. What was expected is written beside each fault in `parity_tests/faults/torch_table.py` and
`parity_tests/faults/tensorflow_table.py`; a miss is **bold**.
"""


@dataclass(frozen=True)
class Outcome:
    """What was said of one fault; `diagnosis` is None where there was none, for `error`."""

    case: Diagnosed
    diagnosis: Diagnosis | None
    error: str = ""

    @property
    def detected(self) -> bool:
        return self.diagnosis is not None and self.diagnosis.verdict == "divergent"

    @property
    def finding(self) -> Finding | None:
        """The first finding: with one fault there is no other to look at."""
        return self.diagnosis.findings[0] if self.diagnosis is not None and self.diagnosis.findings else None

    @property
    def placed(self) -> bool:
        return self.finding is not None and self.case.placed_by(self.finding)

    @property
    def named(self) -> bool:
        return self.finding is not None and self.case.named_by(self.finding)

    @property
    def said(self) -> str:
        """In one line, for a failed test."""
        if self.diagnosis is None:
            return self.error
        found = [f"{f.stage} {f.name}: {_cause(f)}" for f in self.diagnosis.findings]
        return f"{self.diagnosis.verdict}; {'; '.join(found) or 'no finding'}"

    @property
    def expected(self) -> str:
        return f"{self.case.stage} {self.case.name}: {self.case.cause}"


@dataclass(frozen=True)
class PairOutcome:
    """What was said of two faults at once."""

    pair: FaultPair
    diagnosis: Diagnosis | None
    error: str = ""

    @property
    def found(self) -> tuple[bool, bool]:
        """Whether there is a finding at the place and of the cause of each."""
        findings = () if self.diagnosis is None else self.diagnosis.findings
        first, second = (
            any(case.placed_by(f) and case.named_by(f) for f in findings)
            for case in (self.pair.first, self.pair.second)
        )
        return first, second

    @property
    def said(self) -> str:
        return Outcome(self.pair.first, self.diagnosis, self.error).said


@dataclass
class DiagnosisTable:
    """Outcomes by the id of the case."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    pairs: dict[str, PairOutcome] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the page, replacing what is there; a case that was not tried is a miss."""
        found = [self.outcomes.get(case.id, Outcome(case, None, "not tried")) for case in CASES]
        outcomes = sorted(found, key=lambda o: (o.case.behaviour, o.case.id))
        pairs = [self.pairs.get(pair.id, PairOutcome(pair, None, "not tried")) for pair in PAIRS]
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        text = f"{_HEAD}\n{versions}; {os.cpu_count()} cores, no GPU.\n\n{_totals(outcomes, pairs)}"
        text += "\n## One fault at a time\n\n| # | fault | in | trained | stage | tensor | cause | confidence | s |\n"
        text += f"|{' --- |' * 9}\n"
        for behaviour in sorted({outcome.case.behaviour for outcome in outcomes}):
            text += f"| {behaviour} | *{BEHAVIOURS[behaviour]}* |{' |' * 7}\n"
            text += "".join(map(_row, (o for o in outcomes if o.case.behaviour == behaviour)))
        text += "\n## Two faults at once\n\n| faults | in | trained | findings | both found |\n"
        text += f"|{' --- |' * 5}\n"
        text += "".join(map(_pair_row, sorted(pairs, key=lambda pair: pair.pair.id)))
        kept = path.read_text(encoding="utf-8").partition(MUTANTS) if path.exists() else ("", "", "")
        path.write_text(text + "\n" * bool(kept[1]) + "".join(kept[1:]), encoding="utf-8")


def _totals(outcomes: Sequence[Outcome], pairs: Sequence[PairOutcome]) -> str:
    rows = [
        ("detected", sum(o.detected for o in outcomes), len(outcomes), 1.0),
        ("place", sum(o.placed for o in outcomes), len(outcomes), 0.99),
        ("cause", sum(o.named for o in outcomes), len(outcomes), 0.98),
        ("both of a pair", sum(all(p.found) for p in pairs), len(pairs), 0.95),
    ]
    text = "| | right | of | share | at least |\n| --- | --- | --- | --- | --- |\n"
    for name, right, of, least in rows:
        text += f"| {name} | {right} | {of} | {right / of:.1%} | {least:.0%} |\n"
    several = sum(o.diagnosis is not None and len(o.diagnosis.findings) > 1 for o in outcomes)
    return f"{text}\nOf {len(outcomes)} single faults {several} gave more than one finding.\n"


def _row(outcome: Outcome) -> str:
    case, finding = outcome.case, outcome.finding
    if outcome.diagnosis is None or finding is None:
        said = f"**{outcome.error or 'no finding'}** | | | | "
    else:
        place = [finding.stage, f"`{finding.name}`"]
        stage, name = place if outcome.placed else [f"**{word}**" for word in place]
        cause = _cause(finding) if outcome.named else f"**{_cause(finding)}**"
        sure = "" if finding.explanation is None else finding.explanation.confidence
        said = f"{stage} | {name} | {cause} | {sure} | {outcome.diagnosis.seconds:.1f}"
    return f"{page_row(case)} | {said} |\n"


def _pair_row(outcome: PairOutcome) -> str:
    pair = outcome.pair
    findings = () if outcome.diagnosis is None else outcome.diagnosis.findings
    said = "; ".join(f"{f.stage} `{f.name}` {_cause(f)}" for f in findings) or outcome.error or "none"
    both = "yes" if all(outcome.found) else "**no**"
    return f"{page_row(pair)} | {said} | {both} |\n"


def page_row(case: Diagnosed | FaultPair) -> str:
    """Return how the page's row of a fault or a pair begins: what was planted where, and what was trained."""
    if isinstance(case, Diagnosed):
        return f"| | {_words(case.fault)} | {_placed(case)} | {case.spec.name}"
    names = f"{_words(case.first.fault)}; {_words(case.second.fault)}"
    return f"| {names} | {_placed(case.first)} | {case.spec.name}"


def _placed(case: Diagnosed) -> str:
    low = "" if case.spec.precision == "float64" else f", {case.spec.precision}"
    return f"{case.placement.label}{low}, against {case.reference.label}"


def _words(fault: str) -> str:
    return fault.replace("_", " ")


def _cause(finding: Finding) -> str:
    return "unknown" if finding.explanation is None else finding.explanation.cause
