"""A Keras model and a torch model side by side: the same weights, the same samples, in float64, tensor by tensor.

All that leaves here is Keras's: its names, its layouts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from typing_extensions import Unpack

from parity.common.base.errors import ExternalModelError
from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Finding, TensorComparison
from parity.common.external.mapping.models import TracedModels, exact_constants
from parity.common.external.pairs.objectives import paired_outputs
from parity.common.external.pairs.points import Point, points_of
from parity.common.external.process.layouts import aligned, back, to_keras_layout
from parity.common.external.process.objective import BatchLoss, step_of
from parity.common.external.process.pass_result import Array, Arrays, PassResult
from parity.common.external.process.worker import ExternalWorker, PassOptions
from parity.common.parity.deviation import tensor_deviation, unmasked
from parity.common.spec.external.mapping import Mapping
from parity.common.spec.external.outline import Outline
from parity.common.spec.layers.imported import TorchLayout

OUTPUT = "output"
_NAMED = 4


@dataclass(frozen=True)
class PairTrace:
    """Both models once through: Keras's pass, torch's as it is, and torch's with Keras's activations injected.

    expected: by point what Keras computes there. injections: by torch's tap what takes the place of its output.
    tensors: each point and output of the injected pass, compared. misshapen: taps of torch whose output has
    another shape than it should, so that it cannot be replaced.
    """

    reference: PassResult
    as_trained: PassResult
    injected: PassResult
    expected: Arrays
    injections: Arrays
    tensors: tuple[TensorComparison, ...]
    misshapen: frozenset[str]


@dataclass(frozen=True)
class Unshared:
    """Layers that one side calls several times, and those that the other has for them, each with its own tensors.

    side: which calls them several times. keras, torch: the layers, in words. copies: of the other side's tensors without a
    counterpart, the one of its own that is mapped. layers: Keras's, by path. agrees: whether the outputs do while these
    tensors are equal, once that has been seen.
    """

    side: Literal["keras", "torch"]
    keras: str
    torch: str
    copies: dict[str, str]
    layers: frozenset[str]
    agrees: bool = False


@dataclass
class LoadedPair(TracedModels):
    """Both models alive, and what they are trained by.

    losses: of each on the batch; without terms only forward passes are compared.
    layout: whether torch's inputs have the channels before the other axes.
    built_exact: whether torch's constants are float64 also where code makes them float32 while the model is built.
    norms: that torch's stock batch norms keep the variance that Keras's keep, in words; '' where they are as they are.
    """

    losses: tuple[BatchLoss, BatchLoss]
    layout: TorchLayout
    built_exact: bool = field(default=False, kw_only=True)
    norms: str = field(default="", kw_only=True)

    @property
    def trains_by_step(self) -> bool:
        """Whether a training step of the users' own is what both are trained by."""
        return step_of(self.losses[0].terms) is not None

    @property
    def counts_penalties(self) -> bool:
        """Whether the losses that are compared have what a model adds to its loss itself."""
        return self.trains_by_step or any(term.penalized for term in self.losses[0].terms)

    @property
    def sides(self) -> list[tuple[ExternalWorker, Outline, Arrays]]:
        """Keras's model, outline and inputs, and torch's."""
        return list(zip((self.keras, self.torch), self.outlines, self.inputs, strict=True))


