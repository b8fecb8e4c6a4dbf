"""When a study ends, and with what: the rule that reports, plans and simulations share.

At each look, by the levels of `sequential`:

equivalent  both one-sided tests reject; where the difference is shown too, it is real, and smaller than the margin
different   the difference is shown, and its estimate is not within the margin
undecided   neither; a difference that is shown but whose estimate is within the margin is one, too, until more seeds show that
            it is smaller
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.common.study.equivalence import Margin, Numbers, t_tests
from parity.common.study.sequential import levels


class Decided(NamedTuple):
    """How studies end, each (studies...).

    Whether equivalent, whether different, whether a difference is shown, however small, and after how many seeds.
    """

    equivalent: NDArray[np.bool_]
    different: NDArray[np.bool_]
    differs: NDArray[np.bool_]
    seeds: NDArray[np.int64]


Flag = Any  # a bool, or an array of them


def ended(equal: Flag, shown: Flag, outside: Flag) -> tuple[Flag, Flag]:
    """Return whether a figure is equivalent and whether it is different after a look, as bools or arrays of them.

    Args:
        equal: whether equivalence has been shown, by this look.
        shown: whether a difference has.
        outside: whether the estimate is not within the margin.
    """
    return equal, np.logical_and(np.logical_and(shown, outside), np.logical_not(equal))


def decide(
    a: Numbers, b: Numbers, margin: Margin, looks: tuple[int, ...], alpha: float, paired: bool
) -> Decided:
    """Return how studies of one figure end.

    Args:
        a, b: float64 (studies..., seeds) of reference and candidate.
        margin: what is too small to matter.
        looks: after how many seeds, ascending; the last is that of all seeds.
        alpha: the error of the whole study, of a wrong "equivalent" and of a wrong "different" each.
        paired: whether a seed's two figures belong together.
    """
    shares = tuple(look / looks[-1] for look in looks)
    one, two = levels(shares, alpha, 1), levels(shares, alpha, 2)
    shape = a.shape[:-1]
    equivalent, different, shown = (np.zeros(shape, bool) for _ in range(3))
    seeds = np.full(shape, looks[-1])
    for number, look in enumerate(looks):
        open_ = ~(equivalent | different)
        now = t_tests(a[..., :look], b[..., :look], margin, paired)
        shown |= open_ & (now.difference <= two[number])
        equal = open_ & (now.equivalence <= one[number])
        outside = np.abs(now.estimate) >= margin.of_seeds(a[..., :look]).mean(-1)
        equal, apart = ended(equal, open_ & shown, outside)
        equivalent, different = equivalent | equal, different | apart
        seeds = np.where(equal | apart, look, seeds)
    return Decided(equivalent, different, shown, seeds)
