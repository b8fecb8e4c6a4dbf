"""What came of the models of other people's packages, as the Markdown page docs/evidence/zoo.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parity.common.spec.external.mapping import Mapping
from parity.common.spec.external.target import Target
from parity_tests.zoo import APPLICATIONS, TRANSFORMERS, ZooPair

LIMIT = 1e-10
# What `parity pair` takes away before it compares.
CONSTANTS = (
    "Keras rounds constants to float32",
    "torch's code rounds constants to float32 while it is built",
)

_HEAD = """# Third-party models

Written by `scripts/test -m "" parity_tests/test_zoo.py --zoo=docs/evidence/zoo.md`; do not edit.

Models of Keras's own packages against their counterparts in packages for PyTorch, unmodified, in the depth that they
have (transformers: small, some with few layers), each imported only in its own framework's process. No trained
weights can be downloaded here, and none are needed: the mapping is proposed from names, shapes and order and settled
by probing; then every tensor that has a counterpart is filled with random numbers (moving statistics too), the same
on both sides through the mapping, and both models are run in inference, in float64.

- *tensors*: of Keras / of torch: weights and buffers of floating numbers, tied ones once.
- *mapped*: of both together, those that got a counterpart automatically and without doubt; allowed: 90% at least.
- *wrong*: how many of these are wrong. 0 is proven: with different random numbers in all tensors the outputs are
  equal, as the two models are or once the named differences are taken away.
- *as they are*: largest difference of the outputs, over their largest number; up to 1e-10 is parity.
- *what differs*: differences of settings are those that lint finds and of which the experiment needs every one:
  *without it* is the deviation with these made equal on the live models. What is rounded to float32 is no setting and
  no fault: there the experiment is what `parity pair` does before it compares, TensorFlow with constants that are not
  rounded, and torch's model built with float64 where its code asks for float32 (in a pass it always gets float64).
  Where *without it* is above 1e-10 the difference is not fully named.
"""


@dataclass
class Outcome:
    """What came of a pair.

    tensors: of Keras and of torch, floating ones under one name each. mapped: of these, the ones that the proposal
    gives a counterpart and does not doubt. doubtful, lacking: names in doubt, and of tensors that only one side has.
    deviation: of the outputs, as the two models are. named: differences of settings, each with how many layers have
    it. equalled: the deviation once these are taken away on the live models, None where nothing was to be done.
    first: the first layer that deviates though it is given what Keras's was, with its deviation.
    """

    pair: ZooPair
    tensors: tuple[int, int]
    mapped: tuple[int, int]
    doubtful: tuple[str, ...]
    lacking: tuple[str, ...]
    deviation: float = math.inf
    named: tuple[str, ...] = ()
    equalled: float | None = None
    first: str = ""
    seconds: float = 0.0
    mapping: Mapping | None = field(default=None, repr=False)

    @property
    def share(self) -> float:
        """Of all tensors, the part that was mapped without doubt."""
        return sum(self.mapped) / sum(self.tensors)

    @property
    def proven(self) -> bool:
        """Whether no tensor can be mapped wrong: with random numbers in all of them the outputs are equal."""
        return min(self.deviation, math.inf if self.equalled is None else self.equalled) <= LIMIT

    @property
    def only_rounded(self) -> bool:
        """Whether they are equal with constants kept exact, and not as they are."""
        known = self.equalled is not None and self.equalled <= LIMIT and set(self.named) <= set(CONSTANTS)
        return self.deviation > LIMIT and known


@dataclass
class ZooTable:
    """Outcomes of pairs by name."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Take in what came of a pair."""
        self.outcomes[outcome.pair.name] = outcome

    def write(self, path: Path) -> None:
        """Write the page; nothing, where there is nothing to say."""
        if self.outcomes:
            path.write_text(self.page(), encoding="utf-8")

    def page(self) -> str:
        """All that was seen."""
        lines = [
            _HEAD,
            *self._section("keras.applications, and KerasHub's convolutional networks", APPLICATIONS),
        ]
        lines += self._section("KerasHub against Hugging Face's transformers", TRANSFORMERS)
        lines += ["## What they are called with", "", "| pair | Keras | PyTorch |", "| --- | --- | --- |"]
        for name, outcome in self.outcomes.items():
            lines.append(f"| {name} | {_called(outcome.pair.keras)} | {_called(outcome.pair.torch)} |")
        lacking = [outcome for outcome in self.outcomes.values() if outcome.lacking]
        if lacking:
            lines += ["", "## Tensors without a counterpart", "", "| pair | tensors |", "| --- | --- |"]
            lines += [f"| {outcome.pair.name} | {_listed(outcome.lacking)} |" for outcome in lacking]
        return "\n".join(lines) + "\n"

    def _section(self, title: str, pairs: Sequence[ZooPair]) -> list[str]:
        own = [self.outcomes[pair.name] for pair in pairs if pair.name in self.outcomes]
        same = sum(outcome.deviation <= LIMIT for outcome in own)
        rounded = sum(outcome.only_rounded for outcome in own)
        lines = [
            f"## {title}",
            "",
            f"{len(own)} pairs: {same} in parity as they are, {rounded} more with the constants exact that a framework or"
            f" code rounds to float32, as `parity pair` compares them; {len(own) - same - rounded} truly different.",
            "",
            "| pair | tensors | mapped | wrong | as they are | what differs | without it |",
            "| --- " * 7 + "|",
        ]
        return [*lines, *map(_row, own), ""]


def _row(outcome: Outcome) -> str:
    without = "" if outcome.equalled is None else f"{outcome.equalled:.0e}"
    cells = [
        outcome.pair.name,
        "{} / {}".format(*outcome.tensors),
        f"{outcome.share:.1%}",
        "0" if outcome.proven else "not known",
        f"{outcome.deviation:.0e}",
        "; ".join(outcome.named),
        without,
    ]
    return f"| {' | '.join(cells)} |"


def _called(target: Target) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in target.arguments.items())
    return f"`{target.module}.{target.attribute}({given})`"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return shown + (f" and {len(names) - 4} more like these" if len(names) > 4 else "")
