"""Signatures of what goes wrong between a replica's own gradient and the global one.

Most are read off weights: the made gradient as a weighted sum of the replicas' own shares of the due one,
fitted over all tensors at once. Due is a weight of 1 for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain import step_reference
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.signatures import layers
from parity.common.diagnosis.explain.signatures.base import (
    LOW_TYPES,
    Match,
    Tensors,
    below,
    farthest,
    float32_match,
    low_type_of,
    named_ratio,
    numbers,
    ratio_of,
    rounded,
)
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.spec import walk


@dataclass(frozen=True)
class Reduction:
    """The gradients of a step that are not as due.

    due: by parameter; made: of each of the suspect's replicas. added: the penalties' part of it.
    shares: of each replica its part of the due one less `added`; None where replicas have none to show.
    every: whether all gradients are wrong that could be.
    """

    due: dict[str, Array]
    made: list[dict[str, Array]]
    added: dict[str, Array]
    shares: list[dict[str, Array]] | None
    every: bool
    before: float

    def less_added(self, tensors: Tensors) -> list[Array]:
        """Some gradients, in their shapes, without the penalties' part."""
        return [tensors[name] - self.added[name] for name in self.due]

    def farthest(self, expected: Tensors | Sequence[Tensors]) -> float:
        """The largest deviation of what is made from some other gradients, by name: of all replicas or of each."""
        each = expected if isinstance(expected, Sequence) else [expected] * len(self.made)
        return max(farthest(of, made) for of, made in zip(each, self.made, strict=True))

    def of(self, names: Sequence[str], shares: Sequence[Tensors] | None) -> Reduction:
        """The same of some parameters, with the replicas' shares of them by name."""
        return replace(
            self,
            due={name: self.due[name] for name in names},
            made=[{name: made[name] for name in names} for made in self.made],
            added={name: self.added[name] for name in names},
            shares=None if shares is None else [{name: own[name] for name in names} for own in shares],
        )


@once
def reduction(case: Case) -> Reduction | None:
    """What the finding is about; None where all gradients are as due."""
    here = case.steps[0]
    due = {n: v for n, v in step_reference.due_gradients(case, here).items() if n not in case.zero_gradients}
    made = [below(state, "gradient/") for state in case.made.replicas]
    far = {n: max(tensor_deviation(value, own[n]) for own in made) for n, value in due.items()}
    wrong = [n for n in far if far[n] > case.allowed]
    if not wrong:
        return None
    every = len(wrong) == sum(bool(np.any(value)) for value in due.values())
    whole = Reduction(due, made, step_reference.penalties(case, case.given), None, every, max(far.values()))
    return whole.of(wrong, step_reference.local_gradients(here))


@once
def _shared(case: Case) -> Reduction | None:
    """The same with the replicas' shares: where they have none to show, as their layers by themselves give them.

    Then without the parameters of layers that look at the whole batch: no replica's share is its own there.
    """
    found = reduction(case)
    if found is None or found.shares is not None or case.replicas == 1:
        return found
    paths, empty = {n.path for n in walk(case.tree)}, not all(map(len, case.ids))
    shares: list[dict[str, Array]] = [{} for _ in range(case.replicas)]
    for path in dict.fromkeys(name.rpartition("/")[0] for name in found.due):
        layer = layers.layer_at(case, path) if path in paths else None
        if layer is None or layer.dy is None or layer.spec.kind == "batch_norm" or empty:
            continue
        parts = layers.divided(case, layers.plain(case, layer))
        given = layers.results(case, [layers.Try("", (part,)) for part in parts])
        for own, part in zip(shares, given, strict=True):
            own |= {name: value / case.count for name, value in below(part, "gradient/").items()}
    names = [name for name in found.due if all(name in own for own in shares)]
    return found.of(names, shares) if names else found


@once
def _weights(case: Case) -> tuple[Reduction, Array, float] | None:
    """The reduction, [made on replica, share of replica], and what they leave unexplained.

    None without shares, or where these do not explain it.
    """
    found = _shared(case)
    if found is None or found.shares is None or case.replicas == 1:
        return None
    sizes = [float(np.abs(due).max()) or 1.0 for due in found.due.values()]

    def flat(tensors: Iterable[Array]) -> Array:
        return np.concatenate([t.ravel() / size for t, size in zip(tensors, sizes, strict=True)])

    columns = np.stack([flat(own.values()) for own in found.shares], axis=1)
    rows, explained = [], []
    for made in found.made:
        if not all(np.isfinite(value).all() for value in made.values()):
            return None
        weights = np.linalg.lstsq(columns, flat(found.less_added(made)), rcond=None)[0]
        rows.append(weights)
        weighted = list(zip(weights, found.shares, strict=True))
        explained.append({n: found.added[n] + sum(w * own[n] for w, own in weighted) for n in found.due})
    left = found.farthest(explained)
    return (found, np.stack(rows), left) if left <= layers.most_allowed(case) else None


