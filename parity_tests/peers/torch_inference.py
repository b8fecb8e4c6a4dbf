"""Trained models in PyTorch: loaded to be called, and in stock modules."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as checkpoint
from safetensors.torch import load_file
from torch import Tensor, nn

from parity.common.base.errors import ParityError
from parity.common.execution.pass_context import Context
from parity.torch_impl import convert, losses
from parity.torch_impl.inference import load
from parity_tests.peers import Arrays


def evaluate(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Outputs of a run's model, and what the loss makes of them."""
    model = load(facts["path"])
    inputs, targets = (torch.from_numpy(arrays[name].copy()) for name in ("inputs", "targets"))
    outputs = model(inputs)
    assert isinstance(model, nn.Module) and not model.training and not outputs.requires_grad
    pad = model.spec.model.pad_id
    mask = None if pad is None else inputs != pad
    context = Context(False, token_mask=mask)
    total, count = losses.loss_sum_and_count(model.spec.loss, outputs, targets, context)
    correct = losses.correct(model.spec.loss, outputs, targets, context)
    step = torch.tensor(model.step)
    found = {"outputs": outputs, "sum": total, "count": count, "correct": correct, "step": step}
    return {name: value.numpy() for name, value in found.items()}


def refusal(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The bytes of the error that loading ends with; none where it does not."""
    try:
        load(facts["path"])
    except ParityError as error:
        return {"said": torch.tensor(list(str(error).encode()), dtype=torch.uint8).numpy()}
    return {}


class _Attention(nn.MultiheadAttention):
    """Of a sequence to itself, its output alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, x, x)[0]


def _outputs_of(kind: type[nn.RNNBase]) -> type[nn.RNNBase]:
    """A recurrent module that gives its outputs alone."""

    class Outputs(kind):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[0]

    return Outputs


def _module(kind: str, options: dict[str, Any]) -> nn.Module:
    if kind == "MultiheadAttention":
        return _Attention(batch_first=True, **options)
    if kind in ("LSTM", "GRU", "RNN"):
        return _outputs_of(getattr(nn, kind))(batch_first=True, **options)
    return getattr(nn, kind)(**options)


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Ours, and what stock modules give that have loaded the exported file strictly.

    facts: path of a run; format; modules: [name, class of torch.nn, arguments] in a row; channels: whether they
        come first in the stock modules' "input", in their input and output ("both"), or in neither ("none").
    """
    model, inputs = load(facts["path"]), torch.from_numpy(arrays["inputs"].copy())
    network = nn.Sequential(
        OrderedDict((name, _module(kind, options)) for name, kind, options in facts["modules"])
    )
    network = network.to(getattr(torch, model.spec.master_dtype)).eval()
    out = Path(facts["path"]) / "out"
    convert.export(Path(facts["path"]), facts["format"], out)
    if facts["format"] == "dcp":
        read = {name: torch.zeros_like(tensor) for name, tensor in network.state_dict().items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it says that it loads in one process
            checkpoint.load(read, checkpoint_id=out)
    else:
        read = load_file(out) if facts["format"] == "safetensors" else torch.load(out, weights_only=True)
    network.load_state_dict(read, strict=True)
    channels = facts["channels"]
    with torch.no_grad():
        theirs = network(inputs if channels == "none" else inputs.movedim(-1, 1))
    theirs = theirs.movedim(1, -1) if channels == "both" else theirs
    return {"ours": model(inputs).numpy(), "stock": theirs.contiguous().numpy()}
