"""What the explanation of one finding may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from parity.common.data.plan import BatchPlan
from parity.common.diagnosis.explain.counterfactuals import Counterfactuals, Side
from parity.common.diagnosis.result import Finding
from parity.common.record import RunRecord
from parity.common.record.trace import Array, Trace, tensor_of
from parity.common.spec import Node, Placement, TrainSpec
from parity.common.state.canonical import State
from parity.common.state.zero_gradient import zero_gradient_directions

if TYPE_CHECKING:
    from parity.common.diagnosis.explain.signatures.base import Match

R = TypeVar("R")


class TracedStep(NamedTuple):
    """A step that was traced. ref: the reference's trace of it; made: the suspect's, which was given that.

    finding: what deviates there of the same defect; None: nothing.
    """

    step: int
    ref: Trace
    made: Trace
    finding: Finding | None = None

    @property
    def given(self) -> Mapping[str, Array]:
        """The reference's tensors by name, in their shapes, as that of the case."""
        return self.ref.replicas[0]


@dataclass(frozen=True, eq=False)
class Case:
    """One finding, all that was traced around it, and which of the two runs is suspected.

    spec: resolved, as it was replayed. reference, candidate: the placements replayed. step: the finding's,
    None for the evaluation. ref: the reference's trace of it. injected: the candidate's, given the
    reference's tensors, so that each is what the candidate itself makes of those. as_trained: the candidate's as
    trained. others: the other traced steps, ascending, with what the candidate made. allowed: the largest deviation
    that is rounding. beside: the other findings of this step. layers: of each layer's path the name of the tensor that is its input. records: of the
    runs themselves. state: of the evaluation, the canonical state that it is made with.
    claim: a match at another step; a signature then tries this cause alone, with its number, and says how far what was
    made is from that. failures: of signatures that raised what they must not. memory: what several signatures need, computed once.
    """

    spec: TrainSpec
    reference: Placement
    candidate: Placement
    step: int | None
    ref: Trace
    injected: Trace
    injections: Sequence[State]
    as_trained: Trace | None
    others: Sequence[TracedStep]
    finding: Finding
    allowed: float
    layers: Mapping[str, str]
    experiments: Counterfactuals
    records: tuple[RunRecord, RunRecord] | None = None
    state: State | None = None
    suspect: Side = "candidate"
    beside: Sequence[Finding] = ()
    claim: Match | None = None
    failures: list[str] = field(default_factory=list)
    memory: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def placement(self) -> Placement:
        """The suspect's."""
        return self.candidate if self.suspect == "candidate" else self.reference

    @property
    def culprit(self) -> str:
        """The suspect's name in the records, or where there are none that of its placement."""
        records = self.records
        return (records and records[self.suspect == "candidate"].label) or self.placement.label

    @property
    def replicas(self) -> int:
        return self.placement.replicas

    @cached_property
    def plan(self) -> BatchPlan:
        """The suspect's batch plan, as it should be."""
        return BatchPlan.of(self.spec, self.placement)

    @property
    def micro_batches(self) -> int:
        """That the suspect cuts a local batch of this step into."""
        return 1 if self.step is None else self.placement.micro_batches(self.plan.epoch(self.step))

    @cached_property
    def tree(self) -> Node:
        """The model's layers in their places."""
        return self.spec.model.tree()

    @property
    def given(self) -> Mapping[str, Array]:
        """What went into the step's parts: the reference's tensors by name, in their shapes, for either suspect."""
        return self.ref.replicas[0]

    @property
    def count(self) -> float:
        """Of the global batch."""
        return float(self.given["total/count"])

    @property
    def made(self) -> Trace:
        """What the suspect made of them."""
        return self.injected if self.suspect == "candidate" else self.ref

    @cached_property
    def ids(self) -> list[Array]:
        """The sample ids, (samples,), that belong to the rows of each of the suspect's replicas."""
        if self.suspect == "reference" or not any("ids" in given for given in self.injections):
            return self.made.each("ids")
        return [np.asarray(given["ids"]) for given in self.injections]

    @cached_property
    def order(self) -> Array:
        """(global batch,): of the suspect's rows, one replica after another, those in ascending order of ids."""
        return np.argsort(np.concatenate(self.ids), kind="stable")

    @cached_property
    def bounds(self) -> list[int]:
        """Where each replica's rows begin among those of all replicas, but the first's."""
        return list(np.cumsum([len(ids) for ids in self.ids])[:-1])

    def rows(self, name: str) -> Array:
        """(global batch, ...): what the suspect made of a tensor of samples, by ascending ids."""
        rows: Array = np.concatenate(self.made.each(name))[self.order]
        return rows

    def shares(self, rows: Array) -> list[Array]:
        """(samples, ...) of each of the suspect's replicas, of rows (global batch, ...) by ascending ids."""
        back = np.empty_like(rows)
        back[self.order] = rows
        return list(np.split(back, self.bounds))

    @cached_property
    def token_mask(self) -> Array | None:
        """bool (samples, tokens): False where the input is padding."""
        pad = self.spec.model.pad_id
        return None if pad is None else self.ref.rows("inputs") != pad

    @cached_property
    def zero_gradients(self) -> frozenset[str]:
        """Tensors whose gradient is rounding noise, without `parameters/`."""
        return frozenset(zero_gradient_directions(self.spec))

    def is_zero_gradient(self, name: str) -> bool:
        """Whether a tensor of a step, by its whole name, belongs to one of these."""
        return tensor_of(name) in self.zero_gradients

    @cached_property
    def steps(self) -> list[TracedStep]:
        """All traced steps, the finding's own first."""
        here = [] if self.step is None else [TracedStep(self.step, self.ref, self.injected, self.finding)]
        own = self.suspect == "candidate"
        return [traced if own else traced._replace(made=traced.ref) for traced in (*here, *self.others)]

    def at(self, other: TracedStep, claim: Match) -> Case:
        """The same defect at another traced step, of which a claim is to hold. other: one of `others`."""
        assert self.step is not None
        here = TracedStep(self.step, self.ref, self.injected, self.finding)
        others = sorted((*(o for o in self.others if o is not other), here), key=lambda traced: traced.step)
        ids = other.made.injected_ids
        finding = other.finding or self.finding
        return replace(
            self,
            step=other.step,
            ref=other.ref,
            injected=other.made,
            injections=[{}] * len(other.made.replicas) if ids is None else [{"ids": own} for own in ids],
            as_trained=None,
            others=others,
            finding=finding,
            allowed=max(self.allowed, *(tensor.allowed for tensor in finding.tensors)),
            claim=claim,
        )

    def fitted(self, value: float) -> float:
        """A free number: what was fitted here, or what a claim says that it is."""
        return value if self.claim is None or self.claim.value is None else self.claim.value

    def in_a_row(self) -> Iterator[tuple[TracedStep, TracedStep]]:
        """Traced steps and those traced next, of which the finding's step is one."""
        pairs = pairwise(sorted(self.steps, key=lambda traced: traced.step))
        return (pair for pair in pairs if self.step in (pair[0].step, pair[1].step))


def once(compute: Callable[..., R]) -> Callable[..., R]:
    """Compute what several signatures need of a case the first time only; further arguments tell calls apart."""

    @wraps(compute)
    def computed_once(case: Case, *arguments: Any) -> R:
        key = (compute.__module__, compute.__name__, *arguments)
        if key not in case.memory:
            case.memory[key] = compute(case, *arguments)
        return cast(R, case.memory[key])

    return computed_once
