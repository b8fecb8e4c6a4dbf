"""The flow of every diagnosis: observe -> isolate -> explain -> report.

A source gives the observations: replays of runs (`replays.py`), and in `parity.common.external` two live models
side by side and the records of two scripts. `parity.common.report` shows what comes out, whatever the source.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

from parity.common.base.terminal import Terminal
from parity.common.diagnosis.isolate.stages import summarized
from parity.common.diagnosis.result import Diagnosis, Finding


class ObservationSource(ABC):
    """Two runs, or models, as far as they can be observed. findings: those explained until now."""

    def __init__(self, console: Terminal | None = None) -> None:
        self.notes: list[str] = []
        self.findings: list[Finding] = []
        self._console = console or Terminal(quiet=True)

    @abstractmethod
    def observe(self) -> None:
        """Compare what there is: when the two diverge, and each tensor or stage of the steps that matter."""

    @abstractmethod
    def isolate(self) -> Iterator[Finding]:
        """Yield each defect by itself, in the order in which they are to be explained.

        `explain` is called before the next one is asked for, and may have repaired what was found.
        """

    @abstractmethod
    def explain(self, finding: Finding) -> Sequence[Finding]:
        """The finding with its causes, one finding each; itself where no known cause fits."""

    @abstractmethod
    def conclude(self) -> Diagnosis:
        """The verdict on `self.findings`, with everything that was observed."""

    def say(self, text: str) -> None:
        """Report progress."""
        self._console.tell(text, "dim")


def run(source: ObservationSource) -> Diagnosis:
    """Return where and why the two of a source diverge; what a source raises is raised."""
    began = time.monotonic()
    source.observe()
    for finding in source.isolate():
        source.findings += source.explain(finding)
    found = source.conclude()
    return replace(found, stages=found.stages or summarized(found.steps), seconds=time.monotonic() - began)
