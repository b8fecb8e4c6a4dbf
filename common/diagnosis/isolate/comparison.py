"""A step of the candidate compared with the reference's, tensor by tensor in the order in which a step makes them.

Traces as trained are compared as they are. An injected one is compared with what was injected: each tensor is then
what the candidate itself makes of the reference's tensors. Two kinds of tensors have another standard there:

    total       the candidate's own loss sums and counts, added up here
    gradient    its own local gradients, added up, divided by the injected count and given the penalties, where
                its replicas have local gradients; a wrong one of these is then no wrong reduction

In float64 an injected tensor may deviate by 1e-12 of its largest element. What comes out nearly zero of larger
terms may deviate by a few units in the last place of these: a gradient by the absolute values that it is the
sum of, an output or what flows back through a layer by what goes in, a loss and what it sends back by the model's
outputs, an update by the parameter it changes, a moving mean by what it is a mean of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import TensorComparison
from parity.common.parity.deviation import tensor_deviation
from parity.common.record import taps
from parity.common.record.trace import Array, Trace, is_of_samples, stage_of, tensor_of
from parity.common.reference.losses import penalty_gradient
from parity.common.spec import TrainSpec, walk
from parity.common.state.canonical import State, parameter_specs
from parity.common.state.zero_gradient import zero_gradient_directions

LOW_ULP = {"bfloat16": limits.ULP_OF_BFLOAT16, "float16": limits.ULP_OF_FLOAT16}
OF_REFERENCE = "of the reference"
_SEVERAL_PRODUCTS = ("attention", "lstm", "gru", "rnn")


@dataclass(frozen=True)
class Tolerances:
    """The largest deviations that are rounding: of every tensor, and more by stage and by name.

    ulp: a unit in the last place of 1, of what the sums are made in.
    """

    every: float
    by_stage: Mapping[str, float] = field(default_factory=dict)
    by_name: Mapping[str, float] = field(default_factory=dict)
    ulp: float = float(np.finfo(np.float64).eps)

    def of(self, name: str) -> float:
        return max(self.every, self.by_stage.get(stage_of(name), 0.0), self.by_name.get(name, 0.0))

    def of_terms(self, name: str, terms: float, largest: float) -> float:
        """Of a tensor with this largest element, that is a sum of terms this large."""
        by_terms = limits.ULPS_OF_TERMS * self.ulp * terms / largest if largest else 0.0
        return max(self.of(name), by_terms)

    @property
    def as_trained(self) -> Tolerances:
        """Of a step as trained: it begins with what all steps before have rounded."""
        every = limits.AS_TRAINED_FLOAT64 if self is INJECTED_TOLERANCES else limits.AS_TRAINED_ROUGH
        return replace(self, every=every)


INJECTED_TOLERANCES = Tolerances(limits.INJECTED_FLOAT64)


def rough_tolerances(spec: TrainSpec, floors: Mapping[str, float]) -> Tolerances:
    """Of a precision below float64. floors: what rounding was seen to do, by name."""
    if spec.master_dtype == "float64":
        return INJECTED_TOLERANCES
    ulp = float(np.finfo(np.float32).eps)
    by_stage: dict[str, float] = {}
    by_name = dict(floors)
    if spec.low_dtype is not None:
        # A product that lies between two low numbers goes to one here and to the other there.
        flip = limits.FLIPS * LOW_ULP[spec.low_dtype]
        by_stage = dict.fromkeys(("forward", "backward"), flip)
        # A weight's gradient is not rounded; but products within a layer may flip what it is made of.
        names = [
            f"{head}/{node.path}/{tensor.name}"
            for node in walk(spec.model.tree())
            if any(word in node.spec.kind for word in _SEVERAL_PRODUCTS)
            for tensor in node.parameters
            for head in ("local_gradient", "gradient")
        ]
        by_name |= {name: max(flip, by_name.get(name, 0.0)) for name in names}
    return Tolerances(limits.ULPS_OF_FLOAT32 * ulp, by_stage, by_name, ulp)


_HEADS: tuple[str, ...] = ("ids", "inputs", "targets", "before", "forward", "loss_sum", "count", "backward")
_HEADS += ("local_gradient", "total", "gradient", "clipped", "scalar", "updated", "after")
_AFTER = ("slots", "parameters", "buffers", "step")


def order_of(spec: TrainSpec) -> Callable[[str], tuple[int, int, int, str]]:
    """What sorts the names of a model's tensors into the order in which a step makes them."""
    places: dict[str, int] = {}
    for place, layer in enumerate(taps.layers_of(spec.model.tree())):
        # The loss and what it does to the last layer's output come before all else that flows back.
        places |= {f"forward/{layer.path}": place, f"backward/{layer.path}": -place}
    for place, name in enumerate(parameter_specs(spec)):
        path = name.partition("/")[2]
        places[f"local_gradient/{path}"] = -place
        places |= {f"{head}/{path}": place for head in ("gradient", "clipped")}

    def key(name: str) -> tuple[int, int, int, str]:
        head, _, rest = name.partition("/")
        kind = rest.partition("/")[0]
        return (
            _HEADS.index(head) if head in _HEADS else len(_HEADS),
            _AFTER.index(kind) if head == "after" and kind in _AFTER else 0,
            places.get(name, 0),
            name,
        )

    return key


