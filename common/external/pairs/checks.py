"""What is refused, since a verdict on it would say nothing, and what is told not to be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.base.words import listed
from parity.common.diagnosis.limits import LIVE_FLOAT64, ROUNDED_CONSTANT
from parity.common.external.pairs.bench import Bench, LoadedPair, losses
from parity.common.external.pairs.given_gradients import beyond_limits, moved_by, moves
from parity.common.external.pairs.request import PairRequest
from parity.common.external.process.pass_result import Array
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.target import Target
from parity.common.spec.losses import LossBase

# Of an optimizer: what may act only after the updates that are compared.
_ACTS_LATER = ("clip_global_norm", "clip_norm", "clip_value", "ema")


def check_later_updates(bench: Bench, optimizers: tuple[Target, Target]) -> None:
    """Raise SpecError where three updates do not show what the optimizers do: a limit that Keras's has and torch's not, and that they do not
    both have by experiment, as where a hook of torch's clips.

    A class of one's own may hold a limit that its settings do not say.
    """
    ours, theirs = (outline.optimizer for outline in bench.outlines)
    if ours is None or theirs is None or not theirs.kind:
        return
    names = acting_later(bench)
    if names and not _limit_alike(bench, optimizers, [ours.settings.get(name) for name in names]):
        told = (
            f"{name} is {ours.settings.get(name)} in Keras and {theirs.settings.get(name)} in torch"
            for name in names
        )
        raise SpecError(
            f"the optimizers make the same three updates, which do not show all that they do: {'; '.join(told)}; so there is no"
            " verdict: give optimizers without it, to compare the models, and compare both scripts by recorders"
        )


def acting_later(bench: Bench) -> list[str]:
    """The settings that differ of those which may act only after the updates that are compared."""
    infos = (outline.optimizer for outline in bench.outlines)
    ours, theirs = ({} if info is None else info.settings for info in infos)
    return [name for name in _ACTS_LATER if ours.get(name) != theirs.get(name)]


def _limit_alike(bench: Bench, optimizers: tuple[Target, Target], limits_of_keras: Sequence[object]) -> bool:
    """Whether both make the same updates of gradients that are far beyond all limits of Keras's, one by one and together."""
    numbers = [
        float(each)
        for each in limits_of_keras
        if isinstance(each, int | float) and not isinstance(each, bool)
    ]
    if not numbers or len(numbers) < len(limits_of_keras):
        return False
    gradients = moved_by(bench, bench.reference(training=True).gradients, bench.keras.read())
    if not gradients or not all(map(np.any, gradients.values())):
        return False
    sets = [beyond_limits(gradients, max(numbers), times) for times in (1.0, 3.0)]
    moved, other = moves(bench, optimizers, sets, max(bench.rates) if bench.rates else None)
    return all(tensor_deviation(moved[name], other[name]) <= LIVE_FLOAT64 for name in moved)


def unshown_limits(bench: Bench) -> str:
    """What Keras's optimizer limits, where nothing says whether torch's, a class of the user's own, does so too; '' where nothing."""
    ours, theirs = (outline.optimizer for outline in bench.outlines)
    if ours is None or theirs is None or theirs.kind:
        return ""
    limited = [
        f"{name} {value:g}" for name in _ACTS_LATER if isinstance(value := ours.settings.get(name), float)
    ]
    if not limited:
        return ""
    return (
        f"Keras's optimizer has {', '.join(limited)}: whether torch's, a class of your own, does the same is shown only if this training"
        " reached it"
    )


