"""Virtual environments that have some of this one's packages."""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

TENSORFLOW, TORCH = ("tensorflow", "keras", "tf_keras"), ("torch",)


def environment_without(folder: Path, *hidden: str) -> Path:
    """The Python of a new environment, with links to all packages that are installed here but some."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in Path(site.getsitepackages()[0]).iterdir():
        name = path.name.partition(".")[0].partition("-")[0]
        # What is in development mode stays out: it is to come by the path, or not at all.
        if (
            name not in hidden
            and path.suffix != ".pth"
            and not name.startswith(("__editable__", "__pycache__"))
        ):
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"
