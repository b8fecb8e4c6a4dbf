"""How a child of ours is started: its command and its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from parity.common.base.package import ROOT


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of ours.

    -P: nothing in the working folder, such as a user's `numpy.py`, can stand in for what we import. Where a user
    names code, `prepare_import_path` adds its folder.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(threads: int | None = 1, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child.

    Args:
        threads: of OpenMP; None: as in this process.
        variables: to set besides.
    """
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    # The user's folders come first: ours holds packages of the repository besides `parity`.
    path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)]
    own["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, path)))
    return {**os.environ, **own, **(variables or {})}
