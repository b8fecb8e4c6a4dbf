"""What must hold in every run, whatever it is compared with: checked step by step, while it trains.

What did not hold stands in violations/replica_N.jsonl, one line each, N the process's first replica.

Two runs can share a mistake; these checks need no second run. A breach is found in the step in which it
happens, but for replicas that part in several processes: their parameters' norms travel with the loss sums
of the next step, so that it is found one step later, and told of the step after which they differed.

No rule looks at a single tensor: of a layer whose units are all dead, of an embedding of words that did not
occur or of a zero-gradient direction, the gradient is rightly zero. And none looks at a step that float16 skipped.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.common.base import rng
from parity.common.base.errors import RecordError, check_printable
from parity.common.base.plain import print_error
from parity.common.data.plan import BatchPlan
from parity.common.record.files import read_lines
from parity.common.reference import StepScalars, learning_rate
from parity.common.reference.schedules import SMALLEST, LossScaler
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.schedules import ReduceOnPlateau

Ids = NDArray[np.int64]

REPLICAS = "replicas equal"
GRADIENT = "gradient neither zero nor constant"
MOVEMENT = "parameters move"
FINITE = "loss finite"
SAMPLES = "sample ids disjoint, as planned"
SCHEDULE = "schedule as specified"
SCALE = "loss scale sane"
INVARIANTS = (SAMPLES, FINITE, GRADIENT, MOVEMENT, SCHEDULE, SCALE, REPLICAS)

# Of larger batches, so many samples are held against the plan.
_DRAWN = 1 << 12
# So often in a row must a norm be the same, bit for bit: once may be chance.
_OFTEN = 2
# A smaller change of the parameters need not change a bit of any, let alone of their norm.
_LEAST_UPDATE = 1e-15
# An update changes the square of the parameters' norm by its own square, and may by this many roundings.
_ROUNDINGS = 128

# Of each invariant, a process keeps the breaches of so many steps, and counts the rest.
KEPT = 1 << 12


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold.

    step: in which; of replicas that part, the one after which they differ. replica: the first of the process
    that saw it.
    """

    step: int
    invariant: str
    text: str
    replica: int = 0


class StepFacts(NamedTuple):
    """What a process knows of a step.

    numbers: loss sum, count, and the norms of gradient, parameters and update. ids: the sample ids each local replica
    received, in order. loss_scale: what float16 multiplied the loss by. updated: whether the step was not skipped.
    copies: a fingerprint of each local replica's parameters after the step, where there are several. summed: the sum
    over all replicas of those before the step, and this one's own.
    """

    learning_rate: float
    numbers: Sequence[float]
    ids: Sequence[Ids]
    loss_scale: float = 1.0
    updated: bool = True
    copies: Sequence[float] = ()
    summed: Sequence[float] = ()


