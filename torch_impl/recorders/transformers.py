"""A recorder as a callback of transformers' Trainer.

    trainer.add_callback(RecorderCallback(trainer, "runs/mine"))

A callback is told no loss, and log lines only a mean of several, so this one watches `trainer.compute_loss`, and
the clipping, to see gradients before it. Where the Trainer divides losses by the items (tokens) of all
micro-batches together, these are the count; else the samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from parity.common.record.script import check_unused
from parity.torch_impl.recorder import Recorder
from parity.torch_impl.recorders.batches import size_of


class RecorderCallback(TrainerCallback):
    """Records one call of `train`. On several ranks, losses, counts and ids are those of all."""

    def __init__(self, trainer: Trainer, out: str | Path, *, ids: str | None = None, **given: Any) -> None:
        """Make a callback.

        Args:
            trainer: that it is added to.
            out: a new folder, or with `overwrite=True` one of an earlier record.
            ids: the column with sample ids, which is then kept from the model; it needs remove_unused_columns=False.
            given: as `Recorder` takes them.
        """
        self._trainer, self._out, self._ids, self._given = trainer, out, ids, given
        self._recorder: Recorder | None = None
        self._counted = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Begin the record; model and optimizer are as they are trained."""
        check_unused(self._recorder, "train")
        trainer = self._trainer
        several = args.world_size > 1
        self._recorder = Recorder(
            self._out, trainer.model, trainer.optimizer, distributed=several, **self._given
        )
        compute, clip = trainer.compute_loss, getattr(trainer, "_clip_grad_norm", None)

        def watched(model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
            ids = None if self._ids is None else inputs.get(self._ids)
            given = {name: value for name, value in inputs.items() if name != self._ids}
            size = size_of(given)
            found = compute(model, given, *rest, **named)
            if model.training:
                loss = found[0] if isinstance(found, tuple) else found
                self._see(loss, size, named.get("num_items_in_batch"), ids)
            return found

        trainer.compute_loss = watched
        if clip is not None:

            def clipped(*rest: Any, **named: Any) -> Any:
                assert self._recorder is not None
                self._recorder.gradients()
                return clip(*rest, **named)

            trainer._clip_grad_norm = clipped

    def _see(self, loss: Any, size: int, items: Any, ids: Any) -> None:
        recorder = self._recorder
        assert recorder is not None
        if items is None or not self._trainer.model_accepts_loss_kwargs:
            recorder.add(loss, size, ids)
            return
        # Each micro-batch's loss is its part of the mean over all of them.
        recorder.add_part(loss, float(items), 0.0 if self._counted else float(items), ids)
        self._counted = True

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """A step is over."""
        if self._recorder is not None:
            self._recorder.step()
        self._counted = False

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Mark the record complete, and leave the trainer as it was."""
        for name in ("compute_loss", "_clip_grad_norm"):
            self._trainer.__dict__.pop(name, None)
        if self._recorder is not None:
            self._recorder.finish()
