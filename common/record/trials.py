"""The files of single layers that a diagnosis has tried."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from parity.common.spec import Node
from parity.common.spec.layers import AnyLayer
from parity.common.state.canonical import State, load_state, save_state

# What a layer makes, of what `parity.common.diagnosis.explain.counterfactuals.Variant` describes and of its arrays.
Tried = Callable[[Node, dict[str, Any], State], State]
_LAYER: TypeAdapter[Any] = TypeAdapter(AnyLayer)


def run_trials(folder: Path, tried: Tried) -> None:
    """Have `tried` try the layers that `trials.json` describes on the arrays of `trials.safetensors`.

    Of trial number I: `I/x`, `I/tensor/NAME` and maybe `I/ids`, `I/dy`, `I/token_mask`. Leaves
    `results.safetensors` with `I/y`, `I/after/buffers/...` and, where there is a dy, `I/dx` and
    `I/gradient/NAME`; nothing of trials that failed.
    """
    described = json.loads((folder / "trials.json").read_text(encoding="utf-8"))
    given = load_state(folder / "trials.safetensors")
    results: State = {}
    for number, facts in enumerate(described):
        head = f"{number}/"
        arrays = {n.removeprefix(head): array for n, array in given.items() if n.startswith(head)}
        try:
            layer = _LAYER.validate_python(facts["spec"])
            found = tried(layer.node(facts["path"], tuple(facts["input_shape"])), facts, arrays)
        except Exception:  # whatever is wrong with one, the others are tried
            continue
        results |= {f"{head}{name}": array for name, array in found.items()}
    save_state(folder / "results.safetensors", results)
