"""A user's own model as the model of a run: its module, called with canonical inputs, with its tensors by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parity.common.base.errors import ExternalModelError
from parity.common.data.sources import first_inputs
from parity.common.execution.pass_context import Context
from parity.common.execution.processes.user_errors import blame
from parity.common.external.process.objective import batch_of, batch_sums, evaluated, step_of
from parity.common.external.process.pass_result import tensors_in
from parity.common.external.process.resolve import prepare_import_path
from parity.common.spec import TrainSpec
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import ImportedLoss
from parity.common.state.imported import PROBED, chosen, drawing, forget_object, one_input, probed_shape
from parity.torch_impl import losses
from parity.torch_impl.external import dropout, load, names, own_loss, own_step
from parity.torch_impl.external.calling import call_with, is_tensor
from parity.torch_impl.external.exact import EXACT
from parity.torch_impl.layers.registry import Contextual


class ImportedModel(Contextual):
    """outputs = model(inputs, context), both canonical, whatever layout the user's module has.

    It adds nothing to what the user's module computes, but that an empty batch does not reach it, and that every
    trained tensor has a gradient: zero where the outputs do not depend on it.
    """

    # It has no place in a tree of layers.
    layers = ()

    def __init__(self, model: nn.Module, target: Target, spec: TrainSpec) -> None:
        super().__init__()
        self.model, self.target, self.layer = model, target, spec.model.imported
        self._shape = spec.model.output_shape()
        self._first_in = self.layer.torch_layout == "channels_first"
        self._first_out = (self.layer.torch_output_layout or self.layer.torch_layout) == "channels_first"
        self.own_loss = spec.loss if isinstance(spec.loss, ImportedLoss) else None
        self._global_batch = spec.global_batch_size
        self._training: bool | None = None
        # Where the trained tensors are that the outputs do not depend on: found again, since sharding replaces them.
        self.unused: list[tuple[nn.Module, str]] = []

    def forward(self, inputs: Tensor, context: Context) -> Tensor:
        """Outputs (batch, ...) of inputs (batch, ...)."""
        if len(inputs) == 0:
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            return _Tied.apply(trained[0].new_zeros(0, *self._shape), *trained)
        if self._training != context.training:
            self._training = context.training
            self.model.train(context.training)
        outputs = self.outputs(inputs, context)
        if not self.unused:
            return outputs
        return _Tied.apply(outputs, *(getattr(owner, attribute) for owner, attribute in self.unused))

    def outputs(self, inputs: Tensor, context: Context) -> Tensor:
        """What the user's module makes of canonical inputs, in canonical layout; of rows its losses, where it gives these.

        Raises:
            ExternalModelError: it failed, or gives several tensors and none was chosen.
        """
        exact = load.in_float64 if self.layer.constants != "stock" else nullcontext
        keyed: Any = nullcontext()
        if self.layer.stochastic == "keyed":
            keyed = dropout.keyed(self.model, self.layer.torch_dropout, context)
        try:
            with exact(), keyed:
                if self.own_loss is not None:
                    return self._shares(inputs, self.own_loss)
                result = self.model(inputs.movedim(-1, 1) if self._first_in else inputs)
        except Exception as error:
            raise blame(error, str(self.target)) from None
        output = chosen(tensors_in(result, is_tensor), self.layer.torch_output, "torch_output", self.target)
        output = output.movedim(1, -1) if self._first_out and output.dim() > 2 else output
        # Of one number a sample a model may give no axis.
        long = [[size for size in shape if size != 1] for shape in (output.shape[1:], self._shape)]
        return output.reshape(len(output), *self._shape) if long[0] == long[1] else output

    def _shares(self, rows: Tensor, loss: ImportedLoss) -> Tensor:
        """(batch, 2): of each sample its share of the loss sum, and of what the mean divides by."""
        parts: dict[str, dict[str, Tensor]] = {"input": {}, "target": {}, "weights": {}}
        columns = rows.split([array.width for array in loss.arrays], dim=1)
        for array, part in zip(loss.arrays, columns, strict=True):
            part = part.reshape(len(rows), *array.keras.shape)
            part = part.movedim(-1, 1) if array.torch.channels_first else part
            part = part.reshape(len(rows), *array.torch.shape).contiguous()
            parts[array.role][array.name] = part.long() if array.torch.integer else part
        weights, step = next(iter(parts["weights"].values()), None), step_of(loss.torch)
        if step is None:
            given = call_with(self.model, parts["input"])
        else:
            given = {
                "loss": own_step.loss(step, self.model, batch_of(parts["input"], parts["target"], weights))
            }
        outputs = tensors_in(given, is_tensor)
        total, count, _ = evaluated(
            loss.torch, given, outputs, parts["target"], weights, losses=losses, own_loss=own_loss
        )
        samples = rows.new_tensor(len(rows))
        weight = samples if weights is None else weights.sum()
        sums = batch_sums(loss, total, count, samples, weight, self._global_batch)
        return (torch.stack([torch.as_tensor(each, dtype=rows.dtype) for each in sums]) / samples).expand(
            len(rows), 2
        )

    def tensors(self) -> dict[str, tuple[nn.Module, str, bool]]:
        """Of every tensor that the spec names: the module that owns it, the attribute, whether it is trained.

        Raises:
            ExternalModelError: the model has other tensors than the spec says.
        """
        live = names.tensors(self.model)
        named = {tensor.name for tensor in self.layer.torch_tensors}
        ours = {id(live[name]) for name in named & live.keys()}
        for name, tensor in live.items():
            if isinstance(tensor, nn.Parameter) and name not in named and id(tensor) not in ours:
                raise ExternalModelError(
                    f"{self.target} has a parameter {name!r} that the spec's torch_tensors lack"
                )
        found = {}
        # By its name even where a model calls a module 'parameters'.
        modules = dict(self.model.named_modules(remove_duplicate=False))
        for tensor in self.layer.torch_tensors:
            if tensor.name not in live:
                raise ExternalModelError(
                    f"{self.target} has no tensor {tensor.name!r}, which the spec's torch_tensors name"
                )
            shape = tuple(live[tensor.name].shape)
            if shape != tensor.shape:
                raise ExternalModelError(
                    f"{self.target}: {tensor.name} is of shape {shape}, the spec says {tensor.shape}"
                )
            path, _, attribute = tensor.name.rpartition(".")
            found[tensor.name] = modules[path], attribute, tensor.trainable
        return found


class _Tied(torch.autograd.Function):
    """Outputs as they are; its backward pass gives some tensors a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, *unused: Tensor) -> Tensor:
        ctx.save_for_backward(*unused)
        return outputs.view_as(outputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return gradient, *map(torch.zeros_like, ctx.saved_tensors)


def build(spec: TrainSpec) -> ImportedModel:
    """The user's model of a resolved spec, on the CPU, in the spec's precision, its values still its own.

    Raises:
        ExternalModelError: it cannot be imported or built, does not take the spec's inputs, or is another than the spec
            describes.
    """
    layer = spec.model.imported
    target = Target.of(layer.torch, layer.torch_arguments)
    prepare_import_path(Path.cwd(), "torch")
    forget_object(target, nn.Module)
    exact = layer.constants == "exact_from_build"
    EXACT.biased_variances = layer.running_variance == "biased"
    made = load.build(target, spec.master_dtype, spec.seed, exact)
    root = ImportedModel(made, target, spec)
    for name, module in names.layers(made).items():
        for rate in _rates(module, layer.stochastic == "keyed"):
            drawing(layer, target, name, rate, getattr(module, rate))
            setattr(module, rate, 0.0)
    inputs = torch.from_numpy(first_inputs(spec, PROBED))
    with _forgetting(made):
        _try(root, spec, inputs)
    for owner, attribute, trained in root.tensors().values():
        tensor = getattr(owner, attribute)
        if isinstance(tensor, nn.Parameter):
            tensor.requires_grad_(trained)
        elif trained:
            raise ExternalModelError(
                f"{target}: {attribute} is a buffer, and the spec's torch_tensors train it"
            )
    with _forgetting(made):
        root.unused = _unused(root, spec, inputs)
    return root


@contextmanager
def _forgetting(model: nn.Module) -> Iterator[None]:
    """After it modules hold again what they held, where their code has kept tensors: tables made of weights that were not yet the spec's, a state."""
    held = [
        (module, {n: v for n, v in vars(module).items() if v is None or isinstance(v, int | float | Tensor)})
        for module in model.modules()
    ]
    yield
    for module, before in held:
        now = vars(module)
        if any(
            isinstance(now.get(name), Tensor) and now[name] is not value for name, value in before.items()
        ):
            # Not what has become a module or a parameter of its own.
            now.update({n: v for n, v in before.items() if n in now and n != "training"})


def _rates(module: nn.Module, keyed: bool) -> list[str]:
    """The attributes by which a module drops a part of what it computes in training, where it is given no masks."""
    kinds: dict[type, str] = {nn.RNNBase: "dropout", nn.AlphaDropout: "p", nn.FeatureAlphaDropout: "p"}
    if not keyed:
        kinds |= {nn.modules.dropout._DropoutNd: "p", nn.MultiheadAttention: "dropout"}
    return [name for kind, name in kinds.items() if isinstance(module, kind) and getattr(module, name)]


def _context(spec: TrainSpec, training: bool) -> Context:
    return Context(training, spec.seed, sample_ids=torch.arange(PROBED))


def _try(root: ImportedModel, spec: TrainSpec, inputs: Tensor) -> None:
    """Call it once: lazy layers get their tensors, and what it gives must be what the spec says."""
    if root.own_loss is None:
        one_input(root.model.forward, (), root.target)
    root.model.eval()
    with torch.no_grad():
        outputs = root.outputs(inputs, _context(spec, training=False))
    probed_shape(tuple(outputs.shape), spec, root.target)


def _unused(root: ImportedModel, spec: TrainSpec, inputs: Tensor) -> list[tuple[nn.Module, str]]:
    """Where the trained tensors are that get no gradient from a pass in training."""
    kept = {name: tensor.detach().clone() for name, tensor in root.model.named_buffers()}
    root.model.train()
    outputs = root.outputs(inputs, _context(spec, training=True))
    found = {
        name: (owner, attribute) for name, (owner, attribute, trained) in root.tensors().items() if trained
    }
    if not outputs.requires_grad:
        raise ExternalModelError(
            f"{root.target}: its output depends on no trained tensor, so nothing would be trained"
        )
    live = [getattr(owner, attribute) for owner, attribute in found.values()]
    gradients = torch.autograd.grad(outputs.sum(), live, allow_unused=True)
    with torch.no_grad():
        for name, tensor in root.model.named_buffers():
            if name in kept:
                tensor.copy_(kept[name])
    return [place for place, gradient in zip(found.values(), gradients, strict=True) if gradient is None]
