"""Errors of a user's code in one line that names their file, and not ours."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

import parity.common
from parity.common.base.errors import ExternalModelError, ParityError

_OURS = Path(parity.common.__file__).resolve().parent.parent
_PACKAGES = ("common", "tf_impl", "torch_impl", "parity")
_LENGTH = 500
# What TensorFlow adds of its own to a message.
_NOISE = re.compile(r"\{\{function_node [^}]*\}\} ?| ?\[Op:\w+\]( name:.*)?$")
# Keras puts a message, in bold, between paragraphs on the layer that it passed through.
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
# The user's code may go elsewhere.
_HERE = Path.cwd()


def blame(error: BaseException, what: str) -> ExternalModelError:
    """`what` raised ...: type, message and the line of the user's code that it came from.

    An error that is already made for people is passed on as it is.
    """
    if isinstance(error, ExternalModelError):
        return ExternalModelError(_one_line(error)) if _BOLD in str(error) else error
    if isinstance(error, ParityError):
        return ExternalModelError(f"{what}: {error}")
    place = user_line(error)
    if isinstance(error, SystemExit):
        said = f"called sys.exit({'' if error.code is None else repr(error.code)[:80]})"
        return ExternalModelError(
            f"{what} {said}{place}; a model is built and called without ending the process"
        )
    if isinstance(error, EOFError):
        return ExternalModelError(
            f"{what} waited for input{place}; nobody is there to type: give it as an argument"
        )
    if isinstance(error, MemoryError):
        return ExternalModelError(f"{what} ran out of memory{place}; take a smaller batch")
    return ExternalModelError(f"{what} raised {described(error)}")


def described(error: BaseException) -> str:
    """Type, message in one line, and the line of the user's code that it came from: 'ValueError: no (models.py:12)'."""
    text = _one_line(error)
    return f"{type(error).__name__}{': ' if text else ''}{text}{user_line(error)}"


def user_line(error: BaseException) -> str:
    """' (models.py:12)' of the innermost frame in the user's own code; '' where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({_shown(error.filename)}:{error.lineno})"
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    return place_of(frames)


def place_of(frames: Sequence[tuple[str, int | None]]) -> str:
    """' (models.py:12)' of the last frame that is in a user's own file."""
    for filename, line in reversed(frames):
        if is_users(filename):
            return f" ({_shown(filename)}:{line})"
    return ""


def is_users(filename: str) -> bool:
    """Whether a file is neither Python's, nor an installed package's, nor ours."""
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    if any(path.is_relative_to(_OURS / package) for package in _PACKAGES):
        return False
    return not any(path.is_relative_to(folder) for folder in _INSTALLED)


def _installed() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    folders |= {os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix)}
    return tuple(Path(folder).resolve() for folder in folders)


_INSTALLED = _installed()


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(_HERE)) if path.is_relative_to(_HERE) else path.name


def _one_line(error: BaseException) -> str:
    text = str(error).rpartition(_BOLD)[2].partition(_PLAIN)[0]
    text = _NOISE.sub("", " ".join(text.split()))
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."
