"""What several suites use."""

from __future__ import annotations

from parity.common.parity.budget import Budget, ensemble_budget, widest
from parity.common.spec import TrainSpec
from parity_tests.helpers.matrix import tensorflow, torch
from parity_tests.helpers.run_cache import RunCache

# One replica of each framework.
SINGLES = [torch("single", 1), tensorflow(1)]


def noise_floor(run_cache: RunCache, spec: TrainSpec) -> Budget:
    """Return the wider of the two frameworks' ensemble budgets: four permuted runs of each on one replica."""
    members = {
        base.label: [base.model_copy(update={"sample_order_seed": seed}) for seed in range(4)]
        for base in SINGLES
    }
    for placement in (*SINGLES, *(member for each in members.values() for member in each)):
        run_cache.begin(spec, placement)
    return widest(
        [
            ensemble_budget(
                run_cache.record(spec, base),
                [run_cache.record(spec, member) for member in members[base.label]],
            )
            for base in SINGLES
        ]
    )
