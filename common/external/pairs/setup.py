"""Two models of a user's own made one question: opened, mapped, given the same weights, described as a TrainSpec."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.data.files import hash_of
from parity.common.diagnosis import limits
from parity.common.external.mapping.models import TracedModels, exact_constants, trace_models
from parity.common.external.mapping.name_similarity import tokens_of
from parity.common.external.pairs.bench import Bench, LoadedPair, Unshared, frozen_apart, taken
from parity.common.external.pairs.checks import check_what_trains
from parity.common.external.pairs.dropout import Masks
from parity.common.external.pairs.objectives import Objective, TargetForm, for_losses_alone, sides_of
from parity.common.external.pairs.rates import schedule_of
from parity.common.external.pairs.request import PairRequest, Samples
from parity.common.external.pairs.varied_weights import other_weights, varied
from parity.common.external.process.layouts import to_torch_input
from parity.common.external.process.objective import BatchLoss, step_of
from parity.common.external.process.pass_result import Arrays, PassResult, same
from parity.common.external.process.serving import mixes_types
from parity.common.external.process.worker import ExternalWorker
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec import TrainSpec
from parity.common.spec.external.mapping import Mapping, Names
from parity.common.spec.external.outline import Outline
from parity.common.spec.imported_loss import ImportedLoss
from parity.common.spec.layers import ExternalTensor, Imported
from parity.common.spec.layers import Pair as SpecPair
from parity.common.spec.losses import LossBase, MeanSquaredError, SoftmaxCrossEntropy
from parity.common.spec.optimizers import OptimizerBase
from parity.common.spec.sources import Npz
from parity.common.state.zero_gradient import PAIR_ULPS, measured_zero_gradients

_LISTED = 4
# From so many samples at most, so many sets are drawn to see which gradients are zero.
_LOOKED_AT, _SUBSETS = 256, 6
_HELD_OUT = 5  # one sample of so many is evaluated on


def open_pair(asked: PairRequest, keras: ExternalWorker, torch: ExternalWorker) -> LoadedPair:
    """Build both models and trace a pass of each; where types meet, with float64 wherever their code says float32.

    Raises:
        ExternalModelError: one of them cannot be built or called with these samples, or what it is trained by is not known.
        SpecError: the samples cannot be read.
    """
    try:
        return _opened(asked, keras, torch)
    except ExternalModelError as error:
        if not mixes_types(str(error)):
            raise
        for side, target in ((keras, asked.keras), (torch, asked.torch)):
            side.hold(target, seed=asked.seed, exact=True)
        return replace(_opened(asked, keras, torch), built_exact=True)


def _opened(asked: PairRequest, keras: ExternalWorker, torch: ExternalWorker) -> LoadedPair:
    samples = asked.data.rows(0, min(asked.global_batch, asked.data.samples))
    inputs = samples.inputs
    if samples.weights is not None and not samples.weights.any():
        raise SpecError(
            f"--data {asked.data.path}: all weights of the first batch are 0; nothing could be compared"
        )
    optimizers = asked.optimizers or (None, None)
    try:
        models = trace_models(keras, torch, inputs, optimizers)
    except ExternalModelError as error:
        hint = _channels_hint(str(error), inputs)
        if not hint:
            raise
        raise ExternalModelError(f"{error}{hint}") from None
    models = _without_loss_terms(asked, models)
    check_what_trains(asked, models.outlines)
    losses = losses_of(asked, models.outlines, samples)
    if step_of(losses[0].terms):
        # A step may call, and so build, layers that the model by itself does not.
        for side, loss, given in zip((keras, torch), losses, models.inputs, strict=True):
            taken(side, given, loss, training=True, taps=False)
        models = _without_loss_terms(asked, trace_models(keras, torch, inputs, optimizers))
    first = any(models.inputs[1][name].shape != models.inputs[0][name].shape for name in inputs)
    return LoadedPair(
        **vars(models),
        losses=losses,
        layout="channels_first" if first else "as_is",
    )


def _without_loss_terms(asked: PairRequest, models: TracedModels) -> TracedModels:
    """The models with those outputs that have counterparts; the others are for the users' own losses."""
    outlines = []
    for side, outline, alone in zip(
        (models.keras, models.torch),
        models.outlines,
        for_losses_alone(asked.objectives, models.outlines),
        strict=True,
    ):
        side.loss_terms = alone
        kept = {name: shape for name, shape in outline.outputs.items() if name not in alone}
        terms = (*outline.loss_terms, *sorted(alone))
        outlines.append(outline.model_copy(update={"outputs": kept, "loss_terms": terms}))
    return replace(models, outlines=(outlines[0], outlines[1]))


