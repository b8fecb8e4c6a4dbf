"""ModelSpec -> model whose tensors are found by canonical name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parity.common.execution.pass_context import Context
from parity.common.spec import Node, Placement, TrainSpec
from parity.common.state.canonical import canonical_name, parameter_specs
from parity.common.state.imported import state_adapter_of
from parity.torch_impl.layers import build_layer, imported
from parity.torch_impl.layers.products import low_of, set_low
from parity.torch_impl.native.layouts import NativeState, native_layout
from parity.torch_impl.sharding.tensors import CanonicalTensor
from parity.torch_impl.strategy import Strategy
from parity.torch_impl.strategy.all_reduce import device_of
from parity.torch_impl.strategy.blocks import compile_passes


class Model(NativeState):
    """The module tree with its tensors by canonical name; `module` is what a strategy has wrapped.

    An imported module has tensors, and with them slots, of its own: they go by its own names, until they leave
    this process as canonical state. specs: of `tensors`, by the same names.
    """

    def __init__(self, spec: TrainSpec, placement: Placement) -> None:
        device = device_of(placement)
        self.spec = spec
        # The key of dropout's masks; of stock ones None, which come from PyTorch's generator.
        self.seed = None if "dropout" in spec.stock else spec.seed
        self._exchange = state_adapter_of(spec)
        if self._exchange is None:
            tree = spec.model.tree()
            dtype = getattr(torch, spec.master_dtype)
            self.module = build_layer(tree).to(device=device, dtype=dtype)
            set_low(self.module, low_of(spec, device != "cpu"))
            self.specs, self.tensors = parameter_specs(spec), tensors_of(tree, self.module)
        else:
            self.module = imported.build(spec).to(device)
            self.specs = self._exchange.specs
            owners = self.module.tensors()
            self.tensors = {
                name: CanonicalTensor(*owners[tensor.name][:2], None) for name, tensor in self.specs.items()
            }

    def __call__(self, inputs: Tensor, context: Context) -> Tensor:
        """Outputs (batch, ...) of canonical inputs (batch, ...)."""
        return self.module(inputs, context=context)

    def context(self, training: bool, inputs: Tensor, sample_ids: Tensor, step: Any = 0) -> Context:
        """What the layers may know of a pass over `inputs`."""
        pad = self.spec.model.pad_id
        mask = None if pad is None else inputs != pad
        return Context(training, self.seed, step, sample_ids.to(inputs.device), mask)

    @property
    def parameters(self) -> dict[str, CanonicalTensor]:
        """Trainable tensors by canonical name, in execution order."""
        return {n: t for n, t in self.tensors.items() if n.startswith("parameters/")}


def tensors_of(node: Node, layer: nn.Module) -> dict[str, CanonicalTensor]:
    """The tensors of a node and of everything below it, by canonical name."""
    found = {}
    for tensor in node.parameters:
        attribute, axes = native_layout(node, tensor.name)
        found[canonical_name(node.path, tensor)] = CanonicalTensor(layer, attribute, axes)
    for child, child_layer in zip(node.children, getattr(layer, "layers", ()), strict=True):
        found |= tensors_of(child, child_layer)
    return found


def _compute_low(module: nn.Module, precision: str, device: str) -> None:
    """Have a module called under `torch.autocast`; it gives float32, which GPUs' losses compute in under autocast, too."""
    dtype = getattr(torch, precision.removeprefix("mixed_"))
    low = torch.autocast(device.partition(":")[0], dtype)(module.forward)
    module.forward = lambda *inputs, **context: low(*inputs, **context).float()


def build_model(spec: TrainSpec, strategy: Strategy) -> Model:
    """The model of a resolved spec on the strategy's replicas, with uninitialised values."""
    model = Model(spec, strategy.placement)
    if "dropout" in spec.stock:
        torch.manual_seed(spec.seed * strategy.placement.processes + strategy.rank)
    if spec.stock_precision is not None:
        _compute_low(model.module, spec.stock_precision, strategy.device)
    compile_passes(strategy.placement, model.module)
    strategy.wrap(model)
    return model
