"""Faults that `parity diagnose` must find: what is planted where, and what it has to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from parity.common import recipes
from parity.common.diagnosis.result import Diagnosis, Finding
from parity.common.spec import Placement, TrainSpec, override
from parity_tests.matrix import NARROW, tensorflow, torch

# A little more than an epoch, so that an uneven tail and a reshuffle are among the steps: 1437 digits are 11
# batches of 130 and one of 7; the 150 samples of a tiny recipe are 9 of 16 and one of 6.
_EPOCH = {"digits": ("global_batch_size=130", "steps=14"), "tiny": ("global_batch_size=16", "steps=12")}
SINGLE = torch("single", 1)
MIRRORED_1 = tensorflow(1)


@dataclass(frozen=True)
class FaultCase:
    """One fault, and what the diagnosis must say of it.

    fault: name in `parity_tests.faults.FRAMEWORK`. behaviour: its number in the list of historic bugs.
    placement: where it is planted. recipe, overrides: what is trained.
    stage, name, cause: of the first finding, each a pattern as of fnmatch with `|` between
    alternatives. They follow from what the fault does, never from what a diagnosis said.
    quick: whether it is among the few that are tried by default.
    """

    fault: str
    behaviour: int
    placement: Placement
    recipe: str
    stage: str
    name: str
    cause: str
    overrides: tuple[str, ...] = ()
    reference: Placement = field(default=SINGLE)
    quick: bool = False

    @property
    def id(self) -> str:
        """Short and unique: 'torch-ddp2-gradients_not_zeroed'."""
        placed = self.placement
        more = "-accumulating" if placed.accumulates else ""
        if self.spec.precision != "float64":
            more += f"-{self.spec.precision}"
        return f"{placed.framework}-{placed.strategy}{placed.replicas}{more}-{self.fault}"

    @property
    def spec(self) -> TrainSpec:
        return spec_of(self.recipe, self.overrides)

    @property
    def inside(self) -> str:
        """What the candidate is run inside."""
        return f"parity_tests.faults.{self.placement.framework}:{self.fault}"

    def placed_by(self, finding: Finding) -> bool:
        """Whether a finding is at the right place."""
        return _is_one_of(finding.stage, self.stage) and _is_one_of(finding.name, self.name)

    def named_by(self, finding: Finding) -> bool:
        """Whether a finding names the right cause."""
        explained = finding.explanation
        return explained is not None and _is_one_of(explained.cause, self.cause)

    def finding_in(self, diagnosis: Diagnosis) -> Finding | None:
        """The finding that is this fault: at its place and of its cause, else at its place, else of its cause."""
        for fits in (
            lambda f: self.placed_by(f) and self.named_by(f),
            self.placed_by,
            self.named_by,
        ):
            found = next((finding for finding in diagnosis.findings if fits(finding)), None)
            if found is not None:
                return found
        return None


@dataclass(frozen=True)
class FaultPair:
    """Two faults at once, in one run; of the same placement, recipe and reference."""

    first: FaultCase
    second: FaultCase
    overrides: tuple[str, ...] = ()
    quick: bool = False

    @property
    def id(self) -> str:
        return f"{self.first.id}+{self.second.fault}"

    @property
    def placement(self) -> Placement:
        return self.first.placement

    @property
    def reference(self) -> Placement:
        return self.first.reference

    @property
    def spec(self) -> TrainSpec:
        more = (*self.first.overrides, *self.second.overrides, *self.overrides)
        return spec_of(self.first.recipe, tuple(dict.fromkeys(more)))

    @property
    def inside(self) -> str:
        """What the candidate is run inside: a fault's module knows `ONE+OTHER` too."""
        return f"{self.first.inside}+{self.second.fault}"


def spec_of(recipe: str, overrides: tuple[str, ...] = ()) -> TrainSpec:
    """A recipe with steps of a little more than an epoch, and further overrides."""
    epoch = _EPOCH["tiny" if recipe.endswith(":tiny") else "digits"]
    narrow = NARROW if recipe == "digits_cnn" else []
    return override(recipes.get(recipe), [*epoch, *narrow, *overrides])


def _is_one_of(text: str, patterns: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns.split("|"))
