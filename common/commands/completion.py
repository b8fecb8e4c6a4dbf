"""`parity completion bash | zsh`: a shell's own script, made of the flags; completing runs nothing of ours."""

from __future__ import annotations

import argparse
from typing import Any

from parity.common.base.errors import MissingPackageError
from parity.common.base.plain import print_document
from parity.common.commands import add_command


def add(commands: Any) -> None:
    """Register the subcommand."""
    notes = (
        "bash: parity completion bash > ~/.local/share/bash-completion/completions/parity. zsh: into a file _parity in a"
        " folder of $fpath. Make it again after an update."
    )
    examples = "completion bash", "completion zsh"
    command = add_command(commands, "completion", run, notes, examples, result="")
    command.add_argument("shell", choices=["bash", "zsh"])


def run(options: argparse.Namespace) -> int:
    """Print the script. Raises MissingPackageError without shtab."""
    try:
        import shtab
    except ImportError:
        raise MissingPackageError("'parity completion' needs shtab; run: pip install shtab") from None
    from parity.common.commands.main import parser_of

    print_document(shtab.complete(parser_of(listed=True), options.shell))
    return 0
