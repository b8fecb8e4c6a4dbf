"""`parity collectives`: the collective operations of both frameworks, checked and timed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from rich.markup import escape

from parity.common.base.errors import RunError, SpecError, did_you_mean
from parity.common.base.scratch import scratch_folder
from parity.common.base.terminal import Terminal, styled
from parity.common.base.units import parse_sizes, show_size
from parity.common.commands import add_command, check_positive, print_result
from parity.common.planning.collectives.bench import DTYPES, Plan
from parity.common.planning.collectives.operations import OPERATIONS
from parity.common.planning.collectives.run import Row, collect
from parity.common.report.terminal import figures_table, table_console
from parity.common.spec.strategies import Framework

_LARGEST = 2**31
# Flags that are fields of the plan.
_AS_GIVEN = ("ranks", "dtype", "device", "repeats", "timeout_seconds")


def add(commands: Any) -> None:
    """Register the subcommand."""
    notes = "Exit codes: 0 all results right, 1 a result was wrong, 2 usage or run error."
    examples = (
        "collectives --ranks 2",
        "collectives --framework torch --ranks 4 --sizes 1KiB:64MiB:x8 --json rows.json",
    )
    command = add_command(commands, "collectives", run, notes, examples, result="the rows")
    flag = command.add_argument
    flag("--framework", choices=["torch", "tensorflow", "both"], default="both")
    flag("--ranks", type=int, default=2, help="torch: processes; TensorFlow: devices [2]")
    sizes = "FIRST:LAST:xFACTOR, or a list 1KiB,1MiB [1KiB:16MiB:x4]"
    flag("--sizes", default="1KiB:16MiB:x4", help=sizes)
    flag("--dtype", choices=DTYPES, default="float32")
    flag("--device", choices=["auto", "cpu", "gpu"], default="auto")
    flag("--operations", help=f"some of {','.join(OPERATIONS)} [all]")
    flag("--repeats", type=int, default=20, help="timed runs of each case [20]")
    flag("--timeout-seconds", type=int, default=60, help="an operation's longest wait [60]")


def run(options: argparse.Namespace) -> int:
    """Run what was asked for; 1 where a result was wrong. Raises RunError if a rank fails."""
    plan = plan_of(options)
    both: list[Framework] = ["torch", "tensorflow"]
    frameworks = both if options.framework == "both" else [options.framework]
    cases = f"{len(plan.operations)} operations, {len(plan.sizes)} sizes, {plan.repeats} times each"
    Terminal(stderr=True).tell(f"{cases}, in {' and '.join(frameworks)} on {plan.ranks} ranks", "dim")
    rows: list[Row] = []
    with scratch_folder() as scratch:
        for framework in frameworks:
            folder = scratch / framework
            folder.mkdir()
            try:
                rows += collect(framework, plan, folder)
            except RunError as error:
                # The log that it names goes with the folder.
                raise RunError(f"{framework}: {str(error).partition(' (log:')[0]}") from None
    print_result(options, _facts(plan, rows))
    show(rows, plan, table_console())
    return int(any(row.wrong for row in rows))


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan that the flags describe; raises SpecError with one line where they cannot be."""
    for flag, value in (("--ranks", options.ranks), ("--repeats", options.repeats)):
        if not 1 <= value <= 1024:
            raise SpecError(f"{flag} must be from 1 to 1024, received {value}")
    check_positive(options, "timeout_seconds")
    sizes = parse_sizes(options.sizes)
    if max(sizes) > _LARGEST:
        raise SpecError(f"--sizes {options.sizes}: the largest is {show_size(_LARGEST)}")
    chosen = tuple(OPERATIONS) if options.operations is None else tuple(options.operations.split(","))
    for operation in chosen:
        if operation not in OPERATIONS:
            near = did_you_mean(operation, OPERATIONS)
            raise SpecError(f"--operations: unknown {operation!r}; known: {', '.join(OPERATIONS)}{near}")
    given = {name: getattr(options, name) for name in _AS_GIVEN}
    return Plan(sizes=sizes, operations=chosen, **given)


def show(rows: list[Row], plan: Plan, console: Terminal) -> None:
    """The table, and one line on whether all was right."""
    title = f"{plan.ranks} ranks, {plan.dtype}, median of {plan.repeats}; time of the slowest rank"
    figures = ("#size", "#elements", "#time us", "#algbw GB/s", "#busbw GB/s", "#wrong")
    table = figures_table(("operation", "what is called", *figures), title)
    table.columns[1].no_wrap = False
    before = None
    for row in rows:
        new = (row.framework, row.operation) != before
        before = (row.framework, row.operation)
        sized = row.bytes > 0
        table.add_row(
            f"{row.framework} {row.operation}" if new else "",
            row.how if new else "",
            show_size(row.bytes) if sized else "-",
            f"{row.elements:,}" if sized else "-",
            f"{row.median_seconds * 1e6:,.1f}",
            f"{row.algorithm_bandwidth / 1e9:.3f}" if sized else "-",
            f"{row.bus_bandwidth / 1e9:.3f}" if sized else "-",
            styled(f"[red]✗ {row.wrong:,}[/red]" if row.wrong else "[green]✓ 0[/green]"),
        )
    console.print(table)
    wrong = sorted({f"{row.framework} {row.operation}" for row in rows if row.wrong})
    if wrong:
        console.say(f"[red]✗ wrong results[/red]: {escape(', '.join(wrong))}")
    else:
        console.say(f"[green]✓ all {len(rows)} cases equal NumPy's results on every rank[/green]")


def _facts(plan: Plan, rows: list[Row]) -> dict[str, Any]:
    facts = {"ranks": plan.ranks, "dtype": plan.dtype, "device": plan.device, "repeats": plan.repeats}
    sizes = {name: op.size_is for name, op in OPERATIONS.items() if name in plan.operations}
    factors = {name: OPERATIONS[name].bus_factor(plan.ranks) for name in plan.operations}
    return {**facts, "size_is": sizes, "bus_factors": factors, "rows": [asdict(row) for row in rows]}
