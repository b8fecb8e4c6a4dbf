"""A diagnosis on the terminal: when, where, why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich.markup import escape
from rich.tree import Tree

from parity.common.base.terminal import Terminal, styled
from parity.common.base.words import listed
from parity.common.diagnosis.isolate import stages
from parity.common.diagnosis.result import Diagnosis, Finding, StepComparison, TensorComparison, When
from parity.common.report import diagnosis as words
from parity.common.report.terminal import headline

_MOST_BAD = 6  # tensors of one stage
_MOST_OTHERS = 4  # tensors that a finding explains beside its first
_TREE_WIDTH = 400  # a long line is better than one cut off
_MARK = {
    "agrees": "[green]✓[/green]",
    "inherits": "[yellow]~[/yellow]",
    "differs": "[bold red]✗[/bold red]",
    "undecided": "[yellow]?[/yellow]",
    "not recorded": "[dim]-[/dim]",
}
_LEGEND = (
    f"{_MARK['agrees']} agrees   {_MARK['inherits']} inherits an upstream error: by itself it agrees"
    f"   {_MARK['differs']} differs by itself"
)
_BESIDE = {"confirmed": "bold green", "likely": "yellow"}


def print_diagnosis(diagnosis: Diagnosis, console: Terminal, shown: str | None) -> None:
    """When, where and why, in this order; `shown` says where the page lies."""
    who = f"{escape(diagnosis.candidate)} against {escape(diagnosis.reference)}{words.supposed(diagnosis)}"
    console.say(headline(diagnosis.verdict, f"{escape(diagnosis.name)}, {who}"))
    if diagnosis.verdict == "parity" and (diagnosis.steps or not diagnosis.stages):
        console.say(f"  {escape(words.traced(diagnosis))}")
    else:
        _when(diagnosis, console)
        _where(diagnosis, console)
        _why(diagnosis, console)
    for note in diagnosis.notes:
        console.say(f"note: {escape(note)}")
    seconds = f"diagnosed in {diagnosis.seconds:.0f} s"
    console.say(seconds if shown is None else f"{seconds}; report: {escape(shown)}")


def _when(diagnosis: Diagnosis, console: Terminal) -> None:
    when = diagnosis.when
    if when is None:
        return
    console.print()
    console.say(f"[bold]When[/bold]   {escape(when.place)}")
    for fact in when.evidence.split("; "):
        console.say(f"       {escape(fact)}")
    if when.searched:
        console.say(f"       {escape(when.searched)}")


def _where(diagnosis: Diagnosis, console: Terminal) -> None:
    if not diagnosis.steps:
        _stages(diagnosis, console)
        return
    console.print()
    console.say(
        f"[bold]Where[/bold]  each stage of {escape(diagnosis.candidate)} by itself: given what"
        f" {escape(diagnosis.reference)} had before it",
    )
    console.say(f"       {_LEGEND}")
    deviating = {finding.step for finding in diagnosis.findings}
    for step in diagnosis.steps:
        if step.step in deviating or not diagnosis.findings:
            _print_tree(_StepTree(step, diagnosis.findings).tree, console)
        else:
            console.say(_short(step))


def _stages(diagnosis: Diagnosis, console: Terminal) -> None:
    """Where no step was traced: each stage over all steps."""
    if not diagnosis.stages:
        return
    first = next((finding.stage for finding in diagnosis.findings), None)
    console.print()
    console.say("[bold]Where[/bold]  each stage over all steps, in the order of a step")
    for stage in diagnosis.stages:
        at = f" [dim]first {When(stage.step, '').place}[/dim]" if stage.status == "differs" else ""
        flag = " [bold red]◀ the first[/bold red]" if stage.name == first else ""
        console.say(f"  {_MARK[stage.status]} {escape(stage.name):<16}{at} {escape(stage.text)}{flag}")


def _print_tree(tree: Tree, console: Terminal) -> None:
    # A tree is cut off at the console's width, whatever is said when printing it.
    width, console.width = console.width, _TREE_WIDTH
    try:
        console.print(tree, soft_wrap=True)
    finally:
        console.width = width


def _short(step: StepComparison) -> str:
    """A step that shows no finding of its own, in one line."""
    name = f"[bold]{words.step_name(step.step)}[/bold]"
    again = [stage.title for stage in stages.stages_of(step) if stage.status == "differs"]
    if again:
        return f"{name}  {_MARK['differs']} {escape(', '.join(again))}, as above"
    return f"{name}  {_MARK['agrees']} nothing differs by itself"


@dataclass
class _Branch:
    """A part of the tensors' names, up to a slash."""

    here: list[TensorComparison] = field(default_factory=list)
    below: dict[str, _Branch] = field(default_factory=dict)

    @property
    def entries(self) -> list[TensorComparison]:
        return [*self.here, *(tensor for branch in self.below.values() for tensor in branch.entries)]


