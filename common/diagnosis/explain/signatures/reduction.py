"""Signatures of what goes wrong between a replica's own gradient and the global one.

All are read off weights: the made gradient as a weighted sum of the replicas' own shares of the due one,
fitted over all tensors at once. Due is a weight of 1 for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain import step_reference
from parity.common.diagnosis.explain.signatures import layers
from parity.common.diagnosis.explain.signatures.base import (
    Case,
    Match,
    Tensors,
    farthest,
    named_ratio,
    once,
    ratio_of,
)
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array, Trace
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

    def less_added(self, tensors: dict[str, Array]) -> list[Array]:
        return [tensors[name] - self.added[name] for name in self.due]

    def farthest(self, by_replica: Sequence[dict[str, Array]]) -> float:
        """The largest deviation of what is made from some other gradients, one dictionary a replica."""
        return max(farthest(of, made) for of, made in zip(by_replica, self.made, strict=True))


@once
def reduction(case: Case) -> Reduction | None:
    """What the finding is about; None where all gradients are as due."""
    all_due = {n: v for n, v in step_reference.due_gradients(case).items() if n not in case.zero_gradients}
    all_made = [
        {name: np.asarray(tensors[f"gradient/{name}"], np.float64) for name in all_due}
        for tensors in case.made.replicas
    ]
    wrong = {
        name: max(tensor_deviation(due, made[name]) for made in all_made)
        for name, due in all_due.items()
        if max(tensor_deviation(due, made[name]) for made in all_made) > case.allowed
    }
    if not wrong:
        return None
    added = step_reference.penalties(case)
    every = len(wrong) == sum(bool(np.any(due)) for due in all_due.values())
    local: list[dict[str, Array]] | None = None
    if step_reference.has_local_gradients(case):
        local = [{name: own[name] for name in wrong} for own in step_reference.local_gradients(case)]
    return Reduction(
        {name: all_due[name] for name in wrong},
        [{name: made[name] for name in wrong} for made in all_made],
        {name: added[name] for name in wrong},
        local,
        every,
        max(wrong.values()),
    )


@once
def shared(case: Case) -> Reduction | None:
    """The same with the replicas' shares: where they have none to show, as their layers by themselves give them.

    Then without the parameters of layers that look at the whole batch: no replica's share is its own there.
    """
    found = reduction(case)
    if found is None or found.shares is not None or case.replicas == 1:
        return found
    count, nodes = float(case.given.replicas[0]["total/count"]), {n.path: n for n in walk(case.evidence.tree)}
    shares: list[dict[str, Array]] = [{} for _ in range(case.replicas)]
    for path in dict.fromkeys(name.rpartition("/")[0] for name in found.due):
        layer = layers.layer_at(case, path) if path in nodes else None
        if layer is None or layer.dy is None or layer.spec.kind == "batch_norm" or case.empty:
            continue
        variant = layers.plain(case, layer)
        parts = layers.results(case, [layers.Try("", (part,)) for part in layers.divided(case, variant)])
        for own, part in zip(shares, parts, strict=True):
            given = {} if part is None else part
            own |= {
                n.removeprefix("gradient/"): v / count for n, v in given.items() if n.startswith("gradient/")
            }
    names = [name for name in found.due if all(name in own for own in shares)]
    if not names:
        return found
    return Reduction(
        {name: found.due[name] for name in names},
        [{name: made[name] for name in names} for made in found.made],
        {name: found.added[name] for name in names},
        [{name: own[name] for name in names} for own in shares],
        found.every,
        found.before,
    )


@once
def weights_of(case: Case) -> tuple[Array, float] | None:
    """[made on replica, share of replica], and what they leave unexplained; None without shares."""
    found = shared(case)
    if found is None or found.shares is None:
        return None
    sizes = [float(np.abs(due).max()) or 1.0 for due in found.due.values()]

    def flat(tensors: Sequence[Array]) -> Array:
        return np.concatenate([t.ravel() / size for t, size in zip(tensors, sizes, strict=True)])

    columns = np.stack([flat([own[n] for n in found.due]) for own in found.shares], axis=1)
    rows, explained = [], []
    for made in found.made:
        if not all(np.isfinite(value).all() for value in made.values()):
            return None
        weights = np.linalg.lstsq(columns, flat(found.less_added(made)), rcond=None)[0]
        rows.append(weights)
        explained.append(_weighted(found, weights))
    return np.stack(rows), found.farthest(explained)


def _weighted(found: Reduction, weights: Array) -> dict[str, Array]:
    assert found.shares is not None
    return {
        name: found.added[name] + sum(w * own[name] for w, own in zip(weights, found.shares, strict=True))
        for name in found.due
    }


def corrected(case: Case) -> list[Tensors]:
    """The due gradients, for each of the candidate's replicas; none where it has no own ones to show."""
    if not step_reference.has_local_gradients(case):
        return []
    due: Tensors = {f"gradient/{name}": value for name, value in step_reference.due_gradients(case).items()}
    return [due for _ in range(case.replicas)] if case.suspect == "candidate" else []


