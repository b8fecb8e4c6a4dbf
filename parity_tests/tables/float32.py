"""What came of comparisons in float32 in which nothing is wrong, as the Markdown page docs/evidence/float32.md."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# What `parity_tests.clean_float32` writes of one spec.
Line = dict[str, Any]

_HEAD = """# Comparisons in float32 in which nothing is wrong

Written by `python -m parity_tests.clean_float32`, whose docstring says how; do not edit.

Each row is one spec on eight placements, whose every two runs are compared: 28 comparisons of 30 steps, with the noise floor that
`parity run` measures. *Divergent* is a false alarm; *inconclusive* says that rounding hides what a comparison looks for.
*Nearest*: of what it was allowed, how much the worst check of all used; nearly 1 where that is what rounding did to the two runs, which is then measured. Kernels: *all* that the processor has;
*AVX2* at most, of oneDNN, PyTorch and MKL; *SSE*, and TensorFlow without oneDNN.

What is here was drawn once the code was finished. Two seeds before it found what was not: 1 false alarm in 1,512 comparisons and 14, all of one
spec, in 588 (27 November 2026, seeds 20261129 and 20261130; CHANGELOG.md says what was mended).
"""


_RESOLVED = """## How small a defect is seen

DDP of two against one process, with all gradients 1 + e times what is due, for e = 0.1, 0.01 and on: the least that is divergent, and
so are all larger ones.
"""


def page(every: Sequence[Line]) -> str:
    """The page of some lines of `draw` and `resolve`."""
    lines = [line for line in every if "verdicts" in line]
    counts = Counter[str]()
    for line in lines:
        counts.update(line["verdicts"])
    total = sum(counts.values())
    versions = ", ".join(f"{name} {version}" for name, version in sorted(lines[-1]["versions"].items()))
    text = [
        _HEAD,
        f"{versions}; {os.cpu_count()} cores, no GPU.",
        "",
        f"**{counts['divergent']} false alarms in {total:,} comparisons**, ",
    ]
    text[-1] += f"{counts['inconclusive']} inconclusive."
    text += [
        "",
        *_table(
            ["kernels", "specs", "comparisons", "parity", "inconclusive", "divergent"], _by_kernels(lines)
        ),
    ]
    others = [
        f"- {line['kernels']}, {line['trained']}: {said}" for line in lines for said in line["not parity"]
    ]
    text += ["", "What is not parity:", "", *others] if others else []
    rows = [
        [
            line["seed"],
            line["number"],
            line["trained"],
            line["kernels"],
            *_of(line["verdicts"]),
            f"{line['nearest']:.2g}",
        ]
        for line in sorted(lines, key=lambda line: (line["seed"], line["number"], line["kernels"]))
    ]
    head = ["seed", "#", "trained", "kernels", "parity", "inconclusive", "divergent", "nearest"]
    text += ["", *_table(head, rows)]
    resolved = [
        [line["resolved"], f"1e-{line['power']}" if line["power"] else "more"]
        for line in every
        if "power" in line
    ]
    text += ["", _RESOLVED, *_table(["trained", "least e seen"], resolved)] if resolved else []
    return "\n".join([*text, ""])


def _by_kernels(lines: Sequence[Line]) -> Iterator[list[Any]]:
    for kernels in dict.fromkeys(line["kernels"] for line in lines):
        own = [line for line in lines if line["kernels"] == kernels]
        counts = Counter[str]()
        for line in own:
            counts.update(line["verdicts"])
        yield [kernels, len(own), sum(counts.values()), *_of(counts)]


def _of(counts: Mapping[str, int]) -> list[int]:
    return [counts.get(verdict, 0) for verdict in ("parity", "inconclusive", "divergent")]


def _table(head: Sequence[str], rows: Iterator[list[Any]] | list[list[Any]]) -> list[str]:
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]
