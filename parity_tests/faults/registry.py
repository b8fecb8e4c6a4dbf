"""The registry of planted faults: what each is, where it is tried, and what must be said of it.

A fault's body is a function of its name in `torch_*.py` or `tensorflow_*.py` beside this file. Its entry stands in
`torch_table.py` or `tensorflow_table.py` and lists its trials. Each suite takes the trials of its kind from here:

- `Diagnosed`: `parity diagnose` names the stage, the tensor and the cause (test_diagnosis.py, docs/evidence/faults.md).
- `Judged`: the verdict of a comparison is divergent (test_faults.py, docs/evidence/matrix.md).
- `Violated`: the run breaks an invariant at a step (test_faults.py).
- `Tapped`: the first tap that deviates is the one where the fault is (test_taps.py).
- `Forced`: a teacher-forced step deviates only where the fault is (test_replay_torch.py, test_replay_tensorflow.py).
- `Own`: a test of another file plants it and says what must come of it.

What is expected follows from what a fault does, never from what a diagnosis said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal, TypeVar

import pytest

from parity.common import recipes
from parity.common.diagnosis.result import Diagnosis, Finding
from parity.common.spec import Placement, RunConfig, TrainSpec, override
from parity.common.spec.strategies import Framework
from parity_tests.helpers.matrix import NARROW, config, small, tensorflow, torch

# When a trial is made: by default; with those that take minutes; only with all others.
Suite = Literal["default", "slow", "exhaustive"]
Place = tuple[str, str]

# The list of historic bugs that the toolkit answers for.
BEHAVIOURS = {
    1: "replica gradients never summed",
    2: "mean of replica means",
    3: "micro-batches averaged though their sizes differ",
    4: "world size not cancelled, or twice",
    5: "accumulation not divided out, or twice",
    6: "moments averaged over replicas",
    7: "`no_sync` left on for the last micro-batch",
    8: "a parameter outside what is reduced",
    9: "a parameter reduced in the first step only",
    10: "replicas start from different weights",
    11: "stale parameters",
    12: "clipped before the reduction",
    13: "clipped by the local norm",
    14: "clipping silently off",
    15: "gradients not zeroed",
    16: "decay coupled or decoupled, or of the wrong tensors",
    17: "Adam's bias correction and epsilon",
    18: "momentum and Nesterov",
    19: "batch norm's epsilon, momentum, running variance",
    20: "batch norm's statistics: of which replicas",
    21: "training mode and inference mode",
    22: "order of the samples",
    23: "shares of the replicas",
    24: "labels shifted against inputs",
    25: "schedule",
    26: "augmentation and dropout keyed wrongly",
    27: "kernel transposed",
    28: "order of flattening",
    29: "padding on the other side",
    30: "gates and biases",
    31: "attention's scale, mask and axis",
    32: "layer norm's epsilon, GELU",
    33: "float32 in a float64 path",
    34: "loss scale and overflow",
    35: "reduced in low precision",
}
# A little more than an epoch, so that an uneven tail and a reshuffle are among the steps: 1437 digits are 11
# batches of 130 and one of 7; the 150 samples of a tiny recipe are 9 of 16 and one of 6.
_EPOCH = {"digits": ("global_batch_size=130", "steps=14"), "tiny": ("global_batch_size=16", "steps=12")}
SINGLE = torch("single", 1)
MIRRORED_1 = tensorflow(1)


@dataclass(frozen=True)
class Trial:
    """One run under a fault.

    placement: where the fault is planted. suite: when it is tried. digests: whether parameters are recorded too.
    fault, behaviour: set by the fault's entry; behaviour is its number in BEHAVIOURS, None where it is none of them.
    """

    placement: Placement
    _: KW_ONLY
    suite: Suite = "exhaustive"
    digests: bool = False
    fault: str = ""
    behaviour: int | None = None

    @property
    def run(self) -> RunConfig:
        """The placement with what the run records besides."""
        return config(self.placement, digests=self.digests)

    @property
    def id(self) -> str:
        """Unique among the trials of its kind."""
        return f"{self.placement.framework}-{self.fault}"

    @property
    def inside(self) -> str:
        """What the faulty run is made inside: "module:function"."""
        return f"parity_tests.faults.{self.placement.framework}:{self.fault}"


@dataclass(frozen=True)
class Diagnosed(Trial):
    """What a diagnosis must say of a fault.

    recipe, overrides: what is trained. stage, name, cause: of the first finding, each a pattern of fnmatch, with
    `|` between alternatives. missed: what is said instead, where it is not yet said right.
    """

    recipe: str
    stage: str
    name: str
    cause: str
    overrides: tuple[str, ...] = ()
    _: KW_ONLY
    reference: Placement = SINGLE
    missed: str = ""

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
class Judged(Trial):
    """A comparison with a clean run of another placement that must come out divergent."""

    spec: TrainSpec
    reference: Placement

    @property
    def id(self) -> str:
        low = "" if self.spec.precision == "float64" else f"{self.spec.precision}-"
        return f"{low}{self.placement.framework}-{self.fault}"


@dataclass(frozen=True)
class Violated(Trial):
    """An invariant that the run breaks, none else, and the step at which it first does."""

    spec: TrainSpec
    invariant: str
    step: int


@dataclass(frozen=True)
class Tapped(Trial):
    """The first tap that deviates. spec: its name in test_taps.py."""

    spec: str
    first: str

    @property
    def run(self) -> RunConfig:
        return config(self.placement, taps=True)


@dataclass(frozen=True)
class Forced(Trial):
    """How names begin that deviate in a teacher-forced step (None: the evaluation). spec: its name in replayed.py."""

    spec: str
    step: int | None
    places: tuple[str, ...]


@dataclass(frozen=True)
class Own:
    """A test file that plants the fault in tests of its own. text: how it names it there, if not by its whole name."""

    file: str
    text: str = ""


@dataclass(frozen=True)
class Fault:
    """One planted fault: its name, its number in BEHAVIOURS, and its trials."""

    framework: Framework
    name: str
    behaviour: int | None
    trials: tuple[Trial, ...]
    own: tuple[Own, ...] = ()

    @classmethod
    def of(cls, framework: Framework, name: str, behaviour: int | None, *trials: Trial | Own) -> Fault:
        """An entry of a table."""
        made = [t for t in trials if isinstance(t, Trial)]
        return cls(
            framework,
            name,
            behaviour,
            tuple(replace(trial, fault=name, behaviour=behaviour) for trial in made),
            tuple(t for t in trials if isinstance(t, Own)),
        )

    @property
    def strategies(self) -> set[str]:
        """Where it can occur: strategies in which a trial plants it."""
        return {trial.placement.strategy for trial in self.trials}


@dataclass(frozen=True)
class FaultPair:
    """Two faults at once in one run; of the same placement, recipe and reference."""

    first: Diagnosed
    second: Diagnosed
    suite: Suite = "exhaustive"
    missed: str = ""

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
        both = (*self.first.overrides, *self.second.overrides)
        return spec_of(self.first.recipe, tuple(dict.fromkeys(both)))

    @property
    def fault(self) -> str:
        """The name of both: a fault's module knows `ONE+OTHER` too."""
        return f"{self.first.fault}+{self.second.fault}"

    @property
    def inside(self) -> str:
        """What the faulty run is made inside."""
        return f"{self.first.inside}+{self.second.fault}"


