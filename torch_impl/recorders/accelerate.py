"""A recorder for a loop with Accelerate, one process or several.

    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    with AcceleratedRecorder("runs/mine", accelerator, model, optimizer) as recorder:
        for inputs, targets in batches:
            with accelerator.accumulate(model):
                ...
                recorder.step(loss, count=len(inputs))

`step` is called for every batch: where Accelerate accumulates, those that only add to a step do so in the record,
too. Where the loop calls `accelerator.clip_grad_norm_`, call `recorder.gradients()` before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelerate import Accelerator

from parity.torch_impl.recorder import Recorder


class AcceleratedRecorder(Recorder):
    """Records a loop; losses, counts and ids are those of all processes."""

    def __init__(
        self, out: str | Path, accelerator: Accelerator, model: Any, optimizer: Any, **given: Any
    ) -> None:
        """As `Recorder`; model and optimizer are what `accelerator.prepare` gave."""
        self._accelerator = accelerator
        several = accelerator.num_processes > 1
        super().__init__(out, accelerator.unwrap_model(model), optimizer, distributed=several, **given)

    def step(self, loss: Any = None, count: float = 0, ids: Any = None, *, loss_sum: Any = None) -> None:
        """A batch is over, and where gradients were synchronised, a step."""
        if self._accelerator.sync_gradients:
            super().step(loss, count, ids, loss_sum=loss_sum)
        else:
            self.add(loss, count, ids, loss_sum=loss_sum)
