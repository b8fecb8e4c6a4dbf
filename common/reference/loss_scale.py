"""The loss scale of each step, and which updates were made."""

from __future__ import annotations

from collections.abc import Mapping

from parity.common.reference.optimizers.base import known
from parity.common.spec.train import TrainSpec

# Within these, neither a scaled loss nor a scaled count leaves the normal float32 numbers.
SMALLEST, LARGEST = 2.0**-64, 2.0**64


class LossScaler:
    """Counts the updates of a run and moves its loss scale; without float16 every step is an update.

    `observe` must be told every step in order, or `restore` what another was told. Neither scale nor count
    is part of the canonical state; a checkpoint holds them beside it, as it does what a plateau knows.

    updates: made so far; what bias corrections and the average of the weights count.
    scale: what the next step multiplies its loss by.
    """

    def __init__(self, spec: TrainSpec) -> None:
        self._rule = spec.loss_scale
        self.updates = 0
        self.scale = 1.0 if self._rule is None else known(self._rule.initial)
        self._in_a_row = 0

    def schedule_step(self, step: int) -> int:
        """Where the schedule stands at a step of the run."""
        waits = self._rule is not None and self._rule.schedule == "waits"
        return self.updates if waits else step

    def kept(self) -> dict[str, float | None]:
        """All that it knows, for `restore`."""
        return {"updates": self.updates, "loss_scale": self.scale, "updates_in_a_row": self._in_a_row}

    def restore(self, kept: Mapping[str, float | None]) -> None:
        """Know what `kept` says; raises KeyError where that is something else."""
        self.updates, self.scale = int(known(kept["updates"])), known(kept["loss_scale"])
        self._in_a_row = int(known(kept["updates_in_a_row"]))

    def observe(self, updated: bool) -> None:
        """Take note of whether a step updated the weights."""
        self.updates += updated
        rule = self._rule
        if rule is None:
            return
        self._in_a_row = self._in_a_row + 1 if updated else 0
        factor = 1.0 if updated else rule.backoff
        if self._in_a_row == rule.growth_interval:
            self._in_a_row, factor = 0, rule.growth
        if SMALLEST <= self.scale * factor <= LARGEST:
            self.scale *= factor