class StepComparer:
    """One step, or for None the evaluation, of both runs.

    ref: the reference's trace. layers: of each layer's path the name of its input.
    """

    def __init__(self, spec: TrainSpec, ref: Trace, layers: Mapping[str, str]) -> None:
        self.spec, self.ref, self.layers = spec, ref, layers
        self._order = order_of(spec)
        self._null = set(zero_gradient_directions(spec))

    def as_trained(
        self, trace: Trace, tolerances: Tolerances = INJECTED_TOLERANCES
    ) -> list[TensorComparison]:
        """The candidate's step as trained. tolerances: of an injected one."""
        found, tolerances = [], tolerances.as_trained
        for name in self._names(trace):
            if name not in self.ref.replicas[0]:
                continue  # local gradients, that the reference does not show
            if name == "ids":
                found.append(_ids(self.ref.ids, trace.ids, None))
            elif is_of_samples(name) or stage_of(name) in ("loss", "local_gradient"):
                if is_of_samples(name) and not np.array_equal(self.ref.ids, trace.ids):
                    continue  # of other samples
                deviation = _deviation(self.ref.whole(name), trace.whole(name))
                found.append(TensorComparison(name, None, deviation, tolerances.of(name)))
            else:
                found += self._copies(name, trace, tolerances.of(name))
        return found

    def injected(
        self, injections: Sequence[State], trace: Trace, tolerances: Tolerances = INJECTED_TOLERANCES
    ) -> list[TensorComparison]:
        """The candidate's step given `injections`, one state for each of its replicas."""
        kinds: dict[str, Callable[[str], Iterable[TensorComparison]]] = {
            "ids": lambda name: (
                _ids(given[name], tensors[name], replica)
                for replica, (given, tensors) in enumerate(zip(injections, trace.replicas, strict=True))
            ),
            "inputs": lambda name: self._samples(name, injections, trace, tolerances),
            "forward": lambda name: [self._rows(name, injections, trace, tolerances)],
            "backward": lambda name: [self._rows(name, injections, trace, tolerances)],
            "loss": lambda name: [self._loss(name, trace, tolerances)],
            "local_gradient": lambda name: self._local_gradient(name, trace, tolerances),
            "total": lambda name: self._copies(
                name, trace, tolerances.of(name), trace.summed(name.partition("/")[2])
            ),
            "gradient": lambda name: self._gradient(name, trace, tolerances),
            "update": lambda name: self._update(name, trace, tolerances),
        }
        found: list[TensorComparison] = []
        diverged = ""  # the stage in which the reference's replicas diverge; what follows is no other defect
        for name in self._names(trace):
            kind = kinds.get(stage_of(name))
            with np.errstate(invalid="ignore"):  # where gradients have overflowed
                if kind is not None:
                    found += kind(name)
                elif self.spec.per_replica_statistics and stage_of(name) == "buffers":
                    # All replicas began with replica 0's.
                    due = self.ref.replicas[0][name]
                    found.append(next(self._copies(name, trace, tolerances.of(name), due)))
                else:
                    due = self.ref.replicas[0][name]
                    allowed = tolerances.of_terms(name, self._terms_of_mean(name), _largest(due))
                    found += self._copies(name, trace, allowed, due)
                wrong = list(self._of_reference(name, tolerances, trace))
            if wrong and diverged in ("", stage_of(name)):
                found, diverged = found + wrong, stage_of(name)
        return found

    def _of_reference(self, name: str, tolerances: Tolerances, trace: Trace) -> Iterator[TensorComparison]:
        """What the reference made wrong of its own tensors, which the candidate is right not to make.

        Its replicas may hold different copies, and its totals and gradients may not be the sums of its own.
        """
        stage, first = stage_of(name), self.ref.replicas[0]
        if is_of_samples(name) or stage in ("loss", "local_gradient") or name not in first:
            return
        if self.spec.per_replica_statistics and "/buffers/" in name:
            return
        expected, allowed = first[name], tolerances.of(name)
        if stage == "total":
            expected = self.ref.summed(name.partition("/")[2])
        elif stage == "gradient" and all(f"local_{name}" in tensors for tensors in self.ref.replicas):
            count = float(first["total/count"])
            expected = self.ref.summed(f"local_{name}") / count + self._penalty(name)
            allowed = tolerances.of_terms(
                name, self._terms(name) / count if count else 0.0, _largest(expected)
            )
        for replica, value in enumerate(self.ref.each(name)):
            deviation = _deviation(expected, value)
            if deviation > allowed:
                where = f"replica {replica} {OF_REFERENCE}"
                everywhere = dict.fromkeys(range(len(trace.replicas)), deviation)
                yield TensorComparison(name, None, deviation, allowed, where, everywhere)

    def _names(self, trace: Trace) -> list[str]:
        """What both have, in order; without the zero-gradient directions and what only says how it was computed."""
        own = set(self.ref.names)
        if "gradient" in {name.partition("/")[0] for name in own}:
            own |= {f"local_{name}" for name in own if name.startswith("gradient/")}
        names = [name for name in trace.names if name in own and not name.startswith("input/")]
        if not all(np.all(other.replicas[0].get("updated", True)) for other in (self.ref, trace)):
            # Where gradients have overflowed, the optimizer is given none.
            names = [name for name in names if not name.startswith("clipped/")]
        return sorted((n for n in names if _parameter(n) not in self._null), key=self._order)

    def _copies(
        self, name: str, trace: Trace, allowed: float, expected: Array | None = None
    ) -> Iterator[TensorComparison]:
        """A tensor of which each replica has a copy. expected: None, what the reference has."""
        own, theirs = trace.each(name), self.ref.each(name)
        if expected is not None or not self.spec.per_replica_statistics or len(theirs) != len(own):
            theirs = [theirs[0] if expected is None else expected] * len(own)
        for replica, (due, value) in enumerate(zip(theirs, own, strict=True)):
            yield TensorComparison(name, replica, _deviation(due, value), allowed)

    def _samples(
        self, name: str, injections: Sequence[State], trace: Trace, tolerances: Tolerances
    ) -> Iterator[TensorComparison]:
        """Inputs or targets, by the ids of the candidate's own loader: of the same samples the same."""
        ids = np.concatenate([given["ids"] for given in injections])
        rows = np.concatenate([given[name] for given in injections])
        first = {i: at for at, i in reversed(list(enumerate(ids.tolist())))}
        for replica, tensors in enumerate(trace.replicas):
            known = [(at, first[i]) for at, i in enumerate(tensors["ids"].tolist()) if i in first]
            if not known and len(tensors["ids"]):
                continue  # nothing but other samples
            mine, theirs = np.array(known, np.int64).reshape(-1, 2).T
            a, b = rows[theirs], tensors[name][mine] if len(tensors["ids"]) else tensors[name]
            where = _worst_row(a, b, ids[theirs])
            yield TensorComparison(name, replica, _deviation(a, b), tolerances.of(name), where)

    def _rows(
        self, name: str, injections: Sequence[State], trace: Trace, tolerances: Tolerances
    ) -> TensorComparison:
        """What a layer puts out, or what flows back to it, of all samples."""
        own = trace.each(name)
        if self.spec.per_replica_statistics and not any(n.startswith("before/") for n in self.ref.names):
            # Each replica evaluates with moving statistics of its own; those injected are replica 0's.
            injections, own = injections[:1], own[:1]
        expected = np.concatenate([given[name] for given in injections])
        largest = _largest(expected)
        by_replica = {
            replica: _deviation(given[name], value, largest)
            for replica, (given, value) in enumerate(zip(injections, own, strict=True))
        }
        ids = np.concatenate([given["ids"] for given in injections])
        return TensorComparison(
            name,
            None,
            max(by_replica.values()),
            tolerances.of_terms(name, self._going_in(name), largest),
            _worst_row(expected, np.concatenate(own), ids),
            by_replica,
        )

    def _going_in(self, name: str) -> float:
        """The largest element of what a layer, or its backward pass, is given."""
        head, _, path = name.partition("/")
        if head == "forward":
            sources = [self.layers.get(path, "inputs")]
        else:
            sources = [f"backward/{consumer}" for consumer in consumers(self.layers, path)]
            if not sources:
                return self._into_loss(path)
        tensors = [self.ref.whole(source) for source in sources if source in self.ref.replicas[0]]
        return max((_largest(tensor) for tensor in tensors if tensor.dtype.kind == "f"), default=0.0)

    def _into_loss(self, path: str) -> float:
        """The largest number that a loss subtracts from another: of the outputs, or a probability."""
        name = f"forward/{path}"
        return max(1.0, _largest(self.ref.whole(name))) if name in self.ref.replicas[0] else 0.0

    def _loss(self, name: str, trace: Trace, tolerances: Tolerances) -> TensorComparison:
        expected = self.ref.summed(name)
        outputs = [path for path in self.layers if not consumers(self.layers, path)]
        # Each sample's loss is what is left of such numbers.
        terms = len(self.ref.ids) * max(map(self._into_loss, outputs), default=0.0)
        allowed = tolerances.of_terms(name, terms, _largest(expected))
        return TensorComparison(name, None, _deviation(expected, trace.summed(name)), allowed)

    def _local_gradient(self, name: str, trace: Trace, tolerances: Tolerances) -> Iterator[TensorComparison]:
        """Summed over the replicas, since the reference's replicas had other samples."""
        if any(name not in tensors for tensors in trace.replicas):
            return
        gradient = name.removeprefix("local_")
        if name in self.ref.replicas[0]:
            expected = self.ref.summed(name)
        else:
            count = float(self.ref.replicas[0]["total/count"])
            mean = np.asarray(self.ref.replicas[0][gradient], np.float64)
            expected = (mean - self._penalty(gradient)) * count
        own = trace.summed(name)
        largest = max(_largest(expected), _largest(own))
        allowed = tolerances.of_terms(name, self._terms(name), largest)
        yield TensorComparison(name, None, _deviation(expected, own), allowed)

    def _terms(self, name: str) -> float:
        """The absolute values that a parameter's gradient is a sum of: of what flows back to its layer."""
        path = name.partition("/")[2].rpartition("/")[0]
        while path and f"backward/{path}" not in self.ref.replicas[0]:
            path = path.rpartition("/")[0]
        if not path:
            return 0.0
        flowing = np.abs(self.ref.rows(f"backward/{path}"))
        source = self.layers.get(path, "")
        given = self.ref.rows(source) if source in self.ref.replicas[0] and is_of_samples(source) else None
        factor = _largest(given) if given is not None and given.dtype.kind == "f" else 1.0
        return float(flowing.sum(axis=tuple(range(flowing.ndim - 1))).max(initial=0.0)) * max(1.0, factor)

    def _terms_of_mean(self, name: str) -> float:
        """What a moving mean, which may come out nearly zero, is a mean of: its layer's largest input."""
        path, _, last = name.removeprefix("after/buffers/").rpartition("/")
        source = self.layers.get(path, "")
        if last != "moving_mean" or source not in self.ref.replicas[0]:
            return 0.0
        return _largest(self.ref.whole(source))

    def _penalty(self, name: str) -> Array:
        """The gradient of the loss's penalties on one parameter."""
        weight = self.ref.replicas[0][f"before/parameters/{name.partition('/')[2]}"]
        return penalty_gradient(self.spec.loss, weight)

    def _gradient(self, name: str, trace: Trace, tolerances: Tolerances) -> Iterator[TensorComparison]:
        """The reduction of a gradient."""
        expected, local = self.ref.replicas[0][name], f"local_{name}"
        count = float(self.ref.replicas[0]["total/count"])
        if all(local in tensors for tensors in trace.replicas):
            expected = trace.summed(local) / count + self._penalty(name)
        allowed = tolerances.of_terms(name, self._terms(name) / count if count else 0.0, _largest(expected))
        return self._copies(name, trace, allowed, expected)

    def _update(self, name: str, trace: Trace, tolerances: Tolerances) -> Iterator[TensorComparison]:
        """A parameter's change, relative to the largest change: relative to itself little is seen."""
        after, before = self.ref.replicas[0][name], self.ref.replicas[0].get(f"before{name[5:]}")
        if before is None or not name.startswith("after/parameters/"):
            yield from self._copies(name, trace, tolerances.of(name), after)
            return
        change = np.subtract(after, before, dtype=np.float64)
        allowed = tolerances.of_terms(name, _largest(after), _largest(change))
        for replica, own in enumerate(trace.each(name)):
            deviation = float("inf")
            if np.array_equal(own, after):
                deviation = 0.0
            elif own.shape == before.shape:
                deviation = _deviation(change, np.subtract(own, before, dtype=np.float64))
            yield TensorComparison(name, replica, deviation, allowed)


