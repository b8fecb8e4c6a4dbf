"""What must hold in every script that a recorder watches: checked while it trains, without a second run.

Each check is an exact condition, and no rule of thumb: a right script breaks one on purpose or not at all. What did not hold is a `Violation`
in `violations/` of the record, and a line on standard error when it is first seen. Nothing of it decides a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from parity.common.base.errors import RecordError, did_you_mean
from parity.common.record.invariants import FINITE, GRADIENT, MOVEMENT, REPLICAS, Ids, Violation, not_finite
from parity.common.spec import ScriptInfo

OPTIMIZER = "optimizer has the model's parameters"
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


class Given(NamedTuple):
    """What an optimizer's tensors have been given in its first updates.

    updates: how many were looked at. tensors: of the optimizer. starved: how many of them are not the model's and never had a
    gradient. fed: how many had one. left_out: the model's tensors that had one and are not in the optimizer. hidden: those of
    modules in plain lists or dicts of the model, which had one, are not in the optimizer, and have not changed. unfed: those of
    the optimizer that had none.
    """

    updates: int
    tensors: int
    starved: int
    fed: int
    left_out: Sequence[str]
    hidden: Sequence[str] = ()
    unfed: Sequence[str] = ()


class Seen(NamedTuple):
    """What a recorder saw of a step, beside its numbers. None and (): it was not looked at.

    zeroed: whether a backward pass since the update before found gradients that were zero. training: the model's mode at its
    update. types: of tensors by name. moved: the first tensor that was said to be frozen and has changed. dragged: the first one
    without requires_grad that the update has changed. outside: whether a parameter changed since the update before. norms: of
    each rank's parameters after the step. ids: the samples of each rank.
    """

    given: Given | None = None
    zeroed: bool | None = None
    training: bool | None = None
    types: Mapping[str, str] | None = None
    moved: str | None = None
    dragged: str | None = None
    outside: bool = False
    norms: Sequence[float] = ()
    ids: Sequence[Ids] = ()


# Of a step at which there was nothing to look at; most are, and cost nothing.
NOTHING = Seen()


class Watch:
    """What looks at a framework's model for the checks; this one sees nothing."""

    def before_update(self) -> None:
        """The gradients are there, the parameters are not updated yet; only torch's recorder can tell."""

    def after_update(self) -> None:
        """The parameters are updated; likewise."""

    def seen(self) -> Seen:
        """What was seen of the step that ends."""
        return NOTHING

    def given(self) -> Given | None:
        """What the optimizer's tensors have been given so far; None where it cannot be seen, or there was no update."""
        return None

    def shuffles(self) -> bool:
        """Whether a sampler of several ranks shuffles, and was told of no epoch but the first."""
        return False

    def close(self) -> None:
        """Leave the model as it was."""


