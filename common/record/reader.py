"""Reading a record back; of a run that went on, its parts as one (`parts.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RecordError, check_printable
from parity.common.record.files import ROWS_LIMIT, parse, read_columns, read_json, read_lines
from parity.common.record.header import DOMAINS, STEP_FIELDS, Header, Summary, read_header
from parity.common.record.invariants import Violation, read_violations
from parity.common.record.parts import check_gaps, kept_steps, parts_of
from parity.common.record.samples import Received
from parity.common.record.script_taps import ScriptTaps, read_taps
from parity.common.record.trace import state_files
from parity.common.record.version_0_1 import stored
from parity.common.spec import Placement, RunOptions, ScriptInfo, TrainSpec
from parity.common.spec.external.mapping import Mapping
from parity.common.state.canonical import State, load_state

Column = NDArray[np.float64]
Each = TypeVar("Each")


@dataclass(frozen=True)
class Taps:
    """values[replica, row, name]: (sum of squares, projection) of a tensor, after each step."""

    names: tuple[str, ...]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class RunRecord:
    """A record read back. Columns are float64 arrays over the recorded steps.

    Of a run that went on, `joined` are its parts, each limited to the steps that no later part took anew:
    what they recorded together is the run's. `renamed` gives the states' tensors other names, by `mapping`, given which state
    it is. Header and summary are then those of the last, but for the number of steps and their time.
    """

    folder: Path
    header: Header
    summary: Summary | None
    columns: dict[str, Column]
    joined: tuple[RunRecord, ...] = ()
    renamed: Callable[[str, State], State] | None = None
    mapping: Mapping | None = None

    @property
    def run_info(self) -> TrainSpec | ScriptInfo:
        """What is known of what was trained: a spec, or a description of someone's script."""
        return self.header.spec

    @property
    def train_spec(self) -> TrainSpec | None:
        """The spec; None of a recorded script, which has none."""
        return self.header.spec if isinstance(self.header.spec, TrainSpec) else None

    @property
    def spec(self) -> TrainSpec:
        """The train spec; raises RecordError for the record of a script, which has none."""
        if self.train_spec is None:
            raise RecordError(
                f"{self.folder}: a recorded script, without the spec that this needs; parity compare, parity"
                " diagnose and parity steps work on it"
            )
        return self.train_spec

    @property
    def placement(self) -> Placement:
        return self.header.placement

    @property
    def run_options(self) -> RunOptions:
        return self.header.run_options

    @property
    def parts(self) -> tuple[RunRecord, ...]:
        """Those of a run that went on, in the order of their steps; of another run, itself."""
        return self.joined or (self,)

    @cached_property
    def label(self) -> str:
        """Short name for tables; of a run that went on elsewhere, the way that it took."""
        if self.joined:
            trained = [part for part in self.joined if len(part.steps)] or self.joined[-1:]
            moved = [now for before, now in pairwise(trained) if now.label != before.label]
            return ", ".join(
                [trained[0].label, *(f"from step {part.steps[0]} {part.label}" for part in moved)]
            )
        order = self.placement.sample_order_seed
        setup = self.setup + (f" order {order}" if order is not None else "")
        # Two scripts of one framework are told apart by their folders.
        return setup if self.train_spec is not None else f"{self.folder.name} ({setup})"

    @property
    def setup(self) -> str:
        """What runs have in common that differ in nothing but the order of their samples."""
        info = self.run_info
        if isinstance(info, ScriptInfo):
            return f"{info.framework} script x{info.world_size}"
        return self.placement.label

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The recorded step numbers."""
        return self.columns["step"].astype(np.int64)

    @cached_property
    def loss(self) -> Column:
        """Mean loss of each global batch, float64 (steps,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.columns["loss_sum"] / self.columns["count"]

    @cached_property
    def received(self) -> Received:
        """What the replicas report that they received: sample ids, or hashes of them.

        Raises:
            RecordError: the run has several parts, each with replicas of its own; or the files are damaged.
        """
        if self.joined:
            raise RecordError(
                f"{self.folder}: its parts had replicas of their own, and each says what they received"
            )
        return Received.read(stored(self.folder, "sample_ids"), self.placement.replicas, self.steps)

    @cached_property
    def fingerprints(self) -> list[list[str]]:
        """fingerprints[replica][row] of the parameters after each step; empty where the run recorded none.

        Raises:
            RecordError: the files do not fit the steps of the record.
        """
        if self.joined:
            parts = self._of_equal_parts(lambda part: part.fingerprints)
            return [list(chain(*columns)) for columns in zip(*parts, strict=True)]
        columns = []
        for replica in range(self.placement.replicas if self.run_options.digests else 0):
            path = stored(self.folder, "fingerprints") / f"replica_{replica}.jsonl"
            rows = read_lines(path)
            if [row.get("step") for row in rows][: len(self.steps)] != self.steps.tolist():
                raise RecordError(f"{path}: its steps are not those of steps.f64")
            columns.append([str(row.get("parameters")) for row in rows[: len(self.steps)]])
        return columns

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        """What the run broke of `parity.common.record.invariants`, by step."""
        *earlier, last = self.parts
        kept = [b for part in earlier for b in part.violations if b.step <= part.steps[-1]]
        return (*kept, *read_violations(stored(last.folder, "violations")))

    def first_violations(self) -> list[tuple[Violation, int]]:
        """Return the first violation of each invariant, and how many violations of it were kept, by step."""
        counts = Counter(violation.invariant for violation in self.violations)
        first: dict[str, Violation] = {}
        for violation in self.violations:
            first.setdefault(violation.invariant, violation)
        return [(violation, counts[name]) for name, violation in first.items()]

    def violation_notes(self) -> list[str]:
        """Return a line for each invariant that did not hold."""
        return [
            f"{self.label} broke at step {first.step}: {first.invariant}: {first.text}"
            for first, _ in self.first_violations()
        ]

    @cached_property
    def taps(self) -> Taps | None:
        """The tapped tensors after each step; None where none were recorded.

        Raises:
            RecordError: the files are damaged, or do not fit the steps of the record.
        """
        if self.joined:
            tapped = self._of_equal_parts(lambda part: part.taps)
            if not tapped:
                return None
            if len({part.names for part in tapped}) > 1:
                raise RecordError(f"{self.folder}: its parts tapped different tensors; read them one by one")
            return Taps(tapped[0].names, np.concatenate([part.values for part in tapped], axis=1))
        if not self.run_options.taps:
            return None
        folder, steps = self.folder / "taps", self.steps
        names = tuple(map(str, read_json(folder / "names.json")))
        check_printable(names, folder / "names.json", RecordError)
        tables = []
        width = 1 + 2 * len(names)
        for replica in range(self.placement.replicas):
            path = folder / f"replica_{replica}.f64"
            found = read_columns(path, width, _most_steps(self.header, width))[:, : len(steps)]
            # A run that was killed may have tapped one step less than it took.
            missing = len(steps) - found.shape[1]
            if missing > (self.summary is None) or (found[0] != steps[: found.shape[1]]).any():
                raise RecordError(f"{path}: its steps are not those of steps.f64")
            tables.append(found[1:].T)
        values = np.stack([table[: min(map(len, tables))] for table in tables])
        return Taps(names, values.reshape(*values.shape[:2], len(names), 2))

    @cached_property
    def script_taps(self) -> ScriptTaps | None:
        """What the layers of a recorded script gave; None where that was not recorded."""
        found = None if self.train_spec is not None else read_taps(self.folder / "taps")
        if found is None or self.renamed is None:
            return found
        kept = self.renamed("taps", {f"tensors/{name}": array for name, array in found.fingerprints.items()})
        fingerprints = {name.partition("/")[2]: array.astype(np.float64) for name, array in kept.items()}
        return replace(found, fingerprints=fingerprints)

    @cached_property
    def phases(self) -> list[dict[str, Any]]:
        """How long each phase of a step took, by rank; none where that was not measured."""
        return self._of_ranks("phases") if self.run_options.phase_repeats else []

    @cached_property
    def memory(self) -> list[dict[str, int]]:
        """What each process held, by rank, in bytes."""
        return self._of_ranks("memory")

    def _of_ranks(self, name: str) -> list[dict[str, Any]]:
        folder = self.parts[-1].folder / name
        return [read_json(folder / f"rank_{rank}.json") for rank in range(self.placement.processes)]

    def has(self, which: str) -> bool:
        """Whether there is a state to read; a recorded script may leave one out, and a run that records its curve."""
        return (self.train_spec is not None and self.run_options.keeps_states) or (
            self.folder / f"{which}.safetensors"
        ).exists()

    def state(self, which: str) -> State:
        """The canonical state `initial`, `first_gradients` or `final`."""
        name = f"{which}.safetensors"
        if not self.joined:
            state = load_state(self.folder / name)
            return state if self.renamed is None else self.renamed(which, state)
        # The first gradients are those of the first update, which float16 may have put off to a later part.
        first = next((part for part in self.joined if (part.folder / name).exists()), self.joined[0])
        return {"initial": self.joined[0], "first_gradients": first}.get(which, self.joined[-1]).state(which)

    def kept_states(self) -> dict[int, Path]:
        """The files of the canonical states that a run of a spec has kept on its way, by the step that each is before."""
        return {
            step: path
            for part in self.parts
            for step, path in state_files(part.folder).items()
            if len(part.steps) and part.steps[0] < step <= part.steps[-1] + 1
        }

    def _of_equal_parts(self, what: Callable[[RunRecord], Each | None]) -> list[Each]:
        """What each part has, where all have it and as many replicas; nothing where none of them does."""
        trained = [part for part in self.joined if len(part.steps)]
        found = [each for part in trained if (each := what(part))]
        if found and len({part.placement.replicas if what(part) else 0 for part in trained}) > 1:
            raise RecordError(
                f"{self.folder}: its parts recorded different things, or had"
                f" {' and '.join(str(part.placement.replicas) for part in trained)} replicas; read them one by one"
            )
        return found


def read_record(folder: Path) -> RunRecord:
    """Read a record: of a run that went on, all its parts as one; of one part, given its folder, that.

    A part that was killed before its first step counts as nothing: what came before it is still the run.

    Raises:
        RecordError: with one line for anything missing, cut short or foreign, or where a step is in no part.
    """
    folders = parts_of(folder)
    # A part that lived long enough to take a step has the file of them, which comes after the header.
    marks = ("steps.f64", "summary.json")
    lived = [path for path in folders if any((path / name).exists() for name in marks)]
    begun = [_read_part(path) for path in lived] if len(folders) > 1 else []
    for part in begun:
        if part.header.spec_hash != begun[-1].header.spec_hash:
            raise RecordError(
                f"{part.folder} and {begun[-1].folder} are of different specs; a run goes on with its own"
            )
    recorded = [part for part in begun if len(part.steps) or part.summary is not None]
    if not recorded:
        return _read_part(folder)
    return recorded[0] if recorded[-1].folder == folder else _join(folder, recorded)


def _join(folder: Path, recorded: list[RunRecord]) -> RunRecord:
    last = recorded[-1]
    kept = kept_steps([_steps_of(part) for part in recorded])
    joined = [pair for pair in zip(recorded, kept, strict=True) if len(pair[1]) or pair[0] is last]
    check_gaps(folder, [(part.folder, steps) for part, steps in joined])
    parts = [_limited(part, len(steps)) for part, steps in joined]
    common = [name for name in last.columns if all(name in part.columns for part in parts)]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in common}
    summary = last.summary
    if summary is not None:
        # What was trained in vain is not counted, nor what a part that was killed did beside its steps.
        seconds = sum(float(part.columns["seconds"].sum()) for part in parts[:-1])
        facts = {"steps": len(columns["step"]), "wall_seconds": summary.wall_seconds + seconds}
        summary = summary.model_copy(update=facts)
    return RunRecord(folder, last.header, summary, columns, tuple(parts))