def _channels_hint(said: str, inputs: Arrays) -> str:
    """What to do where Keras refuses a batch that lies channels first: it names the shape that it was given."""
    for name, array in inputs.items():
        count, *rest = array.shape
        turned = (0, *range(2, array.ndim), 1)
        if array.ndim > 3 and rest[0] < min(rest[1:]) and f"({count}, {', '.join(map(str, rest))})" in said:
            return f"; if {name} has its channels first, give it as Keras takes it: {name}.transpose{turned}"
    return ""


def losses_of(
    asked: PairRequest, outlines: tuple[Outline, Outline], samples: Samples
) -> tuple[BatchLoss, BatchLoss]:
    """Return what Keras's and torch's model are trained by on some samples; raises SpecError where targets do not suit."""
    return sides_of(asked.objectives, outlines, samples.targets, samples.weights)


def check_finite(bench: Bench) -> None:
    """Raise ExternalModelError where a model's outputs are not finite: nothing could be compared."""
    for (side, _, inputs), loss in zip(bench.sides, bench.losses, strict=True):
        passed = taken(side, inputs, loss, training=True)
        tensors = {**passed.activations, **passed.outputs}
        if all(np.isfinite(value).all() for value in passed.outputs.values() if value.dtype.kind == "f"):
            if passed.loss_sum is None or np.isfinite(passed.loss_sum):
                continue
            raise ExternalModelError(
                f"{side.target}: its outputs are finite, and its loss is {passed.loss_sum}"
            )
        first = next(n for n, v in tensors.items() if v.dtype.kind == "f" and not np.isfinite(v).all())
        missing = next((n for n, v in inputs.items() if v.dtype.kind == "f" and np.isnan(v).any()), None)
        why = "though weights and samples are" if missing is None else f"as the input {missing} has a NaN"
        raise ExternalModelError(
            f"{side.target}: its outputs are not finite for these samples, {why}; the first to have a NaN or an infinity"
            f" is {first}"
        )


def any_losses(bench: Bench) -> tuple[BatchLoss, BatchLoss]:
    """Return squared errors from random targets, of all outputs: they send something back through every layer."""
    outputs = bench.keras.forward(bench.inputs[0], taps=False).outputs
    random = np.random.default_rng(0)
    targets = {
        name: random.normal(size=value.shape) for name, value in outputs.items() if value.dtype.kind == "f"
    }
    objectives = [Objective(name, MeanSquaredError()) for name in targets]
    return sides_of(objectives, bench.outlines, targets, None)


