"""Why two losses of the users' own differ, given the same outputs: by experiments on batches, weights and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import Bench, sent_back, taken
from parity.common.external.pairs.code_edits import fitting_edit, lines_of_training
from parity.common.external.pairs.explain import Attribution, Change, DeviatingTensor, mode_cause
from parity.common.external.pairs.gradient_paths import gradient_causes
from parity.common.external.pairs.places import CAUSE, Place
from parity.common.external.pairs.points import NOWHERE, Point, paired_layers
from parity.common.external.pairs.structure import causes_of_loss
from parity.common.external.process.layouts import aligned
from parity.common.external.process.objective import BatchLoss
from parity.common.external.process.pass_result import Array, PassResult
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.imported_loss import Term
from parity.common.spec.losses import parse_loss

_FORMULAS: dict[str, dict[str, object]] = {
    "softmax cross-entropy of logits": {"kind": "softmax_cross_entropy"},
    "softmax cross-entropy of probabilities": {"kind": "softmax_cross_entropy", "outputs": "probabilities"},
    "binary cross-entropy of logits": {"kind": "binary_cross_entropy"},
    "binary cross-entropy of probabilities": {"kind": "binary_cross_entropy", "outputs": "probabilities"},
    "the mean squared error": {"kind": "mean_squared_error"},
    "the mean absolute error": {"kind": "mean_absolute_error"},
    "Huber's loss with delta 1": {"kind": "huber"},
}


def loss_causes(bench: Bench) -> list[Attribution]:
    """Return why the losses of two models with equal outputs differ; only likely where no experiment says more."""
    batch = bench.rows
    passes = _passes(bench, batch)
    if bench.trains_by_step:
        modes = _by_modes(bench, passes)
        if modes:
            passes = _passes(bench, batch)
            if _equal(*passes):
                return modes
        found = _by_operations(bench, passes)
        if not any(each.explanation.confidence == "confirmed" for each in found):
            # The losses are not equal yet: what else differs may be the cause of all.
            modes = [
                replace(each, explanation=replace(each.explanation, confidence="likely")) for each in modes
            ]
        if modes or found:
            return [*modes, *found]
        # What a step calls on its way to the loss is its own: of outputs nothing is known there.
        unknown = _unknown(passes)
        why = replace(
            unknown,
            text=unknown.text.replace("the loss functions", "the training steps"),
            fix="compare the two steps: what each calls, in which mode, and what it adds up",
            evidence="read from the live models: both steps had the same weights and samples",
        )
        return [Attribution(why)]
    known = _without_weights(bench, passes) or _by_factor(bench, passes, batch) or _by_rounded_shares(bench)
    if known is None:
        found = _by_operations(bench, passes)
        if any(each.explanation.cause != f"{CAUSE}other" for each in found):
            return found
        known = _by_formula(bench, passes) or _of_batch(bench, passes, batch)
        if known is None:
            return (
                found
                or _by_gradient_paths(bench, passes)
                or _by_edits(bench, passes)
                or [Attribution(_unknown(passes))]
            )
    elif known.cause == "loss:weight" and any(term.own is not None for term in bench.losses[0].terms):
        found = _by_operations(bench, passes)
    else:
        found = []
    # What it is in all says more than what it is made of.
    if found:
        known = replace(known, text=f"{known.text}; {found[0].explanation.text}")
    return [Attribution(known, found[0].changes if len(found) == 1 else ())]


def _by_modes(bench: Bench, passes: Sequence[PassResult]) -> list[Attribution]:
    """Batch norms of which one side's step moves the statistics and the other's does not; there they run in inference from now on."""
    kept = bench.keras.read()
    after = passes[0].buffers, bench.mapping.to_keras(bench.torch.read() | passes[1].buffers)
    moved = [
        {
            info.layer
            for info in bench.outlines[0].tensors
            if info.buffer and not np.array_equal(each.get(info.name, kept[info.name]), kept[info.name])
        }
        for each in after
    ]
    norms = {info.path for info in bench.outlines[0].layers if info.kind == "batch_norm"}
    found = []
    for pair in paired_layers(*bench.outlines, bench.mapping):
        if pair.keras not in norms or (pair.keras in moved[0]) == (pair.keras in moved[1]):
            continue
        side = "keras" if pair.keras in moved[0] else "torch"
        way = Change(side, pair.keras if side == "keras" else pair.torch, "pass_mode", "inference")
        try:
            way.make(bench)
        except ExternalModelError:
            continue
        evidence = f"read from the live models: the training step of {side} moves its statistics, the other one does not"
        cause = mode_cause(bench, side, Point(pair.keras, pair.torch), evidence)
        found.append(Attribution(cause, (way,)))
    return found


def _by_operations(bench: Bench, passes: Sequence[PassResult]) -> list[Attribution]:
    """What torch's loss computes otherwise; it must do so with other targets, too: of one batch a condition may be true throughout."""
    called = {bench.output_name(name): value for name, value in passes[0].outputs.items()}
    called |= {f"the target {name}": value for name, value in bench.losses[0].targets.items()}
    if bench.trains_by_step:
        # The model is a part of it: what its layers give has names, too.
        called |= taken(bench.keras, bench.inputs[0], bench.losses[0], training=True, taps=True).activations

    elsewhere = list(_with_other_targets(bench))

    def apart(name: str, ours: PassResult, loss: BatchLoss) -> float:
        theirs = _torch_pass(bench, loss)
        return tensor_deviation(np.array(ours.terms[name]), np.array(theirs.terms[name]))

    for name, mean in passes[0].terms.items():
        if _close([mean], [passes[1].terms[name]]):
            continue
        places, measures = [], []
        for ours, theirs, losses in ((passes[0], passes[1], bench.losses), *elsewhere):
            means = np.array(theirs.terms[name]), np.array(ours.terms[name])
            places.append(Place(*means, training=True, activations=called, losses=losses))
            measures.append(partial(apart, name, ours, losses[1]))
        found = causes_of_loss(bench, list(zip(places, measures, strict=True)))
        if found:
            return found
    return []