class ScriptChecks:
    """The checks of one record. It must be told every step, in order; of numbers, which may come later, likewise."""

    def __init__(self, info: ScriptInfo, watch: Watch) -> None:
        """`info`: whose `invariants` are checked."""
        self._info, self._watch = info, watch
        # What is worth a look and may well be meant, with the step at which it was seen first.
        self.notes: dict[str, int] = {}
        self._eps = float(np.finfo(info.master_dtype).eps)
        self._given: Given | None = None
        self._told: set[str] = set()
        self._trained: bool | None = None
        self._types: Mapping[str, str] | None = None
        self._alike = 0  # steps in a row in which all ranks had the same samples
        self._starts: list[Ids] = []  # the first two batches of rank 0
        self._again = False  # whether the step before had the first of these again
        # Of updates that moved nothing, and of gradients that are zero: the first of those in a row, how many, and
        # whether there were others before.
        self._still = _Row()
        self._zero = _Row()

    def seen(self, step: int, seen: Seen) -> list[Violation]:
        """The violations of one step."""
        if seen is NOTHING or not self._info.invariants:
            return []
        self._given = seen.given or self._given
        found = {
            ZEROED: None
            if seen.zeroed is not False
            else "its gradients have those of the update before in them, no backward pass found them zeroed",
            MODE: self._mode(seen.training),
            TYPES: self._kept(seen.types),
            REPLICAS: self._replicas(seen.norms),
            SHARES: self._shares(seen.ids),
            ORDER: self._order(seen.ids),
            FROZEN: None
            if seen.dragged is None
            else f"{seen.dragged} has requires_grad=False, is in the optimizer, and has changed by its step",
            DECLARED: self._declared(step, seen),
        }
        if seen.outside and self._info.follows is None:
            self.notes.setdefault("parameters changed between two updates", step)
        return self._found(0, {OPTIMIZER: self._optimizer(SEVERAL)}) + self._found(step, found)

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
        """The violations of one step's numbers; a norm or a rate that is NaN was not recorded, one that is not finite is infinite."""
        if math.isnan(gradient) and math.isnan(update) and math.isfinite(loss_sum):
            return []
        norms = [0.0 if math.isnan(norm) else norm for norm in (gradient, parameters, update)]
        # A step that float16 overflows in is skipped.
        loss, first = (0.0, 0.0) if self._info.loss_scale is not None else (loss_sum, norms[0])
        text = not_finite(loss, first, *norms[1:])
        if text is None and rate > 0:
            if gradient == 0:
                self._zero.add(step, loss_sum != 0)
            elif gradient > 0:
                self._zero.end()
            if update > 0:
                self._still.end()
            elif update == 0 and rate * gradient > _ROUNDINGS * self._eps * parameters:
                self._still.add(step, True)
        return self._found(step, {FINITE: text}) + self._idle(SEVERAL)

    def finish(self) -> list[Violation]:
        """What a run shows only when it is over, because it was short."""
        if not self._info.invariants:
            return []
        self._given = self._given or self._watch.given()
        if self._given is not None and self._given.fed and self._given.unfed:
            text = f"in the first {self._given.updates} updates there was no gradient of {_listed(self._given.unfed)}"
            self.notes[text] = 0
        low = [name for name, kind in (self._types or {}).items() if "float16" in kind]
        if low:
            self.notes[f"small updates are rounded away in weights of 16 bits: {_listed(low)}"] = 0
        return self._found(0, {OPTIMIZER: self._optimizer(_FEW)}) + self._idle(_FEW)

    def _found(self, step: int, texts: Mapping[str, str | None]) -> list[Violation]:
        known = self._info.invariants
        return [Violation(step, name, text) for name, text in texts.items() if text and name in known]

    def _idle(self, least: int) -> list[Violation]:
        found: list[Violation] = []
        if OPTIMIZER in self._told:
            return found  # which says why nothing moves
        for name, row, what in (
            (MOVEMENT, self._still, "the update is 0 in {} updates whose gradients are not"),
            (GRADIENT, self._zero, "its norm is 0 in {} steps whose losses are not"),
        ):
            # A few in a row are told of a run that has had no others.
            enough = row.count >= (SEVERAL if row.others else least)
            if enough and name not in self._told and name in self._info.invariants:
                self._told.add(name)
                found.append(Violation(row.first, name, what.format(row.count)))
        return found

    def _optimizer(self, least: int) -> str | None:
        given = self._given
        if given is None or given.updates < least or OPTIMIZER in self._told:
            return None
        left = ""
        if given.left_out:
            left = f"; {len(given.left_out)} of the model's that had are not in it: {_listed(given.left_out)}"
        if given.hidden:
            text = (
                f"{len(given.hidden)} tensors of modules that the model has in a plain list or dict have gradients, are not in it,"
                f" and did not change in {given.updates} updates: {_listed(given.hidden)}"
            )
        elif not given.fed:
            text = f"none of its {given.tensors} tensors has had a gradient in {given.updates} updates{left}"
        elif given.starved and left:
            text = (
                f"{given.starved} of its {given.tensors} tensors are not the model's, and have had no gradient in"
                f" {given.updates} updates{left}"
            )
        else:
            return None
        self._told.add(OPTIMIZER)
        return text

    def _mode(self, training: bool | None) -> str | None:
        if training is None:
            return None
        first = self._trained = training if self._trained is None else self._trained
        if first and not training:
            return "the model is in eval mode at its update, and was in training mode before"
        return None

    def _kept(self, types: Mapping[str, str] | None) -> str | None:
        if types is None:
            return None
        first = self._types = types if self._types is None else self._types
        changed = [name for name, kind in types.items() if first.get(name, kind) != kind]
        if not changed:
            return None
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"{changed[0]} was {first[changed[0]]} and is {types[changed[0]]}{more}"

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
        self._alike = self._alike + 1 if same else 0
        if self._alike < _FEW:
            return None
        return f"all {len(ids)} ranks had the same {len(ids[0])} samples, {ids[0][0]} and so on"

    def _order(self, ids: Sequence[Ids]) -> str | None:
        """Of ranks: two batches in a row that are the first two, from a sampler that was to shuffle."""
        if len(ids) < _FEW:
            return None
        if len(self._starts) < _FEW:
            self._starts.append(ids[0])
            return None
        again, self._again = self._again, np.array_equal(ids[0], self._starts[0])
        if not (again and np.array_equal(ids[0], self._starts[1]) and ORDER not in self._told):
            return None
        if not self._watch.shuffles():
            return None
        self._told.add(ORDER)
        return "the samples come in the order of the first epoch again: call the sampler's set_epoch(epoch)"

    def _declared(self, step: int, seen: Seen) -> str | None:
        if seen.moved is not None:
            return f"{seen.moved} was said to be frozen, and has changed"
        whole, given = self._info.global_batch_size, sum(map(len, seen.ids))
        if step == 0 and whole and given and given != whole:
            return f"global_batch_size is {whole}, and the first step had {given} samples"
        return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + ", ..." * (len(names) > _LISTED)


