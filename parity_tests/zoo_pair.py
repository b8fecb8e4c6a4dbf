"""Models of other people's packages, unmodified, in pairs: one of Keras and one of PyTorch each.

What they are called with are arguments that their packages offer, as someone who ports a model would choose them;
`differs` says what then still is not the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.common.spec.external.target import Target

Arrays = dict[str, np.ndarray]

# Where scripts/setup puts the packages that pip would let replace torch; see zoo_packages.txt.
PACKAGES = ".venv/zoo"

CLASSES = 1000
GELU = "GELU: stock Keras rounds a constant to float32"
LOGITS = (("output", "logits"),)


@dataclass(frozen=True)
class Images:
    """A batch of random images: channels last for Keras, channels first for torch.

    factor: Keras's numbers are torch's times this, where Keras's model begins with a division by it.
    """

    side: int
    batch: int = 2
    factor: float = 1.0
    names: tuple[str, str] = ("images", "images")

    def draw(self, random: np.random.Generator) -> tuple[Arrays, Arrays]:
        """Inputs of Keras and of torch."""
        images = random.normal(size=(self.batch, self.side, self.side, 3))
        keras, torch = self.names
        return {keras: images * self.factor}, {torch: np.ascontiguousarray(images.transpose(0, 3, 1, 2))}


@dataclass(frozen=True)
class Tokens:
    """A batch of random tokens; the end of the last sample is padding, where there is a mask.

    names: Keras's name of tokens, mask, segments and so on, with torch's.
    positions: torch's name for first, first + 1, ..., where it would count from another number by itself.
    """

    names: Mapping[str, str]
    vocabulary: int
    length: int = 12
    batch: int = 2
    padded: bool = True
    positions: str | None = None
    first: int = 0

    def draw(self, random: np.random.Generator) -> tuple[Arrays, Arrays]:
        """Inputs of Keras and of torch."""
        shape = (self.batch, self.length)
        keras: Arrays = {}
        for name in self.names:
            if "mask" in name:
                keras[name] = np.ones(shape, np.int64)
                if self.padded:
                    keras[name][-1, 2 * self.length // 3 :] = 0
            elif "segment" in name:
                keras[name] = random.integers(0, 2, shape)
            else:
                keras[name] = random.integers(3, self.vocabulary, shape)
        torch = {theirs: keras[name] for name, theirs in self.names.items()}
        if self.positions is not None:
            torch[self.positions] = np.broadcast_to(self.first + np.arange(self.length), shape).copy()
        return keras, torch


@dataclass(frozen=True)
class Sound:
    """A batch of random spectra: channels last for Keras, channels first for torch."""

    names: tuple[str, str]
    length: int
    channels: int
    batch: int = 2

    def draw(self, random: np.random.Generator) -> tuple[Arrays, Arrays]:
        """Inputs of Keras and of torch."""
        spectra = random.normal(size=(self.batch, self.length, self.channels))
        keras, torch = self.names
        return {keras: spectra}, {torch: np.ascontiguousarray(spectra.transpose(0, 2, 1))}


@dataclass(frozen=True)
class Together:
    """Inputs of several kinds."""

    parts: tuple[Images | Tokens | Sound, ...]

    def draw(self, random: np.random.Generator) -> tuple[Arrays, Arrays]:
        """Inputs of Keras and of torch."""
        keras: Arrays = {}
        torch: Arrays = {}
        for part in self.parts:
            ours, theirs = part.draw(random)
            keras |= ours
            torch |= theirs
        return keras, torch


@dataclass(frozen=True)
class ZooPair:
    """Two models that are meant to be the same.

    outputs: names of Keras's outputs and of torch's that are compared.
    differs: what is not the same, by row of DIFFERENCES where there is one; empty: nothing is.
    zeros: tensors that only torch has, which are set to zero.
    without: torch's model without what differs `besides` constants in float32: for an experiment.
    """

    name: str
    keras: Target
    torch: Target
    inputs: Images | Tokens | Together
    outputs: tuple[tuple[str, str], ...] = (("output", "output"),)
    differs: str = ""
    zeros: tuple[str, ...] = ()
    without: Target | None = None
    besides: str = ""


def applications(name: str, side: int, **arguments: Any) -> Target:
    """Of keras.applications, with logits for outputs, as torch's models have them."""
    head = {"classifier_activation": None} if arguments.get("include_top", True) else {}
    given = {"weights": None, "input_shape": [side, side, 3], **head, **arguments}
    return Target.of(f"keras.applications:{name}", given)


def timm(name: str, **arguments: Any) -> Target:
    """A model of timm."""
    return Target.of("timm:create_model", {"model_name": name, **arguments})


def hugging_face(name: str, **config: Any) -> Target:
    """A class of transformers, with fields of its configuration."""
    return Target.of("parity_tests.zoo_torch:hugging_face", {"name": name, **config})


def hub(name: str, **arguments: Any) -> Target:
    """A class of KerasHub."""
    return Target.of(f"keras_hub.models:{name}", arguments)
