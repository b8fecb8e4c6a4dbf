"""What must hold in every script that a recorder watches: checked while it trains, without a second run.

Each check is an exact condition, and no rule of thumb: a right script breaks one on purpose or not at all. What did not hold is a `Violation`
in `violations/` of the record, and a line on standard error when it is first seen. Nothing of it decides a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parity.common.base.errors import RecordError, did_you_mean
from parity.common.record.invariants import FINITE, GRADIENT, MOVEMENT, REPLICAS, Ids, Violation, not_finite
from parity.common.spec import ScriptInfo

OPTIMIZER = "optimizer has the model's parameters"
TRAINS = "trained by the recorder's optimizer"
ZEROED = "gradients zeroed after an update"
MODE = "trained in one mode"
TYPES = "types of tensors kept"
SHARES = "ranks have samples of their own"
ORDER = "another order in each epoch"
FROZEN = "frozen tensors stay"
DECLARED = "as declared"

# So many updates are waited for before it is said that none of them did something: an optimizer that adds up
# micro-batches by itself moves nothing at most of its steps.
SEVERAL = 8
# Of a run that ends before.
_FEW = 2
# A gradient must move parameters whose norm is less than its step over so many roundings.
_ROUNDINGS = 8
# Names that a message tells.
_LISTED = 3


class GradientCoverage(NamedTuple):
    """Which tensors had gradients in the first updates.

    updates: how many were observed. tensors: how many the optimizer has. with_gradient: how many of these ever had a gradient.
    stale: how many of these are not the model's and never had one. without_gradient: the names of the model's among them
    that never had one. missing: the model's tensors that had a gradient and are not in the optimizer. unregistered: tensors of
    modules in plain lists or dicts of the model that had a gradient, are not in the optimizer, and did not change.
    """

    updates: int
    tensors: int
    with_gradient: int
    stale: int
    without_gradient: Sequence[str]
    missing: Sequence[str]
    unregistered: Sequence[str]


@dataclass
class StepObservation:
    """What a recorder observed in a step, beside its numbers. None and (): not observed.

    coverage: of the updates so far, once there were enough. zeroed: whether a backward pass since the last update found
    gradients of zero. training: the model's mode at its update. dtypes: of tensors by name. changed: the first tensor that was
    declared frozen and has changed. updated_frozen: the first tensor without requires_grad that the update has changed.
    changed_between: whether a parameter changed since the last update. idle: whether the optimizer has taken no step since the
    record began, and a parameter is what it was. replaced: for how many steps another optimizer has
    trained the model, 0 where that is not so or not seen yet. norms: of each rank's parameters after the step. ids:
    the samples of each rank.
    """

    coverage: GradientCoverage | None = None
    zeroed: bool | None = None
    training: bool | None = None
    dtypes: Mapping[str, str] | None = None
    changed: str | None = None
    updated_frozen: str | None = None
    changed_between: bool = False
    idle: bool = False
    replaced: int = 0
    norms: Sequence[float] = ()
    ids: Sequence[Ids] = ()


class Observer:
    """What observes a framework's model for the checks; this one observes nothing."""

    def before_update(self) -> None:
        """The gradients are there, the parameters are not updated yet. Only torch's recorder can call it."""

    def after_update(self) -> None:
        """The parameters are updated. Only torch's recorder can call it."""

    def observe(self) -> StepObservation:
        """Return what was observed in the step that ends."""
        return StepObservation()

    def coverage(self) -> GradientCoverage | None:
        """Return which tensors had gradients so far; None where that cannot be observed, or there was no update."""
        return None

    def repeats_epochs(self) -> bool:
        """Return whether a distributed sampler shuffles and `set_epoch` was never called."""
        return False

    def close(self) -> None:
        """Leave the model as it was."""