def _limited(part: RunRecord, rows: int) -> RunRecord:
    """A part without the steps that a later one took anew."""
    if rows == len(part.steps):
        return part
    columns = {name: column[:rows] for name, column in part.columns.items()}
    return replace(part, columns=columns, summary=None)


def _steps_of(part: RunRecord) -> range:
    """Those that a part took. One that had none left to take only evaluated."""
    if len(part.steps):
        return range(int(part.steps[0]), int(part.steps[-1]) + 1)
    path = part.folder / "final.safetensors"
    step = load_state(path, mapped=True).get("step")
    if step is None or step.shape != () or step.dtype.kind != "i" or int(step) < 0:
        raise RecordError(f"{path}: does not say of which step it is; the file is damaged or foreign")
    return range(int(step), int(step))


def _read_part(folder: Path) -> RunRecord:
    header = read_header(folder)
    names = header.columns
    missing = [name for name in ("step", *STEP_FIELDS) if names.count(name) != 1]
    if missing:
        raise RecordError(
            f"{folder}/header.json: steps.f64 needs one column {missing[0]!r}, columns are {names}"
        )
    table = read_columns(folder / "steps.f64", len(names), _most_steps(header, len(names)))
    columns = dict(zip(names, table, strict=True))
    numbers = columns["step"]
    if len(numbers) and not (
        numbers[0] >= 0
        and numbers[0].is_integer()
        and (numbers == numbers[0] + np.arange(len(numbers))).all()
    ):
        raise RecordError(f"{folder}/steps.f64: the steps are not consecutive whole numbers")
    _check_domains(folder, header, columns)
    summary_file = folder / "summary.json"
    summary = parse(Summary, summary_file) if summary_file.exists() else None
    if summary is not None and summary.steps != len(numbers):
        raise RecordError(
            f"{folder}: truncated: the summary counts {summary.steps} steps, steps.f64 holds {len(numbers)}"
        )
    return RunRecord(folder, header, summary, columns)


def _check_domains(folder: Path, header: Header, columns: dict[str, Column]) -> None:
    """Raise RecordError where a number is one that no training writes."""
    spec = header.spec if isinstance(header.spec, TrainSpec) else None
    for name, (belongs, text) in DOMAINS.items():
        column = columns[name]
        known = belongs(column)
        if spec is None:
            known |= np.isnan(column)  # what a script does not tell
        elif name == "loss_scale" and spec.loss_scale is None:
            known, text = column == 1, f"1, since precision {spec.precision} scales no loss"
        if not known.all():
            row = int(np.argmin(known))
            raise RecordError(
                f"{folder}/steps.f64: {name} is {float(column[row])!r} at step {int(columns['step'][row])}, and must be {text};"
                " the file is damaged or was edited"
            )


def _most_steps(header: Header, width: int) -> int:
    """How many rows of so many numbers a file may hold; a script need not have told."""
    return header.spec.steps or ROWS_LIMIT // (8 * width)
