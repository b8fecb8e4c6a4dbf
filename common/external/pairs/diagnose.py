"""The source of two live models in float64: where they diverge, each layer of torch's given what Keras's was, and why.

One fault is one finding: Keras's tensors are injected into a layer, so that what a fault before it made does not
count; a setting that is found to be the cause is put right on the live model before the search goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from rich.console import Console

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import core, limits
from parity.common.diagnosis.result import (
    Diagnosis,
    Explanation,
    Finding,
    StepComparison,
    TensorComparison,
    When,
)
from parity.common.external.lint.lint import Difference
from parity.common.external.pairs.bench import (
    OUTPUT,
    Bench,
    PairTrace,
    compared,
    decides,
    exact_constants,
    gradients,
    losses,
    of_stage,
    place_of,
    rounded_constants,
    taken_apart,
)
from parity.common.external.pairs.explain import (
    MODE,
    Attribution,
    Change,
    DeviatingTensor,
    by_setting,
    explained,
    made,
    mode_cause,
    ways_of,
)
from parity.common.external.pairs.frozen import frozen_cause
from parity.common.external.pairs.loss_causes import loss_cause
from parity.common.external.pairs.places import Places
from parity.common.external.pairs.points import Point, Segment
from parity.common.external.pairs.structure import Alteration, Structure
from parity.common.external.pairs.updates import Updates
from parity.common.external.process.pass_result import Arrays, PassResult
from parity.common.parity.deviation import tensor_deviation

_STAGES = ("before", "forward", "loss", "backward", "gradient", "buffers", "evaluation", "update")
_PASSES = ("forward", "evaluation")
_THERE = "it is where the two diverge"
_STEP = 0


def diagnose_pair(
    bench: Bench,
    suspects: Sequence[Difference],
    updates: Updates | None = None,
    when: When | None = None,
    console: Console | None = None,
) -> Diagnosis:
    """Return where and why two models diverge; their settings are left as the search has changed them.

    Args:
        bench: both, with equal weights.
        suspects: differences of their settings.
        updates: of the users' own optimizers, where these were compared.
        when: what a training showed; None: nothing was trained.
        console: where progress is reported.
    """
    return core.run(PairSource(bench, suspects, updates, when, console))


class PairSource(core.ObservationSource):
    """Two live models; the arguments are those of `diagnose_pair`."""

    def __init__(
        self,
        bench: Bench,
        suspects: Sequence[Difference],
        updates: Updates | None,
        when: When | None,
        console: Console | None,
    ) -> None:
        super().__init__(console)
        self.bench, self.suspects = bench, list(suspects)
        self.updates, self.when = updates, when
        self.used: set[Difference] = set()
        self.places = Places(bench)
        self.structure = Structure(bench)
        self.as_trained: list[TensorComparison] = []
        self.injected: list[TensorComparison] = []
        # What can be tried of the finding that is isolated now, whether what is found is kept, and what was.
        self._trial: tuple[DeviatingTensor, bool] | None = None
        self._attributed: Sequence[Attribution] = ()
        # The places that agree when it is explained.
        self._agreed: set[str] = set()
        # The last point, in order, that deviates for a reason that could not be put right; its finding's name.
        self._barrier = -1
        self._barred = ""

    def observe(self) -> None:
        weights = self._weights()
        # Of the models as they are: what is put right later may use other constants.
        rounded = rounded_constants(self.bench)
        if rounded is not None:
            self.notes.append(rounded)
        # Constants that Keras takes through float32 are no fault of a port.
        with exact_constants(self.bench):
            self.places.pair_calls()
            first, self.as_trained = self._passes(weights)
            if all(tensor.agrees for tensor in self.as_trained if decides(tensor)):
                off = {place_of(tensor) for tensor in self.as_trained if not tensor.agrees}
                off |= {place_of(tensor) for tensor in first.tensors if not tensor.agrees}
                if off:
                    self.places.leave_out(sorted(off))
                    first, self.as_trained = self._passes(weights)
        self._first = first
        self.injected = [*weights]
        places = [(stage, place_of(tensor)) for stage in _PASSES for tensor in first.tensors]
        self._order = {f"{stage}/{place}": number for number, (stage, place) in enumerate(places)}

    def isolate(self) -> Iterator[Finding]:
        off = [tensor for tensor in self.injected if not tensor.agrees]
        if off:
            yield _finding("before", off)
        with exact_constants(self.bench):
            last = yield from self._forward("forward", self._first)
            yield from self._loss(last)
            yield from self._penalty(last)
            yield from self._backward(last)
            yield from self._buffers(last)
            evaluated = self.bench.trace(False)
            tensors = [of_stage(tensor, "evaluation") for tensor in evaluated.tensors]
            self._claim([tensor for tensor in tensors if not tensor.agrees])
            yield from self._forward("evaluation", evaluated)

    def explain(self, finding: Finding) -> Sequence[Finding]:
        self._attributed = ()
        if self._trial is None:
            return [finding]
        self.say(f"{finding.stage}: {finding.name} deviates by {finding.deviation:.2g}; trying why")
        tensor, kept = self._trial
        self._trial = None
        training = finding.stage != "evaluation"
        self._attributed = explained(tensor)
        connected = any(each.explanation.cause in ("added", "left_out") for each in self._attributed)
        if finding.stage in _PASSES and (connected or not self._attributed):
            measure = self.places.around(place_of(finding), training)
            found = self.structure.causes(tensor, training, measure, self._keeps(training), connected)
            self._attributed = found or self._attributed
        texts = {attribution.explanation.text for attribution in self._attributed}
        self.used |= {suspect for suspect in self.suspects if suspect.text in texts}
        for attribution in self._attributed if kept else ():
            for change in attribution.changes:
                change.make(self.bench)
        return [replace(finding, explanation=a.explanation) for a in self._attributed] or [finding]

    def conclude(self) -> Diagnosis:
        findings, when, updates = self.findings, self.when, self.updates
        findings.sort(key=lambda finding: (_STAGES.index(finding.stage), self._order.get(finding.name, 0)))
        if self.bench.unshared is not None:
            layers, confirmed = self.bench.unshared
            text = f"Keras calls {layers[0]} several times with the same weights, and torch has {layers[1]}, each with its own"
            fix = f"call one of {layers[1]} each time in torch"
            evidence = "by experiment: with equal weights in these the outputs agree; each is trained by its own gradient"
            if not confirmed:
                evidence = "read from the live models: as many calls, and tensors of the same shapes"
            why = Explanation(
                "structure:unshared", text, "confirmed" if confirmed else "likely", fix, evidence
            )
            name = f"update/{layers[0]}"
            findings.append(
                _finding("update", [TensorComparison(name, None, math.inf, limits.LIVE_FLOAT64)], why=why)
            )
        if updates is not None:
            self.injected += updates.tensors
            self.as_trained += updates.tensors
            findings += updates.findings
            self.notes += updates.notes
        if when is not None or findings or taken_apart(self.bench):
            findings += self._by_rules()
        if when is not None and not findings:
            self.notes.append(
                "no isolated stage of one step deviates: what made the runs diverge is in how they were run"
            )
        if self.places.left_out:
            self.notes.append(
                f"not compared by themselves, since the two models divide the work otherwise there: {', '.join(self.places.left_out)};"
                " what is behind them agrees"
            )
        self._note_the_rest()
        off = any(not tensor.agrees for tensor in self.as_trained if decides(tensor))
        diverge = bool(findings) or when is not None or off
        keras, torch = self.bench.outlines
        return Diagnosis(
            "live models",
            f"keras {keras.target}",
            f"torch {torch.target}",
            "pair",
            "divergent" if diverge else "parity",
            (when or _when(self.as_trained, findings)) if diverge else None,
            steps=(StepComparison(_STEP, tuple(self.as_trained), tuple(self.injected)),),
            findings=tuple(findings),
            notes=tuple(self.notes),
            reproduced=diverge,
        )

    # What is observed.

    def _weights(self) -> list[TensorComparison]:
        """The state that both begin with."""
        bench = self.bench
        ours, theirs = bench.keras.read(), bench.mapping.to_keras(bench.torch.read())
        deviations = {name: tensor_deviation(ours[name], theirs[name]) for name in ours if name in theirs}
        return [
            TensorComparison(f"before/parameters/{name}", None, deviation, limits.INJECTED_FLOAT64)
            for name, deviation in deviations.items()
        ]

    def _passes(self, weights: Sequence[TensorComparison]) -> tuple[PairTrace, list[TensorComparison]]:
        """The trace in training; and the models as they are in training and in inference, tensor by tensor."""
        bench, trace, evaluated = self.bench, self.bench.trace(True), self.bench.trace(False)
        reference, passed = trace.reference, trace.as_trained
        found = [*weights, *bench.activations(trace.expected, passed), *bench.outputs(reference, passed)]
        found += [*losses(bench, reference, passed), *gradients(bench, reference, passed)]
        found += self._buffers_now(reference, passed)
        outputs = bench.outputs(evaluated.reference, evaluated.as_trained)
        return trace, found + [of_stage(tensor, "evaluation") for tensor in outputs]

    # What deviates by itself.

    def _forward(self, stage: str, trace: PairTrace) -> Generator[Finding, None, PairTrace]:
        """Yield every point that deviates by itself, in order; return the last trace."""
        known: set[str] = {place_of(finding) for finding in self.findings}
        for _ in range(limits.MOST_REPAIRS):
            off = (n for n, t in enumerate(trace.tensors) if not t.agrees and place_of(t) not in known)
            number = next(off, None)
            if number is None:
                break
            apart = self.places.cut_otherwise(trace, number, stage == "forward")
            if apart:
                self.places.leave_out(apart)
                trace = self.bench.trace(stage == "forward")
                continue
            if self._blocked(trace, number, known):
                break
            tensor = of_stage(trace.tensors[number], stage)
            known.add(place_of(tensor))
            agreeing = [of_stage(t, stage) for t in trace.tensors[:number] if t.agrees]
            self._trial = (self._deviating(trace, number, stage == "forward"), True)
            self._agreed = {place_of(row) for row in trace.tensors if row.agrees}
            yield _finding(stage, [tensor], agreeing)
            if any(attribution.changes for attribution in self._attributed):
                trace = self._repair_alike(stage, trace, known)
                if self._attributed[0].explanation.cause.startswith("structure:"):
                    trace = self._behind(trace, place_of(tensor), stage == "forward")
            else:
                self._barrier = max(self._barrier, number)
                self._barred = of_stage(trace.tensors[self._barrier], stage).name
        self.injected += [of_stage(tensor, stage) for tensor in trace.tensors]
        return trace

    def _keeps(self, training: bool) -> Callable[[Sequence[Alteration]], bool]:
        """Whether all places that agree do so with changes, too: with those of a cause they do."""

        def keeps(changes: Sequence[Alteration]) -> bool:
            with made(self.bench, changes):
                rows = self.bench.trace(training).tensors
            return all(row.agrees for row in rows if place_of(row) in self._agreed)

        return keeps

    def _behind(self, trace: PairTrace, place: str, training: bool) -> PairTrace:
        """The trace without a place that is put right and shows it only in what is made of it."""
        if all(row.agrees for row in trace.tensors if place_of(row) == place):
            return trace
        self.places.leave_out([place])
        return self.bench.trace(training)

    def _blocked(self, trace: PairTrace, number: int, known: set[str]) -> bool:
        """Whether a layer before has another shape, so that what follows could not be given what is due."""
        for before in trace.tensors[:number]:
            name = place_of(before)
            point = next((p for p in self.bench.points if p.name == name), None)
            if name in known and point is not None and point.torch in trace.misshapen:
                self.notes.append(
                    f"what comes after {name} could not be compared by itself: its output has another shape"
                )
                return True
        return False

    def _repair_alike(self, stage: str, before: PairTrace, known: set[str]) -> PairTrace:
        """Put the same right in all layers that have it too, at once: a default differs everywhere. The next trace."""
        if self._attributed[0].explanation.cause == MODE:
            return self._modes_alike(before, known)
        texts = {attribution.explanation.text for attribution in self._attributed}
        alike = {_values(s) for s in self.used if s.text in texts}
        tried: dict[Difference, Change] = {}  # and what takes the change back
        for suspect in self.suspects:
            if suspect not in self.used and _values(suspect) in alike:
                undo = next(filter(None, map(self._made, ways_of(suspect))), None)
                if undo is not None:
                    tried[suspect] = undo
        trace = self.bench.trace(stage == "forward")
        if not tried:
            return trace
        repaired: set[Difference] = set()
        for was, tensor, segment in zip(before.tensors, trace.tensors, self.places.segments, strict=True):
            name = place_of(tensor)
            if was.agrees or not tensor.agrees or name in known:
                continue
            for suspect in (s for s in tried if s not in repaired and segment.holds(s.keras, s.torch)):
                evidence = (
                    f"by experiment: set in {len(tried)} more layers at once, with it the deviation is"
                    f" {tensor.deviation:.2g} instead of {was.deviation:.2g}"
                )
                why = by_setting(suspect, "confirmed", evidence)
                self.findings.append(_finding(stage, [of_stage(was, stage)], why=why))
                repaired.add(suspect)
                known.add(name)
        self.used |= repaired
        others = [undo for suspect, undo in tried.items() if suspect not in repaired]
        for undo in others:
            undo.make(self.bench)
        return self.bench.trace(stage == "forward") if others else trace

    def _modes_alike(self, before: PairTrace, known: set[str]) -> PairTrace:
        """Put the mode of all batch norms right that need it as the one just found does: one finding. The next trace."""
        finding = self.findings[-1]
        (way,) = self._attributed[0].changes
        assert isinstance(way, Change) and finding.explanation is not None
        tried: dict[Point, tuple[Change, TensorComparison]] = {}
        for was, point in zip(before.tensors, self.bench.points, strict=False):
            layer = point.torch_layer if way.side == "torch" else point.keras_layer
            if not was.agrees and place_of(was) not in known and layer != way.layer:
                undo = self._made(replace(way, layer=layer))
                if undo is not None:
                    tried[point] = undo, was
        trace = self.bench.trace(True)
        agreeing = {place_of(tensor) for tensor in trace.tensors if tensor.agrees}
        others = [undo for point, (undo, _) in tried.items() if point.name not in agreeing]
        for undo in others:
            undo.make(self.bench)
        alike = [point for point in tried if point.name in agreeing]
        known |= {point.name for point in alike}
        first = next(point for point in self.bench.points if point.name == place_of(finding))
        evidence = finding.explanation.evidence
        if alike:
            evidence += f"; so set in {len(alike)} more at once, these agree too"
        why = mode_cause(self.bench, way.side, [first, *alike], evidence)
        rows = [of_stage(tried[point][1], finding.stage) for point in alike]
        self.findings[-1] = replace(finding, tensors=(*finding.tensors, *rows), explanation=why)
        return self.bench.trace(True) if others else trace

    def _made(self, way: Change) -> Change | None:
        """Make a change; the one that takes it back, None where it cannot be made."""
        try:
            return way.make(self.bench)
        except ExternalModelError:
            return None

    def _deviating(self, trace: PairTrace, number: int, training: bool) -> DeviatingTensor:
        segment, injections = self.places.segments[number], trace.injections
        return DeviatingTensor(
            self.bench,
            segment,
            [
                s
                for s in self.suspects
                if (s.changes in ("forward", "layout") or (training and s.kind.endswith("dropout")))
                and s not in self.used
            ],
            lambda more: self._by_itself(segment, trace, {**injections, **more}, training),
            trace.tensors[number].deviation,
            trace.reference.activations,
            trace.as_trained.activations,
        )

    def _by_itself(self, segment: Segment, trace: PairTrace, injections: Arrays, training: bool) -> float:
        """The deviation of a segment's point, or of the outputs, with the models as they are now."""
        bench, point = self.bench, segment.point
        due = {
            p.keras: trace.reference.activations[p.keras]
            for p in bench.points
            # A function that belongs to the segment is at the end of the layer before it.
            if f"{p.keras_layer}/activation" not in segment.keras or p == point
        }
        if point is None:
            ours = bench.keras.forward(bench.inputs[0], training=training, taps=False, inject=due)
            theirs = bench.torch.forward(bench.inputs[1], training=training, taps=False, inject=injections)
            return max(tensor.deviation for tensor in bench.outputs(ours, theirs))
        own = bench.keras_own(point, due, training)
        passed = bench.torch.forward(
            bench.inputs[1], training=training, taps=[point.torch], inject=injections
        )
        return compared(f"forward/{point.name}", own, passed.activations.get(point.torch)).deviation

    def _loss(self, trace: PairTrace) -> Iterator[Finding]:
        tensors = losses(self.bench, trace.reference, trace.injected)
        self.injected += tensors
        off = [tensor for tensor in tensors if not tensor.agrees]
        if off and self._barrier >= 0:
            # What a layer that could not be put right makes of what is behind it.
            self._add_to(next(n for n, f in enumerate(self.findings) if f.name == self._barred), off)
        elif off:
            # Ours is one formula in either framework.
            own = any(term.own is not None for term in self.bench.losses[0].terms)
            yield _finding("loss", off, why=loss_cause(self.bench) if own else None)

    def _penalty(self, trace: PairTrace) -> Iterator[Finding]:
        """What Keras's model adds to its loss, and torch's does not."""
        if not trace.reference.penalty:
            return
        penalties = [s for s in self.suspects if s.setting.endswith("_regularizer")]
        self.used |= set(penalties)
        if self.bench.decayed:
            self.notes.append(self.bench.decayed)
            return
        what = "; ".join(s.text for s in penalties) or "add_loss or an activity regularizer"
        text = (
            f"Keras's model adds {trace.reference.penalty:.3g} to its mean loss, and torch's nothing: {what}"
        )
        fix = "add the same to the loss in torch, or leave it out in Keras"
        evidence = (
            "read from the live models: without it the losses were compared, with it they differ by this much"
        )
        why = Explanation("penalty", text, "confirmed", fix, evidence)
        yield _finding("loss", [TensorComparison("penalty", None, math.inf, limits.LIVE_FLOAT64)], why=why)

    def _backward(self, trace: PairTrace) -> Iterator[Finding]:
        """What flows back to each layer's output, from the loss on, then the gradients of the parameters."""
        flowing = []
        for point in reversed(self.bench.points):
            due = trace.reference.activation_gradients.get(point.keras)
            own = trace.injected.activation_gradients.get(point.torch)
            if point.linear or due is None or own is None or point.torch in trace.misshapen:
                continue
            flowing.append(compared(f"backward/{point.name}", due, own))
        self.injected += flowing
        reduced = gradients(self.bench, trace.reference, trace.injected)
        self.injected += reduced
        reduced = yield from self._frozen(trace, reduced)
        reduced = yield from self._backward_settings(trace, reduced)
        # What flows back to a place only locates.
        if any(not tensor.agrees for tensor in reduced):
            yield from self._first_of("backward", flowing)
        if not any(finding.stage == "backward" for finding in self.findings):
            yield from self._first_of("gradient", reduced)

    def _frozen(
        self, trace: PairTrace, rows: Sequence[TensorComparison]
    ) -> Generator[Finding, None, list[TensorComparison]]:
        """Yield what one side alone trains, all that either side freezes as one finding; return the other rows."""
        bench = self.bench
        for side in ("keras", "torch"):
            names = {name for name, frozen in bench.frozen.items() if frozen == side}
            if not names:
                continue
            torch = {t for pair in bench.mapping.tensors if names & set(pair.keras) for t in pair.torch}
            ours = bench.reference(True, also=sorted(names if side == "keras" else ()))
            theirs = bench.torch_pass(True, trace.injections, sorted(torch if side == "torch" else ()))
            now = [row for row in gradients(bench, ours, theirs) if place_of(row) in names]
            off = [row for row in rows if place_of(row) in names] or [replace(now[0], deviation=math.inf)]
            yield _finding("gradient", off, why=frozen_cause(bench, side, names, torch, now))
        layers = {info.name: info.layer for info in bench.outlines[0].tensors}
        held = {layers[name] for name in bench.frozen}
        self.used |= {s for s in self.suspects if s.setting == "trainable" and s.keras in held}
        return [row for row in rows if place_of(row) not in bench.frozen]

    def _backward_settings(
        self, trace: PairTrace, rows: list[TensorComparison]
    ) -> Generator[Finding, None, list[TensorComparison]]:
        """Yield gradients that agree with a setting alike that changes nothing else; return the other rows."""
        bench = self.bench
        for suspect in [s for s in self.suspects if s.changes == "backward" and s not in self.used]:
            off = [row for row in rows if not row.agrees and self._layer_of(row) == suspect.keras]
            undo = next(filter(None, map(self._made, ways_of(suspect))), None) if off else None
            if undo is None:
                continue
            passes = bench.reference(True), bench.torch_pass(True, trace.injections)
            now = {place_of(row): row for row in gradients(bench, *passes)}
            if not all(place_of(row) in now and now[place_of(row)].agrees for row in off):
                undo.make(bench)
                continue
            self.used.add(suspect)
            worst = max(now[place_of(row)].deviation for row in off)
            evidence = f"by experiment: with it alike the gradient deviates by {worst:.2g} instead of {off[0].deviation:.2g}"
            why = by_setting(suspect, "confirmed", evidence)
            if suspect.setting == "padding_id":
                row = suspect.keras_value if suspect.torch_value is None else suspect.torch_value
                why = replace(
                    why, text=f"{why.text}: only the gradient of row {row} differs, which is left out there"
                )
            yield _finding("gradient", off, why=why)
            rows = [row for row in rows if row not in off]
        return rows

    def _first_of(self, stage: str, tensors: Sequence[TensorComparison]) -> Iterator[Finding]:
        """The first of a backward pass that deviates, with the others, which may follow from it."""
        off = [tensor for tensor in tensors if not tensor.agrees]
        if not off:
            return
        losses = (n for n, f in enumerate(self.findings) if f.stage == "loss" and f.name != "penalty")
        number = next(losses, None)
        if number is not None:
            # What another loss sends back.
            self._add_to(number, off)
            return
        if self._barrier >= 0:
            # A layer that could not be put right is wrong in its backward pass, too.
            places = enumerate(self.findings)
            self._add_to(next(n for n, f in places if f.explanation is None or f.stage == "forward"), off)
            return
        agreeing = [tensor for tensor in tensors[: tensors.index(off[0])] if tensor.agrees]
        yield _finding(stage, off, agreeing)

    def _add_to(self, number: int, off: Sequence[TensorComparison]) -> None:
        """Count deviations to an earlier finding."""
        old = self.findings[number]
        self.findings[number] = replace(old, tensors=(*old.tensors, *off))

    def _claim(self, off: Sequence[TensorComparison]) -> None:
        """Count what deviates in inference to the finding of the same place in training."""
        for number, finding in enumerate(self.findings):
            mine = [tensor for tensor in off if place_of(tensor) == place_of(finding)]
            if mine and finding.stage == "forward":
                self._add_to(number, mine)

    def _layer_of(self, tensor: TensorComparison) -> str:
        name = place_of(tensor).removeprefix("buffers/")
        info = next((t for t in self.bench.outlines[0].tensors if t.name == name), None)
        return name if info is None else info.layer

    def _buffers(self, trace: PairTrace) -> Iterator[Finding]:
        """What a pass in training made of them, each layer by itself."""
        tensors = self._buffers_now(trace.reference, trace.injected)
        self.injected += tensors
        by_layer: dict[str, list[TensorComparison]] = {}
        for tensor in tensors:
            if not tensor.agrees:
                by_layer.setdefault(self._layer_of(tensor), []).append(tensor)
        for layer, mine in by_layer.items():
            suspects = [s for s in self.suspects if s.changes == "training mode" and s.keras == layer]
            # What a layer was given, or makes of it, is wrong in its buffers, too.
            same = (n for n, f in enumerate(self.findings) if place_of(f).split("/before_act")[0] == layer)
            number = next(same, None)
            apart = self._barrier >= 0 or layer in self.places.left_out
            if number is not None and apart and not suspects:
                self._add_to(number, mine)
                continue
            torch = frozenset(s.torch for s in suspects if s.torch)
            segment = Segment(None, (), frozenset({layer}), torch)
            measure = partial(self._buffers_apart, trace, {tensor.name for tensor in mine})
            worst = max(tensor.deviation for tensor in mine)
            deviating = DeviatingTensor(self.bench, segment, suspects, measure, worst)
            self._trial = (deviating, False) if suspects else None
            yield _finding("buffers", mine)

    def _buffers_apart(self, trace: PairTrace, names: set[str], more: Arrays) -> float:
        """The largest deviation of some buffers after a pass of the models as they are now."""
        bench, injections = self.bench, {**trace.injections, **more}
        due = {p.keras: trace.reference.activations[p.keras] for p in bench.points}
        ours = bench.keras.forward(bench.inputs[0], training=True, taps=False, inject=due)
        theirs = bench.torch.forward(bench.inputs[1], training=True, taps=False, inject=injections)
        return max(t.deviation for t in self._buffers_now(ours, theirs) if t.name in names)

    def _buffers_now(self, ours: PassResult, theirs: PassResult) -> list[TensorComparison]:
        bench = self.bench
        kept = bench.keras.read()
        torch = bench.mapping.to_keras(bench.torch.read() | theirs.buffers)
        changed = set(ours.buffers) | {
            n for n, v in torch.items() if n in kept and not np.array_equal(v, kept[n])
        }
        buffers = {
            info.name: ours.buffers.get(info.name, kept[info.name])
            for info in bench.outlines[0].tensors
            if info.buffer and info.name in changed and info.name in torch
        }
        sizes = {name: float(np.abs(value).max(initial=0.0)) for name, value in buffers.items()}
        # Of a layer: a mean that is zero but for rounding is no larger than rounding of what is beside it.
        largest: dict[str, float] = {}
        for name, size in sizes.items():
            layer = name.rpartition("/")[0]
            largest[layer] = max(size, largest.get(layer, 0.0))
        found = []
        for name, value in buffers.items():
            share = limits.ROUNDING_SHARE * largest[name.rpartition("/")[0]]
            allowed = limits.LIVE_FLOAT64 + (share / sizes[name] if sizes[name] else 0.0)
            found.append(compared(f"after/buffers/{name}", value, torch[name], allowed))
        return found

    def _note_the_rest(self) -> None:
        """Differences of settings that make no difference here, alike ones in one line."""
        groups: dict[tuple[object, ...], list[Difference]] = {}
        for suspect in self.suspects:
            if suspect.changes == "initial values":
                groups.setdefault(_values(suspect), []).append(suspect)
        for group in groups.values():
            more = f", and so of {len(group) - 1} more" if len(group) > 1 else ""
            self.notes.append(
                f"{group[0].text}{more}: the weights were copied, so that it does not count here"
            )

    def _by_rules(self) -> Iterator[Finding]:
        """Tensors of which one side has more than the other, and whose gradients are not zero: training takes them apart."""
        trained = {info.name for outline in self.bench.outlines for info in outline.tensors if info.trainable}
        with exact_constants(self.bench):
            passes = self.bench.reference(True), self.bench.torch_pass(True)
        sizes = {n: float(np.abs(v).max(initial=0.0)) for p in passes for n, v in p.gradients.items()}
        least = limits.ROUNDING_SHARE * max(sizes.values(), default=0.0) / limits.LIVE_FLOAT64
        for pair in self.bench.mapping.tensors:
            note = pair.parsed.note
            frozen = pair.rule == "two_biases" and not trained.issuperset(pair.torch)
            names = [name for name in (*pair.keras, *pair.torch) if sizes.get(name, 0.0) > least]
            if not note or frozen or not names:
                continue
            text = f"{pair.label} (rule {pair.rule}): {note}"
            fix = "freeze what only torch has (requires_grad_(False)), or give both sides the same tensors"
            if pair.rule in ("copies", "tied_kernel"):
                fix = f"tie {' and '.join(pair.torch if len(pair.torch) > 1 else pair.keras)} too, or neither side"
            evidence = f"read from the live models: the gradient of {names[0]} is {sizes[names[0]]:.2g} at most, not zero"
            why = Explanation(f"rule:{pair.rule.partition('(')[0]}", text, "confirmed", fix, evidence)
            name = f"update/{(pair.keras or pair.torch)[0]}"
            yield _finding("update", [TensorComparison(name, None, math.inf, limits.LIVE_FLOAT64)], why=why)


def _values(suspect: Difference) -> tuple[object, ...]:
    """What a difference is, wherever it is."""
    return suspect.setting, suspect.keras_value, suspect.torch_value


def _finding(
    stage: str,
    tensors: Sequence[TensorComparison],
    agreeing: Sequence[TensorComparison] = (),
    why: Explanation | None = None,
) -> Finding:
    shown = tuple(agreeing)[-limits.AGREEING_SHOWN :]
    return Finding(_STEP, stage, tensors[0].name, (), tuple(tensors), shown, why)


def _when(as_trained: Sequence[TensorComparison], findings: Sequence[Finding]) -> When:
    """Where nothing was trained: what one pass shows."""
    outputs = (tensor for tensor in as_trained if tensor.name.startswith(f"forward/{OUTPUT}"))
    output = next(outputs, None)
    if output is not None and not output.agrees:
        return When(
            _STEP, f"before training: the outputs of one batch differ by {output.deviation:.2g} in float64"
        )
    first = next((tensor for tensor in as_trained if not tensor.agrees), None)
    if first is not None:
        return When(_STEP, f"with equal weights, {first.name} differs by {first.deviation:.2g} in float64")
    return When(_STEP, f"with equal weights, {findings[0].name} differs")
