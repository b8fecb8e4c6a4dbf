"""docs/tutorials/port_a_model.md, walked through: every command in it is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity_tests.helpers import ROOT
from parity_tests.walkthrough import Command, missing, steps, walk

PAGE = ROOT / "docs" / "tutorials" / "port_a_model.md"


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_page_holds(tmp_path: Path) -> None:
    ran = walk(PAGE, tmp_path)
    assert [command.text.split()[:2] for command in ran].count(["parity", "pair"]) >= 2


def test_nothing_that_a_page_says_is_left_out() -> None:
    found = list(steps(PAGE.read_text(encoding="utf-8")))
    commands = [step.text for step in found if isinstance(step, Command)]
    for name in ("parity lint", "parity pair", "parity export", "pytest"):
        assert any(text.startswith(name) for text in commands), name


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