@dataclass
class Bench(LoadedPair):
    """Both models at work, their tensors mapped.

    unshared: layers that one side calls several times, and the other has several for. decayed: why what Keras adds to its loss is no divergence, '' where it is one.
    frozen: Keras's tensors that one side alone trains, with the side
    that does not ('keras', 'torch'); those whose gradient is zero for any samples are left out. layouts: how torch's tensors
    lie, by tap, as `aligned` says, where that has been seen. rates: of each step, where the optimizers follow schedules.
    tables: what `own_tables` finds of both as they are built.
    searched: seconds of processors (`busy`) for which causes have been tried on torch, in operations and in gradients. edited: likewise, in its code.
    """

    mapping: Mapping
    unshared: Unshared | None = None
    decayed: str = ""
    frozen: dict[str, str] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    shares: tuple[float, ...] = (1.0,)
    tables: tuple[Finding, ...] = ()
    searched: float = 0.0
    edited: float = 0.0

    @property
    def busy(self) -> float:
        """The seconds that processors have worked for the pair: on a machine that others use, too, a search tries as much as on an idle one."""
        return time.process_time() + self.keras.busy() + self.torch.busy()

    @cached_property
    def points(self) -> Sequence[Point]:
        """The points at which the same numbers should be."""
        points = points_of(*self.outlines, self.mapping)
        if self.trains_by_step:
            # It may compute with the weights, and not call the layer that has them.
            called = self.reference(training=True).activations
            points = [point for point in points if point.keras in called]
        return points

    @cached_property
    def rounded_constants(self) -> str | None:
        """Which constants go through float32, and how far outputs and gradients are off for it; None where none does.

        Of the models as they are when it is first asked for: what is put right later may use other constants.
        """
        with exact_constants(self) as rounded:
            exact = [self.reference(True), self.torch_pass(True)]
        if not rounded:
            return None
        stock = [self.reference(True), self.torch_pass(True)]
        off = 0.0
        for now, was in zip(exact, stock, strict=True):
            for ours, theirs in ((now.outputs, was.outputs), (now.gradients, was.gradients)):
                # Of all together: a gradient that is only rounding is no measure.
                largest = max((float(np.abs(value).max(initial=0.0)) for value in ours.values()), default=0.0)
                apart = (float(np.abs(value - theirs[name]).max(initial=0.0)) for name, value in ours.items())
                off = max(off, max(apart, default=0.0) / (largest or 1.0))
        return (
            f"no fault of the port: some constants go through float32 ({listed(rounded, _NAMED)}); kept in float64, by experiment, they"
            f" change outputs or gradients by {off:.2g}, and so the models are compared"
        )

    @cached_property
    def penalty(self) -> float:
        """What Keras's regularizers and add_loss add to its mean loss, without rounded constants; torch's has nothing of the kind.

        Where the losses that are compared have it, it is 0 here.
        """
        if self.counts_penalties:
            return 0.0
        with exact_constants(self):
            return self.keras.forward(self.inputs[0], training=True, taps=False).penalty

    def reference(self, training: bool, also: Sequence[str] = ()) -> PassResult:
        """Keras's pass, in training forward and backward; with gradients of frozen tensors `also`."""
        if not training:
            return self.keras.forward(self.inputs[0], training=False, also=also)
        return taken(self.keras, self.inputs[0], self.losses[0], training=True, also=also)

    def torch_pass(
        self,
        training: bool,
        injections: Arrays | None = None,
        also: Sequence[str] = (),
        send: Arrays | None = None,
    ) -> PassResult:
        """Torch's; with `injections` in place of what its layers give, and gradients of frozen tensors `also`.

        send: gradients that go on to its layers instead of what comes back to their outputs.
        """
        options: PassOptions = {"training": training, "inject": injections, "also": also, "send": send}
        if not training:
            # Without gradients, as models are evaluated: some ask whether they are on.
            return self.torch.forward(self.inputs[1], **options)
        return taken(self.torch, self.inputs[1], self.losses[1], **options)

    def steps_pass_plainly(self, trace: PairTrace) -> bool:
        """Whether training steps of the users' own call the models once, with the samples as they are: then what layers make in them is
        what they make in a pass of the model in training, too.

        Args:
            trace: of the steps, with the models as they are now.
        """
        for passed, (side, _, inputs) in zip((trace.reference, trace.as_trained), self.sides, strict=True):
            plain = side.forward(inputs, training=True).activations
            if plain.keys() != passed.activations.keys() or any(
                tensor_deviation(passed.activations[tap], value) > limits.LIVE_FLOAT64
                for tap, value in plain.items()
            ):
                return False
        return True

    @contextmanager
    def passes_alone(self) -> Iterator[None]:
        """Within, no loss is compared, nor a training step: only passes of the models."""
        kept, self.losses = self.losses, (BatchLoss((), {}), BatchLoss((), {}))
        try:
            yield
        finally:
            self.losses = kept

    def trace(self, training: bool) -> PairTrace:
        """Both once through."""
        reference, as_trained = self.reference(training), self.torch_pass(training)
        expected = self.expected(reference, training)
        injections, misshapen = self.injections(expected, as_trained)
        injected = self.torch_pass(training, injections)
        tensors = (*self.activations(expected, injected), *self.outputs(reference, injected))
        return PairTrace(reference, as_trained, injected, expected, injections, tensors, misshapen)

    def expected(self, reference: PassResult, training: bool) -> Arrays:
        """By point what Keras computes there."""
        found = {point.name: reference.activations[point.keras] for point in self.points if not point.linear}
        linear = [point for point in self.points if point.linear]
        # What follows is given what it always was.
        injections = {point.keras: reference.activations[point.keras] for point in linear}
        return found | self._keras_at(linear, injections, training)

    def keras_own(self, point: Point, injections: Arrays, training: bool) -> Array:
        """What Keras's layer makes at a point, (batch, ...), as the model is now, with `injections` in place of all outputs."""
        return self._keras_at([point], injections, training)[point.name]

    def _keras_at(self, points: Sequence[Point], injections: Arrays, training: bool) -> Arrays:
        if not points:
            return {}
        with ExitStack() as stack:
            for layer in dict.fromkeys(point.keras_layer for point in points if point.linear):
                function = f"{layer}/activation"
                kept = self.keras.set(function, "function", "linear")
                stack.callback(self.keras.set, function, "function", kept)
            taps = [point.keras for point in points]
            passed = self.keras.forward(self.inputs[0], training=training, taps=taps, inject=injections)
        return {point.name: passed.activations[point.keras] for point in points}

    def injections(
        self, expected: AnyMapping[str, Array], as_trained: PassResult
    ) -> tuple[Arrays, frozenset[str]]:
        """What torch's layers give instead of their own outputs (batch, ...), by tap; and the taps where that cannot be."""
        found: Arrays = {}
        misshapen = set()
        for point in self.points:
            due, own = expected[point.name], as_trained.activations.get(point.torch)
            alignment = None if own is None else aligned(due, own, self.layouts.values())
            if own is None or alignment is None:
                misshapen.add(point.torch)
                continue
            how = alignment.how
            if tensor_deviation(due, alignment.array) <= limits.LIVE_FLOAT64:
                self.layouts[point.torch] = how
            # Of a tensor that deviates, its numbers do not tell; it is laid out as where it did not.
            how = self.layouts.get(point.torch, how)
            if back(due, how).shape == own.shape:
                found[point.torch] = back(due, how)
        return found, frozenset(misshapen)

    def sent(self, reference: PassResult) -> Arrays:
        """By torch's tap the gradient that Keras's layer is given, (batch, ...) in torch's layout, as far as it is known."""
        found: Arrays = {}
        for point in self.points:
            due, how = reference.activation_gradients.get(point.keras), self.layouts.get(point.torch)
            if due is not None and how is not None and not point.linear:
                found[point.torch] = back(due, how)
        return found

    def activations(self, expected: AnyMapping[str, Array], passed: PassResult) -> list[TensorComparison]:
        """Each point of a pass, in order, compared with what is expected there, (batch, ...) by point."""
        return [
            compared(
                f"forward/{point.name}",
                expected[point.name],
                passed.activations.get(point.torch),
                rows=self.rows,
            )
            for point in self.points
        ]

    def passes(self, reference: PassResult, passed: PassResult, training: bool) -> list[TensorComparison]:
        """Each point and the outputs of a pass of both as they are."""
        return [
            *self.activations(self.expected(reference, training), passed),
            *self.outputs(reference, passed),
        ]

    def outputs(self, reference: PassResult, passed: PassResult) -> list[TensorComparison]:
        """The outputs of both, in their order; raises ExternalModelError where one model gives more than the other."""
        ours, theirs = list(reference.outputs.items()), list(passed.outputs)
        if not (ours or theirs) or (self.trains_by_step and not (ours and theirs)):
            return []  # where no output has a counterpart the loss decides; that of a training step always
        if len(ours) != len(theirs):
            raise ExternalModelError(
                f"{self.keras.target} gives {len(ours)} outputs and {self.torch.target} {len(theirs)}; name a function"
                " that gives one"
            )
        return [
            compared(f"forward/{self.output_name(name)}", due, passed.outputs[other], rows=self.rows)
            for (name, due), (_, other) in zip(
                ours, paired_outputs(list(reference.outputs), list(passed.outputs)), strict=True
            )
        ]

    def output_name(self, name: str) -> str:
        """How rows call an output of Keras's."""
        return OUTPUT if len(self.outlines[0].outputs) == 1 else f"{OUTPUT}/{name}"


