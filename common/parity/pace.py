"""How the learning rates of one training are those of another at another pace, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

# More changes than these are no list that anybody reads.
_LISTED = 6
_PACES = range(2, 65)
# As many steps one is looked for before the other: each takes a look at all rates.
_MOST_AHEAD = 256


def pace_in_words(ours: ArrayLike, theirs: ArrayLike, slack: float, names: tuple[str, str]) -> str:
    """': the candidate's schedule is one step ahead', and where else each changes; '' where nothing of the kind is so.

    Args:
        ours, theirs: (steps,) learning rates.
        slack: within which two rates are one number.
        names: of both, as "the candidate's".
    """
    rates = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    for who, early, late in ((names[0], *rates), (names[1], *rates[::-1])):
        if ahead := _ahead(early, late, slack):
            return f": {who} schedule is {'one step' if ahead == 1 else f'{ahead} steps'} ahead{_changes(rates, slack, names)}"
    for who, fast, slow in ((names[0], *rates), (names[1], *rates[::-1])):
        if times := _faster(fast, slow, slack):
            return (
                f": {who} schedule goes {times} times as fast: its scheduler is stepped {times} times as often (per micro-batch and not per update,"
                f" per update and not per epoch), or has {times} times fewer steps in all{_changes(rates, slack, names)}"
            )
    for who, smooth, stepped in ((names[0], *rates[::-1]), (names[1], *rates)):
        if steps := _held(smooth, stepped, slack):
            return f": {who} is a staircase, which holds for {steps} steps each what the other makes anew at every step"
    return _changes(rates, slack, names).replace(";", ":", 1)


def _held(smooth: NDArray[np.float64], stepped: NDArray[np.float64], slack: float) -> int:
    """For how many steps each one holds the rate that the other has at the first of them; 0 where it does not."""
    for steps in _PACES:
        due = smooth[np.arange(len(smooth)) // steps * steps]
        if steps < len(smooth) and np.ptp(due) > slack and np.all(np.abs(stepped - due) <= slack):
            return steps
    return 0


def _ahead(early: NDArray[np.float64], late: NDArray[np.float64], slack: float) -> int:
    """How many steps before the other's the rates of one are; 0 where they are not so."""
    # Of rates that are the other's times one number, as those that halve, a shift of many steps says nothing.
    most = 1 if _proportional(early, late, slack) else _MOST_AHEAD
    for steps in range(1, min(len(early) // 2, most) + 1):
        moved, due = early[:-steps], late[steps:]
        if len(due) > 2 and np.ptp(due) > slack and np.all(np.abs(moved - due) <= slack):
            return steps
    return 0


def _proportional(early: NDArray[np.float64], late: NDArray[np.float64], slack: float) -> bool:
    """Whether the rates of one are those of the other times one number."""
    return bool(late[0]) and bool(np.all(np.abs(early - early[0] / late[0] * late) <= slack))


def _faster(fast: NDArray[np.float64], slow: NDArray[np.float64], slack: float) -> int:
    """How many times as fast as the other's the rates of one move on, from the first on or from behind it; 0 where they do not."""
    # Of a scheduler that is stepped once an epoch every rate tells, and other paces meet some of them.
    for times in _PACES:
        due = fast[np.arange(len(slow)) // times]
        if len({*due.tolist()}) > 2 and np.all(np.abs(slow - due) <= slack):
            return times
    for times in _PACES:
        for offset in (0, times - 1):
            due = slow[offset::times]
            moved = fast[: len(due)]
            if len(due) > 3 and np.ptp(due) > slack and np.all(np.abs(moved - due) <= slack):
                return times
    return 0


def _changes(rates: Sequence[NDArray[np.float64]], slack: float, names: Sequence[str]) -> str:
    """At which steps both change, where each does so a few times at most."""
    steps = [[int(step) + 1 for step in np.flatnonzero(np.abs(np.diff(each)) > slack)] for each in rates]
    if steps[0] == steps[1] or max(map(len, steps)) > _LISTED:
        return ""
    told = [f"at {', '.join(map(str, each))}" if each else "never" for each in steps]
    return f"; {names[0]} changes {told[0]}, {names[1]} {told[1]}"