def _by_gradient_paths(bench: Bench, passes: Sequence[PassResult]) -> list[Attribution]:
    """What stops gradients in torch's loss, or lets them through."""
    tensor, *control = _measured(bench, passes)
    return gradient_causes(tensor, bench.losses[1], next(iter(control), None))


def _by_edits(bench: Bench, passes: Sequence[PassResult]) -> list[Attribution]:
    """An edit of torch's code with which its loss, of the same number, sends back the same."""
    if not _close([_mean(passes[0])], [_mean(passes[1])]):
        return []
    measured = _measured(bench, passes)
    found = fitting_edit(
        bench,
        lines_of_training(bench, bench.losses[1]),
        lambda edit: max(each.deviation_with([edit]) for each in measured),
        of_gradients=True,
    )
    if found is None:
        return []
    evidence = measured[0].by_experiment(found[1], ": run so; with other targets, too")
    return [Attribution(found[0].explanation(True, evidence, ()), (found[0],))]


def _measured(bench: Bench, passes: Sequence[PassResult]) -> list[DeviatingTensor]:
    """What torch's loss is, and sends back; that with the targets of other samples, where there are such."""

    def measured(ours: PassResult, loss: BatchLoss) -> DeviatingTensor:
        def apart() -> float:
            return _apart(ours, _torch_pass(bench, loss))

        return DeviatingTensor(bench, NOWHERE, [], apart, apart())

    others = (measured(ours, losses[1]) for ours, _, losses in _with_other_targets(bench))
    return [measured(passes[0], bench.losses[1]), *others]


def _with_other_targets(
    bench: Bench,
) -> Iterator[tuple[PassResult, PassResult, tuple[BatchLoss, BatchLoss]]]:
    """Yield the passes of both with the targets of other samples; none where these suit no other inputs, such as lengths."""
    moved = (_moved(bench.losses[0]), _moved(bench.losses[1]))
    try:
        due = taken(bench.keras, bench.inputs[0], moved[0], training=True, taps=False)
        own = _torch_pass(bench, moved[1])
    except ExternalModelError:
        return
    yield due, own, moved


def _moved(loss: BatchLoss) -> BatchLoss:
    """The same with the targets of the next sample for each."""
    return replace(loss, targets={name: np.roll(value, 1, 0) for name, value in loss.targets.items()})


