"""Export to a framework's own formats, in a process of that framework.

The parent runs `python -m {tf,torch}_impl.convert PATH FORMAT OUT` and reads one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parity.common.base.errors import ParityError, RunError
from parity.common.base.package import MODULES, ROOT
from parity.common.execution.worker import require
from parity.common.spec.strategies import Framework

# Format -> the framework that writes it, and how its files are called.
FORMATS: dict[str, tuple[Framework, tuple[str, ...]]] = {
    "keras": ("tensorflow", (".keras",)),
    "state_dict": ("torch", (".pt", ".pth")),
    "safetensors": ("torch", (".safetensors",)),
    "dcp": ("torch", (".dcp",)),
}


def convert(path: Path, kind: str, out: Path) -> dict[str, Any]:
    """Have `out` written from a run or a checkpoint; returns what the framework's `convert.export` does.

    Raises:
        ParityError: the framework is not installed, or cannot do it, in one line.
    """
    framework = FORMATS[kind][0]
    require(framework)
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    child = subprocess.run(
        [sys.executable, "-m", f"{MODULES[framework]}.convert", str(path), kind, str(out)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        answer: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RunError(f"the {framework} process ended with code {child.returncode}: {last}") from None
    if "error" in answer:
        raise RunError(answer["error"])
    return answer


def converting(export: Callable[[Path, str, Path], dict[str, Any]], arguments: Sequence[str]) -> int:
    """The child's side: call `export`, and answer in one line."""
    path, kind, out = arguments
    try:
        answer = export(Path(path), kind, Path(out))
    except ParityError as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": f"{out}: cannot be written: {error.strerror or error}"}
    except Exception as error:
        traceback.print_exc()
        answer = {"error": f"{path}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"}
    print(json.dumps(answer))
    return 0 if "error" not in answer else ParityError.exit_code
