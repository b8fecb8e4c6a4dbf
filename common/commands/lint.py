"""`parity lint`: every difference of settings between a Keras model and its PyTorch port, before a step is trained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common import api
from parity.common.commands import add_command, add_model_flags, print_result
from parity.common.commands.inputs import add_input_flags, inputs_of
from parity.common.report.terminal import table_console

# Rows of a file that are looked at: shapes matter, numbers do not.
_ROWS = 2


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "lint",
        run,
        "Exit codes: 0 no difference but of layout or initial values, 1 differences, 2 usage error or a model that cannot be built."
        " Rows are those of DIFFERENCES: what frameworks are known to do differently.",
        (
            "lint --keras my_pkg.models:build --torch my_pkg.port:Net --input-shape 32,32,3",
            "lint --keras my_pkg.models:build --torch my_pkg.port:Net --data my.npz --json",
        ),
        result="every value of every layer",
    )
    flag, model = command.add_argument, "MODULE:ATTRIBUTE"
    add_model_flags(command)
    flag("--keras-optimizer", metavar=model, help="what gives its optimizer")
    flag("--torch-optimizer", metavar=model, help="likewise; called with the model's parameters")
    add_input_flags(command, required=False)
    flag("--mapping", type=Path, help="a mapping.yaml that says which layers correspond")


def run(options: argparse.Namespace) -> int:
    """Print what differs; 1 where anything does but layouts and initial values."""
    found = api.lint(
        options.keras,
        options.torch,
        inputs_of(options, _ROWS),
        keras_optimizer=options.keras_optimizer,
        torch_optimizer=options.torch_optimizer,
        mapping=options.mapping,
    )
    print_result(options, found.to_json())
    found.show(table_console(), every=options.verbose)
    return found.exit_code
