"""Keras checkpoints for `parity export`.

See `common/external/checkpoints.py` for what slots mean.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import h5py
import keras

from parity.common.base.errors import ExternalModelError
from parity.common.external import checkpoints as both
from parity.common.spec.external.target import Target
from parity.common.state.canonical import without_ties
from parity.tf_impl.external import names, passes
from parity.tf_impl.external.calling import array_of
from parity.tf_impl.external.load import build, build_optimizer, prepare
from parity.tf_impl.private_names import CommonVariable

_WEIGHTS, _CONFIG = "model.weights.h5", "config.json"
_CONFIG_LIMIT = 64 * 1024 * 1024

_MOMENTS = {"first_moment": "_momentums", "second_moment": "_velocities"}
_ADAM = ("adam", _MOMENTS | {"largest_second_moment": "_velocity_hats"})
# Class -> kind, and by canonical slot the attribute that lists its variables, one for each trained weight.
SLOTS: dict[type, tuple[str, dict[str, str]]] = {
    keras.optimizers.SGD: ("sgd", {"momentum_velocity": "momentums"}),
    keras.optimizers.RMSprop: (
        "rmsprop",
        {
            "second_moment": "_velocities",
            "first_moment": "_average_gradients",
            "momentum_velocity": "_momentums",
        },
    ),
    keras.optimizers.Adagrad: ("adagrad", {"accumulator": "_accumulators"}),
    keras.optimizers.Adadelta: (
        "adadelta",
        {"second_moment": "_accumulated_grads", "squared_change": "_accumulated_delta_vars"},
    ),
    keras.optimizers.Adamax: ("adamax", {"first_moment": "_m", "infinity_norm": "_u"}),
    keras.optimizers.Adam: _ADAM,
    keras.optimizers.AdamW: _ADAM,
}


def read(
    path: Path,
    model: str | None,
    optimizer: str | None,
    weights_only: bool,
    inputs: both.State | None = None,
) -> both.CheckpointContents:
    """What a .keras or .weights.h5 file holds.

    Args:
        path: of Keras 3.
        model: target. Without it a .keras file is opened by `keras.models.load_model` in safe mode, which runs no
            code that came with the file; with it the model is built by the user's code, and the file gives numbers.
        optimizer: target; needed where neither the file nor the built model has it.
        weights_only: leave out the optimizer.
        inputs: (batch, ...) by name, of a model that has no weights before its first call.

    Raises:
        ExternalModelError: it is damaged, foreign, holds code, or an optimizer that cannot be carried.
    """
    precision, optimized = _looked_into(path)
    prepare(precision)
    carried = optimized and not weights_only
    live = _loaded(path, carried and optimizer is None) if model is None else _built(model, precision, inputs)
    kept = None
    if carried:
        kept = _optimizer(path, live, optimizer)
        live.optimizer = kept
    elif getattr(live, "optimizer", None) is not None:
        live.optimizer = None
    if model is not None or optimizer is not None:
        with _one_line(f"{path}: does not fit the --keras model"):
            # All that it warns of is that something was not loaded.
            warnings.simplefilter("error", UserWarning)
            live.load_weights(path)
    tensors = {name: array_of(variable) for name, variable in names.tensors(live).items()}
    if kept is None:
        return both.CheckpointContents(tensors)
    kind, slots = _slots(kept, live)
    arrays = {
        slot: {name: array_of(variable) for name, variable in of_slot.items()}
        for slot, of_slot in slots.items()
    }
    return both.CheckpointContents(
        tensors, arrays, kind, int(keras.ops.convert_to_numpy(kept.iterations)), _rate(kept)
    )


def write(
    path: Path,
    model: str | None,
    optimizer: str | None,
    contents: both.CheckpointContents,
    inputs: both.State | None = None,
) -> list[str]:
    """Write a .keras or .weights.h5 file of a model that the user's code builds.

    Args:
        path: is written whole or not at all.
        model, optimizer: targets; the optimizer is needed where slots are held and the model is not built with one.
        contents: by Keras's names. What it lacks stays as the model is built with it, and is named.
        inputs: as of `read`.

    Raises:
        ExternalModelError: it does not fit the model, or the optimizer is of another kind.
    """
    assert model is not None
    precision = both.precision_of({array.dtype for array in contents.tensors.values()})
    prepare(precision)
    live = _built(model, precision, inputs)
    notes: list[str] = []
    variables = names.tensors(live)
    both.check_fit("keras", variables, contents.tensors, notes)
    for name, value in contents.tensors.items():
        variables[name].assign(value)
    if contents.kind is not None:
        kept = _given_optimizer(live, optimizer)
        if kept is None:
            raise ExternalModelError(
                "the checkpoint holds the state of an optimizer: name Keras's with --keras-optimizer, or carry the"
                " weights alone with --weights-only"
            )
        _assign_optimizer(kept, live, contents, optimizer or model, notes)
        if getattr(live, "optimizer", None) is not kept:
            live.compile(optimizer=kept)
    elif getattr(live, "optimizer", None) is not None:
        live.optimizer = None
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        temporary = Path(folder) / path.name
        weights = path.suffix == ".h5"
        hint = "" if weights else "; a .weights.h5 file needs no description of the model"
        with _one_line(f"{path}: Keras cannot save {model}", hint):
            live.save_weights(temporary) if weights else live.save(temporary)
        os.replace(temporary, path)
    return notes


def _looked_into(path: Path) -> tuple[str, bool]:
    """The precision of the floating numbers in a file, and whether it holds an optimizer's."""
    try:
        if path.suffix == ".h5":
            with h5py.File(path, "r") as file:
                return _of_datasets(file)
        with zipfile.ZipFile(path) as archive, archive.open(_WEIGHTS) as inner, h5py.File(inner, "r") as file:
            return _of_datasets(file)
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, RuntimeError, NotImplementedError):
        kind = "weights of Keras 3 (.weights.h5)" if path.suffix == ".h5" else "model of Keras 3 (.keras)"
        raise ExternalModelError(f"{path}: not a whole {kind}; it is cut short or foreign") from None


