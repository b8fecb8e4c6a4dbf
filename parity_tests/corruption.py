"""What strangers and broken disks make of files and flags, and what the toolkit says of each.

    python -m parity_tests.corruption FOLDER [--seed N] [--count N]

draws so many inputs from a seed, tries each in `FOLDER`, and prints one JSON object a line: an `Outcome`. The process
bounds its memory, and each input its processor time, so that a bomb is an outcome too. An oracle of its own
(`parity_tests/oracle.py`) decides from the numbers of two records whether a verdict was right.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import random
import resource
import shutil
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from parity.common.base.errors import ParityError
from parity.common.base.plain import plain
from parity.common.checkpoint import check_fits, checkpoints_of, find
from parity.common.checkpoint.files import folder_of
from parity.common.commands import main as command
from parity.common.parity.compare import Verdict
from parity.common.parity.result import judge
from parity.common.record import read_record
from parity.common.reference import StepScalars
from parity.common.spec import RunConfig, TrainSpec
from parity.common.spec.external.mapping import Mapping, Pair, read_mapping, write_mapping
from parity.common.spec.io import load_spec
from parity.common.state.canonical import State, initial_state
from parity_tests.helpers import ROOT
from parity_tests.helpers.fuzz_inputs import (
    corrupt_folder,
    spoiled_flags,
    spoiled_mapping,
    spoiled_placement,
    spoiled_spec,
)
from parity_tests.helpers.fuzz_pairs import PairCase, cases, write
from parity_tests.helpers.records import (
    DDP,
    MIRRORED,
    TORCH,
    Run,
    recipe_spec,
    tiny_spec,
    write_checkpoint,
)
from parity_tests.oracle import relation

SEED, COUNT = 1, 2000
SECONDS = 10  # of processor time that a file of at most a mebibyte may take
WAITING = 120  # seconds, whatever else the machine does: who waits so long waits for ever
MEMORY = 1 << 30  # beyond what the process has taken before
LONGEST = 1000  # characters of a message, beyond the paths in it


@dataclass(frozen=True)
class Outcome:
    """What became of a corruption.

    result: one of RESULTS. said: the message, the verdict, or why nothing was noticed.
    """

    number: int
    kind: str
    what: str
    result: str
    said: str


# Good ones first. An unseen one is good because an independent look at the files found what is judged unchanged.
RESULTS = {
    "refused": "one line that says what is wrong",
    "recovered": "passed over for an earlier whole checkpoint",
    "parity": "judged to be the same training, which the oracle does not contradict",
    "divergent": "judged, and found to be another run, or not decided",
    "another": "valid, and another spec, placement, mapping or checkpoint; read as that",
    "unseen": "read as it was: no check uses the damaged value, or it changed less than the budget",
    "traceback": "an exception that is not meant for people",
    "unclear": "an error of several lines, of control characters, or endless",
    "wrong": "the verdict `parity`, or a checkpoint, for what is something else; `divergent` for what is equal",
    "hang": f"more than {SECONDS} s",
    "memory": f"more than {MEMORY >> 20} MiB",
}
GOOD = tuple(RESULTS)[:6]


class _TimeOver(BaseException):
    """No `except Exception` may catch it."""


@contextmanager
def bounded(seconds: float, waiting: float = WAITING) -> Iterator[None]:
    """Raise _TimeOver after so much processor time, or where nothing is done for as long as `waiting`."""

    ended = False

    def over(*_: Any) -> None:
        nonlocal ended
        # A second one while the first is on its way would leave the timers as they are, for whatever runs next.
        if not ended:
            ended = True
            raise _TimeOver

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, waiting))
    before = [signal.signal(number, over) for _, number, _ in timers]
    # pytest's own time limit is one of these.
    left = [signal.setitimer(timer, limit) for timer, _, limit in timers]
    try:
        yield
    finally:
        ended = True
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for (timer, number, _), handler, rest in zip(timers, before, left, strict=True):
            signal.signal(number, handler)
            signal.setitimer(timer, *rest)


def outcome_of(number: int, kind: str, what: str, look: Callable[[], tuple[str, str]], where: str) -> Outcome:
    """What looking at a corrupted file comes to; `where` is the folder that messages may name."""
    try:
        with bounded(SECONDS):
            result, said = look()
    except ParityError as error:
        text = str(error)
        said = text.replace(where, "")
        clear = text.strip() and text.isprintable() and len(said) <= LONGEST
        result = "refused" if clear else "unclear"
    except MemoryError as error:
        result, said = "memory", repr(error)
    except _TimeOver:
        result, said = "hang", ""
    except Exception as error:
        result, said = "traceback", repr(error)
    return Outcome(number, kind, what, result, " ".join(said.replace(where, "").split())[:300])


class Material:
    """Whole files to begin with, made once in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.specs = [tiny_spec(), *map(recipe_spec, ("digits_cnn", "digits_transformer"))]
        run = Run.of(tiny_spec(), TORCH)
        self.reference = run.write(folder / "reference").folder
        self.stranger = Run.of(tiny_spec("seed=7"), TORCH).write(folder / "stranger").folder
        # Of another framework and another number of replicas, as far apart as rounding takes them.
        self.candidates = [
            run.noisy(1e-15, 1).copy(MIRRORED).write(folder / "mirrored").folder,
            run.noisy(1e-15, 2).copy(DDP).write(folder / "ddp").folder,
        ]
        self.run = folder / "run"
        for step in (3, 5):
            state = {n: v + step for n, v in initial_state(run.spec).items()} | {"step": np.array(step)}
            rates = StepScalars(run.spec).kept()
            write_checkpoint(folder_of(self.run, step), run.spec, TORCH, state, rates, 1.0 / step)
        write_mapping(folder / "mapping.yaml", Mapping(keras="net:keras", torch="net:torch", tensors=PAIRS))
        self.mapping = read_mapping(folder / "mapping.yaml")


