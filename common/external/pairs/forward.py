"""The points of a forward pass that deviate by themselves, in order, each put right before the next is looked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.lint.lint import Difference
from parity.common.external.pairs.another_operand import crosses_calls
from parity.common.external.pairs.bench import PairTrace, compared, of_stage, place_of
from parity.common.external.pairs.buffers import compared_buffers
from parity.common.external.pairs.explain import (
    MODE,
    Change,
    DeviatingTensor,
    Reversible,
    by_setting,
    made,
    mode_cause,
    ways_of,
)
from parity.common.external.pairs.places import CAUSE, Place, Replacement
from parity.common.external.pairs.points import Segment
from parity.common.external.pairs.search import Search, finding_of
from parity.common.external.pairs.structure import put_right_alike
from parity.common.external.process.worker import ExternalWorker

T = TypeVar("T")


class ForwardSearch:
    """The part of a search that looks at activations and outputs."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def run(self, stage: str, trace: PairTrace) -> Generator[Finding, None, PairTrace]:
        """Yield every point that deviates by itself, in order; return the last trace of the stage, forward or evaluation."""
        known: set[str] = {place_of(finding) for finding in self.search.findings}
        unexplained: list[Finding] = []  # of points that are compared no more
        for _ in range(limits.MOST_REPAIRS):
            if self.search.crossed:
                break
            off = (n for n, t in enumerate(trace.tensors) if not t.agrees and place_of(t) not in known)
            number = next(off, None)
            if number is None:
                break
            if self.search.findings and self.search.is_over:
                # What is behind may come of it.
                self.search.bar(number, self.search.findings[-1].name)
                break
            apart = self.search.compared.partitioned_differently(trace, number, stage == "forward")
            if apart:
                self.search.compared.skip(apart)
                trace = self.search.bench.trace(stage == "forward")
                continue
            if self.search.compared.is_unused(trace, number, stage == "forward"):
                trace = self.search.bench.trace(stage == "forward")
                continue
            if self._blocked(trace, number, known):
                break
            tensor = of_stage(trace.tensors[number], stage)
            known.add(place_of(tensor))
            agreeing = [of_stage(t, stage) for t in trace.tensors[:number] if t.agrees]
            training = stage == "forward"
            place = Place.of_point(self.search.bench, trace, number, training)
            segment = self.search.compared.segment_of(number)
            self.search.trial = (self._deviating(trace, number, training), True, place)
            self.search.agreed = {place_of(row) for row in self._with_buffers(trace, training) if row.agrees}
            yield finding_of(stage, [tensor], agreeing)
            if any(attribution.changes for attribution in self.search.attributed):
                unexplained = []
                trace = self._repair_alike(stage, trace, known)
                if self.search.attributed[0].explanation.cause.startswith(CAUSE):
                    if any(isinstance(c, Replacement) for a in self.search.attributed for c in a.changes):
                        # What torch sends back through an operation of its own is another gradient.
                        self.search.blocks_gradients = self.search.blocks_gradients or tensor.name
                        self.search.replaced.append(segment)
                    trace = self._behind(trace, place_of(tensor), training)
            elif (misshapen := self._misshapen(trace, number)) or (
                not (self.search.attributed or unexplained) and self.search.compared.is_part(number)
            ):
                # What is behind it may say more, if torch goes on with its own: one side may pack what the other pads, or do more in a layer.
                here = [each for each in self.search.findings if place_of(each) == place_of(tensor)]
                self.search.findings[:] = [each for each in self.search.findings if each not in here]
                unexplained = unexplained or here
                self.search.compared.drop([place_of(tensor), *misshapen])
                trace = self.search.bench.trace(training)
            else:
                self.search.findings[-1:-1] = unexplained
                unexplained = []
                self.search.bar(number, tensor.name)
                if crosses_calls(self.search.attributed):
                    self.search.crossed = True
                    self.search.notes.append(
                        f"what comes after {place_of(tensor)} could not be compared by itself: later calls are no counterparts"
                    )
        if unexplained and len(trace.tensors) == len(self.search.bench.points):
            # No outputs say whether anything comes of it.
            self.search.findings += unexplained
        self.search.injected += [of_stage(tensor, stage) for tensor in trace.tensors]
        return trace

    def keeps(self, training: bool) -> Callable[[Sequence[Reversible]], bool]:
        """Return what says whether all points that agree do so with changes, too: with those of a cause they do."""

        def keeps(changes: Sequence[Reversible]) -> bool:
            with made(self.search.bench, changes):
                rows = self._with_buffers(self.search.bench.trace(training), training)
            return all(row.agrees for row in rows if place_of(row) in self.search.agreed)

        return keeps

    def _with_buffers(self, trace: PairTrace, training: bool) -> list[TensorComparison]:
        """The tensors of a trace, and what a pass in training makes of the buffers."""
        buffers = compared_buffers(self.search.bench, trace.reference, trace.injected) if training else []
        return [*trace.tensors, *buffers]

    def _behind(self, trace: PairTrace, place: str, training: bool) -> PairTrace:
        """The trace without a place that is put right and shows it only in what is made of it."""
        if all(row.agrees for row in trace.tensors if place_of(row) == place):
            return trace
        self.search.compared.skip([place])
        return self.search.bench.trace(training)

    def _blocked(self, trace: PairTrace, number: int, known: set[str]) -> bool:
        """Whether a layer before has another shape, so that what follows could not be given what is due."""
        for before in trace.tensors[:number]:
            name = place_of(before)
            point = next((p for p in self.search.bench.points if p.name == name), None)
            if name in known and point is not None and point.torch in trace.misshapen:
                self.search.notes.append(
                    f"what comes after {name} could not be compared by itself: its output has another shape"
                )
                return True
        return False

    def _misshapen(self, trace: PairTrace, number: int) -> list[str]:
        """The points from one on that have another shape in torch; none where that one has not."""
        points = self.search.bench.points[number:]
        if not points or points[0].torch not in trace.misshapen:
            return []
        return [point.name for point in points if point.torch in trace.misshapen]

    def _repair_alike(self, stage: str, before: PairTrace, known: set[str]) -> PairTrace:
        """Put the same right in all layers that have it too, at once: a default differs everywhere. The next trace."""
        training = stage == "forward"
        ways: dict[Explanation, Sequence[Reversible]] = {}
        places: dict[Explanation, list[int]] = {}
        names = [place_of(tensor) for tensor in before.tensors]
        off = [n for n, t in enumerate(before.tensors) if not t.agrees and names[n] not in known]
        for number in off:
            for why, changes in self._elsewhere(self.search.compared.segment_of(number)):
                ways[why] = changes
                places.setdefault(why, []).append(number)
        for number, why, change in self._computed_elsewhere(before, off, training):
            ways[why] = [change]
            places[why] = [number]
        trace = self.search.bench.trace(training)
        if not ways:
            return trace

        def rows() -> Callable[[Explanation], list[TensorComparison]]:
            nonlocal trace
            trace = self.search.bench.trace(training)
            now = {place_of(row): row for row in trace.tensors}
            return lambda why: [now[names[number]] for number in places[why]]

        kept = self.search.put_right(ways, rows)
        for why, deviation in kept.items():
            here = [of_stage(before.tensors[number], stage) for number in places[why]]
            evidence = (
                f"by experiment: set in {len(ways)} more layers at once, with it the deviation is {deviation:.2g} instead"
                f" of {here[0].deviation:.2g}"
            )
            self.search.findings.append(finding_of(stage, here, why=replace(why, evidence=evidence)))
            known |= {names[number] for number in places[why]}
            if why.cause.startswith(CAUSE):
                self.search.replaced += map(self.search.compared.segment_of, places[why])
        self.search.use(kept)
        return self.search.bench.trace(training) if len(kept) < len(ways) else trace

    def _computed_elsewhere(
        self, trace: PairTrace, numbers: Collection[int], training: bool
    ) -> Iterator[tuple[int, Explanation, Replacement]]:
        """The same of an operation that has just been found to be the cause: at which points, as it would be there, and what takes it away."""
        for found in (each for each in self.search.attributed if each.by is not None):
            points = self.search.bench.points
            places = {
                n: Place.of_point(self.search.bench, trace, n, training) for n in numbers if n < len(points)
            }
            whole = {n: replace(p, injections=trace.injections) for n, p in places.items() if p is not None}
            for number, change in put_right_alike(self.search.bench, found, whole).items():
                yield number, replace(found.explanation, layers=(points[number].keras_layer,)), change

    def _elsewhere(self, segment: Segment) -> Iterator[tuple[Explanation, Sequence[Change]]]:
        """What has just been found to be the cause, as it would be in another segment, and what takes it away there."""
        for why, changes in ((a.explanation, a.changes) for a in self.search.attributed):
            for suspect in self.search.suspects:
                alike = f"setting:{suspect.setting}" == why.cause and suspect.defect == why.defect
                if alike and suspect not in self.search.used and segment.holds(suspect.keras, suspect.torch):
                    yield by_setting(suspect, "confirmed", ""), ways_of(suspect)
            point = segment.point
            for way in changes if why.cause == MODE and point is not None else ():
                assert isinstance(way, Change) and point is not None
                layer = point.torch_layer if way.side == "torch" else point.keras_layer
                yield mode_cause(self.search.bench, way.side, point, ""), [replace(way, layer=layer)]

    def _deviating(self, trace: PairTrace, number: int, training: bool) -> DeviatingTensor:
        segment = self.search.compared.segment_of(number)
        return DeviatingTensor(
            self.search.bench,
            segment,
            [s for s in self.search.suspects if s not in self.search.used and _may_show(s, training)],
            self._by_itself(segment, trace, number, training),
            trace.tensors[number].deviation,
        )

    def _by_itself(
        self, segment: Segment, trace: PairTrace, number: int, training: bool
    ) -> Callable[[], float]:
        """What measures the deviation of a segment's point, or of one of the outputs behind all points, with the models as they are then."""
        bench, point = self.search.bench, segment.point
        due = {
            p.keras: trace.reference.activations[p.keras]
            for p in bench.points
            # A function that belongs to the segment is at the end of the layer before it.
            if f"{p.keras_layer}/activation" not in segment.keras or p == point
        }
        if point is None:
            outputs = _while_unaltered(
                bench.keras,
                lambda: bench.keras.forward(bench.inputs[0], training=training, taps=False, inject=due),
            )

            def of_output() -> float:
                passed = bench.torch.forward(
                    bench.inputs[1], training=training, taps=False, inject=trace.injections
                )
                return bench.outputs(outputs(), passed)[number - len(bench.points)].deviation

            return of_output
        own = _while_unaltered(bench.keras, lambda: bench.keras_own(point, due, training))

        def of_point() -> float:
            passed = bench.torch.forward(
                bench.inputs[1], training=training, taps=[point.torch], inject=trace.injections
            )
            return compared(f"forward/{point.name}", own(), passed.activations.get(point.torch)).deviation

        return of_point


def _while_unaltered(worker: ExternalWorker, compute: Callable[[], T]) -> Callable[[], T]:
    """What `compute` gives, computed again only once the worker's model has been altered: most is tried on the other one."""
    kept: dict[int, T] = {}

    def get() -> T:
        if worker.alterations not in kept:
            made = compute()
            kept.clear()
            # It may have set something, and set it back.
            kept[worker.alterations] = made
        return kept[worker.alterations]

    return get


def _may_show(suspect: Difference, training: bool) -> bool:
    """Whether a difference of settings may change what a layer gives."""
    drops = suspect.kind.endswith("dropout") or suspect.setting.endswith("dropout")
    return suspect.changes in ("forward", "layout") or (training and drops)
