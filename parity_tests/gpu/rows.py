"""The rows of the page: what each compares, within which limit; and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parity.common.base.plain import plain, print_error

if TYPE_CHECKING:
    from parity_tests.gpu.bench import Bench

PASSED, FAILED, NOT_POSSIBLE = "passed", "failed", "not possible here"
# No row begins after so many seconds; the last may take two minutes more, and the whole has ten.
MOST_SECONDS = 450.0
_LONGEST = 240


class NotPossibleError(Exception):
    """A row that cannot be had on this machine; says why."""


@dataclass(frozen=True)
class Measured:
    """What a row shows. why: what is wrong with it; '' where it passed."""

    figure: str
    why: str = ""


@dataclass(frozen=True)
class Row:
    """A check: its name, what it compares, its limit in words, and how it is made."""

    name: str
    compared: str
    limit: str
    run: Callable[[Bench], Measured]


@dataclass(frozen=True)
class Outcome:
    """A row of the page. result: 'passed', 'failed: WHY' or 'not possible here: WHY'."""

    name: str
    compared: str
    figure: str
    limit: str
    result: str

    @property
    def failed(self) -> bool:
        return self.result.startswith(FAILED)


def row(name: str, compared: str, limit: str) -> Callable[[Callable[[Bench], Measured]], Row]:
    """Make a row of the function below."""
    return lambda function: Row(name, compared, limit, function)


def outcomes(bench: Bench, rows: Sequence[Row], most_seconds: float = MOST_SECONDS) -> Iterator[Outcome]:
    """Make rows one after another: one that raises has failed, with its line, and the others go on."""
    began = time.monotonic()
    for number, each in enumerate(rows, start=1):
        begun = time.monotonic()
        if begun - began > most_seconds:
            outcome = _outcome(each, "", f"{NOT_POSSIBLE}: no time was left; run --only {each.name}")
        else:
            try:
                measured = each.run(bench)
                result = f"{FAILED}: {measured.why}" if measured.why else PASSED
                outcome = _outcome(each, measured.figure, result)
            except NotPossibleError as reason:
                outcome = _outcome(each, "", f"{NOT_POSSIBLE}: {reason}")
            except Exception as error:
                bench.end_workers()
                outcome = _outcome(each, "", f"{FAILED}: {_line(error)}")
        seconds = time.monotonic() - begun
        print_error(
            f"[{number}/{len(rows)}] {each.name}: {outcome.result}; {outcome.figure or 'no figure'} ({seconds:.0f} s)"
        )
        yield outcome


def _outcome(each: Row, figure: str, result: str) -> Outcome:
    return Outcome(each.name, each.compared, plain(figure), each.limit, plain(result))


def _line(error: Exception) -> str:
    """The one line of an error."""
    said = " ".join(str(error).split())[:_LONGEST]
    return said or type(error).__name__
