"""Of records: whether runs are the same, and where and why not; and what records a script."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parity.common.api.answers import Compared, Diagnosed
from parity.common.base.errors import NotComparableError, RecordError, RunError, SpecError
from parity.common.base.package import MODULES
from parity.common.base.scratch import scratch_folder
from parity.common.base.terminal import Terminal
from parity.common.diagnosis.observe.replays import Contexts
from parity.common.diagnosis.replays import diagnose as diagnose_replays
from parity.common.diagnosis.result import Diagnosis
from parity.common.execution.interpreters import require
from parity.common.execution.worker import Workers
from parity.common.external.pairs.replay import diagnose_records
from parity.common.external.process.naming import owners_of
from parity.common.external.scripts.recorded import diagnose_recorded, mapped, unwrapped
from parity.common.parity.budget import budget_of
from parity.common.parity.comparable import check_comparable, differences
from parity.common.parity.result import judge
from parity.common.record import RunRecord
from parity.common.record import read_record as read_folder
from parity.common.report.html.diagnosis import Subject
from parity.common.spec.external.mapping import read_mapping
from parity.common.spec.strategies import Framework

Record = str | Path | RunRecord
_MOST_FIELDS = 6


def read_record(folder: str | Path) -> RunRecord:
    """Read the folder of a run: `.loss` (steps,), `.columns`, `.steps`, `.state(name)`, `.header`, `.summary`.

    Raises RecordError where it is none, or damaged.

    Examples:
        >>> record = parity.read_record("runs/tf")
        >>> record.label, len(record.loss)
        ('tensorflow mirrored x1', 6)
    """
    return read_folder(Path(folder))


def compare(
    reference: Record,
    *candidates: Record,
    floor: Sequence[Record] = (),
    mapping: str | Path | None = None,
) -> Compared:
    """Compare records of one spec, or of one script in two frameworks, as `parity compare`; needs neither framework.

    Args:
        reference, candidates: folders of runs, or what `read_record` gave.
        floor: below float64: permuted runs that show the noise floor.
        mapping: of recorded scripts, mapping.yaml, by which a torch script's tensors get Keras's names.

    Raises:
        NotComparableError: they are of different specs or scripts.
        RecordError: one is damaged, or there is no candidate.

    Examples:
        >>> found = parity.compare("runs/tf", "runs/ddp")
        >>> found.verdict, found.exit_code
        ('parity', 0)
        >>> checks = found.table("checks")
        >>> bool(checks["passed"].all())
        True
        >>> found.to_json("parity.json")["verdict"]
        'parity'
        >>> print(parity.compare("runs/tf", "runs/faulty"))
        ✗ divergent  tiny, float64, 6 steps, reference tensorflow mirrored x1
          ✗ torch ddp x2: loss curve at step 3: deviation 0.091, allowed 1e-12
        ...
    """
    read = _reader_of(mapping)
    records = [read(each) for each in (reference, *candidates)]
    whole = unwrapped([*records, *(read(each) for each in floor)])
    return Compared(judge(whole[: len(records)], whole[len(records) :]))


def diagnose(
    reference: Record,
    candidate: Record,
    *,
    floor: Sequence[Record] = (),
    mapping: str | Path | None = None,
    contexts: Contexts = (None, None),
    keep: str | Path | None = None,
    quiet: bool = False,
) -> Diagnosed:
    """Find the step, the tensor and the cause by which two runs diverge, as `parity diagnose`.

    Parts of both runs are replayed, in processes of their frameworks. Of a user's own models no step is replayed: both are
    opened, and looked at side by side. Recorded scripts are judged by what they recorded.

    Args:
        reference, candidate, floor, mapping: as `compare`.
        contexts: of each run, the context manager, MODULE:FUNCTION, that it was made in; its replays are made in it, too.
        keep: new folder to leave the replays in.
        quiet: say no progress on standard error.

    Raises:
        NotComparableError: they are of different specs or scripts.
        RecordError: one is damaged, or `keep` is there already.
        SpecError: contexts or `keep` are given for what cannot be replayed.
        RunError: a person interrupted.
    """
    read = _reader_of(mapping)
    one, other, *floors = (read(each) for each in (reference, candidate, *floor))
    if one.train_spec is None and other.train_spec is None:
        if contexts != (None, None) or keep is not None:
            raise SpecError(
                "--context-a, --context-b and --keep are for replays, and a recorded script cannot be replayed"
            )
        found, (one, other) = _diagnosis_of_scripts([one, other, *floors])
    else:
        _check(one, other)
        kept = None if keep is None else Path(keep)
        found = diagnosis_of(one, other, contexts, floors, kept, Terminal(stderr=True, quiet=quiet))
    return Diagnosed(found, Subject.of_records(one, other))


def Recorder(out: str | Path, model: Any, *arguments: Any, **options: Any) -> Any:  # noqa: N802, it makes one
    """Make the recorder of the model's framework: `parity.tf_impl.recorder.Recorder` or `parity.torch_impl.recorder.Recorder`.

    Args:
        out: a new folder.
        model: a keras.Model or a torch.nn.Module, as it is trained.
        arguments, options: as that class takes them.

    Raises:
        RecordError: the model is of neither framework, or what that class raises.
    """
    owners = owners_of(model)
    framework: Framework = "torch" if "torch" in owners else "tensorflow"
    if not owners & {"torch", "keras", "tensorflow"}:
        raise RecordError(
            f"Recorder takes a keras.Model or a torch.nn.Module; received {type(model).__module__}.{type(model).__qualname__}"
        )
    return importlib.import_module(f"{MODULES[framework]}.recorder").Recorder(
        out, model, *arguments, **options
    )


def _reader_of(mapping: str | Path | None) -> Callable[[Record], RunRecord]:
    """What reads a record; where a mapping is given, with its tensors named by it."""

    def read(given: Record) -> RunRecord:
        return given if isinstance(given, RunRecord) else read_folder(Path(given))

    if mapping is None:
        return read
    known = read_mapping(Path(mapping))
    return lambda given: mapped(read(given), known)


def _check(reference: RunRecord, candidate: RunRecord) -> None:
    """Raise a ParityError, with what to do, where the two cannot be diagnosed."""
    fields = differences(reference, candidate)
    if fields:
        more = f", and {len(fields) - _MOST_FIELDS} more" if len(fields) > _MOST_FIELDS else ""
        raise NotComparableError(
            f"{reference.folder} and {candidate.folder} differ because their specs do:"
            f" {'; '.join(fields[:_MOST_FIELDS])}{more}; run both from one spec"
        )
    check_comparable(reference, candidate)
    for record in (reference, candidate):
        require(record.placement.framework)


def diagnosis_of(
    reference: RunRecord,
    candidate: RunRecord,
    contexts: Contexts,
    floors: Sequence[RunRecord],
    kept: Path | None,
    told: Terminal,
) -> Diagnosis:
    """Diagnose two runs of one spec, in processes of their own; `diagnose` checks them before, and says what is raised."""
    if kept is not None:
        if kept.exists():
            raise RecordError(f"{kept}: there already; remove it, or name another folder")
        kept.mkdir(parents=True)
        # The processes that replay may work in another folder.
        kept = kept.resolve()
    if reference.spec.model.imported is not None:
        if contexts != (None, None) or kept is not None:
            raise SpecError("--context-a, --context-b and --keep are for runs whose steps can be replayed")
        return diagnose_records(reference, candidate, told)
    with scratch_folder("diagnose-") as scratch:
        folder = scratch if kept is None else kept
        try:
            with Workers(folder / "logs") as replayer:
                return diagnose_replays(
                    reference, candidate, replayer, folder / "runs", contexts, floors, told, kept is not None
                )
        except KeyboardInterrupt:
            raise RunError("interrupted; nothing was written") from None


def _diagnosis_of_scripts(records: Sequence[RunRecord]) -> tuple[Diagnosis, tuple[RunRecord, RunRecord]]:
    """Of a reference, a candidate and permuted runs; also the two records, with the names that were compared."""
    reference, candidate, *floors = unwrapped(records)
    unlike = differences(reference, candidate)
    if unlike:
        raise NotComparableError(
            f"{reference.folder} and {candidate.folder} record different scripts: {'; '.join(unlike)}"
        )
    budget = budget_of([reference], floors) if reference.summary is not None and floors else None
    found = diagnose_recorded(reference, candidate, budget)
    unfinished = next((record for record in (reference, candidate) if record.summary is None), None)
    if found.verdict == "parity" and unfinished is not None:
        # What ended it may be what differs, as a state that cannot be written by the mapping.
        raise NotComparableError(
            f"{unfinished.folder}: the script did not finish ({len(unfinished.steps)} steps, and its recorder's finish() raised or was not called);"
            " up to there nothing differs: see what it said, and record it again"
        )
    return found, (reference, candidate)
