"""Studies without a framework: workers that leave records of made-up trainings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from parity.common.base.errors import RunError
from parity.common.spec import Instrumentation, Placement, RunConfig, RunOptions, TrainSpec
from parity_tests.helpers.records import Run

# Of an arm's framework and a seed, what is added to its losses.
Effect = Callable[[str, int], float]


@dataclass
class MadeUpWorkers:
    """In place of `Workers`: losses that depend on the seed, and on the arm by `effect`.

    noise: standard deviation of what two arms of a seed do not share; shared: of what they do. failing: (framework, seed) of
    runs that end in an error; lost: of those whose losses are NaN. trained: what has been asked for, in order.
    """

    effect: Effect = lambda framework, seed: 0.0
    noise: float = 0.01
    shared: float = 0.1
    failing: set[tuple[str, int]] = field(default_factory=set)
    lost: set[tuple[str, int]] = field(default_factory=set)
    trained: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, logs: Path, variables: object = None) -> MadeUpWorkers:
        return self

    def __enter__(self) -> MadeUpWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def train(
        self,
        spec: TrainSpec,
        placement: Placement,
        folder: Path,
        run_options: RunOptions,
        instrumentation: Instrumentation,
    ) -> Path:
        """Leave a record."""
        framework, seed = placement.framework, spec.seed
        self.trained.append((framework, seed))
        if (framework, seed) in self.failing:
            raise RunError(f"{placement.label}: out of memory")
        run = Run.of(
            spec,
            RunConfig(placement=placement, run_options=run_options, instrumentation=instrumentation),
        )
        of_seed = self.shared * np.random.default_rng(seed).standard_normal()
        own = self.noise * np.random.default_rng([seed, len(framework)]).standard_normal()
        loss = 1 + of_seed + own + self.effect(framework, seed)
        if (framework, seed) in self.lost:
            loss = math.nan
        run.column("loss_sum")[:] = run.column("count") * (loss + np.exp(-np.arange(len(run.numbers))))
        count = spec.data.eval_samples
        of_seed = 0.0 if math.isnan(loss) else of_seed
        run.evaluation = (loss * count, count, round(count * min(1.0, 0.9 - 0.1 * of_seed)))
        run.write(folder)
        return folder
