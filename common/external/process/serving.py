"""The child's side of a ExternalWorker: it holds one model of a user, and answers questions about it.

Standard input and output are taken away from the user's code before any of it runs: what it prints goes to the
log, and what it reads is at its end.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, Literal

from parity.common.base.errors import ExternalModelError, ParityError
from parity.common.base.package import MODULES
from parity.common.execution.operating_system import die_with_pipe
from parity.common.external.process.channel import Channel
from parity.common.external.process.pass_result import Array, Arrays, PassResult
from parity.common.external.process.resolve import prepare_import_path
from parity.common.external.process.user_errors import blame
from parity.common.spec.external.target import Target
from parity.common.spec.losses import parse_loss

# What the frameworks say of a float32 tensor that meets a float64 one.
_MIXED = re.compile(
    r"Float and Double|Double and Float|double tensor but is a float|float tensor but is a double|Double but found Float|Float but found Double"
)


def serve(framework: Literal["tensorflow", "torch"]) -> None:
    """Answer until standard input ends; the first line says what to build."""
    questions, answers = _take_channel()
    folder = Path(sys.argv[1])
    die_with_pipe(int(sys.argv[2]))
    # The parent asks with it where this process is, when it does not answer.
    faulthandler.register(signal.SIGUSR1)
    channel = Channel(folder, "from_child_")
    session = Session(framework)
    for line in questions:
        try:
            job = json.loads(line)
            answer = channel.pack(session.answer(job["do"], channel.unpack(job)))
        except ParityError as error:
            answer = {"error": str(error)}
        except (Exception, SystemExit) as error:
            answer = {"error": f"{blame(error, session.doing)}{session.hint(error)}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    # Threads of a framework may abort a normal exit after everything has been answered.
    sys.stderr.flush()
    os._exit(0)


def _take_channel() -> tuple[IO[str], IO[str]]:
    questions, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return questions, answers


class Session:
    """One model, and what can be asked about it: a public method for each question.

    doing: what an error of the user's code is said to come from.
    """

    def __init__(self, framework: Literal["tensorflow", "torch"]) -> None:
        self._framework = framework
        self._model: Any = None
        self._target: Target | None = None
        self._precision = ""
        self.doing = "the process"

    def answer(self, question: str, arguments: dict[str, Any]) -> Any:
        """Call the method of a question."""
        if question not in ("prepare", "build") and self._model is None:
            raise ExternalModelError(f"there is no model: {self._target} could not be built")
        method: Callable[..., Any] = getattr(self, question)
        self.doing = str(self._target) if self._target else "the process"
        return method(**arguments)

    def hint(self, error: BaseException) -> str:
        """What to do about an error that comes from the precision."""
        mixed = self._precision == "float64" and _MIXED.search(str(error))
        return "; its code fixes float32 somewhere: take the precision float32" if mixed else ""

    def prepare(self, precision: str, folder: str, threads: int) -> None:
        """Import the framework, and stand where the user's code expects to be."""
        self.doing = f"importing {self._framework}"
        self._precision = precision
        self._part("load").prepare(precision, threads)
        prepare_import_path(Path(folder), self._framework)

    def build(self, target: dict[str, Any], seed: int) -> None:
        """Build the model; the one before is gone, also where that fails."""
        self._model = None
        # An experiment on the one before is over, whatever became of it.
        self._part("floating_point").exact_constants(False)
        self._target = Target(**target)
        self.doing = str(self._target)
        self._model = self._part("load").build(self._target, self._precision, seed)

    def outline(self, inputs: Array | Arrays | None, optimizer: dict[str, Any] | None) -> dict[str, Any]:
        self.doing = f"a forward pass of {self._target}"
        made = (
            None
            if optimizer is None
            else self._part("load").build_optimizer(Target(**optimizer), self._model)
        )
        outline = self._part("outline").outline(self._model, str(self._target), inputs, made)
        described: dict[str, Any] = outline.to_dict()
        return described

    def read(self) -> Arrays:
        found: Arrays = self._part("tensors").read(self._model)
        return found

    def write(self, state: Arrays) -> None:
        self._part("tensors").write(self._model, state)

    def forward(self, **arguments: Any) -> dict[str, Any]:
        self.doing = f"a forward pass of {self._target}"
        return _told(self._part("passes").forward(self._model, **arguments))

    def gradients(self, loss: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        self.doing = f"a backward pass of {self._target}"
        parsed = parse_loss(loss)
        if parsed.l1 or parsed.l2:
            raise ExternalModelError(
                "l1 and l2 of a loss are no part of a user's model; take a loss without them"
            )
        return _told(self._part("passes").gradients(self._model, loss=parsed, **arguments))

    def stochastic(self, inputs: Array | Arrays) -> list[str]:
        self.doing = f"a forward pass of {self._target} in training"
        found: list[str] = self._part("passes").stochastic(self._model, inputs)
        return found

    def unregistered_parameters(self, inputs: Array | Arrays) -> list[str]:
        self.doing = f"a forward pass of {self._target}"
        found: list[str] = self._part("passes").unregistered_parameters(self._model, inputs)
        return found

    def update(self, optimizer: dict[str, Any], gradients: list[Arrays], keep: bool) -> dict[str, Any]:
        target = Target(**optimizer)
        self.doing = f"an update by {target}"
        changed: dict[str, Any] = self._part("update").update(self._model, target, gradients, keep)
        return changed

    def dropout(self, on: bool) -> list[str]:
        switched: list[str] = self._part("change").dropout(self._model, on)
        return switched

    def exact_constants(self, on: bool) -> None:
        self._part("floating_point").exact_constants(on)

    def set(self, layer: str, setting: str, value: Any) -> Any:
        return self._part("change").change(self._model, layer, setting, value)

    def _part(self, name: str) -> Any:
        return importlib.import_module(f"{MODULES[self._framework]}.external.{name}")


def _told(passed: PassResult) -> dict[str, Any]:
    # Not by asdict, which would copy the arrays.
    return {part.name: getattr(passed, part.name) for part in fields(passed)}