class _StepTree:
    """The stages of one step; those that differ by themselves with the layers that do."""

    def __init__(self, step: StepComparison, findings: Sequence[Finding]) -> None:
        # By a tensor's name the number of the finding whose first it is in this step, and those that explain it in any.
        self._first: dict[str, int] = {}
        self._explained: defaultdict[str, set[int]] = defaultdict(set)
        for count, finding in enumerate(findings, start=1):
            if finding.step == step.step:
                self._first.setdefault(finding.name, count)
            for tensor in finding.tensors:
                self._explained[tensor.name].add(count)
        self.tree = Tree(styled(f"[bold]{words.step_name(step.step)}[/bold]"))
        for stage in stages.stages_of(step):
            self._add(stage)

    def _add(self, stage: stages.StageComparison) -> None:
        line = f"{_MARK[stage.status]} {stage.title:<31}"
        entries = stage.injected or stage.as_trained
        if stage.status != "differs":
            self.tree.add(styled(f"{line} [dim]{escape(stage.text)}[/dim]"))
            return
        bad = [tensor for tensor in entries if not tensor.agrees]
        firsts = [tensor for tensor in bad if tensor.name in self._first]
        unclaimed = [tensor for tensor in bad if tensor.name not in self._explained]
        shown = {tensor.name for tensor in (*firsts, *unclaimed[:_MOST_BAD])}
        line = f"{line} {escape(stage.text)}"
        if shown:
            self._grow(self.tree.add(styled(line)), _branched(entries), shown)
        else:
            self.tree.add(styled(line + self._belonging(bad)))

    def _belonging(self, entries: Sequence[TensorComparison]) -> str:
        """', of finding 1', ', of findings 1, 3'; nothing where no finding has any."""
        counts = sorted(set().union(*(self._explained.get(tensor.name, ()) for tensor in entries)))
        numbers = ", ".join(map(str, counts))
        return f", of finding{'s' if len(counts) > 1 else ''} {numbers}" if counts else ""

    def _grow(self, tree: Tree, branch: _Branch, shown: set[str]) -> None:
        """Add a part of the names: what is to be shown by itself, neighbours that are alike in one line."""
        kinds = {part: _kind(child.entries, shown) for part, child in branch.below.items()}
        for kind, group in groupby(branch.below.items(), key=lambda item: kinds[item[0]]):
            parts = list(group)
            if kind != "shown":
                self._fold(tree, parts)
                continue
            for part, child in parts:
                while not child.here and len(child.below) == 1:
                    below, child = next(iter(child.below.items()))
                    part = f"{part}/{below}"
                off = "".join(self._off(tensor) for tensor in child.here if not tensor.agrees)
                self._grow(tree.add(styled(f"{_MARK['differs']} {escape(part)}{off}")), child, shown)

    def _fold(self, tree: Tree, parts: Sequence[tuple[str, _Branch]]) -> None:
        """One line for neighbours of which all agree, or each has something that is shown elsewhere."""
        names = parts[0][0] if len(parts) == 1 else f"{parts[0][0]} … {parts[-1][0]}"
        entries = [tensor for _, branch in parts for tensor in branch.entries]
        bad = [tensor for tensor in entries if not tensor.agrees]
        if bad:
            said = words.amount(bad[0]) if len(entries) == 1 else f"{len(bad)} of {len(entries)} differ"
            said += self._belonging(bad)
            tree.add(styled(f"{_MARK['differs']} {escape(names)}  [dim]{escape(said)}[/dim]"))
        else:
            tree.add(
                styled(
                    f"{_MARK['agrees']} {escape(names)}  [dim]{escape(stages.agreeing_text(entries))}[/dim]"
                )
            )

    def _off(self, tensor: TensorComparison) -> str:
        where = [] if tensor.replica is None else [f"replica {tensor.replica}"]
        where += [tensor.where] if tensor.where else []
        beside = f" [dim]({escape(', '.join(where))})[/dim]" if where else ""
        count = self._first.get(tensor.name, 0)
        first = ", the first" if count == 1 else ""
        flag = f" [bold red]◀ finding {count}{first}[/bold red]" if count else ""
        return f"  [red]{escape(words.amount(tensor))}[/red]{beside}{flag}"