def consumers(layers: Mapping[str, str], path: str) -> list[str]:
    """The layers whose input is the output of a layer."""
    return [consumer for consumer, source in layers.items() if source == f"forward/{path}"]


_OF_PARAMETERS = ("before", "after", "local_gradient", "gradient", "clipped")


def _parameter(name: str) -> str:
    """The parameter, or buffer, that a tensor belongs to; nothing for one of a layer or of the whole step."""
    return tensor_of(name) if name.partition("/")[0] in _OF_PARAMETERS else ""


def _ids(expected: Array, own: Array, replica: int | None) -> TensorComparison:
    """Sample ids, in order; the deviation is the share of places that are not as they should be."""
    if np.array_equal(expected, own):
        return TensorComparison("ids", replica, 0.0, 0.0)
    size = max(len(expected), len(own))
    common = min(len(expected), len(own))
    wrong = np.flatnonzero(expected[:common] != own[:common])
    at = int(wrong[0]) if len(wrong) else common
    mine = f"sample {own[at]}" if at < len(own) else "nothing"
    due = f"sample {expected[at]}" if at < len(expected) else "nothing"
    where = f"place {at}: {mine} instead of {due}"
    return TensorComparison("ids", replica, (len(wrong) + size - common) / size, 0.0, where)


def _largest(values: Array) -> float:
    sizes = np.abs(np.asarray(values, np.float64))
    return float(sizes.max(initial=0.0, where=np.isfinite(sizes)))


def _deviation(expected: Array, own: Array, largest: float = 0.0) -> float:
    """Of tensors that should be finite; where both have overflowed, one overflow is like another."""
    return tensor_deviation(expected, own, largest=largest, overflow_agrees=True)


def _worst_row(expected: Array, own: Array, ids: Array) -> str:
    if expected.shape != own.shape:
        return f"shape {own.shape} instead of {expected.shape}"
    if not expected.size:
        return ""
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.subtract(expected, own, dtype=np.float64))
    worst = np.nan_to_num(apart, nan=np.inf).reshape(len(expected), -1).max(axis=1)
    return f"row of sample {ids[int(np.argmax(worst))]}" if worst.any() else ""
