"""What the functions of the API give: a verdict, tables, JSON, a page, and how a person sees it."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import SpecError
from parity.common.base.terminal import Terminal
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.lint.lint import Audit
from parity.common.external.mapping.models import doubts_of, left_of
from parity.common.external.pairs.pair import MAPPING, Outcome
from parity.common.parity.compare import EXIT_CODES
from parity.common.parity.result import Result
from parity.common.report import diagnosis as diagnosis_words
from parity.common.report import files
from parity.common.report.html.comparison import write_html
from parity.common.report.html.diagnosis import Subject, write_diagnosis, write_diagnosis_html
from parity.common.report.html.study import write_study_html
from parity.common.report.lint import print_audit
from parity.common.report.next_steps import NextStep, after_comparison, after_diagnosis, after_study
from parity.common.report.study import print_study, study_to_json
from parity.common.report.terminal import print_checks, print_verdict, write_reports
from parity.common.report.terminal_diagnosis import print_diagnosis
from parity.common.spec.external import mapping as mappings
from parity.common.spec.external.outline import Outline
from parity.common.study.result import StudyResult

Rows = Sequence[Mapping[str, Any]]
# Of text that a notebook shows: rows of figures stay whole.
_WIDTH = 160
# Doubts that `show` lists.
_LISTED = 12


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


@dataclass(frozen=True, repr=False)
class Paired(Answer):
    """A Keras model and its port. folder: of all results. compared, diagnosed: the training, and where the two part; one of
    them at least.
    """

    outcome: Outcome
    folder: Path
    compared: Compared | None
    diagnosed: Diagnosed | None

    @property
    def verdict(self) -> str:
        told = [each.verdict for each in (self.compared, self.diagnosed) if each is not None]
        # What was trained and judged stands; a diagnosis says why.
        return told[0] if told[0] != "parity" else told[-1]

    @property
    def mapping(self) -> mappings.Mapping:
        """Which tensor is which."""
        return mappings.read_mapping(self.folder / MAPPING)

    def _print(self, console: Terminal, every: bool) -> None:
        for number, part in enumerate(self._parts):
            if number:
                console.print()
            part._print(console, every)
        for note in self.outcome.notes:
            console.tell(f"note: {note}")
        console.tell(f"results: {self.folder}")

    def _next_steps(self) -> Sequence[NextStep]:
        return self._parts[-1]._next_steps()

    def to_html(self, path: str | Path) -> Path:
        """Write the page of the diagnosis where there is one, else that of the training; see `Answer.to_html`."""
        return self._parts[-1].to_html(path)

    @property
    def _parts(self) -> list[Compared | Diagnosed]:
        return [part for part in (self.compared, self.diagnosed) if part is not None]

    def _json(self) -> dict[str, Any]:
        named = {"comparison": self.compared, "diagnosis": self.diagnosed}
        return {
            "format": "parity-pair-report",
            "schema_version": 1,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "folder": str(self.folder),
            "notes": list(self.outcome.notes),
            **{name: None if part is None else part.to_json() for name, part in named.items()},
        }

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {name: make for part in self._parts for name, make in part._tables().items()}


@dataclass(frozen=True, repr=False)
class Linted(Answer):
    """Settings in which two models differ: 'equal' or 'different'. traced: whether a pass was made."""

    audit: Audit
    keras: Outline
    torch: Outline
    traced: bool

    @property
    def verdict(self) -> str:
        return "different" if self.audit.differ else "equal"

    @property
    def exit_code(self) -> int:
        return int(self.audit.differ)

    def _print(self, console: Terminal, every: bool) -> None:
        print_audit(self.audit, self.keras, self.torch, self.traced, console)

    def _json(self) -> dict[str, Any]:
        return {**self.audit.to_dict(), "keras": self.keras.target, "torch": self.torch.target}

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        names = "keras", "torch", "setting", "keras_value", "torch_value", "changes", "fix_keras", "fix_torch"
        rows = [{name: getattr(one, name) for name in names} for one in self.audit.differences]
        return {"differences": lambda: [{**row, **_said(row)} for row in rows]}


def _said(row: Mapping[str, Any]) -> dict[str, str]:
    """Both values as text: a column has one type."""
    return {
        name: "" if row[name] is None else json.dumps(row[name]) for name in ("keras_value", "torch_value")
    }


@dataclass(frozen=True, repr=False)
class Mapped(Answer):
    """Which tensor and layer is which: 'mapped', 'doubtful', or 'incomplete' where a trained tensor has no counterpart.

    outlines: of Keras's and of torch's model. path: where the mapping was written, if it was.
    """

    mapping: mappings.Mapping
    outlines: tuple[Outline, Outline]
    path: Path | None = None

    @property
    def verdict(self) -> str:
        if left_of(self.mapping, self.outlines):
            return "incomplete"
        return "doubtful" if self.mapping.doubtful else "mapped"

    @property
    def exit_code(self) -> int:
        return {"mapped": 0, "incomplete": 2, "doubtful": 3}[self.verdict]

    def write(self, path: str | Path) -> Mapped:
        """Write mapping.yaml, which `pair`, `export` and others take; raises ExternalModelError where it cannot be."""
        mappings.write_mapping(Path(path), self.mapping)
        return replace(self, path=Path(path))

    def _print(self, console: Terminal, every: bool) -> None:
        doubts, mapping = doubts_of(self.mapping), self.mapping
        for line in doubts if every else doubts[:_LISTED]:
            console.tell(f"  {line}")
        if len(doubts) > _LISTED and not every:
            console.tell(
                f"  and {len(doubts) - _LISTED} more{'' if self.path is None else f', in {self.path}'}"
            )
        console.tell(
            f"{len(mapping.tensors)} pairs of tensors, {len(mapping.doubtful)} doubtful; {len(mapping.layers)} pairs of"
            f" layers{'' if self.path is None else f': {self.path}'}"
        )

    def _json(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "exit_code": self.exit_code, **self.mapping.to_dict()}

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        tensors = [
            {
                "keras": " ".join(pair.keras),
                "torch": " ".join(pair.torch),
                "rule": pair.rule,
                "source": pair.source,
                "doubt": pair.doubt or "",
            }
            for pair in self.mapping.tensors
        ]
        layers = [{"keras": pair.keras, "torch": pair.torch} for pair in self.mapping.layers]
        return {"tensors": lambda: tensors, "layers": lambda: layers}


@dataclass(frozen=True, repr=False)
class Studied(Answer):
    """Trainings over seeds: 'equivalent', 'different' or 'undecided'. folder: of the study. report: as of `Compared`."""

    result: StudyResult
    folder: Path
    report: str

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    def _print(self, console: Terminal, every: bool) -> None:
        print_study(self.result, console, self.report)

    def _next_steps(self) -> Sequence[NextStep]:
        return after_study(self.result, self.folder)

    def to_html(self, path: str | Path) -> Path:
        write_study_html(self.result, Path(path))
        return Path(path)

    def _json(self) -> dict[str, Any]:
        return study_to_json(self.result)

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {"figures": self._figures}

    def _figures(self) -> Rows:
        return [
            {
                "candidate": one.candidate,
                "figure": one.figure.name,
                "difference": one.estimate,
                "low": one.interval[0],
                "high": one.interval[1],
                "margin": one.margin_size,
                "p_equivalence": one.p_equivalence,
                "p_different": one.p_different,
                "verdict": one.verdict,
            }
            for one in self.result.results
        ]