def _branched(entries: Sequence[TensorComparison]) -> _Branch:
    root = _Branch()
    for tensor in entries:
        branch = root
        for part in words.path_of(tensor.name):
            branch = branch.below.setdefault(part, _Branch())
        branch.here.append(tensor)
    return root


def _kind(entries: Sequence[TensorComparison], shown: set[str]) -> str:
    if all(tensor.agrees for tensor in entries):
        return "agree"
    return "shown" if any(tensor.name in shown for tensor in entries) else "known"


def _why(diagnosis: Diagnosis, console: Terminal) -> None:
    if not diagnosis.findings and not diagnosis.settings and diagnosis.when is None:
        return
    console.print()
    if diagnosis.verdict == "parity":
        # Nothing is to be explained.
        console.say(f"[bold]{words.WITHOUT_EFFECT}[/bold]")
        for text in diagnosis.settings:
            console.say(f"  {escape(text)}")
        return
    console.say("[bold]Why[/bold]")
    if not diagnosis.findings and diagnosis.when is not None:
        console.say(f"  {words.NOT_FOUND}")
    for count, finding in enumerate(diagnosis.findings, start=1):
        _finding(count, finding, console)
    for text in diagnosis.settings:
        console.say(f"  set differently  {escape(text)}")


def _finding(count: int, finding: Finding, console: Terminal) -> None:
    why = finding.explanation
    style = "" if why is None else _BESIDE[why.confidence]
    beside = "" if why is None else f"  [{style}]{why.confidence}[/{style}]"
    console.say(f"  [bold]{count}. {escape(words.title(finding))}[/bold]{beside}")
    first = words.first_tensor(finding)
    on = f", on {words.replicas(finding.replicas)}" if finding.replicas else ""
    facts = {
        "where": f"{words.place(finding)}: {words.amount(first)}{on}{f', at {first.where}' if first.where else ''}"
    }
    if finding.agreeing:
        facts["agree"] = ", ".join(
            f"{tensor.name} ({stages.number(tensor.deviation) if tensor.deviation else 'equal'})"
            for tensor in stages.worst_by_name(finding.agreeing)
        )
    others = words.others_of(finding)
    if others:
        facts["with it"] = listed((tensor.name for tensor in others), _MOST_OTHERS)
    if finding.code:
        facts["code"] = words.lines_of(finding)
    if why is not None:
        facts["cause"] = why.cause + (f", in {why.culprit}" if why.culprit else "")
        facts["evidence"] = why.evidence
        facts |= {"fix": why.fix} if why.fix else {}
    for name, text in facts.items():
        console.say(f"     {name:<9} {escape(text)}")
    for line in () if why is None else why.paste.splitlines():
        console.say(f"{'':<15}{escape(line)}")
