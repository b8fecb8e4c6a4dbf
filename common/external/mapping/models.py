"""Two live models and their mapping: each traced with the same samples, a mapping proposed or given, and put to the test."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.base.words import listed
from parity.common.diagnosis.limits import ROUNDED_CONSTANT
from parity.common.external.mapping.by_effect import ByEffect
from parity.common.external.mapping.copies import like_their_copies
from parity.common.external.mapping.left_over import BY_USE, of_one_side
from parity.common.external.mapping.propose import other_ways, propose
from parity.common.external.mapping.trial import AGREES, Bench, constant_of
from parity.common.external.mapping.verification import outputs_apart, refine
from parity.common.external.process.layouts import to_torch_input
from parity.common.external.process.objective import step_of
from parity.common.external.process.pass_result import Arrays
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.mapping import Mapping, Names, Pair, Reasons, read_mapping
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import Term
from parity.common.spec.losses import MeanSquaredError

_LISTED = 4
_PROBED = 4
_AXES = ("a", "b", "c")
# Fewer numbers may be multiples by chance.
_FEWEST = 4


@dataclass
class TracedModels:
    """Both models alive, each called once.

    outlines: of Keras and torch, with the traced pass. inputs: a batch, of Keras and of torch, in the layout that each takes.
    """

    keras: ExternalWorker
    torch: ExternalWorker
    outlines: tuple[Outline, Outline]
    inputs: tuple[Arrays, Arrays]

    @property
    def rows(self) -> int:
        """The samples of the batch."""
        return len(next(iter(self.inputs[0].values())))


@contextmanager
def exact_constants(models: TracedModels) -> Iterator[list[str]]:
    """Constants in float64, where a framework takes them through float32: that is no fault of a port.

    Yields:
        What stock frameworks round of what was computed within; filled at the end.
    """
    rounded: list[str] = []
    for side in (models.keras, models.torch):
        side.exact_constants(True)
    try:
        yield rounded
    finally:
        for name, side in (("Keras", models.keras), ("torch", models.torch)):
            rounded += [f"{name} {what}" for what in side.exact_constants(False)]


def trace_models(
    keras: ExternalWorker,
    torch: ExternalWorker,
    inputs: Arrays,
    optimizers: tuple[Target | None, Target | None] = (None, None),
) -> TracedModels:
    """Call both models, at the same time.

    Args:
        keras, torch: hold the models.
        inputs: (batch, ...) by name, with the channels last.
        optimizers: the users' own, whose settings the outlines have then.

    Raises:
        ExternalModelError: a model cannot be built or called with these samples.
    """
    with ThreadPoolExecutor(2) as threads:
        (ours, keras_inputs), (theirs, torch_inputs) = threads.map(
            traced, (keras, torch), (inputs, inputs), optimizers
        )
    return TracedModels(keras, torch, (ours, theirs), (keras_inputs, torch_inputs))


def traced(side: ExternalWorker, inputs: Arrays, optimizer: str | Target | None) -> tuple[Outline, Arrays]:
    """A model's outline and its inputs, in the first of the forms that it takes.

    Whole numbers may be meant as tokens or as numbers; and torch may take channels before the other axes.
    """
    forms = [inputs]
    if any(array.dtype.kind == "i" for array in inputs.values()):
        forms.append({name: array.astype(np.float64) for name, array in inputs.items()})
    if side.framework == "torch":
        forms = [given for form in forms for given in _layouts(form)]
    failed: ExternalModelError | None = None
    for form in forms:
        try:
            return side.outline(form, optimizer=optimizer), form
        except ExternalModelError as error:
            failed = failed or error
    assert failed is not None
    raise failed


def _layouts(inputs: Arrays) -> list[Arrays]:
    """As they are and with the channels first; the likelier one comes first."""
    axes = max(array.ndim for array in inputs.values())
    if axes < 3:
        return [inputs]
    moved = {name: to_torch_input(array) if array.ndim > 2 else array for name, array in inputs.items()}
    return [moved, inputs] if axes > 3 else [inputs, moved]


def map_models(models: TracedModels, given: Path | None) -> Mapping:
    """The mapping that is given, verified, or one that is proposed and tried on both models.

    Raises:
        ExternalModelError: the given one does not fit the models.
    """
    with exact_constants(models):
        return _mapped(models, given)


def _mapped(models: TracedModels, given: Path | None) -> Mapping:
    ours, theirs = models.outlines
    if given is None:
        hints, probes = None, _probes(models)
        # A training step may use what no output of the model depends on.
        steps = any(step_of(loss.terms) for loss in getattr(models, "losses", ()))
        if steps:
            ours, theirs = (outline.model_copy(update={"unused": ()}) for outline in (ours, theirs))
        proposed = propose(ours, theirs)
        if left_of(proposed, models.outlines) and not steps:
            # What no output depends on may have taken the place of what they do.
            hints = Mapping(keras=ours.target, torch=theirs.target, ignored=_idle(models))
            proposed = propose(ours, theirs, hints)
        if any(BY_USE in (pair.doubt or "") for pair in proposed.tensors):
            ways = itertools.product(_in_orders(ours), _in_orders(theirs))
            every = [each for sides in ways for each in _in_layouts(propose(*sides, hints), ours)]
            proposed = min(every, key=lambda each: outputs_apart(each, models.keras, models.torch, *probes))
        refined = refine(_with_constants(proposed, models), models.keras, models.torch, *probes)
        turned = _in_order_of_axes(refined, ours)
        if turned != refined and _apart(turned, models, probes) < _apart(refined, models, probes):
            refined = refine(turned, models.keras, models.torch, *probes)
        released = without_constants(refined)
        if (
            released != refined
            or left_of(refined, models.outlines)
            or (refined.doubtful and _apart(refined, models, probes) > AGREES)
        ):
            before = refined
            told, exchanged, differ = _told(released, models, probes)
            # What is fused may have taken the place of what is not.
            others = iter(()) if differ else other_ways(ours, theirs, hints, proposed)
            for other in itertools.chain(told, others):
                found = refine(_with_constants(other, models), models.keras, models.torch, *probes)
                agree = _apart(found, models, probes) <= AGREES and not left_of(found, models.outlines)
                if agree or (other in told and _open(found) < _open(refined)):
                    refined = found
                if agree:
                    break
            if refined is before and exchanged:
                instead = {pair.keras: pair for pair in exchanged}
                tensors = tuple(instead.get(pair.keras, pair) for pair in refined.tensors)
                crossed = refined.model_copy(update={"tensors": tensors})
                refined = refine(crossed, models.keras, models.torch, *probes)
        return like_their_copies(_with_own_constants(refined, models, probes), models.outlines)
    mapping = read_mapping(given)
    mapping.check(ours, theirs)
    if not mapping.layers:
        mapping = mapping.model_copy(update={"layers": propose(ours, theirs, mapping).layers})
    # Two tensors of one shape, exchanged by hand, fit as well.
    return refine(mapping, models.keras, models.torch, *_probes(models), keep=True)


def _with_constants(mapping: Mapping, models: TracedModels) -> Mapping:
    """A mapping with trained tensors that one side alone has, and that begin as ones or zeros, as what they begin as; where these are
    all that have no counterpart.
    """
    found = list[Pair]()
    unmapped = mapping.unmapped.model_dump()
    for side, outline, worker in zip(unmapped, models.outlines, (models.keras, models.torch), strict=True):
        left = [info for info in outline.tensors if info.trainable and info.name in unmapped[side]]
        values = worker.read() if left else {}
        begins = [np.unique(values[info.name]) for info in left]
        if (left and found) or not all(each.size == 1 and each[0] in (0, 1) for each in begins):
            return mapping
        found += [of_one_side(side, info, each[0]) for info, each in zip(left, begins, strict=True)]
        taken = {info.name for info in left}
        unmapped[side] = tuple(name for name in unmapped[side] if name not in taken)
    return mapping.model_copy(update={"tensors": (*mapping.tensors, *found), "unmapped": Names(**unmapped)})


def without_constants(mapping: Mapping) -> Mapping:
    """A mapping in which tensors of both sides that the other one lacks, and that begin as ones or zeros, have no counterpart: they may be each
    other's, as four biases by themselves and that of one layer for all.
    """
    constants = [pair for pair in mapping.tensors if constant_of(pair.rule) is not None]
    alone = [tuple(name for pair in constants for name in getattr(pair, side)) for side in ("keras", "torch")]
    if not all(alone):
        return mapping
    rest = tuple(pair for pair in mapping.tensors if pair not in constants)
    unmapped = Names(keras=(*mapping.unmapped.keras, *alone[0]), torch=(*mapping.unmapped.torch, *alone[1]))
    return mapping.model_copy(update={"tensors": rest, "unmapped": unmapped})


def _told(
    mapping: Mapping, models: TracedModels, probes: tuple[Arrays, Arrays]
) -> tuple[list[Mapping], list[Pair], bool]:
    """A mapping with other pairs of tensors, by what each of them does: of those that order alone has told, or that have no counterpart.

    What names or shapes tell stays, as a port that takes one for another differs by that; unless something is left over so.

    Returns:
        one or none; pairs in place of those that order has crossed; and whether the models differ whatever is whose.
    """
    settled = [
        pair for pair in mapping.tensors if pair.source == "hand" or constant_of(pair.rule) is not None
    ]
    known = [
        pair for pair in mapping.tensors if pair in settled or pair.doubt is None or pair.source != "order"
    ]
    with Bench(mapping, models.keras, models.torch, *probes) as bench:
        for pairs in (known, settled) if left_of(mapping, models.outlines) else (known,):
            way = ByEffect(bench, pairs)
            if found := way.mapping():
                return [found], [], False
            if found := way.nearest():
                return [found], way.exchanged(), True
    return [], [], False


def _open(mapping: Mapping) -> tuple[int, int]:
    """How many tensors have no counterpart, and how many pairs are in doubt."""
    return len(mapping.unmapped.keras) + len(mapping.unmapped.torch), len(mapping.doubtful)


def _apart(mapping: Mapping, models: TracedModels, probes: tuple[Arrays, Arrays]) -> float:
    return outputs_apart(mapping, models.keras, models.torch, *probes)


def _in_order_of_axes(mapping: Mapping, keras: Outline) -> Mapping:
    """A mapping with kernels whose sides are equal in the order of axes that the shapes of another kernel tell, as of bands that torch has
    before height and width.
    """
    shapes = {info.name: info.shape for info in keras.tensors}
    orders = {len(order): order for pair in mapping.tensors if (order := _order_of_axes(pair.rule))}
    pairs = []
    for pair in mapping.tensors:
        sides = shapes[pair.keras[0]][:-2] if pair.rule == "conv" else ()
        order = orders.get(len(sides)) if len({*sides}) == 1 else None
        if order is not None:
            names = _AXES[: len(order)]
            rule = f"{' '.join(names)} i o -> o i {' '.join(names[place] for place in order)}"
            pair = pair.model_copy(update={"rule": rule})
        pairs.append(pair)
    return mapping.model_copy(update={"tensors": tuple(pairs)})


def _order_of_axes(rule: str) -> list[int] | None:
    """By a rule for a convolution's kernel, 'a b c i o -> o i c a b', which of Keras's axes each of torch's is; None where it is their own order."""
    ours, _, theirs = (part.split() for part in rule.partition(" -> "))
    sides = ours[:-2]
    if len(sides) < 2 or ours[-2:] != theirs[1::-1] or sorted(sides) != sorted(theirs[2:]):
        return None
    order = [sides.index(name) for name in theirs[2:]]
    return order if order != sorted(order) else None


