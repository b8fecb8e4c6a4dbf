"""Progress of running records, read from the records themselves: no process has to report it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from common.record import read_record

_SECONDS = 0.2


@contextmanager
def watch(folders: dict[str, Path], steps: int, shown: bool = True) -> Iterator[None]:
    """Show a bar for each labelled record while the body runs; silent where there is no terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {folder: bars.add_task(label, total=steps) for label, folder in folders.items()}
        done = threading.Event()

        def poll() -> None:
            counters = {folder: _LineCounter(folder / "steps.jsonl") for folder in tasks}
            while not done.wait(_SECONDS):
                for folder, task in tasks.items():
                    bars.update(task, completed=counters[folder].count())

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class _LineCounter:
    """Lines of a growing file, each byte read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = self._offset = 0

    def count(self) -> int:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        except OSError:
            return self._lines
        self._offset += len(chunk)
        self._lines += chunk.count(b"\n")
        return self._lines


def closing_line(folder: Path) -> str:
    """One line on what a finished run did and where its record lies."""
    record = read_record(folder)
    summary = record.summary
    assert summary is not None
    text = f"{record.label}: {summary.steps} steps, loss {record.loss[0]:.4f} -> {record.loss[-1]:.4f}"
    if summary.eval_count and record.spec.loss.classes:
        text += f", accuracy {summary.eval_correct / summary.eval_count:.1%} of {summary.eval_count:g}"
    return f"{text}, {summary.wall_seconds:.1f} s; record: {folder}"
