"""How a command ends that did not do what it was asked: one line for a person, and never with the code of a verdict."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable

from parity.common.base.errors import ParityError
from parity.common.base.plain import print_error


def exit_code_of(name: str, command: Callable[[], int], keep_traceback: bool = False) -> int:
    """Run a command; gives its exit code, or that of how it failed.

    Args:
        name: what the line begins with.
        command: gives an exit code; may raise anything.
        keep_traceback: whether standard error is a log that others search: a traceback then stays there, before the line.
    """
    try:
        code = command()
        if sys.stdout is not None:
            sys.stdout.flush()  # what cannot be written is told here, and not while Python ends
        return code
    except ParityError as error:
        print_error(f"{name}: error: {error}")
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe (head, say) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:
        say_unforeseen(name, error, keep_traceback)
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            # What is left in its buffer cannot be written, and would end Python with a code of its own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return ParityError.exit_code


def say_unforeseen(name: str, error: BaseException, keep_traceback: bool = False) -> None:
    """Say in one line that something failed which nobody foresaw, and where its traceback is; as `exit_code_of`."""
    if isinstance(error, OSError) and error.filename is not None:
        # Of the machine's, not of ours: a full disk, say.
        print_error(f"{name}: error: {error.filename}: {error.strerror or _first_line(error)}")
        return
    details = _details(error, keep_traceback)
    if isinstance(error, OSError):
        print_error(f"{name}: error: {error.strerror or _first_line(error)}; details: {details}")
    else:
        kind = f"{type(error).__name__}: {_first_line(error)}"
        print_error(f"{name}: error: not foreseen, please report it: {kind}; details: {details}")


def _details(error: BaseException, keep_traceback: bool) -> str:
    """Where the traceback of an exception is."""
    text = "".join(traceback.format_exception(error))
    if not keep_traceback:
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix="parity-error-", suffix=".txt", delete=False, encoding="utf-8"
            ) as file:
                file.write(text)
            return file.name
        except OSError:
            pass  # the disk may be what is full
    for line in text.rstrip().split("\n"):
        print_error(line)
    return "above"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:300]
