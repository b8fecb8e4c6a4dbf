"""The points at which two live models are compared: which calls they are, which cannot be compared, what depends on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import TensorComparison
from parity.common.external.pairs.bench import Bench, PairTrace, compared, place_of
from parity.common.external.pairs.computations import Computation
from parity.common.external.pairs.points import Point, Segment, repaired_calls, segments_of
from parity.common.external.process.layouts import aligned
from parity.common.external.process.pass_result import Arrays, PassResult
from parity.common.parity.deviation import tensor_deviation


class ComparedPoints:
    """The points of a bench, as far as they can be compared.

    segments: what computes each of them. skipped: those not compared, since the models partition the work differently there.
    unused: those that deviate in elements alone of which Keras makes nothing, as at padding that a mask leaves out.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.segments = segments_of(bench.outlines, bench.points)
        self.skipped: list[str] = []
        self.unused: list[str] = []

    def segment_of(self, number: int) -> Segment:
        """What computes the n-th tensor of a trace; the outputs, which come last, have one together."""
        return self.segments[min(number, len(self.segments) - 1)]

    def pair_calls(self) -> None:
        """Pair the calls of layers that are called several times by what they compute."""
        points = self._bench.points
        if len({(point.keras_layer, point.linear) for point in points}) == len(points):
            return
        # What differs in training alone, as the mode of a norm does, hides nothing in inference.
        traces = [self._bench.trace(training) for training in (True, False)]

        def fits(point: Point) -> float:
            rows = (
                compared(point.name, each.expected[point.name], each.as_trained.activations.get(point.torch))
                for each in traces
            )
            return max(1.0 if row.agrees else 0.25 * np.isfinite(row.deviation) for row in rows)

        self._keep(repaired_calls(points, fits))

    def skip(self, names: Sequence[str]) -> None:
        """Compare some points no more."""
        self.skipped += names
        self.drop(names)

    def drop(self, names: Sequence[str]) -> None:
        """The same, and say nothing of it."""
        self._keep([point for point in self._bench.points if point.name not in names])

    def is_part(self, number: int) -> bool:
        """Whether the layers of the n-th tensor of a trace may be no counterparts: a stock one has the weights of one of the user's own,
        which may do more with them.
        """
        if number >= len(self._bench.points):
            return False
        point = self._bench.points[number]
        keras, torch = ({info.path: info.kind for info in outline.layers} for outline in self._bench.outlines)
        return bool(keras.get(point.keras_layer)) != bool(torch.get(point.torch_layer))

    def is_unused(self, trace: PairTrace, number: int, training: bool) -> bool:
        """Whether Keras makes the same outputs of what torch has at a point, and others where the agreeing elements are changed.

        Such a point is compared no more: what torch makes of these elements is looked for where it makes it.
        """
        bench = self._bench
        if number >= len(bench.points) or bench.trains_by_step:
            return False
        here, own, changed = bench.points[number], {}, {}
        # All calls of its layer: each takes several passes.
        for point in (each for each in bench.points if each.keras_layer == here.keras_layer):
            due, value = trace.expected[point.name], trace.injected.activations.get(point.torch)
            alignment = None if value is None else aligned(due, value, bench.layouts.values())
            if alignment is None or due.dtype.kind != "f":
                continue
            agrees, has = np.isclose(alignment.array, due, rtol=limits.LIVE_FLOAT64, atol=0), alignment.array
            if point.linear:
                # What the layer's own function makes of it is not known: any other numbers stand for it, in whole rows.
                due = trace.reference.activations[point.keras]
                if due.shape != agrees.shape:
                    continue
                agrees = np.broadcast_to(agrees.all(-1, keepdims=True), due.shape)
                has = np.where(agrees, due, 1.5 * due + 0.25)
            if agrees.any() and not agrees.all():
                own[point.keras], changed[point.keras] = has, np.where(agrees, 1.5 * due + 0.25, due)

        def moved(values: Arrays) -> bool:
            passed = bench.keras.forward(bench.inputs[0], training=training, taps=False, inject=values)
            pairs = zip(trace.reference.outputs.values(), passed.outputs.values(), strict=True)
            return any(tensor_deviation(first, second) > limits.LIVE_FLOAT64 for first, second in pairs)

        if here.keras not in own or moved(own) or not moved(changed):
            return False
        self.unused += [point.name for point in bench.points if point.keras in own]
        self._keep([point for point in bench.points if point.keras not in own])
        return True

    def partitioned_differently(self, trace: PairTrace, number: int, training: bool) -> list[str]:
        """The points from one that deviates on, where what is behind them agrees if torch goes on with its own values.

        There the models only partition the work differently: a pad, a scale, a transposition inside a layer of one side and
        between two of the other. None where something behind them deviates, and neither side makes behind the point what
        the other has there: then the point itself does.

        Args:
            trace: of both models as they are now.
            number: of the point among `trace.tensors`.
            training: the mode of the trace.
        """
        points = self._points()
        apart = [place_of(trace.tensors[number])]
        if apart[0] not in points:
            return []
        before, widened = trace.injected, 0
        wrong = self._wrong_outputs(trace)
        while widened < limits.WIDENED:
            taps = {points[name].torch for name in apart}
            kept = {tap: value for tap, value in trace.injections.items() if tap not in taps}
            if taps <= trace.misshapen:
                before = self._shifted(trace, points[apart[0]].torch, kept, training)
            after, rows = self._rows(trace, kept, training)
            moved = {name for name in rows if self._moved(name, before, after, points)}
            behind = [name for name in rows if name in moved - set(apart)]
            off = [name for name in behind if not rows[name].agrees]
            # An output that is off whatever is before it tells nothing, where something else does.
            told = [name for name in off if name not in wrong]
            agreeing = [name for name in (*behind, *apart) if rows[name].agrees]
            if not off or (agreeing and not told):
                return [name for name in apart if name not in agreeing]
            if not told or any(place not in points for place in told):
                break
            apart += told
            # One of another shape says nothing of its own: what comes after it has to.
            widened += any(points[place].torch not in trace.misshapen for place in told)
        # What is behind deviates, maybe for a reason of its own.
        return apart[:1] if self._is_made_elsewhere(trace, points[apart[0]], training) else []

    def behind(self, place: str, training: bool) -> Callable[[], tuple[float, float]]:
        """What measures in one pass how far that is off now which torch makes of a point, by itself (of outputs, and of the last point, these); and how far
        the point itself is, 0 where it cannot be compared so.
        """
        trace, points = self._bench.trace(training), self._points()
        tap = points[place].torch if place in points else None
        kept = {name: value for name, value in trace.injections.items() if name != tap}
        now, rows = self._rows(trace, kept, training)
        before = trace.injected
        if tap is not None and tap in trace.misshapen:
            before = self._shifted(trace, tap, kept, training)
        comparable = {
            name for name in rows if name not in points or points[name].torch not in trace.misshapen
        } - self._wrong_outputs(trace)
        # Of the outputs all.
        here = {place} if tap is not None else rows.keys() - points.keys()
        moved = {name for name in comparable - {place} if self._moved(name, before, now, points)} or here

        def measure() -> tuple[float, float]:
            _, rows = self._rows(trace, kept, training)
            here = rows[place].deviation if tap is not None and place in comparable else 0.0
            return max(rows[name].deviation for name in moved), here

        return measure

    def _is_made_elsewhere(self, trace: PairTrace, point: Point, training: bool) -> bool:
        """Whether torch computes behind a point what Keras has there, or Keras what torch has there; or torch has more, and crops it; or one
        ends in a function that the other goes on with: what of that differs shows behind.
        """
        bench, due = self._bench, trace.expected[point.name]
        own, later = trace.injected.activations.get(point.torch), False
        for tap, value in trace.reference.activations.items():
            is_here = tap == point.keras
            # What Keras's layer does behind what is meant comes later, too.
            if (later or (is_here and point.linear)) and own is not None and compared(tap, value, own).agrees:
                return True
            later = later or is_here
        names = [each.name for each in bench.points]
        before = {each.torch for each in bench.points[: names.index(point.name)]}
        kept = {tap: value for tap, value in trace.injections.items() if tap in before - {point.torch}}
        told = bench.torch.operations(bench.inputs[1], training=training, inject=kept)
        computation = Computation(bench.torch, told, {})
        if own is None:
            return False
        if computation.makes_behind(due, own) or (own.size > due.size and computation.crops(own, due.shape)):
            return True
        behind, last = computation.next_functions(own), computation.last_functions(own)
        if not behind | last:
            return False
        keras = Computation(bench.keras, bench.keras.operations(bench.inputs[0], training=training), {})
        return bool(keras.last_functions(due) & behind or last & keras.next_functions(due))

    def _wrong_outputs(self, trace: PairTrace) -> set[str]:
        """Outputs that deviate by themselves."""
        points = self._points()
        return {place_of(row) for row in trace.tensors if not row.agrees} - points.keys()

    def _keep(self, points: Sequence[Point]) -> None:
        self._bench.points = points
        self.segments = segments_of(self._bench.outlines, points)

    def _points(self) -> dict[str, Point]:
        return {point.name: point for point in self._bench.points}

    def _rows(
        self, trace: PairTrace, injections: Arrays, training: bool
    ) -> tuple[PassResult, dict[str, TensorComparison]]:
        """A pass of torch's, and every place and output of it compared with Keras's."""
        bench = self._bench
        passed = bench.torch.forward(bench.inputs[1], training=training, inject=injections)
        rows = [*bench.activations(trace.expected, passed), *bench.outputs(trace.reference, passed)]
        return passed, {place_of(row): row for row in rows}

    def _shifted(self, trace: PairTrace, tap: str, kept: Arrays, training: bool) -> PassResult:
        """A pass in which what a layer of torch's gives is changed: what depends on it shows; none where torch does not call it as trained."""
        if tap not in trace.as_trained.activations:
            return trace.injected
        changed = {**kept, tap: trace.as_trained.activations[tap] + 1}
        return self._bench.torch.forward(self._bench.inputs[1], training=training, inject=changed)

    @staticmethod
    def _moved(place: str, before: PassResult, after: PassResult, points: Mapping[str, Point]) -> bool:
        """Whether a place, or the outputs, differs between two passes of torch's model."""
        if place not in points:
            return any(not np.array_equal(v, after.outputs[n]) for n, v in before.outputs.items())
        tap = points[place].torch
        return not np.array_equal(before.activations.get(tap, 0), after.activations.get(tap, 0))
