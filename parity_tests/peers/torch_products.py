"""Passes of a model with low products, in PyTorch."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch

from parity.torch_impl.layers.products import Low, set_low, sums_in_float32
from parity_tests.peers import Arrays, torch_layers


def forward_backward(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """As `layers:forward_backward` in float32, with products that round to facts["low"]."""
    real = torch_layers.build_layer
    # What float8 has no part in is bfloat16.
    float8 = facts["low"] == "float8"
    dtype = "bfloat16" if float8 else facts["low"]
    low = Low(getattr(torch, dtype), facts.get("native", sums_in_float32(dtype, False)), float8)

    def build(node: Any) -> torch.nn.Module:
        module = real(node)
        set_low(module, low)
        return module

    with patch.object(torch_layers, "build_layer", build):
        return torch_layers.forward_backward({**facts, "precision": "float32"}, arrays)
