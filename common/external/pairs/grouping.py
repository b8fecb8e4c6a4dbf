"""Findings of one defect as one finding: a default that differs in every layer of a kind, an operation at another place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from parity.common.diagnosis.result import Explanation, Finding
from parity.common.external.pairs.differences import KINDS
from parity.common.external.pairs.places import CAUSE

_NAMED = 3
_NUMBERS = re.compile(r"\d+")
# An operation that is left out at one place, and done at another.
_MOVED = {f"{CAUSE}left_out", f"{CAUSE}too_much"}


def grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each defect once, where it comes first, with the tensors and layers of all that have it."""
    groups: dict[object, list[Finding]] = {}
    # What was found together with others, and by itself at another place, is confirmed there, too.
    alone = {
        (f.explanation.text, f.explanation.defect) for f in findings if f.explanation and _is_confirmed(f)
    }
    for number, finding in enumerate(findings):
        why = finding.explanation
        key: object = number
        if why is not None and why.defect:
            confirmed = _is_confirmed(finding) or (why.text, why.defect) in alone
            key = why.cause, why.defect, confirmed
        groups.setdefault(key, []).append(finding)
    return _again(_moved([_joined(group) for group in groups.values()]))


def _is_confirmed(finding: Finding) -> bool:
    return finding.explanation is not None and finding.explanation.confidence == "confirmed"


def _again(findings: Sequence[Finding]) -> list[Finding]:
    """Without whole formulas of a line that something was found of before: what a loop computes otherwise is in all that comes after it;
    and without what the same call of a function gives otherwise to another of its lines, or at another step.
    """
    found: list[Finding] = []
    before: dict[object, int] = {}
    for finding in findings:
        why = finding.explanation
        if why is None or not why.cause.startswith(CAUSE):
            found.append(finding)
            continue
        line, (place, _, said) = why.defect.partition(" ")[2], why.text.partition(": ")
        caller = place.partition(", called in ")[2]
        call = (why.cause, caller, _NUMBERS.sub("", said)) if caller else None
        earlier = before.get(call)
        if earlier is None and why.cause == f"{CAUSE}other":
            earlier = before.get(line)
        if earlier is not None:
            tensors = (*found[earlier].tensors, *finding.tensors)
            found[earlier] = replace(found[earlier], tensors=tensors)
            continue
        for key in filter(None, (call, line)):
            before.setdefault(key, len(found))
        found.append(finding)
    return found


def _moved(findings: Sequence[Finding]) -> list[Finding]:
    """One finding of two in a row of which one leaves out the operation that the other has too much."""
    found: list[Finding] = []
    for finding in findings:
        before, why = found[-1].explanation if found else None, finding.explanation
        if (
            before is None
            or why is None
            or {before.cause, why.cause} != _MOVED
            or _operation(before) != _operation(why)
        ):
            found.append(finding)
            continue
        text = f"{before.text}; {why.text}"
        for kind in ("left_out", "too_much"):
            text = text.replace(KINDS[kind], KINDS["sequence"], 1)
        moved = replace(
            before,
            cause=f"{CAUSE}sequence",
            text=text,
            fix=f"{before.fix}; {why.fix}",
            layers=(*before.layers, *why.layers),
        )
        found[-1] = replace(found[-1], tensors=(*found[-1].tensors, *finding.tensors), explanation=moved)
    return found


def _operation(why: Explanation) -> str:
    """The operation that a structural cause is about."""
    return why.defect.partition(" ")[0]


def _joined(findings: Sequence[Finding]) -> Finding:
    first, *others = findings
    if not others:
        return first
    tensors = {tensor.name: tensor for finding in reversed(findings) for tensor in reversed(finding.tensors)}
    causes = [f.explanation for f in sorted(findings, key=_is_confirmed, reverse=True) if f.explanation]
    return replace(first, tensors=tuple(reversed(tensors.values())), explanation=_of_all(causes))


def _of_all(causes: Sequence[Explanation]) -> Explanation:
    first = causes[0]
    layers = tuple(dict.fromkeys(layer for why in causes for layer in why.layers))
    more = layers[1:]
    if not more:
        return first
    rest = len(more) - _NAMED
    others = f", and {rest} other{'s' * (rest > 1)}" if rest > 0 else ""
    text = f"{first.text}, and so for {len(more)} more: {', '.join(more[:_NAMED])}{others}"
    evidence = f"{first.evidence}; each of the others by its own deviation"
    return replace(first, text=text, evidence=evidence, layers=layers)
