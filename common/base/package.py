"""Where the toolkit itself is, what its two halves are called, and the oldest frameworks that it runs with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import parity
from parity.common.base.errors import MissingPackageError

# The folder on sys.path that holds the package; its name, and not what a link leads to.
ROOT = Path(os.path.abspath(parity.__file__)).parents[1]
MODULES: dict[Literal["tensorflow", "torch"], str] = {
    "tensorflow": "parity.tf_impl",
    "torch": "parity.torch_impl",
}
# docs/evidence/versions.md has what was run with these.
OLDEST = {"tensorflow": "2.16", "keras": "3.3", "torch": "2.4"}


def check_versions(*packages: str) -> None:
    """Raise MissingPackageError for an installed package that is older than OLDEST has it."""
    from importlib import metadata  # slow, and commands that load no framework need it not

    for package in packages:
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # of another name, as tf-nightly; what it lacks, it says itself
        if numbers(found) < numbers(OLDEST[package]):
            raise MissingPackageError(
                f"{package} {found} is too old, {OLDEST[package]} is the oldest that works; run: pip install"
                f" '{package}>={OLDEST[package]}'"
            )


def numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version: (2, 13) of '2.13.0+cpu'."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
