"""Pairs of records whose numbers were changed in ways that a generator draws: bits, factors, NaNs, tensors, samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from parity.common.spec import Placement
from parity_tests.helpers.records import DDP, MIRRORED, NUMBERS, STATES, TORCH, Run, tiny_spec

VALUES = (0.0, -0.0, -1.0, 5e-324, 1e-300, 1e308, float("inf"), float("-inf"), float("nan"), 1.0)
OF_COLUMNS = ("scaled", "set", "exchanged")
OF_TENSORS = ("scaled", "set", "transposed", "rolled", "dropped", "added", "cast", "negated")
OF_SAMPLES = ("dropped", "doubled", "exchanged", "reversed")
OF_EVALUATION = ("scaled", "set", "one more sample", "one more hit")
WHATS = {
    **dict.fromkeys(NUMBERS, OF_COLUMNS),
    **dict.fromkeys(STATES, OF_TENSORS),
    "samples": OF_SAMPLES,
    "evaluation": OF_EVALUATION,
}
PRECISIONS = ("float64", "float64", "float64", "float32")
MEMBERS = 4
_NOISE = {"float64": 1e-15, "float32": 1e-7}


@dataclass(frozen=True)
class Change:
    """One change of a run's contents. place: which step, tensor, element. power: of ten, of a relative change."""

    what: str
    how: str
    place: int
    power: float


@dataclass(frozen=True)
class PairCase:
    """Two records of one run: what was changed in both, and in the candidate alone."""

    precision: str
    placement: Placement
    noisy: bool
    floor: bool
    both: tuple[Change, ...]
    candidate: tuple[Change, ...]

    def __str__(self) -> str:
        done = [f"{c.what} {c.how} at {c.place} by 1e{c.power:.1f}" for c in self.candidate]
        also = [f"in both {c.what} {c.how}" for c in self.both]
        return f"{self.precision}, {self.placement.label}: {'; '.join([*done, *also]) or 'nothing'}"


_PLACES = st.integers(0, 1 << 16)
changes = st.sampled_from(sorted(WHATS)).flatmap(
    lambda what: st.builds(
        Change, st.just(what), st.sampled_from(WHATS[what]), _PLACES, st.floats(-17, 3, allow_nan=False)
    )
)
few = st.lists(changes, max_size=2).map(tuple)
cases = st.builds(
    PairCase,
    st.sampled_from(PRECISIONS),
    st.sampled_from((DDP, MIRRORED)),
    st.booleans(),
    st.booleans(),
    st.one_of(st.just(()), few),
    few,
)


def write(case: PairCase, folder: Path) -> tuple[Path, Path, list[Path]]:
    """Write the records of a case: the reference, the candidate, and permuted runs that show a noise floor.

    Raises:
        RecordError: a record that no training could have written; it is refused when it is read back.
    """
    noise = _NOISE[case.precision]
    run = Run.of(tiny_spec(f"precision={case.precision}"), TORCH)
    reference = run.copy()
    candidate = (run.noisy(noise, 1) if case.noisy else run).copy(case.placement)
    for change in case.both:
        apply(reference, change)
        apply(candidate, change)
    for change in case.candidate:
        apply(candidate, change)
    made = [reference.write(folder / "reference").folder, candidate.write(folder / "candidate").folder]
    members = range(MEMBERS if case.floor else 0)
    floors = [reference.noisy(noise, 2 + seed).write(folder / f"floor_{seed}").folder for seed in members]
    return made[0], made[1], floors


def apply(run: Run, change: Change) -> None:
    """Change a run's contents in place."""
    if change.what in NUMBERS:
        _column(run, change)
    elif change.what in STATES:
        _tensor(run, change)
    elif change.what == "samples":
        _samples(run, change)
    else:
        loss, count, correct = run.evaluation
        numbers = {
            "scaled": (loss * (1 + 10**change.power), count, correct),
            "set": (VALUES[change.place % len(VALUES)], count, correct),
            "one more sample": (loss, count + 1, correct),
            "one more hit": (loss, count, correct + 1),
        }
        run.evaluation = numbers[change.how]


def _column(run: Run, change: Change) -> None:
    column, place = run.column(change.what), change.place % len(run.numbers)
    if change.how == "scaled":
        column[place] *= 1 + 10**change.power
    elif change.how == "set":
        column[place] = VALUES[change.place % len(VALUES)]
    else:
        column[[place, place - 1]] = column[[place - 1, place]]


def _tensor(run: Run, change: Change) -> None:
    state = run.states[change.what]
    name = sorted(state)[change.place % len(state)]
    value = np.array(state[name])
    at = change.place // 7 % value.size
    with np.errstate(over="ignore", invalid="ignore"):
        if change.how == "scaled" and value.dtype.kind == "f":
            value.flat[at] *= 1 + 10**change.power
        elif change.how == "set" and value.dtype.kind == "f":
            value.flat[at] = VALUES[change.place % len(VALUES)]
        elif change.how == "transposed":
            value = np.ascontiguousarray(value.T)
        elif change.how == "rolled":
            value = np.roll(value, 1)
        elif change.how == "negated":
            value = -value
        elif change.how == "cast":
            value = value.astype(np.float32)
    if change.how == "dropped":
        del state[name]
    else:
        state[f"{name}_more" if change.how == "added" else name] = value


def _samples(run: Run, change: Change) -> None:
    replicas = run.ids[change.place % len(run.ids)]
    here = change.place % len(replicas)
    ids = replicas[here]
    if change.how == "dropped":
        replicas[here] = ids[:-1]
    elif change.how == "doubled" and len(ids):
        replicas[here] = np.append(ids, ids[:1])
    elif change.how == "reversed":
        replicas[here] = ids[::-1].copy()
    else:
        replicas[here], replicas[here - 1] = replicas[here - 1], ids
