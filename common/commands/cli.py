"""`parity run | compare | report | plan | recipes | show | doctor | ...`. Flags end here."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import app, flags
from absl.flags import argparse_flags
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from parity import __version__
from parity.common import api, recipes
from parity.common.base.ending import exit_code_of
from parity.common.base.errors import ParityError, SpecError
from parity.common.base.plain import print_document, print_error, print_line
from parity.common.base.stop import interrupting
from parity.common.base.terminal import Terminal, styled
from parity.common.commands import (
    add_command,
    add_spec_flags,
    advise,
    baseline,
    checkpoint,
    collectives,
    diagnose,
    doctor,
    lint,
    make_folder,
    manifest,
    mapping,
    pair,
    scale,
    sharing,
    steps,
    study,
    submit,
)
from parity.common.data.plan import BatchPlan
from parity.common.execution.flags import check_flagfile, spelled
from parity.common.execution.training_cli import choose_spec
from parity.common.parity.baseline import THRESHOLD
from parity.common.parity.result import read_session
from parity.common.report.terminal import conclude, table_console, write_reports
from parity.common.scaling.experiment import is_scale
from parity.common.spec import Node, Placement, TrainSpec, dump_json, dump_yaml, json_schema, walk
from parity.common.study.question import STUDY, read_question

_IDS_SHOWN = 12
# Of a plan: lines that anyone reads.
_MOST_SHARES = 1_000_000


def main() -> None:
    """Console entry point."""
    app.run(_dispatch, flags_parser=_parse)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    try:
        check_flagfile(argv)
        namespace: argparse.Namespace = parser.parse_args(spelled(argv[1:], "-"))
    except flags.Error as error:  # absl's own flags, such as --flagfile
        parser.error(str(error))
    return namespace


def _dispatch(options: argparse.Namespace) -> int:
    with interrupting():
        return exit_code_of("parity", lambda: int(options.command(options)))


class _Parser(argparse_flags.ArgumentParser):
    """argparse's, whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(ParityError.exit_code, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            print_error(message.removesuffix("\n"))
        sys.exit(status)


