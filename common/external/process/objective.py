"""What a batch of one model is trained by: losses of its outputs, ours or the user's own, and their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parity.common.execution.pass_context import Context
from parity.common.external.process.calling import check_target, chosen_outputs
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import ImportedLoss, Term
from parity.common.spec.losses import LossBase


@dataclass(frozen=True)
class BatchLoss:
    """The terms of one side with a batch of targets (batch, ...) by name; sample_weights (batch,), None: all are 1."""

    terms: tuple[Term, ...]
    targets: Arrays
    sample_weights: Array | None = None


def terms_of(loss: LossBase | Sequence[Term], targets: Array | Arrays) -> tuple[Term, ...]:
    """Return the terms of one loss of ours, of one output or of each that has targets (batch, ...) by name."""
    if not isinstance(loss, LossBase):
        return tuple(loss)
    if isinstance(targets, dict):
        return tuple(Term(name=name, output=name, targets=(name,), loss=loss) for name in targets)
    return (Term(name="loss", loss=loss),)


def evaluated(
    terms: Sequence[Term],
    given: Any,
    outputs: Mapping[str, Any],
    targets: Mapping[str, Any],
    weights: Any,
    *,
    losses: Any,
    own_loss: Any,
    added: Any = 0.0,
) -> tuple[Any, Any, dict[str, Any]]:
    """Return loss sum, count and the mean of each term, scalars of the framework.

    Of several terms, or one of the user's own, the sum is that of the weighted means, and the count 1.

    Args:
        terms: what is added up.
        given: what the model gives; of a training step {'loss': its mean}.
        outputs: the tensors in it, by name.
        targets: tensors (batch, ...) by name.
        weights: of the samples, a tensor (batch,), or None.
        losses, own_loss: the modules of the framework.
        added: what the model itself adds to its mean loss, a scalar: to terms that are penalized.

    Raises:
        ExternalModelError: no output suits the targets or the loss.
    """
    means, sums = {}, []
    for term in terms:
        if term.form == "step":
            total, count = given["loss"], 1.0
        elif term.own is not None:
            output = given if term.output is None else outputs[term.output]
            due = {name: targets[name] for name in term.targets}
            formed: Any = {"dict": due, "list": list(due.values())}.get(
                term.form, next(iter(due.values()), None)
            )
            total, count = own_loss.mean(term.own, output, formed, weights), 1.0
            total = total + added / term.weight if term.penalized else total
        else:
            assert term.loss is not None
            (target,) = (targets[name] for name in term.targets)
            wanted = target if term.output is None else {term.output: target}
            ((name, target),) = chosen_outputs(outputs, wanted)
            output = outputs[name].movedim(1, -1) if term.channels_first else outputs[name]
            check_target(term.loss, name, tuple(output.shape), target)
            total, count = losses.loss_sum_and_count(
                term.loss, output, target, Context(training=True), weights
            )
        sums.append((total, count))
        means[term.name] = total / count
    if len(terms) == 1 and terms[0].own is None and terms[0].weight == 1:
        return (*sums[0], means)
    weighted = [term.weight * means[term.name] for term in terms]
    return sum(weighted[1:], weighted[0]), 1.0, means


def batch_sums(
    loss: ImportedLoss, total: Any, count: Any, samples: Any, weights: Any, global_batch: int
) -> tuple[Any, Any]:
    """Return what a part of a batch adds to the loss sum and to what the mean divides by, scalars of the framework.

    Args:
        loss: says how parts of a batch go together.
        total, count: of this part, as of `evaluated`.
        samples: of this part, a number of the loss's type. weights: their sum. global_batch: samples of a step.
    """
    mean = total / count
    return {
        "counted": (total, count),
        "samples": (mean * samples, samples),
        "batch": (mean * samples, samples),
        "weights": (mean * weights, weights),
        "sum": (mean, samples / global_batch),
    }[loss.reduction]


def step_of(terms: Sequence[Term]) -> Target | None:
    """Return what names the training step, where that is what is trained by."""
    return terms[0].own if terms and terms[0].form == "step" else None


def compiled_of(terms: Sequence[Term]) -> Target | LossBase | None:
    """Return the loss that a training step of Keras's is given, as by `compile`; None: what it computes itself."""
    term = terms[0] if step_of(terms) is not None else None
    return None if term is None else term.compiled or term.loss


def batch_of(inputs: Mapping[str, Any], targets: Mapping[str, Any], weights: Any) -> Any:
    """Return what a training step is given, as Keras's `fit` gives it: inputs, (inputs, targets), or these and weights.

    Args:
        inputs: by name; a single one is given by itself, several in a dict.
        targets: likewise; none: there are none.
        weights: of the samples, or None.
    """
    x, y = (dict(each) if len(each) > 1 else next(iter(each.values()), None) for each in (inputs, targets))
    return (x, y, weights) if weights is not None else (x, y) if targets else x


def batch_in_words(batch: Any) -> str:
    """What `batch_of` gives, as in '({obs, action}, a tensor)'."""
    if isinstance(batch, tuple):
        return f"({', '.join(map(batch_in_words, batch))})"
    return f"{{{', '.join(batch)}}}" if isinstance(batch, dict) else "a tensor"
