"""What a recorder sees of a model's layers: fingerprints of their outputs. `parity.common.record.script_taps` says of what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parity.common.external.process.pass_result import tap_name, tensors_in
from parity.common.record import taps
from parity.common.record.script import chosen_layers
from parity.torch_impl.external import names
from parity.torch_impl.external.calling import is_tensor
from parity.torch_impl.private_names import DTensor


class LayerTaps:
    """Watches the layers of a model, in passes that are differentiated, while it is open."""

    def __init__(self, model: nn.Module, wanted: bool | Sequence[str]) -> None:
        """Begin to watch. wanted: the names of layers, or all.

        Raises:
            RecordError: there is no layer of such a name.
        """
        self._open = False
        self._counts: dict[str, int] = {}
        self._fingerprints: dict[str, Tensor] = {}
        self._vector: Tensor | None = None
        layers = names.layers(model)
        self._hooks = [model.register_forward_pre_hook(lambda module, args: self.end_pass())]
        for path in chosen_layers(list(layers), wanted):
            hook = self._seeing(path)
            self._hooks.append(layers[path].register_forward_hook(hook))

    def open(self, wanted: bool) -> None:
        """A step begins. wanted: whether it is tapped."""
        self._open = wanted
        self._counts.clear()
        self._fingerprints.clear()

    def table(self) -> dict[str, Tensor]:
        """[3] by layer, in the order in which the outputs were computed."""
        return dict(self._fingerprints)

    def end_pass(self) -> None:
        """A micro-batch is over: further calls of a layer are of the next one."""
        self._counts.clear()

    def close(self) -> None:
        """Watch no further."""
        for hook in self._hooks:
            hook.remove()

    def _seeing(self, path: str) -> Any:
        def see(module: nn.Module, args: Any, output: Any) -> None:
            # Passes that only evaluate are no part of a step.
            if not self._open or not torch.is_grad_enabled():
                return
            number = self._counts[path] = self._counts.get(path, -1) + 1
            leaves = list(tensors_in(output, is_tensor).values())
            for k, tensor in enumerate(leaves):
                if tensor.is_floating_point() and tensor.dim() and not isinstance(tensor, DTensor):
                    name = tap_name(path, number, k if len(leaves) > 1 else None)
                    fingerprint = self._fingerprint(tensor.detach())
                    self._fingerprints[name] = (
                        self._fingerprints[name] + fingerprint if name in self._fingerprints else fingerprint
                    )

        return see

    @torch.no_grad()
    def _fingerprint(self, values: Tensor) -> Tensor:
        wide = values.double()
        total = wide.sum(0)
        vector = self._vector_of(total.numel(), total.device)
        moved = total.movedim(0, -1).flatten() @ vector if total.dim() > 1 else wide.new_tensor(math.nan)
        return torch.stack([wide.square().sum(), total.flatten() @ vector, moved])

    def _vector_of(self, size: int, device: torch.device) -> Tensor:
        if self._vector is None or len(self._vector) < size:
            self._vector = torch.from_numpy(taps.script_vector(size)).to(device)
        return self._vector[:size]