def settle_targets(asked: PairRequest, bench: Bench) -> tuple[PairRequest, Bench, list[str]]:
    """Give torch's own losses targets in a shape that they take: (n, 1) or (n,) is up to the user's loop.

    The first shape with which the losses are equal is taken, else the first that is taken at all.

    Returns:
        what was asked, the models with the losses settled, and a line for each loss of which the shape matters.
    """
    lines: list[str] = []
    samples = asked.data.rows(0, bench.rows)
    for number, objective in enumerate(asked.objectives):
        term = bench.losses[1].terms[number]
        if isinstance(objective.loss, LossBase) or len(term.targets) != 1:
            continue
        trials: dict[tuple[int, ...], tuple[PairRequest, Bench]] = {}
        for form in get_args(TargetForm):
            each = [replace(o, given=form) if o is objective else o for o in asked.objectives]
            trial = replace(asked, loss=tuple(each))
            losses = losses_of(trial, bench.outlines, samples)
            trials.setdefault(
                losses[1].targets[term.targets[0]].shape, (trial, replace(bench, losses=losses))
            )
        values: dict[tuple[int, ...], float] = {}
        with exact_constants(bench):
            due = bench.reference(True).terms[term.name] if len(trials) > 1 else 0.0
            for shape, (_, other) in trials.items() if len(trials) > 1 else ():
                with suppress(ExternalModelError):  # it does not take this shape
                    values[shape] = other.torch_pass(True).terms[term.name]
        if not values:
            continue  # what is wrong is told where the loss is needed
        equal = [shape for shape, value in values.items() if _close(due, value)]
        chosen = (equal or list(values))[0]
        asked, bench = trials[chosen]
        others = [shape for shape, value in values.items() if not _close(values[chosen], value)]
        said = "".join(
            f"; with {shape} it would give {values[shape]:.6g}, so mind your loop" for shape in others
        )
        if said or chosen != next(iter(trials)):
            lines.append(
                f"{objective.loss[1]}: given {term.targets[0]} in the shape {chosen} it gives {values[chosen]:.6g}{said}"
            )
    return asked, bench, lines


def _close(left: float, right: float) -> bool:
    return tensor_deviation(np.array(left), np.array(right)) <= limits.LIVE_FLOAT64


def doubtful_losses(bench: Bench) -> list[str]:
    """A line for each of our losses that takes logits of what looks like probabilities, and for each output without one."""
    outputs = bench.keras.forward(bench.inputs[0], taps=False).outputs
    terms = bench.losses[0].terms
    # A loss without a name is of all outputs, or of the logits among them.
    due = {term.output for term in terms if term.name != "loss"}
    found = [
        f"no loss is of output {name}, and what it alone needs is not trained; --loss {name}=KIND gives it one"
        for name in outputs
        if due and name not in due
    ]
    for term in terms:
        if getattr(term.loss, "outputs", "") != "logits":
            continue
        value = outputs[term.output or next(iter(outputs))]
        softmax = isinstance(term.loss, SoftmaxCrossEntropy)
        sums_to_one = bool(np.allclose(value.sum(-1), 1)) if softmax else value.max() < 1
        # Logits may lie between 0 and 1, too.
        function = "softmax" if softmax else "sigmoid"
        layers = (*bench.outlines[0].layers, *bench.outlines[0].operations)
        named = any(function in f"{info.kind} {info.path} {info.settings}" for info in layers)
        if value.min() > 0 and sums_to_one and named:
            found.append(
                f"{term.name}: the loss takes logits, on both sides, and Keras's outputs look like probabilities; for a"
                " loss of probabilities add outputs=probabilities (Keras: from_logits=false)"
            )
    return found


def unshared(mapping: Mapping, outlines: tuple[Outline, Outline]) -> Unshared | None:
    """Find what leaves trained tensors of one side without a counterpart: the other one shares a layer; None where it is not so."""
    trained = [{info.name: info for info in outline.tensors if info.trainable} for outline in outlines]
    calls = [{info.path: info.calls for info in outline.layers} for outline in outlines]
    alone = [pair for pair in mapping.tensors if not (pair.keras and pair.torch)]
    unmapped = [
        [names[name] for name in left if name in names]
        for names, left in zip(trained, (mapping.unmapped.keras, mapping.unmapped.torch), strict=True)
    ]
    for shares, has in ((0, 1), (1, 0)):
        copies: dict[str, str] = {}
        several_alone = [name for pair in alone for name in (pair.keras, pair.torch)[has] if unmapped[has]]
        unmapped[has] += [trained[has][name] for name in several_alone if name in trained[has]]
        for info in unmapped[has] if not unmapped[shares] else ():
            # Of a block that is called again the part of the same name.
            alike = sorted(
                mapping.tensors, key=lambda pair: _words((pair.keras, pair.torch)[has]) == _words([info.name])
            )
            for pair in alike:
                both = pair.keras, pair.torch
                own = trained[has].get(both[has][0]) if len(pair.torch) == len(pair.keras) == 1 else None
                shared = trained[shares].get(both[shares][0]) if own is not None else None
                if own is None or shared is None or (own.role, own.shape) != (info.role, info.shape):
                    continue
                if calls[shares].get(shared.layer, 0) > 1:
                    copies[info.name] = own.name
        partner = {pair.keras[0]: pair.torch[0] for pair in mapping.tensors if pair.keras and pair.torch}
        partner |= {other: name for name, other in partner.items()}
        if copies and len(copies) == len(unmapped[has]):
            several = dict.fromkeys(
                trained[has][name].layer for pair in copies.items() for name in reversed(pair)
            )
            one = dict.fromkeys(trained[shares][partner[name]].layer for name in copies.values())
            told = _in_words([*one]), _in_words([*several])
            layers = frozenset(several if shares else one)
            return Unshared("torch" if shares else "keras", told[shares], told[has], copies, layers)
    return None


