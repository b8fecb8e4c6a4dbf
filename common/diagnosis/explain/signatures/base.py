"""What all signatures share: what one says, known factors, and types that tensors are rounded to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import NamedTuple

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array

Tensors = Mapping[str, Array]


@dataclass(frozen=True)
class Match:
    """That a signature fits what a run made.

    facts: what the cause's text and fix are filled in with. before: how far what the run made is from what
    was due, relative to the largest element; after: from what it makes under this cause. tried: what was
    computed, for people. corrected: what would have been due, by name, of each of the candidate's replicas: made
    from its own tensors by undoing the cause, never from the reference's. cause: the key of the only cause that
    is meant, where the signature is that of several. value: a free number that was fitted to what was made; None
    where it is one that someone would write. either: whether the other run may as well be the wrong one.
    """

    facts: Mapping[str, str]
    before: float
    after: float
    tried: str
    corrected: Sequence[Tensors] = ()
    cause: str = ""
    value: float | None = None
    either: bool = False

    def claims(self, facts: Mapping[str, str], cause: str = "", value: float | None = None) -> bool:
        """Whether these facts, found at another step, are the same claim, but for what goes by the step."""
        both = self.value is not None and value is not None
        if both and abs(self.value - value) > limits.FITS_READ_OFF * abs(self.value):  # type: ignore[operator,arg-type]
            return False
        return cause == self.cause and _claim(facts) == _claim(self.facts)


# Facts that say what is wrong, whatever the step; the others say what was seen of it there.
_LASTING = ("field", "value", "words", "what", "type", "factor", "order", "times", "layer", "kind")
_BY_STEP = re.compile(r"(?<=, )[\d.e+]+|(?<=epoch )\d+|^[-\d.e+]+$")


def _claim(facts: Mapping[str, str]) -> dict[str, str]:
    """Those of the facts, without the counts of a step, and numbers that were fitted."""
    kept = {name: facts[name] for name in _LASTING if name in facts}
    return {name: v if name == "value" else _BY_STEP.sub("", v) for name, v in kept.items()}


def signature_of(judge: Callable[..., Iterator[Match]]) -> Callable[..., Callable[[Case], Iterator[Match]]]:
    """Make a decorator of signatures, of a judge of what may have been done instead of what is due.

    The decorated function yields what may be; `judge` is given the case and this function, and yields what fits. Of a
    case with a claim it tries that alone, and yields it whether it fits or not.
    """

    def decorated(others: Callable[..., Iterable[object]]) -> Callable[[Case], Iterator[Match]]:
        @wraps(others)
        def signature(case: Case) -> Iterator[Match]:
            return judge(case, others)

        return signature

    return decorated


def first(matches: Iterable[Match | None]) -> Match | None:
    """The first match there is."""
    return next((match for match in matches if match is not None), None)


def is_claimed(case: Case, facts: Mapping[str, str], cause: str = "") -> bool:
    """Whether something is worth a try: where a case has a claim, that alone."""
    return case.claim is None or case.claim.claims(facts, cause)


def below(state: Tensors, head: str) -> dict[str, Array]:
    """The tensors whose names begin with `head/`, by the rest of their names, in float64 and their shapes."""
    named = state.items()
    return {n.removeprefix(head): np.asarray(v, np.float64) for n, v in named if n.startswith(head)}


def numbers(values: Iterable[float]) -> str:
    """Some numbers in words."""
    return ", ".join(f"{value:.6g}" for value in values)


def farthest(due: Tensors, made: Tensors) -> float:
    """The largest deviation of tensors of the same names, of any shapes."""
    return max((tensor_deviation(due[name], made[name]) for name in due), default=0.0)


def ratio_of(due: Iterable[Array], made: Iterable[Array]) -> float | None:
    """The number c of made = c due, arrays of any shapes, by least squares; None where nothing was due."""
    above = below = 0.0
    for x, y in zip(due, made, strict=True):
        if x.shape != y.shape:
            return None
        # Each tensor by its own size: a small one tells as much of c as a large one.
        size = float(np.abs(x).max(initial=0.0))
        if size and np.isfinite(y).all():
            above += float(np.sum(x / size * (y / size)))
            below += float(np.sum((x / size) ** 2))
    return above / below if below else None


class Factor(NamedTuple):
    """A factor that is too much. cause: its key. free: the factor where nothing of the run is as large, else None."""

    cause: str
    words: str
    free: float | None = None


def named_ratio(case: Case, ratio: float) -> Factor:
    """Name a factor after what in the run is as large."""
    replicas, pieces, whole = case.replicas, case.micro_batches, case.spec.global_batch_size
    count = case.count if "total/count" in case.given else 0.0
    scale = float(case.given.get("scalar/loss_scale", 1.0))
    known: list[tuple[str, float, str]] = [
        ("world_size", replicas, f"the number of replicas, {replicas}"),
        ("accumulation", pieces, f"the number of micro-batches, {pieces}"),
        ("loss_scale", scale, f"the loss scale, {scale:g}"),
        ("constant", replicas * pieces, f"replicas times micro-batches, {replicas * pieces}"),
        ("constant", replicas**2, f"the square of the number of replicas, {replicas**2}"),
        ("constant", count, f"the count of the global batch, {count:g}"),
        ("constant", whole, f"the global batch, {whole}"),
        ("constant", count / replicas, f"the count of a replica, {count / replicas:g}"),
        ("constant", count / (count - 1) if count > 1 else 0.0, "n / (n - 1)"),
    ]
    for name, value, words in known:
        if value in (0.0, 1.0):
            continue
        for power, verb, said in ((1, "scaled", words), (-1, "divided", f"1 / ({words})")):
            if abs(ratio - value**power) <= limits.FITS_FACTOR * value**power:
                if name == "loss_scale":
                    return Factor("loss_scale_not_removed", said)
                return Factor(f"{verb if name != 'constant' else 'scaled'}_by_{name}", said)
    return Factor("scaled_by_constant", f"{ratio:.9g}", ratio)


# Types that tensors are rounded to, the coarsest first: bits of the significand, the hidden one included.
LOW_TYPES = {"bfloat16": 8, "float16": 11, "float32": 24}


def rounded(values: Array, bits: int) -> Array:
    """Float64 values of any shape to the nearest number of so many significant bits, ties to even; any exponent."""
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    result: Array = np.ldexp(np.rint(fraction * 2.0**bits), exponent - bits)
    return result


def lies_on(values: Array, bits: int) -> bool:
    """Whether all values, of any shape, have at most so many significant bits; False where nearly all are zero."""
    values = np.asarray(values, np.float64)
    return bool(np.count_nonzero(values) > values.size // 2 and (rounded(values, bits) == values).all())


def low_type_of(values: Iterable[Array], factors: Sequence[float] = (1.0,)) -> str | None:
    """The narrowest type that all values, of any shapes, times one of the factors, lie in; None: none below float64.

    A factor that is no power of two rounds, so products are let be off by two units of float64.
    """
    arrays = [np.asarray(value, np.float64).ravel() for value in values]
    whole = np.concatenate(arrays) if arrays else np.empty(0)
    whole = whole[whole != 0]
    if len(whole) < 2 or not np.isfinite(whole).all():
        return None
    for name, bits in LOW_TYPES.items():
        for factor in factors:
            scaled = whole * factor
            off = np.abs(rounded(scaled, bits) - scaled)
            if (off <= 4 * np.finfo(np.float64).eps * np.abs(scaled)).all():
                return name
    return None


def float32_match(case: Case, far: float, what: str = "") -> Match | None:
    """A match by the size of a deviation alone: that of a float32 number in a float64 path."""
    if not limits.FITS < far < limits.FLOAT32_LARGEST:
        return None
    tried = f"the deviation, {far:.0e}, is that of a float32 number in a float64 path"
    return Match({"what": what}, far, far, tried)