# What one model may end in, and the other's loss do.
_ENDS: dict[str, Callable[[Array], Array]] = {
    "softmax": lambda x: (e := np.exp(x - x.max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def check_what_trains(asked: PairRequest, outlines: tuple[Outline, Outline]) -> None:
    """Raise ExternalModelError where Keras's model says what it is trained by, and nobody has said what torch's is: another loss proves nothing.

    Or where a model gives a term of its loss, and the losses that are given take none.
    """
    own = outlines[0].trained_by
    if any(each.of_outputs for each in asked.objectives) and not own and outlines[0].compiled is None:
        raise ExternalModelError(
            f"--torch-loss is given alone, and {asked.keras} has no train_step and is not compiled: give --keras-loss, too"
        )
    by_name = any(isinstance(each.loss, LossBase) for each in asked.objectives)
    alike = len(outlines[0].outputs) == len(outlines[1].outputs)
    for outline in outlines if by_name and not alike else ():
        numbers = [name for name, shape in outline.outputs.items() if not shape]
        if numbers:
            raise ExternalModelError(
                f"{outline.target} gives {', '.join(numbers)}, a number, beside its outputs: a term of its loss, which"
                " a loss by name does not add; give --keras-loss and --torch-loss"
            )
    if asked.usual_loss and own:
        raise ExternalModelError(
            f"{asked.keras} is trained by {own}, and no loss is given: give --torch-step for a train_step or compute_loss of its own,"
            " else --loss, or --keras-loss and --torch-loss (parity pair --help)"
        )


def check_ends(asked: PairRequest, bench: Bench) -> None:
    """Raise ExternalModelError where one side's outputs are the softmax of the other's, and the losses of the user's own take it into account."""
    if not all(isinstance(each.loss, tuple) for each in asked.objectives):
        return
    trained = losses(bench, bench.reference(True), bench.torch_pass(True))
    if any(row.deviation > ROUNDED_CONSTANT for row in trained if row.name.startswith("loss_sum")):
        return
    sides = [bench.reference(False).outputs, bench.torch_pass(False).outputs]
    arrays = [[np.asarray(each, np.float64) for each in outputs.values()] for outputs in sides]
    for pair in zip(*arrays, strict=False):
        for (one, other), (made, given) in (
            (("Keras", "torch"), pair),
            (("torch", "Keras"), pair[::-1]),
        ):
            for name, function in _ENDS.items():
                if made.shape == given.shape and tensor_deviation(function(given), made) <= ROUNDED_CONSTANT:
                    raise ExternalModelError(
                        f"{one}'s outputs are the {name} of {other}'s, and their losses are equal: it may be the same training, and models that end"
                        " otherwise are not compared; have both give logits, and Keras's loss take them (from_logits=True), as"
                        " nn.CrossEntropyLoss and nn.BCEWithLogitsLoss do"
                    )


# How a model comes to own a tensor.
_OWNED = {
    "tensorflow": "make it by self.add_weight, or as a keras.Variable: Keras 3 does not train a tf.Variable that is an attribute",
    "torch": "make it an nn.Parameter that is an attribute of the model, or of a module",
}


def check_inputs(opened: LoadedPair) -> None:
    """Raise ExternalModelError where a model has tensors that training would not reach."""
    for side, _, inputs in opened.sides:
        found = side.unregistered_parameters(inputs)
        if found:
            raise ExternalModelError(
                f"{side.target}: a pass uses {listed(found)}, which the model does not own, so that no"
                f" optimizer trains it; {_OWNED[side.framework]}"
            )


# Of an optimizer: what decides its updates whatever its class calls the rest.
_TOLD = ("learning_rate", "schedule", "weight_decay", *_ACTS_LATER, "accumulation")


def unread_optimizer(asked: PairRequest, opened: LoadedPair) -> str:
    """What the optimizer that Keras's model is compiled with does otherwise than the one of --optimizer, in words; '' for nothing."""
    ours, theirs = opened.outlines[0].compiled, asked.optimizer
    if ours is None or theirs is None:
        return ""
    usual = {"accumulation": 1, "weight_decay": 0.0}
    given = {"kind": theirs.to_dict()["kind"], **{name: getattr(theirs, name, None) for name in _TOLD}}
    own = {"kind": ours.kind or ours.type, **{name: ours.settings.get(name) for name in _TOLD}}
    apart = [
        f"{name} {value}"
        for name, value in own.items()
        if (value or usual.get(name)) != (given[name] or usual.get(name))
    ]
    if not apart:
        return ""
    return (
        f"not compared: Keras's model is compiled with {', '.join(apart)}, which --optimizer takes the place of; give"
        " --keras-optimizer and --torch-optimizer to compare your own"
    )
