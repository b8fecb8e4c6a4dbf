"""Followed runs: a script that starts each recorded step from another script's state, so that no error is carried.

The reference keeps, of the steps that `StateKeeper` names, `states/STEP.safetensors` (weights, buffers and optimizer slots before
the step; that of the next step is the state after it) and `gradients/STEP.safetensors`. All have the framework's own names.

The candidate starts these steps from the reference's state. Once its gradients were measured they are replaced by the reference's, so
that its update is judged alone; where the script itself adds a number times its weights to them, so are these. What it made is
compared at once, tensor by tensor, and `followed.jsonl` of its record has a line for each: see `Measure`. Where several ranks
train, each starts from that state, and a tensor's line is of the rank that is farthest from it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import ExternalModelError, RecordError
from parity.common.record.files import append, read_lines
from parity.common.record.fits import (
    ELEMENTWISE_ULPS,
    added_weights,
    along,
    averaged,
    averaged_weights,
    carried_gradients,
    differ,
)
from parity.common.record.header import read_header
from parity.common.record.live import Live, Slots
from parity.common.record.reader import read_record
from parity.common.record.script_taps import is_tapped
from parity.common.spec import ScriptInfo
from parity.common.spec.external import mapping as maps
from parity.common.state.canonical import State, load_state, save_state

STATES, GRADIENTS, MEASURES = "states", "gradients", "followed.jsonl"
# Beside the state behind a step, how many updates each optimizer has made of it, where there were several.
UPDATES = "updates"
Stage = str  # 'gradients', 'update', 'buffers', 'slots/NAME', or one of those below
# What the gradients would be, had they been reduced over the ranks.
MEAN = "mean of gradients"
# How many times its weights the candidate adds to its gradients itself, beyond what the reference does.
ADDED = "added weights"
# A gradient that has that of the step before in it.
CARRIED = "gradient of the step before"
# What an optimizer has gathered before the first step that is followed, of one side alone.
MEMORY = "memory of optimizer"
# Behind the last step, as the script ends: what the two are then apart beyond what any tensor was as that step ended.
FINAL = "final state"
# Weights that a script of torch's has changed itself since the step before was recorded; TensorFlow's updates are in a graph, which is not looked into.
CHANGED = "weights changed between steps"
# An update that is the reference's plus a number times the weights, or plus a number times its momentum.
DECAYED, MOVED = "decayed update", "momentum of update"
# A momentum that is the reference's plus a number times the weights.
COUPLED = "decayed momentum"
# Of several optimizers: by how much the weights that the others have updated in the same step are off, as a share of them. A gradient
# that goes through these is off, too.
THROUGH = "weights of other optimizers"
# A running average of batches that one script alone moves at a step, the one that `only` says.
ALONE = "average of one script"
# A running average that moves otherwise, as `fits.averaged` has it; an average of weights that comes out otherwise, as `fits.averaged_weights` has it.
AVERAGED = {"momentum": "momentum of average", "variance": "variance of average"}
OF_WEIGHTS = {
    "right": "average of weights",
    "old": "average of old weights",
    "new": "average of new weights",
    "otherwise": "another average of weights",
}


# What frameworks call the running averages of their batch norms.
RUNNING = ("running_mean", "running_var", "moving_mean", "moving_variance")
# As many names are told of a model that another tensor is looked for in.
_LISTED = 8
# What gradients of its own cannot make of an update, as a share of it.
_GROSS = 0.5
# SGD's slot: torch's buffer, or Keras's velocity, which has the rate in it.
_MOMENTUM = "momentum_velocity"
# How far what is read off two gradients by rounding may be apart, as a share.
_SAME = 0.1
# Two arrays of float32 are one times a number up to this share of the largest.
_SAME_SCALE = 1e-5
# States are kept at every step while they take less, and are of no more steps: what begins with a later epoch (a mode that
# was not set back, gradients of an evaluation, a state that was not reset) is seen by no step but that.
EVERY_STEP_BYTES, EVERY_STEP_COUNT = 2**28, 2000


@dataclass(frozen=True)
class Measure:
    """How far one tensor of a followed step is from the reference's.

    stage: 'gradients', 'mean of gradients' (over the ranks), 'update', 'buffers' or 'slots/NAME'. reference, difference: L2 norms;
    `difference` is infinite where the tensor is not finite, or not of the reference's shape. factor: k by which k times the
    reference's is closest. residual: the L2 norm of what is then left; of updates, beyond what rounding of the weights makes. ulps: of updates and slots, which are elementwise, the
    largest |difference| in units of rounding: eps (|r| + rms(r)), after 4 eps |weight| for the rounding of the weight itself.
    Of 'final state': `difference` beyond the largest by which a tensor was off as the step ended.
    Of the stages that say what a difference is made of (`ADDED` to `OF_WEIGHTS`), factor: the number that was found, and
    reference: of `ADDED` the norm of the weights, of `THROUGH` the share, of `OF_WEIGHTS` the norm of what the average is made of.
    only: 'reference' or 'candidate' where the other has no such tensor, or "".
    """

    step: int
    stage: Stage
    tensor: str
    reference: float
    difference: float
    factor: float = 1.0
    residual: float = 0.0
    ulps: float = 0.0
    only: str = ""


class StateKeeper:
    """Writes the states of a reference: of every step until `EVERY_STEP_BYTES` or `EVERY_STEP_COUNT` is reached, of steps 0 to 8,
    16, 32, 64, ..., and of the first step behind evaluation 1, 2, 4, 8, ...
    """

    def __init__(self, folder: Path, live: Live) -> None:
        """`folder`: of the record, which need not be there yet."""
        self._folder, self._live, self._saw = folder, live, -1
        self._gradients: State = {}  # of the step that was seen last
        self._updates: Sequence[int] = ()  # as `saw` has them, of the step that is over
        self._bytes = 0
        self._kept: set[int] = set()
        self._written = -1  # the last step before which the state was
        self._evaluations = 0
        self._evaluated = -1  # the last step before which there was one

    @property
    def saw_any(self) -> bool:
        """Whether gradients of any step were kept, without which no script can follow this one."""
        return self._saw >= 0

    def wants(self, step: int) -> bool:
        """Whether this step's gradients are wanted."""
        return step in self._kept

    def begin(self, step: int) -> None:
        """A step begins, or the one before the first that is not taken."""
        roomy = self._bytes < EVERY_STEP_BYTES and step < EVERY_STEP_COUNT
        if is_tapped(step, None) or roomy:
            self._kept.add(step)
        if self._kept & {step, step - 1}:
            self._write(step)

    def evaluates(self, step: int) -> None:
        """The model is evaluated before a step that has begun; again and again until the step is over."""
        if step == self._evaluated:
            return
        self._evaluated, self._evaluations = step, self._evaluations + 1
        if self._evaluations.bit_count() == 1:
            self._kept.add(step)
            if step != self._written:
                self._write(step)

    def place_slots(self, step: int) -> None:
        """Nothing is placed in a reference."""

    def given(self, step: int, turn: int = 0, optimizer: int = 0) -> State | None:
        """The gradients to update by; None: those that there are."""
        return None

    def saw(
        self, step: int, gradients: State, mean: State | None = None, updates: Sequence[int] = ()
    ) -> None:
        """Keep the gradients of a step; again, those of a later update of it. updates: how many each optimizer has made of it by then."""
        self._saw, self._gradients, self._updates = step, gradients, updates

    def end(self, step: int) -> None:
        """The step is over: write its gradients; what it left is written when the next one begins."""
        if self._saw == step:
            self._save(GRADIENTS, step, self._gradients)
        else:
            self._updates = ()
        self._gradients = {}

    def _write(self, step: int) -> None:
        self._written = step
        slots = {f"slots/{s}/{n}": a for s, of in self._live.slots_now().items() for n, a in of.items()}
        tensors = {f"tensors/{name}": array for name, array in self._live.tensors_now().items()}
        several = any(each > 1 for each in self._updates)
        updates = {UPDATES: np.array(self._updates, np.int64)} if several else {}
        self._save(STATES, step, tensors | slots | updates)

    def _save(self, kind: str, step: int, state: State) -> None:
        path = _path(self._folder, kind, step)
        path.parent.mkdir(exist_ok=True)
        save_state(path, state)
        self._bytes += sum(array.nbytes for array in state.values())


