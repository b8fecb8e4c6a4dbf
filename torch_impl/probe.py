"""The probe: in one step it keeps every tensor that `parity.common.record.trace` names, and injects those it is given.

It hooks the parts of the step (`parity.common.execution.hooks`): each gives what the run itself has made there, or
the tensor that is injected in its place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from parity.common.execution.hooks import Hook, Hooks, attached
from parity.common.execution.pass_context import Context
from parity.common.execution.step import Reduced, StepResult
from parity.common.record import taps
from parity.common.record.trace import SAMPLES
from parity.common.state.canonical import State
from parity.torch_impl.sharding.tensors import CanonicalTensor
from parity.torch_impl.step import Step

# As a batch has them.
_BATCH = ("inputs", "targets", "ids")


class Probe:
    """Takes steps and evaluations of a run, and tells what was seen in them.

    step: the run's. layers: of each layer's path, the name of the tensor that was its input in what was seen last. injects: not needed
    here; TensorFlow's twin has smaller graphs without.
    """

    injects = True

    def __init__(self, step: Step) -> None:
        self._step = step
        self._differentiable = {x.path: x.differentiable for x in taps.layers_of(step.spec.model.tree())}
        hooks_see = taps.has_local_gradients(step.strategy.placement)
        self._hooked: dict[str, CanonicalTensor] = step.model.parameters if hooks_see else {}
        self.layers: dict[str, str] = {}

    def traced(
        self, batch: Any, scalars: dict[str, float], number: int, injected: list[State]
    ) -> tuple[StepResult, list[State]]:
        """Take a step; what it left behind, and what each local replica saw, named as in `parity.common.record.trace`.

        batch, scalars: the run's own. injected: into each local replica, by name. Every rank must call it. `before/`
        and `after/` are left to the caller.
        """
        (given,) = injected
        own = {f"scalar/{name}": np.array(value, np.float64) for name, value in scalars.items()}
        scalars = {name: float(given.get(f"scalar/{name}", value)) for name, value in scalars.items()}
        look = _Look(self._step, self._differentiable, given, scalars.get("loss_scale", 1.0))
        batch = look.batch(batch)
        with look.at_local_gradients(self._hooked), attached(self._step, look.hooks()):
            result = self._step(batch, scalars, number)
        seen = {**look.kept, **own, **look.layers(), **look.backward()}
        self.layers = look.pieces[0].sources
        look.release()
        return result, [{**seen, "updated": np.array(bool(result.updated))}]

    def taken(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        """Take a step without telling what was seen."""
        return self._step(batch, scalars, number)

    def evaluated(self, batch: Any, injected: list[State]) -> list[State]:
        """Evaluate a batch in inference mode; what each local replica saw."""
        (given,) = injected
        look = _Look(self._step, self._differentiable, given, 1.0)
        batch = look.batch(batch)
        with attached(self._step, look.hooks()):
            self._step.evaluate(batch)
        self.layers, seen = look.pieces[0].sources, {**look.kept, **look.layers()}
        look.release()
        return [seen]


class _Look:
    """What this rank sees in one step, and what is injected there.

    injected: by name. scale: what the loss is multiplied by; divided out of what is kept. kept: by name, all but
    what belongs to layers. pieces: the layers of each micro-batch.
    """

    def __init__(self, step: Step, differentiable: dict[str, bool], injected: State, scale: float) -> None:
        self._parameters, self.differentiable = step.model.parameters, differentiable
        self.injected, self.scale = injected, scale
        self.kept: State = {}
        self.pieces: list[_Piece] = []

    def batch(self, batch: Any) -> Any:
        """Of a batch the one to go on with."""
        own = dict(zip(_BATCH, batch, strict=True))
        self.kept |= {name: _array(own[name]) for name in SAMPLES}
        return tuple(_as_injected(self.injected.get(name), value) for name, value in own.items())

    def hooks(self) -> Hooks:
        """What sees a step or an evaluation while it is made, and goes on with what is injected."""
        return Hooks(
            context=self._context,
            loss=self._loss,
            sum_over_replicas=self._summed,
            divide=self._divided,
            clip=self._clipped,
        )

    def _context(self, step: Step, part: Hook, inputs: Tensor, *rest: Any) -> Context:
        context = part(inputs, *rest)
        first = self.pieces[-1].rows.stop if self.pieces else 0
        self.pieces.append(_Piece(self, slice(first, first + len(inputs)), inputs, context.taps))
        return replace(context, taps=self.pieces[-1])

    def _loss(self, step: Step, part: Hook, *given: Any) -> tuple[Tensor, Tensor]:
        loss_sum, count = part(*given)
        for name, value in (("loss_sum", loss_sum), ("count", count)):
            self.kept[name] = self.kept.get(name, 0) + _array(value)
        return loss_sum, count

    @contextmanager
    def at_local_gradients(self, tensors: dict[str, CanonicalTensor]) -> Iterator[None]:
        """Within it, the backward passes' gradients of some parameters are kept before they are reduced."""
        kept: dict[str, Tensor] = {}

        def see(name: str, gradient: Tensor) -> None:
            # A copy: it may be reduced in place.
            kept[name] = kept[name] + gradient if name in kept else gradient.detach().clone()

        hooks = [t.live.register_hook(functools.partial(see, name)) for name, t in tensors.items()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        for name, tensor in tensors.items():
            gradient = kept.get(name, torch.zeros_like(tensor.live))
            key = name.replace("parameters", "local_gradient", 1)
            self.kept[key] = tensor.to_canonical(gradient) / self.scale

    def _summed(self, step: Step, part: Hook, *given: Any) -> Reduced:
        sums = part(*given)
        loss_sum, count = self._total("loss_sum", sums.loss_sum), self._total("count", sums.count)
        return sums._replace(loss_sum=loss_sum, count=count)

    def _total(self, which: str, value: Tensor) -> Tensor:
        name = f"total/{which}"
        self.kept[name] = _array(value)
        return value.new_tensor(self.injected[name].item()) if name in self.injected else value

    def _divided(self, step: Step, part: Hook, *given: Any) -> Reduced:
        means = part(*given)
        return means._replace(gradients=self._of_parameters(step, "gradient", means.gradients))

    def _clipped(self, step: Step, part: Hook, *given: Any) -> tuple[list[Tensor], Tensor]:
        clipped, norm = part(*given)
        return self._of_parameters(step, "clipped", clipped), norm

    def _of_parameters(self, step: Step, kind: str, pieces: list[Tensor]) -> list[Tensor]:
        """Keep this rank's parts of one tensor of each parameter; those to go on with, in pieces."""
        going_on, parts = [], step.optimizer.apart(pieces)
        for (name, tensor), part in zip(self._parameters.items(), parts, strict=True):
            key = name.replace("parameters", kind, 1)
            self.kept[key] = tensor.to_canonical(tensor.gather(part))
            other = self.injected.get(key)
            going_on.append(part if other is None else tensor.shard(other).to(part).view_as(part))
        return step.optimizer.join(going_on)

    def layers(self) -> State:
        """Outputs, and inputs that are nobody's output."""
        outputs, inputs = ([getattr(p, kind) for p in self.pieces] for kind in ("outputs", "inputs"))
        found = {f"forward/{path}": _rows([each[path] for each in outputs]) for path in outputs[0]}
        return found | {f"input/{path}": _rows([each[path] for each in inputs]) for path in inputs[0]}

    def backward(self) -> State:
        """Gradients with respect to the outputs; zero where nothing depends on one."""
        gradients = {
            f"backward/{path}": _rows([piece.gradient(path) for piece in self.pieces])
            for path in self.pieces[0].outputs
            if self.differentiable[path]
        }
        if self.scale == 1:
            return gradients
        return {name: gradient / self.scale for name, gradient in gradients.items()}

    def release(self) -> None:
        """Let go of the step's tensors: they hold what holds them, where Python cannot see it."""
        for piece in self.pieces:
            piece.release()


class _Piece:
    """The layers of one micro-batch: what a `Context` calls as its taps.

    rows: of the local batch. others: taps that see the same.
    """

    def __init__(self, look: _Look, rows: slice, inputs: Tensor, others: Any) -> None:
        self._look, self.rows, self._others = look, rows, others
        self.outputs: dict[str, Tensor] = {}
        self.inputs: dict[str, Tensor] = {}
        self.sources: dict[str, str] = {}
        self._gradients: dict[str, Tensor] = {}
        # What layers may be given, by name; kept, so that no other takes its place in memory.
        self._known: list[tuple[str, Tensor]] = [("inputs", inputs)]
        self._hooks: list[RemovableHandle] = []

    def __call__(self, path: str, x: Tensor, y: Tensor) -> Tensor:
        if self._others is not None:
            y = self._others(path, x, y)
        if path not in self._look.differentiable:
            return y
        self.outputs[path] = y.detach()
        self._find(path, x)
        going_on = self.again(path, x, y)
        if going_on is y:
            # With a gradient of its own: that of y may also be of what else it is used for.
            going_on = y.view_as(y)
        if going_on.requires_grad:
            self._hooks.append(going_on.register_hook(functools.partial(self._see_gradient, path)))
        self._known.append((f"forward/{path}", going_on))
        return going_on

    def again(self, path: str, x: Tensor, y: Tensor) -> Tensor:
        """The same where a pass is repeated for its backward pass: injected, but not seen twice."""
        del x
        injected = self._injected(f"forward/{path}", y)
        return y if injected is None else _Injected.apply(y, injected)

    def gradient(self, path: str) -> Tensor:
        """With respect to a layer's output, times the loss's scale."""
        found = self._gradients.get(path)
        return torch.zeros_like(self.outputs[path]) if found is None else found

    def release(self) -> None:
        """As that of a look."""
        for hook in self._hooks:
            hook.remove()
        self._known.clear()

    def _injected(self, name: str, own: Tensor) -> Tensor | None:
        injected = self._look.injected.get(name)
        return None if injected is None else _as_injected(injected[self.rows], own)

    def _see_gradient(self, path: str, gradient: Tensor) -> Tensor | None:
        self._gradients[path] = gradient.detach()
        injected = self._injected(f"backward/{path}", gradient)
        return None if injected is None else injected * self._look.scale

    def _find(self, path: str, x: Tensor) -> None:
        """What the layer was given: a tensor known, or else one that lies in the same memory."""
        found = [name for name, known in self._known if known is x]
        found = found or [name for name, known in self._known if _same_memory(known, x)]
        self.sources[path] = found[-1] if found else f"input/{path}"
        if not found:
            self.inputs[path] = x.detach()


class _Injected(torch.autograd.Function):
    """A tensor in the place of another, whose gradient it hands on."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, injected: Tensor) -> Tensor:
        del ctx, own
        return injected.view_as(injected)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        del ctx
        return gradient, None


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.numel() > 0 and a.data_ptr() == b.data_ptr()


def _array(tensor: Tensor) -> np.ndarray:
    """A copy, in a type that NumPy has."""
    return np.array(_seen(tensor))


def _seen(tensor: Tensor) -> np.ndarray:
    """The tensor itself, in a type that NumPy has."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()


def _rows(parts: list[Tensor]) -> np.ndarray:
    """Not copied: nothing changes what layers gave, and holding it costs less than to copy it."""
    return _seen(parts[0] if len(parts) == 1 else torch.cat(parts))


def _as_injected(injected: np.ndarray | None, own: Tensor) -> Tensor:
    """What to go on with: of the type and on the device of the run's own."""
    return (
        own
        if injected is None
        else torch.from_numpy(np.array(injected)).to(device=own.device, dtype=own.dtype)
    )
