"""A recorder as a callback of Lightning's Trainer, with automatic optimization.

    Trainer(callbacks=[RecorderCallback("runs/mine")]).fit(module, batches)

The loss is what `training_step` returned. Gradients are seen after they are unscaled and, but for `clipped=True`, before they are clipped.
Several optimizers, and manual optimization, in which Lightning does not say what a step is, need a `Recorder`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from parity.common.base.errors import RecordError
from parity.common.record.script import check_unused
from parity.torch_impl.recorder import Recorder
from parity.torch_impl.recorders.batches import size_of


class RecorderCallback(pl.Callback):
    """Records one call of `fit`. Under ddp, losses, counts and ids are those of all ranks."""

    def __init__(
        self,
        out: str | Path,
        *,
        ids: Callable[[Any], Any] | None = None,
        count: Callable[[Any], int] | None = None,
        part: str = "",
        clipped: bool = False,
        **given: Any,
    ) -> None:
        """Make a callback.

        Args:
            out: a new folder, or with `overwrite=True` one of an earlier record.
            ids: gives the sample ids of a batch; None: they are not recorded.
            count: gives over how many samples a batch's loss is a mean; None: the size of its first tensor.
            part: the submodule whose tensors are recorded, such as 'net' of self.net; '': the whole module.
            clipped: whether gradients are seen as Lightning has clipped them, as those of a Keras `train_step` that clips by itself are.
            given: as `Recorder` takes them.
        """
        self._out, self._ids, self._count, self._given = out, ids, count, given
        self._part, self._clipped = part, clipped
        self._recorder: Recorder | None = None
        self._taken = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin the record; the optimizer is there by now."""
        check_unused(self._recorder, "fit")
        if len(trainer.optimizers) != 1 or not pl_module.automatic_optimization:
            raise RecordError(
                f"RecorderCallback sees one optimizer under automatic optimization, received"
                f" {len(trainer.optimizers)}{'' if pl_module.automatic_optimization else ', and steps by hand'};"
                " use parity.torch_impl.recorder.Recorder"
            )
        several = trainer.world_size > 1
        self._taken = trainer.global_step
        recorded = pl_module.get_submodule(self._part)
        self._recorder = recorder = Recorder(
            self._out, recorded, trainer.optimizers[0], distributed=several, **self._given
        )
        if self._clipped:
            clip = pl_module.configure_gradient_clipping

            def clipped(*arguments: Any, **named: Any) -> None:
                clip(*arguments, **named)
                recorder.before_update()

            # Lightning asks for it behind on_before_optimizer_step, whether it clips or not.
            vars(pl_module)["configure_gradient_clipping"] = clipped

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """The gradients are whole, and not clipped yet."""
        if self._recorder is not None and not self._clipped:
            self._recorder.before_update()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A batch is over, and perhaps a step."""
        recorder = self._recorder
        assert recorder is not None
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if loss is None:
            return  # training_step skipped this batch
        count = size_of(batch) if self._count is None else self._count(batch)
        ids = None if self._ids is None else self._ids(batch)
        # Lightning has divided it by the number of micro-batches.
        recorder.add(loss * trainer.accumulate_grad_batches, count, ids)
        if trainer.global_step > self._taken:
            self._taken = trainer.global_step
            recorder.step()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Mark the record complete."""
        vars(pl_module).pop("configure_gradient_clipping", None)
        if self._recorder is not None:
            self._recorder.finish()
