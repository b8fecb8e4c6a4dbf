"""Samples that the user's code gives in batches: a `tf.data.Dataset`, a `DataLoader`, a generator. Read in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.execution.processes.child import Child
from parity.common.execution.processes.service import Service
from parity.common.execution.processes.user_errors import blame
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.external.process.resolve import call, prepare_import_path, resolve
from parity.common.spec.external.target import Target

# What the arrays of a batch are called that have no names; that of weights is taken for them.
INPUTS, TARGETS, WEIGHTS = "x", "y", "sample_weight"
_SECONDS = 600.0
# The sizes of an axis of colours.
_CHANNELS = 4


def batches_of(target: Target, samples: int) -> tuple[Arrays, list[str]]:
    """Return the first samples of what gives batches, and the names of those whose channels were moved to the end.

    Args:
        target: of something to iterate over, or of what gives it when called; found in the working folder or on PYTHONPATH. A batch is `(inputs, targets)`, also with
            weights as a third, as Keras has them; or arrays by name; or inputs alone. Inputs may have names themselves.
            Tensors of torch's with four axes or five have channels second, and here they have them last.
        samples: how many are wanted; batches that hold more than the last one of these are not asked for.

    Raises:
        ExternalModelError: it cannot be imported, fails, or gives something else.
    """
    name = f"the process of {target}"
    service = f"{__name__}:{_Reading.__name__}"
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
    with Child(service, name=name, error=ExternalModelError, variables=hidden) as child:
        question = {"target": target.to_dict(), "samples": samples}
        arrays, moved = child.ask("read", question, _SECONDS)
    return dict(arrays), list(moved)


class _Reading(Service):
    """The child's side."""

    def read(self, target: dict[str, Any], samples: int) -> tuple[Arrays, list[str]]:
        named = Target(**target)
        self.about = f"reading batches of {named}"
        prepare_import_path(Path.cwd(), None)
        batches = resolve(named, None)
        if not isinstance(batches, Iterable):
            batches = call(batches, named, (), "something to iterate over, which gives batches")
        if not isinstance(batches, Iterable) or isinstance(batches, Mapping):
            raise ExternalModelError(
                f"{named} is of type {type(batches).__qualname__}; it must give batches when iterated over"
            )
        try:
            return _collected(batches, samples, str(named))
        except ExternalModelError:
            raise
        except (Exception, SystemExit) as error:
            raise blame(error, str(named)) from None


def _collected(batches: Iterable[Any], samples: int, of: str) -> tuple[Arrays, list[str]]:
    found: dict[str, list[Array]] = {}
    moved: dict[str, None] = {}
    count = 0
    for number, batch in enumerate(batches):
        leaves = _named(batch, of)
        arrays = {name: _array(leaf, f"{of}: {name} of batch {number}") for name, leaf in leaves.items()}
        if found and list(arrays) != list(found):
            raise ExternalModelError(
                f"{of}: batch {number} has {', '.join(arrays)}, those before {', '.join(found)}"
            )
        for name, array in arrays.items():
            if _has_channels_second(leaves[name], array):
                array, moved[name] = np.moveaxis(array, 1, -1), None
            before = found.setdefault(name, [])
            if before and array.shape[1:] != before[0].shape[1:]:
                raise ExternalModelError(
                    f"{of}: {name} of batch {number} has the shape {array.shape}, that of the first {before[0].shape};"
                    " samples are of one shape: pad them"
                )
            before.append(array)
        sizes = {len(array) for array in arrays.values()}
        if len(sizes) > 1:
            raise ExternalModelError(f"{of}: the arrays of batch {number} have {sorted(sizes)} rows")
        count += sizes.pop()
        if count >= samples:
            break
    if not count:
        raise ExternalModelError(f"{of}: it gives no batches, or empty ones")
    return {name: np.concatenate(each)[:samples] for name, each in found.items()}, list(moved)


def _named(batch: Any, of: str) -> dict[str, Any]:
    """The arrays of a batch by name."""
    if isinstance(batch, Mapping):
        return {str(name): leaf for name, leaf in batch.items()}
    if not isinstance(batch, tuple | list):
        return {INPUTS: batch}
    # A DataLoader gives lists: a third member is another input there as often as a weight.
    if not 0 < len(batch) <= (3 if isinstance(batch, tuple) else 2):
        raise ExternalModelError(
            f"{of}: a batch is a {type(batch).__name__} of {len(batch)}; give (inputs, targets), or arrays by name in a dict"
        )
    found: dict[str, Any] = {}
    for name, part in zip((INPUTS, TARGETS, WEIGHTS), batch, strict=False):
        if isinstance(part, tuple | list) and name == INPUTS:
            part = {f"{name}{number}": each for number, each in enumerate(part)}
        parts = {str(key): each for key, each in part.items()} if isinstance(part, Mapping) else {name: part}
        if twice := found.keys() & parts.keys():
            raise ExternalModelError(f"{of}: inputs and targets both have an array {min(twice)!r}")
        found |= parts
    return found


def _array(leaf: Any, of: str) -> Array:
    for way in ("detach", "cpu", "numpy"):
        leaf = getattr(leaf, way)() if hasattr(leaf, way) else leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in "biuf" or not array.ndim:
        raise ExternalModelError(
            f"{of} is of type {array.dtype} and shape {array.shape}; give numbers, one row a sample"
        )
    return array


def _has_channels_second(leaf: Any, array: Array) -> bool:
    """Whether an array is torch's, of images: not where only its last axis can be that of colours."""
    if type(leaf).__module__.partition(".")[0] != "torch" or array.ndim not in (4, 5):
        return False
    return bool(array.shape[1] <= _CHANNELS or array.shape[-1] > _CHANNELS)
