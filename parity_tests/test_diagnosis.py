"""The diagnosis leads to every planted fault: that there is one, in which tensor, and why; also to two at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from parity.common.diagnosis.explain.causes import FAILED
from parity.common.diagnosis.replays import diagnose
from parity.common.diagnosis.result import Diagnosis
from parity_tests.faults.registry import Diagnosed, FaultPair, parameters
from parity_tests.helpers.run_cache import CachedReplayer, RunCache
from parity_tests.tables.diagnosis import CASES, PAIRS, DiagnosisTable, Outcome, PairOutcome


class Diagnoser:
    """Diagnoses of faults on request, each made once; the two frameworks' candidates side by side."""

    def __init__(self, run_cache: RunCache, table: DiagnosisTable, folder: Path, stack: ExitStack) -> None:
        self._run_cache, self._table, self._folder = run_cache, table, folder
        self._made: dict[str, Future[Diagnosis]] = {}
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("tensorflow", "torch")}
        self._replayer = CachedReplayer(run_cache)
        for thread in self._threads.values():
            stack.callback(thread.shutdown, cancel_futures=True)

    def begin(self, case: Diagnosed | FaultPair) -> Future[Diagnosis]:
        """Have a diagnosis made, without waiting for it."""
        if case.id not in self._made:
            out = self._folder / f"diagnosis_{len(self._made)}"
            thread = self._threads[case.placement.framework]
            self._made[case.id] = thread.submit(self._diagnosed, case, out)
        return self._made[case.id]

    def _diagnosed(self, case: Diagnosed | FaultPair, out: Path) -> Diagnosis:
        reference = self._run_cache.record(case.spec, case.reference)
        candidate = self._run_cache.record(case.spec, case.placement, case.fault)
        self._table.versions |= reference.header.versions | candidate.header.versions
        return diagnose(reference, candidate, self._replayer, out, contexts=(None, case.inside))

    def outcome(self, case: Diagnosed) -> Outcome:
        """What is said of a fault."""
        try:
            outcome = Outcome(case, self.begin(case).result())
        except Exception as error:  # one that crashes is a miss, and the others go on
            outcome = Outcome(case, None, f"{type(error).__name__}: {error}")
        self._table.outcomes[case.id] = outcome
        return outcome

    def pair(self, pair: FaultPair) -> PairOutcome:
        """What is said of two."""
        try:
            outcome = PairOutcome(pair, self.begin(pair).result())
        except Exception as error:
            outcome = PairOutcome(pair, None, f"{type(error).__name__}: {error}")
        self._table.pairs[pair.id] = outcome
        return outcome


@pytest.fixture(scope="module")
def diagnoser(
    request: pytest.FixtureRequest,
    run_cache: RunCache,
    diagnoses: DiagnosisTable,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Diagnoser]:
    """With every selected diagnosis begun, so that neither framework waits for the other."""
    with ExitStack() as stack:
        made = Diagnoser(run_cache, diagnoses, tmp_path_factory.mktemp("diagnoses"), stack)
        for item in request.session.items:
            if item.module is request.module and hasattr(item, "callspec"):
                made.begin(item.callspec.params["case"])
        yield made


@pytest.mark.parametrize("case", parameters(CASES))
def test_fault_is_found_and_named(diagnoser: Diagnoser, case: Diagnosed) -> None:
    outcome = diagnoser.outcome(case)
    assert outcome.detected, outcome.said
    assert outcome.diagnosis is not None
    assert not [note for note in outcome.diagnosis.notes if note.startswith(FAILED)]
    right = outcome.placed and outcome.named
    assert right != bool(case.missed), f"expected {outcome.expected}, received {outcome.said}"


@pytest.mark.parametrize("case", parameters(PAIRS))
def test_both_faults_are_found(diagnoser: Diagnoser, case: FaultPair) -> None:
    outcome = diagnoser.pair(case)
    assert all(outcome.found) != bool(case.missed), f"found {outcome.found}: {outcome.said}"


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)  # it may be the first that waits for all
def test_shares_of_what_is_found(diagnoser: Diagnoser) -> None:
    """Over all cases, whatever single ones say."""
    for case in (*CASES, *PAIRS):
        diagnoser.begin(case)
    outcomes = [diagnoser.outcome(case) for case in CASES]
    pairs = [diagnoser.pair(pair) for pair in PAIRS]
    assert all(outcome.detected for outcome in outcomes)
    assert _share(outcome.placed for outcome in outcomes) >= 0.99
    assert _share(outcome.named for outcome in outcomes) >= 0.98
    assert _share(all(outcome.found) for outcome in pairs) >= 0.95


def _share(right: Iterator[bool]) -> float:
    each = list(right)
    return sum(each) / len(each)
