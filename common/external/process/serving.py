"""The child's side of a ExternalWorker: it holds one model of a user, and answers questions about it."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from parity.common.base.errors import ExternalModelError
from parity.common.base.package import MODULES
from parity.common.execution.processes.service import Service
from parity.common.execution.processes.user_errors import blame
from parity.common.external.process.pass_result import Array, Arrays, PassResult
from parity.common.external.process.resolve import prepare_import_path
from parity.common.spec.external.target import Target
from parity.common.spec.losses import parse_loss

# What the frameworks say of a float32 tensor that meets a float64 one.
_MIXED = re.compile(
    r"Float and Double|Double and Float|double tensor but is a float|float tensor but is a double|Double but found Float|Float but found Double"
)


class Session(Service):
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
        if question not in ("open", "build") and self._model is None:
            raise ExternalModelError(f"there is no model: {self._target} could not be built")
        self.doing = str(self._target) if self._target else "the process"
        return super().answer(question, arguments)

    def explain(self, error: BaseException) -> str:
        """Return an error of the user's code in one line, and what to do where it comes from the precision."""
        mixed = self._precision == "float64" and _MIXED.search(str(error))
        hint = "; its code fixes float32 somewhere: take the precision float32" if mixed else ""
        return f"{blame(error, self.doing)}{hint}"

    def open(self, precision: str, folder: str, threads: int, **model: Any) -> None:
        """Import the framework, stand where the user's code expects to be, and build the first model."""
        self.doing = f"importing {self._framework}"
        self._precision = precision
        self._part("load").prepare(precision, threads)
        prepare_import_path(Path(folder), self._framework)
        self.build(**model)

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
