"""Pairs of the largest total worth, in order or in any order, and what belongs together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]


def in_order(rows: int, columns: int, worth: Callable[[int, int], float | None]) -> list[tuple[int, int]]:
    """Return the pairs (row, column), none of which crosses another, that are worth most together.

    Needleman and Wunsch 1970; what is left out costs nothing.

    Args:
        rows, columns: how many there are.
        worth: of a pair, above 0; None or 0 where it is not possible.
    """
    worths = [[worth(i, j) or 0.0 for j in range(columns)] for i in range(rows)]
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        here, below, own = best[i], best[i + 1], worths[i]
        for j in range(columns - 1, -1, -1):
            value = max(below[j], here[j + 1])
            here[j] = max(value, below[j + 1] + own[j]) if own[j] else value
    found = []
    i = j = 0
    while i < rows and j < columns:
        if worths[i][j] and best[i][j] == best[i + 1][j + 1] + worths[i][j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def assign(worth: ArrayLike) -> dict[int, int]:
    """Return row -> column: as many pairs as possible, and of these choices the one that is worth most together.

    Args:
        worth: [rows, columns]; -inf where a pair is not possible.
    """
    from scipy import optimize

    worths = np.asarray(worth, np.float64)
    possible = np.isfinite(worths)
    if not possible.any():
        return {}
    least, most = worths[possible].min(), worths[possible].max()
    # Another pair is worth more than any choice between pairs.
    gains = np.where(possible, worths - least + (most - least) * min(worths.shape) + 1.0, 0.0)
    rows, columns = optimize.linear_sum_assignment(gains, maximize=True)
    return {i: j for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if possible[i, j]}


def connected(one: ArrayLike, other: ArrayLike, count: int) -> Indices:
    """Return a label for each of `count` nodes, equal for those that the edges one[k] - other[k] connect."""
    from scipy import sparse

    ends = np.asarray(one, np.int64), np.asarray(other, np.int64)
    graph = sparse.coo_array((np.ones(len(ends[0]), np.int8), ends), (count, count))
    return np.asarray(sparse.csgraph.connected_components(graph, directed=False)[1])
