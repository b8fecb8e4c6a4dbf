"""Which Python runs a framework: this one, or that of another environment; and what is missing there."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys

from parity.common.base.errors import MissingPackageError, how_to_install
from parity.common.spec.strategies import Framework
from parity.import_path import PIP_NAMES

_EXTRAS: dict[Framework, str] = {"tensorflow": "tf", "torch": "torch"}
# What names the Python of a framework that is installed elsewhere.
_VARIABLES: dict[Framework, str] = {"tensorflow": "PARITY_TF_PYTHON", "torch": "PARITY_TORCH_PYTHON"}
# The modules that our half needs there besides the framework.
_NEEDED = ("numpy", "pydantic", "safetensors", "yaml")
_FIND = "import sys, importlib.util as u; print(*(m for m in sys.argv[1:] if u.find_spec(m) is None))"
_SECONDS = 60.0


def python_of(framework: Framework) -> str:
    """The Python of a framework: what the variable names, else this one."""
    named = os.environ.get(_VARIABLES[framework])
    return sys.executable if not named else shutil.which(os.path.expanduser(named)) or named


def require(framework: Framework, python: str | None = None) -> None:
    """Raise MissingPackageError where a framework, or what we need beside it, is not installed; it says what to do.

    Args:
        framework: which one.
        python: the Python that is to have it; None: that of `python_of`.
    """
    python = python_of(framework) if python is None else python
    if python == sys.executable:
        if importlib.util.find_spec(framework) is None:
            raise MissingPackageError(
                f"{framework} is not installed; {how_to_install(_EXTRAS[framework])}, or name in"
                f" {_VARIABLES[framework]} the Python that has it"
            )
        return
    said = f"{_VARIABLES[framework]}={python}"
    try:
        missing = missing_in(python, (framework, *_NEEDED))
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or "it is no Python that runs"
        raise MissingPackageError(
            f"{said}: {why}; give the path of the Python that has {framework}, as bin/python of its environment"
        ) from None
    if missing:
        names = [PIP_NAMES.get(module, module) for module in missing]
        raise MissingPackageError(
            f"{said} lacks {', '.join(names)}; run: {python} -m pip install {' '.join(names)}"
        )


@functools.lru_cache
def missing_in(python: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Those of some modules that a Python cannot import; raises OSError and SubprocessError where it does not run."""
    if python == sys.executable:
        return tuple(module for module in modules if importlib.util.find_spec(module) is None)
    call = [python, "-c", _FIND, *modules]
    # Elsewhere: nothing of the working folder is to be found.
    done = subprocess.run(call, capture_output=True, text=True, timeout=_SECONDS, check=True, cwd="/")
    return tuple(done.stdout.split())
