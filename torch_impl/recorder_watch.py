"""What a recorder sees of a model and its optimizer for the checks that every script is put to. See `ScriptChecks`."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DistributedSampler

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
        # Of modules that the model holds and does not own: tensors by name, and what they were.
        self._hidden: dict[str, tuple[Tensor, Tensor]] = {}
        self._hidden_fed: set[str] = set()
        self._still: list[
            tuple[Tensor, Tensor]
        ] = []  # of the optimizer, without requires_grad, as before the update
        self._dragged: str | None = None
        self._outside = False
        self._was: Tensor | None = None  # the probe, as the last update has left it
        self._probe: Tensor | None = None
        self._hook: Any = None
        # Whether a backward pass since the last update found the probe's gradient zero; None: there was no pass.
        self._clean: bool | None = None
        self._left: Tensor | None = None  # what such a pass found
        self._zeroed: bool | None = None
        self._training: bool | None = None

    def before_update(self) -> None:
        """The gradients are there, the parameters are not updated yet."""
        self._training = self._model.training if self.has_modes else None
        # A script may put other gradients in the place of what a pass has added up.
        given = self._clean is False and self._probe is not None and self._probe.grad is not self._left
        self._zeroed = None if given else self._clean
        if not self._updates:
            self._hidden = {name: (t, t.detach().clone()) for name, t in _hidden(self._model)}
        if self._updates < SEVERAL:
            self._hidden_fed |= {name for name, (t, _) in self._hidden.items() if t.grad is not None}
            self._fed |= {id(tensor) for tensor in self._held() if tensor.grad is not None}
            self._named |= {name for name, t in names.trained(self._model).items() if t.grad is not None}
        held = self._held()
        if not all(tensor.requires_grad for tensor in held):
            still = sorted((t for t in held if not t.requires_grad), key=Tensor.numel)[:SEVERAL]
            self._still = [(tensor, tensor.detach().clone()) for tensor in still]
        self._outside = (
            self._was is not None
            and self._probe is not None
            and not self._waits()
            and not torch.equal(self._was, self._probe)
        )
        self._was = None
        self._updates += 1
        if self._probe is None and self._updates <= SEVERAL:
            self._choose()

    def after_update(self) -> None:
        """The parameters are updated."""
        moved = next((tensor for tensor, was in self._still if not torch.equal(tensor, was)), None)
        if moved is not None:
            named = names.tensors(self._model).items()
            self._dragged = next((name for name, tensor in named if tensor is moved), "a tensor")
        self._still.clear()
        if self._probe is not None:
            self._was = self._probe.detach().clone()
        self._clean = self._left = None

    def seen(self) -> Seen:
        """What was seen of the step that ends."""
        looks, self._step = is_tapped(self._step, None), self._step + 1
        zeroed, training, self._zeroed, self._training = self._zeroed, self._training, None, None
        dragged, outside, self._dragged, self._outside = self._dragged, self._outside, None, False
        usual = self._updates != SEVERAL and zeroed is not False and training is not False
        if usual and not (looks or dragged or outside):
            return NOTHING
        tensors = names.tensors(self._model) if looks else {}
        return Seen(
            self.given() if self._updates == SEVERAL else None,
            zeroed,
            training,
            {name: str(tensor.dtype) for name, tensor in tensors.items()} if looks else None,
            next((n for n, was in self._frozen.items() if looks and not torch.equal(was, tensors[n])), None),
            dragged,
            outside,
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
        hidden = [
            name
            for name, (tensor, was) in self._hidden.items()
            if name in self._hidden_fed and id(tensor) not in {*held, *own} and torch.equal(tensor, was)
        ]
        unfed = [name for name, t in trained.items() if id(t) in {*held} - self._fed]
        return Given(min(self._updates, SEVERAL), len(held), starved, fed, left_out, hidden, unfed)

    def shuffles(self) -> bool:
        """Whether a DistributedSampler shuffles, and was told of no epoch but the first."""
        # Not by isinstance, which asks what a proxy stands for.
        samplers = [each for each in gc.get_objects() if issubclass(type(each), DistributedSampler)]
        return any(sampler.shuffle and not sampler.epoch for sampler in samplers)

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

    def _waits(self) -> bool:
        """Whether looking at the probe would wait for a device, at a step that is not looked at."""
        return (
            self._probe is not None and self._probe.device.type != "cpu" and not is_tapped(self._step, None)
        )

    @torch.no_grad()
    def _begins(self, gradient: Tensor) -> None:
        """A backward pass is about to add to the probe's gradient."""
        assert self._probe is not None
        before = self._probe.grad
        if not self._clean:
            self._clean = before is None or self._waits() or not bool(before.any())
            self._left = before


def _hidden(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The trainable tensors of modules in plain lists and dicts of a model, which it does not know as its own."""
    own = {id(tensor) for tensor in model.parameters()}
    for path, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute in ("_parameters", "_buffers", "_modules") or not isinstance(
                value, list | tuple | dict
            ):
                continue
            for place, each in value.items() if isinstance(value, dict) else enumerate(value):
                tensors = each.named_parameters() if isinstance(each, nn.Module) else [("", each)]
                for name, tensor in tensors:
                    if isinstance(tensor, nn.Parameter) and tensor.requires_grad and id(tensor) not in own:
                        yield (
                            f"{path}{'.' if path else ''}{attribute}[{place!r}]{'.' if name else ''}{name}",
                            tensor,
                        )


def _has_modes(module: nn.Module) -> bool:
    """Whether a module acts otherwise in training than in evaluation."""
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.track_running_stats
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    return isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0