def _with_own_constants(mapping: Mapping, models: TracedModels, probes: tuple[Arrays, Arrays]) -> Mapping:
    """A mapping without pairs of constants that each side's code makes for itself: a table, and that times 2 pi, say.

    They are neither trained nor statistics, one is a number times the other, and the outputs are nearer where each keeps its own.
    """
    infos = [{info.name: info for info in outline.tensors} for outline in models.outlines]
    kinds = {info.path: info.kind for info in models.outlines[0].layers}
    for pair in mapping.tensors:
        if len(pair.keras) != 1 or len(pair.torch) != 1 or pair.source == "hand":
            continue
        ours, theirs = (side[name] for side, (name,) in zip(infos, (pair.keras, pair.torch), strict=True))
        constant = not (ours.trainable or theirs.trainable or kinds.get(ours.layer) == "batch_norm")
        if not constant or not _is_multiple(mapping, pair, models):
            continue
        rest = tuple(each for each in mapping.tensors if each != pair)
        why = "a constant that each side makes for itself, and the outputs are nearer so"
        sides = (mapping.ignored.keras | {ours.name: why}, mapping.ignored.torch | {theirs.name: why})
        without = mapping.model_copy(
            update={"tensors": rest, "ignored": Reasons(keras=sides[0], torch=sides[1])}
        )
        apart = [_apart(each, models, probes) for each in (mapping, without)]
        mapping = without if apart[1] < apart[0] else mapping
    return mapping


