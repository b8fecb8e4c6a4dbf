"""Where the toolkit itself is, and what its two halves are called: what a child process must be started with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import parity

# The folder on sys.path that holds the package.
ROOT = Path(parity.__file__).resolve().parents[1]
MODULES: dict[Literal["tensorflow", "torch"], str] = {
    "tensorflow": "parity.tf_impl",
    "torch": "parity.torch_impl",
}