class Follower:
    """Starts a candidate's steps from a reference's states, and measures what it makes of them."""

    def __init__(
        self, folder: Path, reference: Path, framework: str, mapping: maps.Mapping | None, live: Live
    ) -> None:
        """Open the reference.

        Args:
            folder: of the candidate's record.
            reference: the record to follow.
            framework: of the candidate.
            mapping: needed where the reference is of the other framework.
            live: the candidate.

        Raises:
            RecordError: the reference has no states, did not finish, or needs a mapping.
            ExternalModelError: the mapping does not fit the reference's tensors.
        """
        self.identity = identity_of(reference)
        self._measures: list[Measure] = []
        self._of_gradients: list[Measure] = []  # of the step at hand, by its last update
        # The last step that was measured, and the tensors as it ended.
        self._behind: tuple[int, State] = -1, {}
        info = read_header(reference).spec
        if not isinstance(info, ScriptInfo) or not (reference / STATES).is_dir():
            raise RecordError(f"follow: {reference} has no states; record that script with states=True")
        self._file, self._live, self.reference = folder / MEASURES, live, reference
        self.precision = info.precision
        self._other = info.framework != framework
        self._by_own_names = (info.naming == "torch") == (info.framework == "torch")
        if self._other and mapping is None:
            raise RecordError(
                f"follow: {reference} is of {info.framework}; give mapping=, which tensors are which"
            )
        self._mapping, self._to_torch = mapping if self._other else None, framework == "torch"
        # Tensors whose gradients no rule carries over: they update by gradients of their own.
        self._own: set[str] = set()
        if self._mapping is not None:
            side = "torch" if self._to_torch else "keras"
            noted = (pair for pair in self._mapping.tensors if pair.parsed.note)
            self._own = {name for pair in noted for name in getattr(pair, side)}
            self._own |= {*getattr(self._mapping.ignored, side)}
        self.steps = sorted(step for step in map(int, _numbers(reference / GRADIENTS)) if self._whole(step))
        if not self.steps:
            raise RecordError(
                f"follow: {reference} has of no step both its gradients and the states around it; its recorder did not see the gradients: give it the"
                " optimizer that is stepped, and where that is given a closure, as by Lightning, call before_update() after backward"
            )
        try:
            self._tensors(self.steps[0])
        except ExternalModelError as error:
            raise ExternalModelError(f"follow: {reference}: {error}") from None
        self._rates = read_record(reference).columns["learning_rate"]
        self._eps = 0.0
        # By slot and tensor by which the reference's slots are multiplied, where it is of the other framework.
        self._placed: dict[str, Mapping[str, float]] = {}
        # Whether an optimizer of the script's own keeps its momentum as the reference does; None: not seen yet.
        self._same_momentum: bool | None = None
        self._before: State = {}
        self._given: set[str] = set()
        self._trained: set[str] = set()
        self._seen = False
        # By tensor how many times its weights the script adds to its gradients, as its last ones show; what was so given to an update.
        self._adds: dict[str, float] = {}
        self._gave: dict[str, float] = {}
        # As an update has last shown them.
        self._shown: dict[str, float] = {}
        # The slots that this update began with, and those as this step and the one before ended, where these were followed.
        self._begun: Slots = {}
        # By which gradients the step before was updated, where it was followed, and this one.
        self._updated_by: tuple[State, State] = {}, {}
        self._ended: Slots = {}
        self._left: Slots = {}

    def wants(self, step: int) -> bool:
        """Whether this step is followed."""
        return step in self.steps

    def begin(self, step: int) -> None:
        """A step begins: the model starts from the reference's weights and buffers.

        Raises:
            RecordError: the model has not the reference's tensors, or a file of them is damaged.
        """
        self._seen, self._placed = False, {}
        self._updated_by = self._updated_by[1], {}
        self._left, self._ended = self._ended, {}
        if step in self.steps:
            own = self._live.tensors_now()
            self._before = {
                name: array for name, array in self._tensors(step).items() if array.dtype.kind == "f"
            }
            wrong = [n for n, a in self._before.items() if n not in own or own[n].shape != a.shape]
            if wrong:
                there = "in another shape" if wrong[0] in own else "not"
                known = f"; its tensors are {', '.join(list(own)[:_LISTED])}" + ", ..." * (len(own) > _LISTED)
                named = " by mapping=" if self._mapping is not None else ""
                # A module may hold the model beside other things, as Lightning's does.
                starts = (name.removesuffix(wrong[0]) for name in own if name.endswith(f".{wrong[0]}"))
                part = next((p for p in starts if all(p + name in own for name in self._before)), "")
                hint = f"; {part[:-1]!r} of it has them all: give the recorder that part" if part else ""
                raise RecordError(
                    f"follow: {self.reference} has {wrong[0]!r}{named}, and this model has it {there}{known}{hint}"
                )
            self._eps = max(float(np.finfo(str(own[name].dtype)).eps) for name in self._before)
            self._live.put(self._before)

    def place_slots(self, step: int) -> None:
        """The update is about to come: the optimizer has the reference's slots, as far as both have them."""
        if step in self.steps and not self._placed:
            own = self._live.slots_now()
            kept = self._slots(step)
            slots = {*own, *kept, *self._slots(step + 1)}
            self._placed = {slot: self._live.slot_factors(slot) if self._other else {} for slot in slots}
            if step == self.steps[0]:
                self._measures += _memories(step, kept, own)
            self._measures += self._changed(step)
            both: Slots = {}
            for slot in kept.keys() & own.keys():
                times = self._by_rates(slot, step)[0] * self._rescaled(slot, own)
                if math.isfinite(times):
                    both[slot] = {
                        name: np.multiply(array, times * self._factor(slot, name))
                        for name, array in kept[slot].items()
                        if name in own[slot] and math.isfinite(self._factor(slot, name))
                    }
            self._begun = both
            self._live.put_slots(both)

    def _changed(self, step: int) -> list[Measure]:
        """Measure what the script itself has changed of the weights that its optimizers are about to update."""
        if not self._to_torch:
            return []
        now = self._live.tensors_now()
        names = [name for group in self._live.groups() for name in group if name in self._before]
        before, now = ({name: state[name] for name in names} for state in (self._before, now))
        found = measured(step, CHANGED, before, now)
        return [each for each in found if each.difference > self._eps * each.reference]

    def given(self, step: int, turn: int | None = None, optimizer: int = 0) -> State | None:
        """The gradients to update by: the reference's, with what the script adds to them.

        They are those of the last update of a step. turn: which of the step an optimizer's update is, from 1 on; None where it gets none for those
        that come before, as an evaluation makes them that trains and puts the weights back.
        """
        if step not in self.steps or (turn is not None and turn < self._last_turn(step, optimizer)):
            return None
        self._gave = self._adds
        given = {name: self._with_added(name, array, 1) for name, array in self._gradients(step).items()}
        self._updated_by = self._updated_by[0], given
        return given

    def _last_turn(self, step: int, optimizer: int) -> int:
        """How many updates the reference's optimizer has made of a step; 1 where that is not known."""
        updates = load_state(_path(self.reference, STATES, step + 1), mapped=True).get(UPDATES, ())
        return int(updates[optimizer]) if optimizer < len(updates) else 1

    def saw(
        self, step: int, gradients: State, mean: State | None = None, updates: Sequence[int] = ()
    ) -> None:
        """Measure the gradients that the candidate made; again, those of a later update of the step. mean: over its ranks, where there are several."""
        ours = self._gradients(step)
        self._given, self._trained, self._seen = {*ours}, {*ours, *gradients}, True
        known = {name: array for name, array in gradients.items() if name not in self._own}
        self._adds = added_weights(ours, known, self._before, self._eps)
        if self._shows(step, self._adds):
            self._shown = self._adds
        elif not all(abs(k - self._shown.get(name, 0.0)) <= _SAME * abs(k) for name, k in self._adds.items()):
            self._adds = {}
        if not self._adds and self._shown and differ(ours, known, self._eps):
            self._adds = self._shown  # beside what differs otherwise, they are not seen
        found = []
        for name, times in self._adds.items():
            norm = float(np.linalg.norm(np.asarray(self._before[name], np.float64)))
            found.append(Measure(step, ADDED, name, norm, 0.0, times))
        known = {name: self._with_added(name, array, -1) for name, array in known.items()}
        found += measured(step, "gradients", ours, known)
        carried = carried_gradients(ours, known, self._updated_by[0], self._eps)
        found += [Measure(step, CARRIED, name, 1.0, 0.0) for name in carried]
        if mean is not None:
            averaged = {name: self._with_added(name, mean[name], -1) for name in known}
            found += measured(step, MEAN, ours, averaged)
        self._of_gradients = found

    def _shows(self, step: int, adds: Mapping[str, float]) -> bool:
        """Whether an update without so many times the weights would be seen to lack them: else, and where no update before was, they are not taken
        away from what gradients show.
        """
        rate = float(self._rates[step])
        if not adds or not math.isfinite(rate):
            return False
        after, before = self._tensors(step + 1), self._before
        due = {name: _minus(after[name], before[name]) for name in adds if name in after}
        made = {n: update - np.multiply(before[n], rate * adds[n]) for n, update in due.items()}
        return any(
            row.ulps > ELEMENTWISE_ULPS for row in measured(step, "update", due, made, self._eps, before)
        )

    def end(self, step: int) -> None:
        """The step is over: measure the update, the slots and the buffers."""
        if step not in self.steps or not self._seen:
            return
        self._measures += self._of_gradients
        after, now, before = self._tensors(step + 1), self._live.tensors_now(), self._before
        kept, own = self._slots(step + 1), self._live.slots_now()
        self._ended, self._behind = own, (step, now)
        for slot in own.keys() & kept.keys() if self._other else ():
            # TensorFlow's optimizers make theirs with their first update.
            if not own[slot].keys() <= self._placed.get(slot, {}).keys():
                self._placed[slot] = {**self._live.slot_factors(slot), **self._placed.get(slot, {})}
        if self._same_momentum is None and self._other:
            self._same_momentum = self._is_same_momentum(kept.get(_MOMENTUM, {}), own.get(_MOMENTUM, {}))
        alone = [slots[slot] for slots in (kept, own) for slot in slots if not self._shared(slot, kept, own)]
        # TensorFlow's update is given its gradients before those are seen that show what the script adds.
        unsure = self._adds.keys() ^ self._gave.keys()
        # Slots by other names were not placed. They are equal while every step was followed, and then no more.
        if step == 0 or step - 1 in self.steps or not any(np.any(a) for of in alone for a in of.values()):
            due, made = (
                {n: _minus(s[n], before[n]) for n in sorted(self._given - unsure) if n in before}
                for s in (after, now)
            )
            self._measures += measured(step, "update", due, made, eps=self._eps, weights=before)
            for stage, what in ((DECAYED, before), (MOVED, self._begun.get(_MOMENTUM, {}))):
                fits = along(due, made, what, before, self._eps).items()
                self._measures += [Measure(step, stage, name, 1.0, 0.0, times) for name, times in fits]
            due, made = (self._sums_of_biases(state) for state in (after, now))
            both = measured(step, "update", due, made, eps=self._eps, weights=before)
            self._measures += [one for one in both if one.difference > _GROSS * one.reference]
        if not unsure:
            self._measures += self._averages(step, after, now)
        self._measures += self._through(step, after, now)
        for slot in (slot for slot in sorted(kept) if self._shared(slot, kept, own)):
            theirs, mine = (
                {
                    name: array
                    for name, array in s.items()
                    if name not in self._own | unsure and math.isfinite(self._factor(slot, name))
                }
                for s in (kept[slot], own[slot])
            )
            later = self._by_rates(slot, step)[1]
            theirs = {n: np.multiply(array, later * self._factor(slot, n)) for n, array in theirs.items()}
            # Keras makes all slots at once, torch when it needs them: one that is zero was not used.
            used = {n for s in (theirs, mine) for n, array in s.items() if np.any(array)}
            theirs, mine = ({n: a for n, a in s.items() if n in used} for s in (theirs, mine))
            # A moment is made of the one before, as m + (1 - beta) (g - m), whose rounding is that of the larger one.
            begun = self._begun.get(slot, {})
            was = {name: begun.get(name, np.zeros_like(array)) for name, array in {**theirs, **mine}.items()}
            self._measures += measured(step, f"slots/{slot}", theirs, mine, eps=self._eps, weights=was)
            if slot == _MOMENTUM:
                fits = along(theirs, mine, before, was, self._eps).items()
                self._measures += [Measure(step, COUPLED, name, 1.0, 0.0, times) for name, times in fits]

    def finish(self, count: int) -> None:
        """The script has ended after so many steps: measure what it has done since the last one, where that was followed.

        A reference that goes on to change the weights that it trains may train them, whose rounding nothing limits; of such a one nothing is measured.
        """
        path, (step, now) = self.reference / "final.safetensors", self._behind
        if step != count - 1 or count != len(self._rates) or not self._by_own_names or not path.is_file():
            return
        left, due = self._tensors(count), self._own_tensors(path, True)
        made = self._live.tensors_now()
        names = [name for name in self._before if all(name in state for state in (left, due, made))]
        if any(name in self._trained and not _same(left[name], due[name]) for name in names):
            return
        far = [float(np.linalg.norm(_minus(now[name], left[name]))) for name in names]
        own = max(filter(math.isfinite, far), default=0.0)
        due, made = ({name: state[name] for name in names} for state in (due, made))
        for each in measured(step, FINAL, due, made):
            self._measures.append(replace(each, difference=max(each.difference - own, 0.0)))

    def _averages(self, step: int, after: State, now: State) -> list[Measure]:
        """Measure the buffers, and how a running average moves otherwise. after, now: all tensors behind the step, of both."""
        before = self._before
        due, made = ({n: s[n] for n in before if n in s and n not in self._trained} for s in (after, now))
        found = measured(step, "buffers", due, made)
        trained = [name for name in self._given if name in before]
        for name in due.keys() & made.keys():
            moves = [not _same(state[name], before[name]) for state in (due, made)]
            if sum(moves) == 1 and name.rpartition(".")[2].rpartition("/")[2] in RUNNING:
                only = "candidate" if moves[1] else "reference"
                found.append(Measure(step, ALONE, name, 1.0, 0.0, only=only))
        for each in [
            one
            for one in found
            if math.inf > one.difference > 16 * self._eps * one.reference and not one.only
        ]:
            name = each.tensor
            if fit := averaged(before[name], due[name], made[name], self._eps):
                found.append(Measure(step, AVERAGED[fit[0]], name, 1.0, 0.0, fit[1]))
            if average := averaged_weights(name, before, after, now, trained, self._eps):
                how, size = average
                found.append(Measure(step, OF_WEIGHTS[how], name, size, 0.0))
        return found

    def _through(self, step: int, after: State, now: State) -> list[Measure]:
        """Measure what the optimizers' gradients may have gone through, where several have their turn at this step. after, now: all tensors behind
        the step, of both.
        """
        groups = [[name for name in names if name in after] for names in self._live.groups()]
        before = self._before
        groups = [
            names for names in groups if any(np.any(after[n] != before[n]) for n in names if n in before)
        ]
        if len(groups) < 2:
            return []
        norms = [
            [math.hypot(*(np.linalg.norm(one[name]) for name in names)) for names in groups]
            for one in ({name: _minus(after[name], now[name]) for names in groups for name in names}, after)
        ]
        off = [apart / max(norm, np.finfo(float).tiny) for apart, norm in zip(*norms, strict=True)]
        return [
            Measure(step, THROUGH, name, sum(off) - own, 0.0)
            for own, names in zip(off, groups, strict=True)
            for name in names
            if sum(off) > own
        ]

    def _with_added(self, name: str, gradient: Any, sign: int) -> Any:
        """A gradient with what the script adds to it itself, or without."""
        if name not in self._adds:
            return gradient
        added = np.multiply(self._before[name], sign * self._adds[name])
        return np.add(gradient, added).astype(gradient.dtype)

    def _shared(self, slot: str, kept: Slots, own: Slots) -> bool:
        """Whether both have a slot, and its meaning is known in both."""
        if slot not in kept or slot not in own or slot not in self._placed:
            return False
        return any(math.isfinite(self._factor(slot, name)) for name in {*kept[slot], *own[slot]})

    def _factor(self, slot: str, tensor: str) -> float:
        """By which a slot of the reference's is multiplied; NaN where that is not known."""
        if not self._other or (slot == _MOMENTUM and self._same_momentum):
            return 1.0
        return self._placed[slot].get(tensor, math.nan)

    def _is_same_momentum(self, kept: State, own: State) -> bool | None:
        """Whether momentum that an update of the script's own has begun is the reference's as it is, and not what the optimizer's base would keep: only
        one has the rate in it. None where nothing shows yet.
        """
        if not self._live.updates_by_itself():
            return False
        if any(np.any(array) for array in self._begun.get(_MOMENTUM, {}).values()):
            return False
        both = [(np.float64(kept[name]).ravel(), np.float64(own[name]).ravel()) for name in kept.keys() & own]
        square = sum(float(there @ there) for there, _ in both)
        times = sum(float(there @ here) for there, here in both) / square if square else 0.0
        if not times:
            return None
        based = next(iter(self._placed.get(_MOMENTUM, {}).values()), math.nan)
        return times > 0 and not (based > 0 and abs(math.log(times / based)) < abs(math.log(times)))

    def _by_rates(self, slot: str, step: int) -> tuple[float, float]:
        """How many times larger the factor of a slot was at the step before, as a velocity was made by the rate of then; and will be as this step
        ends, where the script changes its rate only after the slots are placed.
        """
        if slot != _MOMENTUM or not self._other or self._same_momentum or not 0 < step < len(self._rates):
            return 1.0, 1.0
        before, now = float(self._rates[step - 1]), float(self._rates[step])
        if not (math.isfinite(before) and math.isfinite(now) and before and now):
            return 1.0, 1.0
        ratio = now / before if self._to_torch else before / now
        factor = abs(next(iter(self._placed[slot].values()), math.nan))
        own = 1 / factor if self._to_torch and factor else factor
        has_the_old = abs(own - before) <= _SAME_SCALE * before < abs(now - before)
        return (1.0, 1 / ratio) if has_the_old else (ratio, 1.0)

    def _sums_of_biases(self, state: State) -> State:
        """How far a step has moved the sum of two biases of torch's that are one in Keras: both get its gradient, which is none of the
        reference's, so that only twice as far tells.
        """
        pairs = [] if self._mapping is None else [p for p in self._mapping.tensors if p.rule == "two_biases"]
        names = [pair.torch if self._to_torch else pair.keras for pair in pairs]
        return {
            of[0]: np.sum([_minus(state[name], self._before[name]) for name in of], axis=0)
            for of in names
            if all(name in self._before and name in state for name in of)
        }

    def _rescaled(self, slot: str, now: Slots) -> float:
        """By what number the script itself has multiplied a slot since the step before ended, as some do for a velocity when its rate changes."""
        for name, before in self._left.get(slot, {}).items():
            after, square = now.get(slot, {}).get(name), float(np.square(before, dtype=np.float64).sum())
            if after is not None and square:
                factor = float(np.multiply(before, after, dtype=np.float64).sum()) / square
                apart = np.abs(np.subtract(after, np.multiply(before, factor))).max()
                same = apart <= _SAME_SCALE * np.abs(before).max()
                return factor if same and abs(factor - 1) > _SAME_SCALE else 1.0
        return 1.0

    def _whole(self, step: int) -> bool:
        return all(_path(self.reference, STATES, at).is_file() for at in (step, step + 1))

    def _tensors(self, step: int) -> State:
        return self._own_tensors(_path(self.reference, STATES, step), False)

    def _own_tensors(self, path: Path, partial: bool) -> State:
        """The reference's tensors in a file, by the candidate's names."""
        state = {n.partition("/")[2]: a for n, a in load_state(path).items() if n.startswith("tensors/")}
        return self._moved(state, partial)

    def _slots(self, step: int) -> Slots:
        found: Slots = {}
        for name, array in load_state(_path(self.reference, STATES, step)).items():
            head, _, rest = name.partition("/")
            if head == "slots":
                slot, _, tensor = rest.partition("/")
                found.setdefault(slot, {})[tensor] = array
        return {slot: self._moved(state, True) for slot, state in found.items()}

    def _gradients(self, step: int) -> State:
        state = load_state(_path(self.reference, GRADIENTS, step))
        if self._mapping is not None and not self._to_torch:
            state = self._mapping.gradients_to_keras(state)
        else:
            state = self._moved(state, True)
        return {name: array for name, array in state.items() if name not in self._own}

    def _moved(self, state: State, partial: bool) -> State:
        if self._mapping is None:
            return state
        side, move = (
            ("keras", self._mapping.to_torch) if self._to_torch else ("torch", self._mapping.to_keras)
        )
        left = {*getattr(self._mapping.ignored, side), *getattr(self._mapping.unmapped, side)}
        first = self._live.first_names()
        moved = move({name: array for name, array in state.items() if name not in left}, partial)
        return {first.get(name, name): array for name, array in moved.items()}

    def taken(self) -> list[Measure]:
        """Return what was measured since this was asked last."""
        taken, self._measures = self._measures, []
        return taken

    def write(self, measures: Sequence[Measure]) -> None:
        """Append measures to the record."""
        if measures:
            with open(self._file, "ab") as file:
                append(file, "".join(json.dumps(asdict(each)) + "\n" for each in measures).encode())


