"""A diagnosis on the terminal: when, where, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from parity.common.diagnosis.result import Diagnosis, Finding, StepComparison, TensorComparison
from parity.common.report.diagnosis import (
    StageSeen,
    amount,
    excess,
    first_seen,
    looked_into,
    number,
    others_of,
    path_of,
    place,
    replicas,
    stages_of,
    step_name,
    title,
    worst_by_name,
)

_MOST_BAD = 6  # tensors of one stage
_MOST_OTHERS = 4  # tensors that a finding explains beside its first
_TREE_WIDTH = 400  # a long line is better than one cut off
_MARK = {
    "agrees": "[green]✓[/green]",
    "follows": "[yellow]~[/yellow]",
    "differs": "[bold red]✗[/bold red]",
}
_LEGEND = (
    f"{_MARK['agrees']} agrees   {_MARK['follows']} off as trained, from what came before: by itself it agrees"
    f"   {_MARK['differs']} differs by itself"
)
_HEADLINE = {
    "parity": ("bold green", "✓"),
    "divergent": ("bold red", "✗"),
    "inconclusive": ("bold yellow", "?"),
}
_BESIDE = {"confirmed": "bold green", "likely": "yellow"}


def print_diagnosis(diagnosis: Diagnosis, console: Console, shown: str | None) -> None:
    """When, where and why, in this order; `shown` says where the page lies."""
    who = f"{escape(diagnosis.candidate)} against {escape(diagnosis.reference)}"
    parity = diagnosis.verdict == "parity"
    style, mark = _HEADLINE[diagnosis.verdict]
    _say(console, f"[{style}]{mark} {diagnosis.verdict}[/{style}]  {escape(diagnosis.spec_name)}, {who}")
    if parity:
        _say(console, f"  {looked_into(diagnosis)}")
    else:
        _when(diagnosis, console)
        _where(diagnosis, console)
        _why(diagnosis, console)
    for note in diagnosis.notes:
        _say(console, f"note: {escape(note)}")
    seconds = f"diagnosed in {diagnosis.seconds:.0f} s"
    _say(console, seconds if shown is None else f"{seconds}; report: {escape(shown)}")


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)


def _when(diagnosis: Diagnosis, console: Console) -> None:
    when = diagnosis.when
    if when is None:
        return
    at = "after the last step, in the evaluation" if when.step is None else f"at step {when.step}"
    _say(console, f"\n[bold]When[/bold]   {at}")
    for fact in when.evidence.split("; "):
        _say(console, f"       {escape(fact)}")
    if when.searched:
        _say(console, f"       {escape(when.searched)}")


def _where(diagnosis: Diagnosis, console: Console) -> None:
    if not diagnosis.steps:
        return
    _say(
        console,
        f"\n[bold]Where[/bold]  each stage of {escape(diagnosis.candidate)} by itself: given what"
        f" {escape(diagnosis.reference)} had before it",
    )
    _say(console, f"       {_LEGEND}")
    told = {finding.step for finding in diagnosis.findings}
    for step in diagnosis.steps:
        if step.step in told or not diagnosis.findings:
            _print_tree(_StepTree(step, diagnosis.findings).tree, console)
        else:
            _say(console, _short(step))


def _print_tree(tree: Tree, console: Console) -> None:
    # A tree is cut off at the console's width, whatever is said when printing it.
    width, console.width = console.width, _TREE_WIDTH
    try:
        console.print(tree, highlight=False, soft_wrap=True)
    finally:
        console.width = width


def _short(step: StepComparison) -> str:
    """A step that shows no finding of its own, in one line."""
    name = f"[bold]{step_name(step.step)}[/bold]"
    again = [stage.title for stage in stages_of(step) if stage.status == "differs"]
    if again:
        return f"{name}  {_MARK['differs']} {', '.join(again)}, as above"
    return f"{name}  {_MARK['agrees']} nothing differs by itself"


def _agreeing(entries: Sequence[TensorComparison]) -> str:
    count = f"{len(entries)} tensor{'s' if len(entries) > 1 else ''}"
    worst = max(seen.deviation for seen in entries)
    return f"{count}, equal" if not worst else f"{count}, at most {number(worst)}"


@dataclass
class _Branch:
    """A part of the tensors' names, up to a slash."""

    here: list[TensorComparison] = field(default_factory=list)
    below: dict[str, _Branch] = field(default_factory=dict)

    @property
    def entries(self) -> list[TensorComparison]:
        return [*self.here, *(seen for branch in self.below.values() for seen in branch.entries)]


