"""Faults of clipping, of optimizers and of schedules (12 to 18, 25)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from parity.common import reference
from parity.common.execution.hooks import Hook
from parity.common.reference import schedules
from parity.common.spec.optimizers import SGD, Adam, AdamW
from parity.torch_impl import optimizers, strategy
from parity.torch_impl.optimizers.descent import sgd
from parity_tests.faults.torch_ground import averaged, fault, hook_on_buckets, other_optimizer, other_rule
from parity_tests.helpers.hooks import hooked

CLIP_AT = 2.0  # optimizer.clip_global_norm of the cases that clip


class _Counts:
    """How many samples this rank's losses of the step were summed over."""

    def __init__(self) -> None:
        self.count = torch.zeros(())

    def watching(self) -> Any:
        """A hook of the loss that takes note."""

        def loss(step: Any, part: Hook, outputs: Any, labels: Any, context: Any) -> Any:
            total, count = part(outputs, labels, context)
            if context.training:
                self.count = count
            return total, count

        return hooked(loss=loss)

    def clipped(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Gradients of this rank's loss sum, whose mean has been limited."""
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) / self.count.clamp(min=1)
        return list(torch._foreach_mul(gradients, (CLIP_AT / norm).clamp(max=1)))


def _clip_where(clips: Callable[[torch.Tensor], bool]) -> Any:
    """Clip only where clips(the first piece of the gradients) says so; the norm is computed in any case."""

    def clip(step: Any, part: Hook, reduced: Any) -> Any:
        clipped, norm = part(reduced)
        return clipped if clips(reduced.gradients[0]) else reduced.gradients, norm

    return hooked(clip=clip)


def _clip_nowhere() -> Any:
    return _clip_where(lambda gradient: False)


@fault
def clipped_before_the_buckets_are_reduced() -> Iterator[None]:  # 12
    counts = _Counts()

    def hook_of(module: Any) -> Any:
        del module

        # All of these small models is in one bucket.
        def reduce(_, bucket):
            bucket.buffer().copy_(counts.clipped([bucket.buffer()])[0])
            return averaged(bucket.buffer())

        return reduce

    with counts.watching(), hook_on_buckets(hook_of), _clip_nowhere():
        yield