def match(
    case: Case, after: float, tried: str, cause: str = "", value: float | None = None, **facts: str
) -> Match:
    """A match, with the due gradients for each of the candidate's replicas where it has own ones to show."""
    found, corrected = reduction(case), []
    assert found is not None
    if found.shares is not None:
        whole = step_reference.due_gradients(case, case.steps[0])
        due = {f"gradient/{name}": value for name, value in whole.items()}
        corrected = [due] * case.replicas
    return Match(facts, found.before, after, tried, corrected, cause, value)


def _has_samples(found: Reduction) -> Array:
    """bool (replicas,): which have a share; what a replica without samples weighs says nothing."""
    return np.array([any(map(np.any, own.values())) for own in found.shares or []])


def never_summed(case: Case) -> Match | None:
    """Each replica has a multiple of its own share, and nothing of the others'; of all parameters or of some."""
    fitted = _weights(case)
    if fitted is None:
        return None
    found, weights, left = fitted
    there = np.flatnonzero(_has_samples(found))
    own = weights[there, there]
    if (
        not len(own)
        or np.ptp(own) > limits.FITS_WEIGHT * np.abs(own).max()
        or abs(own[0]) < limits.FITS_WEIGHT
    ):
        return None
    # Of a group of replicas that do sum, all have the group's shares and no others.
    inside = np.abs(weights - own[0]) <= limits.FITS_WEIGHT * abs(own[0])
    outside = np.abs(weights) <= limits.FITS_WEIGHT
    if not (inside | outside)[:, there].all() or inside[:, there].all():
        return None
    alone = inside.sum() == len(there)
    whose = "its own share" if alone else "the shares of its own group of replicas"
    tried = f"each replica's gradient is {numbers(own[:1])} times {whose} of the global mean's, to {left:.0e}"
    cause = "gradients_not_summed" if found.every else "parameter_not_reduced"
    return match(case, left, tried, cause, names=listed(found.due), replicas=str(case.replicas))


def replicas_left_out(case: Case) -> Match | None:
    """All replicas have the same gradient, of some replicas' shares only."""
    fitted = _weights(case)
    if fitted is None or not fitted[0].every:
        return None
    found, weights, left = fitted
    there = _has_samples(found)
    kept = there & (np.abs(weights[0]) > limits.FITS_WEIGHT)
    same = np.abs(weights - weights[0]).max() <= limits.FITS_WEIGHT
    if not same or kept.sum() == there.sum() or not kept.any():
        return None
    if np.ptp(weights[0][kept]) > limits.FITS_WEIGHT:
        return None
    out = ", ".join(str(r) for r in np.flatnonzero(there & ~kept))
    tried = (
        f"weights of the replicas' shares: {numbers(weights[0])}, where 1 is due for each; left {left:.0e}"
    )
    return match(case, left, tried, replicas=f"all but {out}")


def weighted_by_share(case: Case) -> Match | None:
    """Each replica's share is divided by its own count, not by the global one."""
    fitted = _weights(case)
    if fitted is None:
        return None
    _, weights, left = fitted
    counts = np.array([float(tensors["count"]) for tensors in case.made.replicas])
    whole = counts > 0
    due = counts.sum() / (case.replicas * np.where(whole, counts, 1.0))
    constant = weights[:, whole] / due[whole]
    if np.ptp(constant) > limits.FITS_WEIGHT * np.abs(constant).max():
        return None
    if np.ptp(counts[whole]) == 0 and whole.all():
        return None  # with equal counts it is no other than the right mean
    tried = f"weights of the replicas' shares: {numbers(weights[0])}, as 1 / their counts {numbers(counts)}"
    return match(case, left, tried, counts=numbers(counts))


@once
def scaled(case: Case) -> Match | None:
    """All gradients on all replicas are the due ones times one number, with or without the penalties."""
    found = reduction(case)
    if found is None or not found.every:
        return None
    nothing = {name: np.zeros(()) for name in found.due}
    for kept in (found.added, nothing):
        due = {name: value - kept[name] for name, value in found.due.items()}
        ratios = [ratio_of(due.values(), [made[n] - kept[n] for n in due]) for made in found.made]
        if None in ratios:
            continue
        ratio = float(ratios[0] or 0.0)
        left = found.farthest({name: kept[name] + ratio * value for name, value in due.items()})
        if left <= case.allowed:
            cause, words, free = named_ratio(case, ratio)
            tried = f"all gradients are {ratio:.9g} times what is due, to {left:.0e}"
            return match(case, left, tried, cause, free, factor=words)
    return None


