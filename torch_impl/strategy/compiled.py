"""torch.compile of the model's passes: where it can be had, and what it is applied to."""

from __future__ import annotations

import os

from torch import nn

from parity.common.spec import Placement


def has_compiler() -> bool:
    """Whether torch.compile finds a C++ compiler for the CPU's kernels."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


def compile_passes(placement: Placement, module: nn.Module) -> None:
    """Have a model's forward and backward pass compiled, the first time that it is called."""
    if placement.compile:
        # As for everything else, one thread a rank, and no processes besides.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        # In place: names, tensors and children stay where everything else looks for them.
        module.compile(dynamic=None)
