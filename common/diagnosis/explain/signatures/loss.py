"""Signatures of the loss: its sum and count, its gradient, and how replicas put them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain import step_reference
from parity.common.diagnosis.explain.signatures.base import Case, Match, low_type_of, named_ratio, once
from parity.common.diagnosis.explain.spec_variants import neighbours, said
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.reference.losses import loss_sum_and_count
from parity.common.spec.losses import LossBase


def _outputs(case: Case) -> Array:
    return np.asarray(case.given.rows(f"forward/{step_reference.last_layer(case)}"), np.float64)


def _name(case: Case) -> str:
    return f"backward/{step_reference.last_layer(case)}"


def _due(case: Case) -> Array:
    """The gradient of the loss with respect to the outputs: the other run's, once it is known to be right."""
    trace = case.evidence.ref if case.suspect == "candidate" else case.evidence.injected
    if case.suspect == "candidate":
        return np.asarray(trace.rows(_name(case)), np.float64)
    other = Case(case.evidence, "candidate")
    return np.asarray(other.rows(_name(case)), np.float64)


@once
def row_ratios(case: Case) -> tuple[Array, Array] | None:
    """(ratio of each sample's row to the due one, whether the row says it); None where rows are no multiples."""
    name = _name(case)
    if name not in case.made.names or name not in case.given.names:
        return None
    due, made = _due(case), np.asarray(case.rows(name), np.float64)
    if due.shape != made.shape or not np.isfinite(made).all() or _is_right(case):
        return None
    due, made = due.reshape(len(due), -1), made.reshape(len(made), -1)
    below = (due**2).sum(1)
    some = below > below.max(initial=0.0) * limits.NEARLY_ZERO_SQUARE
    ratios = np.where(some, (due * made).sum(1) / np.where(some, below, 1.0), 1.0)
    left = np.abs(made - ratios[:, None] * due).max(1)
    scale = np.maximum(np.abs(made).max(1), np.abs(due).max(1))
    # Rows that are nearly nothing are all rounding.
    floor = np.abs(due).max(initial=0.0) * limits.UNEXPLAINED
    if (left > max(case.allowed, limits.INJECTED_FLOAT64) * 10 * np.maximum(scale, floor)).any():
        return None
    return ratios, some & (scale > floor)


def _is_right(case: Case) -> bool:
    """Whether what the suspect made is what NumPy's loss gives, so that the other run is the odd one."""
    return _fits_gradient(case, case.spec.loss) <= max(case.allowed, limits.FITS)


def _gradient_match(case: Case, factors: Array, tried: str, **facts: str) -> Match:
    """A match of rows that were multiplied by these factors: what was due is what was made without them."""
    made = np.asarray(case.rows(_name(case)), np.float64)
    due = _due(case)
    undone = made / factors.reshape(-1, *[1] * (made.ndim - 1))
    corrected: list[dict[str, Array]] = []
    if case.suspect == "candidate":
        corrected = [{_name(case): rows} for rows in case.shares(undone)]
    return Match(facts, tensor_deviation(due, made), tensor_deviation(due, undone), tried, corrected)


def _constant(values: Array) -> float | None:
    """The number that all values are; None where they differ."""
    if not len(values):
        return None
    middle = float(np.median(values))
    return middle if np.abs(values - middle).max() <= limits.FITS_READ_OFF * abs(middle) else None


def scaled(case: Case) -> tuple[str, str, Match] | None:
    """(cause, words, match) where what flows back from the loss is a multiple of what is due, for all samples."""
    found = row_ratios(case)
    if found is None:
        return None
    ratios, says = found
    ratio = _constant(ratios[says])
    if ratio is None or abs(ratio - 1) <= limits.FITS_READ_OFF or not ratio:
        return None
    key, words = named_ratio(case, ratio)
    tried = f"the gradient of every sample's loss is {ratio:.9g} times what is due"
    return key, words, _gradient_match(case, np.full(len(ratios), ratio), tried, factor=words)


def _counts(case: Case, groups: Array) -> Array:
    """What the samples of each group add to the loss's count; groups by ascending ids."""
    outputs, targets = _outputs(case), case.given.rows("targets")
    mask, counts = case.token_mask, np.zeros(int(groups.max(initial=0)) + 1)
    for group in np.unique(groups):
        inside = groups == group
        part = None if mask is None else mask[inside]
        counts[group] = loss_sum_and_count(case.spec.loss, outputs[inside], targets[inside], part)[1]
    return counts


def weighted_by_share(case: Case) -> Match | None:
    """A replica's samples count by the size of their replica's share."""
    return _weighted(case, 1)


