"""The tutorials, walked through: every command in them is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity_tests.helpers import ROOT
from parity_tests.walkthrough import Command, missing, steps, walk

TUTORIALS = ROOT / "docs" / "tutorials"
# What one of its commands begins with, by page.
COMMANDS = {
    "port_a_model": ("parity lint", "parity pair", "parity export", "pytest"),
    "port_with_your_loss": ("parity pair",),
    "prove_a_distributed_run": ("parity run", "torchrun", "parity compare"),
    "find_a_bug": ("parity compare", "parity diagnose"),
    "study_bf16": ("parity study",),
}
LONG = ("port_a_model", "port_with_your_loss", "study_bf16")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in LONG else pytest.mark.slow)
        for name in COMMANDS
    ],
)
def test_the_page_holds(tmp_path: Path, name: str) -> None:
    assert walk(TUTORIALS / f"{name}.md", tmp_path)


def test_nothing_that_a_page_says_is_left_out() -> None:
    assert {page.stem for page in TUTORIALS.glob("*.md")} == COMMANDS.keys()
    for name, beginnings in COMMANDS.items():
        found = list(steps((TUTORIALS / f"{name}.md").read_text(encoding="utf-8")))
        commands = [step.text for step in found if isinstance(step, Command)]
        for beginning in beginnings:
            assert any(text.startswith(beginning) for text in commands), f"{name}: {beginning}"


PAGE_OF_TWO = """
```python a/b.py
print(6 * 7)
```
```console
$ python \\
  a/b.py
4...
$ false
(exit code 1)
```
"""


def test_files_are_written_and_commands_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE_OF_TWO)
    assert len(walk(page, tmp_path)) == 2


@pytest.mark.parametrize(("right", "wrong"), [("4...", "43"), ("(exit code 1)", ""), ("6 * 7", "6 * 8")])
def test_a_page_that_is_wrong_is_seen(tmp_path: Path, right: str, wrong: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE_OF_TWO.replace("4...", "42").replace(right if right != "4..." else "42", wrong))
    with pytest.raises(AssertionError):
        walk(page, tmp_path)


def test_lines_are_looked_for_in_their_order() -> None:
    assert missing("one  two\nthree", ("one two", "th...ee")) is None
    assert missing("one two three", ("three", "one")) == "one"