class Invariants:
    """The checks of one process of a run. It must be told every step, in order."""

    def __init__(
        self,
        spec: TrainSpec,
        placement: Placement,
        replicas: range,
        kept: Mapping[str, float | None] | None = None,
    ) -> None:
        """`replicas` are those of this process; the one with replica 0 judges what all know.

        kept: of `StepScalars.kept`, where the run goes on from a checkpoint.
        """
        self._replicas = replicas
        self._plan = plan = BatchPlan.of(spec, placement)
        # To shuffle a large batch takes time, but for a few places of it; there, each so many is looked at.
        draws = plan.shuffle and plan.sample_order_seed is None
        self._every = -(-plan.global_batch_size // _DRAWN) if draws else 1
        # Not the trainer's own, which may be what is wrong.
        self._spec, self._scales = spec, LossScaler(spec)
        self._rates = StepScalars(spec) if isinstance(spec.schedule, ReduceOnPlateau) else None
        if kept is not None:
            self._scales.restore(kept)
            if self._rates is not None:
                self._rates.restore(kept)
        self._rule = spec.loss_scale
        self._in_all = placement.replicas
        self._epsilon = float(np.finfo(spec.master_dtype).eps)
        self._skipped = 0
        self._norms = (math.nan, math.nan)  # of gradient and parameters, one step ago
        self._same = [0, 0]  # how often in a row they were the same

    def step(self, step: int, facts: StepFacts) -> list[Violation]:
        """The breaches of one step, numbered from 0."""
        rate, updated = facts.learning_rate, facts.updated
        loss_sum, count, gradient, parameters, update = facts.numbers
        found = {
            SAMPLES: self._samples(step, facts.ids),
            SCHEDULE: self._schedule(step, rate),
            SCALE: self._scale(facts.loss_scale, updated),
        }
        if self._replicas.start == 0 and updated:
            found[FINITE] = not_finite(loss_sum, gradient, parameters, update)
            if found[FINITE] is None:
                moves = rate * gradient > _LEAST_UPDATE
                found[GRADIENT] = self._gradient(gradient, loss_sum, count)
                found[MOVEMENT] = self._movement(parameters, update, moves)
                self._norms = gradient, parameters
        if self._rates is not None:
            self._rates.observe(step, loss_sum, count, updated)
        found[REPLICAS] = self._copies(facts.copies)
        broken = [(name, text) for name, text in found.items() if text is not None]
        violations = [Violation(step, name, text, self._replicas.start) for name, text in broken]
        return [*self.before(step, facts.summed), *violations]

    def before(self, step: int, summed: Sequence[float]) -> list[Violation]:
        """The breach of replicas that were unequal before a step; `summed` as in `StepFacts`."""
        if not summed:
            return []
        total, own = summed
        expected = self._in_all * own
        # Of two replicas the sum is exact; of more it rounds at each addition.
        allowed = 0.0 if self._in_all == 2 else self._in_all * self._epsilon * expected
        if not math.isfinite(own) or abs(total - expected) <= allowed:
            return []
        mean = total / self._in_all
        replica = self._replicas.start
        text = f"the fingerprint of replica {replica} is {own!r}, the replicas' mean {mean!r}"
        text = text if step else f"from the start on {text}"
        return [Violation(max(0, step - 1), REPLICAS, text, replica)]

    def _samples(self, step: int, ids: Sequence[Ids]) -> str | None:
        if self._every > 1:
            planned = all(map(self._follows_key, [step] * len(ids), self._replicas, ids))
        else:
            whole = self._plan.global_ids(step)
            shares = (self._share(whole, replica) for replica in self._replicas)
            planned = all(own.tobytes() == share.tobytes() for own, share in zip(ids, shares, strict=True))
        return None if planned else self._unplanned(self._plan.global_ids(step), ids)

    def _follows_key(self, step: int, replica: int, received: Ids) -> bool:
        """Whether a share of a large batch has the right size, and at some places the right samples."""
        plan = self._plan
        epoch, within = divmod(step, plan.steps_per_epoch)
        first = within * plan.global_batch_size
        share = self._share(range(first, min(first + plan.global_batch_size, plan.samples)), replica)
        places = np.array(share[:: self._every], np.int64)
        sampled = rng.permute(rng.derive_key(plan.seed, "shuffle", epoch), places, plan.samples)
        return len(received) == len(share) and np.array_equal(received[:: self._every], sampled)

    def _share(self, planned: Any, replica: int) -> Any:
        """What falls to a replica. Not by `BatchPlan.share`, by which the trainer was given its samples."""
        if self._plan.split == "strided":
            return planned[replica :: self._in_all]
        size = -(-len(planned) // self._in_all)
        return planned[replica * size : (replica + 1) * size]

    def _unplanned(self, planned: Ids, ids: Sequence[Ids]) -> str:
        """What is wrong with samples that are not as planned."""
        for replica, received in zip(self._replicas, ids, strict=True):
            values, counts = np.unique(received, return_counts=True)
            if (counts > 1).any():
                return f"replica {replica} received sample {values[counts > 1][0]} more than once"
        for replica, received in zip(self._replicas, ids, strict=True):
            for other in range(self._in_all):
                common = np.intersect1d(received, self._share(planned, other))
                if other != replica and len(common):
                    return f"replica {replica} received sample {common[0]}, which is replica {other}'s"
            missing = np.setdiff1d(self._share(planned, replica), received)
            unplanned = np.setdiff1d(received, planned)
            if len(unplanned):
                return f"replica {replica} received sample {unplanned[0]}, which is not of this batch"
            if len(missing):
                return f"replica {replica} did not receive sample {missing[0]} ({len(missing)} are missing)"
        return "a replica received its own samples in another order"

    def _schedule(self, step: int, rate: float) -> str | None:
        if self._rates is not None:
            expected = self._rates.rate(step)
        else:
            expected = learning_rate(self._spec, self._scales.schedule_step(step))
        return None if rate == expected else f"the learning rate is {rate!r}, not {expected!r}"

    def _scale(self, loss_scale: float, updated: bool) -> str | None:
        expected = self._scales.scale
        self._scales.observe(updated)
        self._skipped = 0 if updated else self._skipped + 1
        if loss_scale != expected:
            return f"the loss was multiplied by {loss_scale!r}, not by {expected!r}"
        if self._rule is not None and not updated and expected * self._rule.backoff < SMALLEST:
            return f"{self._skipped} steps in a row were skipped; the loss scale can sink no further"
        return None if updated or self._rule is not None else "a step was skipped without float16"

    def _gradient(self, norm: float, loss_sum: float, count: float) -> str | None:
        same = norm == self._norms[0] != 0
        self._same[0] = self._same[0] + 1 if same else 0
        # Where all targets are fitted or ignored, there is neither a loss nor a gradient.
        if norm == 0 and loss_sum != 0 and count:
            return f"its norm is 0 at a loss of {loss_sum / count!r}"
        # Of a batch that is the whole data, that of a piecewise linear loss may stay as it is.
        if self._same[0] >= _OFTEN and self._plan.steps_per_epoch > 1:
            return f"its norm is {norm!r} in {self._same[0] + 1} steps of different samples"
        return None

    def _movement(self, norm: float, update: float, moves: bool) -> str | None:
        if moves and update == 0:
            return "the update is 0"
        visible = update * update > _ROUNDINGS * self._epsilon * norm * norm
        self._same[1] = self._same[1] + 1 if visible and norm == self._norms[1] else 0
        if self._same[1] >= _OFTEN:
            return f"their norm stays at {norm!r} after updates, the last of norm {update!r}"
        return None

    def _copies(self, copies: Sequence[float]) -> str | None:
        for replica, own in zip(self._replicas, copies, strict=False):
            if own != copies[0] and not (math.isnan(own) and math.isnan(copies[0])):
                first = f"that of replica {self._replicas.start} {copies[0]!r}"
                return f"the fingerprint of replica {replica} is {own!r}, {first}"
        return None


def not_finite(loss_sum: float, gradient: float, parameters: float, update: float) -> str | None:
    """The first of a step's numbers that is not finite, in words."""
    # One that is not finite leaves no sum that is.
    if math.isfinite(loss_sum + gradient + parameters + update):
        return None
    named = {
        "loss": loss_sum,
        "norm of the gradient": gradient,
        "norm of the parameters": parameters,
        "norm of the update": update,
    }
    return next((f"the {name} is {value}" for name, value in named.items() if not math.isfinite(value)), None)


class ViolationWriter:
    """Writes what one process breached, and says the first breach of each invariant at once."""

    def __init__(self, folder: Path, replica: int) -> None:
        """`folder` and a file in it are made at the first breach."""
        self._path = folder / f"replica_{replica}.jsonl"
        self._file: IO[str] | None = None
        self._first: dict[str, Violation] = {}
        self._counts: Counter[str] = Counter()

    def write(self, violations: Sequence[Violation]) -> None:
        """Append the breaches of a step."""
        for violation in violations:
            name = violation.invariant
            self._counts[name] += 1
            if name not in self._first:
                self._first[name] = violation
                print_error(f"invariant broken at step {violation.step}: {name}: {violation.text}")
            if self._counts[name] > KEPT:
                continue
            if self._file is None:
                self._path.parent.mkdir(exist_ok=True)
                self._file = open(self._path, "x", encoding="utf-8")
            self._file.write(json.dumps(asdict(violation)) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Stop writing, and say how often what was said once has happened."""
        for name, count in self._counts.items():
            if count > 1:
                print_error(f"invariant broken in {count} steps from {self._first[name].step} on: {name}")
        self._counts.clear()
        if self._file is not None:
            self._file.close()


def read_violations(folder: Path) -> tuple[Violation, ...]:
    """Those of all processes, by step; raises RecordError for a file that is damaged."""
    found = []
    for path in sorted(folder.glob("replica_*.jsonl")):
        for row in read_lines(path):
            try:
                found.append(
                    Violation(int(row["step"]), str(row["invariant"]), str(row["text"]), int(row["replica"]))
                )
            except (KeyError, TypeError, ValueError):
                raise RecordError(f"{path}: a line is no breach; the file is damaged or foreign") from None
    check_printable((text for one in found for text in (one.invariant, one.text)), folder, RecordError)
    return tuple(sorted(found, key=lambda violation: (violation.step, violation.replica)))