def _torch_pass(bench: Bench, loss: BatchLoss) -> PassResult:
    """Torch's pass with its loss, as it is now."""
    return taken(bench.torch, bench.inputs[1], loss, training=True, taps=False)


def _passes(
    bench: Bench, end: int, weighted: tuple[bool, bool] = (True, True), start: int = 0
) -> list[PassResult]:
    """Of Keras and torch on some samples of the batch, with the sample weights or as if all were 1."""
    found, part_of = [], slice(start, end)
    for (side, _, inputs), loss, keep in zip(bench.sides, bench.losses, weighted, strict=True):
        weights = loss.sample_weights
        if weights is not None and not keep:
            weights = np.ones_like(weights)
        part = BatchLoss(
            loss.terms,
            {name: value[part_of] for name, value in loss.targets.items()},
            None if weights is None else weights[part_of],
        )
        given = {name: value[part_of] for name, value in inputs.items()}
        found.append(taken(side, given, part, training=True, taps=False))
    return found


def _equal(ours: PassResult, theirs: PassResult) -> bool:
    """Whether two losses have the same value, and send back the same."""
    return _apart(ours, theirs) <= limits.LIVE_FLOAT64


def _apart(ours: PassResult, theirs: PassResult) -> float:
    """The largest deviation of two losses and of what they send back; infinite where one sends back what the other does not."""
    pairs = [_alike(due, own) for due, own in sent_back(ours, theirs).values()]
    means = tensor_deviation(np.array(_mean(ours)), np.array(_mean(theirs)))
    return max([means, *(np.inf if own is None else tensor_deviation(due, own) for due, own in pairs)])


def _mean(passed: PassResult) -> float:
    return (passed.loss_sum or 0.0) / (passed.count or 1.0)


def _alike(due: Array, own: Array) -> tuple[Array, Array | None]:
    alignment = aligned(due, own)
    return due, None if alignment is None else alignment.array


def _without_weights(bench: Bench, passes: Sequence[PassResult]) -> Explanation | None:
    if bench.losses[0].sample_weights is None:
        return None
    batch = bench.rows
    for side, name, other in ((0, "torch", "Keras"), (1, "Keras", "torch")):
        weighted = (side == 1, side == 0)
        plain = _passes(bench, batch, weighted)
        if _equal(plain[0], passes[1]) if side == 0 else _equal(passes[0], plain[1]):
            return Explanation(
                "loss:sample_weights",
                f"{name}'s loss leaves the sample weights out",
                "confirmed",
                f"multiply the loss of each sample by its weight in {name}",
                f"by experiment: {other}'s loss without the weights is equal to {name}'s with them",
            )
    return None


def _by_rounded_shares(bench: Bench) -> Explanation | None:
    """That targets are shares which add up to 1 but for their rounding to float32, which TensorFlow's cross-entropy takes for 1 on the way back."""
    even = [
        replace(loss, targets={n: _even(value) for n, value in loss.targets.items()}) for loss in bench.losses
    ]
    if all(even[0].targets[n] is value for n, value in bench.losses[0].targets.items()):
        return None
    ours = taken(bench.keras, bench.inputs[0], even[0], training=True, taps=False)
    if not _equal(ours, _torch_pass(bench, even[1])):
        return None
    return Explanation(
        "rounding:targets",
        "the targets are shares that float32 has rounded, so that they do not add up to 1, which TensorFlow's cross-entropy takes for granted on the way back",
        "confirmed",
        "give the shares in float64, or divide them by their sum once more; it is no other formula",
        "by experiment: of shares that add up to 1 both losses are one number and send back the same",
    )


def _even(targets: Array) -> Array:
    """Shares that add up to 1 along the last axis; the very same array where they are none, or do so already."""
    if targets.ndim < 2 or targets.dtype.kind != "f" or (targets < 0).any():
        return targets
    sums = targets.sum(-1, keepdims=True)
    off = float(np.abs(sums - 1).max(initial=0.0))
    return targets / sums if limits.SAME_NUMBER < off <= limits.ROUNDED_CONSTANT else targets


