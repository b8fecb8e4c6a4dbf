"""What the diagnosis said of random mutants, as the last part of docs/evidence/faults.md; a reader has judged it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from parity_tests.tables.diagnosis import MUTANTS

_ABOUT = """Each mutant is one random change of a line of a trainer that the run executes. Written by `python -m parity_tests.mutants`,
whose docstring says how. Errors stopped the run; survivors train as before. *Place* and *cause* were judged by reading the
mutant: a cause is right where it says what the changed line does, wrong where it says something else.
"""
_TOTALS = (
    "seed",
    "drawn",
    "errors",
    "survivors",
    "diagnosed",
    "place right",
    "confirmed right",
    "confirmed wrong",
)
_TOTALS += ("likely right", "likely wrong", "no cause")
_COLUMNS = ("mutant", "trained", "stage", "tensor", "cause", "confidence", "place", "cause is")


def write(drawn: Path, page: Path) -> None:
    """Replace the page's part on mutants by that of a file of `parity_tests.mutants draw`."""
    every = [json.loads(line) for line in drawn.read_text(encoding="utf-8").splitlines()]
    totals, rows = [], []
    for seed in dict.fromkeys(said["seed"] for said in every):
        own = [said for said in every if said["seed"] == seed]
        told = [said for said in own if "findings" in said]
        outcomes = Counter(said["outcome"] for said in own)
        judged = Counter((_first(said).get("confidence"), said["verdict"]) for said in told)
        pairs = [judged[sure, verdict] for sure in ("confirmed", "likely") for verdict in ("right", "wrong")]
        places = sum(said["place"] == "right" for said in told)
        unknown = sum("cause" not in _first(said) for said in told)
        totals.append(
            [seed, len(own), outcomes["error"], outcomes["survivor"], len(told), places, *pairs, unknown]
        )
        rows += [_row(said) for said in told]
    before = page.read_text(encoding="utf-8").partition(MUTANTS)[0].rstrip()
    text = f"{before}\n\n{MUTANTS}\n\n{_ABOUT}\n{_table(_TOTALS, totals)}\n{_table(_COLUMNS, rows)}{survivors_of(every)}"
    page.write_text(text, encoding="utf-8")


def survivors_of(every: list[dict[str, Any]]) -> str:
    """The mutants that change nothing, by the reason that a reader has found (`why` of their line); nothing where none has been read."""
    reasons: dict[str, list[str]] = {}
    for said in every:
        if said["outcome"] == "survivor" and "why" in said:
            reasons.setdefault(said["why"], []).append(f"`{said['where'].rpartition('/')[2]}`")
    rows = [[why, len(names), ", ".join(dict.fromkeys(names))] for why, names in reasons.items()]
    rows.sort(key=lambda row: -row[1])
    return (
        f"\n### What changes nothing, and why\n\n{_table(('why', 'mutants', 'where'), rows)}" if rows else ""
    )


def _first(said: dict[str, Any]) -> dict[str, Any]:
    """What was said of the first finding."""
    return said["findings"][0] if said["findings"] else {}


def _row(said: dict[str, Any]) -> list[str]:
    first = _first(said)
    what = f"`{said['where']}`: `{said['text'].replace('|', '&#124;')}`"
    tensor = f"`{first['tensor']}`" if first else ""
    named = [first.get("stage", ""), tensor, *(first.get(name, "") for name in ("cause", "confidence"))]
    return [what, said["setup"], *named, said["place"], said["verdict"]]


def _table(head: tuple[str, ...], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
