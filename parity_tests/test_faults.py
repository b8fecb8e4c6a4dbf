"""The harness can fail: every seeded fault turns the verdict red, and clean runs stay green.

Invariants are in this file, too: a run under a fault serves both, and only within one process.
"""

from __future__ import annotations

import pytest

from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import Comparison, compare
from parity_tests.faults.registry import Judged, Violated, parameters, trials
from parity_tests.helpers.floors import noise_floor
from parity_tests.helpers.run_cache import RunCache
from parity_tests.tables.figures import Figures


@pytest.fixture(scope="module")
def both_at_work(request: pytest.FixtureRequest, run_cache: RunCache) -> None:
    """Begin every selected case's runs, so that neither framework waits for the other."""
    for item in request.session.items:
        if hasattr(item, "callspec") and item.module is request.module:
            case = item.callspec.params["case"]
            if isinstance(case, Judged):
                run_cache.begin(case.spec, case.reference)
            run_cache.begin(case.spec, case.run)
            run_cache.begin(case.spec, case.run, case.fault)


def judged(run_cache: RunCache, case: Judged, fault: str | None) -> Comparison:
    reference = run_cache.record(case.spec, case.reference)
    exact = case.spec.precision == "float64"
    budget = proof_budget(reference) if exact else noise_floor(run_cache, case.spec)
    return compare(reference, run_cache.record(case.spec, case.run, fault), budget)


@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", parameters(trials(Judged)))
@pytest.mark.usefixtures("both_at_work")
def test_fault_turns_the_verdict_red(run_cache: RunCache, figures: Figures, case: Judged) -> None:
    clean = judged(run_cache, case, None)
    assert clean.verdict == "parity", clean.reason
    faulty = judged(run_cache, case, case.fault)
    assert faulty.verdict == "divergent"
    assert faulty.first_failure is not None
    if case.spec.precision == "float64":
        figures.faults[case.placement.framework, case.placement.label, case.fault] = faulty


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", parameters(trials(Violated)))
@pytest.mark.usefixtures("both_at_work")
def test_fault_violates_an_invariant_at_its_step(run_cache: RunCache, case: Violated) -> None:
    record = run_cache.record(case.spec, case.run, case.fault)
    assert {violation.invariant for violation in record.violations} == {case.invariant}
    assert record.violations[0].step == case.step
    assert run_cache.record(case.spec, case.run).violations == ()