def try_spec(material: Material, number: int, dice: random.Random, folder: Path) -> Outcome:
    spec = dice.choice(material.specs)
    as_json = dice.random() < 0.4
    what, data = spoiled_spec(dice, spec, as_json)
    path = folder / ("spec.json" if as_json else "spec.yaml")
    path.write_bytes(data)

    def look() -> tuple[str, str]:
        found = load_spec(path)
        if found.content_hash() == spec.content_hash():
            return "unseen", "reads as the same spec"
        # Whatever it is, all of it is known, and it is kept by what is written of it.
        again = TrainSpec.parse(found.to_dict())
        return ("another" if again.content_hash() == found.content_hash() else "wrong"), ""

    return outcome_of(number, "JSON spec" if as_json else "YAML spec", what, look, str(folder))


def try_placement(material: Material, number: int, dice: random.Random, folder: Path) -> Outcome:
    del material
    text = spoiled_placement(dice)

    def look() -> tuple[str, str]:
        found = RunConfig.from_text(text)
        again = RunConfig.from_text(found.text())
        return ("another" if again == found else "wrong"), found.label

    printable = "".join(c if c in string.printable and c.isprintable() else "?" for c in text)
    return outcome_of(number, "placement", printable[:60], look, str(folder))


# A small net of a user's: a convolution, batch norm, a dense layer behind a flattening, attention's three in one.
PAIRS = (
    Pair(keras=("conv/kernel",), torch=("conv.weight",), rule="conv"),
    Pair(keras=("norm/gamma",), torch=("norm.weight",), rule="same", doubt="one of two of its shape"),
    Pair(keras=("head/kernel",), torch=("head.weight",), rule="flatten(2, 2, 3)"),
    Pair(
        keras=("q/kernel", "k/kernel", "v/kernel"),
        torch=("attn.in_proj_weight",),
        rule="n d h k -> (n h k) d; h=2",
    ),
)
SHAPES = {
    "conv/kernel": (3, 3, 1, 3),
    "norm/gamma": (3,),
    "head/kernel": (12, 5),
    **dict.fromkeys(("q/kernel", "k/kernel", "v/kernel"), (4, 2, 2)),
}


def try_mapping(material: Material, number: int, dice: random.Random, folder: Path) -> Outcome:
    what, data = spoiled_mapping(dice, (material.folder / "mapping.yaml").read_text())
    path = folder / "mapping.yaml"
    path.write_bytes(data)

    def look() -> tuple[str, str]:
        found = read_mapping(path)
        arrays = {name: np.random.default_rng(1).normal(size=shape) for name, shape in SHAPES.items()}
        there = found.to_torch(arrays)
        if found == material.mapping:
            return "unseen", "reads as the same mapping"
        # Whatever it says now: no number is lost on the way there and back, and it is kept by what is written of it.
        back = found.to_keras(there)
        write_mapping(path, found)
        whole = all(np.array_equal(back[name], arrays[name]) for name in back) and read_mapping(path) == found
        return ("another" if whole else "wrong"), ""

    return outcome_of(number, "mapping", what, look, str(folder))


def verdict_of(reference: Path, candidate: Path) -> tuple[Verdict, str]:
    """What is concluded of two records."""
    comparison = judge([read_record(reference), read_record(candidate)]).comparisons[0]
    return comparison.verdict, comparison.reason


def look_at_record(
    reference: Path,
    corrupted: Path,
    verdict: Callable[[Path, Path], tuple[Verdict, str]] = verdict_of,
) -> tuple[str, str]:
    """Judge a corrupted record; the verdict is held against what the oracle says of its numbers."""
    found, reason = verdict(reference, corrupted)
    if found != "parity":
        return "divergent", reason
    return ("unseen", "") if relation(reference, corrupted) != "apart" else ("wrong", reason)


def try_record(material: Material, number: int, dice: random.Random, folder: Path) -> Outcome:
    whole = dice.choice(material.candidates)
    corrupted = folder / "record"
    shutil.copytree(whole, corrupted)
    what = corrupt_folder(dice, corrupted, material.stranger)
    return outcome_of(
        number, "record", what, lambda: look_at_record(material.reference, corrupted), str(folder)
    )