def weighted_by_micro_batch(case: Case) -> Match | None:
    """A sample counts by the size of its micro-batch."""
    return _weighted(case, case.micro_batches) if case.micro_batches > 1 else None


def _weighted(case: Case, pieces: int) -> Match | None:
    found, parts = row_ratios(case), max(1, pieces)
    if found is None or (parts == 1 and case.replicas == 1):
        return None
    ratios, says = found
    if _constant(ratios[says]) is not None:
        return None
    groups = _groups(case, parts)
    counts = _counts(case, groups)
    factors = np.ones(len(ratios))
    own = counts[groups]
    for words, sizes in _sizes(case, groups, counts, parts):
        constant = _constant((ratios * sizes)[says])
        if constant is None:
            continue
        factors = constant / np.where(own > 0, sizes, constant)
        factors = np.where(says, ratios, factors)
        tried = f"what flows back is 1 / {words} for every sample; sizes {_said(np.unique(sizes))}"
        return _gradient_match(case, factors, tried, counts=_said(counts), what=words)
    return None


def _groups(case: Case, pieces: int) -> Array:
    """Of each sample, by ascending ids, which micro-batch of which replica it is in."""
    each, number = [], 0
    for ids in case.ids:
        for part in np.array_split(np.arange(len(ids)), pieces):
            each.append(np.full(len(part), number))
            number += 1
    groups: Array = np.concatenate(each)[case.order]
    return groups


def _sizes(case: Case, groups: Array, counts: Array, pieces: int) -> Iterator[tuple[str, Array]]:
    samples = np.bincount(groups, minlength=len(counts)).astype(np.float64)
    what = "the count of its micro-batch" if pieces > 1 else "the count of its replica"
    yield what, counts[groups]
    yield what.replace("count", "number of samples"), samples[groups]
    if pieces > 1:
        # The micro-batch's mean, weighted by its replica's count.
        whole = counts.reshape(-1, pieces).sum(1).repeat(pieces)
        yield (
            f"{what} relative to its replica's",
            np.where(whole > 0, counts / np.maximum(whole, 1), 1.0)[groups],
        )


def _said(values: Array) -> str:
    return ", ".join(f"{value:g}" for value in values[:6]) + (", ..." if len(values) > 6 else "")


def other_setting(case: Case) -> tuple[str, Match] | None:
    """(field, match): sum, count or gradient are those of the loss with one field changed."""
    loss = case.spec.loss
    fits = _fits_gradient if case.stage == "backward" else _fits_sum
    changed = [(field, value, other) for field, value, other in neighbours(loss) if _usable(case, other)]
    changed = [entry for entry in changed if entry[0] not in ("l1", "l2", "penalize")]
    for field, value, other in changed:
        try:
            after = fits(case, other)
            due = fits(case, loss)
        except (ValueError, IndexError, FloatingPointError):
            continue
        if after <= max(case.allowed, limits.FITS) < due:
            own = said(getattr(loss, field))
            tried = f"NumPy's loss with {field} {said(value)} gives these numbers, with {own} not"
            facts = {"field": field, "value": said(value), "own": own, "where": "loss"}
            return field, Match(facts, due, after, tried)
    return None


def _usable(case: Case, loss: LossBase) -> bool:
    return not getattr(loss, "mask_padding", False) or case.token_mask is not None


def _fits_gradient(case: Case, loss: LossBase) -> float:
    """How far the made gradient's slopes are from those of a loss."""
    outputs, targets = _outputs(case), case.given.rows("targets")
    made = np.asarray(case.rows(_name(case)), np.float64)
    directions, (slopes,) = step_reference.slopes_of_loss(case, [loss], outputs, targets)
    own = np.array([(made * direction).sum() for direction in directions])
    scale = max(float(np.linalg.norm(made)), limits.NEARLY_ZERO)
    return float(np.abs(own - slopes).max() / scale)


def _fits_sum(case: Case, loss: LossBase) -> float:
    outputs, targets = _outputs(case), case.given.rows("targets")
    with np.errstate(all="ignore"):
        total, count = loss_sum_and_count(loss, outputs, targets, case.token_mask)
    made = float(case.made.summed("loss_sum")), float(case.made.summed("count"))
    due = (float(np.real(total)), count)
    return max(abs(a - b) / max(abs(a), abs(b), limits.NEARLY_ZERO) for a, b in zip(made, due, strict=True))


def sums_scaled(case: Case) -> tuple[str, str, Match] | None:
    """(cause, words, match): the loss sum, or the count, is a multiple of what is due."""
    name = case.name.rpartition("/")[2]
    if name not in ("loss_sum", "count"):
        return None
    made, due = _made_and_due_sums(case, name)
    if not due or not made or made == due:
        return None
    key, words = named_ratio(case, made / due)
    if key == "scaled_by_constant" and not words.startswith(("the ", "1 / (", "replicas", "n ")):
        return None
    tried = f"{case.name} is {made / due:.9g} times what is due"
    return key, words, Match({"factor": words, "name": name}, abs(made / due - 1), 0.0, tried)