class _StepTree:
    """The stages of one step; those that differ by themselves with the layers that do."""

    def __init__(self, step: StepComparison, findings: Sequence[Finding]) -> None:
        self._step, self._findings = step.step, findings
        self.tree = Tree(f"[bold]{step_name(step.step)}[/bold]")
        for stage in stages_of(step):
            self._add(stage)

    def _add(self, stage: StageSeen) -> None:
        line = f"{_MARK[stage.status]} {stage.title:<31}"
        entries = stage.by_itself or stage.trained
        if stage.status == "agrees":
            self.tree.add(f"{line} [dim]{_agreeing(entries)}[/dim]")
        elif stage.status == "follows":
            worst = max(stage.trained, key=excess)
            self.tree.add(f"{line} [dim]as trained off by {number(worst.deviation)}[/dim]")
        else:
            bad = [seen for seen in entries if not seen.agrees]
            firsts = [seen for seen in bad if self._number_at(seen)]
            unclaimed = [seen for seen in bad if not self._numbers_of(seen)]
            told = {seen.name for seen in (*firsts, *unclaimed[:_MOST_BAD])}
            line = f"{line} {len(bad)} of {len(entries)} differ"
            if told:
                self._grow(self.tree.add(line), _branched(entries), told)
            else:
                self.tree.add(line + self._belonging(bad))

    def _number_at(self, seen: TensorComparison) -> int:
        """The finding whose first tensor this is; 0 where it is none's."""
        at = [(finding.step, finding.name) for finding in self._findings]
        return at.index((self._step, seen.name)) + 1 if (self._step, seen.name) in at else 0

    def _numbers_of(self, seen: TensorComparison) -> set[int]:
        """The findings that explain a tensor, in this step or another one."""
        return {
            count
            for count, finding in enumerate(self._findings, start=1)
            if any(one.name == seen.name for one in finding.seen)
        }

    def _belonging(self, entries: Sequence[TensorComparison]) -> str:
        """', of finding 1', ', of findings 1, 3'; nothing where no finding has any."""
        counts = sorted(set().union(*map(self._numbers_of, entries)))
        numbers = ", ".join(map(str, counts))
        return f", of finding{'s' if len(counts) > 1 else ''} {numbers}" if counts else ""

    def _grow(self, tree: Tree, branch: _Branch, told: set[str]) -> None:
        """Add a part of the names: what is to be told by itself, neighbours that are alike in one line."""
        kinds = {part: _kind(child.entries, told) for part, child in branch.below.items()}
        for kind, group in groupby(branch.below.items(), key=lambda item: kinds[item[0]]):
            parts = list(group)
            if kind != "told":
                self._fold(tree, parts)
                continue
            for part, child in parts:
                while not child.here and len(child.below) == 1:
                    below, child = next(iter(child.below.items()))
                    part = f"{part}/{below}"
                off = "".join(self._off(seen) for seen in child.here if not seen.agrees)
                self._grow(tree.add(f"{_MARK['differs']} {escape(part)}{off}"), child, told)

    def _fold(self, tree: Tree, parts: Sequence[tuple[str, _Branch]]) -> None:
        """One line for neighbours of which all agree, or each has something that is told elsewhere."""
        names = parts[0][0] if len(parts) == 1 else f"{parts[0][0]} … {parts[-1][0]}"
        entries = [seen for _, branch in parts for seen in branch.entries]
        bad = [seen for seen in entries if not seen.agrees]
        if bad:
            said = amount(bad[0]) if len(entries) == 1 else f"{len(bad)} of {len(entries)} differ"
            said += self._belonging(bad)
            tree.add(f"{_MARK['differs']} {escape(names)}  [dim]{said}[/dim]")
        else:
            tree.add(f"{_MARK['agrees']} {escape(names)}  [dim]{_agreeing(entries)}[/dim]")

    def _off(self, seen: TensorComparison) -> str:
        where = [] if seen.replica is None else [f"replica {seen.replica}"]
        where += [seen.where] if seen.where else []
        beside = f" [dim]({escape(', '.join(where))})[/dim]" if where else ""
        count = self._number_at(seen)
        first = ", the first" if count == 1 else ""
        flag = f" [bold red]◀ finding {count}{first}[/bold red]" if count else ""
        return f"  [red]{amount(seen)}[/red]{beside}{flag}"


def _branched(entries: Sequence[TensorComparison]) -> _Branch:
    root = _Branch()
    for seen in entries:
        branch = root
        for part in path_of(seen.name):
            branch = branch.below.setdefault(part, _Branch())
        branch.here.append(seen)
    return root


def _kind(entries: Sequence[TensorComparison], told: set[str]) -> str:
    if all(seen.agrees for seen in entries):
        return "agree"
    return "told" if any(seen.name in told for seen in entries) else "known"


def _why(diagnosis: Diagnosis, console: Console) -> None:
    _say(console, "\n[bold]Why[/bold]")
    if not diagnosis.findings:
        _say(console, "  not found: no tensor of the steps looked into deviates by itself")
    for count, finding in enumerate(diagnosis.findings, start=1):
        _finding(count, finding, console)


def _finding(count: int, finding: Finding, console: Console) -> None:
    why = finding.explanation
    beside = (
        "" if why is None else f"  [{_BESIDE[why.confidence]}]{why.confidence}[/{_BESIDE[why.confidence]}]"
    )
    _say(console, f"  [bold]{count}. {escape(title(finding))}[/bold]{beside}")
    first = first_seen(finding)
    on = f", on {replicas(finding.replicas)}" if finding.replicas else ""
    facts = {"where": f"{place(finding)}: {amount(first)}{on}{f', at {first.where}' if first.where else ''}"}
    if finding.agreeing:
        facts["agree"] = ", ".join(
            f"{seen.name} ({number(seen.deviation) if seen.deviation else 'equal'})"
            for seen in worst_by_name(finding.agreeing)
        )
    others = others_of(finding)
    if others:
        more = f" and {len(others) - _MOST_OTHERS} more" if len(others) > _MOST_OTHERS else ""
        facts["with it"] = ", ".join(seen.name for seen in others[:_MOST_OTHERS]) + more
    if why is not None:
        facts["cause"] = why.cause + (f", in {why.culprit}" if why.culprit else "")
        facts["evidence"] = why.evidence
        facts["fix"] = why.fix
    for name, text in facts.items():
        _say(console, f"     {name:<9} {escape(text)}")
