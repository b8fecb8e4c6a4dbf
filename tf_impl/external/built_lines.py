"""Where in a user's code the graph of a functional model is made: once it runs, nothing tells."""

from __future__ import annotations

from typing import Any

import keras

from parity.common.external.process.code_lines import code_line

_stock = keras.Operation.symbolic_call


def remember_lines() -> None:
    """From now on each call of a layer or function that makes a part of a graph leaves its line with that part."""
    keras.Operation.symbolic_call = _symbolic_call


def _symbolic_call(operation: keras.Operation, *args: Any, **kwargs: Any) -> Any:
    outputs = _stock(operation, *args, **kwargs)
    operation._inbound_nodes[-1].code_line = code_line()
    return outputs


def line_built(operation: keras.Operation) -> str:
    """The line where a layer or function is made a part of a graph; '' where it is of none, or in several lines."""
    lines = {getattr(node, "code_line", "") for node in operation._inbound_nodes}
    return lines.pop() if len(lines) == 1 else ""
