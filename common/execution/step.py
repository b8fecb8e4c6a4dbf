"""What both frameworks' training steps share, and what their phases hand on: local gradients -> reduced -> result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from parity.common.data.plan import BatchPlan
from parity.common.execution import hooks
from parity.common.execution.pass_context import Context
from parity.common.spec import TrainSpec


class LocalGradients(NamedTuple):
    """What a replica's passes leave: gradients of its loss sum (times the loss scale), that sum, and its count.

    gradients: in PyTorch as the backward passes left them, which may have reduced them. pending_sums: in PyTorch waits
    for the sums over the replicas of loss sum, count and `Step.fingerprint`, which `Step._passes` has begun. tapped: in
    TensorFlow the fingerprints of the activations, where the step is tapped.
    """

    gradients: list[Any]
    loss_sum: Any
    count: Any
    pending_sums: Any = ()
    tapped: Any = ()


class Reduced(NamedTuple):
    """A step's gradients, loss sum and count, all global.

    gradients: in PyTorch this rank's parts, in pieces as of `Optimizer.join`. compared: what replicas are compared by:
    its sum over all, and this replica's. finite: whether all gradients are. taps: as of `StepResult`; in TensorFlow
    of this replica.
    """

    gradients: list[Any]
    loss_sum: Any
    count: Any
    compared: list[Any]
    finite: Any = True
    taps: Any = ()


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global. Then, by which replicas are
        compared: in TensorFlow fingerprints of several local ones after the step; of several processes the sum of
        `Step.fingerprint` over all replicas, and this process's own.
    ids: the sample ids of each replica that this process speaks for.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    updated: whether the weights were updated; float16 skips a step whose gradients overflowed.
    taps: of each of these replicas, [names, 2]; empty where nothing is tapped.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]
    updated: Any = True
    taps: Any = ()


class StepBase(ABC):
    """What a step is made of, and its forward pass.

    losses: the side's module. step_taps: its class of what is tapped; `taps` is None where nothing is.
    """

    losses: Any
    step_taps: Any

    def __init__(
        self,
        spec: TrainSpec,
        model: Any,
        optimizer: Any,
        strategy: Any,
        recording: bool,
        taps: bool = False,
    ) -> None:
        self.spec, self.model, self.optimizer, self.strategy = spec, model, optimizer, strategy
        self.plan = BatchPlan.of(spec, strategy.placement)
        self.recording = recording
        self.taps = self.step_taps(spec, model, strategy) if taps else None
        self.prepare()
        hooks.attach(self)

    @abstractmethod
    def prepare(self) -> None:
        """Make what steps need besides, once."""

    def pass_forward(self, batch: Any, number: Any) -> tuple[Any, Any]:
        """Of one micro-batch the sum and the count of its losses, differentiable."""
        inputs, targets, ids = batch
        context = self.context(inputs, ids, number)
        return self.loss(self.forward(inputs, context), targets, context)

    def context(self, inputs: Any, ids: Any, number: Any = None) -> Context:
        """What the layers may know of a pass; without the number of a step it is one in inference mode."""
        if number is None:
            found: Context = self.model.context(False, inputs, ids)
            return found
        found = self.model.context(True, inputs, ids, number)
        return found if self.taps is None else self.taps.opened(found)

    def forward(self, inputs: Any, context: Context) -> Any:
        """The model's outputs."""
        return self.model(inputs, context)

    def loss(self, outputs: Any, targets: Any, context: Context) -> tuple[Any, Any]:
        """Sum and count of the losses of this replica's samples."""
        found: tuple[Any, Any] = self.losses.loss_sum_and_count(self.spec.loss, outputs, targets, context)
        return found
