"""Both models trained here, on one replica, step by step in their workers: for those that no spec describes.

Gradients are the models' own, updates are made by the formulas of `parity.common.reference`, of each side by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.pairs.bench import Bench, frozen_apart, taken
from parity.common.external.pairs.request import PairRequest
from parity.common.external.pairs.setup import losses_of
from parity.common.external.pairs.updates import slots_of, updated
from parity.common.external.process.layouts import to_torch_input
from parity.common.external.process.objective import BatchLoss
from parity.common.external.process.pass_result import Arrays, PassResult
from parity.common.parity.budget import FLOAT64
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.zero_gradient import measured_zero_gradients


@dataclass(frozen=True)
class Trained:
    """loss: the largest deviation of a step's loss. state: of a tensor after the last. steps: how many."""

    steps: int
    loss: float
    state: float

    @property
    def agrees(self) -> bool:
        return self.loss <= FLOAT64["loss_sum"] and self.state <= FLOAT64["final"]


def train_here(bench: Bench, asked: PairRequest, optimizer: OptimizerBase) -> Trained:
    """Train both in float64, the same samples in the file's order; their weights are left as trained.

    Raises:
        ExternalModelError: a pass failed, or its loss is not finite.
    """
    ours = bench.keras.read()
    trained = {info.name for info in bench.outlines[0].tensors if info.trainable and info.tied_to is None}
    trained -= frozen_apart(bench).keys()
    names = [name for pair in bench.mapping.tensors for name in pair.keras if pair.torch and name in trained]
    states: list[Arrays] = [{name: ours[name] for name in names} for _ in range(2)]
    slots = [slots_of(optimizer, state) for state in states]
    null: dict[str, str] = {}
    worst = 0.0
    for step in range(asked.steps):
        samples = asked.data.rows(step * asked.global_batch, asked.global_batch)
        passes = _passes(bench, samples.inputs, losses_of(asked, bench.outlines, samples), step)
        losses = [np.array(passed.loss_sum) for passed in passes]
        if not np.isfinite(losses[0]):
            raise ExternalModelError(f"{bench.keras.target}: the loss of step {step} is {float(losses[0])}")
        worst = max(worst, tensor_deviation(losses[0], losses[1]))
        gradients = [passes[0].gradients, bench.mapping.gradients_to_keras(passes[1].gradients)]
        null = null or measured_zero_gradients(gradients[0])
        for side in range(2):
            states[side], slots[side] = updated(optimizer, step, states[side], gradients[side], slots[side])
        bench.keras.write(states[0])
        bench.torch.write(bench.mapping.to_torch(states[1], partial=True))
    off = max(
        (tensor_deviation(states[0][name], states[1][name]) for name in names if name not in null),
        default=0.0,
    )
    return Trained(asked.steps, worst, off)


def _passes(bench: Bench, inputs: Arrays, losses: tuple[BatchLoss, BatchLoss], step: int) -> list[PassResult]:
    """Of Keras and of torch, in the layouts and types of the batch that they were opened with."""
    found = []
    for (side, _, form), loss in zip(bench.sides, losses, strict=True):
        given = {}
        for name, array in inputs.items():
            like, first = form[name], bench.inputs[0][name]
            moved = array if like.shape[1:] == first.shape[1:] else to_torch_input(array)
            given[name] = moved.astype(like.dtype)
        found.append(taken(side, given, loss, training=True, taps=False, keep=True, seed=step))
    return found
