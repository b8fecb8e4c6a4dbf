"""What the matrix and the fault suite measured, as the Markdown page docs/evidence/matrix.md."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from parity.common.parity.budget import FLOOR_MULTIPLE, Budget
from parity.common.parity.compare import Comparison
from parity.common.record import RunRecord

_CHECKS = ("loss curve", "first-step gradients", "final state")

_HEAD = """# Figures of the parity matrix

Written by `scripts/test -m "" --figures=docs/evidence/matrix.md`; do not edit.

"""
_FLOAT64 = """
## float64: proof

Each row: 200 steps at a global batch of 34 (every epoch ends in an uneven batch of 9; over four replicas one
of them is empty). TensorFlow MirroredStrategy x1, x2, x4, each against torch single, DDP x1, x2, x4 and
FSDP2 x2: 15 pairs. The largest relative deviation of any pair; allowed: loss 1e-12 at every step, gradients
1e-12, final state 1e-10 for every tensor.

| recipe | optimizer | convention | pairs | loss | first-step gradients | final state |
| --- | --- | --- | --- | --- | --- | --- |
"""
_FLOAT32 = """
## float32: within the noise

The same placements against torch single. The largest deviation in units of the noise floor (an ensemble of 4
permuted runs of each framework); allowed: {multiple:g}. *Sharp steps*: how long the floor stays low enough to
tell a defect from noise; a kink of ReLU or max-pooling that flips can end it.

| recipe | optimizer | convention | pairs | loss / floor | gradients / floor | state / floor | sharp steps |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
_FAULTS = """
## Seeded faults

Each is a silent bug from the frameworks' history, on real replicas in float64; every one turned the verdict
red. *First seen*: the first failed check in the order in which data flow.

| side | placement | fault | first seen | deviation |
| --- | --- | --- | --- | --- |
"""


@dataclass
class Figures:
    """Comparisons by spec and precision, and faults by name."""

    float64: dict[tuple[str, ...], list[Comparison]] = field(default_factory=lambda: defaultdict(list))
    float32: dict[tuple[str, ...], list[tuple[Comparison, Budget]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    faults: dict[tuple[str, str, str], Comparison] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def saw(self, record: RunRecord) -> None:
        """Remember the versions that a record was made with."""
        self.versions |= record.header.versions

    def write(self, path: Path) -> None:
        """Write the page, replacing what is there."""
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        text = _HEAD + f"{versions}; {os.cpu_count()} cores, no GPU (not yet run on a GPU).\n" + _FLOAT64
        for key, comparisons in sorted(self.float64.items()):
            worst = [_worst(comparisons, check) for check in _CHECKS]
            text += f"| {' | '.join(key)} | {len(comparisons)} | {' | '.join(f'{w:.1e}' for w in worst)} |\n"
        text += _FLOAT32.format(multiple=FLOOR_MULTIPLE)
        for key, pairs in sorted(self.float32.items()):
            worst = [_worst_ratio([comparison for comparison, _ in pairs], check) for check in _CHECKS]
            sharp = f"{pairs[0][1].informative_steps} of {len(pairs[0][0].steps)}"
            ratios = " | ".join(f"{w:.2f}" for w in worst)
            text += f"| {' | '.join(key)} | {len(pairs)} | {ratios} | {sharp} |\n"
        text += _FAULTS
        for (side, placement, fault), comparison in sorted(self.faults.items()):
            first = comparison.first_failure
            assert first is not None
            text += f"| {side} | {placement} | {fault.replace('_', ' ')} | {first.name} | {first.deviation:.1e} |\n"
        path.write_text(text, encoding="utf-8")


def _worst(comparisons: list[Comparison], name: str) -> float:
    return max(check.deviation for c in comparisons for check in c.checks if check.name == name)


def _worst_ratio(comparisons: list[Comparison], name: str) -> float:
    found = [check for c in comparisons for check in c.checks if check.name == name and check.budget]
    return max(FLOOR_MULTIPLE * check.deviation / check.budget for check in found)
