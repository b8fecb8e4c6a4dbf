"""What was said of spoiled inputs, as the Markdown page docs/evidence/corruption.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from parity_tests.corruption import GOOD, RESULTS, Outcome

_HEAD = """# Spoiled inputs, and what is said of them

Written on {date} by `scripts/test -m "" parity_tests/test_corruption.py --corruption=docs/evidence/corruption.md --inputs={count}
--inputs-seed={seed}`; do not edit. The answers alone: `python -m parity_tests.corruption FOLDER --seed {seed} --count {count}`.

Files are whole at first, then damaged by a seeded generator (`parity_tests/helpers/fuzz_inputs.py`): bits flipped, cut
short, grown, swapped, deleted, foreign, endless, a pipe; values of JSON and YAML replaced by nonsense, keys twice, bombs,
tags; headers of tensors that say another type, shape or place. Specs are loaded, placements parsed, records read and
judged against a whole one, checkpoints looked for as by a run that goes on, tensors carried over by a mapping and back,
commands given flags in disorder. Pairs of records are whole, and have numbers, tensors or samples changed
(`parity_tests/helpers/fuzz_pairs.py`, drawn by hypothesis). A good answer is one line that names the file and what is
wrong with it, or the checkpoint before, or a verdict that the oracle does not contradict; never a traceback, a hang or a
full memory.

The oracle (`parity_tests/oracle.py`) reads records with NumPy alone, with no module of the comparison. It says of two that they are
equal, apart, or near, between the budget and what rounding may do; `parity` for what is apart is wrong, and so is
`divergent` for what is equal. Below float64 it leaves out the hits of an evaluation, as the comparison does.
"""

_FOOT = """
*Another*: the text of a spec, a placement or a mapping is all that says what was meant; a learning rate of 0.2 is as good as
one of 0.1. A checkpoint's manifest is held by a seal, and the spec of a record by its hash; *forged* means that these
were put right too, as by someone who means to deceive: then nothing can be said but whether it is safe to read.

*Unseen*: the oracle finds everything that is judged equal, or nearer than twice the budget of two honest runs: times, names of machines and devices, versions, the
lowest bits of float64, the older of two checkpoints, half a row at the end, a key that is gone and is by default what
it was. A checkpoint that is read is bit for bit what was saved.

What no reader can see: a file that was never there. Deleting `violations/` hides that a run broke an invariant.

## Of each kind some

| what was damaged | answer | in words |
|---|---|---|
"""


def write(path: Path, found: Sequence[Outcome], seed: int) -> None:
    """Write the page, replacing what is there."""
    kinds = list(dict.fromkeys(outcome.kind for outcome in found))
    counts = Counter((outcome.kind, outcome.result) for outcome in found)
    shown = [name for name in RESULTS if name in GOOD or any(counts[kind, name] for kind in kinds)]
    good = sum(outcome.result in GOOD for outcome in found)
    head = _HEAD.format(date=date.today(), count=len(found), seed=seed)
    lines = [head, f"**{good} of {len(found)} answers are good ones.**", ""]
    lines += ["| | " + " | ".join(shown) + " | all |", "|---|" + "---:|" * (len(shown) + 1)]
    for kind in kinds:
        row = [counts[kind, name] for name in shown]
        lines.append(f"| {kind} | " + " | ".join(map(str, row)) + f" | {sum(row)} |")
    lines += ["", *(f"- *{name}*: {RESULTS[name]}" for name in shown), _FOOT.rstrip("\n")]
    seen: Counter[tuple[str, str]] = Counter()
    for outcome in sorted(
        found, key=lambda o: (kinds.index(o.kind), list(RESULTS).index(o.result), o.number)
    ):
        key = outcome.kind, outcome.result
        seen[key] += 1
        if seen[key] <= 4 or outcome.result not in GOOD:
            cells = (f"{outcome.kind}: {outcome.what[:60]}", outcome.result, outcome.said[:160])
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(text: str) -> str:
    """Text that is anyone's, inside a table."""
    plain = "".join(character if character.isprintable() else "?" for character in text)
    for sign in "\\`|<>*_[]":
        plain = plain.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return plain
