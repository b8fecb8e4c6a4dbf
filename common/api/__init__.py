"""`import parity`: what the commands do, as functions of plain values that give results.

    import parity

    found = parity.compare("runs/tf", "runs/ddp")
    found.verdict, found.table("checks")

Each function says its progress on standard error (`quiet=True`: nothing), raises a `ParityError` of one line for what a command
ends with code 2 for, and gives an `Answer`: a verdict, tables, JSON and a page. Importing it loads neither framework, and no more than is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.common.api.answers import Answer, Compared, Diagnosed
    from parity.common.api.checked import Checked, check
    from parity.common.api.model_answers import Linted, Mapped, Paired
    from parity.common.api.models import assert_same_forward, assert_same_training, export, lint, map, pair
    from parity.common.api.records import Recorder, compare, diagnose, read_record
    from parity.common.api.trainings import Studied, read_spec, run, study
    from parity.common.base.errors import ParityError

_MODULES = {
    "answers": "Answer Compared Diagnosed",
    "checked": "Checked check",
    "model_answers": "Linted Mapped Paired",
    "models": "assert_same_forward assert_same_training export lint map pair",
    "records": "Recorder compare diagnose read_record",
    "trainings": "Studied read_spec run study",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}
_HOMES["ParityError"] = "parity.common.base.errors"

__all__ = [
    "Answer",
    "Checked",
    "Compared",
    "Diagnosed",
    "Linted",
    "Mapped",
    "Paired",
    "ParityError",
    "Recorder",
    "Studied",
    "assert_same_forward",
    "assert_same_training",
    "check",
    "compare",
    "diagnose",
    "export",
    "lint",
    "map",
    "pair",
    "read_record",
    "read_spec",
    "run",
    "study",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