def taken(
    side: ExternalWorker, inputs: Arrays, loss: BatchLoss, **options: Unpack[PassOptions]
) -> PassResult:
    """Return a pass of one model on inputs (batch, ...), with its loss and gradients where it has a loss."""
    if not loss.terms:
        return side.forward(inputs, **options)
    return side.gradients(inputs, loss.targets, loss.terms, loss.sample_weights, **options)


def taken_apart(bench: Bench) -> bool:
    """Whether training makes two unequal tensors of what is one on the other side."""
    trained = {info.name for outline in bench.outlines for info in outline.tensors if info.trainable}
    return any(
        trained.issuperset((*pair.keras, *pair.torch))
        for pair in bench.mapping.tensors
        if pair.parsed.shared_by_one
    )


def frozen_apart(bench: Bench) -> dict[str, str]:
    """Keras's tensors that one side trains and the other does not, with the side that does not: 'keras' or 'torch'."""
    trained = [{info.name for info in outline.tensors if info.trainable} for outline in bench.outlines]
    found = {}
    for pair in bench.mapping.tensors:
        # Of two biases, and of a tied tensor's copies, one may be frozen.
        there = any(name in trained[1] for name in pair.torch)
        for name in pair.keras if pair.torch else ():
            if (name in trained[0]) != there:
                found[name] = "keras" if there else "torch"
    return found


