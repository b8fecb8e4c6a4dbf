"""What a run shows of itself: tensors by canonical name, fingerprints of them, and the memory they take."""

from __future__ import annotations

import functools
import gc
import resource
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parity.common.execution.pass_context import Context
from parity.common.record import taps
from parity.common.spec import TrainSpec
from parity.common.state.canonical import State, parameter_fingerprint, parameter_specs
from parity.torch_impl.model import Model
from parity.torch_impl.optimizers import Optimizer
from parity.torch_impl.private_names import FakeTensor
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.strategy import Strategy


class StepTaps:
    """The taps of a model's steps; `parity.common.record.taps` says what they are.

    Of an activation: a product of the matrix (samples, features) with a vector, and the norm of each row.
    That is two passes over memory, in the tensor's own type, which within a sample is as accurate as the
    layers' own products; samples are added up in float64. Nothing here waits for the device.
    """

    def __init__(self, spec: TrainSpec, model: Model, strategy: Strategy) -> None:
        layers, tensors = taps.layers_of(spec.model.tree()), list(model.parameters.values())
        self.names = taps.names_of(spec, strategy.placement)
        self._strategy, self._dtype = strategy, getattr(torch, spec.master_dtype)
        self._shapes = {layer.path: layer.output_shape for layer in layers}
        self._forward = {layer.path: place for place, layer in enumerate(layers)}
        watched = [layer.path for layer in layers if layer.differentiable]
        self._backward = {path: len(layers) + place for place, path in enumerate(watched)}
        # By path and order of the axes in memory, which is often another for gradients than for outputs.
        self._vectors: dict[tuple[str, tuple[int, ...] | None], Tensor] = {}
        specs = parameter_specs(spec)
        self._parameter_vectors = [
            tensor.part(self._on_device(taps.vector_of(name.removeprefix("parameters/"), specs[name].shape)))
            for name, tensor in model.parameters.items()
        ]
        self._accumulates = strategy.placement.accumulates
        self._local: list[Any] = []
        if taps.has_local_gradients(strategy.placement):
            self._local = [None] * len(tensors)
            for place, tensor in enumerate(tensors):
                tensor.live.register_hook(functools.partial(self._see_local, place))
        self._tables = torch.from_numpy(taps.sample_tables()).to(strategy.device).unbind()
        self._total: Tensor | None = None
        self._products: list[Any] = []

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device=self._strategy.device, dtype=self._dtype)

    def _sample_weights(self, ids: Tensor) -> Tensor:
        """w of each sample (`parity.common.record.taps`), float64."""
        parts = (
            (ids >> (taps.ID_BITS * part)) & ((1 << taps.ID_BITS) - 1) for part in range(len(self._tables))
        )
        first, *others = (table[part] for table, part in zip(self._tables, parts, strict=True))
        return functools.reduce(torch.mul, others, first)

    def opened(self, context: Context) -> Context:
        """The context of a pass over a micro-batch, tapped."""
        self._close()
        self._weights = self._sample_weights(context.sample_ids)
        self._products = [None] * (len(self._forward) + len(self._backward))
        self._norms = list(self._products)
        return replace(context, taps=self._see)

    def _see(self, path: str, x: Tensor, y: Tensor) -> Tensor:
        if path not in self._forward:
            return y
        if y is x:
            # With a gradient of its own: that of x is also of what else x is used for.
            y = y.view_as(y)
        self._add(self._forward[path], path, y.detach())
        if path in self._backward and y.requires_grad:
            y.register_hook(functools.partial(self._add, self._backward[path], path))
        return y

    def _add(self, place: int, path: str, values: Tensor) -> None:
        order = None
        if not values.is_contiguous():
            # As it lies in memory: the vector is permuted, once, and not the activation.
            order = tuple(sorted(range(1, values.dim()), key=lambda axis: -values.stride(axis)))
            values = values.permute(0, *order)
        vector = self._vector(path, order)
        matrix = values.reshape(len(values), len(vector)).to(self._dtype)
        self._products[place] = torch.mv(matrix, vector)
        self._norms[place] = torch.linalg.vector_norm(matrix, dim=1)

    def _vector(self, path: str, order: tuple[int, ...] | None) -> Tensor:
        if (path, order) not in self._vectors:
            vector = taps.vector_of(path, self._shapes[path])
            if order is not None:
                vector = vector.transpose([axis - 1 for axis in order])
            self._vectors[path, order] = self._on_device(vector.flatten())
        return self._vectors[path, order]

    def _see_local(self, place: int, gradient: Tensor) -> None:
        if not self._products:
            return  # of a pass that is not tapped
        if not self._accumulates:
            # At once: it may be reduced in place.
            self._local[place] = _fingerprint(gradient, self._parameter_vectors[place])
        elif self._local[place] is None:
            self._local[place] = gradient.clone()
        else:
            self._local[place] += gradient

    def _close(self) -> None:
        """Add up the micro-batch that was last opened."""
        if self._products:
            products = torch.stack(self._products).double() @ self._weights
            squares = torch.stack(self._norms).double().square().sum(1)
            total = torch.stack([squares, products], 1)
            self._total = total if self._total is None else self._total + total
            self._products = []

    @torch.no_grad()
    def values(self, local: Any, gradients: list[Tensor], scale: float | None) -> Tensor:
        """[names, 2] of the step that ends, still on the device. Every rank must call it.

        Args:
            local: what the passes have left (`step.LocalGradients`); hooks have seen it already.
            gradients: reduced, in the order of `model.parameters`; this rank's parts of them.
            scale: what the loss was multiplied by before the backward pass; None: by nothing.
        """
        del local
        self._close()
        of_layers, of_parameters = self._total, self._local
        self._total, self._local = None, [None] * len(self._local)
        if self._accumulates:
            of_parameters = list(map(_fingerprint, of_parameters, self._parameter_vectors))
        reduced = _table(list(map(_fingerprint, gradients, self._parameter_vectors)))
        if self._strategy.sharded:
            (reduced,) = self._strategy.sum_shards([reduced])
        forward, backward = of_layers.tensor_split([len(self._forward)])
        of_loss = torch.cat([backward, _table(of_parameters)]) if of_parameters else backward
        if scale is not None and scale != 1:
            of_loss = of_loss / of_loss.new_tensor([scale**2, scale])
        return torch.cat([forward, of_loss, reduced.to(of_loss.device)])


