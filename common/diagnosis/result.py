"""What a diagnosis says: when, where and why. The same for every source of observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from parity.common.record.trace import stage_of

Confidence = Literal["confirmed", "likely"]
Source = Literal["replays", "live models", "records"]
Status = Literal["agrees", "inherits", "differs", "undecided", "not recorded"]
Verdict = Literal["parity", "divergent", "inconclusive"]

FINAL_STATE = "final state"  # how the evidence for it begins
BEFORE_FIRST = -1  # the step of what runs begin with


@dataclass(frozen=True)
class TensorComparison:
    """One tensor of a step compared with the reference's.

    name: as in `parity.common.record.trace`. replica: whose, None where it was compared for the global batch.
    deviation: relative to the largest element. where: "" or the element that is farthest off ("row of sample 17").
    by_replica: the deviation of each replica's part, where that can be known.
    """

    name: str
    replica: int | None
    deviation: float
    allowed: float
    where: str = ""
    by_replica: Mapping[int, float] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        return stage_of(self.name)

    @property
    def agrees(self) -> bool:
        return self.deviation <= self.allowed

    @property
    def replicas(self) -> frozenset[int]:
        """Those that deviate."""
        if self.replica is not None:
            return frozenset({self.replica})
        return frozenset(replica for replica, value in self.by_replica.items() if value > self.allowed)

    @property
    def parts(self) -> list[TensorComparison]:
        """The comparison, followed by each replica's part where there are several."""
        whole = replace(self, by_replica={})
        parts = self.by_replica.items() if len(self.by_replica) > 1 else ()
        return [
            whole,
            *(replace(whole, replica=replica, deviation=value, where="") for replica, value in parts),
        ]


@dataclass(frozen=True)
class StepComparison:
    """All tensors of one step, in the order in which it makes them.

    step: None for the evaluation. as_trained: each run from its own state. injected: the candidate was given
    the reference's tensors, so that each deviates only by what makes it.
    """

    step: int | None
    as_trained: tuple[TensorComparison, ...]
    injected: tuple[TensorComparison, ...]

    @property
    def first(self) -> TensorComparison | None:
        """The first tensor outside its budget, as trained."""
        return next((tensor for tensor in self.as_trained if not tensor.agrees), None)


@dataclass(frozen=True)
class StageSummary:
    """One stage of a step over all steps that were compared.

    status: "differs" by itself; "inherits" an upstream error; "undecided": rounding may have made it. step: the first at which it does not agree;
    `BEFORE_FIRST` for what the runs begin with; None where it agrees, or only after the last step differs.
    text: by how much, or what was compared, or why nothing was. deviation, allowed: at that step, the farthest;
    infinite and 0 for what must be equal.
    """

    name: str
    status: Status
    text: str
    step: int | None = None
    deviation: float = 0.0
    allowed: float = 0.0


@dataclass(frozen=True)
class Explanation:
    """Why.

    cause: its key in the catalogue. text: one sentence. fix: one line. paste: code that the fix speaks of, "" without. evidence: what was tried. defect: what is wrong
    wherever it is, so that findings with equal ones are one; "" where it is of this place alone. layers: all that have
    it, the finding's own first; none where it is of no layer.
    """

    cause: str
    text: str
    confidence: Confidence
    fix: str
    evidence: str
    # Which of the two runs is the odd one, by its label; "" where that cannot be known.
    culprit: str = ""
    defect: str = ""
    layers: tuple[str, ...] = ()
    paste: str = ""


@dataclass(frozen=True)
class Finding:
    """One defect: what deviates by itself, though given the reference's input.

    step: the first traced one that shows it (None: the evaluation); stage and name: the first tensor there.
    tensors: all that it explains, at least one. agreeing: the last ones before it that still agree.
    explanation: None where no known cause fits. code: lines of the candidate's code that compute it, 'model.py:12', and of
    the reference's, where they are known.
    """

    step: int | None
    stage: str
    name: str
    replicas: tuple[int, ...]
    tensors: tuple[TensorComparison, ...]
    agreeing: tuple[TensorComparison, ...]
    explanation: Explanation | None = None
    code: tuple[str, ...] = ()

    @property
    def deviation(self) -> float:
        return max(tensor.deviation for tensor in self.tensors)


@dataclass(frozen=True)
class When:
    """The first step outside the budget; what says so; between which steps it was searched, and how.

    step: None where only what comes after the last step differs: the final state or the evaluation;
    `BEFORE_FIRST` where recorded scripts begin otherwise. what: the first that is outside there, as records name it,
    where records say so.
    """

    step: int | None
    evidence: str
    searched: str = ""
    what: str = ""

    @property
    def only_state(self) -> bool:
        """Whether nothing but the final state shows that the runs diverge."""
        return self.step is None and self.evidence.startswith(FINAL_STATE)

    @property
    def place(self) -> str:
        """The step in words."""
        if self.step is None:
            return "after the last step"
        return "before the first step" if self.step == BEFORE_FIRST else f"at step {self.step}"


@dataclass(frozen=True)
class Diagnosis:
    """Where two runs diverge, and why.

    source: of the observations. verdict: "parity" where nothing differs; "inconclusive" where the runs diverge no
    farther than rounding takes either of them, or where that cannot be known. when: None where nothing differs.
    stages: each stage of a step, over all steps. steps: those that were traced, none for recorded scripts.
    findings: in the order of the data's way. settings: what the two are set to differently, where nothing could be
    tried. notes: what a reader must know: another precision or placement replayed than was run, what could not be
    compared, invariant violations recorded by the runs. premise: what the verdict supposes and nothing has shown, as a clause;
    "" where there is nothing. reproduced: whether the replay diverged as the runs did.
    """

    source: Source
    reference: str
    candidate: str
    name: str
    verdict: Verdict
    when: When | None
    stages: tuple[StageSummary, ...] = ()
    steps: tuple[StepComparison, ...] = ()
    findings: tuple[Finding, ...] = ()
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    premise: str = ""
    reproduced: bool = True
    seconds: float = 0.0
