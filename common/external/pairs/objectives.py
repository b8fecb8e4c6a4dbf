"""What a pair is trained by: a loss of ours or of the users' own, of one output or of several, with the targets of each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from parity.common.base.errors import SpecError, did_you_mean
from parity.common.base.yaml import parse_yaml
from parity.common.data.samples import are_whole
from parity.common.external.pairs.spellings import as_ours, is_loss
from parity.common.external.process.layouts import to_torch_input
from parity.common.external.process.objective import BatchLoss
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.base import explain
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import Term
from parity.common.spec.losses import LossBase, LossSpec, SoftmaxCrossEntropy, parse_loss

PART = re.compile(r",([^=,]+=(?:\[[^\[\]]*\]|\{[^{}]*\}|[^,\[\]{}]*))")
_NAMED = re.compile(r"([\w./]+)=(.*)", re.DOTALL)
Shape = tuple[int, ...]
TargetForm = Literal["outputs", "stored", "squeezed"]


@dataclass(frozen=True)
class Objective:
    """A loss and what it is of; the means of several are added, times their weights.

    output: its name in either model; None: the only one, or for the users' own losses all that a model gives.
    loss: ours, of both sides; or the users' own, Keras's and torch's. weights: Keras's and torch's. given: the shape in
    which torch's own loss is given its targets: like the output, as the file has them, or without a last axis of one.
    step: the loss is what training steps give, Keras's model's own and torch's; or torch's is of its outputs, `of_outputs`. compiled: what
    Keras's step takes as its loss, as by `compile`.
    """

    output: str | None
    loss: LossBase | tuple[Target, Target]
    weights: tuple[float, float] = (1.0, 1.0)
    given: TargetForm = "outputs"
    step: bool = False
    of_outputs: bool = False
    compiled: Target | LossBase | None = None


def parsed_loss(text: str) -> LossBase:
    """A loss from 'softmax_cross_entropy,label_smoothing=0.1'; raises SpecError."""
    loss: LossBase = parsed_kind("--loss", text, parse_loss, LossSpec)
    return loss


def parsed_kind(flag: str, text: str, parse: Callable[[dict[str, Any]], Any], union: Any) -> Any:
    """What `parse` makes of 'kind,field=value,...', of the classes of `union`, in Keras's convention; raises SpecError."""
    fields = _fields_of(flag, text)
    try:
        return parse(as_ours(fields)).resolve("keras")
    except ValidationError as error:
        said = explain(error, as_ours(fields), fields["kind"], union)
        # In the form in which it is to be typed.
        lacks = said.endswith(": this field is required")
        name = said.partition(":")[0]
        more = f"; add it behind a comma: {text},{name}=..." if lacks else ""
        if flag == "--loss" and "unknown key" in said and "did you mean" not in said:
            # What an output's loss counts is no field of the loss.
            more = did_you_mean(name, ("weight",))
        raise SpecError(f"{flag}: {said}{more}") from None


def _fields_of(flag: str, text: str) -> dict[str, Any]:
    """Plain data from 'kind,field=value,...'; raises SpecError."""
    match = re.fullmatch(rf"(\w+)((?:{PART.pattern})*)", text)
    if match is None and re.fullmatch(r"[\w.]+:[\w.]+", text):
        own = f"--keras{flag[1:]} and --torch{flag[1:]}"
        raise SpecError(f"{flag} {text[:200]!r}: takes a name of the toolkit's; your own are given by {own}")
    if match is None:
        raise SpecError(
            f"{flag} {text[:200]!r}: expected kind[,field=value...], e.g. adam,learning_rate=1e-3; parity pair --help"
            " lists the kinds"
        )
    data: dict[str, Any] = {"kind": match[1]}
    for part in PART.findall(match[2]):
        name, _, value = part.partition("=")
        # As in a spec's file, where 1e-3 is a number.
        data[name.strip()] = parse_yaml(value, f"{flag} {part}")
    return data


