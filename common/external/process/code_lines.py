"""Where in a user's code something is called."""

from __future__ import annotations

import sys
from pathlib import Path

# Packages whose code is none of the user's.
_BESIDES = frozenset(
    (
        "parity",
        "__main__",
        "torch",
        "keras",
        "tensorflow",
        "contextlib",
        "functools",
        "runpy",
        # What spells an operation in another way.
        "einops",
        "opt_einsum",
        "jaxtyping",
        "beartype",
    )
)


def code_lines() -> list[str]:
    """Where in the user's code the call is that is made now, 'model.py:12', and where the calls are that it is made in, the innermost first."""
    lines, frame = [], sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _BESIDES:
            lines.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return lines


def code_line() -> str:
    """The innermost of `code_lines`; '' where it comes from none."""
    return next(iter(code_lines()), "")