class ScriptChecks:
    """The checks of one record. It must be given every step in order, and the numbers, which may come later, likewise."""

    def __init__(self, info: ScriptInfo, observer: Observer) -> None:
        """`info`: whose `invariants` are checked."""
        self._info, self._observer = info, observer
        # What is worth a look and may be intended, with the first step at which it was observed.
        self.notes: dict[str, int] = {}
        self._eps = float(np.finfo(info.master_dtype).eps)
        self._coverage: GradientCoverage | None = None
        self._reported: set[str] = set()
        self._first_mode: bool | None = None
        self._first_dtypes: Mapping[str, str] | None = None
        self._same_samples = 0  # consecutive steps in which all ranks had the same samples
        self._first_batches: list[Ids] = []  # two, of rank 0
        self._repeats_first = False  # whether the step before had the first of these again
        self._unmoved, self._zero_gradients = _Streak(), _Streak()
        self._idle = _Streak()

    def step(self, step: int, observed: StepObservation) -> list[Violation]:
        """Return the violations of one step."""
        if not self._info.invariants:
            return []
        self._coverage = observed.coverage or self._coverage
        if observed.changed_between and self._info.follows is None:
            self.notes.setdefault("parameters changed between two updates", step)
        # With a loss scale, steps that overflow are left out.
        if observed.idle and self._info.loss_scale is None:
            self._idle.add(step)
        else:
            self._idle.end()
        texts = {
            ZEROED: self._zeroed(observed.zeroed),
            MODE: self._mode(observed.training),
            TYPES: self._dtypes(observed.dtypes),
            REPLICAS: self._replicas(observed.norms),
            SHARES: self._shares(observed.ids),
            ORDER: self._order(observed.ids),
            FROZEN: self._frozen(observed.updated_frozen),
            DECLARED: self._declared(step, observed),
        }
        since = {TRAINS: self._replaced(observed.replaced)}
        return [
            *self._violations(0, {OPTIMIZER: self._optimizer(SEVERAL)}),
            *self._violations(step - observed.replaced + 1, since),
            *self._violations(step, texts),
        ]

    def numbers(
        self,
        step: int,
        loss_sum: float,
        count: float,
        rate: float,
        gradient: float,
        parameters: float,
        update: float,
    ) -> list[Violation]:
        """Return the violations of one step's numbers; a norm or a rate that is NaN was not recorded, one that is not finite is infinite."""
        if math.isnan(gradient) and math.isnan(update) and math.isfinite(loss_sum):
            return self._long_streaks(SEVERAL)
        norms = [0.0 if math.isnan(norm) else norm for norm in (gradient, parameters, update)]
        # A step that float16 overflows in is skipped.
        loss, first = (0.0, 0.0) if self._info.loss_scale is not None else (loss_sum, norms[0])
        text = not_finite(loss, first, *norms[1:])
        if text is None and rate > 0:
            if gradient > 0:
                self._zero_gradients.end()
            elif gradient == 0 and loss_sum != 0:
                self._zero_gradients.add(step)
            if update > 0:
                self._unmoved.end()
            elif update == 0 and rate * gradient > _ROUNDINGS * self._eps * parameters:
                self._unmoved.add(step)
        return self._violations(step, {FINITE: text}) + self._long_streaks(SEVERAL)

    def finish(self) -> list[Violation]:
        """Return the violations of a run that was too short to show them before."""
        if not self._info.invariants:
            return []
        coverage = self._coverage = self._coverage or self._observer.coverage()
        if coverage is not None and coverage.with_gradient and coverage.without_gradient:
            names = _listed(coverage.without_gradient)
            self.notes[f"in the first {coverage.updates} updates there was no gradient of {names}"] = 0
        low = [name for name, dtype in (self._first_dtypes or {}).items() if "float16" in dtype]
        if low:
            self.notes[f"small updates are rounded away in weights of 16 bits: {_listed(low)}"] = 0
        return self._violations(0, {OPTIMIZER: self._optimizer(_FEW)}) + self._long_streaks(_FEW)

    def _violations(self, step: int, texts: Mapping[str, str | None]) -> list[Violation]:
        known = self._info.invariants
        return [Violation(step, name, text) for name, text in texts.items() if text and name in known]

    def _long_streaks(self, least: int) -> list[Violation]:
        found: list[Violation] = []
        if OPTIMIZER in self._reported:
            return found  # which says why nothing moves
        for name, streak, text in (
            (MOVEMENT, self._idle, "the optimizer took no step in {} steps: its step() was not called"),
            (MOVEMENT, self._unmoved, "the update is 0 in {} updates whose gradients are not"),
            (GRADIENT, self._zero_gradients, "its norm is 0 in {} steps whose losses are not"),
        ):
            # A short streak is enough in a run that had nothing else.
            enough = streak.count >= (SEVERAL if streak.ended else least)
            if enough and name not in self._reported:
                self._reported.add(name)
                found += self._violations(streak.first, {name: text.format(streak.count)})
        return found

    def _optimizer(self, least: int) -> str | None:
        found = self._coverage
        if found is None or found.updates < least or OPTIMIZER in self._reported:
            return None
        missing = ""
        if found.missing:
            missing = (
                f"; {len(found.missing)} of the model's that had are not in it: {_listed(found.missing)}"
            )
        if found.unregistered:
            text = (
                f"{len(found.unregistered)} tensors of modules that the model has in a plain list or dict have gradients, are not in it,"
                f" and did not change in {found.updates} updates: {_listed(found.unregistered)}"
            )
        elif not found.with_gradient:
            text = (
                f"none of its {found.tensors} tensors has had a gradient in {found.updates} updates{missing}"
            )
        elif found.stale and missing:
            text = (
                f"{found.stale} of its {found.tensors} tensors are not the model's, and have had no gradient in"
                f" {found.updates} updates{missing}"
            )
        else:
            return None
        self._reported.add(OPTIMIZER)
        return text

    def _replaced(self, replaced: int) -> str | None:
        if not replaced or TRAINS in self._reported:
            return None
        self._reported.add(TRAINS)
        return "another optimizer trains the model now, with slots of its own, as compile() makes a new one: what is recorded of updates is none of it"

    def _zeroed(self, zeroed: bool | None) -> str | None:
        if zeroed is not False:
            return None
        return "its gradients have those of the update before in them, no backward pass found them zeroed"

    def _frozen(self, name: str | None) -> str | None:
        if name is None:
            return None
        return f"{name} has requires_grad=False, is in the optimizer, and has changed by its step"

    def _mode(self, training: bool | None) -> str | None:
        if self._first_mode is None:
            self._first_mode = training
        if training is False and self._first_mode:
            return "the model is in eval mode at its update, and was in training mode before"
        return None

    def _dtypes(self, dtypes: Mapping[str, str] | None) -> str | None:
        if dtypes is None:
            return None
        first = self._first_dtypes = self._first_dtypes or dtypes
        changed = [name for name, dtype in dtypes.items() if first.get(name, dtype) != dtype]
        if not changed:
            return None
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"{changed[0]} was {first[changed[0]]} and is {dtypes[changed[0]]}{more}"

    def _replicas(self, norms: Sequence[float]) -> str | None:
        for rank, norm in enumerate(norms):
            # Ranks may add up in another order, on other processors.
            apart = abs(norm - norms[0]) > _ROUNDINGS * self._eps * norms[0]
            if apart and math.isfinite(norm) and math.isfinite(norms[0]):
                return f"after the step the norm of rank {rank}'s parameters is {norm!r}, that of rank 0's {norms[0]!r}"
        return None

    def _shares(self, ids: Sequence[Ids]) -> str | None:
        if not ids:
            return None
        same = len(ids) > 1 and len(ids[0]) and all(sorted(own) == sorted(ids[0]) for own in ids)
        self._same_samples = self._same_samples + 1 if same else 0
        if self._same_samples < _FEW:
            return None
        return f"all {len(ids)} ranks had the same {len(ids[0])} samples, {ids[0][0]} and so on"

    def _order(self, ids: Sequence[Ids]) -> str | None:
        """Whether two consecutive batches are the first two again, though the ranks' sampler shuffles."""
        if len(ids) < _FEW:
            return None
        if len(self._first_batches) < _FEW:
            self._first_batches.append(ids[0])
            return None
        again, self._repeats_first = self._repeats_first, np.array_equal(ids[0], self._first_batches[0])
        if not (again and np.array_equal(ids[0], self._first_batches[1]) and ORDER not in self._reported):
            return None
        if not self._observer.repeats_epochs():
            return None
        self._reported.add(ORDER)
        return "the samples come in the order of the first epoch again: call the sampler's set_epoch(epoch)"

    def _declared(self, step: int, observed: StepObservation) -> str | None:
        if observed.changed is not None:
            return f"{observed.changed} was said to be frozen, and has changed"
        whole, given = self._info.global_batch_size, sum(map(len, observed.ids))
        if step == 0 and whole and given and given != whole:
            return f"global_batch_size is {whole}, and the first step had {given} samples"
        return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + ", ..." * (len(names) > _LISTED)