def _made_and_due_sums(case: Case, name: str) -> tuple[float, float]:
    if case.stage == "total":
        return float(case.made.replicas[0][f"total/{name}"]), float(case.made.summed(name))
    return float(case.made.summed(name)), float(case.given.summed(name))


def totals_never_summed(case: Case) -> Match | None:
    """Each replica's total is its own sum."""
    if case.stage != "total" or case.replicas == 1:
        return None
    name = case.name.rpartition("/")[2]
    totals = [float(state[f"total/{name}"]) for state in case.made.replicas]
    own = [float(state[name]) for state in case.made.replicas]
    far = max(abs(t - sum(own)) for t in totals) / max(abs(sum(own)), limits.NEARLY_ZERO)
    left = max(abs(t - o) for t, o in zip(totals, own, strict=True)) / max(
        map(abs, [*own, limits.NEARLY_ZERO])
    )
    if far <= case.allowed or left > case.allowed:
        return None
    return Match({"name": name}, far, left, f"the total {name} of every replica is its own")


def only_reported(case: Case) -> Match | None:
    """The global loss sum is another, and the gradients do not come of it."""
    if case.stage not in ("total", "loss") or not case.name.endswith("loss_sum"):
        return None
    totals = [seen.name for seen in case.evidence.finding.tensors]
    if any("count" in name or name.startswith("backward/") for name in totals):
        return None
    return Match({}, case.evidence.finding.deviation, 0.0, "gradients and weights agree all the same")


def gradient_rounded(case: Case) -> Match | None:
    """What flows back from the loss lies on the grid of a narrower type."""
    made, due = np.asarray(case.rows(_name(case)), np.float64), _due(case)
    name = low_type_of([made])
    if name is None or low_type_of([due]) is not None or tensor_deviation(due, made) > limits.CAST_OF_LOSS:
        return None
    return Match(
        {"type": name, "what": "what flows back from the loss"},
        tensor_deviation(due, made),
        0.0,
        f"all of it lies on the grid of {name}",
    )


def leaks_float32(case: Case) -> Match | None:
    """Sum or gradient deviate by about the rounding of float32, where all is to be float64."""
    far = case.evidence.finding.deviation
    if (
        case.spec.master_dtype != "float64"
        or not limits.FITS < far < limits.FLOAT32_LARGEST
        or not _is_of_loss(case)
    ):
        return None
    made = np.asarray(case.rows(_name(case)), np.float64) if case.stage == "backward" else None
    if made is not None and low_type_of([made]) == "float32":
        return Match({}, far, 0.0, "all that flows back from the loss lies on the grid of float32")
    outputs, targets = _outputs(case), case.given.rows("targets")
    with np.errstate(all="ignore"):
        total, _ = loss_sum_and_count(case.spec.loss, outputs, targets, case.token_mask)
    referee_says = abs(float(np.real(total)) - float(case.evidence.ref.summed("loss_sum")))
    tried = (
        f"the deviation, {far:.0e}, is that of a float32 number in a float64 path;"
        f" NumPy's loss is the reference's to {referee_says / max(abs(float(np.real(total))), limits.NEARLY_ZERO):.0e}"
    )
    return Match({}, far, far, tried)


def _is_of_loss(case: Case) -> bool:
    return case.stage != "backward" or case.name == _name(case)


def activity_missing(case: Case) -> Match | None:
    """The loss sum lacks the layers' penalties on activations."""
    kinds: list[Any] = [node for node in _walk(case.evidence.tree) if node.spec.kind == "activity_penalty"]
    if not kinds or case.name.rpartition("/")[2] != "loss_sum":
        return None
    due = 0.0
    for node in kinds:
        x = np.asarray(case.given.rows(f"forward/{node.path}"), np.float64)
        due += node.spec.l1 * float(np.abs(x).sum()) + node.spec.l2 * float((x**2).sum())
    made, whole = _made_and_due_sums(case, "loss_sum")
    ratio = 1 + (made - whole) / due if due else 1.0
    if abs(ratio - round(ratio, 6)) > limits.FITS_READ_OFF or abs(ratio - 1) < limits.FITS_READ_OFF:
        return None
    times = "without" if abs(ratio) < limits.FITS_READ_OFF else f"with {ratio:.6g} times"
    return Match(
        {"times": times},
        abs(made / whole - 1),
        0.0,
        f"the loss sum is the due one {times} the penalties on activations",
    )


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _walk(child)
