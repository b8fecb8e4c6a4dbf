"""What deviates behind the outputs: losses, penalties, and the gradients that flow back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.lint.lint import Difference
from parity.common.external.pairs.bench import PairTrace, compared, gradients, losses, place_of
from parity.common.external.pairs.code_edits import CodeEdit, fitting_edit, lines_of_training
from parity.common.external.pairs.explain import Attribution, DeviatingTensor, by_setting, made, ways_of
from parity.common.external.pairs.frozen import frozen_cause
from parity.common.external.pairs.gradient_paths import gradient_causes
from parity.common.external.pairs.loss_causes import loss_causes
from parity.common.external.pairs.points import NOWHERE
from parity.common.external.pairs.search import Search, finding_of
from parity.common.external.process.layouts import aligned
from parity.common.external.process.pass_result import Array, PassResult
from parity.common.parity.deviation import tensor_deviation

# Differences of a loss that are looked for, one behind the other.
_LOSSES = 3
# Of so many layers gradients are explained one by one.
_LAYERS = 4


class BackwardSearch:
    """The part of a search that looks at losses and gradients."""

    def __init__(self, search: Search) -> None:
        self.search = search
        # By name of what flows back, Keras's and torch's.
        self._due: dict[str, tuple[Array, Array]] = {}

    def loss(self, trace: PairTrace) -> Generator[Finding, None, PairTrace]:
        """Yield that the losses of equal outputs differ; return the trace then: what an edit of the code puts right stays so."""
        tensors = losses(self.search.bench, trace.reference, trace.injected)
        self.search.injected += tensors
        off = [tensor for tensor in tensors if not tensor.agrees]
        if off and self.search.barrier >= 0:
            # What a layer that could not be put right makes of what is behind it.
            self.search.add_to_place(self.search.barred, off)
            return trace
        for _ in range(_LOSSES):
            if not off:
                break
            # Ours is one formula in either framework.
            own = any(term.own is not None for term in self.search.bench.losses[0].terms)
            causes = loss_causes(self.search.bench) if own else []
            inherited = self.search.of_evaluation_alone
            confirmed = any(each.explanation.confidence == "confirmed" for each in causes)
            if inherited is not None and not confirmed:
                self.search.add_to_place(inherited, off)
                break
            for number, why in enumerate([each.explanation for each in causes] or [None]):
                yield finding_of("loss", off if not number else off[:1], why=why)
            edits = [change for each in causes for change in each.changes if isinstance(change, CodeEdit)]
            if not edits:
                break
            for edit in edits:
                edit.make(self.search.bench)
            trace = self.search.bench.trace(True)
            now = losses(self.search.bench, trace.reference, trace.injected)
            off = [tensor for tensor in now if not tensor.agrees]
            self.search.loss_put_right = not off
        return trace

    def penalty(self, trace: PairTrace) -> Iterator[Finding]:
        """Yield what Keras's model adds to its loss, and torch's does not."""
        if not trace.reference.penalty or self.search.bench.counts_penalties:
            return
        penalties = [s for s in self.search.suspects if s.setting.endswith("_regularizer")]
        self.search.used |= set(penalties)
        if self.search.bench.decayed:
            self.search.notes.append(self.search.bench.decayed)
            return
        own = [
            f"the regularizer of {info.name} (l1 {info.penalty[0]:g}, l2 {info.penalty[1]:g})"
            for info in self.search.bench.outlines[0].tensors
            if info.penalty is not None and any(info.penalty)
        ]
        what = "; ".join([s.text for s in penalties] or own) or "add_loss or an activity regularizer"
        text = (
            f"Keras's model adds {trace.reference.penalty:.3g} to its mean loss, and torch's nothing: {what}"
        )
        fix = "add the same to the loss in torch, or leave it out in Keras"
        evidence = (
            "read from the live models: without it the losses were compared, with it they differ by this much"
        )
        why = Explanation("penalty", text, "confirmed", fix, evidence)
        yield finding_of("loss", [TensorComparison("penalty", None, math.inf, limits.LIVE_FLOAT64)], why=why)

    def run(self, trace: PairTrace) -> Iterator[Finding]:
        """Yield what deviates of what flows back to each layer's output, from the loss on, and of the gradients of parameters."""
        flowing = []
        for point in reversed(self.search.bench.points):
            due = trace.reference.activation_gradients.get(point.keras)
            own = trace.injected.activation_gradients.get(point.torch)
            if point.linear or due is None or own is None or point.torch in trace.misshapen:
                continue
            flowing.append(compared(f"backward/{point.name}", due, own, rows=self.search.bench.rows))
            self._due[flowing[-1].name] = due, own
        self.search.injected += flowing
        reduced = gradients(self.search.bench, trace.reference, trace.injected)
        self.search.injected += reduced
        reduced = yield from self._frozen(trace, reduced)
        reduced = yield from self._by_settings(trace, reduced)
        reduced = yield from self._by_calls(trace, reduced)
        # What flows back to a place only locates.
        if any(not tensor.agrees for tensor in reduced):
            yield from self._first_of("backward", flowing)
        if not any(finding.stage == "backward" for finding in self.search.findings):
            yield from self._first_of("gradient", reduced)

    def _frozen(
        self, trace: PairTrace, rows: Sequence[TensorComparison]
    ) -> Generator[Finding, None, list[TensorComparison]]:
        """Yield what one side alone trains, all that either side freezes as one finding; return the other rows."""
        bench = self.search.bench
        for side in ("keras", "torch"):
            names = {name for name, frozen in bench.frozen.items() if frozen == side}
            if not names:
                continue
            torch = {t for pair in bench.mapping.tensors if names & set(pair.keras) for t in pair.torch}
            ours = bench.reference(True, also=sorted(names if side == "keras" else ()))
            theirs = bench.torch_pass(True, trace.injections, sorted(torch if side == "torch" else ()))
            now = [row for row in gradients(bench, ours, theirs) if place_of(row) in names]
            off = [row for row in rows if place_of(row) in names] or [replace(now[0], deviation=math.inf)]
            yield finding_of("gradient", off, why=frozen_cause(bench, side, names, torch, now))
        layers = {info.name: info.layer for info in bench.outlines[0].tensors}
        held = {layers[name] for name in bench.frozen}
        self.search.used |= {s for s in self.search.suspects if s.setting == "trainable" and s.keras in held}
        return [row for row in rows if place_of(row) not in bench.frozen]

    def _by_settings(
        self, trace: PairTrace, rows: list[TensorComparison]
    ) -> Generator[Finding, None, list[TensorComparison]]:
        """Yield gradients that agree with a setting alike that changes nothing else; return the other rows."""
        bench, off = self.search.bench, {}
        for suspect in (
            s for s in self.search.suspects if s.changes == "backward" and s not in self.search.used
        ):
            here = [row for row in rows if not row.agrees and self.search.layer_of(row) == suspect.keras]
            if here:
                off[suspect] = here

        def compared_now() -> Callable[[Difference], list[TensorComparison]]:
            passes = bench.reference(True), bench.torch_pass(True, trace.injections)
            now = {place_of(row): row for row in gradients(bench, *passes)}
            return lambda suspect: [
                now.get(place_of(row), replace(row, deviation=math.inf)) for row in off[suspect]
            ]

        kept = self.search.put_right({s: ways_of(s) for s in off}, compared_now) if off else {}
        for suspect, deviation in kept.items():
            was = off[suspect][0].deviation
            evidence = (
                f"by experiment: with it alike the gradient deviates by {deviation:.2g} instead of {was:.2g}"
            )
            why = by_setting(suspect, "confirmed", evidence)
            if suspect.setting == "padding_id":
                row = suspect.keras_value if suspect.torch_value is None else suspect.torch_value
                why = replace(
                    why, text=f"{why.text}: only the gradient of row {row} differs, which is left out there"
                )
            yield finding_of("gradient", off[suspect], why=why)
            rows = [row for row in rows if row not in off[suspect]]
        self.search.used |= kept.keys()
        return rows

    def _by_calls(
        self, trace: PairTrace, rows: list[TensorComparison]
    ) -> Generator[Finding, None, list[TensorComparison]]:
        """Yield gradients that agree with calls of torch's made otherwise that change nothing else; return the other rows.

        Where something before is wrong, each layer's gradients by themselves: it is given what comes back to Keras's.
        """
        bench, wrong, limit = self.search.bench, self.search.wrong_loss, float(limits.LIVE_FLOAT64)
        blocked = wrong is not None or self.search.blocks_gradients is not None
        if bench.trains_by_step and wrong is not None and self.search.blocks_gradients is None:
            # What a step sends back from its loss is its own; losses that hardly differ do not account for all that does.
            limit, blocked = limits.OF_ANOTHER_LOSS * self.search.findings[wrong].deviation, False
        send = bench.sent(trace.reference) if blocked else None

        def compared_now() -> list[TensorComparison]:
            return gradients(bench, trace.reference, bench.torch_pass(True, trace.injections, send=send))

        off = [row for row in rows if not row.agrees and row.deviation > limit]
        if not off or self.search.barrier >= 0:
            return rows
        groups, agreed = [off], set[str]()
        if blocked:
            now = compared_now()
            agreed = {place_of(row) for row in now if row.agrees}
            off = [row for row in now if not row.agrees and not self._is_replaced(row)]
            groups = [list(group) for _, group in itertools.groupby(off, key=self.search.layer_of)][:_LAYERS]
        for group in groups:
            names = {place_of(row) for row in group}

            # What puts one right and spoils another is no cause.
            def measure(held: set[str] = names | agreed) -> float:
                off = (row for row in compared_now() if not row.agrees)
                return max((r.deviation for r in off if not blocked or place_of(r) in held), default=0.0)

            worst = max(row.deviation for row in group)
            # A training step's own calls are among those that may go otherwise.
            step = bench.losses[1] if bench.trains_by_step else None
            tensor = DeviatingTensor(bench, NOWHERE, [], measure, worst)
            causes = gradient_causes(tensor, step, limit=limit)
            if not (causes or blocked) and limit <= limits.LIVE_FLOAT64:
                causes = self._by_edits(tensor, trace)
            for cause in causes:
                yield finding_of("gradient", group, why=cause.explanation)
                rows = [row for row in rows if place_of(row) not in names]
        return rows

    def _by_edits(self, tensor: DeviatingTensor, trace: PairTrace) -> list[Attribution]:
        """An edit of torch's code that changes nothing but gradients."""
        bench = self.search.bench
        loss = bench.losses[1] if any(term.own is not None for term in bench.losses[1].terms) else None
        agreed = {row.name for row in self._decisive(trace.reference, trace.injected) if row.agrees}

        def deviation(edit: CodeEdit) -> float:
            left = tensor.deviation_with([edit])
            if left > limits.LIVE_FLOAT64:
                return left
            with made(bench, [edit]):
                rows = self._decisive(trace.reference, bench.torch_pass(True, trace.injections))
            return left if all(row.agrees for row in rows if row.name in agreed) else math.inf

        found = fitting_edit(bench, lines_of_training(bench, loss), deviation, of_gradients=True)
        if found is None:
            return []
        evidence = tensor.by_experiment(found[1], ": run so; all that agreed before does so")
        return [Attribution(found[0].explanation(True, evidence, ()), (found[0],))]

    def _decisive(self, reference: PassResult, passed: PassResult) -> list[TensorComparison]:
        """The outputs and losses of a pass of both, compared."""
        return [*self.search.bench.outputs(reference, passed), *losses(self.search.bench, reference, passed)]

    def _is_replaced(self, row: TensorComparison) -> bool:
        """Whether a gradient may be that of an operation which is replaced: the operation is in the layer, or sends gradients back to
        it, where what Keras sends back before the layer's function is not known.
        """
        layer = self.search.layer_of(row)
        linear = any(point.linear and point.keras_layer == layer for point in self.search.bench.points)
        return any(linear or layer in segment.keras for segment in self.search.replaced)

    def _first_of(self, stage: str, tensors: Sequence[TensorComparison]) -> Iterator[Finding]:
        """The first of a backward pass that deviates, with the others, which may follow from it."""
        off = [tensor for tensor in tensors if not tensor.agrees]
        if not off:
            return
        if self.search.wrong_loss is not None:
            # What another loss sends back.
            self.search.add_to(self.search.wrong_loss, off)
            return
        if self.search.barrier >= 0:
            # A layer that could not be put right is wrong in its backward pass, too.
            places = enumerate(self.search.findings)
            self.search.add_to(
                next(n for n, f in places if f.explanation is None or f.stage == "forward"), off
            )
            return
        if self.search.blocks_gradients is not None:
            names = [finding.name for finding in self.search.findings]
            self.search.add_to(names.index(self.search.blocks_gradients), off)
            return
        agreeing = [tensor for tensor in tensors[: tensors.index(off[0])] if tensor.agrees]
        yield finding_of(stage, off, agreeing, self._multiple(off[0].name))

    def _multiple(self, name: str) -> Explanation | None:
        """That what flows back to a place is Keras's times one number; None where it is not so."""
        due, own = self._due.get(name, (np.zeros(0), np.zeros(0)))
        alignment = aligned(due, own) if due.any() else None
        times = 0.0 if alignment is None else float(np.vdot(due, alignment.array) / np.vdot(due, due))
        if alignment is None or tensor_deviation(times * due, alignment.array) > limits.LIVE_FLOAT64:
            return None
        to = f"comes back to {name.removeprefix('backward/')}"
        what = f"the gradient that {to} is {times:.9g} times Keras's" if times else f"no gradient {to}"
        return Explanation(
            "gradient:factor",
            f"{what}, of equal outputs and losses",
            "likely",
            "look between it and the loss: a backward pass of the code's own, a hook, a way back that one side stops or takes twice",
            "read from both passes: in each element",
        )