# Shorthands of the tables.


def diagnosed(
    placement: Placement,
    recipe: str,
    place: Place,
    cause: str,
    *overrides: str,
    suite: Suite = "exhaustive",
    reference: Placement = SINGLE,
    missed: str = "",
) -> Diagnosed:
    return Diagnosed(
        placement, recipe, *place, cause, overrides, suite=suite, reference=reference, missed=missed
    )


def judged(placement: Placement, recipe: str, *overrides: str, suite: Suite = "exhaustive") -> Judged:
    """Against one replica of the other framework, over more than an epoch, so that it has an uneven tail."""
    reference = MIRRORED_1 if placement.framework == "torch" else SINGLE
    return Judged(placement, small(recipe, "steps=46", *overrides), reference, suite=suite)


def violated(placement: Placement, recipe: str, *rest: str | int, suite: Suite = "default") -> Violated:
    """In the run of `judged`; `rest` is its overrides, the invariant and the step."""
    *overrides, invariant, step = rest
    spec = small(recipe, "steps=46", *map(str, overrides))
    return Violated(placement, spec, str(invariant), int(step), suite=suite)


def pair_of(
    faults: Iterable[Fault],
    placement: Placement,
    recipe: str,
    one: str,
    other: str,
    suite: Suite = "exhaustive",
    missed: str = "",
) -> FaultPair:
    """Two of the faults at once, as they are diagnosed in float64 singly, in another placement perhaps."""
    cases = [trial for fault in faults for trial in fault.trials if isinstance(trial, Diagnosed)]
    cases = [case for case in cases if (case.recipe, case.spec.precision) == (recipe, "float64")]
    both = (next(case for case in cases if case.fault == fault) for fault in (one, other))
    first, second = (
        replace(case, placement=placement, reference=SINGLE, suite="exhaustive", missed="") for case in both
    )
    return FaultPair(first, second, suite, missed)


@cache
def spec_of(recipe: str, overrides: tuple[str, ...] = ()) -> TrainSpec:
    """A recipe with steps of a little more than an epoch, and further overrides."""
    epoch = _EPOCH["tiny" if recipe.endswith(":tiny") else "digits"]
    narrow = NARROW if recipe == "digits_cnn" else []
    return override(recipes.get(recipe), [*epoch, *narrow, *overrides])


def _is_one_of(text: str, patterns: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns.split("|"))


# What the suites take from the tables.

AnyTrial = TypeVar("AnyTrial", bound=Trial)


def every_fault() -> list[Fault]:
    """Return all entries."""
    from parity_tests.faults import tensorflow_table, torch_table  # they import this module

    return [*torch_table.FAULTS, *tensorflow_table.FAULTS]


def every_pair() -> list[FaultPair]:
    """Return all pairs of faults."""
    from parity_tests.faults import tensorflow_table, torch_table

    return [*torch_table.PAIRS, *tensorflow_table.PAIRS]


def trials(kind: type[AnyTrial], framework: Framework | None = None) -> list[AnyTrial]:
    """Return all trials of a kind, of either framework or of one."""
    chosen = (fault for fault in every_fault() if framework in (None, fault.framework))
    return [trial for fault in chosen for trial in fault.trials if isinstance(trial, kind)]


def parameters(cases: Iterable[Trial | FaultPair]) -> list:
    """Return a suite's parameters, each marked by when it is due."""
    marks = {"default": (), "slow": pytest.mark.slow, "exhaustive": pytest.mark.exhaustive}
    return [pytest.param(case, marks=marks[case.suite], id=case.id) for case in cases]
