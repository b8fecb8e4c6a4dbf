"""The pages name what is there: files, modules, the layers and the files without a twin."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from parity_tests.tables.screenshot import KEY, fingerprint
from parity_tests.test_isolation import LAYERS, ROOT, files_of

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "slurm" / "README.md"]
FOLDERS = (
    "common",
    "tf_impl",
    "torch_impl",
    "parity",
    "parity_tests",
    "slurm",
    "scripts",
    "docs",
    "benchmarks",
)
_NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./{{}},-]+|parity\.(?:common|tf_impl|torch_impl)[\w.]*)")
# What a page says to write, or what only a wheel or a finished run has.
ELSEWHERE = {"common/commands/NAME.py", "parity/slurm/"}


def missing(text: str) -> Iterator[str]:
    """Files and modules that a page names and that are not there."""
    for name in sorted(set(_NAMED.findall(text)) - ELSEWHERE):
        variants = [name.replace("{tf,torch}", side) for side in ("tf", "torch")]
        there = _is_file if "/" in name else _is_module
        if not all(map(there, variants)):
            yield name


def _is_file(name: str) -> bool:
    return (ROOT / name.rstrip(".")).exists()


def _is_module(name: str) -> bool:
    """Whether a dotted name begins with a module of ours and goes on with at most a class and a method."""
    parts = name.rstrip(".").split(".")
    for length in range(len(parts), 1, -1):
        path = ROOT / "/".join(parts[1:length])
        if path.is_dir() or path.with_suffix(".py").is_file():
            left = parts[length:]
            source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
            return not left or re.search(rf"\b{left[0]}\b", source.read_text()) is not None
    return False


def test_pages_name_what_is_there() -> None:
    assert {
        page.name: list(missing(page.read_text())) for page in PAGES if any(missing(page.read_text()))
    } == {}


def test_a_name_that_is_gone_is_found() -> None:
    text = "`common/lab.py` `parity.common.record.RunRecord` `parity.common.gone.Lab` `{tf,torch}_impl/step.py` `slurm/env.sh`"
    assert list(missing(text)) == ["common/lab.py", "parity.common.gone.Lab"]


def test_the_picture_of_the_layers() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    picture = text[text.index("```text\n") + 8 :].partition("```")[0]
    names = {name for layer in LAYERS for name in layer}
    lines = [
        {word for word in re.split(r"  +|[<>-]+", line[:48]) if word.strip() in names}
        for line in picture.splitlines()
    ]
    shown = [{word.strip() for word in line} for line in lines if line]
    assert shown == [set(layer) for layer in LAYERS]


def test_the_files_without_a_twin() -> None:
    sides = {side: set(files_of(side)) for side in ("tf_impl", "torch_impl")}
    ours, theirs = sides.values()
    alone = {f"{side}/{file}" for side, files in sides.items() for file in files & (ours ^ theirs)}
    rows = re.findall(
        r"^\| `((?:tf|torch)_impl/\S+\.py)` \| .+ \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(name for name in alone if not name.endswith("__init__.py"))


def test_the_picture_of_the_report_is_of_the_present_templates(tmp_path: Path) -> None:
    taken = Image.open(ROOT / "docs/report.png").text.get(KEY)  # type: ignore[attr-defined]
    told = "docs/report.png is of other templates; take it anew as parity_tests/tables/screenshot.py says"
    assert taken == fingerprint(), told
    shutil.copytree(ROOT / "common/report/html", tmp_path / "html")
    with (tmp_path / "html/page.html.j2").open("a") as template:
        template.write(" ")
    assert fingerprint(tmp_path / "html") != taken
