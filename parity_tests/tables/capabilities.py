"""What goes with what, as the last section of docs/evidence/strategies.md: the tables of common/spec/capabilities.py in words.

`python -m parity_tests.tables.capabilities docs/evidence/strategies.md` writes the section into the page.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from parity.common.spec.capabilities import (
    ENGINES,
    LAUNCHERS,
    REFUSALS,
    STRATEGIES,
    launchers_of,
    unlisted,
)
from parity.common.spec.strategies import Framework

TITLE = "## What goes with what"
_HEAD = f"""{TITLE}

Made of `common/spec/capabilities.py`, from which placements and runs are refused too, and which `parity doctor` shows.
After a change there: `python -m parity_tests.tables.capabilities docs/evidence/strategies.md`.

"""
# Names that do not say it themselves.
_WORDS = {
    "replicas": "more than one replica",
    "changing_accumulation": "accumulation that changes with the epoch",
    "checkpoint": "option checkpoint=true",
    "nccl": "option cross_device=nccl or communication=nccl",
    "replay": "a diagnosis of the run's steps",
    "sharded": "save.sharded",
    "imported": "an imported model",
    "low_precision": "a precision below float32",
    "loss_scale": "precision float16_mixed, which scales the loss",
    "reduce_on_plateau": "schedule reduce_on_plateau",
    "global_statistics": "batch norm over the global batch",
    "whole_tensors": "optimizer adafactor, lamb or muon",
    "clip_norm": "optimizer.clip_norm",
    "uneven_batch": "a first batch that the replicas do not divide",
    "few_eval_samples": "fewer data.eval_samples than replicas",
    "split": "data.split other than contiguous",
    "activity_penalty": "a layer activity_penalty",
    "recurrent": "a recurrent layer",
    "stock": "stock modes",
    "stock_precision": "stock mixed_bfloat16 or mixed_float16",
    "stock_dropout": "stock dropout",
    "no_gpu": "a machine without a GPU",
    "no_compiler": "a machine without a C++ compiler",
}


def combinations() -> Iterator[tuple[Framework, str, str, str]]:
    """All (framework, strategy, engine, launcher) that the table lists."""
    for framework in STRATEGIES:
        every = itertools.product(STRATEGIES[framework], ENGINES[framework], launchers_of(framework))
        for strategy, engine, launcher in every:
            if unlisted(framework, strategy, engine, launcher) is None:
                yield framework, strategy, engine, launcher


def section() -> str:
    """The section as Markdown."""
    strategies = [
        (f"`{framework}:{name}`", row.about, _engines_of(framework, name), row.package or "none")
        for framework, rows in STRATEGIES.items()
        for name, row in rows.items()
    ]
    engines = [
        (
            f"{framework} {name}",
            row.about,
            ", ".join(row.strategies),
            row.only or ("it runs all" if name == "own" else "it is wired to these"),
            row.package or "none",
        )
        for framework, rows in ENGINES.items()
        for name, row in rows.items()
    ]
    launchers = [(name, row.about, " and ".join(row.frameworks)) for name, row in LAUNCHERS.items()]
    refused = [
        (_word(asked), " and ".join(_alternatives(each) for each in others.split()), _shown(why))
        for asked, rows in REFUSALS.items()
        for others, why in rows.items()
    ]
    return _HEAD + "\n".join(
        (
            _table(("strategy", "what it is", "engines", "package"), strategies),
            _table(("engine", "what it is", "strategies", "why no others", "package"), engines),
            _table(("launcher", "what starts the processes", "frameworks"), launchers),
            _table(("cannot be had", "with", "why, and what to do"), refused),
        )
    )


def _engines_of(framework: Framework, strategy: str) -> str:
    return ", ".join(name for name, row in ENGINES[framework].items() if strategy in row.strategies)


def _word(name: str) -> str:
    return _WORDS.get(name, name)


def _alternatives(names: str) -> str:
    *first, last = map(_word, names.split("|"))
    return f"{', '.join(first)} or {last}" if first else last


def _shown(why: str) -> str:
    """A reason with ENGINE for {engine}."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: match[1].upper(), why)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _write(path: Path) -> None:
    page = path.read_text(encoding="utf-8").partition(TITLE)[0].rstrip()
    path.write_text(f"{page}\n\n{section()}", encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
