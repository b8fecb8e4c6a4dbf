"""The parity command without a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.common.commands import main
from parity_tests.helpers.records import one_line

# Of all commands; it takes a second to make.
PARSER = main.parser_of()


class Cli:
    """The command without a process of its own, run inside an empty folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)."""
        self._capsys.readouterr()
        code = main.dispatch(PARSER.parse_args([str(argument) for argument in arguments]))
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def refused(self, *arguments: object) -> str:
        """The one line on standard error of a command that must fail and write nothing."""
        before = self.listing()
        code, out, err = self(*arguments)
        assert (code, out) == (2, "")
        assert self.listing() == before, "something was written"
        assert one_line(err).startswith("parity: error: ")
        return err

    def listing(self) -> list[tuple[str, int]]:
        return sorted((str(p.relative_to(self.folder)), p.lstat().st_size) for p in self.folder.rglob("*"))
