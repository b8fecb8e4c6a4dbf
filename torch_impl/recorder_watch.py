"""What a recorder sees of a model and its optimizer for the checks that every script is put to. See `ScriptChecks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from parity.common.record.script_checks import NOTHING, SEVERAL, Given, Seen, Watch, frozen_names
from parity.common.record.script_taps import is_tapped
from parity.torch_impl.external import names


class ModelWatch(Watch):
    """Looks on; nothing that is trained is changed. `before_update` and `after_update` are called around each update."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer | None, frozen: Sequence[str]
    ) -> None:
        """Begin.

        Args:
            model: itself, not a wrapper.
            optimizer: its own, if it has one.
            frozen: names of tensors, or what they begin with, that must stay as they are.

        Raises:
            RecordError: the model has no tensor of such a name.
        """
        self._model, self._optimizer = model, optimizer
        self.has_modes = any(map(_has_modes, model.modules()))
        tensors = names.tensors(model)
        self._frozen = {name: tensors[name].detach().clone() for name in frozen_names(tensors, frozen)}
        self._step = 0
        # Of the first updates: how many there were, and whose gradients, by identity and by name.
        self._updates, self._fed, self._named = 0, set[int](), set[str]()
        self._probe: Tensor | None = None
        self._hook: Any = None
        # Whether a backward pass since the last update found the probe's gradient zero; None: there was no pass.
        self._clean: bool | None = None
        self._zeroed: bool | None = None
        self._training: bool | None = None

    def before_update(self) -> None:
        """The gradients are there, the parameters are not updated yet."""
        self._training = self._model.training if self.has_modes else None
        self._zeroed = self._clean
        if self._updates < SEVERAL:
            self._fed |= {id(tensor) for tensor in self._held() if tensor.grad is not None}
            self._named |= {name for name, t in names.trained(self._model).items() if t.grad is not None}
        self._updates += 1
        if self._probe is None:
            self._choose()

    def after_update(self) -> None:
        """The parameters are updated."""
        self._clean = None

    def seen(self) -> Seen:
        """What was seen of the step that ends."""
        looks, self._step = is_tapped(self._step, None), self._step + 1
        zeroed, training, self._zeroed, self._training = self._zeroed, self._training, None, None
        if not looks and self._updates != SEVERAL and zeroed is not False and training is not False:
            return NOTHING
        tensors = names.tensors(self._model) if looks else {}
        return Seen(
            self.given() if self._updates == SEVERAL else None,
            zeroed,
            training,
            {name: str(tensor.dtype) for name, tensor in tensors.items()} if looks else None,
            next((n for n, was in self._frozen.items() if looks and not torch.equal(was, tensors[n])), None),
        )

    def given(self) -> Given | None:
        """What the optimizer's tensors have been given so far; None without updates."""
        if not self._updates:
            return None
        held = [id(tensor) for tensor in self._held()]
        trained = names.trained(self._model)
        own = {id(tensor) for tensor in trained.values()}
        left_out = [n for n, tensor in trained.items() if n in self._named and id(tensor) not in held]
        starved = sum(each not in own and each not in self._fed for each in held)
        fed = sum(each in self._fed for each in held)
        return Given(min(self._updates, SEVERAL), len(held), starved, fed, left_out)

    def close(self) -> None:
        """Leave the model as it was."""
        if self._hook is not None:
            self._hook.remove()

    def _held(self) -> list[Tensor]:
        groups = [] if self._optimizer is None else self._optimizer.param_groups
        return [tensor for group in groups for tensor in group["params"]]

    def _choose(self) -> None:
        """A small tensor that is trained, at which each backward pass is seen to begin."""
        held = {id(tensor) for tensor in self._held()}
        known = [t for t in names.trained(self._model).values() if id(t) in held and t.grad is not None]
        known = [t for t in known if not isinstance(t, DTensor) and t.grad.layout == torch.strided]
        for tensor in sorted(known, key=Tensor.numel)[:SEVERAL]:
            if bool(tensor.grad.any()):
                self._probe = tensor
                self._hook = tensor.register_hook(self._begins)
                return

    @torch.no_grad()
    def _begins(self, gradient: Tensor) -> None:
        """A backward pass is about to add to the probe's gradient."""
        assert self._probe is not None
        before = self._probe.grad
        # On a device the answer must be waited for.
        waits = before is not None and before.device.type != "cpu" and not is_tapped(self._step, None)
        if not self._clean:
            self._clean = waits or before is None or not bool(before.any())


def _has_modes(module: nn.Module) -> bool:
    """Whether a module acts otherwise in training than in evaluation."""
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.track_running_stats
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    return isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0