def without_pairs(mapping: Mapping, names: Collection[str]) -> Mapping:
    """A mapping in which some tensors that one side alone has are without a counterpart."""
    alone = [
        pair
        for pair in mapping.tensors
        if not (pair.keras and pair.torch) and {*pair.keras, *pair.torch} & {*names}
    ]
    left = Names(
        keras=(*mapping.unmapped.keras, *(name for pair in alone for name in pair.keras)),
        torch=(*mapping.unmapped.torch, *(name for pair in alone for name in pair.torch)),
    )
    kept = tuple(pair for pair in mapping.tensors if pair not in alone)
    return mapping.model_copy(update={"tensors": kept, "unmapped": left})


def _words(names: Sequence[str]) -> list[str]:
    """The words of the first of some names, without their numbers."""
    return [token for token in tokens_of(next(iter(names), "")) if isinstance(token, str)]


def _in_words(layers: Sequence[str]) -> str:
    """All of a few, the first of many."""
    return f"{layers[0]} and {len(layers) - 1} more" if len(layers) > 3 else " and ".join(layers)


def copy_weights(asked: PairRequest, opened: LoadedPair, mapping: Mapping) -> Arrays:
    """Give one model the weights of the other; the canonical values of all mapped tensors.

    Raises:
        ExternalModelError: they do not fit, or are not finite.
    """
    side = opened.keras if asked.weights == "keras" else opened.torch
    state = side.read() if side is opened.keras else mapping.to_keras(side.read())
    named = {name for pair in mapping.tensors for name in pair.keras}
    canonical = {name: value for name, value in state.items() if name in named}
    if side is opened.torch:
        opened.keras.write(canonical)
    for name, value in canonical.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ExternalModelError(f"{side.target}: the weights have a NaN or an infinity in {name}")
    given = mapping.to_torch(canonical)
    opened.torch.write(given)
    # What torch has one tensor for begins alike in Keras.
    tied = {name for pair in mapping.tensors if pair.rule == "tied_kernel" for name in pair.keras}
    if tied:
        canonical |= {name: value for name, value in mapping.to_keras(given).items() if name in tied}
        opened.keras.write(canonical)
    return canonical


def bench_of(asked: PairRequest, opened: LoadedPair, mapping: Mapping) -> Bench:
    """Both models side by side on the batch."""
    bench = Bench(**vars(opened), mapping=mapping)
    bench.frozen = _frozen(asked, bench)
    return bench


def _frozen(asked: PairRequest, bench: Bench) -> dict[str, str]:
    """What one side alone trains, with a gradient that is not zero for all samples; see `Bench`."""
    apart = frozen_apart(bench)
    found: dict[str, str] = {}
    if not apart or not bench.losses[0].terms:
        return found
    for inputs, loss in [(bench.inputs[0], bench.losses[0]), *_subsets(asked, bench)]:
        passed = taken(bench.keras, inputs, loss, training=True, taps=False, also=list(apart))
        sizes = {name: float(np.abs(each).max(initial=0.0)) for name, each in passed.gradients.items()}
        rounding = PAIR_ULPS * float(np.finfo(np.float64).eps) * max(sizes.values(), default=0.0)
        found |= {name: side for name, side in apart.items() if sizes.get(name, 0.0) > rounding}
    return {name: side for name, side in apart.items() if name in found}


