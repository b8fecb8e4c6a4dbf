"""What the diagnosis said of every planted fault, as the Markdown page docs/faults.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parity.common.diagnosis.result import Diagnosis, Finding
from parity_tests import diagnosis_tensorflow, diagnosis_torch
from parity_tests.diagnosis_cases import FaultCase, FaultPair

CASES: list[FaultCase] = [*diagnosis_torch.CASES, *diagnosis_tensorflow.CASES]
PAIRS: list[FaultPair] = [*diagnosis_torch.PAIRS, *getattr(diagnosis_tensorflow, "PAIRS", [])]

BEHAVIOURS = {
    1: "replica gradients never summed",
    2: "mean of replica means",
    3: "micro-batches averaged though their sizes differ",
    4: "world size not cancelled, or twice",
    5: "accumulation not divided out, or twice",
    6: "moments averaged over replicas",
    7: "`no_sync` left on for the last micro-batch",
    8: "a parameter outside what is reduced",
    9: "a parameter reduced in the first step only",
    10: "replicas start from different weights",
    11: "stale parameters",
    12: "clipped before the reduction",
    13: "clipped by the local norm",
    14: "clipping silently off",
    15: "gradients not zeroed",
    16: "decay coupled or decoupled, or of the wrong tensors",
    17: "Adam's bias correction and epsilon",
    18: "momentum and Nesterov",
    19: "batch norm's epsilon, momentum, running variance",
    20: "batch norm's statistics: of which replicas",
    21: "training mode and inference mode",
    22: "order of the samples",
    23: "shares of the replicas",
    24: "labels shifted against inputs",
    25: "schedule",
    26: "augmentation and dropout keyed wrongly",
    27: "kernel transposed",
    28: "order of flattening",
    29: "padding on the other side",
    30: "gates and biases",
    31: "attention's scale, mask and axis",
    32: "layer norm's epsilon, GELU",
    33: "float32 in a float64 path",
    34: "loss scale and overflow",
    35: "reduced in low precision",
}

_HEAD = """# Faults, and what the diagnosis says of them

Written by `scripts/test -m "" parity_tests/test_diagnosis.py --diagnoses=docs/faults.md`; do not edit.

Each fault is a silent bug from the frameworks' history, planted in one side of a pair of runs. `parity diagnose`
is given the two records, and must say in which tensor of which stage they part first, and why. *Detected*: it says
that they part. *Place*: stage and tensor are those where the fault is. *Cause*: the catalogue's entry is the right
one. What was expected is written beside each fault in `parity_tests/diagnosis_torch.py` and
`parity_tests/diagnosis_tensorflow.py`; a miss is **bold**.
"""


@dataclass(frozen=True)
class Outcome:
    """What was said of one fault; `diagnosis` is None where there was none, for `error`."""

    case: FaultCase
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
        path.write_text(text, encoding="utf-8")


def _totals(outcomes: Sequence[Outcome], pairs: Sequence[PairOutcome]) -> str:
    rows = [
        ("detected", sum(o.detected for o in outcomes), len(outcomes), 1.0),
        ("place", sum(o.placed for o in outcomes), len(outcomes), 0.95),
        ("cause", sum(o.named for o in outcomes), len(outcomes), 0.9),
        ("both of a pair", sum(all(p.found) for p in pairs), len(pairs), 0.8),
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
    where = _placed(case)
    return f"| | {_words(case.fault)} | {where} | {case.spec.name} | {said} |\n"


def _pair_row(outcome: PairOutcome) -> str:
    pair = outcome.pair
    findings = () if outcome.diagnosis is None else outcome.diagnosis.findings
    said = "; ".join(f"{f.stage} `{f.name}` {_cause(f)}" for f in findings) or outcome.error or "none"
    both = "yes" if all(outcome.found) else "**no**"
    names = f"{_words(pair.first.fault)}; {_words(pair.second.fault)}"
    return f"| {names} | {_placed(pair.first)} | {pair.spec.name} | {said} | {both} |\n"


def _placed(case: FaultCase) -> str:
    low = "" if case.spec.precision == "float64" else f", {case.spec.precision}"
    return f"{case.placement.label}{low}, against {case.reference.label}"


def _words(fault: str) -> str:
    return fault.replace("_", " ")


def _cause(finding: Finding) -> str:
    return "unknown" if finding.explanation is None else finding.explanation.cause
