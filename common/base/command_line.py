"""What every command line of ours has in common, before it is parsed. Imports nothing heavy: --help answers at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from absl import flags


def spelled(arguments: Iterable[str], mark: str) -> list[str]:
    """Arguments with the words of each flag's name joined by `mark`, whether dashes or underscores joined them."""
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if re.fullmatch(r"--\w[\w-]*", name):
            name = f"--{re.sub('[-_]', mark, name[2:])}"
        found.append(name + equals + value)
    return found


def check_flagfile(arguments: Sequence[str]) -> None:
    """Raise absl's Error for a --flagfile that is no file: of a device absl would wait for the end, which it may not have."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        file = Path(value if equals else following)
        if name in ("--flagfile", "-flagfile") and not file.is_file():
            raise flags.Error(f"--flagfile {file}: no such file")
