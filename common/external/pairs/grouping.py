"""Findings of one defect as one finding: a default that differs does so in every layer of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parity.common.diagnosis.result import Explanation, Finding

_NAMED = 3


def grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each defect once, where it comes first, with the tensors and layers of all that have it."""
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        why = finding.explanation
        key = (why.cause, why.defect, why.confidence) if why is not None and why.defect else number
        groups.setdefault(key, []).append(finding)
    return [_joined(group) for group in groups.values()]


def _joined(findings: Sequence[Finding]) -> Finding:
    first, *others = findings
    if not others:
        return first
    tensors = {tensor.name: tensor for finding in reversed(findings) for tensor in reversed(finding.tensors)}
    causes = [finding.explanation for finding in findings if finding.explanation is not None]
    return replace(first, tensors=tuple(reversed(tensors.values())), explanation=_of_all(causes))


def _of_all(causes: Sequence[Explanation]) -> Explanation:
    first = causes[0]
    layers = tuple(dict.fromkeys(layer for why in causes for layer in why.layers))
    more = layers[1:]
    if not more:
        return first
    others = f", and {len(more) - _NAMED} others" if len(more) > _NAMED else ""
    text = f"{first.text}, and so for {len(more)} more: {', '.join(more[:_NAMED])}{others}"
    evidence = f"{first.evidence}; each of the others by its own deviation"
    return replace(first, text=text, evidence=evidence, layers=layers)
