"""`parity recipes | show | plan`: what is trained, and which replica gets which samples; nothing is run."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from parity.common import recipes
from parity.common.base.errors import SpecError
from parity.common.base.plain import print_document, print_line
from parity.common.base.terminal import Terminal, styled
from parity.common.commands import (
    add_command,
    add_spec_flags,
    check_least,
    check_positive,
    print_result,
    print_rows,
)
from parity.common.data.plan import BatchPlan
from parity.common.execution.training_cli import choose_spec
from parity.common.spec import Node, Placement, TrainSpec, dump_json, dump_yaml, json_schema, walk

_IDS_SHOWN = 12
# Of a plan: lines that anyone reads.
_MOST_SHARES = 1_000_000
# A long line is better than one cut off.
_TABLE_WIDTH = 160


def add(commands: Any) -> None:
    """Register the subcommands."""
    add_command(
        commands, "recipes", _recipes, examples=("recipes", "recipes --json"), result="them with their sizes"
    )

    show = add_command(
        commands,
        "show",
        _show,
        examples=("show resnet50", "show digits_cnn --set convention=torch --format yaml"),
        result="the spec",
    )
    add_spec_flags(show)
    show.add_argument("--format", choices=["tree", "yaml", "json"], default="tree")
    show.add_argument("--schema", action="store_true", help="JSON Schema of a spec, for editors")

    plan = add_command(
        commands,
        "plan",
        _plan,
        examples=("plan digits_cnn --replicas 4", "plan digits_cnn --first-step 22 --steps 2 --json"),
        result="a line a step with all sample ids",
    )
    add_spec_flags(plan)
    plan.add_argument("--replicas", type=int, default=2, help="[2]")
    plan.add_argument("--steps", type=int, default=4, help="how many steps to print [4]")
    plan.add_argument("--first-step", type=int, default=0, help="step to begin with [0]")


def _plan(options: argparse.Namespace) -> int:
    spec = choose_spec(options.recipe, options.spec, options.set).resolved()
    check_positive(options, "replicas", "steps")
    check_least(options, 0, "first_step")
    placed = {"framework": "tensorflow", "strategy": "mirrored", "replicas": options.replicas}
    plan = BatchPlan.of(spec, Placement.parse(placed))
    if options.steps * options.replicas > _MOST_SHARES:
        raise SpecError(
            f"--steps {options.steps}: with {options.replicas} replicas at most {_MOST_SHARES // options.replicas} are printed"
        )
    steps = range(options.first_step, options.first_step + options.steps)
    if options.json:
        print_rows(options, _step_rows(plan, steps))
    print_line(
        f"{spec.name}: {plan.samples} samples, global batch {plan.global_batch_size}, {plan.split} over"
        f" {plan.replicas} replicas, tail {plan.tail}: {plan.steps_per_epoch} steps an epoch"
    )
    for step in steps if options.json != "-" else ():
        _print_step(plan, step)
    return 0


def _step_rows(plan: BatchPlan, steps: range) -> Iterator[dict[str, Any]]:
    for step in steps:
        ids = [plan.local_ids(step, replica).tolist() for replica in range(plan.replicas)]
        yield {"step": step, "epoch": plan.epoch(step), "replicas": ids}


def _print_step(plan: BatchPlan, step: int) -> None:
    shares = [plan.local_ids(step, replica) for replica in range(plan.replicas)]
    print_line(f"step {step} (epoch {plan.epoch(step)}), {sum(map(len, shares))} samples")
    for replica, share in enumerate(shares):
        more = f" ... {share[-1]}" if len(share) > _IDS_SHOWN else ""
        print_line(f"  replica {replica}: {len(share):4d}  {' '.join(map(str, share[:_IDS_SHOWN]))}{more}")


def _recipes(options: argparse.Namespace) -> int:
    rows = [_recipe_row(name) for name in recipes.RECIPES]
    print_result(options, rows)
    table = Table("recipe", "parameters", "steps", "global batch", "what it is", box=None)
    table.columns[0].no_wrap = True
    for row in rows:
        sizes = f"{row['parameters']:,}", str(row["steps"]), str(row["global_batch_size"])
        table.add_row(row["recipe"], *sizes, row["about"])
    console = Terminal(width=max(Terminal().width, _TABLE_WIDTH))
    console.print(table)
    small = ", ".join(row["recipe"] for row in rows if not row["tiny"])
    console.print(f"All but {small} also come as NAME:tiny, made so small that they train in seconds.")
    return 0


def _recipe_row(name: str) -> dict[str, Any]:
    spec, about = recipes.RECIPES[name](), recipes.RECIPES[name].__doc__ or ""
    return {
        "recipe": name,
        "parameters": _parameter_count(spec),
        "steps": spec.steps,
        "global_batch_size": spec.global_batch_size,
        "about": about.strip().splitlines()[0],
        "tiny": recipes.has_tiny(name),
    }


def _show(options: argparse.Namespace) -> int:
    if options.schema:
        print_result(options, TrainSpec.model_json_schema())
        print_document(json_schema())
        return 0
    spec = choose_spec(options.recipe, options.spec, options.set).resolved()
    print_result(options, spec.to_dict())
    if options.format != "tree":
        print_document(dump_yaml(spec) if options.format == "yaml" else dump_json(spec))
        return 0
    title = f"[bold]{escape(spec.name)}[/bold] {spec.model.input_shape}"
    tree = Tree(styled(f"{title}  {_parameter_count(spec):,} parameters, spec hash {spec.content_hash()}"))
    for child in spec.model.tree().children:
        _add_node(tree, child)
    optimizer, schedule = spec.optimizer, spec.schedule
    if spec.stock:
        tree.add(f"stock {', '.join(spec.stock)}: each framework in its own way, which no proof covers")
    tree.add(f"optimizer {optimizer.kind}, {spec.convention} convention, schedule {schedule.kind}")
    Terminal().print(tree, soft_wrap=True)
    return 0


def _add_node(tree: Tree, node: Node) -> None:
    count = sum(math.prod(p.shape) for p in node.parameters)
    text = f"{escape(node.path)} [dim]{node.spec.kind}[/dim] -> {node.output_shape}"
    branch = tree.add(styled(text + (f"  {count:,}" if count else "")))
    for child in node.children:
        _add_node(branch, child)


def _parameter_count(spec: TrainSpec) -> int:
    return sum(node.trained for node in walk(spec.model.tree()))
