"""What a batch of one model is trained by: losses of its outputs, ours or the user's own, and their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from parity.common.execution.pass_context import Context
from parity.common.external.process.calling import check_target, chosen_outputs
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.base import Spec
from parity.common.spec.external.target import Target
from parity.common.spec.losses import LossBase, LossSpec

# What a target is called that was given by itself.
ALONE = "(one array without a name)"


class Term(Spec):
    """The loss of one output, or of all that a model gives; the means of all terms are added, times their weights.

    name: what reports call it. output: as `PassResult.outputs` has it; None: the only one, or for a loss of the user's
    own all that the model gives, as it gives it. targets: names of arrays. form: how a user's own loss takes them.
    loss: ours, resolved; None where `own` names the user's. channels_first: the output has its channels behind the
    batch, where Keras has them last.
    """

    name: str
    output: str | None = None
    targets: tuple[str, ...] = (ALONE,)
    form: Literal["array", "list", "dict"] = "array"
    loss: LossSpec | None = None
    own: Target | None = None
    weight: float = 1.0
    channels_first: bool = False


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
    targets: Arrays,
    weights: Array | None,
    *,
    calling: Any,
    losses: Any,
    own_loss: Any,
) -> tuple[Any, Any, dict[str, Any]]:
    """Return loss sum, count and the mean of each term, scalars of the framework.

    Of several terms, or one of the user's own, the sum is that of the weighted means, and the count 1.

    Args:
        terms: what is added up.
        given: what the model gives.
        outputs: the tensors in it, by name.
        targets: (batch, ...) by name.
        weights: of the samples, (batch,), or None.
        calling, losses, own_loss: the modules of the framework.

    Raises:
        ExternalModelError: no output suits the targets or the loss.
    """
    means, sums = {}, []
    for term in terms:
        if term.own is not None:
            output = given if term.output is None else outputs[term.output]
            due = {name: _tensor(targets[name], calling) for name in term.targets}
            formed: Any = {"dict": due, "list": list(due.values())}.get(term.form, next(iter(due.values())))
            factors = None if weights is None else calling.tensor_of(weights)
            total, count = own_loss.mean(term.own, output, formed, factors), 1.0
        else:
            assert term.loss is not None
            (target,) = (targets[name] for name in term.targets)
            wanted = target if term.output is None else {term.output: target}
            ((name, target),) = chosen_outputs(outputs, wanted)
            output = outputs[name]
            if term.channels_first:
                output = output.movedim(1, -1)
            check_target(term.loss, name, tuple(output.shape), target)
            total, count = _sum_and_count(term.loss, output, _tensor(target, calling), weights, losses)
        sums.append((total, count))
        means[term.name] = total / count
    if len(terms) == 1 and terms[0].own is None and terms[0].weight == 1:
        return (*sums[0], means)
    weighted = [term.weight * means[term.name] for term in terms]
    return sum(weighted[1:], weighted[0]), 1.0, means


def _sum_and_count(loss: LossBase, output: Any, target: Any, weights: Array | None, losses: Any) -> Any:
    """Of one of ours; each sample's part times its weight, and the count as if all were 1, as Keras has it."""
    context = Context(training=True)
    if weights is None:
        return losses.loss_sum_and_count(loss, output, target, context)
    parts = [
        losses.loss_sum_and_count(loss, output[i : i + 1], target[i : i + 1], context)
        for i in range(len(weights))
    ]
    totals = [float(weight) * total for weight, (total, _) in zip(weights, parts, strict=True)]
    counts = [count for _, count in parts]
    return sum(totals[1:], totals[0]), sum(counts[1:], counts[0])


def _tensor(target: Array, calling: Any) -> Any:
    return calling.tensor_of(target if target.dtype.kind == "f" else target.astype(np.int64))
