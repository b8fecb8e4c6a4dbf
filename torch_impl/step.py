"""One training step, readable on one screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parity.common.data.plan import BatchPlan
from parity.common.spec import TrainSpec
from parity.common.spec.losses import LossBase
from parity.torch_impl import losses
from parity.torch_impl.model import Model, local
from parity.torch_impl.optimizers import Optimizer
from parity.torch_impl.strategy import Strategy
from parity.torch_impl.strategy.groups import Sums, norm_of
from parity.torch_impl.taps import StepTaps


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global; `tolist` waits for them.
        Then, where replicas are compared, the sum of `Step.fingerprint` over them, and this rank's own.
    ids: the sample ids of each replica that this process speaks for.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    updated: whether the weights were updated; float16 skips a step whose gradients overflowed.
    taps: of each replica that this process speaks for, [names, 2]; empty where nothing is tapped.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]
    updated: Any = True
    taps: Any = ()


class Step:
    """One training step; changes the model and the optimizer in place.

    Split where an engine with a loop of its own takes over: it calls `loss` and `finish` itself.
    """

    def __init__(
        self,
        spec: TrainSpec,
        model: Model,
        optimizer: Optimizer,
        strategy: Strategy,
        recording: bool,
        taps: bool = False,
    ) -> None:
        self.spec, self.model, self.optimizer, self.strategy = spec, model, optimizer, strategy
        self._plan = BatchPlan.of(spec, strategy.placement)
        self._parameters = [tensor.live for tensor in model.parameters.values()]
        self._penalizes = bool(spec.loss.l1 or spec.loss.l2)
        self._clips = spec.optimizer.clip_global_norm is not None
        self.recording = recording
        # Where a rank has only a part, there is nothing that others have too.
        self._compares = recording and not strategy.sharded and strategy.placement.processes > 1
        self._own: list[Tensor] = []
        self.taps = StepTaps(spec, model, strategy) if taps else None
        # Set while a step is taken in which all is seen (`probe.Probe`).
        self.probe: Any = None

    def __call__(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        scale, strategy = scalars.get("loss_scale", 1.0), self.strategy
        pieces = self.micro_batches(batch, number)
        total: list[Tensor] = []
        for place, piece in enumerate(pieces, start=1):
            last = place == len(pieces)
            with strategy.accumulating(self.model, last=last):
                loss_sum, count = self.loss(piece, number)
                total = added(total, loss_sum, count)
                if last:
                    # On their way while the backward pass computes, or with its gradients.
                    sums = strategy.begin_sum_with_gradients([*total, *self.fingerprint()])
                strategy.backward(loss_sum if scale == 1 else loss_sum * scale)
        return self.finish(sums, batch[-1], scalars)

    def micro_batches(self, batch: Any, number: int) -> list[Any]:
        """The local batch cut as the placement says. Every rank has as many; some may be empty."""
        count = self.strategy.placement.micro_batches(self._plan.epoch(number))
        if count == 1:
            return [batch]
        return list(zip(*(torch.tensor_split(tensor, count) for tensor in batch), strict=True))

    def loss(self, batch: Any, number: int) -> tuple[Tensor, Tensor]:
        """Sum and count of the losses of this rank's samples."""
        inputs, targets, ids = batch
        context = self.model.context(True, inputs, ids.to(inputs.device), number)
        if self.taps is not None:
            context = self.taps.opened(context)
        if self.probe is not None:
            context = self.probe.opened(context, inputs)
        outputs = self.model(inputs, context)
        loss_sum, count = losses.loss_sum_and_count(self.spec.loss, outputs, targets, context)
        if self.probe is not None:
            self.probe.lost(loss_sum, count)
        return loss_sum, count

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

    @torch.no_grad()
    def finish(self, sums: Sums, ids: Any, scalars: dict[str, float]) -> StepResult:
        """Reduce what the backward passes left, and update.

        `sums` waits for the global loss sum and count, and for that of `fingerprint`; the ids are this rank's.
        """
        strategy, optimizer, parameters = self.strategy, self.optimizer, self._parameters
        # In pieces, mostly one, as the optimizer joins them.
        pieces = optimizer.join(strategy.reduced([local(parameter.grad) for parameter in parameters]))
        loss_sum, count, *compared = sums()
        compared += self._own[: len(compared)]
        if self.probe is not None:
            loss_sum, count = self.probe.total(loss_sum, count)
        # The wrappers average over the ranks; the law asks for the sum over the global count.
        divisor = count * scalars.get("loss_scale", 1.0)
        pieces = list(torch._foreach_mul(pieces, strategy.averages_over / divisor))
        gradients = optimizer.apart(pieces)
        if self._penalizes:
            weights = optimizer.apart(optimizer.weights)
            loss_sum, gradients = _penalized(
                self.spec.loss, self.model, weights, loss_sum, count, gradients, strategy
            )
            pieces = optimizer.join(gradients)
        if self.probe is not None:
            gradients = self.probe.reduced(gradients)
            pieces = optimizer.join(gradients)
        updated = "loss_scale" not in scalars or self._finite(pieces)
        # Before the update, which may take their memory.
        taps = [] if self.taps is None else [self.taps.values(gradients, scalars.get("loss_scale", 1.0))]
        norms, rest = [torch.zeros_like(count)] * 3, _nothing
        if self._clips:
            norms[:1] = strategy.norms(pieces)
        clipped = optimizer.clip(pieces, norms[0])
        if self.probe is not None:
            clipped = optimizer.join(self.probe.clipped(optimizer.apart(clipped)))
        if updated:
            changes = optimizer.update(clipped, scalars)
        else:
            changes = [torch.zeros_like(weight) for weight in optimizer.weights]
        if self.recording:
            # Together: where they are sums over ranks, that is one message.
            norms = norms[: self._clips]
            rest = strategy.begin_norms(*([] if self._clips else [pieces]), optimizer.weights, changes)
        if self._compares:
            self._own = rest()[-2:-1]
        for parameter in parameters:
            parameter.grad = None
        numbers = _Reading([loss_sum, count, *norms], rest, compared)
        return StepResult(numbers, strategy.by_replica(ids), gradients, updated, taps)

    def _finite(self, gradients: list[Tensor]) -> bool:
        """Whether the reduced gradients are finite everywhere, on every rank alike."""
        wrong = torch.stack([(~gradient.isfinite()).sum() for gradient in gradients]).sum()
        return not float(self.strategy.sum_shards([wrong.to(gradients[0].dtype)])[0])


