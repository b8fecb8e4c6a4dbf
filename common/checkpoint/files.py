"""The files of a checkpoint: written whole and checked when they are read."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from parity import __version__
from parity.common.base.errors import CheckpointError, RecordError
from parity.common.base.files import naming_os_errors, partial_of, sha256_of
from parity.common.checkpoint.shards import ShardedState, Written, is_shard
from parity.common.record.files import read_json, write_json
from parity.common.record.version_0_1 import WithOldNames
from parity.common.reference import StepScalars
from parity.common.spec import Placement, Spec, TrainSpec
from parity.common.spec.base import NonNegativeInt, Number, explain
from parity.common.state.canonical import State, load_state, parameter_specs, slot_name, slots_of

FORMAT = "parity-checkpoint"
SCHEMA = 1
FOLDER = "checkpoints"
STATE, MANIFEST = "state.safetensors", "manifest.json"
_NAME = re.compile(r"step_(\d{8,18})")
_FILE = re.compile(r"state\.safetensors|(replica_\d{1,9}|shard_\d{5,9})\.safetensors")
# No file is opened that is larger than what it says could be: a manifest is little more than its spec, ...
_MANIFEST_LIMIT = 4 * 1024 * 1024
# ... and a file of tensors has besides these a header, of so many bytes and so many for each of them.
_HEADER_BYTES, _ENTRY_BYTES = 4096, 1024
# Into so many blocks may a shard cut a tensor: a run of one of five axes is at most nine boxes.
_BLOCKS = 9


class StoredFile(Spec):
    """What a file of a checkpoint must be."""

    bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Manifest(WithOldNames):
    """What a checkpoint is.

    rates: of `StepScalars.kept`. loss: mean since the one before, None where it is none. seal: of `_seal`.
    """

    format: str = FORMAT
    schema_version: int = SCHEMA
    step: NonNegativeInt
    spec_hash: str
    spec: TrainSpec
    placement: Placement
    rates: dict[str, Number | None]
    loss: Number | None = None
    files: dict[str, StoredFile]
    parity: str = __version__
    written: str
    seal: str


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are what its manifest says."""

    folder: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        """The first step that is still to be trained."""
        return self.manifest.step

    @property
    def spec(self) -> TrainSpec:
        return self.manifest.spec

    @property
    def shards(self) -> list[str]:
        """The files in which the state lies, where all ranks have written it."""
        return [name for name in self.manifest.files if is_shard(name)]

    def state(self) -> Mapping[str, NDArray[np.generic]]:
        """Return the canonical state before the checkpoint's step: arrays by canonical name, in their canonical shapes.

        Of shards each tensor is read when it is asked for.
        """
        shards = self.shards
        return ShardedState(self.folder, shards) if shards else load_state(self.folder / STATE)

    def buffers(self, replica: int) -> State:
        """What a replica's own buffers were; nothing where they were those of the state."""
        name = replica_file(replica)
        return load_state(self.folder / name) if name in self.manifest.files else {}


def replica_file(replica: int) -> str:
    """Where the buffers of a replica lie."""
    return f"replica_{replica}.safetensors"


def folder_of(run: Path, step: int) -> Path:
    """Where a run keeps the checkpoint before a step."""
    return run / FOLDER / f"step_{step:08d}"


