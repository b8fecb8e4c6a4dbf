"""What the search for findings on two live models knows, shared by its parts: forward, backward, buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.lint.lint import Difference
from parity.common.external.pairs.bench import Bench, place_of
from parity.common.external.pairs.compared_points import ComparedPoints
from parity.common.external.pairs.explain import Attribution, DeviatingTensor, Reversible
from parity.common.external.pairs.places import Place
from parity.common.external.pairs.points import Segment

Cause = TypeVar("Cause", Explanation, Difference)
STEP = 0


class Search:
    """Two live models, and what has been found of them.

    suspects: differences of their settings. used: those that a finding tells of. findings: until now. notes: what else a
    reader must know. injected: every comparison in which torch was given Keras's tensors. trial: what can be tried of
    the finding that is isolated now, whether what is found stays changed, and its place; attributed: its causes. agreed:
    the points that agree when it is explained. barrier: the number of the last point that deviates for a reason that
    could not be put right, -1 where there is none; barred: its finding's name. blocks_gradients: the first finding that was
    put right in the forward pass alone: what flows back to it is not what it should be. replaced: the segments of all such.
    loss_put_right: whether losses that differed are equal now, by edits of the code.
    of_evaluation_alone: the first finding that was put right where models are evaluated, and not in their training steps.
    crossed: whether layers that are called several times are so of other tensors, so that calls are no counterparts.
    """

    def __init__(
        self, bench: Bench, suspects: Sequence[Difference], findings: list[Finding], notes: list[str]
    ) -> None:
        self.bench, self.suspects, self.findings, self.notes = bench, list(suspects), findings, notes
        self.used: set[Difference] = set()
        self.compared = ComparedPoints(bench)
        self.injected: list[TensorComparison] = []
        self.trial: tuple[DeviatingTensor, bool, Place | None] | None = None
        self.attributed: Sequence[Attribution] = ()
        self.agreed: set[str] = set()
        self.barrier, self.barred = -1, ""
        self.blocks_gradients: str | None = None
        self.replaced: list[Segment] = []
        self.of_evaluation_alone: str | None = None
        self.loss_put_right = self.crossed = False

    @property
    def is_over(self) -> bool:
        """Whether the time for trying causes is over: what is found from then on would have none."""
        return self.bench.searched > limits.LONGEST_IN_ALL

    @property
    def wrong_loss(self) -> int | None:
        """The number of the first finding that says that the losses differ; None where they do not, or were put right."""
        if self.loss_put_right:
            return None
        found = (n for n, f in enumerate(self.findings) if f.stage == "loss" and f.name != "penalty")
        return next(found, None)

    def bar(self, number: int, name: str) -> None:
        """Remember a point that deviates for a reason that could not be put right, by its number and its finding's name."""
        if number >= self.barrier:
            self.barrier, self.barred = number, name

    def put_right(
        self,
        ways: Mapping[Cause, Sequence[Reversible]],
        rows: Callable[[], Callable[[Cause], Sequence[TensorComparison]]],
    ) -> dict[Cause, float]:
        """Take several causes away at once; those whose rows then agree stay so: the largest deviation of each.

        Args:
            ways: by cause the changes of which the first that can be made takes it away.
            rows: compares the models as they are now, and gives the rows of a cause.
        """
        undo: dict[Cause, Reversible] = {}
        for cause, changes in ways.items():
            made = next(filter(None, map(self.made, changes)), None)
            if made is not None:
                undo[cause] = made
        try:
            now = rows()
        except ExternalModelError:  # of two settings that belong together, one was changed
            for change in undo.values():
                change.make(self.bench)
            return {}
        kept = {
            cause: max(row.deviation for row in now(cause))
            for cause in undo
            if all(row.agrees for row in now(cause))
        }
        for cause in undo.keys() - kept.keys():
            undo[cause].make(self.bench)
        return kept

    def use(self, causes: Iterable[Explanation]) -> None:
        """Count differences of settings as told."""
        texts = {why.text for why in causes}
        self.used |= {suspect for suspect in self.suspects if suspect.text in texts}

    def made(self, way: Reversible) -> Reversible | None:
        """Make a change; the one that takes it back, None where it cannot be made."""
        try:
            return way.make(self.bench)
        except ExternalModelError:
            return None

    def add_to(self, number: int, off: Sequence[TensorComparison]) -> None:
        """Count deviations to an earlier finding."""
        old = self.findings[number]
        self.findings[number] = replace(old, tensors=(*old.tensors, *off))

    def add_to_place(self, name: str, off: Sequence[TensorComparison]) -> None:
        """Count deviations to the first finding of this name."""
        self.add_to(next(n for n, finding in enumerate(self.findings) if finding.name == name), off)

    def layer_of(self, tensor: TensorComparison) -> str:
        """Return the Keras layer that owns a tensor."""
        name = place_of(tensor).removeprefix("buffers/")
        info = next((t for t in self.bench.outlines[0].tensors if t.name == name), None)
        return name if info is None else info.layer


def finding_of(
    stage: str,
    tensors: Sequence[TensorComparison],
    agreeing: Sequence[TensorComparison] = (),
    why: Explanation | None = None,
) -> Finding:
    """Return a finding of the first of some tensors, with the last ones before it that agree."""
    shown = tuple(agreeing)[-limits.AGREEING_SHOWN :]
    return Finding(STEP, stage, tensors[0].name, (), tuple(tensors), shown, why)
