"""The page of the vocabulary is complete and up to date in what it lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parity_tests.helpers import ROOT
from parity_tests.tables.vocabulary import LIMIT, Vocabulary, groups

PAGE = ROOT / "docs" / "reference" / "vocabulary.md"


def listed(page: str) -> dict[str, float]:
    """Entry -> deviation, as the page gives them."""
    rows = re.findall(r"^\| `([a-z0-9_]+)` \|.*\| ([0-9.e+-]+|not measured) \|$", page, re.MULTILINE)
    return {entry: float(seen) if seen != "not measured" else float("inf") for entry, seen in rows}


def test_every_entry_is_listed_with_what_was_seen() -> None:
    """After adding one: scripts/test -m "" --vocabulary=docs/reference/vocabulary.md."""
    page = listed(PAGE.read_text(encoding="utf-8"))
    known = {entry for entries in groups().values() for entry in entries}
    assert set(page) == known
    over = {entry: seen for entry, seen in page.items() if not seen <= LIMIT}
    # Whole models of dozens of layers, held against others' code.
    assert set(over) <= {"resnet50", "mobilenet_v2", "gpt2", "bert_base", "vit_base"}, over
    assert all(seen <= 1e-10 for seen in over.values())


def test_an_entry_that_no_test_saw_is_seen(tmp_path: Path) -> None:
    collected = Vocabulary()
    collected.saw("layer", "dense", 3e-16, "TensorFlow, PyTorch, NumPy")
    collected.saw("layer", "dense", 1e-16, "keras.layers.Dense")
    collected.write(tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    page = listed(text)
    assert page["dense"] == pytest.approx(3e-16) and page["conv2d"] == float("inf")
    assert "NumPy, keras.layers.Dense" in text