def _parser() -> Any:
    parser = _Parser(  # type: ignore[no-untyped-call]
        prog="parity",
        description="Train one spec in TensorFlow and in PyTorch; prove that the trainings are the same.",
        epilog="Exit codes: 0 parity, 1 divergent, 2 usage or run error, 3 inconclusive.",
    )
    parser.add_argument("--version", action="version", version=f"parity {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    text = "train a spec on several placements, compare them, write a report"
    run = add_command(commands, "run", _run, text)
    add_spec_flags(run)
    run.add_argument("--out", type=Path, default=None, help="new folder for records and report [runs/NAME]")
    run.add_argument("--replicas", type=int, default=2, help="replicas of the default placements [2]")
    run.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto")
    run.add_argument(
        "--placement",
        action="append",
        metavar="FRAMEWORK:STRATEGY:REPLICAS[,FIELD=VALUE...]",
        help="what to run instead of the default, e.g. torch:ddp:4 or torch:fsdp2:4,wrap=blocks,accumulation=2;"
        " the first is the reference; repeatable",
    )
    run.add_argument("--digests", action="store_true", help="check after each step that replicas are equal")
    run.add_argument("--timing-rounds", type=int, default=3, help="interleaved timing rounds, 0 for none [3]")
    why = "where a candidate is divergent, find out when, where and why: diagnosis_N.html"
    run.add_argument("--diagnose", action="store_true", help=why)
    run.add_argument("--overwrite", action="store_true", help="remove a record or session that OUT holds")

    compare = add_command(
        commands,
        "compare",
        _compare,
        "compare run records, or with --baseline versions; needs neither framework",
        "Exit codes: 0 parity, 1 divergent, 2 usage or run error, 3 inconclusive. With --baseline: 0 no"
        " regression, 1 regression, 2 usage or run error, 3 undecided.",
    )
    compare.add_argument("reference", type=Path, help="a record; with --baseline also a session, the old one")
    compare.add_argument("candidates", type=Path, nargs="+", help="likewise; with --baseline the new ones")
    versions = "find regressions between versions of a framework: in numbers, speed and memory"
    compare.add_argument("--baseline", action="store_true", help=versions)
    share = f"with --baseline: the share by which speed may drop [{THRESHOLD:g}]"
    compare.add_argument("--threshold", type=float, default=THRESHOLD, help=share)
    floor = "float32: permuted runs that show the noise floor"
    compare.add_argument("--floor", type=Path, nargs="+", default=[], help=floor)
    out = "folder for report.html, report.json and report.xml; with --baseline for baseline.json"
    compare.add_argument("--out", type=Path, help=out)
    compare.add_argument("--checks", action="store_true", help="list every check")
    compare.add_argument("--mapping", type=Path, help=diagnose.MAPPING_HELP)

    report = add_command(commands, "report", _report, "analyse a finished session, write its reports again")
    report.add_argument(
        "session", type=Path, help="the folder that 'parity run', 'parity scale' or 'parity study' wrote"
    )
    report.add_argument("--checks", action="store_true", help="list every check of 'parity run'")

    plan = add_command(commands, "plan", _plan, "print which replica gets which samples; needs no framework")
    add_spec_flags(plan)
    plan.add_argument("--replicas", type=int, default=2)
    plan.add_argument("--steps", type=int, default=4, help="how many steps to print [4]")
    plan.add_argument("--first-step", type=int, default=0)
    plan.add_argument("--json", action="store_true", help="one JSON line a step, all sample ids")

    add_command(commands, "recipes", _recipes, "list the recipes")

    show = add_command(commands, "show", _show, "print a spec: its layer tree, or as YAML or JSON")
    show.add_argument("recipe", nargs="?")
    show.add_argument("--spec", help="a spec file instead of a recipe")
    show.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    show.add_argument("--format", choices=["tree", "yaml", "json"], default="tree")
    show.add_argument("--schema", action="store_true", help="JSON Schema of a spec, for editors")

    for module in (
        doctor,
        pair,
        lint,
        mapping,
        diagnose,
        scale,
        study,
        steps,
        sharing,
        checkpoint,
        collectives,
        advise,
        submit,
        manifest,
    ):
        module.add(commands)
    return parser


def _run(options: argparse.Namespace) -> int:
    spec = choose_spec(options.recipe, options.spec, options.set)
    folder = options.out or Path("runs") / spec.name
    found = api.run(
        spec,
        options.placement or (),
        replicas=options.replicas,
        out=folder,
        device=options.device,
        digests=options.digests,
        timing_rounds=options.timing_rounds,
        overwrite=options.overwrite,
    )
    found.show()
    if options.diagnose and found.verdict == "divergent":
        diagnose.after_run(found.result, folder)
        write_reports(found.result, folder)
    return found.exit_code


def _compare(options: argparse.Namespace) -> int:
    if options.baseline:
        return baseline.run(options)
    found = api.compare(options.reference, *options.candidates, floor=options.floor, mapping=options.mapping)
    if options.out is not None:
        make_folder(options.out)
    return conclude(found.result, options.out, options.checks)


def _report(options: argparse.Namespace) -> int:
    if is_scale(options.session):
        return scale.report(options.session)
    if (options.session / STUDY).is_file():
        return study.report(read_question(options.session), options.session)
    return conclude(read_session(options.session), options.session, options.checks)


def _plan(options: argparse.Namespace) -> int:
    spec = choose_spec(options.recipe, options.spec, options.set).resolved()
    if options.replicas < 1 or options.first_step < 0 or options.steps < 1:
        raise SpecError("--replicas and --steps must be at least 1, --first-step at least 0")
    placed = {"framework": "tensorflow", "strategy": "mirrored", "replicas": options.replicas}
    plan = BatchPlan.of(spec, Placement.parse(placed))
    if options.steps * options.replicas > _MOST_SHARES:
        raise SpecError(
            f"--steps {options.steps}: with {options.replicas} replicas at most {_MOST_SHARES // options.replicas} are printed"
        )
    if not options.json:
        print_line(
            f"{spec.name}: {plan.samples} samples, global batch {plan.global_batch_size}, {plan.split} over"
            f" {plan.replicas} replicas, tail {plan.tail}: {plan.steps_per_epoch} steps an epoch"
        )
    for step in range(options.first_step, options.first_step + options.steps):
        _print_step(plan, step, options.json)
    return 0


def _print_step(plan: BatchPlan, step: int, as_json: bool) -> None:
    shares = [plan.local_ids(step, replica) for replica in range(plan.replicas)]
    if as_json:
        ids = [share.tolist() for share in shares]
        print_line(json.dumps({"step": step, "epoch": plan.epoch(step), "replicas": ids}))
        return
    print_line(f"step {step} (epoch {plan.epoch(step)}), {sum(map(len, shares))} samples")
    for replica, share in enumerate(shares):
        more = f" ... {share[-1]}" if len(share) > _IDS_SHOWN else ""
        print_line(f"  replica {replica}: {len(share):4d}  {' '.join(map(str, share[:_IDS_SHOWN]))}{more}")


def _recipes(options: argparse.Namespace) -> int:
    del options
    table = Table("recipe", "parameters", "steps", "global batch", "what it is", box=None)
    table.columns[0].no_wrap = True
    for name, recipe in recipes.RECIPES.items():
        spec = recipe()
        about = (recipe.__doc__ or "").strip().splitlines()[0]
        sizes = f"{_parameter_count(spec):,}", str(spec.steps), str(spec.global_batch_size)
        table.add_row(name, *sizes, about)
    console = table_console()
    console.print(table)
    small = ", ".join(name for name in recipes.RECIPES if not recipes.has_tiny(name))
    console.print(f"All but {small} also come as NAME:tiny, made so small that they train in seconds.")
    return 0


def _show(options: argparse.Namespace) -> int:
    if options.schema:
        print_document(json_schema())
        return 0
    spec = choose_spec(options.recipe, options.spec, options.set).resolved()
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