def _memories(step: int, kept: Slots, own: Slots) -> list[Measure]:
    """The tensors whose slots one side alone has filled, before its update; a slot may begin as one number."""
    filled = [
        dict.fromkeys(
            name for state in slots.values() for name, array in state.items() if array.size and np.ptp(array)
        )
        for slots in (kept, own)
    ]
    alone = {
        "reference": filled[0].keys() - filled[1].keys(),
        "candidate": filled[1].keys() - filled[0].keys(),
    }
    return [
        Measure(step, MEMORY, name, 1.0, 0.0, only=who)
        for who, names in alone.items()
        for name in sorted(names)
    ]


def worst_of(ranks: Sequence[Sequence[Measure]]) -> list[Measure]:
    """Of what each rank measured of a step, each tensor's from the rank whose is farthest from the reference's; of equal ones, the first."""
    worst: dict[tuple[str, str], Measure] = {}
    for each in (each for measures in ranks for each in measures):
        known = worst.setdefault((each.stage, each.tensor), each)
        if (each.difference, each.ulps) > (known.difference, known.ulps):
            worst[each.stage, each.tensor] = each
    return list(worst.values())


def identity_of(folder: Path) -> str:
    """A hash of a finished record's header and summary; raises RecordError where it did not finish."""
    read_header(folder)
    if not (folder / "summary.json").is_file():
        raise RecordError(f"{folder}: the script did not finish, so it cannot be followed")
    return hashlib.sha256(
        b"".join((folder / name).read_bytes() for name in ("header.json", "summary.json"))
    ).hexdigest()[:16]