def _fingerprint(gradient: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """The norm of a gradient and its product with a vector, which torch, unlike its BLAS, sums pairwise."""
    product = (gradient * vector.view_as(gradient)).sum()
    return torch.linalg.vector_norm(gradient, dtype=torch.float64), product


def _table(fingerprints: list[tuple[Tensor, Tensor]]) -> Tensor:
    norms, products = zip(*fingerprints, strict=True)
    return torch.stack([torch.stack(norms).square(), torch.stack(products).double()], 1)


def reduced_gradients(model: Model, gradients: list[Any]) -> State:
    """Copies of a step's global gradients, given in the order of `model.parameters`."""
    found: State = {
        name: tensor.to_canonical(tensor.gather(gradient))
        for (name, tensor), gradient in zip(model.parameters.items(), gradients, strict=True)
    }
    return model.canonical_gradients(found)


def parameter_fingerprints(model: Model, strategy: Strategy) -> list[str]:
    """A fingerprint of all parameters, bit for bit, of each replica that this process speaks for.

    Every rank must call it: shards are gathered.
    """
    tensors = list(model.parameters.values())
    wholes = strategy.wholes(tensors)
    arrays = [tensor.to_canonical(whole) for tensor, whole in zip(tensors, wholes, strict=True)]
    return [parameter_fingerprint(arrays)] * len(strategy.recorded_replicas)


def memory(model: Model, optimizer: Optimizer) -> dict[str, int]:
    """Bytes that this rank holds between two steps, measured on the tensors that are really there.

    parameters, slots: storage behind the tensors of each kind. master_weights: of those that are updated
    apart from the parameters that the passes use. live: of all tensors of the process.
    peak_resident: the most memory that the process has had since it began.
    """
    parameters = [part for tensor in model.parameters.values() for part in tensor.held]
    apart = [tensor.live for tensor in model.parameters.values() if tensor.held[0] is not tensor.live]
    slots = [part for parts in optimizer.slots.values() for part in parts.values()]
    gc.collect()
    # Not isinstance: that would wake lazy objects of foreign packages. What a compiler imagined is not there.
    kinds = ((thing, type(thing)) for thing in gc.get_objects())
    tensors = [thing for thing, k in kinds if issubclass(k, Tensor) and not issubclass(k, FakeTensor)]
    return {
        "parameters": _stored(parameters),
        "slots": _stored(slots),
        "master_weights": _stored(apart),
        "live": _stored(tensors),
        "peak_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


@torch.no_grad()
def _stored(tensors: list[Tensor]) -> int:
    """Bytes of the distinct storages behind some tensors, each counted once."""
    parts = [local(tensor) for tensor in tensors]
    storages = {part.untyped_storage()._cdata: part.untyped_storage().nbytes() for part in parts}
    # A compiler's tensors may have sizes that are symbols.
    return sum(size for size in storages.values() if isinstance(size, int))
