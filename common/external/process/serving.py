"""The child's side of an ExternalWorker: it holds one model of a user, and answers questions about it."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.base.package import MODULES
from parity.common.execution.pass_context import Context
from parity.common.execution.processes.service import Service
from parity.common.execution.processes.user_errors import blame
from parity.common.external.process.calling import check_tensors
from parity.common.external.process.changes import change_all, switch_rates
from parity.common.external.process.objective import batch_in_words, batch_of, compiled_of, evaluated, step_of
from parity.common.external.process.operations import Recording, Sought
from parity.common.external.process.pass_result import (
    Array,
    Arrays,
    same,
    tensors_in,
    with_tensors,
)
from parity.common.external.process.resolve import prepare_import_path
from parity.common.external.process.tapping import Tapped, Taps
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import ALONE, Term
from parity.common.spec.layers import KeyedDropout

# An error that names both is of a float32 tensor that meets a float64 one.
_MIXED = [re.compile(rf"\b({names})\b", re.IGNORECASE) for names in ("float|float32", "double|float64")]
# Units of rounding of the largest number that sums in another order may be apart.
_ROUNDING = 1000


def mixes_types(error: str) -> bool:
    """Whether the text of an error is of a float32 tensor that meets a float64 one."""
    return all(name.search(error) for name in _MIXED)


class Session(Service):
    """One model, and what can be asked about it: a public method for each question.

    about: what an error of the user's code is said to come from.
    """

    def __init__(self, framework: Literal["tensorflow", "torch"]) -> None:
        self._framework = framework
        self._model: Any = None
        self._target: Target | None = None
        self._precision = ""
        # By the number of a call in a pass, the way that its gradients take instead.
        self._altered: dict[int, str] = {}
        self._edits: Any = None
        self._build: Callable[[int], Any] | None = None
        self._seed = 0
        # How calls that drop are made: as they are, or by the masks of a plan and of a seed.
        self._keyed: tuple[list[KeyedDropout] | None, int] | None = None
        self._rows: dict[str, Any] = {}
        # By the mode of a pass, training or not, what takes the place of operations' results; and the recorded tensors.
        self._replaced: dict[bool, Arrays] = {True: {}, False: {}}
        self._values: list[Array] = []
        self.doing = "the process"

    def answer(self, question: str, arguments: dict[str, Any]) -> Any:
        """Call the method of a question; raises ExternalModelError where there is no model."""
        if question not in ("open", "build") and self._model is None:
            raise ExternalModelError(f"there is no model: {self._target} could not be built")
        self.about = str(self._target) if self._target else "the process"
        return super().answer(question, arguments)

    def explain(self, error: BaseException) -> str:
        """Return an error of the user's code in one line, and what to do where types meet."""
        mixed = self._precision == "float64" and mixes_types(str(error))
        hint = (
            "; somewhere its code makes float32 of what is float64 here: give it the type of the inputs"
            if mixed
            else ""
        )
        return f"{blame(error, self.about)}{hint}"

    def open(self, precision: str, folder: str, **model: Any) -> None:
        """Import the framework, stand where the user's code expects to be, and build the first model."""
        self.about = f"importing {self._framework}"
        self._precision = precision
        self._part("load").prepare(precision)
        prepare_import_path(Path(folder), self._framework)
        self.build(**model)

    def build(self, target: dict[str, Any], seed: int, exact: bool = False) -> None:
        """Build the model; the one before is gone, also where that fails."""
        self._model = None
        # An experiment on the one before is over, whatever became of it.
        if self._edits is not None:
            self._edits.clear()
            self._edits = None
        self._part("load").exact_constants(False)
        self._part("exact").EXACT.biased_variances = False
        self._altered, self._keyed, self._values = {}, None, []
        self._replaced = {True: {}, False: {}}
        self._target = Target(**target)
        self.about = str(self._target)
        self._build = partial(self._part("load").build, self._target, self._precision, exact=exact)
        self._seed = seed
        self._model = self._build(seed)

    def outline(self, inputs: Array | Arrays | None, optimizer: dict[str, Any] | None) -> dict[str, Any]:
        self.about = f"a forward pass of {self._target}"
        made = (
            None
            if optimizer is None
            else self._part("load").build_optimizer(Target(**optimizer), self._model)
        )
        outline = self._part("outline").outline(self._model, str(self._target), inputs, made)
        return dict(outline.to_dict())

    def read(self) -> Arrays:
        array_of = self._part("calling").array_of
        return {name: array_of(tensor) for name, tensor in self._part("names").stored(self._model).items()}

    def write(self, state: Arrays) -> None:
        names = self._part("names")
        stored = names.stored(self._model)
        check_tensors(stored, state)
        for name, array in state.items():
            names.assign(stored[name], array)

    def forward(self, **arguments: Any) -> dict[str, Any]:
        self.about = f"a forward pass of {self._target}"
        return self._pass(**arguments)

    def gradients(self, loss: list[dict[str, Any]], **arguments: Any) -> dict[str, Any]:
        self.about = f"a backward pass of {self._target}"
        parsed = [Term.parse(term) for term in loss]
        if any(term.loss is not None and (term.loss.l1 or term.loss.l2) for term in parsed):
            raise ExternalModelError(
                "l1 and l2 of a loss are no part of a user's model; take a loss without them"
            )
        return self._pass(**{"training": True, "loss": parsed, **arguments})

    def stochastic(self, inputs: Array | Arrays) -> list[str]:
        """The second pass has other random numbers, and each of its calls is followed by what the first pass gave: only
        what differs in isolation differs. A function that draws between layers is seen at the next layer behind it.
        """
        self.about = f"a forward pass of {self._target} in training"
        first = self._pass(inputs, training=True)["activations"]
        second = self._pass(inputs, training=True, inject=first, seed=1)["activations"]
        return [name for name, value in first.items() if not _is_rounded(value, second[name])]

    def repeated(self, inputs: Array | Arrays) -> float:
        self.about = f"a forward pass of {self._target} in training"
        with self._part("passes").remembering(self._model):
            first, second = (self._pass(inputs, training=True, taps=False)["outputs"] for _ in range(2))
        differ = [(value, second[name]) for name, value in first.items() if not same(value, second[name])]
        return max((tensor_deviation(*both) for both in differ), default=0.0)

    def fixed(self, inputs: Array | Arrays) -> Arrays:
        assert self._build is not None
        self.about = f"building {self._target} again"
        built = []
        for seed in (self._seed + 1, self._seed + 2):
            model = self._build(seed)
            self._part("passes").finish(model, inputs)
            array_of = self._part("calling").array_of
            stored = self._part("names").stored(model)
            built.append({name: array_of(tensor) for name, tensor in stored.items()})
        first, second = built
        return {name: value for name, value in first.items() if name in second and same(value, second[name])}

    def unregistered_parameters(self, inputs: Array | Arrays) -> list[str]:
        self.about = f"a forward pass of {self._target}"
        passes = self._part("passes")
        passes.finish(self._model, inputs)
        return list(passes.unregistered_parameters(self._model, inputs))

    def rates(self, optimizer: dict[str, Any], steps: int) -> list[list[float]] | None:
        target = Target(**optimizer)
        self.about = f"the learning rates of {target}"
        found: list[list[float]] | None = self._part("schedules").rates(target, self._model, steps)
        return found

    def update(
        self, optimizer: dict[str, Any], gradients: list[Arrays], rates: list[list[float]], keep: bool
    ) -> Arrays:
        """The trained tensors after one update by each set of gradients.

        rates: that each update is made by, of each parameter group or one of all; none: by the optimizer's own.
        """
        target = Target(**optimizer)
        self.about = f"an update by {target}"
        array_of, names = self._part("calling").array_of, self._part("names")
        trained = names.trained(self._model)
        for given in gradients:
            check_tensors(trained, given)
        made = self._part("load").build_optimizer(target, self._model)

        def begin(number: int) -> None:
            if rates:
                self._part("schedules").hold(made, rates[number])

        before = {name: array_of(tensor) for name, tensor in trained.items()}
        try:
            with self._bounding():
                names.update(made, trained, gradients, begin)
            return {name: array_of(tensor) for name, tensor in trained.items()}
        finally:
            if not keep:
                for name, tensor in trained.items():
                    names.assign(tensor, before[name])

    def _bounding(self) -> Any:
        """What ends code that runs too long with edits."""
        return nullcontext() if self._edits is None else self._edits.bounded()

    def by_rows(self, optimizer: dict[str, Any]) -> list[Arrays]:
        """The tensors of whose rows alone the latest pass had gradients, after one update by these, and by whole gradients."""
        array_of = self._part("calling").array_of
        every = self._rows, {name: array_of(rows) for name, rows in self._rows.items()}
        found = [self.update(optimizer, [each], [], False) for each in every if each]
        return [{name: each[name] for name in self._rows} for each in found]

    def dropout(self, on: bool) -> list[str]:
        return switch_rates(self._part("change").dropping(self._model), on)

    def dropped(self, inputs: Array | Arrays, training: bool) -> list[dict[str, Any]]:
        """The calls of a pass on inputs (batch, ...) that drop, in their order; none of them does so here."""
        self.about = f"a forward pass of {self._target}"
        seen: list[dict[str, Any]] = []
        self._pass(inputs, training=training, taps=False, dropped=seen)
        array_of = self._part("calling").array_of
        return [{**facts, "value": array_of(facts["value"])} for facts in seen]

    def key_dropout(self, plan: list[dict[str, Any]] | None, seed: int) -> None:
        """Give calls that drop their masks from now on; None: have them drop nothing."""
        self._keyed = (None if plan is None else [KeyedDropout.parse(each) for each in plan]), seed

    def exact_constants(self, on: bool) -> list[str]:
        rounded: list[str] = self._part("load").exact_constants(on)
        return rounded

    def biased_variances(self, on: bool) -> None:
        self._part("exact").EXACT.biased_variances = on

    def set(self, layer: str, setting: str, value: Any) -> Any:
        change = self._part("change")
        return change_all(change.layers(self._model), layer, setting, value, change.read, change.write)

    def gradient_paths(
        self, inputs: Array | Arrays, loss: list[dict[str, Any]] | None = None, **given: Any
    ) -> list[dict[str, Any]]:
        """The calls of a pass on inputs (batch, ...) in training, and of a loss, of which the gradients can go otherwise."""
        self.about = f"a forward pass of {self._target}"
        parsed = None if loss is None else [Term.parse(term) for term in loss]
        calls: list[dict[str, Any]] = []
        self._pass(inputs, loss=parsed, training=True, taps=False, calls=calls, **given)
        return calls

    def alter(self, call: int, way: str | None) -> str | None:
        """Have the gradients of a call go otherwise from now on, None: as they do; returns how they went until now."""
        old = self._altered.pop(call, None)
        if way is not None:
            self._altered[call] = way
        return old

    def code_edits(
        self, lines: list[str], others: list[str], numbers: list[float], functions: list[str]
    ) -> dict[str, list[tuple[str, str, str]]]:
        """The edits that lines of the user's code could have, and others that it is asked for."""
        if self._edits is None:
            assert self._build is not None
            build = partial(self._build, self._seed)
            self._edits = self._part("experiments.code_edits").CodeEdits(self._model, build)
        found: dict[str, list[tuple[str, str, str]]] = self._edits.of(lines, others, numbers, functions)
        return found

    def edit_code(self, line: str, number: int, on: bool) -> None:
        """Have an edit of a line in force from now on, or not; raises ExternalModelError where code cannot run so."""
        try:
            self._edits.set(line, number, on)
        except ValueError as error:
            raise ExternalModelError(str(error)) from error

    def busy(self) -> float:
        return time.process_time()

    def edited(self, line: str) -> tuple[str, str]:
        """A line's statement as it is written, and as it runs now."""
        found: tuple[str, str] = self._edits.now(line)
        return found

    def operations(
        self, inputs: Array | Arrays, training: bool, loss: list[dict[str, Any]] | None = None, **given: Any
    ) -> dict[str, Any]:
        """The operations of a pass on inputs (batch, ...), and fingerprints and shapes of their tensors."""
        self.about = f"a forward pass of {self._target}"
        parsed = None if loss is None else [Term.parse(term) for term in loss]
        made: list[Recording] = []
        self._pass(inputs, loss=parsed, training=training, recordings=made, **given)
        (recording,) = made
        self._values = recording.values
        return dict(recording.told())

    def seen(
        self,
        prints: Array,
        inputs: Array | Arrays,
        training: bool,
        loss: list[dict[str, Any]] | None = None,
        **given: Any,
    ) -> list[int]:
        """Which of some tensors, by their fingerprints (tensors, FINGERPRINT), a pass on inputs (batch, ...) gives, and its loss."""
        self.about = f"a forward pass of {self._target}"
        parsed = None if loss is None else [Term.parse(term) for term in loss]
        sought = Sought(prints)
        self._pass(inputs, loss=parsed, training=training, taps=False, sought=sought, **given)
        return sorted(sought.found)

    def operation_values(self, numbers: list[int]) -> list[Array]:
        """The tensors of the recorded pass with these numbers."""
        return [self._values[number] for number in numbers]

    def replace(self, key: str, training: Array | None, inference: Array | None) -> None:
        """Have an operation give other values from now on, of its result's shape, by mode; None: its own."""
        for mode, array in ((True, training), (False, inference)):
            self._replaced[mode].pop(key, None)
            if array is not None:
                self._replaced[mode][key] = array

    def _pass(
        self,
        inputs: Array | Arrays,
        targets: Arrays | None = None,
        loss: Sequence[Term] | None = None,
        *,
        sample_weights: Array | None = None,
        training: bool = False,
        taps: Taps = True,
        inject: Arrays | None = None,
        send: Arrays | None = None,
        seed: int = 0,
        keep: bool = False,
        also: Sequence[str] = (),
        calls: list[dict[str, Any]] | None = None,
        dropped: list[dict[str, Any]] | None = None,
        recordings: list[Recording] | None = None,
        sought: Sought | None = None,
    ) -> dict[str, Any]:
        """The fields of a `PassResult`; with a loss, of its gradients too. The model is left as it was.

        calls: filled with those of which the gradients can go otherwise. dropped: filled with the calls that drop.
        recordings: filled with one, of the operations. also: frozen tensors of which gradients are taken too.
        """
        model, calling, passes = self._model, self._part("calling"), self._part("passes")
        passes.finish(model, inputs)
        # Calls are numbered as in a pass with a loss, where a block without gradients is one.
        tapped: Tapped = passes.LiveTaps(taps, inject, loss is not None or calls is not None, send)
        gradients: dict[str, Any] = {}
        every = self._part("names").tensors(model) if also else {}
        frozen = {name: every[name] for name in also}
        altering: Any = nullcontext()
        keying: Any = nullcontext()
        if self._keyed is not None or dropped is not None:
            plan, of = self._keyed or (None, 0)
            first = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs
            ids = calling.tensor_of(np.arange(len(first)))
            context = Context(training, of, seed, ids)
            keying = self._part("dropout").keyed(
                model, None if dropped is not None else plan, context, dropped
            )
        if self._altered or calls is not None:
            altering = self._part("experiments.gradient_paths").altered(self._altered)
        watching: Any = nullcontext()
        if sought is not None:
            watching = self._part("experiments.watching").watching(sought)
        recording: Any = nullcontext()
        if recordings is not None or self._replaced[training]:
            replaced = self._replaced[training]
            recording = self._part("operations").recorded(model, replaced, recordings is not None)
        step = step_of(loss or ())
        moved: Arrays = {}
        with (
            self._bounding(),
            self._moving(moved, keep) if step is not None else nullcontext(),
            passes.prepared(model, training, seed, keep) as changed,
            passes.visited(model, tapped, training),
            keying as dropping,
            passes.watched(tapped, list(frozen.values())),
            altering as altered,
            recording as recorded,
            watching,
        ):
            tapped.recording = recorded
            if dropping is not None:
                dropping.recording = recorded
            if recorded is not None and recordings is not None:
                recordings.append(recorded)
            named = {name: calling.tensor_of(_numbers(target)) for name, target in (targets or {}).items()}
            weights = None if sample_weights is None else calling.tensor_of(sample_weights)
            if step is None:
                # What an output is made into besides is no part of what the loss sends back to it.
                given = with_tensors(
                    calling.call(model, inputs, training), calling.is_tensor, calling.as_given_to_loss
                )
            else:
                arrays = inputs if isinstance(inputs, dict) else {ALONE: inputs}
                batch = batch_of({n: calling.tensor_of(a) for n, a in arrays.items()}, named, weights)
                self.about = f"the step {step}, which is given {batch_in_words(batch)} as train_step is,"
                given = {
                    "loss": self._part("own_step").loss(step, model, batch, compiled=compiled_of(loss or ()))
                }
            # Of a step, its loss decides: what the model itself gives is compared in inference.
            outputs = tensors_in(given, calling.is_tensor) if step is None else {}
            if recorded is not None:
                # A loss of ours is one formula in either framework.
                recorded.over = not any(term.own is not None for term in loss or ())
            added = self._part("own_loss").added(model)
            tapped.check_used()
            if loss is not None and targets is not None:
                total, count, means = evaluated(
                    loss,
                    given,
                    outputs,
                    named,
                    weights,
                    losses=importlib.import_module(f"{MODULES[self._framework]}.losses"),
                    own_loss=self._part("own_loss"),
                    added=added,
                )
                for each in filter(None, (altered, recorded)):
                    each.over = True
                if sought is None:
                    trained = self._part("names").trained(model) | frozen
                    gradients = tapped.gradients(total / count, trained, outputs)
                    self._rows = {name: tapped.rows[n] for n, name in enumerate(trained) if n in tapped.rows}
                gradients |= {"loss_sum": float(total), "count": float(count)}
                gradients["terms"] = {name: float(mean) for name, mean in means.items()}
            if calls is not None:
                calls += altered.found
        return {
            "outputs": {name: calling.array_of(tensor) for name, tensor in outputs.items()},
            "activations": tapped.activations,
            "buffers": changed | moved,
            "penalty": float(added),
            **gradients,
        }

    @contextmanager
    def _moving(self, moved: Arrays, keep: bool) -> Iterator[None]:
        """A training step, which may move weights itself, as those of a target net: `moved` is filled with those that count as trained."""
        array_of, names = self._part("calling").array_of, self._part("names")
        before = {name: array_of(tensor) for name, tensor in names.trained(self._model).items()}
        try:
            yield
        finally:
            now = names.trained(self._model)
            after = {name: array_of(now[name]) for name in before if name in now}
            moved |= {name: value for name, value in after.items() if not same(value, before[name])}
            for name in moved if not keep else ():
                names.assign(now[name], before[name])

    def _part(self, name: str) -> Any:
        return importlib.import_module(f"{MODULES[self._framework]}.external.{name}")


def _is_rounded(one: Array, other: Array) -> bool:
    """Whether two tensors of any shape are the same but for rounding: of what is injected another layout in memory may be summed up otherwise."""
    if same(one, other) or one.shape != other.shape or one.dtype.kind not in "fc":
        return same(one, other)
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other)
    return bool(np.max(apart) <= _ROUNDING * np.finfo(one.dtype).eps * np.max(np.abs(one)))


def _numbers(array: Array) -> Array:
    return array if array.dtype.kind == "f" else array.astype(np.int64)