def match(case: Case, after: float, tried: str, **facts: str) -> Match:
    found = reduction(case)
    assert found is not None
    return Match(facts, found.before, after, tried, corrected(case))


def _said(weights: Iterable[float]) -> str:
    return ", ".join(f"{weight:.6g}" for weight in weights)


def never_summed(case: Case) -> Match | None:
    """Each replica has a multiple of its own share, and nothing of the others'."""
    return _own_only(case, every=True)


def some_never_summed(case: Case) -> Match | None:
    """The same of some parameters."""
    return _own_only(case, every=False)


def _own_only(case: Case, every: bool) -> Match | None:
    found, fitted = shared(case), weights_of(case)
    if found is None or fitted is None or case.replicas == 1 or found.every != every:
        return None
    weights, left = fitted
    # A replica without samples has no share, so its own weight says nothing.
    there = [r for r, shares in enumerate(found.shares or []) if _any(shares)]
    own = [weights[r, r] for r in there]
    if left > max(case.allowed, limits.FITS) or not own:
        return None
    if max(own) - min(own) > limits.FITS_WEIGHT * max(map(abs, own)) or abs(own[0]) < limits.FITS_WEIGHT:
        return None
    # Of a group of replicas that do sum, all have the group's shares and no others.
    inside = np.abs(weights - own[0]) <= limits.FITS_WEIGHT * abs(own[0])
    outside = np.abs(weights) <= limits.FITS_WEIGHT
    if not (inside | outside)[:, there].all() or inside[:, there].all():
        return None
    alone = inside.sum() == len(there)
    whose = "its own share" if alone else "the shares of its own group of replicas"
    tried = f"each replica's gradient is {_said(own[:1])} times {whose} of the global mean's, to {left:.0e}"
    return match(case, left, tried, names=listed(found.due), replicas=str(case.replicas))


def _any(tensors: dict[str, Array]) -> bool:
    return any(np.any(value) for value in tensors.values())


def listed(names: Sequence[str] | dict[str, Array]) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def replicas_left_out(case: Case) -> Match | None:
    """All replicas have the same gradient, of some replicas' shares only."""
    found, fitted = shared(case), weights_of(case)
    if found is None or fitted is None or case.replicas == 1 or not found.every:
        return None
    weights, left = fitted
    there = np.array([_any(own) for own in found.shares or []])
    kept = there & (np.abs(weights[0]) > limits.FITS_WEIGHT)
    same = np.abs(weights - weights[0]).max() <= limits.FITS_WEIGHT
    if left > max(case.allowed, limits.FITS) or not same or kept.sum() == there.sum() or not kept.any():
        return None
    if np.ptp(weights[0][kept]) > limits.FITS_WEIGHT:
        return None
    out = ", ".join(str(r) for r in np.flatnonzero(there & ~kept))
    tried = f"weights of the replicas' shares: {_said(weights[0])}, where 1 is due for each; left {left:.0e}"
    return match(case, left, tried, names=listed(found.due), replicas=f"all but {out}")


def weighted_by_share(case: Case) -> Match | None:
    """Each replica's share is divided by its own count, not by the global one."""
    found, fitted = shared(case), weights_of(case)
    if found is None or fitted is None or case.replicas == 1:
        return None
    weights, left = fitted
    counts = np.array([float(tensors["count"]) for tensors in case.made.replicas])
    whole = counts > 0
    due = counts.sum() / (case.replicas * np.where(whole, counts, 1.0))
    constant = weights[:, whole] / due[whole]
    if (
        left > max(case.allowed, limits.FITS)
        or np.ptp(constant) > limits.FITS_WEIGHT * np.abs(constant).max()
    ):
        return None
    if np.ptp(counts[whole]) == 0 and whole.all():
        return None  # with equal counts it is no other than the right mean
    tried = f"weights of the replicas' shares: {_said(weights[0])}, as 1 / their counts {_said(counts)}"
    return match(case, left, tried, counts=_said(counts))


