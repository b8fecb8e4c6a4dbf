"""One training step: local gradients -> reduce (`reduction.py`) -> clip -> update -> read out (`Step.take`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parity.common.execution.step import LocalGradients, Reduced, StepBase, StepResult
from parity.torch_impl import losses
from parity.torch_impl.reduction import Reduction
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.strategy.all_reduce import PendingSums, Reading, added
from parity.torch_impl.taps import StepTaps


class Step(Reduction, StepBase):
    """One training step; changes the model and the optimizer in place.

    Engines with a loop of their own call its parts themselves.
    """

    losses, step_taps = losses, StepTaps

    def prepare(self) -> None:
        spec, strategy = self.spec, self.strategy
        self._parameters = [tensor.live for tensor in self.model.parameters.values()]
        self._clips = spec.optimizer.clip_global_norm is not None
        # Where a rank has only a part, there is nothing that others have too.
        self._compares = self.recording and not strategy.sharded and strategy.placement.processes > 1
        self._own: list[Tensor] = []

    def __call__(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        return self.take(batch, scalars, number)

    def take(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        """The step: this rank's passes, then what all ranks do together."""
        return self.finish(self.local_gradients(batch, scalars, number), scalars, batch[-1])

    @torch.no_grad()
    def finish(self, local: LocalGradients, scalars: dict[str, float], ids: Any) -> StepResult:
        """All of a step that comes after its passes."""
        reduced = self.reduce(local, scalars)
        clipped, norm = self.clip(reduced)
        changes = self.update(clipped, scalars, reduced.finite)
        return self.read_out(reduced, norm, changes, ids)

    def local_gradients(self, batch: Any, scalars: dict[str, float], number: int) -> LocalGradients:
        """Gradients, loss sum and count of this rank's samples, added up over the micro-batches."""
        total, sums = self._passes(self.micro_batches(batch, number), scalars, number)
        with torch.no_grad():
            return LocalGradients([local(parameter.grad) for parameter in self._parameters], *total, sums)

    def _passes(
        self, pieces: list[Any], scalars: dict[str, float], number: int, reduce: bool = True
    ) -> tuple[list[Tensor], PendingSums]:
        """The passes of some micro-batches: loss sum and count, and what waits for their sums over the ranks."""
        scale, strategy = scalars.get("loss_scale", 1.0), self.strategy
        total: list[Tensor] = []
        sums: PendingSums = list
        for place, piece in enumerate(pieces, start=1):
            last = reduce and place == len(pieces)
            with strategy.accumulating(self.model, last=last):
                loss_sum, count = self.pass_forward(piece, number)
                total = added(total, loss_sum, count)
                if last:
                    # On their way while the backward pass computes, or with its gradients.
                    sums = strategy.begin_sum_with_gradients([*total, *self.fingerprint()])
                strategy.backward(loss_sum if scale == 1 else loss_sum * scale)
        return total, sums

    def clip(self, reduced: Reduced) -> tuple[list[Tensor], Tensor]:
        """The gradients as the spec limits them, and their norm before that, where clipping needs it."""
        pieces = reduced.gradients
        norm = self.strategy.norms(pieces)[0] if self._clips else torch.zeros_like(reduced.count)
        return self.optimizer.clip(pieces, norm), norm

    def update(self, clipped: Any, scalars: dict[str, float], updated: Any) -> list[Tensor]:
        """Change weights and slots, unless the loss scale was too large; the changes of the weights."""
        if updated:
            return self.optimizer.update(clipped, scalars)
        return [torch.zeros_like(weight) for weight in self.optimizer.weights]

    def read_out(self, reduced: Reduced, norm: Any, changes: list[Tensor], ids: Any) -> StepResult:
        """What the record is to hold of the step; begun, and waited for where it is read."""
        optimizer = self.optimizer
        others: PendingSums = list
        if self.recording:
            # Together: where they are sums over ranks, that is one message.
            norms = [norm] * self._clips
            unclipped = [] if self._clips else [reduced.gradients]
            others = self.strategy.begin_norms(*unclipped, optimizer.weights, changes)
        else:
            norms = [norm, *[torch.zeros_like(norm)] * 2]
        if self._compares:
            self._own = others()[-2:-1]
        for parameter in self._parameters:
            parameter.grad = None
        numbers = Reading([reduced.loss_sum, reduced.count, *norms], others, reduced.compared)
        gradients = optimizer.apart(reduced.gradients)
        return StepResult(numbers, self.strategy.by_replica(ids), gradients, reduced.finite, reduced.taps)

    @torch.no_grad()
    def evaluate(self, batch: Any) -> tuple[float, float, int]:
        """(loss sum, count, correct) over a batch distributed to the replicas, in inference mode."""
        inputs, targets, ids = batch
        # Before the pass: after it, a sharded strategy holds them whole on every rank.
        weights = [local(tensor.live) for tensor in self.model.parameters.values()]
        context = self.context(inputs, ids)
        outputs = self.forward(inputs, context)
        loss_sum, count = self.loss(outputs, targets, context)
        correct = losses.correct(self.spec.loss, outputs, targets, context)
        loss_sum, count, correct = self.strategy.sum([loss_sum, count, correct])
        if self.spec.loss.l1 or self.spec.loss.l2:
            loss_sum = self.penalized(Reduced(weights, loss_sum, count, []), weights).loss_sum
        self.strategy.reshard(self.model)
        return float(loss_sum), float(count), int(correct)

    def micro_batches(self, batch: Any, number: int) -> list[Any]:
        """The local batch cut as the placement says. Every rank has as many; some may be empty."""
        count = self.strategy.placement.micro_batches(self.plan.epoch(number))
        if count == 1:
            return [batch]
        return list(zip(*(torch.tensor_split(tensor, count) for tensor in batch), strict=True))