def spans(steps: Sequence[int]) -> str:
    """Ascending numbers in words: '0 to 8, 16'."""
    found: list[list[int]] = []
    for step in steps:
        if found and step == found[-1][-1] + 1:
            found[-1] = [found[-1][0], step]
        else:
            found.append([step])
    return ", ".join(" to ".join(map(str, span)) for span in found)


def read_measures(folder: Path) -> list[Measure]:
    """What a followed run measured; raises RecordError where the file is damaged."""
    path = folder / MEASURES
    if not path.exists():
        return []
    stat = path.stat()
    return [*_measures_in(path, stat.st_ino, stat.st_mtime_ns, stat.st_size)]


@functools.lru_cache(maxsize=1)
def _measures_in(path: Path, *_: int) -> tuple[Measure, ...]:
    """Those of a file as it is at a time: several judgements ask for them, one after the other."""
    try:
        return tuple(Measure(**row) for row in read_lines(path))
    except TypeError:
        raise RecordError(f"{path}: a line is not a measure; the file is damaged") from None


def _path(folder: Path, kind: str, step: int) -> Path:
    return folder / kind / f"{step}.safetensors"


def _numbers(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.safetensors") if path.stem.isdecimal()]


def _same(first: Any, second: Any) -> bool:
    return np.array_equal(first, second, equal_nan=True)


def _minus(first: Any, second: Any) -> Any:
    return np.asarray(first, np.float64) - np.asarray(second, np.float64)


def measured(
    step: int,
    stage: Stage,
    reference: Mapping[str, Any],
    candidate: Mapping[str, Any],
    eps: float = 0.0,
    weights: Mapping[str, Any] | None = None,
) -> list[Measure]:
    """Compare two sets of tensors by name. eps, weights: for what is elementwise, see `Measure.ulps`."""
    found = []
    for name in dict.fromkeys([*reference, *candidate]):
        only = (
            ""
            if name in reference and name in candidate
            else "reference"
            if name in reference
            else "candidate"
        )
        some = reference.get(name, candidate.get(name))
        ours, theirs = (
            np.asarray(s.get(name, np.zeros_like(some)), np.float64) for s in (reference, candidate)
        )
        if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
            same = ours.shape == theirs.shape and np.array_equal(ours, theirs, equal_nan=True)
            distance = 0.0 if same else math.inf
            found.append(Measure(step, stage, name, 0.0, distance, ulps=distance, only=only))
            continue
        norm = float(np.linalg.norm(ours))
        factor = float(np.vdot(ours, theirs)) / norm**2 if norm else 1.0
        ulps = 0.0
        if eps and ours.size:
            apart = np.abs(theirs - ours)
            if weights is not None:
                apart = np.maximum(apart - 4 * eps * np.abs(np.asarray(weights[name], np.float64)), 0)
            unit = eps * (np.abs(ours) + np.sqrt(np.mean(np.square(ours))))
            with np.errstate(divide="ignore", invalid="ignore"):
                ulps = float(np.max(np.where(apart > 0, apart / unit, 0)))
        rest = np.abs(theirs - factor * ours)
        if weights is not None:
            rest = np.maximum(rest - 4 * eps * np.abs(np.asarray(weights[name], np.float64)), 0)
        distance, left = float(np.linalg.norm(theirs - ours)), float(np.linalg.norm(rest))
        found.append(Measure(step, stage, name, norm, distance, factor, left, ulps, only))
    return found


def open_states(
    folder: Path,
    states: bool,
    follow: str | Path | None,
    framework: str,
    mapping: maps.Mapping | None,
    live: Live,
    refused: Callable[[], str | None],
) -> StateKeeper | Follower | None:
    """What a recorder asked for by `states=` and `follow=`; raises RecordError where it cannot be had."""
    if not states and follow is None:
        return None
    if states and follow is not None:
        why: str | None = "states= and follow= go not together"
    elif follow is not None and Path(follow).resolve() == folder.resolve():
        why = f"{follow} is where this run is recorded itself"
    else:
        why = refused()
    if why is not None:
        raise RecordError(f"{'follow' if follow is not None else 'states'}: {why}")
    return (
        StateKeeper(folder, live)
        if follow is None
        else Follower(folder, Path(follow), framework, mapping, live)
    )