def parsed_losses(
    ours: Sequence[str], keras: Sequence[str] = (), torch: Sequence[str] = ()
) -> LossBase | tuple[Objective, ...]:
    """Return one loss, or a loss for each of several outputs, from the texts of flags.

    Args:
        ours: of --loss, '[OUTPUT=]KIND[,FIELD=VALUE...][,weight=NUMBER]' each; none, and no others: the usual one.
        keras, torch: of --keras-loss and --torch-loss, '[OUTPUT=]MODULE:ATTRIBUTE[,weight=NUMBER]' each.

    Raises:
        SpecError: one has another form, or they do not go together.
    """
    found: list[Objective] = []
    for output, text in [named for each in ours for named in _split(each)]:
        kind, weight = _weighed("--loss", text)
        found.append(Objective(output, parsed_loss(kind), (weight, weight)))
    own: list[dict[str | None, tuple[Target, float]]] = []
    for flag, texts in (("--keras-loss", keras), ("--torch-loss", torch)):
        side: dict[str | None, tuple[Target, float]] = {}
        for output, text in map(_named, texts):
            name, weight = _weighed(flag, text)
            if output in side:
                raise SpecError(f"{flag}: {_what(output)} has two losses; give one")
            side[output] = Target.of(name), weight
        own.append(side)
    if set(own[0]) != set(own[1]):
        raise SpecError(
            "--keras-loss and --torch-loss are given together, for the same outputs: received"
            f" {', '.join(map(_what, own[0])) or 'none'} and {', '.join(map(_what, own[1])) or 'none'}"
        )
    for output, (target, weight) in own[0].items():
        other = own[1][output]
        found.append(Objective(output, (target, other[0]), (weight, other[1])))
    if not found:
        return parsed_loss("softmax_cross_entropy")
    names = [one.output for one in found]
    if len(found) > 1 and (None in names or len(set(names)) < len(names)):
        raise SpecError(
            f"several losses are each of one output: received those of {', '.join(map(_what, names))}; give"
            " --loss OUTPUT=KIND for each"
        )
    (only,) = found if len(found) == 1 else (None,)
    if (
        only is not None
        and only.weights == (1, 1)
        and only.output is None
        and isinstance(only.loss, LossBase)
    ):
        return only.loss
    return tuple(found)


def steps_of(
    keras: Target,
    torch: str,
    losses: tuple[Sequence[str], Sequence[str], Sequence[str]],
    of_outputs: bool = False,
) -> tuple[Objective, ...]:
    """Return what is trained by where a Keras model has a train_step, from the model and the name of torch's step, or of its loss `of_outputs`.

    losses: as of `parsed_losses`; beside torch's step one of Keras's, of all that the model gives.

    Raises SpecError for others.
    """
    ours, own, others = losses
    compiled: Target | LossBase | None = None
    if not of_outputs and any(losses):
        given = [*ours, *own]
        if others or len(given) > 1 or _named(given[0])[0] is not None:
            raise SpecError(
                "--torch-step gives torch's loss: leave --torch-loss out; and Keras's train_step takes one loss of all outputs beside it"
                f" (--keras-loss or --loss), received {', '.join([*given, *others])}"
            )
        compiled = parsed_loss(ours[0]) if ours else Target.of(own[0])
    return (Objective(None, (keras, Target.of(torch)), step=True, of_outputs=of_outputs, compiled=compiled),)


def named_outputs(loss: LossBase | Sequence[Objective]) -> tuple[str, ...]:
    """Return the names of the outputs that have a loss each."""
    return () if isinstance(loss, LossBase) else tuple(one.output for one in loss if one.output)


def _what(output: str | None) -> str:
    return "a loss without an output's name" if output is None else output


def _split(text: str) -> list[tuple[str | None, str]]:
    """'a=mse,b=mae,weight=2' as the losses of a and b; one that names no output as it is."""
    pieces: list[str] = []
    for piece in text.split(","):
        match = _NAMED.fullmatch(piece)
        if not pieces or (match and is_loss(match[2])):
            pieces.append(piece)
        else:
            pieces[-1] += f",{piece}"
    return [_named(piece) for piece in pieces]


