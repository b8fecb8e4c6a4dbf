"""Of a Keras model and its PyTorch port: settings, mapping, training, checkpoints.

Models are given as the commands take them, 'package.module:attribute', or as the function or class of that name; or the
models themselves, each written for a process of its own framework, as it is, with its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parity.common.api.answers import Compared, Diagnosed
from parity.common.api.model_answers import Linted, Mapped, Paired
from parity.common.assertions.arguments import SAMPLES, Inputs, as_flags, named, written
from parity.common.assertions.assertions import Assertions
from parity.common.base.errors import ExternalModelError, SpecError, check_least
from parity.common.base.scratch import make_scratch, remove_scratch, scratch_folder
from parity.common.base.terminal import Terminal
from parity.common.execution.interpreters import require
from parity.common.external.checkpoints import End, convert_checkpoint
from parity.common.external.lint.lint import Audit, audit
from parity.common.external.mapping.models import exact_constants, map_models, trace_models, traced
from parity.common.external.mapping.trial import AGREES
from parity.common.external.mapping.verification import outputs_apart
from parity.common.external.pairs.pair import ASKED, Outcome, PairOptions, compare_pair
from parity.common.external.pairs.points import paired_layers
from parity.common.external.pairs.request import requested
from parity.common.external.pairs.suspects import with_effect
from parity.common.external.process.naming import name_of, target_of
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.external.process.worker import ExternalWorker
from parity.common.report.html.diagnosis import Subject
from parity.common.spec import RunConfig
from parity.common.spec.external.mapping import read_mapping
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.target import Target
from parity.common.spec.strategies import Framework

Model = Any
Loss = str | Callable[..., Any] | Mapping[str, str | Callable[..., Any]] | None
# Rows that are looked at: of settings shapes matter, no numbers; a mapping is tried with more.
_LINTED, _MAPPED = 2, 4


def pair(
    keras: Model,
    torch: Model,
    data: str | Path | Mapping[str, Array] | Callable[..., Any],
    *,
    loss: str | Mapping[str, str] | Sequence[str] | None = None,
    keras_loss: Loss = None,
    torch_loss: Loss = None,
    torch_step: str | Callable[..., Any] | None = None,
    optimizer: str | None = None,
    keras_optimizer: str | Callable[..., Any] | None = None,
    torch_optimizer: str | Callable[..., Any] | None = None,
    inputs: Sequence[str] = (),
    targets: Sequence[str] = (),
    sample_weights: str | None = None,
    divide_by: float = 1.0,
    image_size: Sequence[int] | None = None,
    steps: int = 50,
    global_batch: int = 32,
    replicas: int = 2,
    placements: Sequence[str] = (),
    device: Literal["auto", "cpu", "gpu"] = "auto",
    precision: Literal["float64", "float32"] = "float64",
    mapping: str | Path | None = None,
    weights: Literal["keras", "torch"] = "keras",
    without_dropout: bool = False,
    timing_rounds: int = 0,
    out: str | Path = "runs/pair",
    overwrite: bool = False,
    quiet: bool = False,
) -> Paired:
    """Train a Keras model and its PyTorch port alike, and prove that they are the same or say where and why not, as `parity pair`.

    Args:
        keras, torch: the two models: 'module:attribute', a function or class, or a model itself.
        data: arrays by name, one row a sample; or what `--data` takes: an .npz or .parquet file, a folder of pictures, or the
            name of what gives batches, or that function itself.
        loss: of both sides, such as 'mse'; by output where there are several; the usual one if none is given.
        keras_loss, torch_loss: the users' own instead, called as loss(targets, outputs) and as loss(outputs, targets).
        torch_step: instead of a loss, what gives it: called as step(model, batch), beside Keras's train_step.
        optimizer: of both, such as 'adam,learning_rate=1e-3' [sgd,learning_rate=0.01].
        keras_optimizer, torch_optimizer: the users' own instead; torch's may give `optimizer, scheduler`.
        inputs, targets, sample_weights: names of arrays [targets: y, targets or labels; inputs: all others].
        divide_by: what all inputs are divided by.
        image_size: of the pictures of a folder, (height, width).
        steps, global_batch: how many updates are made, and the samples of each.
        replicas: of the default placements.
        placements: what to train on instead, as `run` takes them.
        device, precision: of the training.
        mapping: a mapping.yaml that says which tensors correspond; it is proposed otherwise.
        weights: whose initial weights both begin with.
        without_dropout: set all rates of dropout to 0, on both sides.
        timing_rounds: interleaved.
        out: folder of the results.
        overwrite: remove what `out` holds of an earlier call.
        quiet: say no progress on standard error.

    Raises:
        SpecError: something cannot be, or does not go together.
        ExternalModelError: a model cannot be built or called, or a trained tensor has no counterpart.
        RecordError: `out` holds something else.
        RunError: a training failed, or a person interrupted.

    Examples:
        >>> found = parity.pair("keras_side:build", "torch_side:build", data, optimizer="adam,learning_rate=1e-3")
        >>> found.verdict
        'divergent'
        >>> [str(fix) for fix in found.table("findings")["fix"]]
        ['in torch: eps=0.001', 'in torch: negative_slope=0.3']
    """
    folder = Path(out)
    check_least(1, replicas=replicas)
    check_least(0, timing_rounds=timing_rounds)
    configs = [RunConfig.from_text(text, device=device, pin=True) for text in placements]
    with scratch_folder("models-") as scratch:
        arrays = isinstance(data, Mapping)
        # A folder of their own: they go to `out` from there, and it is removed.
        samples = make_scratch("samples-") if arrays else scratch
        with _naming_data(samples, arrays):
            asked = requested(
                target_of(keras, "tensorflow", scratch),
                target_of(torch, "torch", scratch),
                written(data if isinstance(data, str | Path | Mapping) else name_of(data), samples),
                losses=(_texts(loss), _texts(keras_loss), _texts(torch_loss)),
                torch_step=None if torch_step is None else name_of(torch_step),
                optimizers=(optimizer, _named(keras_optimizer), _named(torch_optimizer)),
                inputs=inputs,
                targets=targets,
                sample_weights=sample_weights,
                divide_by=divide_by,
                image_size=image_size,
                steps=steps,
                global_batch=global_batch,
                precision=precision,
                weights=weights,
                without_dropout=without_dropout,
            )
        if arrays:
            asked = replace(asked, data=replace(asked.data, made=True))
        for framework in ("tensorflow", "torch"):
            require(framework)
        more = device, None if mapping is None else Path(mapping), timing_rounds, overwrite
        way = PairOptions(configs or None, replicas, *more)
        outcome = compare_pair(asked, way, folder, Terminal(stderr=True, quiet=quiet))
    return _paired(outcome, folder)


@contextmanager
def _naming_data(samples: Path, arrays: bool) -> Iterator[None]:
    """Errors call arrays that were given `data`, and not by the file that we have written them to, which is removed."""
    try:
        yield
    except SpecError as error:
        if not arrays:
            raise
        remove_scratch(samples)
        raise SpecError(str(error).replace(f"--data {samples / SAMPLES}", "data")) from None


def _paired(outcome: Outcome, folder: Path) -> Paired:
    """Write the reports of what came of a pair."""
    result, found = outcome.result, outcome.diagnosis
    diagnosed = None
    if found is not None:
        asked = (folder / ASKED).read_text()
        subject = Subject.of_models((found.reference, found.candidate), outcome.outlines, asked)
        diagnosed = Diagnosed(found, subject).written(folder / "diagnosis")
    # After the diagnosis, to which its page links.
    compared = None if result is None else Compared(result).written(folder)
    return Paired(outcome, folder, compared, diagnosed)


def lint(
    keras: Model,
    torch: Model,
    inputs: Inputs | None = None,
    *,
    data: Inputs | None = None,
    keras_optimizer: str | Callable[..., Any] | None = None,
    torch_optimizer: str | Callable[..., Any] | None = None,
    mapping: str | Path | None = None,
    quiet: bool = False,
) -> Linted:
    """Compare the settings of a Keras model and its PyTorch port, without training, as `parity lint`.

    Args:
        keras, torch: the two models: 'module:attribute', a function or class, or a model itself.
        inputs: (rows, ...) in Keras's layout: an array; several by the names of Keras's inputs, or in their order; or a file of
            them. Without, no forward pass is made.
        data: another name of `inputs`, as `pair` calls samples.
        keras_optimizer, torch_optimizer: what gives their optimizers; torch's is called with the parameters.
        mapping: a mapping.yaml that says which layers correspond.
        quiet: say no progress on standard error.

    Raises:
        ExternalModelError: a model cannot be built or called.
        SpecError: the inputs are none.
    """
    inputs = _either(inputs, data)
    rows = None if inputs is None else _rows(named(inputs), _LINTED)
    known = None if mapping is None else read_mapping(Path(mapping))
    with scratch_folder("models-") as scratch:
        targets = target_of(keras, "tensorflow", scratch), target_of(torch, "torch", scratch)
        optimizers = _named(keras_optimizer), _named(torch_optimizer)
        for name in filter(None, optimizers):
            Target.of(name)
        one, other = _outlines(targets, rows, optimizers)
        found = audit(one, other, None if known is None else paired_layers(one, other, known))
        if rows is not None and any(each.changes == "forward" for each in found.differences):
            console = Terminal(stderr=True, quiet=quiet)
            found = _tried(
                found, (one, other), targets, rows, None if mapping is None else Path(mapping), console
            )
    return Linted(found, one, other, rows is not None)


def _either(inputs: Inputs | None, data: Inputs | None) -> Inputs | None:
    if inputs is not None and data is not None:
        raise SpecError("inputs and data are two names of the same samples; give one of them")
    return data if inputs is None else inputs


def _outlines(
    targets: tuple[Target, Target], inputs: Arrays | None, optimizers: tuple[str | None, str | None]
) -> tuple[Outline, Outline]:
    def outline(worker: ExternalWorker, optimizer: str | None) -> Outline:
        return worker.outline(None, optimizer) if inputs is None else traced(worker, inputs, optimizer)[0]

    sides: tuple[Framework, Framework] = "tensorflow", "torch"
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        # In float32: as the user trains, and initial values are the same numbers.
        workers = [
            stack.enter_context(ExternalWorker(framework, target, precision="float32"))
            for framework, target in zip(sides, targets, strict=True)
        ]
        keras, torch = threads.map(outline, workers, optimizers)
    return keras, torch


def _tried(
    found: Audit,
    outlines: tuple[Outline, Outline],
    targets: tuple[Target, Target],
    inputs: Arrays,
    mapping: Path | None,
    console: Terminal,
) -> Audit:
    """Of layers that share weights, and without what is set or called otherwise while both models compute the same: what one
    layer does here another does there.
    """
    console.tell(
        "some settings change what is computed: trying both models with equal weights, in float64", "dim"
    )
    try:
        with ExternalWorker("tensorflow", targets[0]) as keras, ExternalWorker("torch", targets[1]) as torch:
            models = trace_models(keras, torch, _doubled(inputs))
            mapped = map_models(models, mapping)
            if mapped.unmapped.keras or mapped.unmapped.torch:
                return found
            found = audit(*outlines, paired_layers(*outlines, mapped))
            # That Keras rounds an attention's scale is no difference of settings.
            with exact_constants(models):
                apart = outputs_apart(mapped, keras, torch, *models.inputs)
    except ExternalModelError as error:
        console.tell(f"they could not be tried: {error}", "dim")
        return found
    if apart > AGREES:
        return found
    kept = with_effect(found.differences, mapped)
    left = len(found.differences) - len(kept)
    console.tell(f"{left} of them are left out: with equal weights the outputs are {apart:.1g} apart", "dim")
    return found.model_copy(update={"differences": tuple(kept)})


def map(
    keras: Model,
    torch: Model,
    inputs: Inputs | None = None,
    *,
    data: Inputs | None = None,
    mapping: str | Path | None = None,
) -> Mapped:
    """Find out which tensors and layers of a Keras model and its PyTorch port correspond, without training, as `parity map`.

    Args:
        keras, torch: the two models: 'module:attribute', a function or class, or a model itself.
        inputs, data: as `lint`; one of them has to be given.
        mapping: a mapping.yaml to verify, or to complete.

    Raises:
        ExternalModelError: a model cannot be built or called, or the mapping does not fit.
        SpecError: the inputs are none.
    """
    inputs = _either(inputs, data)
    if inputs is None:
        raise SpecError("map needs samples: give inputs, an array or a file")
    rows = _doubled(_rows(named(inputs), _MAPPED))
    for framework in ("tensorflow", "torch"):
        require(framework)
    with (
        scratch_folder("models-") as scratch,
        ExternalWorker("tensorflow", target_of(keras, "tensorflow", scratch)) as ours,
        ExternalWorker("torch", target_of(torch, "torch", scratch)) as theirs,
    ):
        models = trace_models(ours, theirs, rows)
        found = map_models(models, None if mapping is None else Path(mapping))
        return Mapped(found, models.outlines)


def export(
    mapping: str | Path,
    source: str | Path,
    destination: str | Path,
    *,
    keras: str | Callable[..., Any] | None = None,
    torch: str | Callable[..., Any] | None = None,
    keras_optimizer: str | Callable[..., Any] | None = None,
    torch_optimizer: str | Callable[..., Any] | None = None,
    inputs: Inputs | None = None,
    weights_only: bool = False,
) -> list[str]:
    """Turn a checkpoint of a Keras model into one of its torch port, or back: weights, optimizer, step; as `parity export`.

    Args:
        mapping: mapping.yaml of the two models.
        source, destination: .keras or .weights.h5 of Keras; .pt, .pth or .safetensors of torch. The second is new.
        keras, torch: what builds each model, where the file does not say.
        keras_optimizer, torch_optimizer: what makes their optimizers; needed to carry slots.
        inputs: as `lint`, for models that have no weights before they are called.
        weights_only: leave out the optimizer and the step.

    Returns:
        What a person should know, in lines.

    Raises:
        ExternalModelError, CheckpointError: why it cannot be done.
    """
    given: dict[Framework, tuple[str | None, str | None]] = {
        "tensorflow": (_named(keras), _named(keras_optimizer)),
        "torch": (_named(torch), _named(torch_optimizer)),
    }
    rows = None if inputs is None else _rows(named(inputs), _LINTED)
    one, other = (End(path, *given[End(path).framework], rows) for path in (Path(source), Path(destination)))
    return convert_checkpoint(Path(mapping), one, other, weights_only)


def assert_same_forward(keras: Model, torch: Model, inputs: Inputs, **options: Any) -> None:
    """Raise AssertionError, which says where and why, unless two models compute the same from equal weights.

    Args:
        keras, torch, inputs: as `lint`.
        options: as `Assertions.same_forward`; `folder` of what a failure leaves is `.parity` unless given.
    """
    _asserted("same_forward", keras, torch, inputs, options)


def assert_same_training(
    keras: Model, torch: Model, data: str | Path | Mapping[str, Array], **options: Any
) -> None:
    """Raise AssertionError, which says when, where and why, unless two models train the same.

    Args:
        keras, torch, data: as `pair`.
        options: as `Assertions.same_training`; `folder` of what a failure leaves is `.parity` unless given.
    """
    _asserted("same_training", keras, torch, data, options)


def _asserted(method: str, keras: Model, torch: Model, given: Any, options: dict[str, Any]) -> None:
    with Assertions() as assertions:
        getattr(assertions, method)(keras, torch, given, **{"folder": Path(".parity"), **options})


def _named(given: str | Callable[..., Any] | None) -> str | None:
    return None if given is None else name_of(given)


def _texts(loss: Any) -> list[str]:
    """Losses as the flags of `parity pair` have them."""
    if isinstance(loss, Mapping):
        return as_flags({output: name_of(each) for output, each in loss.items()})
    if loss is None or isinstance(loss, str) or callable(loss):
        return as_flags(_named(loss))
    return list(loss)


def _doubled(inputs: Arrays) -> Arrays:
    """Inputs for models in float64."""
    return {
        name: array.astype(np.int64 if array.dtype.kind in "biu" else np.float64)
        for name, array in inputs.items()
    }


def _rows(inputs: Arrays, count: int) -> Arrays:
    return {name: array[:count] for name, array in inputs.items()}
