"""A run that was stopped and went on: its record has a part for each time.

    RUN/                 the first part, and the folder by which the whole run is known
    RUN/resumed/001/     a record of its own, from the step on at which the run went on
    RUN/resumed/002/     and so forth

Each part says in its header what it was trained on. Steps that an earlier part has taken after the checkpoint
at which a later one begins are not part of the run: what was trained then is lost.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from parity.common.base.errors import RecordError
from parity.common.base.files import naming_os_errors, partial_of
from parity.common.record.header import claim_folder

FOLDER = "resumed"
_NAME = re.compile(r"\d{3,6}")
# What a run that goes on elsewhere does not take along.
_LEFT_BEHIND = ("checkpoints", "logs", "tensorboard", "start.json", "lock", "*.partial")


def run_of(part: Path) -> Path:
    """The folder of the whole run of a part; of a run that never went on, its own."""
    if part.parent.name == FOLDER and _NAME.fullmatch(part.name):
        return part.parent.parent
    return part


def parts_of(run: Path) -> list[Path]:
    """The folders of a run's parts in order; the run's own is the first."""
    try:
        later = [path for path in (run / FOLDER).iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        later = []
    return [run, *sorted(later, key=lambda path: int(path.name))]


def next_part(run: Path) -> Path:
    """The folder for the part that comes next; it is not made."""
    *_, last = parts_of(run)
    number = 0 if last == run else int(last.name)
    return run / FOLDER / f"{number + 1:03d}"


def kept_steps(recorded: Sequence[range]) -> list[range]:
    """Of the steps that each part took, in order, those that no later part took anew or set aside."""
    kept = []
    for number, steps in enumerate(recorded, start=1):
        stop = min([steps.stop, *(later.start for later in recorded[number:])])
        kept.append(range(steps.start, max(steps.start, stop)))
    return kept


def check_gaps(run: Path, kept: Sequence[tuple[Path, range]]) -> None:
    """Raise RecordError where a step is in none of the parts, given with what is kept of each."""
    first, steps = kept[0]
    # A replay begins anywhere; what goes on follows on something.
    at = steps.start if first == run else 0
    for part, steps in kept:
        if at < steps.start:
            lost = f"step {at} is" if at == steps.start - 1 else f"steps {at} to {steps.start - 1} are"
            raise RecordError(
                f"{run}: {lost} in none of the parts of this run, so it cannot be read as one; read a part by"
                f" itself, such as {part}"
            )
        at = steps.stop


def branch(run: Path, out: Path) -> None:
    """Begin another run that shares what a run has recorded until now: a copy of its record, without checkpoints.

    Raises:
        RecordError: there is something at `out`.
    """
    claim_folder(out)
    copy = partial_of(out)
    try:
        with naming_os_errors(RecordError, f"{out}: cannot be written"):
            shutil.copytree(run, copy, ignore=shutil.ignore_patterns(*_LEFT_BEHIND), symlinks=True)
            out.rmdir()
            copy.rename(out)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
