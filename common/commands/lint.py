"""`parity lint`: every difference of settings between a Keras model and its PyTorch port, before a step is trained."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.table import Table

from parity.common.base.errors import ExternalModelError
from parity.common.base.terminal import Terminal
from parity.common.commands import add_command, add_model_flags, print_result
from parity.common.commands.inputs import add_input_flags, doubled, inputs_of
from parity.common.external.lint.lint import MAPPED_AWAY, Audit, Difference, Unread, audit
from parity.common.external.lint.settings import ROWS, said
from parity.common.external.mapping.models import map_models, trace_models, traced
from parity.common.external.mapping.trial import AGREES
from parity.common.external.mapping.verification import outputs_apart
from parity.common.external.pairs.points import paired_layers
from parity.common.external.pairs.suspects import with_effect
from parity.common.external.process.pass_result import Arrays
from parity.common.external.process.worker import ExternalWorker
from parity.common.report.terminal import table_console
from parity.common.spec.external.mapping import read_mapping
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.target import Target
from parity.common.spec.strategies import Framework

# Rows of a file that are looked at: shapes matter, numbers do not.
_ROWS = 2
# Of layers of which the same is said.
_LISTED = 1


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
    targets: dict[Framework, Target] = {
        "tensorflow": Target.of(options.keras),
        "torch": Target.of(options.torch),
    }
    optimizers = {"tensorflow": options.keras_optimizer, "torch": options.torch_optimizer}
    for name in filter(None, optimizers.values()):
        Target.of(name)
    inputs = inputs_of(options, _ROWS)
    mapping = None if options.mapping is None else read_mapping(options.mapping)
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        began = []
        for framework in targets:
            # In float32: as the user trains, and initial values are the same numbers.
            worker = stack.enter_context(ExternalWorker(framework, targets[framework], precision="float32"))
            began.append(threads.submit(_outline, worker, inputs, optimizers[framework]))
        keras, torch = [each.result() for each in began]
    found = audit(keras, torch, None if mapping is None else paired_layers(keras, torch, mapping))
    if inputs is not None and any(one.changes == "forward" for one in found.differences):
        found = _tried(found, (keras, torch), targets, inputs, options.mapping)
    print_result(options, {**found.to_dict(), "keras": keras.target, "torch": torch.target})
    _show(found, keras, torch, inputs is not None)
    return 1 if found.differ else 0


def _tried(
    found: Audit,
    outlines: tuple[Outline, Outline],
    targets: dict[Framework, Target],
    inputs: Arrays,
    mapping: Path | None,
) -> Audit:
    """Of layers that share weights, and without what is set or called otherwise while both models compute the same: what one
    layer does here another does there.
    """
    console = Terminal(stderr=True)
    console.tell(
        "some settings change what is computed: trying both models with equal weights, in float64", "dim"
    )
    try:
        with (
            ExternalWorker("tensorflow", targets["tensorflow"]) as keras,
            ExternalWorker("torch", targets["torch"]) as torch,
        ):
            models = trace_models(keras, torch, doubled(inputs))
            mapped = map_models(models, mapping)
            if mapped.unmapped.keras or mapped.unmapped.torch:
                return found
            found = audit(*outlines, paired_layers(*outlines, mapped))
            for side in (keras, torch):
                side.exact_constants()  # that Keras rounds an attention's scale is no difference of settings
            apart = outputs_apart(mapped, keras, torch, *models.inputs)
    except ExternalModelError as error:
        console.tell(f"they could not be tried: {error}", "dim")
        return found
    if apart > AGREES:
        return found
    kept = with_effect(found.differences, mapped)
    console.tell(
        f"{len(found.differences) - len(kept)} of them are left out: with equal weights the outputs are {apart:.1g} apart",
        "dim",
    )
    return found.model_copy(update={"differences": tuple(kept)})


def _outline(worker: ExternalWorker, inputs: Arrays | None, optimizer: str | None) -> Outline:
    return worker.outline(None, optimizer) if inputs is None else traced(worker, inputs, optimizer)[0]


def _show(found: Audit, keras: Outline, torch: Outline, traced: bool) -> None:
    console, groups = table_console(), _grouped(found.differences)
    if groups:
        table = Table("row", "setting", "Keras", "PyTorch", "changes", "layers", box=None)
        table.columns[-1].overflow = "fold"
        for group in groups:
            table.add_row(*_cells(group))
        console.print(table)
        console.print()
        console.print("Each can be settled on either side:")
        for one, *_ in groups:
            settled = f"{_named(one)}: in Keras {one.fix_keras}; in PyTorch {one.fix_torch}"
            console.tell(f"  {settled}")
    for line in _unread_lines(found.unread):
        console.tell(f"not read: {line}")
    if not traced:
        console.tell(
            "no forward pass was made; with --input-shape or --data, functions that are no layers and padding"
            " by the size of the input are compared, too"
        )
    kinds = [group for group in groups if group[0].changes not in MAPPED_AWAY]
    count = sum(map(len, kinds))
    verdict = f"{count or 'no'} difference{'' if count == 1 else 's'}"
    verdict += f" of {len(kinds)} kinds" if kinds else ""
    counts: Counter[str] = Counter(one.changes for one in found.differences)
    more = "".join(f", {counts[each]} {what} only" for each, what in MAPPED_AWAY.items() if counts[each])
    optimizers = "" if keras.optimizer is None and torch.optimizer is None else " and the optimizers"
    where = f"in {len(found.pairs)} pairs of layers{optimizers}: {keras.target}, {torch.target}"
    Terminal().tell(f"{verdict}{more} {where}")


def _grouped(differences: Sequence[Difference]) -> list[list[Difference]]:
    """Those that say the same of several layers, together; by row, those without one at the end."""
    groups: dict[tuple[Any, ...], list[Difference]] = {}
    for one in differences:
        key = (one.row, one.setting, one.kind, one.keras is None, one.keras_value, one.torch_value)
        groups.setdefault(key, []).append(one)
    return sorted(groups.values(), key=lambda group: group[0].row or len(ROWS) + max(ROWS))


def _cells(group: Sequence[Difference]) -> list[str]:
    one = group[0]
    row = "" if one.row is None else f"{one.row} {ROWS[one.row]}"
    layers = list(dict.fromkeys(_where(each) or "optimizer" for each in group))
    more = f" and {len(layers) - _LISTED} more" if len(layers) > _LISTED else ""
    values = [
        "no counterpart" if one.setting == "counterpart" and value is None else said(value)
        for value in (one.keras_value, one.torch_value)
    ]
    return [row, _named(one), *values, one.changes, "; ".join(layers[:_LISTED]) + more]


def _named(one: Difference) -> str:
    return one.kind if one.setting in ("counterpart", "kind") else f"{one.kind} {one.setting}"


def _where(one: Difference | Unread) -> str:
    """The layers, of Keras and of torch; '' where neither is named."""
    return " - ".join(path or "(model)" for path in (one.keras, one.torch) if path is not None)


def _unread_lines(unread: Sequence[Unread]) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in unread:
        groups.setdefault((one.what, one.why), []).append(_where(one))
    lines = []
    for (what, why), places in groups.items():
        more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
        place = ", ".join(filter(None, places[:_LISTED])) + more
        lines.append(f"{what}{f' of {place}' if place else ''}: {why}")
    return lines