@fault
def clipped_before_the_reduction() -> Iterator[None]:  # 12
    counts, real = _Counts(), strategy.STRATEGIES["manual"].reduced

    def reduced(self: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        return real(self, counts.clipped(gradients))

    with counts.watching(), patch.object(strategy.STRATEGIES["manual"], "reduced", reduced), _clip_nowhere():
        yield


@fault
def clipped_by_local_norm() -> Iterator[None]:  # 13
    def norms(self: Any, *groups: Any) -> list[torch.Tensor]:
        del self
        return [torch.linalg.vector_norm(torch.stack(torch._foreach_norm(group))) for group in groups]

    with patch.object(strategy.Strategy, "norms", norms):
        yield


@fault
def clipping_silently_off() -> Iterator[None]:  # 14
    with _clip_nowhere():
        yield


@fault
def clipping_off_in_float16() -> Iterator[None]:  # 14: whoever looks at a loss scale first forgets to clip
    with _clip_where(lambda gradient: gradient.dtype != torch.float32):
        yield


@fault
def gradients_not_zeroed() -> Iterator[None]:  # 15: the next backward pass adds to what is there
    kept: list[tuple[Any, Any]] = []

    # ZeroRedundancyOptimizer clears them within the update.
    def update(step: Any, part: Hook, *given: Any) -> Any:
        parameters = [tensor.live for tensor in step.model.parameters.values()]
        kept[:] = [(parameter, parameter.grad) for parameter in parameters]
        return part(*given)

    def read_out(step: Any, part: Hook, *given: Any) -> Any:
        result = part(*given)
        for parameter, gradient in kept:
            parameter.grad = gradient
        return result

    with hooked(update=update, read_out=read_out):
        yield


@fault
def decay_coupled() -> Iterator[None]:  # 16
    with other_optimizer(weight_decay_mode="coupled"):
        yield


@fault
def decay_decoupled() -> Iterator[None]:  # 16, the reverse
    with other_optimizer(weight_decay_mode="decoupled"):
        yield


@fault
def decay_on_biases_and_norms() -> Iterator[None]:  # 16
    with other_optimizer(decay_mask="all"):
        yield


def _other_scalars(change: Any) -> Any:
    """An optimizer that computes with other scalars than the step gave it: change(spec, scalars)."""

    def update(step: Any, part: Hook, clipped: Any, scalars: Any, updated: Any) -> Any:
        return part(clipped, {**scalars, **change(step.optimizer.spec, scalars)}, updated)

    return hooked(update=update)


@fault
def adam_without_bias_correction() -> Iterator[None]:  # 17
    with _other_scalars(lambda _, given: {"step_size": given["learning_rate"], "second_correction": 1.0}):
        yield


def _corrections(spec: Any, given: Any) -> tuple[float, float]:
    """(first, root) of Adam's bias corrections, found from the step size: the optimizer is not told the step."""
    ratio = given["step_size"] * given["second_correction"] / given["learning_rate"]
    for number in range(1, 10_000):
        first, root = 1 - spec.beta_1**number, math.sqrt(1 - spec.beta_2**number)
        if math.isclose(root / first, ratio, rel_tol=1e-12):
            return first, root
    raise AssertionError(f"no step has the step size {given['step_size']}")


@fault
def adam_epsilon_in_the_other_place() -> Iterator[None]:  # 17: inside the correction where outside was meant
    def change(spec: Any, given: Any) -> dict[str, float]:
        first, root = _corrections(spec, given)
        return {"step_size": given["learning_rate"] / first, "second_correction": root}

    with _other_scalars(change):
        yield


@fault
def adam_epsilon_of_the_other_framework() -> Iterator[None]:  # 17
    with other_optimizer(epsilon=1e-8):
        yield


@fault
def adam_epsilon_under_the_root() -> Iterator[None]:  # 17: sqrt(v + eps)
    def rule(given: Any) -> list[torch.Tensor]:
        first, second = optimizers.adam.moments(given)
        root = torch._foreach_sqrt(torch._foreach_add(second, given.spec.epsilon))
        torch._foreach_div_(root, given.scalars["second_correction"])
        return torch._foreach_div(torch._foreach_mul(first, -given.scalars["step_size"]), root)

    with other_rule(Adam, rule), other_rule(AdamW, rule):
        yield


@fault
def momentum_without_nesterov() -> Iterator[None]:  # 18
    with other_optimizer(nesterov=False):
        yield


@fault
def nesterov_short_of_a_momentum_factor() -> Iterator[None]:  # 18: w += v - lr*g
    def rule(given: Any) -> list[torch.Tensor]:
        rate, slot = given.scalars["learning_rate"], given.slots[f"momentum_{given.spec.momentum_form}"]
        torch._foreach_mul_(slot, given.spec.momentum)
        torch._foreach_add_(slot, given.gradients, alpha=-rate)
        return torch._foreach_add(slot, given.gradients, alpha=-rate)

    with other_rule(SGD, rule):
        yield


@fault
def momentum_folds_the_learning_rate() -> Iterator[
    None
]:  # 18: into the buffer, so that a schedule comes late
    def rule(given: Any) -> list[torch.Tensor]:
        slots = {"momentum_velocity": given.slots["momentum_buffer"]}
        spec = given.spec.model_copy(update={"momentum_form": "velocity"})
        return sgd(type(given)(**{**vars(given), "spec": spec, "slots": slots}))

    with other_rule(SGD, rule):
        yield


def _schedule(number_of: Any) -> Any:
    """A schedule that is at another step: number_of(spec, number)."""
    real = reference.StepScalars.scalars
    return patch.object(
        reference.StepScalars, "scalars", lambda self, number: real(self, number_of(self._spec, number))
    )


@fault
def schedule_stepped_per_replica() -> Iterator[None]:  # 25
    with _schedule(lambda _, number: number * dist.get_world_size()):
        yield


MICRO_BATCHES = 3  # of the cases that accumulate where the schedule is at fault


@fault
def schedule_stepped_per_micro_batch() -> Iterator[None]:  # 25
    with _schedule(lambda _, number: number * MICRO_BATCHES):
        yield


@fault
def warm_up_off_by_one() -> Iterator[None]:  # 25
    with _schedule(lambda _, number: number + 1):
        yield


@fault
def learning_rate_off_by_two_percent() -> Iterator[None]:  # none that is recorded
    def change(_: Any, given: Any) -> dict[str, float]:
        return {name: given[name] * 1.02 for name in ("learning_rate", "step_size") if name in given}

    with _other_scalars(change):
        yield


# So small that a study of seeds has to find them.
@fault
def learning_rate_off_by_three_percent() -> Iterator[None]:
    def change(_: Any, given: Any) -> dict[str, float]:
        return {name: given[name] * 1.03 for name in ("learning_rate", "step_size") if name in given}

    with _other_scalars(change):
        yield


@fault
def second_moment_decays_otherwise() -> Iterator[None]:
    def changed(spec: Any) -> Any:
        return spec.model_copy(update={"beta_2": 0.99})

    real = schedules.step_scalars
    scalars = patch.object(schedules, "step_scalars", lambda spec, *rest: real(changed(spec), *rest))
    with scalars, hooked(optimizer=lambda _, part, spec, *rest: part(changed(spec), *rest)):
        yield


@fault
def weight_decay_doubled() -> Iterator[None]:
    def changed(spec: Any) -> Any:
        return spec.model_copy(update={"weight_decay": 2 * spec.weight_decay})

    with hooked(optimizer=lambda _, part, spec, *rest: part(changed(spec), *rest)):
        yield


@fault
def learning_rate_scaled_by_replicas() -> Iterator[
    None
]:  # 25: the linear scaling rule, which the spec has not asked for
    real = reference.StepScalars.rate
    with patch.object(
        reference.StepScalars, "rate", lambda self, number: real(self, number) * dist.get_world_size()
    ):
        yield


@fault
def step_skipped_on_rank_one_only() -> Iterator[None]:
    steps_seen = []

    def finite(step: Any, part: Hook, gradients: Any, scalars: Any) -> bool:
        steps_seen.append(scalars)
        return part(gradients, scalars) and not (len(steps_seen) == 4 and dist.get_rank() == 1)

    with hooked(finite=finite):
        yield
