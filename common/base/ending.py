"""How a command ends that did not do what it was asked: one line for a person, and never with the code of a verdict."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable

from parity.common.base.errors import ParityError


def exit_code_of(name: str, command: Callable[[], int], keep_traceback: bool = False) -> int:
    """Run a command; gives its exit code, or that of how it failed.

    Args:
        name: what the line begins with.
        command: gives an exit code; may raise anything.
        keep_traceback: whether standard error is a log that others search: a traceback then stays there, before the line.
    """
    try:
        code = command()
        sys.stdout.flush()  # what cannot be written is told here, and not while Python ends
        return code
    except ParityError as error:
        _say(f"{name}: error: {error}")
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe (head, say) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        # Of the machine's, not of ours: a full disk, say.
        where = "" if error.filename is None else f": {error.filename}"
        _say(
            f"{name}: error: {error.strerror or _first_line(error)}{where}; details: {_details(keep_traceback)}"
        )
    except Exception as error:
        _say(
            f"{name}: error: not foreseen, please report it: {type(error).__name__}: {_first_line(error)};"
            f" details: {_details(keep_traceback)}"
        )
    return ParityError.exit_code


def _details(keep_traceback: bool) -> str:
    """Where the traceback of the exception at hand is."""
    text = traceback.format_exc()
    if not keep_traceback:
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix="parity-error-", suffix=".txt", delete=False, encoding="utf-8"
            ) as file:
                file.write(text)
            return file.name
        except OSError:
            pass  # the disk may be what is full
    _say(text.rstrip())
    return "above"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:300]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
