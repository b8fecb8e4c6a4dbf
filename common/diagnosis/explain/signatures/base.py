"""What all signatures share: the run under suspicion, and how well a formula says what it made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.counterfactuals import Side
from parity.common.diagnosis.explain.evidence import Evidence
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array, Trace, tensor_of
from parity.common.spec import Placement, TrainSpec
from parity.common.state.zero_gradient import zero_gradient_directions

Tensors = Mapping[str, Array]
R = TypeVar("R")


@dataclass(frozen=True)
class Match:
    """That a signature fits what a run made.

    facts: what the cause's text and fix are filled in with. before: how far what the run made is from what
    was due, relative to the largest element; after: from what it makes under this cause.
    corrected: what would have been due, by name, of each of the candidate's replicas: made from its own
    tensors by undoing the cause, never from the reference's. tried: what was computed, for people.
    """

    facts: Mapping[str, str]
    before: float
    after: float
    tried: str
    corrected: Sequence[Tensors] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """One finding, and which of the two runs is suspected."""

    evidence: Evidence
    suspect: Side
    # What several signatures need, computed once.
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def spec(self) -> TrainSpec:
        return self.evidence.spec

    @property
    def step(self) -> int | None:
        return self.evidence.step

    @property
    def stage(self) -> str:
        return self.evidence.finding.stage

    @property
    def name(self) -> str:
        return self.evidence.finding.name

    @property
    def allowed(self) -> float:
        return self.evidence.allowed

    @property
    def placement(self) -> Placement:
        """The suspect's."""
        return self.evidence.candidate if self.suspect == "candidate" else self.evidence.reference

    @property
    def replicas(self) -> int:
        return self.placement.replicas

    @property
    def micro_batches(self) -> int:
        """That the suspect cuts a local batch of this step into."""
        if self.step is None:
            return 1
        return self.placement.micro_batches(self.evidence.plan(self.suspect).epoch(self.step))

    @property
    def given(self) -> Trace:
        """What went into the step's parts: the reference's tensors, for either suspect."""
        return self.evidence.ref

    @property
    def made(self) -> Trace:
        """What the suspect made of them."""
        return self.evidence.injected if self.suspect == "candidate" else self.evidence.ref

    @cached_property
    def ids(self) -> list[Array]:
        """The sample ids that belong to the rows of each of the suspect's replicas."""
        if self.suspect == "reference" or not any("ids" in given for given in self.evidence.injections):
            return self.made.each("ids")
        return [np.asarray(given["ids"]) for given in self.evidence.injections]

    @property
    def empty(self) -> bool:
        """Whether some replica has no samples."""
        return not all(len(ids) for ids in self.ids)

    @cached_property
    def order(self) -> Array:
        """Of the suspect's rows, one replica after another, those in ascending order of ids."""
        return np.argsort(np.concatenate(self.ids), kind="stable")

    @cached_property
    def bounds(self) -> list[int]:
        """Where each replica's rows begin among those of all replicas, but the first's."""
        return list(np.cumsum([len(ids) for ids in self.ids])[:-1])

    def rows(self, name: str) -> Array:
        """What the suspect made of a tensor of samples, of the global batch, by ascending ids."""
        rows: Array = np.concatenate(self.made.each(name))[self.order]
        return rows

    def shares(self, rows: Array) -> list[Array]:
        """Rows by ascending ids as the suspect's replicas have them."""
        back = np.empty_like(rows)
        back[self.order] = rows
        return list(np.split(back, self.bounds))

    @cached_property
    def token_mask(self) -> Array | None:
        """(samples, tokens): False where the input is padding."""
        pad = self.spec.model.pad_id
        return None if pad is None else self.given.rows("inputs") != pad

    @cached_property
    def zero_gradients(self) -> frozenset[str]:
        """Tensors whose gradient is rounding noise, without `parameters/`."""
        return frozenset(zero_gradient_directions(self.spec))

    def is_zero_gradient(self, name: str) -> bool:
        """Whether a tensor of a step, by its whole name, belongs to one of these."""
        return tensor_of(name) in self.zero_gradients

    def traced(self) -> Iterable[tuple[int, Trace, Trace]]:
        """(step, given, made) of the other traced steps."""
        for step, ref, injected in (*self.evidence.earlier, *self.evidence.later):
            yield step, ref, injected if self.suspect == "candidate" else ref


