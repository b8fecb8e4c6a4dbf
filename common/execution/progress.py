"""Progress of running records, read from the records themselves: no process has to report it."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from parity.common.base.plain import plain
from parity.common.base.terminal import Terminal
from parity.common.record import read_record
from parity.common.record.header import steps_in

_SECONDS = 0.2
_SECONDS_A_LINE = 30.0


def watch(folders: dict[str, Path], steps: int, shown: bool = True) -> AbstractContextManager[None]:
    """Show how far each labelled record is while the body runs."""
    counters = {label: functools.partial(steps_in, folder / "steps.f64") for label, folder in folders.items()}
    return bars(counters, steps, shown)


@contextmanager
def bars(counters: Mapping[str, Callable[[], int]], total: int, shown: bool = True) -> Iterator[None]:
    """Show for each label how far its counter is, while the body runs: a bar with the time left, or, where there is no
    terminal, a line each half a minute.
    """
    if not shown:
        yield
    elif sys.stderr.isatty():
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
            *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
        )
        with Progress(*columns, console=Terminal(stderr=True), transient=True) as progress:
            tasks = {label: progress.add_task(escape(plain(label)), total=total) for label in counters}

            def update(_: float) -> None:
                for label, task in tasks.items():
                    progress.update(task, completed=counters[label]())

            with _repeated(update, _SECONDS):
                yield
    else:
        # The time to the first step, in which frameworks are started, says nothing of the next ones.
        began: dict[str, tuple[float, int]] = {}
        said = 0

        def say(seconds: float) -> None:
            nonlocal said
            counts = {label: count() for label, count in counters.items()}
            for label, count in counts.items():
                if count:
                    began.setdefault(label, (seconds, count))
            if seconds < (said + 1) * _SECONDS_A_LINE:
                return
            said += 1
            for label, count in counts.items():
                line = _line(label, count, total, seconds, *began.get(label, (0.0, 0)))
                Terminal(stderr=True).tell(line, "dim")

        with _repeated(say, _SECONDS):
            yield


@contextmanager
def _repeated(do: Callable[[float], None], seconds: float) -> Iterator[None]:
    """Do something at intervals while the body runs; it is given the seconds since the start."""
    done, start = threading.Event(), time.monotonic()

    def poll() -> None:
        while not done.wait(seconds):
            do(time.monotonic() - start)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _line(label: str, count: int, total: int, seconds: float, began: float, first: int) -> str:
    """How far a run is after some seconds; `first`: what it had counted when it `began`."""
    each = (seconds - began) / (count - first) if count > first else 0.0
    left = f", about {each * (total - count):.0f} s left" if each and count < total else ""
    return f"  {label}: {count} of {total} after {seconds:.0f} s{left}"


def lines_in(path: Path) -> int:
    """Whole lines of a file that may still grow, or not be there yet."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def closing_line(folder: Path) -> str:
    """One line on what a finished run did and where its record lies."""
    record = read_record(folder)
    summary = record.summary
    assert summary is not None
    text = f"{record.label}: {summary.steps} steps, loss {record.loss[0]:.4f} -> {record.loss[-1]:.4f}"
    if summary.eval_count and record.spec.loss.classes:
        text += f", accuracy {summary.eval_correct / summary.eval_count:.1%} of {summary.eval_count:g}"
    return f"{text}, {summary.wall_seconds:.1f} s; record: {folder}"