def spec_of(
    asked: PairRequest,
    bench: Bench,
    weights: Path,
    optimizer: OptimizerBase,
    masks: Masks,
    joined: tuple[ImportedLoss, Npz] | None,
) -> TrainSpec:
    """The pair as a TrainSpec.

    Args:
        asked, bench: what is trained.
        weights: the file of the initial ones.
        optimizer, masks: of both sides.
        joined: the loss that the models give, and rows of all that they are given; None where one input and one loss of
            ours say it all.
    """
    # What stock Keras rounds or adds hides that a gradient is nothing but rounding.
    with exact_constants(bench):
        reference = bench.reference(training=True)
        null = _zero_gradients(asked, bench, reference)
        moved = _moved_by_rounding(asked, bench)
    # What one side alone trains is here only where its gradient is zero.
    still = [set(bench.mapping.ignored.keras), set(bench.mapping.ignored.torch)]
    for pair in bench.mapping.tensors:
        if frozen_apart(bench).keys() & set(pair.keras):
            still[0] |= set(pair.keras)
            still[1] |= set(pair.torch)
    still[1] |= moved
    batch_norm = any(info.kind == "batch_norm" for outline in bench.outlines for info in outline.layers)
    coupled = (joined is not None and joined[0].reduction == "batch") or _couples_samples(bench, masks)
    trained = _plain(asked, bench, reference) if joined is None else _joined(*joined)
    layer = Imported(
        keras=f"{asked.keras.module}:{asked.keras.attribute}",
        torch=f"{asked.torch.module}:{asked.torch.attribute}",
        keras_arguments=asked.keras.arguments,
        torch_arguments=asked.torch.arguments,
        keras_tensors=_tensors(bench.outlines[0], still[0], null),
        torch_tensors=_tensors(bench.outlines[1], still[1], {}),
        mapping=tuple(
            SpecPair(keras=pair.keras, torch=pair.torch, rule=pair.rule) for pair in bench.mapping.tensors
        ),
        **trained["layer"],
        weights=str(weights.resolve()),
        sha256=hash_of(weights),
        statistics="per_replica" if batch_norm or coupled else "none",
        stochastic="off" if asked.without_dropout else "keyed" if masks.keras or masks.torch else "none",
        keras_dropout=masks.keras,
        torch_dropout=masks.torch,
        constants="stock"
        if asked.precision != "float64"
        else "exact_from_build"
        if bench.built_exact
        else "exact",
        running_variance="biased" if bench.norms else "stock",
    )
    # A training step says nothing of inference.
    held_out = 0 if bench.trains_by_step else asked.data.samples // _HELD_OUT
    return TrainSpec.parse(
        {
            "name": asked.name,
            "convention": "keras",
            "model": {**trained["model"], "layers": [layer.to_dict()]},
            "data": {
                "source": trained["source"],
                "train_samples": asked.data.samples - held_out,
                "eval_samples": held_out,
            },
            "loss": trained["loss"].to_dict(),
            "optimizer": optimizer.to_dict(),
            "schedule": schedule_of(bench.rates),
            "global_batch_size": min(asked.global_batch, asked.data.samples - held_out),
            "steps": asked.steps,
            "seed": asked.seed,
            "precision": asked.precision,
        }
    ).resolved()