def _of_datasets(file: h5py.File) -> tuple[str, bool]:
    dtypes: set[Any] = set()
    file.visititems(lambda name, item: dtypes.add(item.dtype) if isinstance(item, h5py.Dataset) else None)
    if not dtypes:
        raise ValueError("no tensors")
    return both.precision_of(dtypes), "optimizer/vars" in file


def _loaded(path: Path, compiled: bool) -> keras.Model:
    if path.suffix == ".h5":
        raise ExternalModelError(f"{path}: holds no model; name it with --keras")
    hint = "; if the model is yours, name it with --keras package.module:attribute"
    with _one_line(f"{path}: Keras does not open it by itself", hint):
        return keras.models.load_model(path, compile=compiled, safe_mode=True)


def _built(model: str, precision: str, inputs: both.State | None) -> keras.Model:
    live = build(Target.of(model), precision, 0)
    if not isinstance(live, keras.Model):
        raise ExternalModelError(f"{model} gives a {type(live).__name__}; a checkpoint is of a keras.Model")
    if inputs is not None:
        with _one_line(f"{model}: a call with the samples of --data fails"):
            passes.finish(live, inputs)
    if not live.weights or not all(layer.built for layer in live._flatten_layers()):
        raise ExternalModelError(
            f"{model} gives a model that has no weights before it is called; give samples to call it with: --data"
        )
    return live


def _optimizer(path: Path, live: keras.Model, target: str | None) -> Any:
    """The optimizer whose state the file holds, with variables, for it to be read into."""
    in_file = _described(path)
    kept = _given_optimizer(live, target)
    if kept is None and in_file is not None:
        with _one_line(
            f"{path}: Keras does not build its optimizer by itself", "; name it with --keras-optimizer"
        ):
            # A copy: Keras writes into what it is handed.
            kept = keras.optimizers.deserialize(copy.deepcopy(in_file))
    if kept is None:
        raise ExternalModelError(
            f"{path}: holds the state of an optimizer: name it with --keras-optimizer, or carry the weights alone with"
            " --weights-only"
        )
    saved_with = in_file.get("class_name") if in_file else None
    if saved_with is not None and saved_with != type(kept).__name__:
        raise ExternalModelError(
            f"{path}: was saved with the optimizer {saved_with[:40]}, {target or 'the --keras model'} gives a"
            f" {type(kept).__name__}"
        )
    if not kept.built:
        kept.build(live.trainable_variables)
    return kept