@once
def scaled(case: Case) -> tuple[str, str, Match] | None:
    """(cause, words, match) where all gradients on all replicas are the due ones times one number."""
    found = reduction(case)
    if found is None:
        return None
    due = [found.due[name] for name in found.due]
    with_added = [ratio_of(due, list(made.values())) for made in found.made]
    without = [ratio_of(found.less_added(found.due), found.less_added(made)) for made in found.made]
    for ratios, keeps in ((without, True), (with_added, False)):
        if None in ratios or not found.every:
            continue
        ratio = float(ratios[0] or 0.0)
        added = found.added if keeps else {name: np.zeros(()) for name in found.due}
        expected = {name: added[name] + ratio * (found.due[name] - added[name]) for name in found.due}
        left = found.farthest([expected] * len(found.made))
        if left <= case.allowed:
            key, words = named_ratio(case, ratio)
            tried = f"all gradients are {ratio:.9g} times what is due, to {left:.0e}"
            return key, words, match(case, left, tried, factor=words)
    return None


def clipped_first(case: Case) -> Match | None:
    """Each replica's share is scaled to one norm before they are added, or not at all."""
    found, fitted = reduction(case), weights_of(case)
    if found is None or fitted is None or found.shares is None or case.replicas == 1:
        return None
    weights, left = fitted
    if np.ptp(weights[0]) <= limits.FITS_READ_OFF * abs(weights[0]).max():
        return None  # all are scaled alike, as by no norm of their own
    if (
        left > max(case.allowed, limits.FITS)
        or np.abs(weights - weights[0]).max() > limits.FITS_WEIGHT
        or (weights[0] <= 0).any()
    ):
        return None
    count = float(case.given.replicas[0]["total/count"])
    local = step_reference.local_gradients(case)
    norms = [count * float(np.sqrt(sum(np.sum(v**2) for v in own.values()))) for own in local]
    # A number for all replicas that the reduction multiplies by takes no part.
    top = max(weights[0])
    reached = [
        w * norm for w, norm in zip(weights[0], norms, strict=True) if w < top * (1 - limits.FITS_READ_OFF)
    ]
    below = [
        w * norm for w, norm in zip(weights[0], norms, strict=True) if w >= top * (1 - limits.FITS_READ_OFF)
    ]
    if abs(top - 1) > limits.FITS_READ_OFF:
        reached, below = [*reached, *below], []
    limit = reached[0] if reached else 0.0
    if (
        not reached
        or max(reached) - min(reached) > limits.FITS_PLAIN_NORM * limit
        or any(b > limit * 1.0001 for b in below)
    ):
        return None
    if len(reached) == 1 and not _is_plain(limit, case, count):
        return None
    tried = (
        f"the replicas' own gradients, of norms {_said(norms)}, enter with norms no larger than {limit:.6g}"
    )
    return match(case, left, tried, limit=f"{limit:.6g}")


def _is_plain(limit: float, case: Case, count: float) -> bool:
    """Whether one clipped norm alone tells of a limit: the spec's, or a number that a person would write."""
    own = case.spec.optimizer.clip_global_norm
    for unit in (1.0, count, count / case.replicas, case.replicas):
        value = limit / unit
        if abs(value - float(f"{value:.3g}")) < limits.FITS_PLAIN_NORM * value or (
            own and abs(value - own) < limits.FITS_SPEC_NORM * own
        ):
            return True
    return False


def penalty_missing(case: Case) -> Match | None:
    """The gradient is that of the loss without its penalties."""
    found = _penalty(case)
    return found[1] if found is not None and abs(found[0]) < limits.FITS_FACTOR else None


def penalty_scaled(case: Case) -> Match | None:
    """The gradient is that of the loss with another multiple of its penalties."""
    found = _penalty(case)
    return found[1] if found is not None and abs(found[0]) >= limits.FITS_FACTOR else None


