"""The picture of a report for people who have not run anything yet: docs/report.png.

    scripts/main_job && python -m parity_tests.tables.screenshot runs/digits_cnn/report.html docs/report.png

It needs chromium. The picture says in its own text which templates it was taken of, so that an old one is found.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin

from parity_tests.helpers import ROOT
from parity_tests.helpers.browser import browsing

# What the picture shows is made by these.
SOURCES = ("page.html.j2", "macros.html.j2", "report.html.j2", "report.js", "plots.py")
KEY = "templates"
WIDTH = 1200


def fingerprint(folder: Path = ROOT / "common/report/html") -> str:
    """Return 16 digits of the SHA-256 of the templates that a picture is taken of."""
    return hashlib.sha256(b"\0".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()[:16]


def take(report: Path, picture: Path) -> None:
    """Write the upper part of a report, up to its loss curves, as PNG."""
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder)) as browser:
        browser.open(report.resolve(), WIDTH)
        height = browser.value(
            "document.getElementById('loss').getBoundingClientRect().bottom + scrollY + 16"
        )
        image = Image.open(io.BytesIO(browser.screenshot(int(height))))
    words = PngImagePlugin.PngInfo()
    words.add_text(KEY, fingerprint())
    image.convert("RGB").quantize(128).save(picture, pnginfo=words, optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
