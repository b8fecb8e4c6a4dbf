"""The zoo: models of other people's packages, unmodified, in pairs of one of Keras and one of PyTorch."""

from __future__ import annotations

from parity_tests.zoo_applications import APPLICATIONS
from parity_tests.zoo_pair import PACKAGES, Arrays, ZooPair
from parity_tests.zoo_transformers import TRANSFORMERS

__all__ = ["APPLICATIONS", "PACKAGES", "TRANSFORMERS", "ZOO", "Arrays", "ZooPair"]

ZOO = {pair.name: pair for pair in (*APPLICATIONS, *TRANSFORMERS)}
