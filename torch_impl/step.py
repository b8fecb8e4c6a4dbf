"""One training step: local gradients -> reduce -> clip -> update -> read out (`Step.take`).

In `reduce` the replicas come together; how they are summed over is up to `strategy/`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parity.common.execution.step import LocalGradients, Reduced, StepBase, StepResult
from parity.torch_impl import losses
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.strategy.all_reduce import PendingSums, Reading, added, norm_of
from parity.torch_impl.taps import StepTaps


class Step(StepBase):
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
        # This rank's fingerprint before the step, where one is known already.
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

    def reduce(self, local: LocalGradients, scalars: dict[str, float]) -> Reduced:
        """The global batch's mean gradients: summed over the replicas, divided once by the global count."""
        reduced = self.divide(self.sum_over_replicas(local), scalars)
        taps: Any = ()
        if self.taps is not None:
            gradients = self.optimizer.apart(reduced.gradients)
            taps = [self.taps.values(local, gradients, scalars.get("loss_scale"))]
        return reduced._replace(finite=self.finite(reduced.gradients, scalars), taps=taps)

    def sum_over_replicas(self, local: LocalGradients) -> Reduced:
        """The sums over the replicas of loss sums and counts, and of gradients, divided by `averages_over`."""
        pieces = self.optimizer.join(self.strategy.reduced(local.gradients))
        # Begun by `_passes`, beside the backward pass or with its gradients.
        loss_sum, count, *compared = local.pending_sums()
        return Reduced(pieces, loss_sum, count, [*compared, *self._own[: len(compared)]])

    def divide(self, sums: Reduced, scalars: dict[str, float]) -> Reduced:
        """The mean gradients from the sums, and what the loss's penalties on the weights add."""
        # The wrappers average over the ranks; the law asks for the sum over the global count.
        divisor = sums.count * scalars.get("loss_scale", 1.0)
        optimizer = self.optimizer
        pieces = optimizer.scaled(sums.gradients, self.strategy.averages_over / divisor)
        means = sums._replace(gradients=pieces)
        if not (self.spec.loss.l1 or self.spec.loss.l2):
            return means
        means = self.penalized(
            means._replace(gradients=optimizer.apart(pieces)), optimizer.apart(optimizer.weights)
        )
        return means._replace(gradients=optimizer.join(means.gradients))

    def penalized(self, means: Reduced, weights: list[Any]) -> Reduced:
        """The global loss sum and the mean gradients, not in pieces, with the loss's penalties on the weights."""
        loss, strategy = self.spec.loss, self.strategy
        gradients, size = list(means.gradients), torch.zeros_like(means.loss_sum)
        for place, (weight, tensor) in enumerate(zip(weights, self.model.parameters.values(), strict=True)):
            if loss.penalize == "all" or len(tensor.shape) >= 2:
                if strategy.counts(tensor):
                    size += loss.l1 * weight.abs().sum() + loss.l2 * weight.square().sum()
                gradients[place] = gradients[place] + loss.l1 * weight.sign() + 2 * loss.l2 * weight
        loss_sum = means.loss_sum + means.count * strategy.sum_shards([size])[0]
        return means._replace(gradients=gradients, loss_sum=loss_sum)

    def finite(self, gradients: list[Tensor], scalars: dict[str, float]) -> bool:
        """Whether all gradients are finite, on every rank alike; asked only where the loss is scaled."""
        if "loss_scale" not in scalars:
            return True
        wrong = torch.stack([(~gradient.isfinite()).sum() for gradient in gradients]).sum()
        return not float(self.strategy.sum_shards([wrong.to(gradients[0].dtype)])[0])

    @torch.no_grad()
    def fingerprint(self) -> list[Tensor]:
        """The norm of this rank's parameters, by which equal replicas are told; none where none are compared."""
        if self._compares and not self._own:
            self._own = [norm_of(self.optimizer.weights)]
        return self._own

    def compared(self) -> list[float]:
        """The sum of `fingerprint` over all replicas as they are, and this one's; none where there is none."""
        own = self.fingerprint()
        return [float(norm) for norm in (*self.strategy.sum(own), *own)] if own else []

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
