"""What the recorders of both frameworks share: the record of a training that someone's own script makes.

A recorder only reads. Where numbers lie on a device, a step's are read a few steps later, so that nothing waits.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from typing_extensions import Self

from parity.common.base.errors import RecordError
from parity.common.base.plain import print_error
from parity.common.record.files import write_json
from parity.common.record.followed import Follower, Measure, StateKeeper, spans
from parity.common.record.header import STEP_FIELDS, claim_folder, header_of, remove_record, write_summary
from parity.common.record.invariants import ViolationWriter
from parity.common.record.samples import Ids, SampleWriter
from parity.common.record.script_checks import Observer, ScriptChecks, StepObservation
from parity.common.record.script_taps import Fingerprint, TapWriter, is_tapped
from parity.common.record.writer import ROW
from parity.common.spec import Placement, ScriptInfo
from parity.common.spec.external.mapping import Mapping, read_mapping
from parity.common.spec.external.outline import OptimizerInfo, Outline
from parity.common.state.canonical import State, save_state

NAN = math.nan
OUTLINE, NOTES = "outline.json", "notes.json"
Written = TypeVar("Written")
# Norms cost passes over all tensors. They are recorded at every step while that takes no more than this share of
# a step, else at every 2nd, 4th, ..., but for the first steps, in which a run says most of itself.
SHARE = 0.005
ALWAYS, RAREST = 8, 1024
_REMEMBERED = 8


class Pace:
    """At which steps norms are recorded: multiples of a power of two, so that two records share most of them."""

    def __init__(self, every: int | None) -> None:
        """`every`: such a number, which then stays; None goes by what the norms cost."""
        if every is not None and not (isinstance(every, int) and 0 < every <= RAREST):
            raise RecordError(f"every={every!r}: a recorder takes a whole number from 1 to {RAREST}, or None")
        self._fixed, self.every = every is not None, every or 1
        self._costs: deque[float] = deque(maxlen=_REMEMBERED)
        self._steps: deque[float] = deque(maxlen=_REMEMBERED)

    def wants(self, step: int) -> bool:
        """Whether this step's norms are recorded."""
        return step % self.every == 0 or (step < ALWAYS and not self._fixed)

    def took(self, seconds: float, cost: float) -> None:
        """What a step took, all in all, and of that its norms: 0 where they were not recorded."""
        if self._fixed:
            return
        self._steps.append(seconds - cost)
        if cost:
            self._costs.append(cost)
        if len(self._costs) > 1:  # the first one made buffers
            share = min(self._costs) / max(statistics.median(self._steps), 1e-9) / SHARE
            self.every = min(RAREST, 1 << max(0, math.ceil(math.log2(share))))


class LayerTaps(Protocol):
    """What watches the layers of a framework's model.

    open: a step begins, which is tapped or not. end_pass: a micro-batch is over. table: what the layers gave in the
    step at hand.
    """

    def open(self, wanted: bool) -> None: ...
    def end_pass(self) -> None: ...
    def close(self) -> None: ...
    def table(self) -> Any: ...


# Of micro-batches: a loss and how much it counts for, and the count, as the framework holds them.
Sums = list[tuple[Any, Any, Any]]


class Row(NamedTuple):
    """A step that is over. `handle`: its numbers as the framework holds them, read by `ScriptRecorder._read`."""

    handle: Any
    seconds: float
    ids: Ids | None