def clipped_first(case: Case) -> Match | None:
    """Each replica's share is scaled to one norm before they are added, or not at all."""
    fitted, found = _weights(case), reduction(case)
    if fitted is None or found is None or found.shares is None:
        return None
    _, weights, left = fitted
    each = weights[0]
    if np.ptp(each) <= limits.FITS_READ_OFF * np.abs(each).max():
        return None  # all are scaled alike, as by no norm of their own
    if np.abs(weights - each).max() > limits.FITS_WEIGHT or (each <= 0).any():
        return None
    local = step_reference.local_gradients(case.steps[0]) or []
    norms = case.count * np.array([np.sqrt(sum(np.sum(v**2) for v in own.values())) for own in local])
    counts = np.array([max(float(own["count"]), 1.0) for own in case.made.replicas])
    # Each clips its mean, or its sum: of equal counts that is the same.
    for whose, unit in (("mean ", counts), ("", np.ones_like(counts))):
        limit = _limit_of(each, norms / unit, case)
        if limit:
            tried = f"the replicas' own {whose}gradients, of norms {numbers(norms / unit)}, enter with norms no larger than {limit:.6g}"
            return match(case, left, tried, limit=f"{limit:.6g}")
    return None


def _limit_of(weights: Array, norms: Array, case: Case) -> float | None:
    """The norm that the replicas' own gradients are limited to, where their weights say so."""
    # A number for all replicas that the reduction multiplies by takes no part.
    top, clipped = weights.max(), weights * norms
    low = weights < top * (1 - limits.FITS_READ_OFF)
    reached, kept = clipped[low], clipped[~low]
    if abs(top - 1) > limits.FITS_READ_OFF:
        reached, kept = np.concatenate([reached, kept]), kept[:0]
    limit = float(reached[0]) if len(reached) else 0.0
    if not limit or np.ptp(reached) > limits.FITS_PLAIN_NORM * limit or (kept > limit * 1.0001).any():
        return None
    return None if len(reached) == 1 and not _is_plain(limit, case) else limit


def _is_plain(limit: float, case: Case) -> bool:
    """Whether one clipped norm alone tells of a limit: the spec's, or a number that a person would write."""
    own = case.spec.optimizer.clip_global_norm
    for unit in (1.0, case.count, case.count / case.replicas, case.replicas):
        value = limit / unit
        if abs(value - float(f"{value:.3g}")) < limits.FITS_PLAIN_NORM * value:
            return True
        if own and abs(value - own) < limits.FITS_SPEC_NORM * own:
            return True
    return False


@once
def other_penalty(case: Case) -> Match | None:
    """The gradient is that of the loss without its penalties, or with another multiple of them."""
    found, loss = reduction(case), case.spec.loss
    if found is None or not (loss.l1 or loss.l2):
        return None
    names = [name for name in found.due if np.any(found.added[name])]
    of_loss = {name: found.due[name] - found.added[name] for name in found.due}
    ratio = ratio_of([found.added[n] for n in names], [found.made[0][n] - of_loss[n] for n in names])
    if ratio is None or abs(ratio - 1) < limits.FITS_READ_OFF:
        return None
    left = found.farthest({name: of_loss[name] + ratio * found.added[name] for name in found.due})
    if left > case.allowed:
        return None
    field, missing = "l2" if loss.l2 else "l1", abs(ratio) < limits.FITS_FACTOR
    own = getattr(loss, field)
    times = "without" if missing else f"with {ratio:.6g} times"
    tried = f"the gradients are the due ones {times} the penalties on the weights, to {left:.0e}"
    cause = "penalty_missing" if missing else "setting:*"
    free = None if missing else ratio
    return match(case, left, tried, cause, free, times=times, field=field, own=f"{own:g}")


def gradients_differ(case: Case) -> Match | None:
    """The replicas have different gradients after the reduction."""
    found = reduction(case)
    if found is None or case.replicas == 1:
        return None
    apart = max(farthest(found.made[0], made) for made in found.made)
    if apart <= case.allowed:
        return None
    return match(case, apart, f"the reduced gradients of the replicas are {apart:.0e} apart")


def accumulates(case: Case) -> Match | None:
    """The gradient of a step has those of the steps before in it: they were never set to zero.

    Of two steps taken one after the other, the later one's surplus is the whole of the earlier one's.
    """
    found = reduction(case)
    if found is None or not found.every:
        return None
    for before, now in case.in_a_row():
        kept, grown = ([below(state, "gradient/") for state in s.made.replicas] for s in (before, now))
        due = step_reference.due_gradients(case, now)
        counts = [float(step.given["total/count"]) for step in (before, now)]
        surplus = [
            {n: due[n] + (state[n] - found.added[n]) * (counts[0] / counts[1]) for n in found.due}
            for state in kept
        ]
        left = max(farthest(e, m) for e, m in zip(surplus, grown, strict=True))
        if left <= max(limits.FITS_READ_OFF, case.allowed):
            tried = f"the gradient of step {now.step} less the due one is all that step {before.step} left, to {left:.0e}"
            return match(case, left, tried)
    return None


