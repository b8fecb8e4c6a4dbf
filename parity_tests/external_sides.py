"""Two small models in NumPy that answer as a ExternalWorker does: what is tested of mapping needs no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.common.external.process.pass_result import Array, Arrays, PassResult
from parity.common.spec.external.outline import LayerInfo, Outline, TensorInfo

Tap = Callable[[str, Array], Array]
Model = Callable[[Arrays, Tap, Array], Array]

_ROLES = {"weight": "kernel"}


class Side:
    """A model as a function of its tensors, of `tap(path, value)` to be called on each layer's output, and of x."""

    def __init__(
        self, framework: Any, tensors: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str], model: Model
    ):
        random = np.random.default_rng(len(tensors))
        self.framework = framework
        self.state = {name: random.normal(size=shape) for name, shape in tensors.items()}
        self.kinds, self.model = kinds, model
        self.forwards = 0

    def outline(self, inputs: Array) -> Outline:
        """Layers in the order of their calls."""
        passed = self.forward(inputs)
        separator = "/" if self.framework == "tensorflow" else "."
        infos = []
        for name, value in self.state.items():
            layer, _, last = name.rpartition(separator)
            kind = self.kinds.get(layer, "")
            role = {"weight": "gamma", "bias": "beta"}.get(last, last) if kind.endswith("norm") else last
            role = "kernel" if kind == "dense" and last == "weight" else role
            infos.append(
                TensorInfo(
                    name=name, layer=layer, role=role, shape=value.shape, dtype="float64", trainable=True
                )
            )
        layers = tuple(
            LayerInfo(
                path=path, kind=self.kinds.get(path, ""), type="test.Layer", calls=1, outputs=(value.shape,)
            )
            for path, value in passed.activations.items()
        )
        return Outline(
            framework=self.framework,
            target=f"test:{self.framework}",
            type="test.Model",
            versions={},
            layers=layers,
            tensors=tuple(infos),
        )

    def read(self) -> Arrays:
        """A copy."""
        return dict(self.state)

    def write(self, state: Arrays) -> None:
        """Shapes must agree."""
        for name, value in state.items():
            assert self.state[name].shape == value.shape, name
            self.state[name] = value

    def forward(self, inputs: Array, *, taps: Any = True, inject: Arrays | None = None) -> PassResult:
        """As ExternalWorker.forward."""
        self.forwards += 1
        found: Arrays = {}

        def tap(path: str, value: Array) -> Array:
            found[path] = value
            return (inject or {}).get(path, value)

        output = self.model(self.state, tap, inputs)
        return PassResult(outputs={"output": output}, activations=found)
