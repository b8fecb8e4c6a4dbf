"""What a scaling analysis found, as plain data. Seconds, bytes and samples, unless a name says otherwise.

A number that could not be had is NaN; what could not be done says why in a field `why_not`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["strong", "weak"]
Conclusion = Literal["conclusive", "too noisy to conclude"]

# What is usually reached: replicas -> (low, high) speedup.
EXPECTATION = {1: (1.0, 1.0), 2: (1.8, 1.8), 4: (3.5, 3.5), 8: (6.0, 7.0)}


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % bootstrap confidence interval; all NaN where there is none."""

    median: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """All three times a positive number."""
        return Interval(self.median * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Ratio:
    """A ratio of throughputs: the median of its rounds, with the 95 % bootstrap interval.

    A speedup (of a configuration over its framework's single replica) or a comparison of two
    configurations with as many replicas.

    mode: `strong` at one global batch, `weak` at one batch per replica. Weak speedups are ratios of
        samples per second too, so that the ideal is the number of replicas in either mode.
    serial_fraction: Karp and Flatt's; of speedups over 1 replica only. Below 0 where the speedup is
        more than the number of replicas.
    conclusion: by the rule in `statistics.NOISE_RULE`.
    advice: what was decided and what to do where it could not be; one sentence.
    """

    name: str
    replicas: int
    median: float
    low: float
    high: float
    rounds: int
    framework: str = ""
    mode: Mode = "strong"
    serial_fraction: Interval | None = None
    conclusion: Conclusion = "conclusive"
    advice: str = ""

    @property
    def interval(self) -> Interval:
        """Its figures together."""
        return Interval(self.median, self.low, self.high)

    @property
    def efficiency(self) -> float:
        """Speedup over the replica count."""
        return self.median / self.replicas

    @property
    def efficiency_interval(self) -> Interval:
        """Efficiency with its interval, which is the speedup's over the replica count."""
        return self.interval.scaled(1 / self.replicas)

    @property
    def expected(self) -> tuple[float, float] | None:
        """(low, high) speedup usually reached with as many replicas; None where nothing is usual."""
        return EXPECTATION.get(self.replicas)


@dataclass(frozen=True)
class PhaseTimes:
    """Where a step's seconds go: medians over the repeats, of the mean of the ranks.

    communication: the step's messages alone. exposed: what reducing adds to forward and backward
    passes, at least 0; hidden: the rest of the communication, which ran beside the computation.
    step: a whole step, timed likewise. imbalance: how much longer than the mean the slowest rank
    computes (data, forward, backward, optimizer).
    message_bytes: what one replica sends in a step, by operation; messages: how many. sizes: the same
        as (operation, bytes of one, how many).
    """

    data: float
    forward: float
    backward: float
    communication: float
    optimizer: float
    exposed: float
    hidden: float
    step: float
    imbalance: float
    ranks: int
    message_bytes: dict[str, int]
    messages: dict[str, int]
    sizes: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class Configuration:
    """One way to train: its speed and what it holds.

    unit: `core` or `device`; per_unit: samples per second of one of the `units` that it used.
    memory_bytes: per replica, by what is held (parameters, slots, tensors, peak), as recorded; the
        largest seen in any round. Empty where not recorded.
    warm_up_steps: the most steps left out at the start of a run; settled: False where some run was
        still changing at the bound on what may be left out.
    oversubscribed: replicas x threads are more than the cores. crowding: how many threads share a
        core then; 1 where there are enough.
    """

    label: str
    framework: str
    strategy: str
    replicas: int
    mode: Mode
    global_batch: int
    rounds: int
    timed_steps: int
    warm_up_steps: int
    settled: bool
    samples_per_second: Interval
    step_seconds: Interval
    unit: Literal["core", "device"]
    units: int
    per_unit: Interval
    memory_bytes: dict[str, int]
    phases: PhaseTimes | None
    oversubscribed: bool
    crowding: float = 1.0


@dataclass(frozen=True)
class Residual:
    """A measured speedup beside the fitted one."""

    replicas: int
    measured: float
    fitted: float


@dataclass(frozen=True)
class LawFit:
    """A scaling law fitted to the speedups of one framework and strategy in one mode.

    law: `Amdahl`, `Gustafson` or `Universal Scalability Law`.
    parameters: by name, with 95 % intervals (the fit repeated on every bootstrap draw).
    rms: root mean square of the residuals' shares of the measured speedups.
    limit: the largest speedup that the law allows, infinite where it knows none.
    why_not: why nothing was fitted; empty where something was.
    """

    framework: str
    strategy: str
    mode: Mode
    law: str
    parameters: dict[str, Interval]
    residuals: tuple[Residual, ...]
    rms: float
    limit: float
    why_not: str = ""


@dataclass(frozen=True)
class Cause:
    """A part of what a step takes beyond the ideal.

    name: `communication`, `data`, `imbalance`, `cores shared`, `batch too small`, `optimizer` or
        `unexplained` (which may be below 0: the parts then add up to more than was lost).
    seconds: of a step; share_of_step and share_of_loss: of 1. how: how it was found, in a few words.
    """

    name: str
    seconds: float
    share_of_step: float
    share_of_loss: float
    how: str


@dataclass(frozen=True)
class Loss:
    """Where the efficiency that is missing from 100 % went. `sentence` names the largest part."""

    label: str
    framework: str
    replicas: int
    mode: Mode
    step_seconds: float
    ideal_seconds: float
    lost_seconds: float
    causes: tuple[Cause, ...]
    sentence: str


@dataclass(frozen=True)
class ProjectedPoint:
    """What the model says of one number of devices.

    algorithm: the fastest for the operation that moves most: `ring`, `tree`, `recursive doubling`,
        `recursive halving`, or `none` where nothing is sent.
    speedup and efficiency: against one device of the same model.
    """

    devices: int
    mode: Mode
    algorithm: str
    compute_seconds: float
    communication_seconds: float
    exposed_seconds: float
    step_seconds: float
    samples_per_second: float
    speedup: float
    efficiency: float


@dataclass(frozen=True)
class Validation:
    """A measured step beside the model's. error: (predicted - measured) / measured.

    fitted: the model took parameters from this point, so that it says little.
    """

    label: str
    replicas: int
    mode: Mode
    measured_seconds: float
    predicted_seconds: float
    error: float
    fitted: bool


@dataclass(frozen=True)
class Projection:
    """The alpha-beta model of one framework and strategy, and how far it can be believed.

    assumptions: every one of them, as lines of text. error: the largest |error| of the points that
    nothing was fitted on, of those with enough cores where there are any; NaN where there are none.
    why_not: why there are no points.
    """

    framework: str
    strategy: str
    link: str
    points: tuple[ProjectedPoint, ...]
    assumptions: tuple[str, ...]
    validation: tuple[Validation, ...]
    error: float
    why_not: str = ""


@dataclass(frozen=True)
class Target:
    """What it took to reach a quality. Seconds, samples and steps are NaN where not `reached`.

    quality: `loss` (the running median of the global batches' mean losses) or `accuracy` (of the
    evaluation after the last step). best: the best seen. note: says what happened, in a sentence.
    """

    label: str
    framework: str
    replicas: int
    mode: Mode
    quality: Literal["loss", "accuracy"]
    target: float
    reached: bool
    best: float
    seconds: float
    samples: float
    steps: float
    note: str


@dataclass(frozen=True)
class Scaling:
    """Everything found. Tuples are in the order of the configurations: framework, mode, replicas.

    speedups: of each configuration over its framework's single replica. between: the frameworks
    against each other, at equal replicas. notes: what a reader must know before believing any of
    it, as sentences.
    """

    configurations: tuple[Configuration, ...]
    speedups: tuple[Ratio, ...]
    between: tuple[Ratio, ...]
    pinned: bool
    timed_steps: int
    rounds: int
    laws: tuple[LawFit, ...] = ()
    losses: tuple[Loss, ...] = ()
    projections: tuple[Projection, ...] = ()
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def samples_per_second(self) -> dict[str, float]:
        """Median throughput by label."""
        return {c.label: c.samples_per_second.median for c in self.configurations}
