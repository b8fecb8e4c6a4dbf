"""The batch-split figure of the HTML report: which replica got which sample."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.data.plan import BatchPlan
from parity.common.parity.sample_ids import kept_ids
from parity.common.record import RunRecord
from parity.common.report.html.plots import PALETTE, Figure, Rows, Trace, axis, framed

# The window that is drawn: the first steps, the tail of the first epoch, and the first wrong steps.
FIRST_STEPS, TAIL_STEPS, WRONG_STEPS = 50, 4, 4
MOST_POSITIONS = 256
BEYOND, NOBODY, SEVERAL = -3, -1, -2
_FAULTS = {NOBODY: ("#000000", "went to no replica"), SEVERAL: ("#FF00FF", "went to several replicas")}


def split_figure(record: RunRecord, wrong_steps: Sequence[int] = ()) -> Figure:
    """Steps across, position in the global batch up, coloured by replica; `wrong_steps` are marked."""
    rows = split_rows(record, wrong_steps)
    positions = split_positions(record)
    replica, sample = received(record, rows, positions)
    gaps = np.flatnonzero(np.diff(rows) > 1) + 1
    names = [str(step) for step in record.steps[rows]]
    for number, gap in enumerate(gaps[::-1].tolist()):
        # Each gap a category of its own: equal names would be one column.
        names.insert(gap, "…" + "\u200b" * number)
    replica = np.insert(replica, gaps, BEYOND, axis=1)
    sample = np.insert(sample, gaps, -1, axis=1)
    cells = {"type": "heatmap", "x": names, "y": positions, "xgap": 2, "hoverongaps": False}
    traces = [cells | _replicas(replica, sample, most_replicas(record))]
    traces += [cells | _fault(replica == code, code) for code in _FAULTS if (replica == code).any()]
    wrong = [str(step) for step in wrong_steps if str(step) in names]
    if wrong:
        # A cross above each wrong column: one wrong sample among many would be too thin to see.
        heights = [int(positions[-1]) * 1.05 + 1] * len(wrong)
        mark = {"symbol": "x", "size": 11, "color": "#D55E00"}
        said = {"showlegend": False, "hovertemplate": "step %{x} is not as planned<extra></extra>"}
        traces.append({"type": "scatter", "mode": "markers", "x": wrong, "y": heights, "marker": mark} | said)
    x = axis("step") | {"type": "category", "showgrid": False, "nticks": 20}
    y = axis("position in the global batch") | {"showgrid": False}
    return framed(traces, x, y, 420, {"hovermode": "closest", "shapes": _epoch_lines(record, names)})


def most_replicas(record: RunRecord) -> int:
    """Replicas of a run; of one that went on, the most that it had."""
    return max(part.placement.replicas for part in record.parts)


def split_rows(record: RunRecord, wrong_steps: Sequence[int] = ()) -> Rows:
    """Rows of the window, ascending, of which the record has the sample ids."""
    rows = np.arange(len(record.steps))
    there = np.concatenate([_with_ids(part) for part in record.parts])
    per_epoch = BatchPlan.of(record.spec, record.placement).steps_per_epoch
    end = per_epoch - int(record.steps[0]) % per_epoch
    tail = (rows >= end - TAIL_STEPS) & (rows < end)
    wrong = np.isin(record.steps, sorted(wrong_steps)[:WRONG_STEPS])
    shown: Rows = rows[((rows < FIRST_STEPS) | tail | wrong) & there]
    return shown


def _with_ids(part: RunRecord) -> NDArray[np.bool_]:
    """Of which steps a part has sample ids."""
    there: NDArray[np.bool_] = np.arange(len(part.steps)) < part.received.whole
    there |= np.isin(part.steps, list(part.received.kept))
    return there


def split_positions(record: RunRecord) -> Rows:
    """Positions drawn: all of a small batch; of a large one a choice that shows the pattern."""
    size = min(record.spec.global_batch_size, record.spec.data.train_samples)
    if size <= MOST_POSITIONS:
        return np.arange(size)
    if record.spec.data.split == "strided":
        # Every k-th position could meet the same replica each time.
        return np.arange(MOST_POSITIONS)
    return np.linspace(0, size - 1, MOST_POSITIONS).round().astype(np.int64)


def received(record: RunRecord, rows: Rows, positions: Rows) -> tuple[Rows, Rows]:
    """Replica (or NOBODY, SEVERAL, BEYOND the batch) and sample id, by (position, row), as recorded."""
    replica = np.full((len(positions), len(rows)), BEYOND)
    sample = np.full((len(positions), len(rows)), -1)
    ends = np.cumsum([len(part.steps) for part in record.parts])
    plans = [BatchPlan.of(part.spec, part.placement) for part in record.parts]
    for column, row in enumerate(rows.tolist()):
        number = int(np.searchsorted(ends, row, side="right"))
        part, plan, step = record.parts[number], plans[number], int(record.steps[row])
        ids = plan.global_ids(step)
        inside = positions < len(ids)
        wanted = ids[positions[inside]]
        own = row - int(ends[number]) + len(part.steps)
        local = part.received.ids(own) if own < part.received.whole else kept_ids(part, plan, step)
        owners = np.repeat(np.arange(len(local)), [len(local_ids) for local_ids in local])
        held, first, times = np.unique(np.concatenate(local), return_index=True, return_counts=True)
        holders = np.full(len(wanted), NOBODY)
        if len(held):
            found = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
            known = held[found] == wanted
            holders[known] = np.where(times[found] > 1, SEVERAL, owners[first[found]])[known]
        replica[inside, column] = holders
        sample[inside, column] = wanted
    return replica, sample


def _replicas(replica: Rows, sample: Rows, replicas: int) -> Trace:
    colours = min(replicas, len(PALETTE))
    names = [f"replica {number}" for number in range(colours)]
    return {
        "z": np.where(replica >= 0, replica % colours, np.nan).astype(np.float32),
        "customdata": np.stack([replica, sample], axis=-1).astype(np.int32),
        "hovertemplate": "step %{x}, position %{y}<br>replica %{customdata[0]}<br>"
        "sample %{customdata[1]}<extra></extra>",
        "colorscale": _flat_steps(PALETTE[:colours]),
        "zmin": -0.5,
        "zmax": colours - 0.5,
        "showscale": replicas <= colours,
        "colorbar": {"tickvals": list(range(colours)), "ticktext": names}
        | {"ticks": "", "outlinewidth": 0, "thickness": 14},
    }


def _fault(where: NDArray[np.bool_], code: int) -> Trace:
    colour, words = _FAULTS[code]
    return {
        "z": np.where(where, 1.0, np.nan).astype(np.float32),
        "colorscale": [[0, colour], [1, colour]],
        "showscale": False,
        "hovertemplate": f"step %{{x}}, position %{{y}}<br>{words}<extra></extra>",
    }


def _epoch_lines(record: RunRecord, names: list[str]) -> list[dict[str, Any]]:
    plan = BatchPlan.of(record.spec, record.placement)
    lines = []
    for column, (name, following) in enumerate(pairwise(names)):
        both = name.isdecimal() and following.isdecimal()
        if both and plan.epoch(int(name)) != plan.epoch(int(following)):
            at = column + 0.5
            line = {"width": 1.5, "dash": "dot", "color": "#7A7A7A"}
            lines.append(
                {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": line}
            )
    return lines


def _flat_steps(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale without transitions."""
    edges = np.linspace(0, 1, len(colours) + 1).tolist()
    return [[edge, c] for c, *ends in zip(colours, edges, edges[1:], strict=False) for edge in ends]
