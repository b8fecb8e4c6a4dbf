"""`parity advise`: what each strategy would take on some GPUs, and which one to use."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

from rich.markup import escape
from rich.text import Text

from parity.common.base.errors import SpecError
from parity.common.base.terminal import Terminal, styled
from parity.common.base.units import parse_size, show_size
from parity.common.commands import add_command, add_spec_flags, check_positive, print_result
from parity.common.execution.training_cli import choose_spec
from parity.common.planning.adviser import recommend
from parity.common.planning.adviser.memory import largest_micro_batch
from parity.common.planning.adviser.recommend import Advice, Choice, Question
from parity.common.report.terminal import figures_table, table_console
from parity.common.spec import override
from parity.common.spec.precision import Precision
from parity.common.state.imported import refuse_imported

_MOST_GPUS = 65536
# What is trained in on GPUs; a recipe's own, float64, is for proofs.
_PRECISION: Precision = "bfloat16_mixed"


def add(commands: Any) -> None:
    """Register the subcommand."""
    notes = "Needs no framework and no GPU. Exit codes: 0 something fits, 1 nothing does, 2 usage error."
    examples = (
        "advise gpt2 --gpus 8 --gpu-memory 80GB",
        "advise resnet50 --gpus 4 --gpu-memory 24GB --framework tensorflow --precision float32 --json",
    )
    command = add_command(commands, "advise", run, notes, examples, result="all choices")
    add_spec_flags(command)
    flag = command.add_argument
    flag("--gpus", type=int, required=True, help="over all nodes")
    flag("--gpu-memory", required=True, metavar="SIZE", help="of each, e.g. 80GB or 40GiB")
    flag("--nodes", type=int, default=1, help="machines that the GPUs are in [1]")
    flag("--framework", choices=["torch", "tensorflow"], default="torch")
    headroom = f"share of the memory to leave to the framework itself [{recommend.HEADROOM}]"
    flag("--headroom", type=float, default=recommend.HEADROOM, help=headroom)
    precision = (
        f"of the training; the others are shown beside it [what --set or a spec file says, else {_PRECISION}]"
    )
    flag("--precision", choices=get_args(Precision), help=precision)
    flag("--all", action="store_true", help="list every choice, as --verbose does, not only the telling ones")


def run(options: argparse.Namespace) -> int:
    """Answer; 1 where nothing fits."""
    question = question_of(options)
    advice, others = recommend.advise(question), list(_in_other_precisions(question))
    command = None
    if advice.chosen is not None:
        what = _what(options, question.spec.precision)
        command = recommend.command_line(advice.chosen.placement, what, f"runs/{question.spec.name}")
    beside = {other.question.spec.precision: _facts(other, None) for other in others}
    print_result(options, {**_facts(advice, command), "other_precisions": beside})
    console = table_console()
    show(advice, command, console, options.all or options.verbose)
    for other in others:
        console.say(f"  in {other.question.spec.precision}: {escape(_in_short(other))}")
    return int(advice.chosen is None)


def _in_short(advice: Advice) -> str:
    first, chosen = advice.choices[0].estimate, advice.chosen
    if chosen is None or chosen.estimate is None:
        return advice.reason
    undivided = (
        "" if first is None or chosen is advice.choices[0] else f", undivided {show_size(first.total)}"
    )
    return f"{recommend.placement_text(chosen.placement)} needs {show_size(chosen.estimate.total)}{undivided}"


def _in_other_precisions(question: Question) -> Iterator[Advice]:
    for precision in get_args(Precision):
        if precision != question.spec.precision:
            try:
                spec = override(question.spec, [f"precision={precision}", "loss_scale=null"]).resolved()
            except SpecError:
                continue  # tf32, say, is of float32 alone
            yield recommend.advise(replace(question, spec=spec))


def question_of(options: argparse.Namespace) -> Question:
    """What the flags ask; raises SpecError with one line where they cannot be."""
    spec = choose_spec(options.recipe, options.spec, options.set)
    named = spec.precision if "precision" in spec.model_fields_set else _PRECISION
    spec = override(spec, [f"precision={options.precision or named}"]).resolved()
    refuse_imported(spec, "parity advise", "train it and see what its record says of memory")
    if not 1 <= options.gpus <= _MOST_GPUS:
        raise SpecError(f"--gpus must be from 1 to {_MOST_GPUS}, received {options.gpus}")
    check_positive(options, "nodes")
    if options.gpus % options.nodes:
        raise SpecError(f"--nodes {options.nodes} does not divide --gpus {options.gpus}")
    if not 0 <= options.headroom < 1:
        raise SpecError(f"--headroom must be from 0 to below 1, received {options.headroom:g}")
    memory = parse_size(options.gpu_memory, "--gpu-memory")
    return Question(spec, options.framework, options.gpus, memory, options.nodes, options.headroom)


def _what(options: argparse.Namespace, precision: str) -> list[str]:
    given = ["--recipe", options.recipe] if options.recipe else ["--spec", options.spec]
    own = [text for text in options.set if not text.startswith("precision=")]
    return given + [word for text in (*own, f"precision={precision}") for word in ("--set", text)]


def show(advice: Advice, command: str | None, console: Terminal, everything: bool) -> None:
    """The table, the recommendation, and how to start it."""
    question = advice.question
    parts = ("#parameters", "#gradients", "#optimizer", "#activations", "#temporary", "#total")
    table = figures_table(
        ("placement", "#batch", *parts, "fits"),
        f"{question.spec.name}, global batch {question.spec.global_batch_size}, {question.spec.precision}:"
        f" bytes of the fullest of {question.gpus} GPUs",
    )
    table.columns[-1].no_wrap = False
    for choice in _told(advice, everything):
        table.add_row(*_cells(choice, question))
    console.print(table)
    refused = [choice for choice in advice.choices if choice.refused]
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        console.say(f"not possible here: {escape(refused[0].refused)}{more}")
    if advice.chosen is None:
        console.say(f"[red]✗[/red] {escape(advice.reason)}")
        return
    console.say(f"[green]✓[/green] {escape(advice.reason)}")
    console.say(f"  placement: {recommend.placement_text(advice.chosen.placement)}")
    console.say(f"  start it:  {escape(command or '')}")


def _told(advice: Advice, everything: bool) -> list[Choice]:
    """Of the choices that cut the batch only the first that fits of its kind, unless all are wanted."""
    possible = [choice for choice in advice.choices if choice.estimate is not None]
    if everything:
        return possible
    told: list[Choice] = []
    seen: set[tuple[str, str]] = set()
    for choice in possible:
        kind = (choice.placement.strategy, choice.placement.options.content_hash())
        if not choice.placement.accumulates or (choice.fits and kind not in seen) or choice is advice.chosen:
            told.append(choice)
        if choice.placement.accumulates and choice.fits:
            seen.add(kind)
    return told


def _cells(choice: Choice, question: Question) -> list[str | Text]:
    found = choice.estimate
    assert found is not None
    parts = (found.parameters, found.gradients, found.slots, found.activations, found.temporary, found.total)
    host = f" + {show_size(found.host)} host" if found.host else ""
    mark = "[green]✓[/green]" if choice.fits else "[red]✗[/red]"
    placement = choice.placement
    name = recommend.placement_text(placement).partition(":")[2]
    # Samples of a micro-batch, and micro-batches of a step.
    samples = f"{largest_micro_batch(question.spec, placement)} x {placement.accumulation[0][1]}"
    return [name, samples, *map(show_size, parts), styled(mark + host)]


def _facts(advice: Advice, command: str | None) -> dict[str, Any]:
    question = advice.question
    return {
        "spec": question.spec.name,
        "precision": question.spec.precision,
        "gpus": question.gpus,
        "nodes": question.nodes,
        "gpu_bytes": question.memory,
        "usable_bytes": question.usable,
        "taken": None if advice.chosen is None else recommend.placement_text(advice.chosen.placement),
        "reason": advice.reason,
        "command": command,
        "choices": [choice.to_dict() for choice in advice.choices],
    }