def once(compute: Callable[..., R]) -> Callable[..., R]:
    """Compute what several signatures need of a case the first time only; further arguments tell calls apart."""

    @wraps(compute)
    def computed_once(case: Case, *arguments: Any) -> R:
        key = (compute.__module__, compute.__name__, *arguments)
        if key not in case.memory:
            case.memory[key] = compute(case, *arguments)
        return cast(R, case.memory[key])

    return computed_once


def farthest(due: Tensors, made: Tensors) -> float:
    """The largest deviation of tensors of the same names."""
    return max((tensor_deviation(due[name], made[name]) for name in due), default=0.0)


def ratio_of(due: Iterable[Array], made: Iterable[Array]) -> float | None:
    """The c of made = c due in the sense of least squares; None where nothing was due."""
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


def named_ratio(case: Case, ratio: float, slack: float = limits.FITS_FACTOR) -> tuple[str, str]:
    """(key of the cause, words) for a factor that is too much.

    slack: by how much the factor may be off, relatively: some go through float32.
    """
    replicas, pieces = case.replicas, case.micro_batches
    count = float(case.given.replicas[0]["total/count"]) if "total/count" in case.given.names else 0.0
    scale = float(case.given.replicas[0].get("scalar/loss_scale", 1.0))
    known: list[tuple[str, float, str]] = [
        ("world_size", replicas, f"the number of replicas, {replicas}"),
        ("accumulation", pieces, f"the number of micro-batches, {pieces}"),
        ("loss_scale", scale, f"the loss scale, {scale:g}"),
        ("constant", replicas * pieces, f"replicas times micro-batches, {replicas * pieces}"),
        ("constant", replicas**2, f"the square of the number of replicas, {replicas**2}"),
        ("constant", count, f"the count of the global batch, {count:g}"),
        ("constant", case.spec.global_batch_size, f"the global batch, {case.spec.global_batch_size}"),
        ("constant", count / replicas, f"the count of a replica, {count / replicas:g}"),
        ("constant", count / (count - 1) if count > 1 else 0.0, "n / (n - 1)"),
    ]
    for name, value, words in known:
        if value in (0.0, 1.0):
            continue
        for power, verb, said in ((1, "scaled", words), (-1, "divided", f"1 / ({words})")):
            if abs(ratio - value**power) <= slack * value**power:
                if name == "loss_scale":
                    return "loss_scale_not_removed", said
                return f"{verb if name != 'constant' else 'scaled'}_by_{name}", said
    return "scaled_by_constant", f"{ratio:.9g}"


# Types that tensors are rounded to, the coarsest first: bits of the significand, the hidden one included.
LOW_TYPES = {"bfloat16": 8, "float16": 11, "float32": 24}


def rounded(values: Array, bits: int) -> Array:
    """Values to the nearest number of so many significant bits, ties to even; any exponent."""
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    result: Array = np.ldexp(np.rint(fraction * 2.0**bits), exponent - bits)
    return result


def lies_on(values: Array, bits: int) -> bool:
    """Whether all values have at most so many significant bits; False where nearly all are zero."""
    values = np.asarray(values, np.float64)
    return bool(np.count_nonzero(values) > values.size // 2 and (rounded(values, bits) == values).all())


def low_type_of(values: Iterable[Array], factors: Sequence[float] = (1.0,)) -> str | None:
    """The narrowest type that all values, times one of the factors, lie in; None for none below float64.

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
            if (
                np.abs(rounded(scaled, bits) - scaled) <= 4 * np.finfo(np.float64).eps * np.abs(scaled)
            ).all():
                return name
    return None
