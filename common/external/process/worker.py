"""A process that holds one user's model and answers: what it is, its tensors, passes, updates, experiments.

    with ExternalWorker("tensorflow", "my_pkg.models:build") as side:
        outline = side.outline(inputs)
        passed = side.forward(inputs)

The model is imported only there. Whatever goes wrong there is one line of ExternalModelError here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from typing_extensions import Unpack

from parity.common.base.errors import ExternalModelError
from parity.common.execution.interpreters import python_of, require
from parity.common.execution.processes.child import Child
from parity.common.external.process import serving
from parity.common.external.process.objective import BatchLoss, terms_of
from parity.common.external.process.pass_result import Array, Arrays, PassResult
from parity.common.external.process.tapping import Taps
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import ALONE, Term
from parity.common.spec.layers import KeyedDropout
from parity.common.spec.losses import LossBase
from parity.common.spec.strategies import Framework

_PRECISIONS = ("float64", "float32")


class PassOptions(TypedDict, total=False):
    """How a pass is made.

    training: its mode, and the model is left in the one that it was in; by default only with gradients.
    taps: whether to give activations, which is the default, or the names of those wanted.
    inject: what takes the place of outputs, by tap name, in the model's own layout; gradients go on to the layer as if
        it had given that.
    send: gradients that go on to layers instead of what comes back to their outputs, likewise.
    seed: of the random numbers of the pass, by default 0.
    keep: whether buffers keep what the pass made of them; else they are restored.
    also: names of frozen tensors of which gradients are taken too.
    """

    training: bool
    taps: Taps
    inject: Arrays | None
    send: Arrays | None
    seed: int
    keep: bool
    also: Sequence[str]


class ExternalWorker:
    """A child process with one model. Use as a context manager. Questions may be asked from any thread.

    target: what it holds. framework: whose process it is. timeout_seconds: after so long without an answer the process is ended.
    alterations: how often something was asked by which passes may give other numbers from then on.
    """

    def __init__(
        self,
        framework: Framework,
        target: str | Target,
        *,
        precision: str = "float64",
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        """Start the process and have it build the model, without waiting: the first question waits, and says
        what is wrong with the model. So two workers start side by side.

        Args:
            framework: of the model.
            target: package.module:attribute, of a model or of what gives one when called.
            precision: 'float64' or 'float32'.
            seed: of initial values.
            folder: where the user's modules are found, besides PYTHONPATH; default: the working folder.

        Raises:
            ExternalModelError: target is no name of something; an unknown precision; no such folder.
            MissingPackageError: the framework is not installed.
        """
        require(framework)
        if precision not in _PRECISIONS:
            raise ExternalModelError(f"precision is one of {', '.join(_PRECISIONS)}; received {precision!r}")
        working = (folder or Path.cwd()).resolve()
        if not working.is_dir():
            raise ExternalModelError(f"{working}: no such folder; give the one that the model's module is in")
        self.framework: Framework = framework
        self.target = _target(target)
        self.timeout_seconds = 600.0
        self.alterations = 0
        # Outputs that are for the loss alone, and are not compared.
        self.loss_terms: frozenset[str] = frozenset()
        # What operations give instead of their own, by key.
        self._replaced: dict[str, tuple[Array | None, Array | None]] = {}
        self._lock = threading.Lock()
        self._failed: str | None = None
        self._owed = True
        self._child = Child(
            f"{serving.__name__}:{serving.Session.__name__}",
            framework,
            python=python_of(framework),
            name=self._name(),
            error=ExternalModelError,
            cwd=working,
            variables=_VARIABLES,
        )
        opening = {"precision": precision, "folder": str(working)}
        self._child.send("open", {**opening, "target": self.target.to_dict(), "seed": seed})

    def __enter__(self) -> ExternalWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self, target: str | Target, *, seed: int = 0, exact: bool = False) -> None:
        """Build another model in the same process, in the place of the one before.

        exact: float64 also where its code says float32: the user's modules are imported again, where they were imported otherwise. Raises
        ExternalModelError where the model cannot be built; the process then holds none.
        """
        with self._lock:
            try:
                self._wait_for_model()
            except ExternalModelError:
                if not self._child.running:
                    raise
            # Loaded again, as with its code in float64, it gives what it gave.
            if self.target != _target(target):
                self.loss_terms = frozenset()
            self.target, self._failed = _target(target), None
            self._replaced.clear()
            self._child.name = self._name()
            self._child.send("build", {"target": self.target.to_dict(), "seed": seed, "exact": exact})
            self._owed = True
            self._wait_for_model("build")

    def outline(self, inputs: Array | Arrays | None = None, optimizer: str | Target | None = None) -> Outline:
        """What the model consists of; with inputs (batch, ...), of one traced pass, which also builds a lazy model."""
        target = None if optimizer is None else _target(optimizer).to_dict()
        return Outline.parse(self._ask("outline", inputs=_arrays(inputs), optimizer=target))

    def read(self) -> Arrays:
        """All weights and buffers by native name; a tied tensor under each of its names."""
        return dict(self._ask("read"))

    def write(self, state: Arrays) -> None:
        """Set tensors by native name; those that are not named stay. Raises ExternalModelError for a name or shape."""
        self._ask("write", state=_with_shapes(state))

    def forward(self, inputs: Array | Arrays, **options: Unpack[PassOptions]) -> PassResult:
        """Return outputs and activations of a pass.

        Args:
            inputs: one array or arrays by name, (batch, ...); `calling.arrange` says how they are handed over.

        Raises:
            ExternalModelError: the model does not take these inputs, or a name in `inject` is of no call.
        """
        return self._passed("forward", inputs, options)

    def gradients(
        self,
        inputs: Array | Arrays,
        targets: Array | Arrays,
        loss: LossBase | Sequence[Term],
        sample_weights: Array | None = None,
        **options: Unpack[PassOptions],
    ) -> PassResult:
        """Return a pass, its loss, and the gradients of loss_sum / count; arguments as of `forward`.

        What the model itself adds to the loss is left out of the gradients; the result has it as `penalty`.

        Args:
            targets: (batch, ...), for the one output, or by name; the means of several losses are added up.
            loss: resolved, without l1 and l2; or what is added up.
            sample_weights: (batch,), or None.

        Raises:
            ExternalModelError: as `forward`; or no output suits the targets or the loss.
        """
        terms = [term.to_dict() for term in terms_of(loss, targets)]
        named = _arrays(targets if isinstance(targets, dict) else {ALONE: targets})
        question = {"targets": named, "loss": terms, "sample_weights": sample_weights}
        return self._passed("gradients", inputs, options, **question)

    def stochastic(self, inputs: Array | Arrays) -> list[str]:
        """Tap names of the calls that draw random numbers in training: two passes differ there by themselves."""
        return list(self._ask("stochastic", inputs=_arrays(inputs)))

    def repeated(self, inputs: Array | Arrays) -> float:
        """How far the outputs of a second pass in training are from those of the first, of the same random numbers: what one leaves behind."""
        return float(self._ask("repeated", inputs=_arrays(inputs)))

    def fixed(self, inputs: Array | Arrays) -> Arrays:
        """The weights and buffers, in their shapes, that come out the same whenever the model is built, by native name. `inputs` (batch, ...): for a
        lazy model. Raises ExternalModelError where it cannot be built again.
        """
        return dict(self._ask("fixed", inputs=_arrays(inputs)))

    def rates(self, optimizer: str | Target, steps: int) -> list[list[float]] | None:
        """Return the learning rates of each of the first steps, by a schedule or a scheduler; None where they stay.

        Of each step those of all parameter groups: one of Keras's.

        Args:
            optimizer: what makes it, as of `update`; torch's may give a scheduler with it, which is stepped after each update.
            steps: how many.

        Raises:
            ExternalModelError: the optimizer cannot be made, or the rates are not known before the training.
        """
        found: list[list[float]] | None = self._ask(
            "rates", optimizer=_target(optimizer).to_dict(), steps=steps
        )
        return found

    def update(
        self,
        optimizer: str | Target,
        gradients: Arrays | Sequence[Arrays],
        *,
        rate: float | Sequence[float] | None = None,
        shares: Sequence[float] = (1.0,),
        keep: bool = False,
    ) -> Arrays:
        """Return the trained tensors after updates by given gradients, with a new optimizer of the user's.

        Args:
            optimizer: what makes it: for torch called with the parameters, for Keras without (with the model
                where the first parameter is called so).
            gradients: by native name, of the tensor's shape; of one update or of several. A tensor that is left out has
                no gradient in that update.
            rate: the learning rate of every update, or of each in turn; None: the optimizer's own.
            shares: of this rate, that each of torch's parameter groups has; one for all.
            keep: whether the model stays updated; else it is restored.

        Raises:
            ExternalModelError: the optimizer cannot be made, a name or a shape is wrong.
        """
        sets = [gradients] if isinstance(gradients, dict) else gradients
        each = list(map(_with_shapes, sets))
        held = list(rate) if isinstance(rate, Sequence) else [rate] * len(each)
        rates = [[one * share for share in shares] for one in held if one is not None]
        question = {
            "optimizer": _target(optimizer).to_dict(),
            "gradients": each,
            "rates": rates,
            "keep": keep,
        }
        return dict(self._ask("update", **question))

    def by_rows(self, optimizer: Target) -> list[Arrays]:
        """Return tables, of whose rows alone the latest pass had gradients, after an update by these as stock Keras makes it, and by whole gradients.

        Nothing where there are none; there are none in torch, which sums them up first.
        """
        return list(self._ask("by_rows", optimizer=optimizer.to_dict()))

    def unregistered_parameters(self, inputs: Array | Arrays) -> list[str]:
        """Trained tensors that a pass on inputs (batch, ...) uses and no optimizer is given: the model does not own them."""
        return list(self._ask("unregistered_parameters", inputs=_arrays(inputs)))

    def set(self, layer: str, setting: str, value: Any) -> Any:
        """Change a canonical setting of a live layer, for an experiment; returns the old value.

        layer may be a pattern with '*': then all layers that it fits and that have the setting, and the old values
        by path. What cannot be changed on a built model is refused with ExternalModelError.
        """
        old = self._ask("set", layer=layer, setting=setting, value=value)
        return {path: _setting(was) for path, was in old.items()} if isinstance(old, dict) else _setting(old)

    def dropout(self, on: bool) -> list[str]:
        """Have no layer drop anything in training, or all as before; gives the paths of the layers changed.

        It goes by what layers call their rates; `stochastic` says whether anything is left that draws.
        """
        return list(self._ask("dropout", on=on))

    def dropped(self, inputs: Array | Arrays, *, training: bool) -> list[dict[str, Any]]:
        """The calls of a pass on inputs (batch, ...) that drop, in their order, and those that would if they were on.

        Of each: owner, the layer it is called in; rate; shared, the axes along which elements are dropped together;
        active, whether it drops in this pass; value, what it is given where nothing before it drops.
        """
        return list(self._ask("dropped", inputs=_arrays(inputs), training=training))

    def key_dropout(self, plan: Sequence[KeyedDropout] | None, seed: int = 0) -> None:
        """Give the calls that drop, in their order, masks of ours from now on; None: have them drop nothing.

        Masks are drawn by `seed`, the seed of a pass as the step, and the row in the batch as the sample id.
        """
        self._ask("key_dropout", plan=None if plan is None else [each.to_dict() for each in plan], seed=seed)

    def exact_constants(self, on: bool = True) -> list[str]:
        """An experiment: have TensorFlow take no constant through float32; nothing for torch, which takes none.

        A difference that goes away with it is TensorFlow's rounding of its own constants (GELU, LeakyReLU, the
        scale of attention, Rescaling, factors of optimizers) and no fault of a port. Returns what would have been
        rounded since it was switched on: 'NUMBER in LAYER'.
        """
        rounded: list[str] = self._ask("exact_constants", on=on)
        return rounded

    def biased_variances(self, on: bool) -> None:
        """With exact constants, have stock batch norms of torch's keep the biased variance from now on, as Keras's do, until another model is built."""
        self._ask("biased_variances", on=on)

    def gradient_paths(self, inputs: Array | Arrays, loss: BatchLoss | None = None) -> list[dict[str, Any]]:
        """The calls of a pass of torch's on inputs (batch, ...) in training of which the gradients can go otherwise, in their order.

        Of each call: name, of the function; line, of the user's code; ways, what may be instead, a short name -> in words.
        loss: of the user's own, whose calls come after those of the model.
        """
        return list(self._ask("gradient_paths", inputs=_arrays(inputs), **_of_loss(loss)))

    def alter(self, call: int, way: str | None) -> str | None:
        """Have the gradients of a call of `gradient_paths`, by its place in the list, go in one of its ways; None: as they do.

        Returns the way of before.
        """
        old: str | None = self._ask("alter", call=call, way=way)
        return old

    def code_edits(
        self,
        lines: Sequence[str],
        *,
        others: Sequence[str],
        numbers: Sequence[float] = (),
        functions: Sequence[str] = (),
    ) -> dict[str, list[tuple[str, str, str]]]:
        """The small edits that lines of torch's code, 'model.py:12', could have, then those of others.

        others: the loops and blocks that lines are 'within', what their modules are 'built_by', and the 'rest' of their functions.
        numbers: that may stand where another one does. functions: that a value may be given to, as expressions call them.

        By line of each edit its kind, the code that stands there, and that which would.
        """
        found = self._ask(
            "code_edits",
            lines=list(lines),
            others=list(others),
            numbers=list(numbers),
            functions=list(functions),
        )
        return {line: [(kind, old, new) for kind, old, new in edits] for line, edits in found.items()}

    def edit_code(self, line: str, number: int, on: bool) -> None:
        """Have an edit of `code_edits` in force from now on, or not; raises ExternalModelError where code cannot run so."""
        self._ask("edit_code", line=line, number=number, on=on)

    def busy(self) -> float:
        """The seconds that processors have worked for the process."""
        return float(self._ask("busy"))

    def edited(self, line: str) -> tuple[str, str]:
        """A line's statement as it is written, and as it runs with the edits in force, of which it has some."""
        written, now = self._ask("edited", line=line)
        return written, now

    def operations(
        self,
        inputs: Array | Arrays,
        loss: BatchLoss | None = None,
        *,
        training: bool,
        inject: Arrays | None = None,
    ) -> dict[str, Any]:
        """Record the framework's operations in a pass on inputs (batch, ...), as `Recording.told` has them.

        Args:
            loss: of the user's own, whose operations come after those of the model; None: the model's alone.
            training: the mode. inject: as of `forward`.
        """
        question = {"inputs": _arrays(inputs), "training": training, "inject": inject}
        return dict(self._ask("operations", **question, **_of_loss(loss)))

    def seen(
        self,
        prints: Array,
        inputs: Array | Arrays,
        loss: BatchLoss | None = None,
        *,
        training: bool,
        inject: Arrays | None = None,
    ) -> list[int]:
        """Which of some tensors, by their fingerprints (tensors, FINGERPRINT), torch's operations give in a pass on inputs (batch, ...).

        Args: as of `operations`; nothing is kept, nor sent back from a loss.
        """
        question = {"inputs": _arrays(inputs), "training": training, "inject": inject}
        return list(self._ask("seen", prints=prints, **question, **_of_loss(loss)))

    def operation_values(self, numbers: Sequence[int]) -> list[Array]:
        """The tensors of the pass that was recorded last, by their numbers."""
        return list(self._ask("operation_values", numbers=list(numbers)))

    def replace(
        self, key: str, training: Array | None, inference: Array | None
    ) -> tuple[Array | None, Array | None]:
        """Have an operation of torch's, by its key, give other values from now on, of its result's shape, by the mode of a pass;
        None: its own. Returns those of before.
        """
        self._ask("replace", key=key, training=training, inference=inference)
        before = self._replaced.pop(key, (None, None))
        if training is not None or inference is not None:
            self._replaced[key] = training, inference
        return before

    def close(self) -> None:
        """End the process, politely and then by force."""
        self._child.close()

    def _name(self) -> str:
        return f"the {self.framework} process of {self.target}"

    def _ask(self, question: str, **arguments: Any) -> Any:
        with self._lock:
            self._wait_for_model()
            self.alterations += question in _ALTERING
            return self._child.ask(question, arguments, self.timeout_seconds)

    def _passed(
        self, question: str, inputs: Array | Arrays, options: PassOptions, **arguments: Any
    ) -> PassResult:
        fields = self._ask(question, inputs=_arrays(inputs), **options, **arguments)
        for name in ("outputs", "output_gradients"):
            given = fields.get(name, {})
            fields[name] = {n: array for n, array in given.items() if n not in self.loss_terms}
        return PassResult(**{**fields, "untouched": tuple(fields.get("untouched", ()))})

    def _wait_for_model(self, question: str = "open") -> None:
        if self._owed:
            self._owed = False
            try:
                self._child.receive(question, self.timeout_seconds)
            except ExternalModelError as error:
                self._failed = str(error)
        if self._failed is not None:
            raise ExternalModelError(self._failed)


