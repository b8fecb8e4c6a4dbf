"""What a study found, as plain data: for each candidate and figure a verdict with its evidence, and one for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from parity.common.record import RunRecord
from parity.common.study.collect import Failure
from parity.common.study.curves import Band
from parity.common.study.equivalence import Beside, Saving
from parity.common.study.question import Figure, StudySpec

Verdict = Literal["equivalent", "different", "undecided"]
EXIT_CODES: dict[Verdict, int] = {"equivalent": 0, "different": 1, "undecided": 3}


@dataclass(frozen=True)
class FigureResult:
    """A figure of one candidate against the reference.

    a, b: values by seed, of reference and candidate. margin_size: the margin in their unit. interval: of the difference, of
    coverage 1 - 2 alpha at whatever look it was taken. p_equivalence, p_difference: of the whole study, all looks together;
    p_different: corrected for being one of several. differs: whether a difference is shown, though it may be smaller than the
    margin. method: 't', or 'ranks' where a value is not finite. power: of
    "equivalent" with all planned seeds, if there were no difference. seeds_needed: where undecided, how many seeds a verdict
    would take with 80 % power, if the difference is as it was seen; None: more than 10,000, or not known.
    """

    candidate: str
    figure: Figure
    a: tuple[float, ...]
    b: tuple[float, ...]
    estimate: float
    interval: tuple[float, float]
    margin_size: float
    p_equivalence: float
    p_difference: float
    p_different: float
    differs: bool
    method: Literal["t", "ranks"]
    verdict: Verdict
    beside: Beside | None
    saving: Saving | None
    power: float
    seeds_needed: int | None
    skewed: bool
    sentence: str = ""


@dataclass(frozen=True)
class StudyResult:
    """Everything that a report shows.

    seeds: that the verdict is of; trained: that are there, in all arms. ended: whether no more seeds are to be trained.
    seconds: that each seed took, all its arms together. records: of all seeds and arms.
    """

    question: StudySpec
    verdict: Verdict
    results: tuple[FigureResult, ...]
    bands: tuple[Band, ...]
    seeds: int
    trained: int
    ended: bool
    failures: tuple[Failure, ...]
    versions: dict[str, str]
    seconds: tuple[float, ...]
    notes: tuple[str, ...] = ()
    records: tuple[RunRecord, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of all figures: that one is different is enough; equivalent must each of them be."""
    if "different" in verdicts:
        return "different"
    return "equivalent" if verdicts and set(verdicts) == {"equivalent"} else "undecided"
