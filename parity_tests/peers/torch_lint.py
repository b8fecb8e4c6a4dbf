"""Outlines of the models of `external_models/lint_torch.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from parity.torch_impl.external.outline import outline
from parity_tests.external_models import lint_torch
from parity_tests.peers import Arrays


def outlines(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The JSON of the outline of each of facts["models"]: {model, arguments, optimizer, inputs: name of an array}."""
    found = {}
    for number, asked in enumerate(facts["models"]):
        torch.manual_seed(0)
        model = getattr(lint_torch, asked["model"])(**asked.get("arguments", {}))
        optimizer = asked.get("optimizer")
        tensors = list(model.parameters())
        made = None if optimizer is None else getattr(torch.optim, optimizer[0])(tensors, **optimizer[1])
        inputs = arrays.get(asked.get("inputs", ""))
        text = outline(model, asked["model"], inputs, made).model_dump_json()
        found[str(number)] = np.frombuffer(text.encode(), np.uint8)
    return found


def left_alone(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """What an outline must not change, each whether it is as before; of a pass that works and of one that fails."""
    del facts
    model = lint_torch.Odd()
    model.inner.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    outline(model, "odd", arrays["x"])
    failed = False
    try:
        outline(model, "odd", arrays["wrong"])
    except RuntimeError:
        failed = True
    state = model.state_dict()
    found = {
        "failed": failed,
        "modes": [module.training for module in model.modules()] == modes,
        "hooks": not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()),
        "state": all(torch.equal(state[name], tensor) for name, tensor in before.items()),
        "gradients": torch.is_grad_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
    }
    return {name: np.array(value) for name, value in found.items()}
