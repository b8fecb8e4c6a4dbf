"""docs/reference/pair.md has every name of a loss, an optimizer and their fields that the flags take."""

from __future__ import annotations

import re

from parity.common.external.pairs import spellings
from parity.common.external.pairs.objectives import parsed_loss
from parity.common.external.pairs.request import parsed_optimizer
from parity_tests.helpers import ROOT

PAGE = (ROOT / "docs" / "reference" / "pair.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Names of losses and optimizers\n")[2].partition("\n## ")[0]


def rows(head: str) -> list[tuple[list[str], list[str]]]:
    """(ours, the frameworks') of each row of the table with this head."""
    table = SECTION.partition(f"| {head} | is also called |\n| --- | --- |\n")[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return [(re.findall(r"`([^`]+)`", ours), re.findall(r"`([^`]+)`", theirs)) for ours, theirs in cells]


def test_every_name_of_a_loss_is_listed_as_what_it_is() -> None:
    listed = set()
    for (ours,), theirs in rows("`--loss`"):
        for name in theirs:
            assert parsed_loss(name) == parsed_loss(ours), name
        listed |= {spellings._short(name) for name in (ours.partition(",")[0], *theirs)}
    assert listed == set(spellings._KNOWN_LOSSES)


def test_every_name_of_an_optimizer_is_listed() -> None:
    listed = re.findall(r"`(\w+)`", SECTION.partition("`--optimizer`: ")[2].partition("\n")[0])
    assert {spellings._short(name) for name in listed} == set(spellings._KNOWN_OPTIMIZERS)
    for name in listed:
        assert parsed_optimizer(f"{name},lr=0.1") == parsed_optimizer(f"{name.upper()},learning_rate=0.1")


def test_every_name_of_a_field_is_listed() -> None:
    fields = {name: ours[0].partition(" ")[0] for ours, theirs in rows("field") for name in theirs}
    known = {name: ours for name, ours in fields.items() if "=" not in name and name != "alpha"}
    assert known == spellings._FIELDS
    assert parsed_optimizer("rmsprop,lr=1,alpha=0.5") == parsed_optimizer("rmsprop,lr=1,rho=0.5")
    assert parsed_optimizer("adam,lr=1,betas=[0.8,0.9]") == parsed_optimizer(
        "adam,lr=1,beta_1=0.8,beta_2=0.9"
    )
    for given, outputs in (("true", "logits"), ("false", "probabilities")):
        assert parsed_loss(f"binary_cross_entropy,from_logits={given}") == (
            parsed_loss(f"binary_cross_entropy,outputs={outputs}")
        )