def _named(text: str) -> tuple[str | None, str]:
    head, comma, rest = text.partition(",")
    match = _NAMED.fullmatch(head)
    return (match[1], match[2] + comma + rest) if match else (None, text)


def _weighed(flag: str, text: str) -> tuple[str, float]:
    """A text without its weight; the weight, 1 where it has none."""
    for part in PART.findall(text):
        name, _, value = part.partition("=")
        if name.strip() == "weight":
            try:
                weight = float(value)
            except ValueError:
                weight = math.nan
            if not math.isfinite(weight) or weight <= 0:
                raise SpecError(f"{flag} {text[:200]}: weight is a number above 0; received {value!r}")
            return text.replace(f",{part}", "", 1), weight
    return text, 1.0


def paired_outputs(keras: Sequence[str], torch: Sequence[str]) -> list[tuple[str, str]]:
    """Return which output of Keras's is which of torch's: of one name, and the others in their order."""
    rest = iter([name for name in torch if name not in keras])
    return [(name, name if name in torch else next(rest)) for name in keras]


def for_losses_alone(
    objectives: Sequence[Objective], outlines: tuple[Outline, Outline]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the outputs of Keras's and torch's model that only the users' own losses can compare, by name.

    Those are none but where one model gives more, as a term of the loss, or a mean and a variance beside a reconstruction, and there is a
    loss of all that is given: then what has no counterpart of its name, or of its size in the order of both.
    """
    keras, torch = (
        {
            name: tuple(sorted(size or 0 for size in shape if size != 1))
            for name, shape in outline.outputs.items()
        }
        for outline in outlines
    )
    own = [one.output is None and not isinstance(one.loss, LossBase) for one in objectives]
    if not own or not all(own) or len(keras) == len(torch):
        return frozenset(), frozenset()
    pairs: dict[str, str] = {}
    for name in sorted(keras, key=lambda name: name not in torch):
        free = [
            other for other, shape in torch.items() if shape == keras[name] and other not in pairs.values()
        ]
        if free:
            pairs[name] = name if name in free else free[0]
    return frozenset(keras.keys() - pairs.keys()), frozenset(torch.keys() - set(pairs.values()))


def sides_of(
    objectives: Sequence[Objective],
    outlines: tuple[Outline, Outline],
    targets: Arrays,
    sample_weights: Array | None,
) -> tuple[BatchLoss, BatchLoss]:
    """Return what a batch of Keras's and of torch's model is trained by.

    Args:
        objectives: what was asked.
        outlines: of both models, with their outputs.
        targets: (batch, ...) by name, as the file has them.
        sample_weights: (batch,), or None.

    Raises:
        SpecError: an output that is named does not exist, or targets do not suit.
    """
    shapes = [
        {name: tuple(size or 0 for size in shape) for name, shape in outline.outputs.items()}
        for outline in outlines
    ]
    terms: tuple[list[Term], list[Term]] = ([], [])
    shaped: tuple[Arrays, Arrays] = ({}, {})
    places = [_outputs_of(objectives, number, shapes, outlines) for number in range(len(objectives))]
    by_place = sorted(places, key=lambda place: list(shapes[0]).index(place[0]) if place[0] else 0)
    for number, objective in enumerate(objectives):
        outputs = places[number]
        names = _targets_of(objectives, number, list(targets), by_place.index(outputs))
        label = objective.output or "loss"
        alone = [next(iter(s)) if len(s) == 1 else None for s in shapes]
        at = [shapes[side].get(name or alone[side] or "") for side, name in enumerate(outputs)]
        own_form = _form(objective, names, outputs[0], shapes[0])
        forms = [
            "step" if objective.step and not (side and objective.of_outputs) else own_form
            for side in range(2)
        ]
        for name in names:
            # Of all outputs at once, each target by itself where an output is called so.
            each = own_form == "array" or (objective.step and len(names) == 1)
            at_name = at if each else [shapes[0].get(name), shapes[1].get(name)]
            ours, theirs = _shaped(targets[name], name, objective.loss, at_name)
            shaped[0][name], shaped[1][name] = ours, _given(objective.given, theirs, targets[name])
        for side in range(2):
            own = None if isinstance(objective.loss, LossBase) else objective.loss[side]
            taken = None if side else objective.compiled
            by_name = next((each for each in (objective.loss, taken) if isinstance(each, LossBase)), None)
            terms[side].append(
                Term.parse(
                    {
                        "name": label,
                        "output": outputs[side],
                        "targets": names,
                        "form": forms[side],
                        "loss": None if by_name is None else by_name.to_dict(),
                        "own": None if own is None else own.to_dict(),
                        "compiled": taken.to_dict() if isinstance(taken, Target) else None,
                        "weight": objective.weights[side],
                        "penalized": side == 0
                        and not number
                        and bool(outlines[1].loss_terms)
                        and not objective.step,
                        "channels_first": side == 1 and own is None and _is_channels_first(*at),
                    }
                )
            )
    return tuple(  # type: ignore[return-value]
        BatchLoss(tuple(terms[side]), shaped[side], sample_weights) for side in range(2)
    )


def _targets_of(
    objectives: Sequence[Objective], number: int, targets: list[str], place: int
) -> tuple[str, ...]:
    """Names of the arrays that a loss takes: those called as the outputs, else in the order of the outputs."""
    own = not isinstance(objectives[number].loss, LossBase)
    if len(objectives) == 1:
        if len(targets) > 1 and (not own or objectives[0].output is not None):
            raise SpecError(
                f"the loss takes one array of targets, received {', '.join(targets)}; name one with --targets"
            )
        return tuple(targets)
    if len(targets) != len(objectives):
        raise SpecError(
            f"{len(objectives)} losses take an array of targets each, received {', '.join(targets)}; name them with"
            " --targets, in the order of the outputs"
        )
    output = objectives[number].output
    names = {one.output for one in objectives}
    return (output,) if output is not None and names == set(targets) else (targets[place],)


def _outputs_of(
    objectives: Sequence[Objective],
    number: int,
    shapes: Sequence[dict[str, Shape]],
    outlines: tuple[Outline, Outline],
) -> tuple[str | None, str | None]:
    """Names of the output that a loss is of, in Keras and in torch."""
    objective = objectives[number]
    keras, torch = (list(each) for each in shapes)
    for outline, given in zip(outlines, (keras, torch), strict=True):
        if not given and not outline.loss_terms:
            raise SpecError(
                f"{outline.target} gives no tensor; have it return one, several in a tuple, or a dict of them"
            )
    listed = f"{outlines[0].target} gives {', '.join(keras)}, {outlines[1].target} {', '.join(torch)}"
    if len(keras) != len(torch):
        raise SpecError(
            f"the models give different numbers of outputs: {listed}; name functions that give as many"
        )
    pairs = paired_outputs(keras, torch)
    if objective.output is None:
        if len(pairs) == 1 or not isinstance(objective.loss, LossBase):
            return None, None
        chosen = next((pair for pair in pairs if "logits" in pair), None)
        if chosen is None:
            raise SpecError(
                f"{listed}; say which of them a loss is of: --loss OUTPUT=KIND, once for each loss"
            )
        return chosen
    layers = outlines[0].output_names or ("",) * len(pairs)
    for pair, layer in zip(pairs, layers, strict=True):
        if objective.output in (*pair, layer):
            return pair
    named = f"; Keras's layers there are {', '.join(layers)}" if any(layers) else ""
    raise SpecError(f"--loss {objective.output}=...: no output is called so: {listed}{named}")


def _form(objective: Objective, names: Sequence[str], output: str | None, shapes: dict[str, Shape]) -> str:
    """How a loss of the user's own takes its targets: as the model gives its outputs."""
    if len(names) == 1 or isinstance(objective.loss, LossBase) or output is not None:
        return "array"
    return "list" if all(name.isdecimal() for name in shapes) else "dict"


def _is_channels_first(keras: Shape | None, torch: Shape | None) -> bool:
    """Whether an output has its channels behind the batch in torch, and last in Keras."""
    if keras is None or torch is None or len(keras) < 3 or keras == torch:
        return False
    return (keras[0], keras[-1], *keras[1:-1]) == torch


def _shaped(
    target: Array, name: str, loss: LossBase | tuple[Target, Target], at: Sequence[Shape | None]
) -> tuple[Array, Array]:
    """A target in the shapes and the type that the loss expects of Keras's output and of torch's, (batch, ...) each.

    Both hold the same numbers in the same order: nothing is broadcast against an axis that only one of the two has.
    """
    keras, torch = at
    first = _is_channels_first(keras, torch)
    if isinstance(loss, LossBase):
        if loss.target_is_integer and target.dtype.kind == "f" and _are_whole(target, keras):
            # As Keras takes them: it casts classes that a table has as floats.
            target = target.astype(np.int64)
        if loss.target_is_integer and target.dtype.kind != "i":
            classes = f"; give class numbers, as {name}.argmax(-1) has them" if target.ndim > 1 else ""
            raise SpecError(f"--data: the loss takes classes, and {name} are no whole numbers{classes}")
        ours = target if loss.target_is_integer else target.astype(np.float64)
        if keras is None:
            return ours, ours
        unknown = loss.unknown_class(ours, keras[-1])
        if unknown is not None:
            raise SpecError(
                f"--data: {name} has class {unknown}, and the model ends in {keras[-1]} class{'es' * (keras[-1] > 1)}, 0 to {keras[-1] - 1}; or is"
                " --loss another one?"
            )
        ours = _fitted(
            ours, name, loss.target_shape(keras[1:]), one_hot=isinstance(loss, SoftmaxCrossEntropy)
        )
        if torch is None or first:
            return ours, ours
        wanted = loss.target_shape(torch[1:])
        return ours, _squeezed(ours, wanted)
    if keras is not None and target.shape[1:] != keras[1:] and (*target.shape[1:], 1) == keras[1:]:
        target = target[..., None]
    if keras is None or torch is None or target.shape[1:] != keras[1:]:
        # A picture of other channels than the output has: in torch they stand where the output's do.
        pictures = keras is not None and first and target.shape[1:-1] == keras[1:-1]
        return target, to_torch_input(target) if pictures else target
    # As many as the outputs: numbers, though they may be 0 and 1.
    numbers = target.astype(np.float64)
    return numbers, to_torch_input(numbers) if first else _squeezed(numbers, torch[1:])


def _are_whole(classes: Array, outputs: Shape | None) -> bool:
    """Whether floats are class numbers (batch, ...), and not one number for each class."""
    one_hot = outputs is not None and classes.shape[1:] == outputs[1:]
    return not one_hot and are_whole(classes)


def _given(form: TargetForm, target: Array, stored: Array) -> Array:
    if form == "stored" and stored.size == target.size:
        return stored.astype(target.dtype)
    return target[..., 0] if form == "squeezed" and target.ndim > 1 and target.shape[-1] == 1 else target


def _fitted(target: Array, name: str, wanted: Shape, *, one_hot: bool) -> Array:
    shape = target.shape[1:]
    if shape == wanted:
        return target
    if shape in ((*wanted, 1), wanted[:-1]) and (wanted[-1:] == (1,) or shape == (*wanted, 1)):
        return target.reshape(len(target), *wanted)
    if wanted[:-1] == shape and one_hot and (target == target.astype(int)).all():
        classes = target.astype(int)
        if classes.min() >= 0 and classes.max() < wanted[-1]:
            whole: Array = np.eye(wanted[-1])[classes]
            return whole
    numbered = wanted[:-1] == shape and wanted[-1] > 1 and are_whole(target)
    hint = f"; class numbers become rows by np.eye({wanted[-1]})[{name}]" if numbered else ""
    raise SpecError(
        f"--data: targets {name!r} have shape {shape}, the model and the loss expect {wanted}{hint}"
    )


def _squeezed(target: Array, wanted: Shape) -> Array:
    """In another shape that differs by axes of one element only, else as it is."""
    kept = [size for size in wanted if size != 1]
    if [size for size in target.shape[1:] if size != 1] != kept:
        return target
    return target.reshape(len(target), *wanted)