def _by_factor(bench: Bench, passes: Sequence[PassResult], batch: int) -> Explanation | None:
    """One side's loss is the other's times a number, of each output by itself."""
    factors, half = _factors(passes), max(1, batch // 2)
    later = None if factors is None or half == batch else _factors(_passes(bench, half))
    if not factors or not later or set(factors) != set(later):
        return None
    off = [name for name, factor in factors.items() if not _close([factor], [1.0])]
    if not off:
        return None
    seen = [factors[name] for name in off], [later[name] for name in off]
    of = f" of {', '.join(off)}" if len(off) < len(factors) else ""
    evidence = (
        f"by experiment: with {batch} and with {half} samples the gradients with respect to the outputs differ by such"
        " factors and by nothing else"
    )
    sizes = [passes[0].outputs[name].size // batch for name in off]
    for (text, fix), due in _reductions(bench, sizes, batch, half).items():
        if _close(seen[0], due[0]) and _close(seen[1], due[1]):
            text = text.replace("loss", f"loss{of}")
            return Explanation("loss:reduction", text, "confirmed", fix, evidence)
    if not _close(*seen):
        return None
    text = f"torch's loss is {seen[0][0]:.6g} times Keras's"
    if len(factors) > 1:
        told = (f"{name} {factor:.6g} times" for name, factor in factors.items())
        text = f"torch weighs the losses of the outputs otherwise than Keras: {', '.join(told)} as much"
    return Explanation("loss:weight", text, "confirmed", "weigh them alike on both sides", evidence)


def _reductions(
    bench: Bench, sizes: Sequence[int], batch: int, half: int
) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """By what may be (text, fix), how many times Keras's gradients torch's then are: with the batch, and with half of it.

    Args:
        bench: both models.
        sizes: the elements of a sample, of each output.
        batch, half: numbers of samples.
    """
    found = {}
    for side, other, sign in (("torch", "Keras", 1), ("Keras", "torch", -1)):
        mean = f"take the mean in {side} (reduction='mean')"
        ways = {
            "over the samples of the batch, {}'s their mean": ([batch] * len(sizes), [half] * len(sizes)),
            "over the elements of the batch, {}'s their mean": (
                [batch * size for size in sizes],
                [half * size for size in sizes],
            ),
            "over the elements of a sample, {}'s their mean": (list(sizes), list(sizes)),
        }
        for what, dues in ways.items():
            due = tuple([float(number) ** sign for number in each] for each in dues)
            found[f"{side}'s loss is the sum {what.format(other)}", mean] = due
        weights = bench.losses[0].sample_weights
        if weights is not None:
            parts = [(count / float(weights[:count].sum())) ** sign for count in (batch, half)]
            text = (
                f"{side}'s loss divides by the sum of the sample weights, {other}'s by the number of samples"
            )
            found[text, f"divide by the number of samples in {side}"] = tuple(
                [part] * len(sizes) for part in parts
            )
    return found  # type: ignore[return-value]


def _close(values: Sequence[float], due: Sequence[float], limit: float | None = None) -> bool:
    apart = tensor_deviation(np.array(due), np.array(values))
    return apart <= (limits.LIVE_FLOAT64 if limit is None else limit)


def _factors(passes: Sequence[PassResult]) -> dict[str, float] | None:
    """By output, how many times Keras's gradient torch's is; None where one is no multiple of the other."""
    found = {}
    for name, (due, own) in sent_back(*passes).items():
        _, same = _alike(due, own)
        square = float(np.square(due).sum())
        if same is None or not square or not np.isfinite(same).all():
            return None
        factor = float((due * same).sum()) / square
        if not factor or tensor_deviation(factor * due, same) > limits.LIVE_FLOAT64:
            return None
        found[name] = factor
    return found


def _by_formula(bench: Bench, passes: Sequence[PassResult]) -> Explanation | None:
    """What each side's loss is, where it is one of ours."""
    known = [_formula(bench, number, passes[number]) for number in range(2)]
    if known[0] == known[1] or None in known:
        return None
    return Explanation(
        "loss:function",
        f"Keras's loss is {known[0]}, and torch's is {known[1]}",
        "confirmed",
        "take the same loss on both sides",
        "by experiment: these formulas give the value and the gradients of each",
    )


def _formula(bench: Bench, number: int, passed: PassResult) -> str | None:
    side, _, inputs = bench.sides[number]
    loss = bench.losses[number]
    if len(loss.terms) != 1 or loss.sample_weights is not None:
        return None
    (term,) = loss.terms
    for text, fields in _FORMULAS.items():
        try:
            formula = parse_loss(dict(fields)).resolve("keras" if number == 0 else "torch")
            trial = replace(
                loss, terms=(Term.parse({**term.to_dict(), "own": None, "loss": formula.to_dict()}),)
            )
            if _equal(passed, taken(side, inputs, trial, training=True, taps=False)):
                return text
        except (ExternalModelError, SpecError):
            continue  # its shapes do not suit
    return None


def _of_batch(bench: Bench, passes: Sequence[PassResult], batch: int) -> Explanation | None:
    """One side's loss is a mean over samples, the other's is of the batch as a whole."""
    if batch < 2:
        return None
    evidence = "the losses of two halves of the batch make that of the whole in {}, and not in {}"
    separate = _by_halves(bench, passes, batch)
    if separate is None:
        evidence = "with other targets of half of the samples what is sent back to the others is the same in {}, and not in {}"
        separate = _by_targets(bench, passes, batch)
    if separate is None or separate[0] == separate[1]:
        return None
    one, other = ("torch", "Keras") if separate[0] else ("Keras", "torch")
    return Explanation(
        "loss:batch",
        f"{one}'s loss is of the batch as a whole, {other}'s is the mean of the losses of its samples",
        "likely",
        f"take the loss of each sample in {one}, and the mean of these",
        f"by experiment: {evidence.format(other, one)}",
    )


def _by_halves(bench: Bench, passes: Sequence[PassResult], batch: int) -> list[bool] | None:
    """Whether Keras's and torch's losses of two halves of the batch make that of the whole; None where the model itself looks at the batch."""
    half, additive = batch // 2, []
    parts = _passes(bench, half), _passes(bench, batch, start=half)
    for side, whole in enumerate(passes):
        for name, output in whole.outputs.items():
            joined = np.concatenate([p[side].outputs[name] for p in parts])
            if joined.shape != output.shape or tensor_deviation(output, joined) > limits.LIVE_FLOAT64:
                return None
        mean = (half * _mean(parts[0][side]) + (batch - half) * _mean(parts[1][side])) / batch
        # Some functions compute in float32, whatever they are given.
        additive.append(_close([_mean(whole)], [mean], limits.AMPLIFIED_BY_A_PASS))
    return additive


def _by_targets(bench: Bench, passes: Sequence[PassResult], batch: int) -> list[bool] | None:
    """Whether what Keras's and torch's losses send back to some samples is the same with other targets of the others; None where others' are
    no targets of theirs.
    """
    independent, half = [], batch // 2
    for whole, (side, _, inputs), loss in zip(passes, bench.sides, bench.losses, strict=True):
        moved = _moved(loss).targets
        targets = {
            name: np.concatenate([own[:half], moved[name][half:]]) for name, own in loss.targets.items()
        }
        try:
            mixed = taken(side, inputs, replace(loss, targets=targets), training=True, taps=False)
        except ExternalModelError:
            return None
        apart = [tensor_deviation(due[:half], own[:half]) for due, own in sent_back(whole, mixed).values()]
        independent.append(max(apart, default=0.0) <= limits.AMPLIFIED_BY_A_PASS)
    return independent


def _unknown(passes: Sequence[PassResult]) -> Explanation:
    apart = [name for name, mean in passes[0].terms.items() if not _close([mean], [passes[1].terms[name]])]
    which = f" of {', '.join(apart)}" if len(passes[0].terms) > 1 and apart else ""
    text = f"the loss functions{which} differ: Keras's is {_mean(passes[0]):.6g} and torch's {_mean(passes[1]):.6g}"
    if _close([_mean(passes[0])], [_mean(passes[1])]):
        text = f"the loss functions{which} give the same number and send back other gradients"
    elif (factors := _factors(passes)) and _close(list(factors.values()), [1.0] * len(factors)):
        text += ", with equal gradients: a constant is added, or taken for one"
    return Explanation(
        "loss:function",
        text,
        "likely",
        "compare the two functions: reduction, logits or probabilities, weights, which target, what is detached",
        "read from the live models: the outputs that both are given are equal",
    )