# After these the model, or how it is called, may be another.
_ALTERING = frozenset(
    (
        "write",
        "set",
        "alter",
        "edit_code",
        "replace",
        "update",
        "exact_constants",
        "biased_variances",
        "dropout",
        "key_dropout",
    )
)
_VARIABLES = {
    # No GPU: two models are compared by what they compute, and both can on a CPU.
    "CUDA_VISIBLE_DEVICES": "-1",
    # What a user has had compiled runs as it was written, so that its layers can be looked at.
    "TORCHDYNAMO_DISABLE": "1",
}


def _target(named: str | Target) -> Target:
    return Target.of(named) if isinstance(named, str) else named


def _of_loss(loss: BatchLoss | None) -> dict[str, Any]:
    """What a question says of a loss."""
    if loss is None:
        return {}
    terms = [term.to_dict() for term in loss.terms]
    return {"loss": terms, "targets": _arrays(loss.targets), "sample_weights": loss.sample_weights}


def _arrays(value: Any) -> Any:
    """Arrays of what a user gives as arrays: lists and numbers too."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {str(name): np.asarray(item) for name, item in value.items()}
    return np.asarray(value)


def _setting(value: Any) -> Any:
    """JSON knows no tuples."""
    return tuple(value) if isinstance(value, list) else value


def _with_shapes(state: Arrays) -> Arrays:
    """Arrays, of which those without axes are not numbers, as computations give them."""
    return {name: np.asarray(value) for name, value in state.items()}