def _plain(asked: PairRequest, bench: Bench, reference: PassResult) -> dict[str, Any]:
    """Parts of the spec of one input and one loss of ours."""
    given = [tuple(inputs.values()) for inputs in bench.inputs]
    inputs = given[0][0]
    terms = [side.terms[0] for side in bench.losses]
    names = [
        (term.output or "") if len(o.outputs) > 1 else ""
        for term, o in zip(terms, bench.outlines, strict=True)
    ]
    output = reference.outputs[terms[0].output or next(iter(reference.outputs))]
    data = asked.data
    return {
        "layer": {
            "output": output.shape[1:],
            "torch_layout": bench.layout,
            "torch_output_layout": "channels_first" if terms[1].channels_first else "as_is",
            "keras_output": names[0],
            "torch_output": names[1],
        },
        "model": {
            "input_shape": list(inputs.shape[1:]),
            # What one side takes as floats are numbers, though they are whole.
            "inputs": "tokens" if all(a.dtype.kind == "i" for (a,) in given) else "numbers",
        },
        "source": {
            "kind": "npz",
            "path": str(data.path.resolve()),
            "sha256": hash_of(data.path),
            "inputs": data.inputs[0],
            "targets": None if data.targets == data.inputs else data.targets[0],
            "divide_by": data.divide_by,
        },
        "loss": asked.objectives[0].loss,
    }


def _joined(loss: ImportedLoss, source: Npz) -> dict[str, Any]:
    """Parts of the spec of models that give a loss of their own, for rows of all that they are given."""
    return {
        "layer": {"output": (2,)},
        "model": {"input_shape": [sum(array.width for array in loss.arrays)], "inputs": "numbers"},
        "source": source.to_dict(),
        "loss": loss,
    }


