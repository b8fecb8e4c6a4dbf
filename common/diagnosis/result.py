"""What a diagnosis says: when, where and why; what a report shows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Confidence = Literal["confirmed", "likely"]

FINAL_STATE = "final state"  # how the evidence for it begins


@dataclass(frozen=True)
class Seen:
    """One tensor of a step compared with the reference's.

    name: as in `parity.common.record.trace`. replica: whose, None where it was compared for the global batch.
    deviation: relative to the largest element. where: "" or what it was found at ("row of sample 17").
    """

    stage: str
    name: str
    replica: int | None
    deviation: float
    allowed: float
    where: str = ""

    @property
    def agrees(self) -> bool:
        return self.deviation <= self.allowed


@dataclass(frozen=True)
class StepSeen:
    """All tensors of one step, in the order in which it makes them.

    step: None for the evaluation. free: as trained, each from its own state. forced: fed with the
    reference's tensors, so that each deviates by what it does itself only.
    """

    step: int | None
    free: tuple[Seen, ...]
    forced: tuple[Seen, ...]

    @property
    def first(self) -> Seen | None:
        """The first tensor outside its budget, as trained."""
        return next((seen for seen in self.free if not seen.agrees), None)


@dataclass(frozen=True)
class Explanation:
    """Why. cause: its key in the catalogue. text: one sentence. fix: one line. evidence: what was tried."""

    cause: str
    text: str
    confidence: Confidence
    fix: str
    evidence: str
    # Which of the two runs is the odd one, by its label; "" where that cannot be told.
    culprit: str = ""


@dataclass(frozen=True)
class Finding:
    """One defect: what deviates by itself, though fed the reference's input.

    step: the first traced one that shows it (None: the evaluation); stage and name: the first tensor there.
    seen: all tensors that it explains. agreeing: the last ones before it that still agree.
    explanation: None where no known cause fits.
    """

    step: int | None
    stage: str
    name: str
    replicas: tuple[int, ...]
    seen: tuple[Seen, ...]
    agreeing: tuple[Seen, ...]
    explanation: Explanation | None = None

    @property
    def deviation(self) -> float:
        return max(seen.deviation for seen in self.seen)


@dataclass(frozen=True)
class When:
    """The first step outside the budget; what says so; between which steps it was looked for, and how.

    step: None where only what comes after the last step differs: the final state or the evaluation.
    """

    step: int | None
    evidence: str
    searched: str = ""

    @property
    def only_state(self) -> bool:
        """Whether nothing but the final state says that the runs part."""
        return self.step is None and self.evidence.startswith(FINAL_STATE)


@dataclass(frozen=True)
class Diagnosis:
    """Where two runs part, and why.

    verdict: "parity" where nothing differs; "inconclusive" where the runs part no farther than rounding takes
    either of them. when: None in parity. steps: those that were looked into.
    findings: in the order of the data's way. notes: what a reader must know: another precision or
    placement replayed than was run, what could not be looked into, breaches recorded by the runs.
    reproduced: whether the replay parted as the runs did.
    """

    reference: str
    candidate: str
    spec_name: str
    verdict: Literal["parity", "divergent", "inconclusive"]
    when: When | None
    steps: tuple[StepSeen, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    reproduced: bool
    seconds: float
