"""What the functions of the API give: a verdict, tables, JSON, a page, and how a person sees it."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import SpecError
from parity.common.base.terminal import Terminal
from parity.common.diagnosis.result import Diagnosis
from parity.common.parity.compare import EXIT_CODES
from parity.common.parity.result import Result
from parity.common.report import diagnosis as diagnosis_words
from parity.common.report import files
from parity.common.report.html.comparison import write_html
from parity.common.report.html.diagnosis import Subject, write_diagnosis, write_diagnosis_html
from parity.common.report.next_steps import NextStep, after_comparison, after_diagnosis
from parity.common.report.terminal import print_checks, print_verdict, write_reports
from parity.common.report.terminal_diagnosis import print_diagnosis

Rows = Sequence[Mapping[str, Any]]
# Of text that a notebook shows: rows of figures stay whole.
_WIDTH = 160


class Answer:
    """What was found. In a notebook it shows itself; `str()` gives the same as text."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.verdict}>"

    @property
    def verdict(self) -> str:
        """'parity', 'divergent' or 'inconclusive', unless the class says other words."""
        raise NotImplementedError

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        return EXIT_CODES[self.verdict]  # type: ignore[index]

    @property
    def tables(self) -> tuple[str, ...]:
        """What `table` can be asked for."""
        return tuple(self._tables())

    def table(self, name: str) -> Any:
        """A table of figures.

        Returns:
            A pandas.DataFrame where pandas is installed; else columns by name, each a NumPy array (rows,).

        Raises:
            SpecError: there is no such table.
        """
        tables = self._tables()
        if name not in tables:
            raise SpecError(f"there is no table {name!r}; there are {', '.join(tables)}")
        columns = columns_of(tables[name]())
        if importlib.util.find_spec("pandas") is None:
            return columns
        return importlib.import_module("pandas").DataFrame(columns)

    def to_json(self, path: str | Path | None = None) -> dict[str, Any]:
        """All of it as plain data, as the command writes it; into a file, too, where `path` names one.

        Raises RecordError where that cannot be written.
        """
        data = self._json()
        if path is not None:
            files.write_data(data, Path(path))
        return data

    def to_html(self, path: str | Path) -> Path:
        """Write the page, one file that opens offline, and return where.

        Raises:
            RecordError: it cannot be written.
            SpecError: there is no page of such an answer.
        """
        raise SpecError("there is no page of this; str() and to_json() say all of it")

    def show(self, console: Terminal | None = None, *, every: bool = False, advice: bool = True) -> None:
        """Print it as the command does.

        Args:
            console: where; standard output, if not given.
            every: all rows and checks.
            advice: also what to do next, where there is something.
        """
        console = console or Terminal()
        self._print(console, every)
        for step in self._next_steps() if advice else ():
            console.tell(f"next: {step.line}")

    def __str__(self) -> str:
        console = Terminal(file=io.StringIO(), width=_WIDTH)
        self.show(console)
        return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        console = Terminal(file=io.StringIO(), width=_WIDTH, record=True)
        self.show(console)
        return console.html()

    def _print(self, console: Terminal, every: bool) -> None:
        raise NotImplementedError

    def _next_steps(self) -> Sequence[NextStep]:
        return ()

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {}

    def _json(self) -> dict[str, Any]:
        raise NotImplementedError


def columns_of(rows: Rows) -> dict[str, NDArray[Any]]:
    """Rows as columns (rows,) by name; None becomes NaN among numbers and '' among texts."""
    columns: dict[str, NDArray[Any]] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        empty = "" if any(isinstance(value, str) for value in values) else np.nan
        columns[name] = np.asarray([empty if value is None else value for value in values])
    return columns


@dataclass(frozen=True, repr=False)
class Compared(Answer):
    """A reference and its candidates. result: all checks, and the records. report: where the page lies, if it was written."""

    result: Result
    report: str | None = None

    @property
    def verdict(self) -> str:
        return self.result.verdict

    def written(self, folder: Path) -> Compared:
        """The same with report.html, report.json and report.xml written; raises RecordError where they cannot be."""
        return replace(self, report=write_reports(self.result, folder))

    def _print(self, console: Terminal, every: bool) -> None:
        for comparison in self.result.comparisons if every else ():
            print_checks(comparison, console)
        print_verdict(self.result, console, self.report)

    def _next_steps(self) -> Sequence[NextStep]:
        return after_comparison(self.result)

    def to_html(self, path: str | Path) -> Path:
        write_html(self.result, Path(path))
        return Path(path)

    def _json(self) -> dict[str, Any]:
        return files.to_json(self.result)

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {"checks": self._checks, "steps": self._steps}

    def _checks(self) -> Rows:
        return [
            {
                "reference": one.reference,
                "candidate": one.candidate,
                "check": check.name,
                "passed": check.passed,
                "deviation": check.deviation,
                "allowed": check.budget,
                "where": check.where,
            }
            for one in self.result.comparisons
            for check in one.checks
        ]

    def _steps(self) -> Rows:
        return [
            {"run": record.label, "step": int(step), "loss": float(loss)}
            for record in self.result.records
            for step, loss in zip(record.steps, record.loss, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class Diagnosed(Answer):
    """When, where and why two runs part. diagnosis: all of it. subject: what its page says of the two besides. report: as of
    `Compared`.
    """

    diagnosis: Diagnosis
    subject: Subject
    report: str | None = None

    @property
    def verdict(self) -> str:
        return self.diagnosis.verdict

    def _print(self, console: Terminal, every: bool) -> None:
        print_diagnosis(self.diagnosis, console, self.report)

    def _next_steps(self) -> Sequence[NextStep]:
        return after_diagnosis(self.diagnosis, self.subject.records)

    def to_html(self, path: str | Path) -> Path:
        write_diagnosis_html(self.diagnosis, self.subject, Path(path))
        return Path(path)

    def written(self, path: Path) -> Diagnosed:
        """The same with `path`.json and `path`.html written; raises RecordError where they cannot be."""
        return replace(self, report=write_diagnosis(self.diagnosis, self.subject, path))

    def _json(self) -> dict[str, Any]:
        return diagnosis_words.to_json(self.diagnosis)

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {"findings": self._findings, "tensors": self._tensors}

    def _findings(self) -> Rows:
        return [
            {
                "step": finding.step,
                "name": finding.name,
                "deviation": finding.deviation,
                "cause": None if why is None else why.text,
                "confidence": None if why is None else why.confidence,
                "fix": None if why is None else why.fix,
            }
            for finding in self.diagnosis.findings
            for why in [finding.explanation]
        ]

    def _tensors(self) -> Rows:
        return [
            {
                "step": step.step,
                "name": tensor.name,
                "as_trained": tensor.deviation,
                "by_itself": alone.get((tensor.name, tensor.replica)),
                "allowed": tensor.allowed,
            }
            for step in self.diagnosis.steps
            for alone in [{(each.name, each.replica): each.deviation for each in step.injected}]
            for tensor in step.as_trained
        ]