def _nothing() -> list[Tensor]:
    return []


class _Reading:
    """A step's numbers on their way to the host, which need not wait for anything that comes after them."""

    def __init__(self, known: list[Tensor], rest: Sums, more: list[Tensor]) -> None:
        self._known, self._rest, self._more, self._host = known, rest, more, None
        if known[0].is_cuda:
            # PairRequest for later, they would come behind all that the next step has queued.
            values = torch.stack([*known, *rest(), *more])
            self._host = torch.empty_like(values, device="cpu", pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def tolist(self) -> list[float]:
        if self._host is None:
            return torch.stack([*self._known, *self._rest(), *self._more]).tolist()
        self._arrived.synchronize()
        return self._host.tolist()


def added(total: list[Tensor], loss_sum: Tensor, count: Tensor) -> list[Tensor]:
    """A step's [loss sum, count] with those of one more micro-batch."""
    loss_sum = loss_sum.detach()
    return [total[0] + loss_sum, total[1] + count] if total else [loss_sum, count]


def build_step(
    spec: TrainSpec,
    model: Model,
    optimizer: Optimizer,
    strategy: Strategy,
    recording: bool,
    taps: bool = False,
) -> Callable[[Any, Any, int], StepResult]:
    """step(batch, scalars, number) -> StepResult; changes the model and the optimizer in place."""
    return Step(spec, model, optimizer, strategy, recording, taps)


@torch.no_grad()
def _penalized(
    loss: LossBase,
    model: Model,
    weights: list[Tensor],
    loss_sum: Tensor,
    count: Tensor,
    gradients: list[Tensor],
    strategy: Strategy,
) -> tuple[Tensor, list[Tensor]]:
    """The global loss sum and the mean gradients with the loss's penalties on the weights."""
    penalized, size = list(gradients), torch.zeros_like(loss_sum)
    for place, (weight, tensor) in enumerate(zip(weights, model.parameters.values(), strict=True)):
        if loss.penalize == "all" or len(tensor.shape) >= 2:
            if strategy.counts(tensor):
                size += loss.l1 * weight.abs().sum() + loss.l2 * weight.square().sum()
            penalized[place] = gradients[place] + loss.l1 * weight.sign() + 2 * loss.l2 * weight
    return loss_sum + count * strategy.sum_shards([size])[0], penalized


@torch.no_grad()
def evaluate(
    spec: TrainSpec, model: Model, strategy: Strategy, batch: Any, probe: Any = None
) -> tuple[float, float, int]:
    """(loss sum, count, correct) over a batch distributed to the replicas, in inference mode.

    probe: sees it, where one is given.
    """
    inputs, targets, ids = batch
    weights = [local(tensor.live) for tensor in model.parameters.values()]
    context = model.context(False, inputs, ids.to(inputs.device))
    if probe is not None:
        context = probe.opened(context, inputs)
    outputs = model(inputs, context)
    loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
    if probe is not None:
        probe.lost(loss_sum, count)
    correct = losses.correct(spec.loss, outputs, targets, context)
    loss_sum, count, correct = strategy.sum([loss_sum, count, correct])
    if spec.loss.l1 or spec.loss.l2:
        loss_sum, _ = _penalized(spec.loss, model, weights, loss_sum, count, weights, strategy)
    strategy.reshard(model)
    return float(loss_sum), float(count), int(correct)
