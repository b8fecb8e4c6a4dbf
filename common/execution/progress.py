"""Progress of running records, read from the records themselves: no process has to report it."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parity.common.base.plain import plain
from parity.common.base.terminal import Terminal
from parity.common.record import read_record
from parity.common.record.header import steps_in

_SECONDS = 0.2


def watch(folders: dict[str, Path], steps: int, shown: bool = True) -> AbstractContextManager[None]:
    """Show a bar for each labelled record while the body runs; silent where there is no terminal."""
    counters = {label: functools.partial(steps_in, folder / "steps.f64") for label, folder in folders.items()}
    return bars(counters, steps, shown)


@contextmanager
def bars(counters: Mapping[str, Callable[[], int]], total: int, shown: bool = True) -> Iterator[None]:
    """Show a bar for each label, as long as what its counter counts, while the body runs."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Terminal(stderr=True), transient=True) as progress:
        tasks = {label: progress.add_task(escape(plain(label)), total=total) for label in counters}
        done = threading.Event()

        def poll() -> None:
            while not done.wait(_SECONDS):
                for label, task in tasks.items():
                    progress.update(task, completed=counters[label]())

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


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
