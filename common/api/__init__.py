"""`import parity`: what the commands do, as functions of plain values that give results.

    import parity

    found = parity.compare("runs/tf", "runs/ddp")
    found.verdict, found.table("checks")

Each function says its progress on standard error (`quiet=True`: nothing), raises a `ParityError` of one line for what a command
ends with code 2 for, and gives an `Answer`: a verdict, tables, JSON and a page. Importing it loads neither framework.
"""

from parity.common.api.answers import Answer, Compared, Diagnosed, Linted, Mapped, Paired, Studied
from parity.common.api.checked import Checked, check
from parity.common.api.models import assert_same_forward, assert_same_training, export, lint, map, pair
from parity.common.api.records import Recorder, compare, diagnose, read_record
from parity.common.api.trainings import read_spec, run, study
from parity.common.base.errors import ParityError

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
