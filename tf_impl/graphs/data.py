"""Batches of several steps for one call of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from parity.common.data.plan import BatchPlan
from parity.common.data.samples import Samples
from parity.tf_impl.data import _distributed
from parity.tf_impl.strategy import Strategy


def joined(plan: BatchPlan, samples: Samples, strategy: Strategy, calls: Iterable[range]) -> Iterator[Any]:
    """Per call: its steps' batches, one after another, and how many samples of a replica each step has."""
    items = ([(plan.global_ids(step), plan.epoch(step)) for step in steps] for steps in calls)
    return _distributed(items, plan, samples, strategy, sizes=True)
