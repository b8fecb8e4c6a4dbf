"""What a record says of its run as a whole, and the folder it lies in."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag

from parity import __version__
from parity.common.base.errors import RecordError, did_you_mean
from parity.common.base.files import naming_os_errors
from parity.common.base.words import listed
from parity.common.record.files import parse, read_json, write_json
from parity.common.record.version_0_1 import WithOldNames
from parity.common.spec import Instrumentation, Placement, RunOptions, ScriptInfo, Spec, TrainSpec
from parity.common.spec.script_info import EARLIER_KIND, KIND

FORMAT = "parity-run-record"
SCHEMA = 2
# What lies beside the folders of a record, at its top and in its parts.
_OF_A_RECORD = re.compile(
    r"(header|summary|start|layers|outline|notes)\.json|steps\.f64|followed\.jsonl|(initial|final|first_gradients)\.safetensors|lock"
    r"|sample_ids|fingerprints|taps|phases|memory|violations|resumed|checkpoints|tensorboard|trace|forced|states|gradients|evaluation"
)
STEP_FIELDS = (
    "loss_sum",
    "count",
    "learning_rate",
    "gradient_norm",
    "parameter_norm",
    "update_norm",
    "loss_scale",
    "seconds",
)
_Belongs = Callable[[NDArray[np.float64]], NDArray[np.bool_]]


def _finite_from_0(column: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(column) & (column >= 0)


def _not_negative(column: NDArray[np.float64]) -> NDArray[np.bool_]:
    return ~(column < 0)


# Of each column which numbers a training may write, in words too. A norm is infinite or NaN where a gradient is.
DOMAINS: dict[str, tuple[_Belongs, str]] = {
    "loss_sum": (lambda column: np.ones(len(column), np.bool_), "any number"),
    "count": (_finite_from_0, "a number from 0 on"),
    "learning_rate": (_finite_from_0, "a number from 0 on"),
    "gradient_norm": (_not_negative, "0 or more, or NaN"),
    "parameter_norm": (_not_negative, "0 or more, or NaN"),
    "update_norm": (_not_negative, "0 or more, or NaN"),
    "loss_scale": (lambda column: np.isfinite(column) & (column > 0), "a number above 0"),
    "seconds": (_finite_from_0, "a number from 0 on"),
}
ROW_BYTES = 8 * (1 + len(STEP_FIELDS))  # of steps.f64


def _tag(data: Any) -> str:
    kind = data.get("kind") if isinstance(data, dict) else getattr(data, "kind", None)
    return KIND if kind in (KIND, EARLIER_KIND) else "spec"


# What a run was trained on, or what is known of a script's.
Terms = Annotated[
    Annotated[TrainSpec, Tag("spec")] | Annotated[ScriptInfo, Tag(KIND)],
    Discriminator(_tag),
]


class Header(WithOldNames):
    """What was run, and on what. `columns` are those of steps.f64."""

    format: str = FORMAT
    schema_version: int = SCHEMA
    spec_hash: str
    spec: Terms
    placement: Placement
    run_options: RunOptions = RunOptions()
    instrumentation: Instrumentation = Instrumentation()
    versions: dict[str, str]
    devices: tuple[str, ...]
    threads: dict[str, int]
    host: str
    git_revision: str | None
    started: str
    data_hash: str | None = None
    columns: tuple[str, ...] = ("step", *STEP_FIELDS)


class Summary(Spec):
    """How the run ended. `eval_*` are sums over the evaluation samples, None where there are none."""

    steps: int = Field(ge=0)
    wall_seconds: float = Field(ge=0)
    eval_loss_sum: float | None = None
    eval_count: float = Field(default=0.0, ge=0)
    eval_correct: int = Field(default=0, ge=0)


def header_of(
    spec: TrainSpec | ScriptInfo,
    placement: Placement,
    facts: dict[str, Any],
    run_options: RunOptions = RunOptions(),
    instrumentation: Instrumentation = Instrumentation(),
) -> Header:
    """The header of a run that begins now."""
    return Header(
        spec_hash=spec.content_hash(),
        spec=spec,
        placement=placement,
        run_options=run_options,
        instrumentation=instrumentation,
        versions={**facts["versions"], "python": platform.python_version(), "parity": __version__},
        devices=tuple(facts["devices"]),
        threads=facts["threads"],
        host=platform.node(),
        git_revision=git_revision(),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        data_hash=facts.get("data_hash"),
    )


def write_summary(
    folder: Path, steps: int, wall_seconds: float, evaluation: tuple[float, float, int]
) -> None:
    """Mark a record complete. `evaluation`: (loss sum, samples, correct) after the last step."""
    loss_sum, count, correct = evaluation
    summary = Summary(
        steps=steps,
        wall_seconds=wall_seconds,
        eval_loss_sum=loss_sum if count and math.isfinite(loss_sum) else None,
        eval_count=count,
        eval_correct=correct,
    )
    write_json(folder / "summary.json", summary.to_dict())


def read_header(folder: Path) -> Header:
    """The header of a record; raises RecordError where there is none, or one that is foreign or damaged."""
    path = folder / "header.json"
    if not path.is_file():
        raise RecordError(f"{folder}: not a run record{_why(folder)}")
    made = read_json(path)
    if isinstance(made, dict) and {"format", "schema_version"} <= made.keys():
        found = f"{made['format']} {made['schema_version']}"
        if found != f"{FORMAT} {SCHEMA}":
            raise RecordError(
                f"{folder}: written by another format ({found!r}); this reads {FORMAT} {SCHEMA}"
            )
    header = parse(Header, path)
    if header.spec_hash == header.spec.earlier_hash():
        header = header.model_copy(update={"spec_hash": header.spec.content_hash()})
    if header.spec_hash != header.spec.content_hash():
        raise RecordError(f"{folder}/header.json: spec_hash is not that of the spec beside it")
    return header


def _why(folder: Path) -> str:
    """What a folder is instead of a record, and where the nearest ones are."""
    if not folder.exists():
        beside = [path.name for path in folder.parent.glob("*")]
        return f": there is no such folder{did_you_mean(folder.name, beside)}"
    if folder.is_file():
        return ": it is a file; give the folder of the run"
    inside = sorted(
        path.parent for depth in ("", "*/", "*/*/") for path in folder.glob(f"{depth}header.json")
    )
    if not inside:
        return " (no header.json)"
    return f": a folder with several; give one of them: {listed(map(str, inside))}"


def steps_in(path: Path) -> int:
    """Steps taken, as a growing steps.f64 says; where a run went on, with those before its first."""
    try:
        with open(path, "rb") as file:
            # In this order: between the two a first row may be written.
            rows, first = os.fstat(file.fileno()).st_size // ROW_BYTES, file.read(8)
    except OSError:
        return 0
    return int(struct.unpack("<d", first)[0]) + rows if rows else 0


def git_revision() -> str | None:
    """Revision of the toolkit's checkout, with '+' where it has uncommitted changes; None outside one."""
    folder = Path(__file__).parent
    try:
        head = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() or None if head.returncode == 0 else None


def strangers_to_record(folder: Path) -> set[str]:
    """The names in a record's folder that no record has; raises RecordError where it is no record."""
    read_header(folder)
    names = {path.name for path in folder.iterdir()}
    return {name for name in names if not _OF_A_RECORD.fullmatch(name.removesuffix(".partial"))}


def remove_record(folder: Path) -> None:
    """Remove an earlier record; raises RecordError for what is none, or holds anything else. What is not there stays so."""
    if not folder.exists():
        return
    with naming_os_errors(RecordError, f"{folder}: cannot be overwritten"):
        if stranger := min(strangers_to_record(folder), default=None):
            raise RecordError(
                f"{folder}: holds {stranger!a}, which is of no record, so overwrite=True leaves it alone"
            )
        shutil.rmtree(folder)


def claim_folder(path: Path, remedy: str = "choose a new folder or remove this one") -> None:
    """Create the folder of a new record; raises RecordError, with a remedy, where something is already there."""
    with naming_os_errors(RecordError, f"{path}: cannot be used as an output folder"):
        path.mkdir(parents=True, exist_ok=True)
        occupant = next(path.iterdir(), None)
    if occupant is not None:
        raise RecordError(f"{path}: already holds {occupant.name}; {remedy}")