def _penalty(case: Case) -> tuple[float, Match] | None:
    found, loss = reduction(case), case.spec.loss
    if found is None or not (loss.l1 or loss.l2):
        return None
    names = [name for name in found.due if np.any(found.added[name])]
    of_loss = {name: found.due[name] - found.added[name] for name in found.due}
    made = [found.made[0][name] - of_loss[name] for name in names]
    ratio = ratio_of([found.added[name] for name in names], made)
    if ratio is None or not names or abs(ratio - 1) < limits.FITS_READ_OFF:
        return None
    expected = {name: of_loss[name] + ratio * found.added[name] for name in found.due}
    left = found.farthest([expected] * len(found.made))
    if left > case.allowed:
        return None
    field = "l2" if loss.l2 else "l1"
    own = getattr(loss, field)
    times = "without" if abs(ratio) < limits.FITS_FACTOR else f"with {ratio:.6g} times"
    tried = f"the gradients are the due ones {times} the penalties on the weights, to {left:.0e}"
    facts = {"times": times, "field": field, "own": f"{own:g}", "value": f"{ratio * own:.6g}"}
    return ratio, match(case, left, tried, **facts)


def gradients_differ(case: Case) -> Match | None:
    """The replicas have different gradients after the reduction."""
    found = reduction(case)
    if found is None or case.replicas == 1:
        return None
    apart = max(farthest(found.made[0], made) for made in found.made)
    if apart <= case.allowed:
        return None
    tried = f"the reduced gradients of the replicas are {apart:.0e} apart"
    return match(case, apart, tried, names=listed(found.due))


def accumulates(case: Case) -> Match | None:
    """The gradient of a step has those of the steps before in it: they were never set to zero.

    Of two steps taken one after the other, the later one's surplus is the whole of the earlier one's.
    """
    found = reduction(case)
    if found is None or not found.every or case.step is None:
        return None
    here = (case.step, case.given.replicas[0], found.due, found.made)
    for step, ref, made in case.traced():
        others = [s for s, _, _ in case.traced()]
        if any(min(step, case.step) < other < max(step, case.step) for other in others):
            continue
        theirs = [{n: np.asarray(s[f"gradient/{n}"], np.float64) for n in found.due} for s in made.replicas]
        due = _due_there(case, ref, made)
        there = (step, ref.replicas[0], due, theirs)
        (first, one, _, kept), (_, other, own, grown) = (there, here) if step < case.step else (here, there)
        counts = float(one["total/count"]), float(other["total/count"])
        expected = [
            {n: own[n] + (state[n] - found.added[n]) * (counts[0] / counts[1]) for n in found.due}
            for state in kept
        ]
        left = max(farthest(e, m) for e, m in zip(expected, grown, strict=True))
        if left <= max(limits.FITS_READ_OFF, case.allowed):
            tried = f"the gradient of step {max(step, case.step)} less the due one is all that step {first} left, to {left:.0e}"
            return match(case, left, tried, step=str(first))
    return None


def _due_there(case: Case, ref: Trace, made: Trace) -> dict[str, Array]:
    """The due gradients of another step: of its own local ones, where there are any."""
    found = reduction(case)
    assert found is not None
    given, count = ref.replicas[0], float(ref.replicas[0]["total/count"])
    if found.shares is None:
        return {n: np.asarray(given[f"gradient/{n}"], np.float64) for n in found.due}
    summed = {n: np.asarray(made.summed(f"local_gradient/{n}"), np.float64) / count for n in found.due}
    weights = step_reference.penalties_of(case.spec.loss, given)
    return {n: summed[n] + weights[n] for n in found.due}


def local_scaled(case: Case) -> tuple[str, str, Match] | None:
    """(cause, words, match): the replicas' own gradients add up to a multiple of what is due."""
    seen = case.evidence.finding.tensors
    names = [s.name.partition("/")[2] for s in seen if s.name.startswith("local_gradient/")]
    given: Tensors = case.given.replicas[0]
    if not names or case.suspect == "reference":
        return None
    count, added = float(given["total/count"]), step_reference.penalties(case)
    due = [(np.asarray(given[f"gradient/{n}"]) - added[n]) * count for n in names]
    made = [np.asarray(case.made.summed(f"local_gradient/{n}"), np.float64) for n in names]
    ratio = ratio_of(due, made)
    if ratio is None or not ratio:
        return None
    left = max(tensor_deviation(ratio * d, m) for d, m in zip(due, made, strict=True))
    if left > max(case.allowed, limits.FITS):
        return None
    key, words = named_ratio(case, ratio)
    tried = f"the replicas' own gradients add up to {ratio:.9g} times what is due"
    return key, words, Match({"factor": words}, abs(ratio - 1), left, tried)
