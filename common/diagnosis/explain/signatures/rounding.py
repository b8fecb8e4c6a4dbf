"""Signatures of gradients that went through a narrower type before, in or after the reduction."""

from __future__ import annotations

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import LOW_TYPES, Case, Match, low_type_of, rounded
from parity.common.diagnosis.explain.signatures.reduction import Reduction, listed, match, reduction
from parity.common.record.trace import Array


def in_low_precision(case: Case) -> Match | None:
    """The sum of gradients lies on the grid of a narrower type, and nowhere far from the due one."""
    found = reduction(case)
    if found is None:
        return None
    count = float(case.given.replicas[0]["total/count"])
    factors = [1.0, count, count / case.replicas, 1.0 / case.replicas, float(case.replicas)]
    most = {
        "bfloat16": limits.CAST_TO_BFLOAT16,
        "float16": limits.CAST_TO_FLOAT16,
        "float32": limits.CAST_TO_FLOAT32,
    }
    made = [value for state in found.made for value in found.less_added(state)]
    name = low_type_of(made, factors)
    exact = True
    if name is None and found.shares is not None:
        name, exact = _rounded_parts(found, count, case), False
    if name is None or found.before > most[name] * case.replicas:
        return None
    what = "lie on its grid" if exact else "are the sum of the replicas' own, rounded to it"
    tried = f"the gradients before the division {what}; rounding takes them {found.before:.0e} off"
    return match(case, 0.0, tried, type=name)


def rounded_after(case: Case) -> Match | None:
    """The gradient is the due one, rounded once: nothing was added in the narrower type."""
    found = reduction(case)
    if found is None:
        return None
    count = float(case.given.replicas[0]["total/count"])
    due = np.concatenate([value.ravel() for value in found.less_added(found.due)])
    for name, bits in LOW_TYPES.items():
        for factor in (1.0, count, count / case.replicas, float(case.replicas)):
            expected = rounded(due * factor, bits) / factor
            if all(
                _mostly(expected, np.concatenate([v.ravel() for v in found.less_added(made)]))
                for made in found.made
            ):
                tried = f"the gradients are the due ones, each rounded to {name} once"
                return match(case, 0.0, tried, type=name)
    return None


def _mostly(expected: Array, made: Array) -> bool:
    """Whether nearly all numbers are as expected; what lies between two grid points may be rounded either way."""
    near = np.abs(expected - made) <= limits.FITS_ROUNDED * np.abs(expected)
    return bool(near.mean() > 0.98)


def _rounded_parts(found: Reduction, count: float, case: Case) -> str | None:
    """The type that each replica's gradient is rounded to before they are added; None where to none."""
    assert found.shares is not None
    for name, bits in LOW_TYPES.items():
        for factor in (count, 1.0, count / case.replicas, 1.0 / case.replicas):
            expected = {
                n: found.added[n] + sum(rounded(own[n] * factor, bits) for own in found.shares) / factor
                for n in found.due
            }
            if found.farthest([expected] * len(found.made)) <= case.allowed:
                return name
    return None


def leaks_float32(case: Case) -> Match | None:
    """All gradients deviate by about the rounding of float32."""
    found = reduction(case)
    if found is None or not limits.FITS < found.before < limits.FLOAT32_LARGEST:
        return None
    tried = f"the deviation, {found.before:.0e}, is that of a float32 number in a float64 path"
    return match(case, found.before, tried, what="the reduction of gradients")


def local_rounded(case: Case) -> Match | None:
    """The replicas' own gradients lie on the grid of a narrower type, before anything is reduced."""
    seen = case.evidence.finding.tensors
    names = list(dict.fromkeys(s.name for s in seen if s.name.startswith("local_gradient/")))
    if not names:
        names = [f"local_{s.name}" for s in seen if s.name.startswith("gradient/")]
    each = [np.asarray(s[n]) for n in names for s in case.made.replicas if n in s and np.any(s[n])]
    name = low_type_of(each) if each else None
    if name is None or case.spec.master_dtype == name:
        return None
    far = case.evidence.finding.deviation
    tried = f"each replica's own gradients lie on the grid of {name}"
    facts = {"type": name, "what": listed([n.removeprefix("local_gradient/") for n in names])}
    return Match(facts, far, 0.0, tried)
