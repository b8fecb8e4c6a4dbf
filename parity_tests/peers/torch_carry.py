"""Stock PyTorch training between exports; float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from parity.common.execution.processes.channel import Channel
from parity.common.execution.processes.service import answer_line
from parity.common.external.checkpoints import Conversions
from parity.torch_impl.external.widening import WIDE
from parity_tests.external_models import carry_torch
from parity_tests.peers import Arrays


def train(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Weights after training by torch alone.

    facts: optimizer (name of a function of `carry_torch`); load, save (files or None). arrays: x (steps, batch,
    ...), y, and where there is no file to load, weights by name.
    """
    model = carry_torch.Net().double()
    make = getattr(carry_torch, facts["optimizer"])
    optimizer = make(model if facts["optimizer"] == "grouped" else model.parameters())
    if facts["load"] is None:
        missing = model.load_state_dict(
            {name: torch.tensor(value) for name, value in arrays.items() if name not in ("x", "y")},
            strict=False,
        )
        assert not missing.unexpected_keys
    else:
        content = torch.load(facts["load"], weights_only=True)
        model.load_state_dict(content.get("model", content))
        if "optimizer" in content:
            optimizer.load_state_dict(content["optimizer"])
    for x, y in zip(arrays["x"], arrays["y"], strict=True):
        optimizer.zero_grad()
        F.mse_loss(model(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
    if facts["save"] is not None:
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": len(arrays["x"])}
        torch.save(content, facts["save"])
    return {name: value.numpy() for name, value in model.state_dict().items()}


def save(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Some file of torch: facts: what, save."""
    model = carry_torch.Net().float()
    content: Any = {
        "module": model,
        "text": "no checkpoint",
        "nested": {"conv.weight": {"a": torch.zeros(1)}},
        "odd": {"model": model.state_dict(), "optimizer": {"state": 3}},
        "half": {name: value.bfloat16() for name, value in model.state_dict().items() if value.ndim},
        "wrapped": {f"module.{name}": value for name, value in model.state_dict().items()},
    }[facts["what"]]
    torch.save(content, facts["save"])
    return {name: value.numpy() for name, value in model.state_dict().items()}


def answer(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """What the child of `parity export` answers: facts: folder, line."""
    said = answer_line(Conversions("torch"), Channel(Path(facts["folder"]), "child"), facts["line"])
    # A child ends here; this process goes on, with float32 where it asks for that.
    WIDE.switch(False)
    return {"answer": np.frombuffer(said.encode(), np.uint8)}
