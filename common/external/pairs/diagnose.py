"""The source of two live models in float64: where they diverge, each layer of torch's given what Keras's was, and why.

One fault is one finding: Keras's tensors are injected into a layer, so that what a fault before it made does not
count; a setting that is found to be the cause is put right on the live model before the search goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from parity.common.base.terminal import Terminal
from parity.common.diagnosis import core, limits
from parity.common.diagnosis.result import Diagnosis, Finding, StepComparison, TensorComparison, When
from parity.common.external.lint.lint import Difference
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.backward import BackwardSearch
from parity.common.external.pairs.bench import (
    OUTPUT,
    Bench,
    PairTrace,
    decides,
    gradients,
    losses,
    of_stage,
    place_of,
    taken_apart,
)
from parity.common.external.pairs.buffers import BufferSearch, compared_buffers
from parity.common.external.pairs.changed_weights import changed_weights
from parity.common.external.pairs.explain import Attribution, explained
from parity.common.external.pairs.forward import ForwardSearch
from parity.common.external.pairs.grouping import grouped
from parity.common.external.pairs.places import CAUSE, Replacement
from parity.common.external.pairs.search import STEP, Search, finding_of
from parity.common.external.pairs.sharing import one_side_alone, unequal_tensors, unshared_layer
from parity.common.external.pairs.structure import lines_of, structural_causes
from parity.common.external.pairs.substitutions import DROPS
from parity.common.external.pairs.unused import by_unused
from parity.common.external.pairs.updates import Updates, update_findings
from parity.common.external.pairs.varied_weights import varied, write_weights
from parity.common.parity.deviation import tensor_deviation

_STAGES = ("before", "forward", "loss", "backward", "gradient", "buffers", "evaluation", "update")
# Where models have a training step of their own: their passes, which an evaluation shows, are part of it.
_BY_STEP = ("before", "forward", "evaluation", "loss", "backward", "gradient", "buffers", "update")
_PASSES = ("forward", "evaluation")
_LISTED = 4
_LEFT_ON = "dropout left on"
# That something is not used at all says more.
_UNCLEAR = (f"{CAUSE}other", f"{CAUSE}operand")
_VARIED = "deviations under Where and Why were measured with weights that were varied, so that special values hide nothing; those under When with yours"
_ROUNDED = "but for numbers that each side rounds to float32 differently"
_EVALUATION_ALONE = "training is not affected: only statistics that evaluation uses differ, by 1/N of the variance of N values"


def diagnose_pair(
    bench: Bench,
    suspects: Sequence[Difference],
    updates: Updates | None = None,
    when: When | None = None,
    console: Terminal | None = None,
    varies: bool = True,
) -> Diagnosis:
    """Return where and why two models diverge; their settings are left as the search has changed them.

    Args:
        bench: both, with equal weights.
        suspects: differences of their settings.
        updates: of the users' own optimizers, where these were compared.
        when: what a training showed; None: nothing was trained.
        console: where progress is reported.
        varies: whether the search may take other weights than the models have, which could hide what is wrong.
    """
    return core.run(PairSource(bench, suspects, updates, when, console, varies))


class PairSource(core.ObservationSource):
    """Two live models; the arguments are those of `diagnose_pair`."""

    def __init__(
        self,
        bench: Bench,
        suspects: Sequence[Difference],
        updates: Updates | None,
        when: When | None,
        console: Terminal | None,
        varies: bool,
    ) -> None:
        super().__init__(console)
        self.bench, self.updates, self.when = bench, updates, when
        self.search = Search(bench, suspects, self.findings, self.notes)
        self.forward = ForwardSearch(self.search)
        self.as_trained: list[TensorComparison] = []
        self.varies = varies
        self._steps_plainly = False  # whether training steps of the users' own pass the models as they are
        self._replaced = False  # whether torch's model was given numbers, which depend on no input

    def observe(self) -> None:
        if self.bench.unshared is None:
            # A pass may have changed some since they were copied.
            self.bench.torch.write(self.bench.mapping.to_torch(self.bench.keras.read(), partial=True))
        self._changed = list(changed_weights(self.search))
        weights = self._weights()
        if self.bench.norms:
            self.notes.append(self.bench.norms)
        if self.bench.rounded_constants is not None:
            self.notes.append(self.bench.rounded_constants)
        if rebuilt := self.bench.outlines[0].rebuilt:
            self.notes.append(rebuilt)
        # Constants that Keras takes through float32 are no fault of a port.
        with exact_constants(self.bench):
            self.search.compared.pair_calls()
            first, self.as_trained = self._passes(weights)
            alike = all(tensor.agrees for tensor in self.as_trained if decides(tensor))
            # A loss that differs says nothing of layers whose outputs agree.
            forward = [tensor for tensor in self.as_trained if tensor.name.startswith("forward/")]
            self._steps_plainly = self.bench.trains_by_step and self.bench.steps_pass_plainly(first)
            outputs = self._outputs()
            if alike or all(tensor.agrees for tensor in outputs):
                # Where more differs, what a layer makes of values that are put before it may be one of these.
                rows = [*self.as_trained, *first.tensors] if alike else forward
                off = {place_of(tensor) for tensor in rows if not tensor.agrees}
                if off:
                    self.search.compared.skip(sorted(off))
                    first, self.as_trained = self._passes(weights)
            if self.varies and any(not tensor.agrees for tensor in self.as_trained if decides(tensor)):
                if write_weights(self.bench, varied):
                    self.notes.append(_VARIED)
                first = self.bench.trace(True)
        self._first = first
        self.search.injected = [*weights]
        places = [(stage, place_of(tensor)) for stage in _PASSES for tensor in first.tensors]
        self._order = {f"{stage}/{place}": number for number, (stage, place) in enumerate(places)}

    def isolate(self) -> Iterator[Finding]:
        off = [tensor for tensor in self.search.injected if not tensor.agrees]
        if off:
            yield finding_of("before", off)
        yield from self._changed
        if self.search.barred:
            return
        with exact_constants(self.bench):
            if self.bench.trains_by_step:
                last = yield from self._passes_of_steps()
            else:
                last = yield from self.forward.run("forward", self._first)
            backward = BackwardSearch(self.search)
            last = yield from backward.loss(last)
            yield from backward.penalty(last)
            yield from backward.run(last)
            yield from BufferSearch(self.search).run(last)
            if not self.bench.trains_by_step:
                yield from self._evaluation()

    def _outputs(self) -> list[TensorComparison]:
        """The outputs in training. A training step of the users' own has none: there those of an evaluation, and of the pass that it makes."""
        stage = "evaluation/" if self.bench.trains_by_step else "forward/"
        found = [t for t in self.as_trained if t.name.startswith(stage) and decides(t)]
        if self._steps_plainly:
            with self.bench.passes_alone():
                trace = self.bench.trace(True)
                found += self.bench.outputs(trace.reference, trace.as_trained)
        return found

    def _passes_of_steps(self) -> Generator[Finding, None, PairTrace]:
        """Yield what differs in passes of models that have a training step of their own; return the trace of the steps then."""
        if self._steps_plainly:
            with self.bench.passes_alone():
                yield from self.forward.run("forward", self.bench.trace(True))
        # What a step calls may be its own: only an evaluation shows then what a pass of the model itself computes.
        yield from self._evaluation()
        last = self.bench.trace(True)
        apart = [place_of(tensor) for tensor in last.tensors if not tensor.agrees]
        if apart:
            self.search.compared.skip(apart)
            last = self.bench.trace(True)
        return last

    def _evaluation(self) -> Iterator[Finding]:
        evaluated = self.bench.trace(False)
        tensors = [of_stage(tensor, "evaluation") for tensor in evaluated.tensors]
        self._claim([tensor for tensor in tensors if not tensor.agrees])
        yield from self.forward.run("evaluation", evaluated)

    def explain(self, finding: Finding) -> Sequence[Finding]:
        self.search.attributed = ()
        if self.search.trial is None:
            return [finding]
        self.say(f"{finding.stage}: {finding.name} deviates by {finding.deviation:.2g}; trying why")
        tensor, kept, place = self.search.trial
        self.search.trial = None
        training = finding.stage != "evaluation"
        if tensor.deviation_with() <= limits.LIVE_FLOAT64:
            # Passes that should be one are not, and so whatever is tried would seem to be the cause.
            return [finding]
        self.search.attributed = explained(tensor)
        if not self.search.attributed and place is not None:
            behind = self.search.compared.behind(place_of(finding), training)
            structural = structural_causes(tensor, behind, place, self.forward.keeps(training))
            # That something is not used at all says more than a formula in which it is missing.
            unclear = all(each.explanation.cause in _UNCLEAR or not each.changes for each in structural)
            # What is replaced depends on no input any more.
            first = self.search.barrier < 0 and not self._replaced
            unused = by_unused(tensor, first) if unclear else []
            self.search.attributed = unused or (
                structural if training else [*map(_in_evaluation, structural)]
            )
        self.search.use(attribution.explanation for attribution in self.search.attributed)
        for attribution in self.search.attributed if kept else ():
            for change in attribution.changes:
                change.make(self.bench)
                if isinstance(change, Replacement):
                    self._replaced = True
                    if change.training is None and self.bench.trains_by_step:
                        self.search.of_evaluation_alone = self.search.of_evaluation_alone or finding.name
        if not self.search.attributed and place is not None:
            return [replace(finding, code=lines_of(self.bench, place))]
        return [replace(finding, explanation=a.explanation) for a in self.search.attributed] or [finding]

    def conclude(self) -> Diagnosis:
        findings, when, updates = self.findings, self.when, self.updates
        stages = _BY_STEP if self.bench.trains_by_step else _STAGES
        findings.sort(
            key=lambda finding: (stages.index(finding.stage), self._order.get(finding.name, len(self._order)))
        )
        findings[:0] = self.bench.tables
        findings += unshared_layer(self.bench)
        if updates is not None:
            self.search.injected += updates.tensors
            self.as_trained += updates.tensors
            self.notes += updates.notes
        findings += update_findings(self.bench, updates)
        if when is not None or findings or taken_apart(self.bench) or one_side_alone(self.bench):
            findings += unequal_tensors(self.bench)
        findings = grouped(findings)
        if when is not None and not findings:
            self.notes.append(
                "no isolated stage of one step deviates: what made the runs diverge is in how they were run"
            )
        if self.search.compared.skipped:
            self.notes.append(
                f"not compared by themselves, since the two models partition the work differently there: {', '.join(self.search.compared.skipped)};"
                " what is behind them agrees"
            )
        if self.search.compared.unused:
            self.notes.append(
                f"deviate where Keras makes nothing of them, as of padding that a mask leaves out: {', '.join(dict.fromkeys(self.search.compared.unused))};"
                " by experiment: given torch's numbers there, its outputs are the same"
            )
        self._note_the_rest()
        if self.search.is_over:
            self.notes.append(
                f"the search for causes ended after {limits.LONGEST_IN_ALL:.0f} s: of what has none here, not all was tried, and more may"
                " differ behind it; fix the first defect and repeat the command"
            )
        open_ = [pair.label for pair in self.bench.mapping.tensors if pair.is_ambiguous]
        premise = ""
        # What an experiment has confirmed does not rest on the mapping.
        if open_ and any(
            one.explanation is None or one.explanation.confidence != "confirmed" for one in findings
        ):
            premise = f"if mapping.yaml is right about {len(open_)} pair{'s' * (len(open_) > 1)} of tensors that nothing confirms"
            more = f" and {len(open_) - _LISTED} more" if len(open_) > _LISTED else ""
            self.notes.append(
                f"look at mapping.yaml first: by their shapes these tensors could have other counterparts, or another layout, and"
                f" where that is wrong, so is what is found here: {'; '.join(open_[:_LISTED])}{more}"
            )
        off = any(not tensor.agrees for tensor in self.as_trained if decides(tensor))
        if when is None and findings and all(map(_is_rounding, findings)):
            # As of constants that a framework rounds: what is left once they are equal agrees.
            premise, off = _ROUNDED, False
            self.notes += [f"no fault of the port: {f.explanation.text}" for f in findings if f.explanation]
            findings = []
        diverge = bool(findings) or when is not None or off
        if when is not None and findings and all(_of_evaluation_alone(finding) for finding in findings):
            when = replace(when, evidence=f"{when.evidence}; {_EVALUATION_ALONE}")
        # What was put right for the search agrees in its last passes.
        found = [t for finding in findings if finding.step == STEP for t in finding.tensors]
        keras, torch = self.bench.outlines
        return Diagnosis(
            "live models",
            f"keras {keras.target}",
            f"torch {torch.target}",
            "pair",
            "divergent" if diverge else "parity",
            (when or _when(self.as_trained, findings)) if diverge else None,
            steps=(StepComparison(STEP, tuple(self.as_trained), (*self.search.injected, *found)),),
            findings=tuple(findings),
            notes=tuple(self.notes),
            premise=premise,
            reproduced=diverge,
        )

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
        found += compared_buffers(bench, reference, passed)
        outputs = bench.outputs(evaluated.reference, evaluated.as_trained)
        return trace, found + [of_stage(tensor, "evaluation") for tensor in outputs]

    def _claim(self, off: Sequence[TensorComparison]) -> None:
        """Count what deviates in inference to the finding of the same place in training."""
        for number, finding in enumerate(self.findings):
            mine = [tensor for tensor in off if place_of(tensor) == place_of(finding)]
            if mine and finding.stage == "forward":
                self.search.add_to(number, mine)

    def _note_the_rest(self) -> None:
        """Differences of settings that make no difference here, in one line."""
        initial = sum(suspect.changes == "initial values" for suspect in self.search.suspects)
        if initial:
            said = "1 initializer differs" if initial == 1 else f"{initial} initializers differ"
            self.notes.append(
                f"{said}, which does not count here, since the weights were copied; parity lint lists them"
            )


