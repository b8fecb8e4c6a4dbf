"""Signatures of gradients that went through a narrower type before, in or after the reduction."""

from __future__ import annotations

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case
from parity.common.diagnosis.explain.signatures.base import (
    LOW_TYPES,
    Match,
    float32_match,
    low_type_of,
    rounded,
)
from parity.common.diagnosis.explain.signatures.reduction import Reduction, match, reduction
from parity.common.record.trace import Array


def in_low_precision(case: Case) -> Match | None:
    """The sum of gradients lies on the grid of a narrower type, and nowhere far from the due one."""
    found = reduction(case)
    if found is None:
        return None
    count, replicas = case.count, float(case.replicas)
    most = {
        "bfloat16": limits.CAST_TO_BFLOAT16,
        "float16": limits.CAST_TO_FLOAT16,
        "float32": limits.CAST_TO_FLOAT32,
    }
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
            if all(_mostly(expected, own) for own in made):
                tried = f"the gradients are the due ones, each rounded to {name} once"
                return match(case, 0.0, tried, type=name)
    return None


def _mostly(expected: Array, made: Array) -> bool:
    """Whether nearly all numbers are as expected; what lies between two grid points may be rounded either way."""
    near = np.abs(expected - made) <= limits.FITS_ROUNDED * np.abs(expected)
    return bool(near.mean() > 0.98)


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
