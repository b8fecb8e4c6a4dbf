"""A name of the user's imported, and what it names called; in the process of its framework."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from parity.common.base.errors import ExternalModelError
from parity.common.base.package import ROOT
from parity.common.execution.processes.user_errors import blame, user_line
from parity.common.external.process.calling import closest
from parity.common.external.process.calls import qualified
from parity.common.external.process.float64_code import CODE
from parity.common.spec.external.target import Target
from parity.common.spec.strategies import Framework

_OTHER = {"tensorflow": ("torch",), "torch": ("tensorflow", "keras"), None: ()}
_TITLES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}
_OURS = ("parity", "parity_tests")


class _Without:
    """A finder of modules that does not find some packages."""

    def __init__(self, finder: Any, names: Sequence[str]) -> None:
        self._finder, self._names = finder, names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self._names else self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def prepare_import_path(folder: Path, framework: Framework | None) -> None:
    """Import as a script in `folder` would, and the other framework, if any, not at all: it looks as if not installed."""
    sys.path[:] = [str(folder), *(path for path in sys.path if path != str(folder))]
    if hidden := [name for name in _OTHER[framework] if name not in sys.modules]:
        # Not by None in sys.modules: libraries such as einops look there for what is loaded, and import it.
        sys.meta_path[:] = [_Without(finder, hidden) for finder in sys.meta_path]


def resolve(target: Target, framework: Framework | None) -> Any:
    """What a target names; raises ExternalModelError in one line where it cannot be imported."""
    CODE.remember(target.module)
    try:
        found: Any = importlib.import_module(target.module)
    except ImportError as error:
        raise _not_imported(error, target, framework) from None
    except (Exception, SystemExit) as error:
        raise blame(error, f"importing {target.module}") from None
    for depth, part in enumerate(parts := target.attribute.split(".")):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            where = ".".join([target.module, *parts[:depth]])
            near = closest(part, [name for name in dir(found) if not name.startswith("__")], 0.5)
            raise ExternalModelError(
                f"{where} has no {part!r}{near or f'; {_offered(found)}'}{user_line(error)}"
            ) from None
        except (Exception, SystemExit) as error:
            raise blame(error, f"{target.module}:{target.attribute}") from None
    return found


def made(
    target: Target,
    framework: Framework,
    cls: type | tuple[type, ...],
    wanted: str,
    model: Any = None,
    first: tuple[Any, ...] = (),
    instead: Mapping[type, str] = {},
) -> Any:
    """Return what a target names where it is of a class, else what that gives when it is called.

    Args:
        target: imported here; its arguments are passed on.
        framework: of this process.
        cls: of what is wanted.
        wanted: what messages call it, as in 'a keras.Model'.
        model: the only positional argument where the first parameter is called 'model', 'module' or 'net'.
        first: the positional arguments otherwise.
        instead: of other classes, what to do, for the message.

    Raises:
        ExternalModelError: it cannot be imported, fails, or gives something else.
    """
    found = resolve(target, framework)
    if not isinstance(found, cls):
        signature = _signature(found)
        parameters = signature.parameters if signature is not None else ()
        if model is not None and next(iter(parameters), "") in ("model", "module", "net"):
            first = (model,)
        found = call(found, target, first, wanted)
    if not isinstance(found, cls):
        hint = next((f": {do}" for other, do in instead.items() if isinstance(found, other)), "")
        raise ExternalModelError(
            f"{target} gives an object of type {qualified(type(found))}; it must give {wanted}{hint}"
        )
    return found


def function_of(target: Target, framework: Framework, wanted: str) -> Callable[..., Any]:
    """Return the function of two or three arguments that a target names, or that a class or function gives when it is called.

    Args:
        target: imported here; its arguments are passed on.
        framework: of this process.
        wanted: what messages call it, as in 'a loss'.

    Raises:
        ExternalModelError: it cannot be imported, fails, or gives something else.
    """
    found = resolve(target, framework)
    if inspect.isclass(found) or not (takes(found, 2) or takes(found, 3)):
        found = call(found, target, (), wanted)
    elif target.arguments:
        found = partial(found, **target.arguments)
    if not callable(found) or not (takes(found, 2) or takes(found, 3)):
        raise ExternalModelError(f"{target} is of type {qualified(type(found))}; it must give {wanted}")
    function: Callable[..., Any] = found
    return function


def takes(function: Any, count: int) -> bool:
    """Whether a function can be called with so many positional arguments; True where that cannot be known."""
    # A module's own signature says nothing.
    signature = _signature(getattr(function, "forward", function))
    try:
        return signature is None or bool(signature.bind(*[None] * count))
    except TypeError:
        return False


def call(found: Any, target: Target, first: tuple[Any, ...], wanted: str) -> Any:
    """Return what a function or class gives for `first` and the target's arguments; raises ExternalModelError."""
    if not callable(found):
        raise ExternalModelError(
            f"{target.module}:{target.attribute} is of type {type(found).__qualname__}; it must be {wanted},"
            " or a function or class that gives one"
        )
    signature = _signature(found)
    if signature is not None:
        shown = str(signature) if len(str(signature)) <= 200 else f"{str(signature)[:197]}..."
        try:
            signature.bind(*first, **target.arguments)
        except TypeError as error:
            raise ExternalModelError(
                f"{target} cannot be called so: {error}; its signature is"
                f" {target.attribute}{shown}; name a function that takes nothing and returns"
                " what this gives"
            ) from None
    try:
        return found(*first, **target.arguments)
    except (Exception, SystemExit) as error:
        raise blame(error, str(target)) from None


