"""A run's weights as files for PyTorch without this toolkit.

Names and layouts are those of stock modules: a layer at `block/attend` that PyTorch has as nn.Linear gives
`block.attend.weight` and `block.attend.bias`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as checkpoint
from safetensors.torch import save_file

# Each layer registers where it keeps its tensors.
import parity.torch_impl.layers  # noqa: F401
from parity.common.base.files import replacing
from parity.common.checkpoint.weights import Weights, read_weights
from parity.common.spec import Node, layers, walk
from parity.common.spec.layers.attention import AttentionBase
from parity.common.spec.layers.recurrent import RecurrentBase
from parity.common.state.canonical import State, canonical_name
from parity.common.state.imported import refuse_imported
from parity.torch_impl.native.layouts import native_layout

_NAMES = {
    "kernel": "weight",
    "embedding": "weight",
    "alpha": "weight",
    "gamma": "weight",
    "beta": "bias",
    "output_bias": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "depthwise_kernel": "depthwise.weight",
    "pointwise_kernel": "pointwise.weight",
    "bias": "bias",
}
# Where stock modules have both scale and shift or neither: what the missing one is.
# Without the other ranks, if there are any; before 2.6 that was so where no group was made.
_ALONE = {"no_dist": True} if "no_dist" in inspect.signature(checkpoint.save).parameters else {}
_BOTH = (layers.BatchNorm, layers.GroupNorm, layers.InstanceNorm)

Convert = Callable[[Node, State], State]


def export(path: Path, kind: str, out: Path) -> dict[str, Any]:
    """Write the weights of a run or a checkpoint as `kind`: state_dict, safetensors or dcp; returns what was written."""
    weights = read_weights(path)
    refuse_imported(weights.spec, str(path), "'parity export' writes checkpoints of models of one's own")
    tensors = _native_tensors(weights)
    if kind == "dcp":
        # load_state_dict can do without, dcp.load cannot.
        stems = [name.removesuffix("running_var") for name in tensors if name.endswith(".running_var")]
        tensors |= {f"{stem}num_batches_tracked": torch.tensor(weights.step) for stem in stems}
    _write(tensors, kind, out)
    return {
        "step": weights.step,
        "source": str(weights.source),
        "passed_over": weights.passed_over,
        "said": f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors.values())} numbers",
    }


def _write(tensors: dict[str, torch.Tensor], kind: str, out: Path) -> None:
    """Write tensors as `kind`, so that the file or folder is whole or not there."""
    with replacing(out) as temporary:
        if kind == "safetensors":
            save_file(tensors, temporary, metadata={"format": "pt"})
        elif kind == "dcp":
            with warnings.catch_warnings():
                # It says that it saves in one process.
                warnings.simplefilter("ignore", UserWarning)
                checkpoint.save(tensors, checkpoint_id=temporary, **_ALONE)
        else:
            torch.save(tensors, temporary)


def _native_tensors(weights: Weights) -> dict[str, torch.Tensor]:
    """Parameters and buffers by the names and in the layouts of stock modules."""
    found: dict[str, torch.Tensor] = {}
    for node in walk(weights.spec.model.tree()):
        own = {p.name: weights.tensors[canonical_name(node.path, p)] for p in node.parameters}
        if not own:
            continue
        convert: Convert = _plain
        if isinstance(node.spec, AttentionBase):
            convert = _attention
        elif isinstance(node.spec, RecurrentBase):
            convert = _recurrent
        place = node.path.replace("/", ".") + "."
        for name, value in convert(node, own).items():
            found[place + name] = torch.from_numpy(np.array(value, order="C"))
    return found


def _plain(node: Node, own: State) -> State:
    found: State = {}
    for name, value in own.items():
        axes = native_layout(node, name)[1]
        native = value if axes is None else value.transpose(axes)
        if name == "depthwise_kernel" or (isinstance(node.spec, layers.DepthwiseConv2D) and name == "kernel"):
            # (channels, multiplier, height, width): one group a channel.
            native = native.reshape(-1, 1, *native.shape[2:])
        found[_NAMES[name]] = native
    if "bias" in found and isinstance(node.spec, (*_BOTH, layers.LayerNorm)):
        found.setdefault("weight", np.ones_like(found["bias"]))
    if "weight" in found and isinstance(node.spec, _BOTH):
        found.setdefault("bias", np.zeros_like(found["weight"]))
    return found


def _attention(node: Node, own: State) -> State:
    """As nn.MultiheadAttention has them, where it can be it; else four times as nn.Linear has them."""
    spec, parts = node.spec, ("query", "key", "value")
    kernels = [own[f"{part}_kernel"].T for part in parts]
    shifts = [own[f"{part}_bias"] for part in parts if f"{part}_bias" in own]
    width = node.input_shape[-1]
    stock = (
        kernels[0].shape == (width, width)
        and len(kernels[1]) == len(kernels[2]) == width
        and len(shifts) == 3 * ("output_bias" in own)
        and getattr(spec, "rotary", None) is None
    )
    if not stock:
        linear = {name.rpartition("_")[::2]: value.T for name, value in own.items()}
        return {f"{part}.{_NAMES[kind]}": value for (part, kind), value in linear.items()}
    found: State = {"out_proj.weight": own["output_kernel"].T}
    if kernels[1].shape[1] == width:
        found["in_proj_weight"] = np.concatenate(kernels)
    else:
        for letter, kernel in zip("qkv", kernels, strict=True):
            found[f"{letter}_proj_weight"] = kernel
    if shifts:
        found |= {"in_proj_bias": np.concatenate(shifts), "out_proj.bias": own["output_bias"]}
    return found


def _recurrent(node: Node, own: State) -> State:
    """As nn.LSTM, nn.GRU and nn.RNN have them: one layer, the second bias zero where the spec has one bias."""
    found: State = {}
    for prefix, _ in node.spec.ways:
        suffix = "l0_reverse" if prefix else "l0"
        given = {"weight_ih": own[f"{prefix}kernel"].T, "weight_hh": own[f"{prefix}recurrent_kernel"].T}
        if node.spec.use_bias:
            bias = own[f"{prefix}bias"]
            given |= {"bias_ih": bias, "bias_hh": own.get(f"{prefix}recurrent_bias", np.zeros_like(bias))}
        for name, value in given.items():
            gates = np.split(value, node.spec.gates)
            if isinstance(node.spec, layers.GRU):
                # Canonical z, r, h; PyTorch's r, z, n.
                gates = [gates[1], gates[0], gates[2]]
            found[f"{name}_{suffix}"] = np.concatenate(gates)
    return found