def decides(tensor: TensorComparison) -> bool:
    """Whether a port with this tensor off is wrong: rows of single layers only locate, since models may partition the work differently."""
    stage, _, place = tensor.name.partition("/")
    return stage not in ("forward", "evaluation", "backward") or place.partition("/")[0] == OUTPUT


def compared(
    name: str, due: Array, own: Array | None, allowed: float | None = None, rows: int | None = None
) -> TensorComparison:
    """One tensor of torch's (batch, ...), in its own layout, compared with Keras's; `rows`: of the batch, to say which is off."""
    allowed = limits.LIVE_FLOAT64 if allowed is None else allowed
    if own is None:
        return TensorComparison(name, None, float("inf"), allowed, "it was not computed")
    alignment = aligned(due, own)
    if alignment is None:
        shape = to_keras_layout(own).shape if own.ndim > 3 else own.shape
        return TensorComparison(name, None, float("inf"), allowed, f"shape {shape} instead of {due.shape}")
    found = alignment.array
    deviation = tensor_deviation(due, found)
    rest = unmasked(due) if name.startswith("forward/") else None
    if rest is not None:
        deviation = max(deviation, tensor_deviation(due[rest], found[rest]))
    return TensorComparison(name, None, deviation, allowed, _where(due, found, deviation, rows))


def losses(bench: Bench, reference: PassResult, passed: PassResult) -> list[TensorComparison]:
    """The loss sum and what it counts; of several, or of the users' own, the mean of each and what it sends back to the outputs."""
    if passed.loss_sum is None:
        return []
    pairs = {"loss_sum": (reference.loss_sum, passed.loss_sum), "count": (reference.count, passed.count)}
    terms = bench.losses[0].terms
    if len(terms) > 1:
        pairs |= {f"loss/{name}": (mean, passed.terms[name]) for name, mean in reference.terms.items()}
    found = [
        TensorComparison(name, None, tensor_deviation(np.array(ours), np.array(theirs)), limits.LIVE_FLOAT64)
        for name, (ours, theirs) in pairs.items()
    ]
    if len(terms) == 1 and terms[0].own is None:
        return found
    both = sent_back(reference, passed)
    largest = max((float(np.abs(due).max(initial=0.0)) for due, _ in both.values()), default=0.0)
    for name, (due, own) in both.items():
        size = float(np.abs(due).max(initial=0.0))
        allowed = limits.LIVE_FLOAT64 + (limits.ROUNDING_SHARE * largest / size if size else 0.0)
        found.append(compared(f"loss/gradient of {bench.output_name(name)}", due, own, allowed, bench.rows))
    if all(one.agrees for one in found[: len(pairs)]) and not all(one.agrees for one in found):
        # What a softmax takes away again, as of a loss that divides probabilities by their sum, trains no weight otherwise.
        trained = gradients(bench, reference, passed)
        found = found[: len(pairs)] if trained and all(one.agrees for one in trained) else found
    return found