def _in_evaluation(attribution: Attribution) -> Attribution:
    """What is found where a model is evaluated; a mask that drops there is told as that."""
    why = attribution.explanation
    if DROPS in why.fix:
        line, _, rest = why.text.split(": ", 2)
        text = f"{line}: dropout left on in Keras's evaluation: {rest}"
        fix = "in Keras: call the layer without training=True; where it is to drop always, in torch: F.dropout(..., training=True)"
        why = replace(why, text=text, cause=f"{CAUSE}left_out", defect=_LEFT_ON, fix=fix)
    elif why.cause == f"{CAUSE}too_much" and DROPS in why.text:
        fix = "drop in training only: nn.Dropout, or F.dropout(..., training=self.training)"
        why = replace(why, text=f"{why.text}, in evaluation", fix=fix)
    return replace(attribution, explanation=why)


def _is_rounding(finding: Finding) -> bool:
    """Whether it is confirmed that constants of the code differ by their rounding to float32 alone."""
    why = finding.explanation
    return why is not None and why.cause.startswith("rounding:") and why.confidence == "confirmed"


def _of_evaluation_alone(finding: Finding) -> bool:
    """Whether a defect changes no training, but statistics that evaluation uses."""
    return finding.explanation is not None and finding.explanation.cause == "setting:running_variance"


def _when(as_trained: Sequence[TensorComparison], findings: Sequence[Finding]) -> When:
    """Where nothing was trained: what one pass shows."""
    outputs = (tensor for tensor in as_trained if tensor.name.startswith(f"forward/{OUTPUT}"))
    output = next(outputs, None)
    if output is not None and not output.agrees:
        return When(
            STEP, f"before training: the outputs of one batch differ by {output.deviation:.2g} in float64"
        )
    off = [tensor for tensor in as_trained if not tensor.agrees]
    # Rows of single layers only locate.
    first = next(filter(decides, off), next(iter(off), None))
    if first is not None:
        return When(STEP, f"with equal weights, {first.name} differs by {first.deviation:.2g} in float64")
    # A learning rate may part at a later step.
    return When(findings[0].step, f"with equal weights, {findings[0].name} differs")
