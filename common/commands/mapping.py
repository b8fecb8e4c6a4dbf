"""`parity map`: which tensor and which layer of a Keras model is which of its PyTorch port; nothing is trained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common import api
from parity.common.base.errors import RecordError
from parity.common.commands import add_command, add_model_flags, print_result
from parity.common.commands.inputs import add_input_flags, inputs_of
from parity.common.external.mapping.models import check_mapped

# Samples that both models are called with.
_ROWS = 4


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "map",
        run,
        "Exit codes: 0 every trained tensor has its counterpart, 2 usage error, a model that cannot be built, or a tensor"
        " without counterpart, 3 some pairs are doubtful. The file is what 'parity pair', 'parity export' and, for the"
        " layers, 'parity diagnose' take as --mapping.",
        (
            "map --keras my_pkg.models:build --torch my_pkg.port:Net --data my.npz",
            "map --keras my_pkg.models:build --torch my_pkg.port:Net --input-shape 32,32,3 --out my.yaml --overwrite",
        ),
        result="the mapping",
    )
    add_model_flags(command)
    flag = command.add_argument
    add_input_flags(command, required=True)
    flag("--mapping", type=Path, help="a mapping.yaml to verify, or to complete [it is proposed]")
    flag("--out", type=Path, default=Path("mapping.yaml"), help="the file to write [mapping.yaml]")
    flag("--overwrite", action="store_true", help="replace OUT where it is there")


def run(options: argparse.Namespace) -> int:
    """Map, and try the mapping out; 0 where nothing is in doubt. Raises RecordError where OUT is there already."""
    out = options.out
    if out.exists() and not options.overwrite and out != options.mapping:
        raise RecordError(f"{out} is there already; name another file with --out, or add --overwrite")
    inputs = inputs_of(options, _ROWS)
    assert inputs is not None
    found = api.map(options.keras, options.torch, inputs, mapping=options.mapping).write(out)
    print_result(options, found.to_json())
    found.show(every=options.verbose)
    check_mapped(found.mapping, found.outlines, out)
    return found.exit_code
