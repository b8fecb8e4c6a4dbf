"""torch.compile of the model's passes: where it can be had, and what it is applied to."""

from __future__ import annotations

import os

from torch import nn

from parity.common.base.errors import MissingPackageError, SpecError
from parity.common.spec import Placement
from parity.torch_impl import runtime

# Those that were seen to keep parity; parity_tests/tables/strategies.py has a row for every one.
_ABLE = ("single", "ddp", "fsdp2")


def check_compile(placement: Placement) -> None:
    """Raise, before anything is started, where a placement asks for compilation and cannot have it.

    Raises:
        SpecError: with this strategy, engine or recording there is nothing that could be compiled.
        MissingPackageError: there is no C++ compiler.
    """
    if not placement.compile:
        return
    why = None
    if placement.strategy not in _ABLE:
        why = f"strategy {placement.strategy} was not seen to keep parity compiled; take {', '.join(_ABLE)}"
    elif placement.engine != "own":
        why = f"engine {placement.engine} hooks into the model's passes; take engine own"
    elif getattr(placement.options, "checkpoint", False):
        why = "checkpoint=true computes blocks again, which compilation decides by itself; leave one of them"
    if why is not None:
        raise SpecError(f"{placement.label}: {why}")
    if not runtime.uses_gpu(placement) and not has_compiler():
        raise MissingPackageError(
            "--compile needs a C++ compiler, and none was found; run: apt-get install g++"
            " (or set CXX to the compiler's path)"
        )


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