class _Row:
    """Steps in a row: the first one, how many there are, and whether there were others before."""

    def __init__(self) -> None:
        self.first, self.count, self.others = 0, 0, False

    def add(self, step: int, counts: bool) -> None:
        if counts:
            self.first = self.first if self.count else step
            self.count += 1

    def end(self) -> None:
        self.count, self.others = 0, True


def frozen_names(tensors: Iterable[str], frozen: Sequence[str]) -> list[str]:
    """The names that were said to be frozen, or begin with what was; raises RecordError where there is none."""
    known = list(tensors)
    found = {given: [name for name in known if name.startswith(given)] for given in frozen}
    missing = next((given for given, matching in found.items() if not matching), None)
    if missing is not None:
        raise RecordError(f"frozen: the model has no tensor {missing!r}{did_you_mean(missing, known)}")
    return [name for matching in found.values() for name in matching]


def checked(
    optimizer: bool, modes: bool, ranks: int, sharded: bool, gradients: bool = True
) -> tuple[str, ...]:
    """The invariants that a recorder can check, which `ScriptInfo` keeps.

    Args:
        optimizer: whether the recorder has one.
        modes: whether the model acts otherwise in training than in evaluation.
        ranks: that train together.
        sharded: whether each has a part of the parameters.
        gradients: whether gradients can be looked at between the backward pass and the update.
    """
    found = [FINITE, *([] if sharded or not optimizer else [GRADIENT, MOVEMENT])]
    if optimizer and gradients:
        found += [OPTIMIZER, *([] if sharded else [ZEROED, FROZEN]), *([MODE] if modes else [])]
    found += [TYPES, DECLARED]
    return (*found, *([] if ranks < 2 else [SHARES, ORDER, *([] if sharded else [REPLICAS])]))