@once
def local_scaled(case: Case) -> Match | None:
    """The replicas' own gradients add up to a multiple of what is due."""
    seen = [seen.name for seen in case.finding.tensors]
    names = [n.partition("/")[2] for n in seen if n.startswith("local_gradient/")]
    if not names or case.suspect == "reference":
        return None
    added = step_reference.penalties(case, case.given)
    due = [(np.asarray(case.given[f"gradient/{n}"]) - added[n]) * case.count for n in names]
    made = [np.asarray(case.made.summed(f"local_gradient/{n}"), np.float64) for n in names]
    ratio = ratio_of(due, made)
    if not ratio:
        return None
    left = max(tensor_deviation(ratio * d, m) for d, m in zip(due, made, strict=True))
    if left > layers.most_allowed(case):
        return None
    cause, words, free = named_ratio(case, ratio)
    tried = f"the replicas' own gradients add up to {ratio:.9g} times what is due"
    return Match({"factor": words}, abs(ratio - 1), left, tried, cause=cause, value=free)


# Gradients that went through a narrower type before, in or after the reduction.


def in_low_precision(case: Case) -> Match | None:
    """The sum of gradients lies on the grid of a narrower type, and nowhere far from the due one."""
    found = reduction(case)
    if found is None:
        return None
    count, replicas = case.count, float(case.replicas)
    casts = (limits.CAST_TO_BFLOAT16, limits.CAST_TO_FLOAT16, limits.CAST_TO_FLOAT32)
    most = dict(zip(LOW_TYPES, casts, strict=True))
    made = [value for state in found.made for value in found.less_added(state)]
    name = low_type_of(made, (1.0, count, count / replicas, 1.0 / replicas, replicas))
    what = "lie on its grid"
    if name is None and found.shares is not None:
        name, what = _rounded_parts(found, case), "are the sum of the replicas' own, rounded to it"
    if name is None or found.before > most[name] * replicas:
        return None
    tried = f"the gradients before the division {what}; rounding takes them {found.before:.0e} off"
    return match(case, 0.0, tried, type=name)


def _rounded_parts(found: Reduction, case: Case) -> str | None:
    """The type that each replica's gradient is rounded to before they are added; None where to none."""
    count, replicas, shares = case.count, case.replicas, found.shares or []
    for name, bits in LOW_TYPES.items():
        for factor in (count, 1.0, count / replicas, 1.0 / replicas):
            expected = {
                n: found.added[n] + sum(rounded(own[n] * factor, bits) for own in shares) / factor
                for n in found.due
            }
            if found.farthest(expected) <= case.allowed:
                return name
    return None


def rounded_after(case: Case) -> Match | None:
    """The gradient is the due one, rounded once: nothing was added in the narrower type."""
    found = reduction(case)
    if found is None:
        return None
    due, *made = (
        np.concatenate([value.ravel() for value in found.less_added(tensors)])
        for tensors in (found.due, *found.made)
    )
    for name, bits in LOW_TYPES.items():
        for factor in (1.0, case.count, case.count / case.replicas, float(case.replicas)):
            expected = rounded(due * factor, bits) / factor
            # What lies between two grid points may be rounded either way.
            near = limits.FITS_ROUNDED * np.abs(expected)
            if all((np.abs(expected - own) <= near).mean() > 0.98 for own in made):
                tried = f"the gradients are the due ones, each rounded to {name} once"
                return match(case, 0.0, tried, type=name)
    return None


def leaks_float32(case: Case) -> Match | None:
    """All gradients deviate by about the rounding of float32."""
    found = reduction(case)
    return None if found is None else float32_match(case, found.before, "the reduction of gradients")


def local_rounded(case: Case) -> Match | None:
    """The replicas' own gradients lie on the grid of a narrower type, before anything is reduced."""
    seen = [seen.name for seen in case.finding.tensors]
    names = list(dict.fromkeys(name for name in seen if name.startswith("local_gradient/")))
    names = names or [f"local_{name}" for name in seen if name.startswith("gradient/")]
    each = [np.asarray(s[n]) for n in names for s in case.made.replicas if n in s and np.any(s[n])]
    name = low_type_of(each)
    if name is None or case.spec.master_dtype == name:
        return None
    return Match(
        {"type": name}, case.finding.deviation, 0.0, f"each replica's own gradients lie on the grid of {name}"
    )
