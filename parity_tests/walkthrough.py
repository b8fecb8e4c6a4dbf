"""A page of docs/ that is walked through: its files are written, its commands run, and what they print is looked for.

A block ```LANGUAGE PATH is a file, which a later block of the same path replaces. In a block ```console a line
'$ COMMAND' is run by bash; the lines below it are looked for in what it prints, in this order, spaces apart, '...' being
anything. A command ends with code 0, or as a last line '(exit code N)' says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"\(exit code (\d+)\)")
_SECONDS = 900


@dataclass(frozen=True)
class Command:
    """A line that is run, what it should print, and the code it should end with."""

    text: str
    printed: tuple[str, ...]
    code: int


def steps(page: str) -> Iterator[tuple[str, str] | Command]:
    """The files, as (path, content), and the commands of a page, in its order."""
    for language, path, content in _FENCE.findall(page):
        if language == "console":
            yield from _commands(content)
        elif path:
            yield path, content


def _commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        text, *printed = part.replace("\\\n", " ").splitlines()
        code = _CODE.fullmatch(printed[-1].strip()) if printed else None
        yield Command(
            text,
            tuple(line for line in (printed[:-1] if code else printed) if line.strip() not in ("", "...")),
            int(code[1]) if code else 0,
        )


def missing(printed: str, expected: tuple[str, ...]) -> str | None:
    """The first expected line that is not in what was printed, after those before it; None where all are."""
    there = " ".join(printed.split())
    place = 0
    for line in expected:
        pattern = ".*?".join(re.escape(" ".join(part.split())) for part in line.split("..."))
        found = re.compile(pattern).search(there, place)
        if found is None:
            return line
        place = found.end()
    return None


def walk(page: Path, folder: Path) -> list[Command]:
    """Do in a folder all that a page says; gives the commands that were run. Fails at the first that is not as it says."""
    ran = []
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    for step in steps(page.read_text(encoding="utf-8")):
        if not isinstance(step, Command):
            target = folder / step[0]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step[1], encoding="utf-8")
            continue
        done = subprocess.run(
            ["bash", "-c", step.text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        assert done.returncode == step.code, f"$ {step.text}\nended with {done.returncode}:\n{done.stdout}"
        lacks = missing(done.stdout, step.printed)
        assert lacks is None, f"$ {step.text}\ndid not print {lacks!r}:\n{done.stdout}"
        ran.append(step)
    return ran
