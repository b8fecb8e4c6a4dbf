"""What a caller has in hand, named so that a process of its framework can import or load it."""

from __future__ import annotations

import functools
import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

from parity.common.base.errors import ExternalModelError
from parity.common.base.package import MODULES
from parity.common.external.process.calls import qualified
from parity.common.spec.external.target import Target
from parity.common.spec.strategies import Framework

_SAVED = {"tensorflow": "keras_model.keras", "torch": "torch_model.safetensors"}
# What a live model is an instance of, in the words of its classes' modules.
_OWNERS = {"tensorflow": "keras", "torch": "torch"}
SAVED = tuple(_SAVED.values())


def target_of(given: Any, framework: Framework, folder: Path) -> Target:
    """Name a model for its framework's process.

    Args:
        given: 'package.module:attribute'; a function or class that gives the model, with keyword arguments as
            functools.partial has them; or a model, which is written into `folder` as it is, with its weights.
        framework: of the model.
        folder: there already.

    Raises:
        ExternalModelError: another process could not import it, or it cannot be written.
    """
    if isinstance(given, str):
        return Target.of(given)
    if isinstance(given, Target):
        return given
    if isinstance(given, functools.partial):
        if given.args:
            raise ExternalModelError(
                f"{given.func!r} is given with positional arguments; give them by their names"
            )
        return Target.of(name_of(given.func), given.keywords)
    if _OWNERS[framework] in owners_of(given):
        path = (folder / _SAVED[framework]).resolve()
        module = f"{MODULES[framework]}.external.saved"
        importlib.import_module(module).save(given, path)
        return Target(module=module, attribute="load", arguments={"path": str(path)})
    return Target.of(name_of(given))


def name_of(given: Any) -> str:
    """Return 'package.module:attribute' of a function or class, and a text as it is.

    Raises ExternalModelError where another process could not import it.
    """
    if isinstance(given, str):
        return given
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if module is None or name is None:
        raise ExternalModelError(
            f"give 'package.module:attribute', a function, a class or a model; received a {qualified(type(given))}"
        )
    if module == "__main__" or "<" in name:
        where = "a script or notebook that runs" if module == "__main__" else "another function"
        raise ExternalModelError(
            f"{name} is defined in {where}, which another process cannot import; put it into a module"
        )
    if not found_as(module, name, given):
        raise ExternalModelError(
            f"{module} has no {name} that is this one; give its name as 'package.module:attribute'"
        )
    return f"{module}:{name}"


def owners_of(given: Any) -> set[str]:
    """The packages of an object's class and of those that it is derived from."""
    return {cls.__module__.partition(".")[0] for cls in type(given).__mro__}


def found_as(module: str, name: str, given: Any) -> bool:
    """Whether importing a name gives this object."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is given


def kept(target: Target, folder: Path) -> Target:
    """The same target, of a written model in a folder where it stays."""
    path = Path(str(target.arguments.get("path", "")))
    if not target.module.endswith(".external.saved") or path.parent == folder.resolve():
        return target
    stays = folder.resolve() / path.name
    shutil.copyfile(path, stays)
    return target.model_copy(update={"arguments": {"path": str(stays)}})
