"""The zoo: models of other people's packages, unmodified, in pairs of one of Keras and one of PyTorch."""

from __future__ import annotations

from parity_tests.zoo_applications import APPLICATIONS
from parity_tests.zoo_language import LANGUAGE
from parity_tests.zoo_pair import PACKAGES, Arrays, ZooPair
from parity_tests.zoo_vision import VISION

__all__ = ["APPLICATIONS", "PACKAGES", "TRANSFORMERS", "ZOO", "Arrays", "ZooPair"]

TRANSFORMERS = (*LANGUAGE, *VISION)
ZOO = {pair.name: pair for pair in (*APPLICATIONS, *TRANSFORMERS)}
