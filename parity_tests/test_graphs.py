"""Pairings and groups against all that there are of small ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.common.external.mapping.graphs import assign, connected, in_order

WORTHS = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5]), min_size=4, max_size=4), min_size=1, max_size=4
)


def pairings(rows: int, columns: int) -> list[tuple[tuple[int, int], ...]]:
    """Every choice of pairs that gives no row and no column two partners."""
    return [
        tuple(zip(ours, theirs, strict=True))
        for size in range(min(rows, columns) + 1)
        for ours in itertools.combinations(range(rows), size)
        for theirs in itertools.permutations(range(columns), size)
    ]


@given(WORTHS)
@settings(max_examples=40, deadline=None)
def test_pairs_in_order_are_worth_most(worths: list[list[float]]) -> None:
    found = in_order(len(worths), 4, lambda i, j: worths[i][j] or None)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(found))
    assert all(worths[i][j] for i, j in found)
    best = max(
        sum(worths[i][j] for i, j in pairs)
        for pairs in pairings(len(worths), 4)
        if all(a[1] < b[1] for a, b in itertools.pairwise(pairs))
    )
    assert sum(worths[i][j] for i, j in found) == best


@given(WORTHS)
@settings(max_examples=40, deadline=None)
def test_an_assignment_pairs_as_many_as_it_can_and_is_worth_most(rows: list[list[float]]) -> None:
    worths = np.array(rows)
    worths[worths == 0.0] = -np.inf
    found = assign(worths)
    assert all(np.isfinite(worths[i, j]) for i, j in found.items())
    assert len(set(found.values())) == len(found)
    values = [
        (len(pairs), sum(worths[i, j] for i, j in pairs))
        for pairs in pairings(*worths.shape)
        if all(np.isfinite(worths[i, j]) for i, j in pairs)
    ]
    assert (len(found), sum(worths[i, j] for i, j in found.items())) == max(values)


def test_an_assignment_is_not_the_nearest_first() -> None:
    """The negative control: who takes the best pair first leaves a worse one, or none."""
    assert assign([[3.0, 2.9], [2.0, 0.0]]) == {0: 1, 1: 0}
    assert assign([[3.0, 1.0], [2.0, -np.inf]]) == {0: 1, 1: 0}


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_of_nothing_nothing_is_paired(shape: tuple[int, int]) -> None:
    assert assign(np.empty(shape)) == {} and in_order(*shape, lambda i, j: 1.0) == []


def test_what_edges_connect_has_one_label() -> None:
    labels = connected([0, 4, 2], [3, 4, 3], 6).tolist()
    assert labels[0] == labels[2] == labels[3]
    assert len(set(labels)) == 4
    assert len(set(connected([], [], 3).tolist())) == 3
