"""Phase times: all that was asked for is there, and asking changes nothing else of a record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from parity.common.base.errors import SpecError
from parity.common.execution.checks import check_run
from parity.common.execution.phases import Probe, conduct, facts_of
from parity.common.record import RunRecord
from parity.common.spec import Placement, RunConfig, TrainSpec
from parity.common.state.canonical import load_state, parameter_specs
from parity_tests.helpers.matrix import config, small, tensorflow, torch
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache

SPEC = small("digits_mlp", "steps=3")
REPEATS = 3
PHASES = {"data", "forward", "backward", "communication", "optimizer", "exposed_communication", "step"}
# Times as they were taken; the others are differences.
RAW = PHASES - {"backward", "exposed_communication"}
PLACEMENTS = [tensorflow(2), torch("single", 1), torch("ddp", 2), torch("fsdp2", 2)]
NUMBER = 8  # bytes of a float64


def timed(run_cache: RunCache, placement: Placement, spec: TrainSpec = SPEC) -> RunRecord:
    return run_cache.record(spec, config(placement, phase_repeats=REPEATS))


def parameters() -> int:
    found = parameter_specs(SPEC.resolved()).values()
    return sum(math.prod(tensor.shape) for tensor in found if tensor.trainable)


def sent(record: RunRecord, rank: int = 0) -> dict[str, int]:
    total: dict[str, int] = {}
    for operation, size in record.phases[rank]["messages"]:
        total[operation] = total.get(operation, 0) + size
    return total


def assert_measured(record: RunRecord, names: set[str]) -> None:
    assert len(record.phases) == record.placement.processes
    for facts in record.phases:
        assert set(facts["seconds"]) == names
        for name, times in facts["seconds"].items():
            assert len(times) == REPEATS and np.isfinite(times).all()
            assert name not in RAW or min(times) >= 0


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda p: p.label)
def test_every_phase_is_timed_by_every_rank(run_cache: RunCache, placement: Placement) -> None:
    assert_measured(timed(run_cache, placement), PHASES)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda p: p.label)
def test_the_rest_of_the_record_is_the_same(run_cache: RunCache, placement: Placement) -> None:
    plain, record = run_cache.record(SPEC, placement), timed(run_cache, placement)
    assert plain.phases == []
    for name in ("loss_sum", "count", "gradient_norm", "parameter_norm", "update_norm"):
        assert (plain.columns[name] == record.columns[name]).all(), name
    assert plain.summary is not None and record.summary is not None
    assert plain.summary.eval_loss_sum == record.summary.eval_loss_sum
    ours, theirs = (load_state(each.folder / "final.safetensors") for each in (plain, record))
    assert all((value == theirs[name]).all() for name, value in ours.items())


def test_one_replica_sends_nothing(run_cache: RunCache) -> None:
    record = timed(run_cache, torch("single", 1))
    assert sent(record) == {}
    seconds = record.phases[0]["seconds"]
    assert seconds["communication"] == seconds["exposed_communication"] == [0.0] * REPEATS


def test_bytes_of_replicated_parameters(run_cache: RunCache) -> None:
    """Every gradient once, and the loss sum with the count; between processes also the parameters' norm."""
    assert sent(timed(run_cache, torch("ddp", 2))) == {"all_reduce": NUMBER * (parameters() + 3)}
    assert sent(timed(run_cache, tensorflow(2))) == {"all_reduce": NUMBER * (parameters() + 2)}


def test_bytes_of_sharded_parameters(run_cache: RunCache) -> None:
    found = sent(timed(run_cache, torch("fsdp2", 2)))
    # Ten classes and a width of two ranks' rows: nothing has to be padded. Loss sum and count for each rank; norms.
    whole = NUMBER * (parameters() + 2 * 2)
    assert found == {"all_gather": whole, "reduce_scatter": whole, "all_reduce": 3 * NUMBER}


def rarely(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.exhaustive)