class ScriptRecorder:
    """Writes one record; the recorders of the frameworks derive from it.

    It has no thread and no file open but those of its record. A disk that is full ends the recording with one line
    on standard error, and not the training.
    """

    def __init__(
        self,
        out: str | Path | None,
        script_info: ScriptInfo,
        facts: dict[str, Any],
        order: int | None,
        every: int | None,
        lag: int,
        states: StateKeeper | Follower | None = None,
        observer: Observer | None = None,
        overwrite: bool = False,
    ) -> None:
        """Begin a record.

        Args:
            out: a new folder; None records nothing (ranks but the first).
            script_info: what is known of the script.
            facts: versions, devices and threads, for the header.
            order: where the script was run with its batches permuted, to measure rounding: which time.
            every: as `Pace`.
            lag: after how many further steps a step's numbers are read.
            states: what keeps this script's states, or has it follow another's.
            observer: of the model, for the checks.
            overwrite: an earlier record in the folder is removed.

        Raises:
            RecordError: the folder holds something, or cannot be made.
        """
        self.pace = Pace(every)
        self.count = 0  # of steps so far
        self._every = every
        self._layers: LayerTaps | None = None
        self._states: StateKeeper | Follower | None = states
        self._observer = observer or Observer()
        self._checks = ScriptChecks(script_info, self._observer)
        self._folder = Path(out or "")
        self._lag = lag
        self._chunk = 1  # rows that are read and written together
        self._pending: deque[Row] = deque()
        self._steps: IO[bytes] | None = None
        self._samples: SampleWriter | None = None
        self._taps = TapWriter(self._folder / "taps")
        self._violations = ViolationWriter(self._folder / "violations", 0)
        # Whether there is a record to write: on the first rank, while the disk has room.
        self.writes = out is not None
        self._sums: Sums = []
        self._parts: list[Ids] = []
        self._batch_ids: Any = None  # of the batch at hand, where the recorder gives the batches
        if self.writes:
            if overwrite:
                remove_record(self._folder)
            claim_folder(
                self._folder, "choose a new folder, or give overwrite=True to replace an earlier record"
            )
            placement = Placement(
                framework="tensorflow" if script_info.naming == "keras" else "torch",
                strategy="single",
                sample_order_seed=order,
            )
            write_json(self._folder / "header.json", header_of(script_info, placement, facts).to_dict())
            self._steps = open(self._folder / "steps.f64", "xb", buffering=0)
        if isinstance(states, Follower) and self.writes:
            print_error(
                f"parity: {out} follows {states.reference}: at steps {spans(states.steps)} it starts from that script's weights and"
                " updates by its gradients, which changes this training"
            )
        self._began = self._last = time.perf_counter()

    @property
    def taps_now(self) -> bool:
        """Whether layers are tapped at the step at hand; the same on every rank."""
        return is_tapped(self.count, self._every)

    def add(self, loss: Any = None, count: float = 0, ids: Any = None, *, loss_sum: Any = None) -> None:
        """Add a micro-batch of the current step; the last one goes to `step`, which has the same arguments.

        Raises:
            RecordError: not just one of `loss` and `loss_sum` is given, the loss is not one number, or there is no count.
        """
        if (loss is None) == (loss_sum is None) or not count > 0:
            raise RecordError(
                f"step {self.count}: give the mean loss or loss_sum=, and count=, how many samples it is of"
            )
        given = loss if loss_sum is None else loss_sum
        if math.prod(getattr(given, "shape", ())) != 1:
            raise RecordError(
                f"step {self.count}: the loss is one number, received one of shape {given.shape}"
            )
        for _ in getattr(given, "shape", ()):
            given = given[0]  # of shape (1,), as code that adds a list of penalties has it
        self.add_part(given, 1.0 if loss is None else float(count), float(count), ids)

    def add_part(self, loss: Any, weight: float, count: float, ids: Any = None) -> None:
        """As `add`, of a loss that counts `weight` times in the sum, and of `count` samples more."""
        self._add(loss, weight, count)
        if ids is None:
            ids, self._batch_ids = self._batch_ids, None
        if ids is not None:
            self._parts.append(self._ids(self._host(ids)))

    def _add(self, loss: Any, weight: Any, count: Any) -> None:
        self._sums.append((self._kept(loss), weight, count))
        if self._layers is not None:
            self._layers.end_pass()

    def _added(self) -> tuple[Sums, Ids | None]:
        """Losses and ids of the step at hand, which is over."""
        if not self._sums:
            raise RecordError(f"step {self.count}: no loss and no count were given, to step() or to add()")
        found = self._sums, np.concatenate(self._parts) if self._parts else None
        self._sums, self._parts = [], []
        return found

    def _kept(self, value: Any) -> Any:
        """A loss that is read later, safe from being changed; on the CPU a number at once."""
        raise NotImplementedError

    def _host(self, ids: Any) -> Any:
        """Ids as NumPy takes them."""
        raise NotImplementedError

    def _read(self, handle: Any) -> Sequence[float]:
        """(loss sum, count, learning rate, norms of gradient, parameters, update) of a handle; waits for them."""
        raise NotImplementedError

    def _final_state(self) -> State:
        """The model's state after the last step."""
        raise NotImplementedError

    def _unwatch(self) -> None:
        """Leave the model and the optimizer as they were."""
        if self._layers is not None:
            self._layers.close()
        self._observer.close()

    def finish(self, evaluation: tuple[float, float, int] | None = None) -> None:
        """Write what is left and the final state, and mark the record complete. Again, it does nothing.

        evaluation: (loss sum, samples, correct ones) after the last step, where there was one.
        """
        self._unwatch()
        if not self.writes:
            return
        self._write_up_to(0)
        self._guarded(self._violations.write, self._checks.finish())
        if self._checks.notes:
            self._guarded(write_json, self._folder / NOTES, self._checks.notes)
        # Of sharded parameters there is none, and an empty one would be a state of other names.
        if final := self._final_state():
            self._state("final", {**final, "step": np.array(self.count, np.int64)})
            if isinstance(self._states, Follower):
                self._states.finish(self.count)
                self._guarded(self._states.write, self._states.taken())
        if not self.writes:
            return
        if isinstance(self._states, StateKeeper) and self.count and not self._states.saw_any:
            print_error(
                f"parity: {self._folder}: no gradients were seen, so that no script can follow this one; give the recorder the optimizer that is stepped"
                " (of one around another, that one), or call before_update() after backward"
            )
        seconds, evaluated = self._last - self._began, evaluation or (NAN, 0.0, 0)
        self._guarded(write_summary, self._folder, self.count, seconds, evaluated)
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # What an exception has ended did not finish.
        if kind is None:
            self.finish()
        else:
            self._unwatch()
            self._abandon()

    def _state(self, which: str, state: State) -> None:
        """Write a state: 'initial', 'first_gradients' or 'final'."""
        self._guarded(save_state, self._folder / f"{which}.safetensors", state)

    def _write_outline(
        self, describe: Callable[[], Outline], optimizers: Callable[[], list[OptimizerInfo]]
    ) -> None:
        """Write what the model and its optimizers consist of, for the diagnosis; what cannot be read has none."""
        if not self.writes:
            return
        try:
            outline, infos = describe(), optimizers()
            of = {"optimizer": infos[0]} if len(infos) == 1 else {"optimizers": tuple(infos)}
            text = outline.model_copy(update=of).to_dict()
        except Exception as error:  # code of the user's own model, which a recorder must not stop
            text = {"error": f"{type(error).__name__}: {error}"}
        self._guarded(write_json, self._folder / OUTLINE, text)

    def _end_step(self, handle: Any, given: Ids | None, cost: float) -> None:
        """A step is over: keep what it left, and write what can be read by now."""
        if self.count == 0 and given is not None:
            self._samples = self._guarded(SampleWriter, self._folder / "sample_ids", None, range(1))
        elif self.count and self.writes and (given is None) != (self._samples is None):
            raise RecordError(
                f"step {self.count}: ids must be given at every step or at none, and at the first one there were"
                f" {'none' if self._samples is None else 'some'}"
            )
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        self.pace.took(seconds, cost)
        if self.writes:
            self._pending.append(Row(handle, seconds, given))
        self._guarded(self._violations.write, self._checks.step(self.count, self._observed()))
        self._end_states()
        # Also where the disk is full: ranks agree on the steps that are tapped by counting them.
        self.count += 1
        if self.writes and len(self._pending) >= self._lag + self._chunk:
            self._write_up_to(self._lag)
        if self._layers is not None:
            self._layers.open(self.taps_now)
        self._begin_step()

    def _observed(self) -> StepObservation:
        """What is checked of the step that ends."""
        return self._observer.observe()

    def _begin_step(self) -> None:
        """A step begins: its state is kept, or replaced by the reference's."""
        if self._states is not None:
            self._keep_or_follow(self._states.begin, self.count)

    def _end_states(self) -> None:
        """A step is over: what it left is measured, where it follows a reference's."""
        if self._states is not None:
            self._keep_or_follow(self._states.end, self.count)
        if isinstance(self._states, Follower):
            self._guarded(self._states.write, self._of_ranks(self._states.taken()))

    def _of_ranks(self, measures: list[Measure]) -> list[Measure]:
        """What all ranks measured, of what this one did."""
        return measures

    def _keep_or_follow(self, act: Callable[..., Written], *arguments: Any) -> Written | None:
        """What the states' keeper or follower does. All ranks follow, and go on with it where there is nothing more to write to."""
        return act(*arguments) if isinstance(self._states, Follower) else self._guarded(act, *arguments)

    def _evaluates(self) -> None:
        """The model is evaluated before the step at hand, which a reference may keep for that."""
        if isinstance(self._states, StateKeeper):
            self._guarded(self._states.evaluates, self.count)

    def _write_taps(self, fingerprints: dict[str, Fingerprint]) -> None:
        """What the layers gave at the step at hand, which is about to end."""
        if fingerprints:
            self._guarded(self._taps.write, self.count, fingerprints)

    def _ids(self, ids: Any) -> Ids:
        array = np.asarray(ids)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise RecordError(
                f"step {self.count}: ids are whole numbers, one a sample; received {array.dtype} of shape"
                f" {array.shape}"
            )
        return array.astype(np.int64, copy=False)

    def _fetch(self, rows: int) -> None:
        """The first rows that are held are about to be read: what can be fetched for all of them at once."""

    def _write_up_to(self, left: int) -> None:
        if len(self._pending) > left:
            self._fetch(len(self._pending) - left)
        while len(self._pending) > left:
            self._guarded(self._write_first)

    def _write_first(self) -> None:
        row, step = self._pending.popleft(), self.count - len(self._pending) - 1
        numbers = self._read(row.handle)
        if self._samples is not None:
            self._samples.write(step, [row.ids if row.ids is not None else np.empty(0, np.int64)])
        assert self._steps is not None
        self._steps.write(ROW.pack(step, *numbers, 1.0, row.seconds))
        self._violations.write(self._checks.numbers(step, *numbers))

    def _guarded(self, write: Callable[..., Written], *arguments: Any) -> Written | None:
        """What `write` returns; where the disk is full, say so and record no further. Without a record, nothing."""
        try:
            return write(*arguments) if self.writes else None
        except OSError as error:
            print_error(f"parity: {self._folder}: recording ends here: {error}")
            self._pending.clear()
            self._close()
            return None

    def _abandon(self) -> None:
        """Write the steps that are over and leave the record unfinished."""
        if self.writes:
            self._write_up_to(0)
            self._close()

    def _close(self) -> None:
        self.writes = False
        for file in (self._steps, self._samples, self._taps, self._violations):
            if file is not None:
                file.close()