def _signature(found: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(found)
    except (ValueError, TypeError):
        return None


def _not_imported(error: ImportError, target: Target, framework: Framework | None) -> ExternalModelError:
    missing = error.name or ""
    top = missing.partition(".")[0]
    place = user_line(error)
    if framework is not None and top in _OTHER[framework]:
        return ExternalModelError(
            f"{target.module} imports {top}{place}, and this process is {_TITLES[framework]}'s: a process holds one"
            f" framework; import {top} inside the functions that need it, or put the two models into two files"
        )
    if isinstance(error, ModuleNotFoundError) and (
        missing == target.module or target.module.startswith(f"{missing}.")
    ):
        if top in _OURS and top in sys.modules:
            return ExternalModelError(
                f"{target.module} is not found: {top!r} is the toolkit's own package here; give yours another name"
            )
        hiding = getattr(sys.modules.get(top), "__file__", None)
        own = [folder for folder in _folders() if (folder / top).is_dir() or (folder / f"{top}.py").is_file()]
        if own and hiding and not any(Path(hiding).is_relative_to(folder) for folder in own):
            return ExternalModelError(
                f"{target.module} is not found: {top!r} is {hiding} here, and hides yours: give yours another name"
            )
        looked = ", ".join(map(str, _folders())) + " and the installed packages"
        return ExternalModelError(f"there is no module {missing!r}{_near(missing)}; looked in {looked}")
    hint = ""
    if top in _OURS:
        hint = f"; {top!r} is the toolkit's own package here, and hides yours: give it another name"
    if isinstance(error, ModuleNotFoundError):
        hint = hint or "; install it, or put its folder on PYTHONPATH"
    return ExternalModelError(
        f"importing {target.module} raised {blame(error, '').args[0].removeprefix(' raised ')}{hint}"
    )


def _near(module: str) -> str:
    """'; closest are ...': modules beside where it should be."""
    *parents, name = module.split(".")
    if name == "py":
        return f"; leave out .py: {'.'.join(parents)}"
    names: set[str] = set()
    for folder in _folders():
        here = folder.joinpath(*parents)
        if here.is_dir():
            names |= {p.stem for p in here.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    near = difflib.get_close_matches(name, sorted(names - {"__init__"}), 3, 0.6)
    return f"; closest are {', '.join('.'.join([*parents, each]) for each in near)}" if near else ""


def _folders() -> list[Path]:
    """Where the user's own modules may be: the working folder and PYTHONPATH, on which our parent put ROOT."""
    own = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder != str(ROOT)]
    given = [sys.path[0], os.getcwd(), *own]
    return list(dict.fromkeys(Path(folder) for folder in given if folder))


def _offered(found: Any) -> str:
    names = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
    return f"it has {', '.join(names[:8])}" + (", ..." if len(names) > 8 else "") if names else "it is empty"
