"""`parity map`: which tensor and which layer of a Keras model is which of its PyTorch port; nothing is trained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common.base.errors import RecordError
from parity.common.base.terminal import Terminal
from parity.common.commands import add_command, add_model_flags, print_result
from parity.common.commands.inputs import add_input_flags, doubled, inputs_of
from parity.common.execution.worker import require
from parity.common.external.mapping.models import check_mapped, doubts_of, map_models, trace_models
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.mapping import write_mapping
from parity.common.spec.external.target import Target

# Samples that both models are called with.
_ROWS = 4
_LISTED = 12


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
    keras, torch, out = Target.of(options.keras), Target.of(options.torch), options.out
    if out.exists() and not options.overwrite and out != options.mapping:
        raise RecordError(f"{out} is there already; name another file with --out, or add --overwrite")
    inputs = inputs_of(options, _ROWS)
    assert inputs is not None
    inputs = doubled(inputs)
    for framework in ("tensorflow", "torch"):
        require(framework)
    with ExternalWorker("tensorflow", keras) as ours, ExternalWorker("torch", torch) as theirs:
        models = trace_models(ours, theirs, inputs)
        mapping = map_models(models, options.mapping)
    write_mapping(out, mapping)
    print_result(options, mapping.to_dict())
    console, doubts = Terminal(), doubts_of(mapping)
    for line in doubts[:_LISTED]:
        console.tell(f"  {line}")
    if len(doubts) > _LISTED:
        console.tell(f"  and {len(doubts) - _LISTED} more, in {out}")
    console.tell(
        f"{len(mapping.tensors)} pairs of tensors, {len(mapping.doubtful)} doubtful; {len(mapping.layers)} pairs of"
        f" layers: {out}",
    )
    check_mapped(mapping, models.outlines, out)
    return 3 if mapping.doubtful else 0