class _Streak:
    """Consecutive steps of one kind. first: the first of them. count: how many. ended: whether there was one of another kind."""

    def __init__(self) -> None:
        self.first, self.count, self.ended = 0, 0, False

    def add(self, step: int) -> None:
        self.first = self.first if self.count else step
        self.count += 1

    def end(self) -> None:
        self.count, self.ended = 0, True


def frozen_names(tensors: Iterable[str], frozen: Sequence[str]) -> list[str]:
    """Return the names that equal or begin with one of `frozen`; raises RecordError where one matches none."""
    known = list(tensors)
    found = {given: [name for name in known if name.startswith(given)] for given in frozen}
    missing = next((given for given, matching in found.items() if not matching), None)
    if missing is not None:
        raise RecordError(f"frozen: the model has no tensor {missing!r}{did_you_mean(missing, known)}")
    return [name for matching in found.values() for name in matching]


def checkable(
    *, optimizer: bool, gradients: bool, modes: bool, ranks: int, sharded: bool, follows: bool = False
) -> tuple[str, ...]:
    """Return the invariants that a recorder can check, which `ScriptInfo` keeps.

    Args:
        optimizer: whether the recorder has one.
        gradients: whether gradients can be observed between the backward pass and the update.
        modes: whether the model computes otherwise in training than in evaluation.
        ranks: that train together.
        sharded: whether each has a part of the parameters.
        follows: whether it updates by a reference's gradients, which are the same on every rank.
    """
    found = [
        FINITE,
        *([] if sharded or not optimizer else [GRADIENT, MOVEMENT]),
        *([TRAINS] if optimizer else []),
    ]
    if optimizer and gradients:
        found += [OPTIMIZER, *([] if sharded else [ZEROED, FROZEN]), *([MODE] if modes else [])]
    found += [TYPES, DECLARED]
    return (*found, *([] if ranks < 2 else [SHARES, ORDER, *([] if sharded or follows else [REPLICAS])]))