def complete(
    folder: Path,
    spec: TrainSpec,
    placement: Placement,
    step: int,
    rates: Mapping[str, float | None],
    loss: float | None,
    written: Mapping[str, Written],
) -> None:
    """Write what makes a checkpoint of tensors that lie in `partial_of(folder)` already.

    It is on the disk, whole and under its name, or not there at all.

    Args:
        folder: its name, which nothing has.
        spec: resolved.
        placement: that trained until now.
        step: before which the tensors are the state.
        rates: of `StepScalars.kept`.
        loss: mean over what was trained since the checkpoint before.
        written: by file name, size in bytes and SHA-256 of all of them; they are on the disk.

    Raises:
        OSError: the disk is full, the folder cannot be written, or there is a checkpoint at `folder`.
        SpecError: a rate is no number that could be kept.
    """
    partial = partial_of(folder)
    files = {name: StoredFile(bytes=size, sha256=digest) for name, (size, digest) in written.items()}
    content = {
        "step": step,
        "spec_hash": spec.content_hash(),
        "spec": spec,
        "placement": placement,
        "rates": dict(rates),
        "loss": loss,
        "files": files,
        "written": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seal": "",
    }
    manifest = Manifest.parse(content).to_dict()
    write_json(partial / MANIFEST, {**manifest, "seal": _seal(manifest)})
    for path in (partial / MANIFEST, partial):
        sync(path)
    if os.path.lexists(folder):
        # Two names cannot be changed at once: whatever is killed between would leave neither.
        raise FileExistsError(errno.EEXIST, f"there is a {folder.name} already")
    os.rename(partial, folder)
    for path in (folder.parent, folder.parent.parent):
        sync(path)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and check a checkpoint; raises CheckpointError for what is missing, damaged, foreign or does not fit."""
    manifest = read_manifest(folder)
    if not manifest.spec_hash == manifest.spec.content_hash() == manifest.spec.resolved().content_hash():
        raise CheckpointError(f"{folder / MANIFEST}: spec_hash is not that of the spec beside it")
    for name in manifest.files:
        if not _FILE.fullmatch(name):
            raise CheckpointError(f"{folder / MANIFEST}: {name[:80]!r} is not the name of a file beside it")
    if (STATE in manifest.files) == any(map(is_shard, manifest.files)):
        found = f"names both {STATE} and" if STATE in manifest.files else f"names no {STATE} and no"
        raise CheckpointError(f"{folder / MANIFEST}: {found} shards")
    shapes = _shapes(manifest.spec)
    checkpoint = Checkpoint(folder, manifest)
    try:
        with naming_os_errors(CheckpointError, f"{folder}: cannot be read"):
            for name, stored in manifest.files.items():
                _check_file(folder, name, stored, _most_bytes(manifest.spec, shapes))
            _check_tensors(checkpoint, shapes)
    except RecordError as error:
        raise CheckpointError(str(error)) from None
    _check_rates(checkpoint)
    return checkpoint


def read_manifest(folder: Path) -> Manifest:
    """What a checkpoint says of itself alone; raises CheckpointError where this is none, or damaged."""
    path = folder / MANIFEST
    if not is_plain(path):
        raise CheckpointError(f"{folder}: not a checkpoint (no {MANIFEST})")
    try:
        if path.stat().st_size > _MANIFEST_LIMIT:
            raise CheckpointError(f"{path}: larger than {_MANIFEST_LIMIT} bytes; it is no manifest")
        made = read_json(path)
    except RecordError as error:
        raise CheckpointError(str(error)) from None
    if not isinstance(made, dict):
        raise CheckpointError(f"{path}: not a JSON object; the file is foreign")
    found = made.get("format"), made.get("schema_version")
    if found != (FORMAT, SCHEMA):
        raise CheckpointError(
            f"{path.parent}: written by another format ({repr(found)[:80]}); this reads {FORMAT} {SCHEMA}"
        )
    if made.get("seal") != _seal(made):
        raise CheckpointError(f"{path}: its seal is not that of what it says; the file is damaged")
    try:
        manifest = Manifest.model_validate(made)
        if manifest.spec_hash == manifest.spec.earlier_hash():
            manifest = manifest.model_copy(update={"spec_hash": manifest.spec.content_hash()})
        return manifest
    except ValidationError as error:
        raise CheckpointError(f"{path}: {explain(error, made, 'Manifest', Manifest)}") from None


def _seal(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of all else that a manifest says: a damaged number in it must not go unnoticed."""
    rest = {name: value for name, value in manifest.items() if name != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_fits(
    checkpoint: Checkpoint, spec: TrainSpec, stop: int, placement: Placement | None = None
) -> None:
    """Raise CheckpointError where a run of a spec, up to the step `stop`, cannot go on from a checkpoint.

    placement: on which it is to go on.
    """
    if checkpoint.manifest.spec_hash != spec.content_hash():
        names = first_difference(checkpoint.spec.to_dict(), spec.to_dict())
        raise CheckpointError(f"{checkpoint.folder}: is of another spec: {names}; a run goes on with its own")
    if checkpoint.step > stop:
        raise CheckpointError(
            f"{checkpoint.folder}: is of step {checkpoint.step}, the run ends before step {stop}"
        )
    if placement is not None and spec.per_replica_statistics:
        before = checkpoint.manifest.placement
        for what, there, here in (
            ("replicas", before.replicas, placement.replicas),
            ("accumulation", dict(before.accumulation), dict(placement.accumulation)),
        ):
            if there != here:
                raise CheckpointError(
                    f"{checkpoint.folder}: the spec takes batch-norm statistics per replica, and was trained with"
                    f" {what} {there}, not {here}; go on with that, or train with 'statistics: global'"
                )


def first_difference(ours: Any, theirs: Any, path: str = "") -> str:
    """'optimizer.learning_rate is 0.1 there, 0.2 here' of two specs as plain data."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                return first_difference(ours.get(name), theirs.get(name), f"{path}.{name}" if path else name)
    return f"{path} is {ours!r} there, {theirs!r} here"


def checkpoints_of(run: Path) -> list[Path]:
    """The folders of a run's checkpoints, earliest first; whether they are whole is not looked at."""
    try:
        found = [path for path in (run / FOLDER).iterdir() if _NAME.fullmatch(path.name)]
    except (OSError, ValueError):
        return []
    return sorted(found, key=step_of)


def step_of(folder: Path) -> int:
    """The step that the name of a checkpoint's folder says."""
    return int(folder.name.removeprefix("step_"))


def tidy(run: Path, first_step: int) -> None:
    """Leave of a run's checkpoints those that it goes on from at `first_step`, as if it had never been killed.

    What was not yet whole goes. What is of later steps belongs to a training that is no part of the run any
    more, and might be taken for its latest: it is put aside as `step_N.left`, where nothing looks by itself.

    Raises:
        OSError: the folder cannot be written.
    """
    for path in (run / FOLDER).glob("step_*.partial"):
        remove(path)
    for folder in checkpoints_of(run):
        if step_of(folder) > first_step:
            aside = folder.with_name(f"{folder.name}.left")
            remove(aside)
            os.rename(folder, aside)


def remove(path: Path) -> None:
    """Remove a folder, or whatever else has its name, if it is there; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def find(path: Path) -> tuple[Checkpoint, list[str]]:
    """A checkpoint given as its own folder, or as that of its run: then the latest that is whole.

    Returns it, and in one line each what is wrong with those that were passed over.

    Raises:
        CheckpointError: there is none.
    """
    if is_plain(path / MANIFEST) or _NAME.fullmatch(path.name):
        return read_checkpoint(path), []
    damaged: list[str] = []
    for folder in reversed(checkpoints_of(path)):
        try:
            return read_checkpoint(folder), damaged
        except CheckpointError as error:
            damaged.append(str(error))
    if damaged:
        raise CheckpointError(
            f"{path}: none of its {len(damaged)} checkpoints is whole; the latest: {damaged[0]}"
        )
    raise CheckpointError(f"{path}: holds no checkpoint; train with --save_every_steps, or begin anew")


def is_plain(path: Path) -> bool:
    """Whether there is a file: no link, which may lead anywhere, and no pipe or device, which may never end."""
    try:
        return path.is_file() and not path.is_symlink()
    except (OSError, ValueError):
        return False


def _check_file(folder: Path, name: str, stored: StoredFile, limit: int) -> None:
    path = folder / name
    if not is_plain(path):
        raise CheckpointError(f"{path}: missing, or no plain file")
    size = path.stat().st_size
    if size != stored.bytes:
        raise CheckpointError(
            f"{path}: holds {size} bytes, should hold {stored.bytes}; it is cut short or foreign"
        )
    if size > limit:
        raise CheckpointError(
            f"{path}: holds {size} bytes, a state of its spec at most {limit}; it is foreign"
        )
    if _stored(path) != stored:
        raise CheckpointError(f"{path}: its SHA-256 is not that in the manifest; the file is damaged")


def _shapes(spec: TrainSpec) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a state but of its step."""
    specs = parameter_specs(spec)
    shapes = {name: parameter.shape for name, parameter in specs.items()}
    for name, slots in slots_of(spec.optimizer, specs).items():
        shapes |= {slot_name(slot, name): initial.shape for slot, initial in slots.items()}
    return shapes


def _most_bytes(spec: TrainSpec, shapes: Mapping[str, tuple[int, ...]]) -> int:
    names = sum(len(name.encode()) for name in shapes)
    tensors = np.dtype(spec.master_dtype).itemsize * sum(map(math.prod, shapes.values()))
    return _HEADER_BYTES + _BLOCKS * (_ENTRY_BYTES * len(shapes) + 2 * names) + tensors


def _check_tensors(checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Whether the files hold what the spec says: each tensor there, of its shape and type."""
    dtype, path = checkpoint.spec.master_dtype, checkpoint.folder
    if shards := checkpoint.shards:
        sharded = ShardedState(path, shards)
        state, step = sharded.outlines(), sharded.get("step")
        state.pop("step", None)
    else:
        path = path / STATE
        state = load_state(path, mapped=True)
        step = state.pop("step", None)
    check_shapes(path, state, shapes, dtype)
    if step is None or step.shape or step.dtype != np.int64 or int(step) != checkpoint.step:
        raise CheckpointError(f"{path}: is not of step {checkpoint.step}, as the manifest says")
    buffers = {name: shape for name, shape in shapes.items() if name.startswith("buffers/")}
    for name in checkpoint.manifest.files.keys() - {STATE, *checkpoint.shards}:
        own = load_state(checkpoint.folder / name, mapped=True)
        check_shapes(checkpoint.folder / name, own, buffers, dtype)


def check_shapes(path: Path, found: State, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> None:
    """Raise RecordError where a file holds other tensors than those of these shapes, or of another type."""
    for name in sorted(shapes.keys() ^ found.keys()):
        problem = "lacks" if name in shapes else "holds an unknown tensor"
        raise RecordError(f"{path}: {problem} {name if name in shapes else repr(name[:80])}")
    for name, shape in shapes.items():
        if found[name].shape != shape or found[name].dtype != dtype:
            raise RecordError(
                f"{path}: {name} is {found[name].dtype} of shape {found[name].shape}, should be {dtype} of shape"
                f" {shape}"
            )


def _check_rates(checkpoint: Checkpoint) -> None:
    path, rates = checkpoint.folder / MANIFEST, checkpoint.manifest.rates
    expected = StepScalars(checkpoint.spec).kept()
    for name in sorted(expected.keys() ^ rates.keys()):
        raise CheckpointError(
            f"{path}: its rates {'lack' if name in expected else 'hold an unknown number,'} {name[:80]!r}"
        )
    missing = [name for name, value in rates.items() if value is None and expected[name] is not None]
    if missing:
        raise CheckpointError(f"{path}: its rates hold no number for {missing[0]}")


def _stored(path: Path) -> StoredFile:
    return StoredFile(bytes=path.stat().st_size, sha256=sha256_of(path))


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network storage cannot do this to a folder.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(handle)