MORE = [
    (torch("ddp", 2, accumulation=2), PHASES),
    rarely(tensorflow(2, accumulation=2), PHASES),
    rarely(torch("ddp", 2, engine="fabric"), PHASES),
    rarely(torch("manual", 2), PHASES),
    rarely(torch("zero_redundancy", 2), PHASES),
    (torch("fsdp2", 2, options={"wrap": "blocks", "reshard": True}), PHASES),
    (torch("fsdp1", 2), {"data", "optimizer", "step"}),
    rarely(torch("ddp", 2, options={"static_graph": True}), {"data", "optimizer", "step"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "names"), MORE, ids=lambda v: getattr(v, "label", ""))
def test_other_ways_to_train(run_cache: RunCache, placement: Placement, names: set[str]) -> None:
    assert_measured(timed(run_cache, placement), names)


@pytest.mark.slow
def test_messages_of_what_only_some_models_need(run_cache: RunCache) -> None:
    """Parameters freed after the forward pass are gathered twice; batch norm tells of its statistics."""
    freed = sent(timed(run_cache, torch("fsdp2", 2, options={"wrap": "blocks", "reshard": True})))
    assert freed["all_gather"] == 2 * freed["reduce_scatter"] == 2 * NUMBER * parameters()
    cnn = small("digits_cnn", "steps=3")
    gathered = sent(timed(run_cache, torch("ddp", 2), cnn))["all_gather"]
    assert gathered == 2 * NUMBER * ((2 * 8 + 1) + (2 * 16 + 1))


@pytest.mark.parametrize(
    "placement",
    [
        torch("tensor_parallel", 1),
        torch("deepspeed", 2),
        torch("ddp", 2, engine="lightning"),
        tensorflow(2, engine="keras"),
        tensorflow(2, steps_per_call=4),
        tensorflow(2, compile=True),
        config(tensorflow(2), taps=True),
    ],
    ids=lambda p: p.label,
)
def test_what_cannot_be_taken_apart_is_refused(placement: Placement | RunConfig) -> None:
    spec = small("digits_transformer", "precision=float32").resolved()
    with pytest.raises(SpecError, match="phases cannot be timed") as caught:
        check_run(spec, *config(placement, phase_repeats=1).parts)
    one_line(caught.value)
    check_run(spec, *config(placement).parts)


class Rank:
    """Notes what a rank does."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def probe(self, name: str) -> Probe:
        @contextmanager
        def around() -> Iterator[None]:
            self.done.append(f"prepare {name}")
            yield
            self.done.append(f"tidy {name}")

        return Probe(lambda: self.done.append(name), around)


def test_ranks_take_the_same_order_anew_each_time() -> None:
    names, ranks = ["a", "b", "c", "d"], [Rank(), Rank()]
    for rank in ranks:
        probes = {name: rank.probe(name) for name in names}
        seconds = conduct(probes, 6, lambda rank=rank: rank.done.append("barrier"), lambda: None)
        assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(names, 6)
    assert ranks[0].done == ranks[1].done
    ran = [step for step in ranks[0].done if step in names]
    rounds = [tuple(ran[start : start + 4]) for start in range(0, len(ran), 4)]
    assert len(rounds) == 7 and all(set(each) == set(names) for each in rounds) and len(set(rounds)) > 1
    start = ranks[0].done.index("prepare a")
    assert ranks[0].done[start : start + 4] == ["prepare a", "barrier", "a", "tidy a"]


def test_differences_are_left_as_they_are() -> None:
    facts = facts_of(
        {"forward": [1.0, 2.0], "passes": [3.0, 1.5], "reduced": [3.5, 1.25], "communication": [0.5, 0.7]},
        [("all_reduce", 80)],
    )
    assert facts == {
        "seconds": {
            "forward": [1.0, 2.0],
            "backward": [2.0, -0.5],
            "exposed_communication": [0.5, -0.25],
            "communication": [0.5, 0.7],
        },
        "messages": [["all_reduce", 80]],
    }
    # What was not measured is not there, rather than 0.
    assert facts_of({"step": [1.0]}, [])["seconds"] == {"step": [1.0]}
