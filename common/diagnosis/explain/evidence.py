"""What an explanation of one finding may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from parity.common.data.plan import BatchPlan
from parity.common.diagnosis.explain.counterfactuals import Counterfactuals, Side
from parity.common.diagnosis.result import Finding
from parity.common.record import RunRecord
from parity.common.record.trace import Trace
from parity.common.spec import Node, Placement, TrainSpec
from parity.common.state.canonical import State


@dataclass(frozen=True)
class Evidence:
    """One finding, and all that was traced around it.

    spec: resolved, as it was replayed. reference, candidate: the placements replayed. step: the finding's,
    None for the evaluation. ref: the reference's trace of it. injected: the candidate's, given the
    reference's tensors, so that each is what the candidate itself makes of those. as_trained: the candidate's as
    trained. earlier: (step, ref, injected) of the traced steps before; later: of those after. allowed: the
    largest deviation that is rounding. layers: of each layer's path the name of the tensor that is its input.
    records: of the runs themselves. state: of the evaluation, the canonical state that it is made with.
    """

    spec: TrainSpec
    reference: Placement
    candidate: Placement
    step: int | None
    ref: Trace
    injected: Trace
    injections: Sequence[State]
    as_trained: Trace | None
    earlier: Sequence[tuple[int, Trace, Trace]]
    finding: Finding
    allowed: float
    layers: Mapping[str, str]
    experiments: Counterfactuals
    records: tuple[RunRecord, RunRecord] | None = field(default=None, compare=False)
    later: Sequence[tuple[int, Trace, Trace]] = ()
    state: State | None = field(default=None, compare=False)

    @cached_property
    def tree(self) -> Node:
        """The model's layers in their places."""
        return self.spec.model.tree()

    def plan(self, which: Side) -> BatchPlan:
        """The batch plan of either run, as it should be."""
        return BatchPlan.of(self.spec, self.reference if which == "reference" else self.candidate)