def check_unused(recorder: ScriptRecorder | None, method: str) -> None:
    """Raise RecordError where a callback has recorded a call of such a method already."""
    if recorder is not None:
        raise RecordError(
            f"a callback records one call of {method}, and this one has done so: give each call a callback and a folder of its own"
        )


def optimizers_of(given: Any) -> list[Any]:
    """What a recorder was given as optimizer: none, one, or several."""
    several = given if isinstance(given, list | tuple) else [given]
    return [each for each in several if each is not None]


def mapping_of(given: str | Path | Mapping | None) -> Mapping | None:
    """What a recorder was given as mapping: the file is read."""
    return read_mapping(Path(given)) if isinstance(given, str | Path) else given


def chosen_layers(known: Sequence[str], wanted: bool | Sequence[str]) -> list[str]:
    """The layers to tap, of those that a model has; raises RecordError where it has none of such a name."""
    if isinstance(wanted, bool):
        return list(known) if wanted else []
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    missing = [name for name in names if name not in known]
    if missing:
        raise RecordError(f"taps: the model has no layer {missing[0]!r}; it has {', '.join(known) or 'none'}")
    return [name for name in known if name in names]


def precision_of(types: Iterable[str]) -> str:
    """The precision of a TrainSpec by the types of all parameters, as the framework writes them.

    Raises:
        RecordError: they are of several types, or of one that is no precision by itself.
    """
    found = {*types}
    precision = "".join(found).removeprefix("torch.")
    if len(found) != 1 or precision not in ("float64", "float32"):
        shown = ", ".join(sorted(found)) or "none at all"
        raise RecordError(f"the parameters' types are {shown}: say precision=, such as 'bfloat16_mixed'")
    return precision


def norm(value: float) -> float:
    """A norm as the record has it: NaN stands for one that was not taken, so one that is NaN becomes infinite."""
    return math.inf if math.isnan(value) else value


def check_settings(settings: dict[str, Any] | None) -> dict[str, Any]:
    """What is written down of a script, as plain values; others as text."""
    plain = (bool, int, float, str, type(None))
    return {
        str(name): value if isinstance(value, plain) else str(value)
        for name, value in (settings or {}).items()
    }


assert len(STEP_FIELDS) == 8  # the order in which rows are packed above