def _is_multiple(mapping: Mapping, pair: Pair, models: TracedModels) -> bool:
    """Whether two tensors, as the models were built, are one times a number that is not one."""
    (name,) = pair.torch
    given = mapping.to_torch({each: models.keras.read()[each] for each in pair.keras}, True)
    own, due = (np.asarray(state[name], np.float64) for state in (models.torch.read(), given))
    if own.shape != due.shape or own.size < _FEWEST or not due.any():
        return False
    factor = float(np.vdot(own, due) / np.vdot(due, due))
    alike = np.abs(own - factor * due).max() <= ROUNDED_CONSTANT * np.abs(own).max()
    return bool(factor and alike and abs(factor - 1) > ROUNDED_CONSTANT)


def _in_orders(outline: Outline) -> list[Outline]:
    """A model as a pass uses its tensors, as if it did so in the order of their definition, and by the numbers of their blocks: a
    functional Keras model is not run in the order of its code.
    """
    defined = [info.name for info in outline.tensors if info.name in outline.used]
    numbered = sorted(defined, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    orders = dict.fromkeys([outline.used, tuple(defined), tuple(numbered)])
    return [outline.model_copy(update={"used": order}) for order in orders]


def _in_layouts(mapping: Mapping, keras: Outline) -> list[Mapping]:
    """A mapping with square kernels as torch's own layers have them, and as Keras has them."""
    square = {info.name for info in keras.tensors if len(info.shape) == 2 and info.shape[0] == info.shape[1]}
    pairs = tuple(
        pair.model_copy(update={"rule": "same"})
        if pair.rule == "transpose" and square.issuperset(pair.keras) and BY_USE in (pair.doubt or "")
        else pair
        for pair in mapping.tensors
    )
    return [mapping] if pairs == mapping.tensors else [mapping, mapping.model_copy(update={"tensors": pairs})]


def _probes(models: TracedModels) -> tuple[Arrays, Arrays]:
    """A few rows of the inputs, which tell tensors apart as well as many; all where a model takes no other number of rows."""
    keras, torch = ({name: array[:_PROBED] for name, array in inputs.items()} for inputs in models.inputs)
    if all(array.shape == keras[name].shape for name, array in models.inputs[0].items()):
        return models.inputs
    try:
        models.keras.forward(keras, taps=False)
        models.torch.forward(torch, taps=False)
    except ExternalModelError:
        return models.inputs
    return keras, torch


def check_mapped(mapping: Mapping, outlines: tuple[Outline, Outline], path: Path) -> None:
    """Raise ExternalModelError that names the trained tensors of which no counterpart is known, and the file to edit."""
    left = left_of(mapping, outlines)
    if left:
        told = [f"{listed(names, _LISTED)} of {target}" for target, names in left.items()]
        sizes = [
            sum(math.prod(info.shape) for info in outline.tensors if info.trainable) for outline in outlines
        ]
        # What has other numbers of weights is no question of names.
        fewer = (
            "a size may be wrong"
            if sizes[0] > sizes[1]
            else "a size may be wrong; or a layer is called on a constant, as a table of positions on ops.arange, which a functional model of Keras's does"
            " not hold"
        )
        apart = (
            "" if sizes[0] == sizes[1] else f" (Keras trains {sizes[0]} numbers, torch {sizes[1]}: {fewer})"
        )
        raise ExternalModelError(
            f"no counterpart is known of the trained {' and of '.join(told)}{apart}; complete {path} and give it with"
            f" --mapping {path}"
        )


def left_of(mapping: Mapping, outlines: tuple[Outline, Outline]) -> dict[str, list[str]]:
    """By the models' names the trained tensors without a counterpart, with their shapes."""
    found: dict[str, list[str]] = {}
    for outline, names in zip(outlines, (mapping.unmapped.keras, mapping.unmapped.torch), strict=True):
        trained = {info.name: info.shape for info in outline.tensors if info.trainable}
        left = [f"{name} {trained[name]}" for name in names if name in trained]
        found |= {outline.target: left} if left else {}
    return found


def _idle(models: TracedModels) -> Reasons:
    """The trained tensors of each side that send nothing to any output, in training or inference, and why they need no counterpart."""
    found: list[dict[str, str]] = []
    for side, inputs in ((models.keras, models.inputs[0]), (models.torch, models.inputs[1])):
        idle: set[str] | None = None
        for training in (False, True):
            outputs = side.forward(inputs, training=training, taps=False).outputs
            given = {name: np.zeros_like(value) for name, value in outputs.items() if value.dtype.kind == "f"}
            terms = [Term(name=name, output=name, targets=(name,), loss=MeanSquaredError()) for name in given]
            try:
                passed = side.gradients(inputs, given, terms, training=training, taps=False)
            except ExternalModelError:  # then nothing is known of it
                return Reasons()
            idle = set(passed.untouched) if idle is None else idle & set(passed.untouched)
        found.append(dict.fromkeys(sorted(idle or ()), "no output depends on it"))
    return Reasons(keras=found[0], torch=found[1])


def doubts_of(mapping: Mapping) -> list[str]:
    """A line for each pair of tensors that nothing has confirmed, and for what training cannot keep equal."""
    found = [f"{pair.label}: {pair.doubt}" for pair in mapping.tensors if pair.doubt is not None]
    return found + [f"{pair.label}: {pair.note}" for pair in mapping.tensors if pair.note is not None]
