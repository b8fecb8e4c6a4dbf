"""A whole verdict: a reference, candidates, their splits and their speed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.common.base.errors import RecordError, did_you_mean
from parity.common.base.files import numbered_folders
from parity.common.base.terminal import Terminal
from parity.common.execution import session
from parity.common.execution.worker import Workers
from parity.common.parity.budget import Allowance
from parity.common.parity.comparable import check_comparable
from parity.common.parity.compare import EXIT_CODES, Comparison, Verdict, compare
from parity.common.parity.sample_ids import SplitAudit, audit
from parity.common.record import RunRecord, read_record
from parity.common.scaling.analyse import analyse
from parity.common.scaling.projection import PROJECTED_DEVICES
from parity.common.scaling.result import Scaling
from parity.common.spec import RunConfig, TrainSpec


@dataclass(frozen=True)
class Result:
    """Everything a report shows. `records[0]` is the reference of all comparisons."""

    records: tuple[RunRecord, ...]
    comparisons: tuple[Comparison, ...]
    audits: tuple[SplitAudit, ...]
    scaling: Scaling | None

    @property
    def verdict(self) -> Verdict:
        """The worst of the comparisons: one divergent pair is enough."""
        order: tuple[Verdict, ...] = ("parity", "inconclusive", "divergent")
        return max((comparison.verdict for comparison in self.comparisons), key=order.index)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def precision(self) -> str:
        """Of all records."""
        return self.records[0].run_info.precision

    @property
    def amplified(self) -> list[int]:
        """Places of the runs that differ only in what a training may make of rounding, with that of the reference; none where none do.

        Of float32 and float64.
        """
        if self.precision not in ("float32", "float64"):
            return []
        found = [
            place
            for place, comparison in enumerate(self.comparisons, start=1)
            if comparison.amplifies(self.precision)
        ]
        return [0, *found] if found else []


def judge(
    records: Sequence[RunRecord],
    floors: Sequence[RunRecord] = (),
    rounds: Sequence[Sequence[RunRecord]] = (),
) -> Result:
    """Compare every record with the first.

    Args:
        records: the reference and at least one candidate.
        floors: runs in a permuted sample order, of placements among `records`; float64 needs none.
        rounds: timing runs, one sequence a round.

    Raises:
        NotComparableError, RecordError: the records must not be compared, or one is damaged.
    """
    if len(records) < 2:
        raise RecordError(f"a comparison needs a reference and a candidate, received {len(records)} record")
    reference, *candidates = records
    for candidate in candidates:
        check_comparable(reference, candidate)
    allowed = Allowance.of(records, floors)
    audits = tuple(audit(record) for record in records)
    comparisons = tuple(
        compare(
            reference,
            candidate,
            allowed.between((reference, candidate)),
            (audits[0], audited),
        )
        for candidate, audited in zip(candidates, audits[1:], strict=True)
    )
    return Result(tuple(records), comparisons, audits, analyse(rounds, devices=PROJECTED_DEVICES))


def trained(
    stages: Iterable[session.Stage],
    spec: TrainSpec,
    configs: Sequence[RunConfig],
    folder: Path,
    console: Terminal,
    keep: bool = False,
    workers: Workers | None = None,
    measures: bool = True,
) -> Result:
    """Run what `session.stages_of` has, and judge; where rounding may be what differs, run what says so.

    That is for float32 the same runs in float64, and for float64 a noise floor.

    Args:
        stages: of the session.
        spec, configs: what is trained, and where; the first is the reference.
        folder, console, keep, workers: as of `session.work`.
        measures: False: the caller looks for a defect before it measures a floor in float64.

    Raises:
        ParityError: as `session.work` and `read_session`.
    """
    session.work(stages, folder, console, keep, workers)
    found = read_session(folder)
    asked = [configs[place] for place in found.amplified]
    if not asked or (found.precision == "float64" and not measures):
        return found
    if found.precision == "float64":
        console.tell("barely beyond the proof limits: measuring how far rounding alone takes this training")
        more = session.floor_of(spec, asked, folder)
    else:
        console.tell("beyond the noise floor: the same runs in float64 say whether rounding does that")
        more = session.exact_of(spec, asked, folder)
    session.work([more], folder, console, True, workers)
    return read_session(folder)


def read_session(folder: Path) -> Result:
    """Judge what `parity run` left in a folder: runs/, floor/ and timing/round_N/.

    Raises:
        RecordError: the folder has no runs/.
    """
    records = [read_record(path) for path in numbered_folders(folder / "runs")]
    if not records:
        if not folder.exists():
            beside = [path.name for path in folder.parent.glob("*")]
            raise RecordError(f"{folder}: there is no such folder{did_you_mean(folder.name, beside)}")
        if (folder / "header.json").is_file():
            raise RecordError(f"{folder}: the record of one run; 'parity compare' compares it with another")
        raise RecordError(f"{folder}: holds no runs/; give the folder that 'parity run' wrote")
    floors = [read_record(path) for path in numbered_folders(folder / "floor")]
    rounds = [
        [read_record(path) for path in numbered_folders(r)] for r in numbered_folders(folder / "timing")
    ]
    return judge(records, floors, rounds)