def drawn_rows(asked: PairRequest, bench: Bench) -> Iterator[Samples]:
    """Some samples drawn from all, several times."""
    whole = asked.data.rows(0, min(asked.data.samples, _LOOKED_AT))
    random = np.random.default_rng(asked.seed)
    batch = size_of(Samples(bench.inputs[0], {}, None))
    for _ in range(_SUBSETS):
        yield whole.taken(random.permutation(size_of(whole))[: max(2, batch // 2)])


def size_of(samples: Samples) -> int:
    """How many they are."""
    return len(next(iter(samples.inputs.values())))


def formed(bench: Bench, inputs: Arrays) -> tuple[Arrays, Arrays]:
    """Inputs (batch, ...) of a file in the layouts and types in which Keras's and torch's model were opened with them."""
    found: tuple[Arrays, Arrays] = ({}, {})
    for name, array in inputs.items():
        ours, theirs = (given[name] for given in bench.inputs)
        moved = not same(theirs, ours)
        found[0][name] = array.astype(ours.dtype)
        found[1][name] = (to_torch_input(array) if moved else array).astype(theirs.dtype)
    return found


def _zero_gradients(asked: PairRequest, bench: Bench, reference: PassResult) -> dict[str, str]:
    """Of Keras's tensors those whose gradient is zero up to rounding whatever the samples, on both sides, and why.

    reference: Keras's training pass.
    """
    ours = _drawn_gradients(asked, bench, 0)
    null = measured_zero_gradients(reference.gradients, *ours)
    # Where one side computes an exact zero, the other may round.
    exact = {
        name
        for name, value in reference.gradients.items()
        if not any(map(np.any, (value, *(each.get(name) for each in ours))))
    }
    if exact:
        theirs = _torch_gradients(asked, bench)
        rounded = measured_zero_gradients(*(bench.mapping.gradients_to_keras(each) for each in theirs))
        null |= {name: why for name, why in rounded.items() if name in exact}
        null |= _zero_behind_gains(asked, bench, exact - null.keys())
    return null


def _zero_behind_gains(asked: PairRequest, bench: Bench, names: set[str]) -> dict[str, str]:
    """Of Keras's tensors whose gradients are zero now those whose gradients are rounding with other weights, on a side at least, and why.

    A gain that begins as zero hides what is before it, in the first step alone.
    """
    if not names:
        return {}
    try:
        with other_weights(bench, varied) as changed:
            if not changed:
                return {}
            ours, theirs = _drawn_gradients(asked, bench, 0), _drawn_gradients(asked, bench, 1)
    except ExternalModelError:
        return {}  # it needs weights of a kind
    sides = ours, [bench.mapping.gradients_to_keras(each) for each in theirs]
    found = [measured_zero_gradients(*each) for each in sides]

    def is_null(name: str) -> bool:
        """Whether it is rounding on one side, and on the other that or an exact zero."""
        return all(
            name in rounded or not any(np.any(each.get(name, 0)) for each in side)
            for rounded, side in zip(found, sides, strict=True)
        )

    return {
        name: f"with other weights {why}"
        for name, why in (found[1] | found[0]).items()
        if name in names and is_null(name)
    }


def _moved_by_rounding(asked: PairRequest, bench: Bench) -> set[str]:
    """Of the tensors that torch alone trains those whose gradient is zero up to rounding: a bias before a batch norm.

    Keras has nothing that could follow such a tensor, and it changes nothing: it keeps its value.
    """
    alone = {name for pair in bench.mapping.tensors if not pair.keras for name in pair.torch}
    return alone & measured_zero_gradients(*_torch_gradients(asked, bench)).keys() if alone else set()


def _torch_gradients(asked: PairRequest, bench: Bench) -> list[Arrays]:
    """Torch's gradients of the first batch and of two parts of it."""
    return [bench.torch_pass(training=True).gradients, *_drawn_gradients(asked, bench, 1)]


def _drawn_gradients(asked: PairRequest, bench: Bench, side: int) -> list[Arrays]:
    """A side's gradients of each of the samples of `_subsets`."""
    worker = bench.sides[side][0]
    return [
        taken(worker, given, part, training=True, taps=False).gradients
        for given, part in _subsets(asked, bench, side)
    ]


def _couples_samples(bench: Bench, masks: Masks) -> bool:
    """Whether what a model gives for some samples depends on which others are in the batch: a replica has fewer of them."""
    inputs = bench.inputs[0]
    few = {name: array[: max(1, len(array) // 2)] for name, array in inputs.items()}
    # With masks each pass draws others.
    training = not (masks.keras or masks.torch)
    whole = bench.keras.forward(inputs, training=training, taps=False).outputs
    try:
        part = bench.keras.forward(few, training=training, taps=False).outputs
    except ExternalModelError:
        return False  # it takes so many samples and no others
    return any(
        value.shape[1:] == whole[name].shape[1:]
        and len(value) < len(whole[name])
        and tensor_deviation(whole[name][: len(value)], value) > limits.LIVE_FLOAT64
        for name, value in part.items()
        if value.ndim and value.dtype.kind == "f"
    )


def own_statistics(asked: PairRequest, bench: Bench) -> list[str]:
    """Buffers of Keras's model that a pass in training writes by its samples, of layers that are no batch norms."""
    kinds = {info.path: info.kind for info in bench.outlines[0].layers}
    norms = {info.name for info in bench.outlines[0].tensors if kinds.get(info.layer) == "batch_norm"}
    mapped = {name for pair in bench.mapping.tensors if pair.torch for name in pair.keras}
    written = {
        name: value
        for name, value in bench.reference(training=True).buffers.items()
        if name in mapped - norms and value.dtype.kind == "f"
    }
    found = set[str]()
    for given, part in _subsets(asked, bench) if written else ():
        others = taken(bench.keras, given, part, training=True, taps=False).buffers
        found |= {name for name, value in written.items() if not same(value, others.get(name, value))}
    return [name for name in written if name in found]


def _subsets(asked: PairRequest, bench: Bench, side: int = 0) -> Iterator[tuple[Arrays, BatchLoss]]:
    """Inputs and loss of some samples drawn from all, (batch, ...), several times; side: 0 for Keras, 1 for torch."""
    for samples in drawn_rows(asked, bench):
        yield formed(bench, samples.inputs)[side], losses_of(asked, bench.outlines, samples)[side]


def _tensors(outline: Outline, ignored: set[str], null: dict[str, str]) -> tuple[ExternalTensor, ...]:
    return tuple(
        ExternalTensor(
            name=info.name,
            shape=info.shape,
            trainable=info.trainable and not info.buffer and info.name not in ignored,
            buffer=info.buffer,
            null_direction=null.get(info.name),
        )
        for info in outline.tensors
        if info.tied_to is None
    )
