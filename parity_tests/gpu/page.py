"""The page docs/gpu.md: the machine, and a row for each check."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from parity.common.base.files import replacing
from parity.common.base.units import show_size
from parity.common.execution.interpreters import python_of
from parity_tests.gpu.rows import Outcome

_HEAD = """# GPUs

`scripts/gpu_check` writes this page; do not edit. On a machine with an NVIDIA GPU or several it takes less than ten minutes, with
torch from 2.4 on, and with or without TensorFlow:

```sh
scripts/gpu_check                                # all rows, on the GPUs
scripts/gpu_check --only ddp fsdp2 --out some.md # some of them
scripts/gpu_check --device cpu --out cpu.md      # the same on a CPU, to see that the check itself works
```

It takes `.venv/bin/python`, or else `python3`; `PARITY_TORCH_PYTHON` names another, `PARITY_TF_PYTHON` one that has TensorFlow. The
exit code is 1 where a row failed. A row that raises has failed, with its line, and the others go on.

"""
_NONE = """**No GPU has been at hand yet.** What follows is the check itself on a CPU: the rows that a CPU can have, with "device" standing for the
CPU with two threads, and with narrower convolutions. It shows that the command works; it says nothing of GPUs.

"""
_READ = """
*figure*: of a comparison the largest relative deviation of the loss curve, of the first step's gradients and of the final
state. *limit*: how far it may go. `reported`: a figure without a limit.

"""
# What a Python says of a package's version without loading it.
_VERSION = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"


def machine(torch: Mapping[str, Any]) -> dict[str, str]:
    """Hardware, driver and versions, by what the page calls them; torch: what its process reports."""
    found = {"Date": datetime.now(timezone.utc).strftime("%Y-%m-%d")}
    gpus = [
        f"{gpu['name']}, {show_size(gpu['bytes'])}, compute capability {'.'.join(map(str, gpu['capability']))}"
        for gpu in torch["gpus"]
    ]
    for each in dict.fromkeys(gpus):
        found[f"GPU x{gpus.count(each)}"] = each
    if gpus:
        found["Driver"] = (
            _said(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]) or "unknown"
        )
    else:
        found["GPU"] = "none"
    found["CPU"] = f"{_processor()}, {len(os.sched_getaffinity(0))} cores"
    found["System"] = f"{platform.system()} {platform.release()}"
    found |= torch["versions"]
    for title, package in (("TensorFlow", "tensorflow"), ("Keras", "keras")):
        found[title] = _said([python_of("tensorflow"), "-c", _VERSION, package]) or "not installed"
    return found


def _said(call: Sequence[str]) -> str:
    """The first line that a program prints; '' where it is not there or fails."""
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if lines and not done.returncode else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def text_of(facts: Mapping[str, str], rows: Sequence[Outcome], on_gpu: bool) -> str:
    """The page in Markdown."""
    failed = [row.name for row in rows if row.failed]
    passed = sum(row.result == "passed" for row in rows)
    absent = len(rows) - passed - len(failed)
    summary = f"Of {len(rows)} rows {passed} passed, {absent} were not possible here, {len(failed)} failed"
    lines = [_HEAD, "" if on_gpu else _NONE, "| machine | |\n| --- | --- |\n"]
    lines += [f"| {_cell(name)} | {_cell(value)} |\n" for name, value in facts.items()]
    lines += ["\n", summary, f": {', '.join(failed)}.\n" if failed else ".\n", _READ]
    lines.append("| row | compared | figure | limit | result |\n| --- | --- | --- | --- | --- |\n")
    for row in rows:
        cells = (row.compared, row.figure, row.limit, row.result)
        lines.append(f"| `{row.name}` | {' | '.join(map(_cell, cells))} |\n")
    return "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("<", "&lt;").replace("\n", " ")


def write(path: Path, facts: Mapping[str, str], rows: Sequence[Outcome], on_gpu: bool) -> int:
    """Write the page; returns the exit code: 1 where a row failed, else 0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text_of(facts, rows, on_gpu), encoding="utf-8")
    return int(any(row.failed for row in rows))
