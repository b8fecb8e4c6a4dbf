"""Signatures of the loss: its sum and count, its gradient, and how replicas put them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain import step_reference
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.signatures.base import (
    Match,
    float32_match,
    low_type_of,
    named_ratio,
)
from parity.common.diagnosis.explain.signatures.layers import most_allowed
from parity.common.diagnosis.explain.spec_variants import neighbours, setting
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.reference.losses import loss_sum_and_count
from parity.common.spec import walk
from parity.common.spec.losses import LossBase


def _outputs(case: Case) -> Array:
    return np.asarray(case.ref.rows(f"forward/{step_reference.last_layer(case)}"), np.float64)


def _name(case: Case) -> str:
    return f"backward/{step_reference.last_layer(case)}"


def _made(case: Case) -> Array:
    """The gradient of the loss with respect to the outputs, as the suspect made it."""
    return np.asarray(case.rows(_name(case)), np.float64)


def _due(case: Case) -> Array:
    """The same of the other run, once it is known to be right."""
    if case.suspect == "candidate":
        return np.asarray(case.ref.rows(_name(case)), np.float64)
    return _made(replace(case, suspect="candidate"))


@once
def _row_ratios(case: Case) -> tuple[Array, Array] | None:
    """(ratio of each sample's row to the due one, whether the row says it); None where rows are no multiples."""
    name = _name(case)
    if name not in case.made.names or name not in case.given:
        return None
    due, made = _due(case), _made(case)
    is_right = _far_from_gradient(case, case.spec.loss) <= most_allowed(case)
    if due.shape != made.shape or not np.isfinite(made).all() or is_right:
        return None  # the other run is the odd one
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


def _gradient_match(
    case: Case, factors: Array, tried: str, cause: str = "", value: float | None = None, **facts: str
) -> Match:
    """A match of rows that were multiplied by these factors: what was due is what was made without them."""
    made, due = _made(case), _due(case)
    undone = made / factors.reshape(-1, *[1] * (made.ndim - 1))
    corrected = [{_name(case): rows} for rows in case.shares(undone)]
    after = tensor_deviation(due, undone)
    return Match(facts, tensor_deviation(due, made), after, tried, corrected, cause, value)


def _constant(values: Array) -> float | None:
    """The number that all values are; None where they differ."""
    if not len(values):
        return None
    middle = float(np.median(values))
    return middle if np.abs(values - middle).max() <= limits.FITS_READ_OFF * abs(middle) else None


@once
def scaled(case: Case) -> Match | None:
    """What flows back from the loss is a multiple of what is due, for all samples."""
    found = _row_ratios(case)
    if found is None:
        return None
    ratios, says = found
    ratio = _constant(ratios[says])
    if ratio is None or abs(ratio - 1) <= limits.FITS_READ_OFF or not ratio:
        return None
    cause, words, free = named_ratio(case, ratio)
    tried = f"the gradient of every sample's loss is {ratio:.9g} times what is due"
    return _gradient_match(case, np.full(len(ratios), ratio), tried, cause, free, factor=words)


def weighted_by_micro_batch(case: Case) -> Match | None:
    """A sample counts by the size of its micro-batch."""
    return weighted_by_share(case, case.micro_batches) if case.micro_batches > 1 else None


def weighted_by_share(case: Case, pieces: int = 1) -> Match | None:
    """A replica's samples count by the size of their replica's share, or of each of its pieces."""
    found = _row_ratios(case) if case.replicas * pieces > 1 else None
    if found is None or _constant(found[0][found[1]]) is not None:
        return None
    ratios, says = found
    groups = _groups(case, pieces)
    counts = _counts(case, groups)
    for words, sizes in _sizes(groups, counts, pieces):
        constant = _constant((ratios * sizes)[says])
        if constant is None:
            continue
        factors = np.where(says, ratios, constant / np.where(counts[groups] > 0, sizes, constant))
        tried = f"what flows back is 1 / {words} for every sample; sizes {_said(np.unique(sizes))}"
        return _gradient_match(case, factors, tried, counts=_said(counts))
    return None


def _groups(case: Case, pieces: int) -> Array:
    """Of each sample, by ascending ids, which micro-batch of which replica it is in."""
    sizes = [len(part) for ids in case.ids for part in np.array_split(ids, pieces)]
    groups: Array = np.repeat(np.arange(len(sizes)), sizes)[case.order]
    return groups


def _counts(case: Case, groups: Array) -> Array:
    """What the samples of each group add to the loss's count; groups by ascending ids."""
    outputs, targets = _outputs(case), case.ref.rows("targets")
    mask, counts = case.token_mask, np.zeros(int(groups.max(initial=0)) + 1)
    for group in np.unique(groups):
        inside = groups == group
        part = None if mask is None else mask[inside]
        counts[group] = loss_sum_and_count(case.spec.loss, outputs[inside], targets[inside], part)[1]
    return counts


def _sizes(groups: Array, counts: Array, pieces: int) -> Iterator[tuple[str, Array]]:
    samples = np.bincount(groups, minlength=len(counts)).astype(np.float64)
    whose = "its micro-batch" if pieces > 1 else "its replica"
    yield f"the count of {whose}", counts[groups]
    yield f"the number of samples of {whose}", samples[groups]
    if pieces > 1:
        # The micro-batch's mean, weighted by its replica's count.
        whole = counts.reshape(-1, pieces).sum(1).repeat(pieces)
        relative = np.where(whole > 0, counts / np.maximum(whole, 1), 1.0)
        yield f"the count of {whose} relative to its replica's", relative[groups]


def _said(values: Array) -> str:
    return ", ".join(f"{value:g}" for value in values[:6]) + (", ..." if len(values) > 6 else "")


def other_setting(case: Case) -> Match | None:
    """Sum, count or gradient are those of the loss with one field changed."""
    loss = case.spec.loss
    far_from = _far_from_gradient if case.finding.stage == "backward" else _far_from_sum
    for field, value, other in neighbours(loss):
        needs_mask = getattr(other, "mask_padding", False)
        if field in ("l1", "l2", "penalize") or (needs_mask and case.token_mask is None):
            continue
        try:
            after, due = far_from(case, other), far_from(case, loss)
        except (ValueError, IndexError, FloatingPointError):
            continue
        if after <= most_allowed(case) < due:
            facts = setting(loss, field, value, "loss")
            tried = "NumPy's loss with {field} {value} gives these numbers, with {own} not".format_map(facts)
            return Match(facts, due, after, tried)
    return None


def _far_from_gradient(case: Case, loss: LossBase) -> float:
    """How far the made gradient is from that of a loss: its slopes along some directions, by the complex step.

    Exact to rounding: Squire and Trapp, SIAM Review 1998.
    """
    outputs, targets, made = _outputs(case), case.ref.rows("targets"), _made(case)
    random, h, far = np.random.default_rng(0), limits.COMPLEX_STEP, 0.0
    for _ in range(limits.DIRECTIONS):
        direction = random.normal(size=outputs.shape)
        total, _ = loss_sum_and_count(loss, outputs + 1j * h * direction, targets, case.token_mask)
        far = max(far, abs(float((made * direction).sum() - np.imag(total) / h)))
    return far / max(float(np.linalg.norm(made)), limits.NEARLY_ZERO)


def _reference_sum(case: Case, loss: LossBase) -> tuple[float, float]:
    """Sum and count of a loss by NumPy."""
    with np.errstate(all="ignore"):
        total, count = loss_sum_and_count(loss, _outputs(case), case.ref.rows("targets"), case.token_mask)
    return float(np.real(total)), count


def _far_from_sum(case: Case, loss: LossBase) -> float:
    made = float(case.made.summed("loss_sum")), float(case.made.summed("count"))
    pairs = zip(made, _reference_sum(case, loss), strict=True)
    return max(abs(a - b) / max(abs(a), abs(b), limits.NEARLY_ZERO) for a, b in pairs)


def sums_scaled(case: Case) -> Match | None:
    """The loss sum, or the count, is a multiple of what is due."""
    name = case.finding.name.rpartition("/")[2]
    if name not in ("loss_sum", "count"):
        return None
    made, due = _made_and_due_sums(case, name)
    if not due or not made or made == due:
        return None
    cause, words, free = named_ratio(case, made / due)
    if free is not None:
        return None
    tried = f"{case.finding.name} is {made / due:.9g} times what is due"
    return Match({"factor": words}, abs(made / due - 1), 0.0, tried, cause=cause)


def _made_and_due_sums(case: Case, name: str) -> tuple[float, float]:
    own = float(case.made.summed(name))
    if case.finding.stage == "total":
        return float(case.made.replicas[0][f"total/{name}"]), own
    return own, float(case.ref.summed(name))


def totals_never_summed(case: Case) -> Match | None:
    """Each replica's total is its own sum."""
    if case.replicas == 1:
        return None
    name = case.finding.name.rpartition("/")[2]
    totals, own = (
        np.array([float(state[head + name]) for state in case.made.replicas]) for head in ("total/", "")
    )
    far = float(np.abs(totals - sum(own)).max()) / max(abs(sum(own)), limits.NEARLY_ZERO)
    left = float(np.abs(totals - own).max()) / max(*np.abs(own), limits.NEARLY_ZERO)
    if far <= case.allowed or left > case.allowed:
        return None
    return Match({"name": name}, far, left, f"the total {name} of every replica is its own")


def only_reported(case: Case) -> Match | None:
    """The global loss sum is another, and the gradients do not come of it."""
    names = [seen.name for seen in case.finding.tensors]
    if not case.finding.name.endswith("loss_sum") or any("count" in n or "backward/" in n for n in names):
        return None
    if case.finding.stage == "loss":
        far = _far_from_sum(case, case.spec.loss)
    else:
        made, due = _made_and_due_sums(case, "loss_sum")
        far = abs(made - due) / max(abs(due), limits.NEARLY_ZERO)
    if far <= most_allowed(case):
        return None  # the suspect's is as it should be
    return Match({}, case.finding.deviation, 0.0, "gradients and weights agree all the same")


def gradient_rounded(case: Case) -> Match | None:
    """What flows back from the loss lies on the grid of a narrower type."""
    made, due = _made(case), _due(case)
    name, far = low_type_of([made]), tensor_deviation(due, made)
    if name is None or low_type_of([due]) is not None or far > limits.CAST_OF_LOSS:
        return None
    return Match({"type": name}, far, 0.0, f"all of it lies on the grid of {name}")


def leaks_float32(case: Case) -> Match | None:
    """Sum or gradient deviate by about the rounding of float32, where all is to be float64."""
    found, of_gradient = float32_match(case, case.finding.deviation), case.finding.stage == "backward"
    if found is None or case.spec.master_dtype != "float64":
        return None
    if of_gradient and case.finding.name != _name(case):
        return None
    if of_gradient and low_type_of([_made(case)]) == "float32":
        return replace(
            found, after=0.0, tried="all that flows back from the loss lies on the grid of float32"
        )
    total = _reference_sum(case, case.spec.loss)[0]
    far = abs(total - float(case.ref.summed("loss_sum"))) / max(abs(total), limits.NEARLY_ZERO)
    return replace(found, tried=f"{found.tried}; NumPy's loss is the reference's to {far:.0e}")


def activity_missing(case: Case) -> Match | None:
    """The loss sum lacks the layers' penalties on activations."""
    nodes: list[Any] = [node for node in walk(case.tree) if node.spec.kind == "activity_penalty"]
    if not nodes or case.finding.name.rpartition("/")[2] != "loss_sum":
        return None
    due = 0.0
    for node in nodes:
        x = np.asarray(case.ref.rows(f"forward/{node.path}"), np.float64)
        due += node.spec.l1 * float(np.abs(x).sum()) + node.spec.l2 * float((x**2).sum())
    made, whole = _made_and_due_sums(case, "loss_sum")
    ratio = 1 + (made - whole) / due if due else 1.0
    if abs(ratio - round(ratio, 6)) > limits.FITS_READ_OFF or abs(ratio - 1) < limits.FITS_READ_OFF:
        return None
    times = "without" if abs(ratio) < limits.FITS_READ_OFF else f"with {ratio:.6g} times"
    tried = f"the loss sum is the due one {times} the penalties on activations"
    return Match({"times": times}, abs(made / whole - 1), 0.0, tried)