def _given_optimizer(live: keras.Model, target: str | None) -> Any:
    if target is not None:
        return build_optimizer(Target.of(target), live)
    return getattr(live, "optimizer", None)


def _described(path: Path) -> dict[str, Any] | None:
    """What a .keras file says of its optimizer."""
    if path.suffix == ".h5":
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(_CONFIG).file_size > _CONFIG_LIMIT:
                raise ValueError("too large")
            found = json.loads(archive.read(_CONFIG)).get("compile_config", {}).get("optimizer")
    except (KeyError, ValueError, AttributeError, RecursionError, zipfile.BadZipFile):
        raise ExternalModelError(f"{path}: its {_CONFIG} is damaged or foreign") from None
    return found if isinstance(found, dict) else None


def _slots(optimizer: Any, live: keras.Model) -> tuple[str, dict[str, dict[str, keras.Variable]]]:
    """Kind, and the variables by canonical slot and weight."""
    kind, table = both.slots_of_class(optimizer, SLOTS)
    for setting in ("use_ema", "gradient_accumulation_steps"):
        if getattr(optimizer, setting, None):
            raise ExternalModelError(
                f"{type(optimizer).__name__} has {setting}, whose slots have no counterpart in torch; carry the weights"
                " with --weights-only"
            )
    named = {id(variable): name for name, variable in without_ties(names.tensors(live)).items()}
    trained = [named[id(variable)] for variable in live.trainable_variables]
    found = {
        slot: dict(zip(trained, variables, strict=True))
        for slot, attribute in table.items()
        if (variables := getattr(optimizer, attribute, None))
    }
    known = {id(variable) for of_slot in found.values() for variable in of_slot.values()}
    known |= {id(optimizer.iterations), id(optimizer._learning_rate)}
    rest = [variable.path for variable in optimizer.variables if id(variable) not in known]
    if rest:
        raise ExternalModelError(
            f"{type(optimizer).__name__} has variables that this Keras version names otherwise, first {rest[0]}; carry"
            " the weights with --weights-only"
        )
    return kind, found


def _rate(optimizer: Any) -> float | None:
    rate = optimizer._learning_rate
    return float(keras.ops.convert_to_numpy(rate)) if isinstance(rate, CommonVariable) else None


def _assign_optimizer(
    optimizer: Any, live: keras.Model, contents: both.CheckpointContents, target: str, notes: list[str]
) -> None:
    if not optimizer.built:
        optimizer.build(live.trainable_variables)
    kind, slots = _slots(optimizer, live)
    both.check_kind(contents, kind, optimizer, target)
    if contents.slots:
        both.check_slots(contents.slots, set(slots), type(optimizer).__name__)
    for slot, state in contents.slots.items():
        for name, value in state.items():
            if name not in slots[slot]:
                raise ExternalModelError(
                    f"torch trains {name}, which is not trainable in {target}; let both train it"
                )
            slots[slot][name].assign(value)
    optimizer.iterations.assign(contents.step or 0)
    own = _rate(optimizer)
    rate = None if own is None else both.rate_to_carry(contents, own, target, notes)
    if rate is not None:
        optimizer.learning_rate = rate


@contextmanager
def _one_line(what: str, hint: str = "") -> Iterator[None]:
    """Silence Keras's warnings, and raise its errors, but those of the file system, as one of one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OSError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        text = (text if text.isprintable() else ascii(text)[1:-1])[:300]
        raise ExternalModelError(f"{what}: {text}{hint}") from None