def look_at_pair(case: PairCase, folder: Path) -> tuple[str, str]:
    """Judge two records whose numbers were changed; the verdict is held against the oracle."""
    reference, candidate, floors = write(case, folder)
    result = judge([read_record(path) for path in (reference, candidate)], [read_record(f) for f in floors])
    comparison, due = result.comparisons[0], relation(reference, candidate, case.precision)
    known = case.precision == "float64" or case.floor
    if (comparison.verdict == "parity" and due == "apart") or (
        comparison.verdict != "parity" and due == "equal" and known
    ):
        return "wrong", f"{comparison.verdict}, and the numbers are {due}: {comparison.reason}"
    return ("parity", due) if comparison.verdict == "parity" else ("divergent", comparison.reason)


def try_pair(material: Material, number: int, dice: random.Random, folder: Path) -> Outcome:
    case = drawn_by(cases, dice.getrandbits(64))
    del material
    return outcome_of(number, "pair of records", str(case), lambda: look_at_pair(case, folder), str(folder))


def drawn_by(strategy: SearchStrategy[Any], number: int) -> Any:
    """What a strategy of hypothesis gives for a number: the same each time."""
    found = []

    @seed(number)
    @settings(max_examples=2, database=None, phases=[Phase.generate], deadline=None)
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found[-1]  # the first is the simplest there is


def try_flags(material: Material, number: int, dice: random.Random, folder: Path) -> Outcome:
    arguments = spoiled_flags(dice, [*material.candidates, material.run, folder / "absent"])
    said = io.StringIO()

    def look() -> tuple[str, str]:
        with redirect_stdout(said), redirect_stderr(said):
            try:
                code = command.dispatch(command.parse(["parity", *arguments]))
            except SystemExit as end:
                code = int(end.code or 0)
        text = said.getvalue()
        if "not foreseen" in text or "Traceback" in text:
            return "traceback", text
        lines = [line for line in text.splitlines() if not line.isprintable()]
        if lines or code not in (0, 1, 2, 3, 4):
            return "unclear", lines[0] if lines else f"exit code {code}"
        return ("refused", text) if code == 2 else ("another", f"exit code {code}")

    where = str(material.folder)
    words = " ".join(plain(word.replace(where, ""))[:40] for word in arguments)
    return outcome_of(number, "flags", words, look, where)


def try_checkpoint(material: Material, number: int, dice: random.Random, folder: Path) -> Outcome:
    run = folder / "run"
    shutil.copytree(material.run, run)
    earlier, latest = checkpoints_of(run)
    what = corrupt_folder(dice, dice.choice([latest] * 5 + [earlier]), earlier)
    return outcome_of(
        number,
        "checkpoint",
        what,
        lambda: look_at_checkpoint(run, material.run, what.endswith("forged")),
        str(folder),
    )


def _same(ours: State, theirs: State) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[n], v) for n, v in theirs.items())


def look_at_checkpoint(run: Path, whole: Path, forged: bool = False) -> tuple[str, str]:
    """Begin from a run's checkpoints, as a run that goes on does."""
    found, damaged = find(run)
    check_fits(found, found.spec, 6, TORCH)
    rates = StepScalars(found.spec)
    rates.restore(found.manifest.rates)
    as_it_was = next(each for each in map(find, checkpoints_of(whole)) if each[0].step == found.step)[0]
    same = _same(found.state(), as_it_was.state()) and found.manifest == as_it_was.manifest
    if forged and not same and not damaged:
        return "another", "as its seal says; of the spec's own shapes, and of its own step"
    if not same:
        return "wrong", f"step {found.step}"
    return ("recovered", damaged[0]) if damaged else ("unseen", f"step {found.step}, bit for bit what it was")


# Of each, of so many inputs in a row.
KINDS: dict[Callable[[Material, int, random.Random, Path], Outcome], int] = {
    try_spec: 5,
    try_record: 6,
    try_checkpoint: 4,
    try_placement: 2,
    try_mapping: 3,
    try_pair: 8,
    try_flags: 4,
}
_ORDER = [kind for kind, times in KINDS.items() for _ in range(times)]


def attempt(material: Material, seed: int, number: int) -> Outcome:
    """Make the input of a number, look at it, and clear it away."""
    folder = material.folder / f"case_{number}"
    folder.mkdir()
    try:
        kind = _ORDER[number % len(_ORDER)]
        return kind(material, number, random.Random(f"corruption {seed} {number}"), folder)
    finally:
        shutil.rmtree(folder)


def outcomes(folder: Path, seed: int = SEED, count: int = COUNT) -> list[Outcome]:
    """Those of some inputs, tried in a process of its own."""
    command = [sys.executable, "-m", "parity_tests.corruption", str(folder), f"--seed={seed}"]
    command.append(f"--count={count}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=7000)
    if done.returncode:
        raise AssertionError(f"ended with {done.returncode}: {done.stderr[-2000:]}")
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(folder: Path, seed: int, count: int) -> None:
    material = Material(folder)
    look_at_record(material.reference, material.candidates[0])  # imports what it needs
    drawn_by(cases, 0)
    _bound_memory()
    for number in range(count):
        print(json.dumps(asdict(attempt(material, seed, number))), flush=True)
        gc.collect()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    options = parser.parse_args()
    main(options.folder, options.seed, options.count)