def sent_back(reference: PassResult, passed: PassResult) -> dict[str, tuple[Array, Array]]:
    """By Keras's output the gradients of both losses with respect to it, (batch, ...); zeros where none arrives."""
    found = {}
    for name, other in paired_outputs(list(reference.outputs), list(passed.outputs)):
        due, own = reference.output_gradients.get(name), passed.output_gradients.get(other)
        if due is not None or own is not None:
            found[name] = (
                np.zeros_like(reference.outputs[name]) if due is None else due,
                np.zeros_like(passed.outputs[other]) if own is None else own,
            )
    return found


def gradients(bench: Bench, reference: PassResult, passed: PassResult) -> list[TensorComparison]:
    """Of every trained Keras tensor that both have a gradient of, the last layer's first."""
    if passed.loss_sum is None:
        return []
    theirs = bench.mapping.gradients_to_keras(_whole(bench, passed.gradients))
    largest = max(
        (float(np.abs(value).max(initial=0.0)) for value in reference.gradients.values()), default=0.0
    )
    mapped = {
        name
        for pair in bench.mapping.tensors
        # Of a gradient of one tensor nothing tells what share each of two has.
        for name in (pair.keras if pair.torch and pair.rule != "tied_kernel" else ())
    }
    without_effect = frozen_apart(bench).keys() - bench.frozen.keys()
    mapped -= without_effect
    if bench.unshared is not None:
        # Of a layer that is several on the other side, each has a part of it.
        layers = {info.name: info.layer for info in bench.outlines[0].tensors}
        mapped -= {name for name in mapped if layers[name] in bench.unshared.layers}
    found = []
    for name, due in reversed(reference.gradients.items()):
        if name not in mapped:
            continue
        size = float(np.abs(due).max(initial=0.0))
        rounding = limits.ROUNDED_SUM * largest
        allowed = limits.LIVE_FLOAT64 + (rounding / size if size else 0.0)
        own = theirs.get(name)
        if not size and (own is None or float(np.abs(own).max(initial=0.0)) <= rounding):
            continue
        one = compared(f"gradient/{name}", due, own, allowed)
        found.append(replace(one, where="" if own is not None else "no gradient arrives there in torch"))
    for name, own in theirs.items():
        if name not in reference.gradients and name not in without_effect and np.any(own):
            found.append(
                TensorComparison(
                    f"gradient/{name}",
                    None,
                    float("inf"),
                    limits.LIVE_FLOAT64,
                    "no gradient arrives there in Keras",
                )
            )
    return found


def _whole(bench: Bench, theirs: Arrays) -> Arrays:
    """torch's gradients, and zeros of what has none where another part of one tensor of Keras's has."""
    shapes = {info.name: info.shape for info in bench.outlines[1].tensors}
    parts = [pair.torch for pair in bench.mapping.tensors if pair.rule != "two_biases"]
    missing = (name for names in parts if theirs.keys() & {*names} for name in names if name not in theirs)
    return {**theirs, **{name: np.zeros(shapes[name]) for name in missing}}


def of_stage(tensor: TensorComparison, stage: str) -> TensorComparison:
    """The same, reported as of another stage."""
    return replace(tensor, name=f"{stage}/{place_of(tensor)}")


def place_of(tensor: TensorComparison | Finding) -> str:
    """The name without its stage: a point's, or a tensor's."""
    return tensor.name.partition("/")[2]


def _where(due: Array, own: Array, deviation: float, rows: int | None) -> str:
    """The sample of which a tensor is off the most; nothing where it agrees, or has no row for each."""
    if deviation <= limits.LIVE_FLOAT64:
        return ""
    if not np.isfinite(own).all() or not np.isfinite(due).all():
        return "not finite"
    if not due.ndim or len(due) != rows:
        return ""
    apart = (
        np.abs(np.asarray(own, np.float64) - np.asarray(due, np.float64)).reshape(len(due), -1).max(axis=1)
    )
    return f"row of sample {int(np.argmax(apart))}"
