"""Float64 where a user's code asks for float32: so a comparison in float64 is one.

A mask that is made float32 would meet float64 activations, which a product refuses; in a float32 model that does nothing.
"""

from __future__ import annotations

import torch

from parity.common.external.process.exact import ExactFunctions

# As it was: our own code may mean it.
FLOAT32 = torch.float32
WIDE = ExactFunctions()
WIDE.replacements = (
    *((torch, name, torch.float64) for name in ("float32", "float")),
    *((torch, name, torch.complex128) for name in ("complex64", "cfloat")),
    (torch.Tensor, "float", torch.Tensor.double),
    (torch.Tensor, "cfloat", torch.Tensor.cdouble),
)
