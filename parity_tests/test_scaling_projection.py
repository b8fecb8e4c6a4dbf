"""Links and projections against closed forms, enumeration and real measurements."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity.common.scaling.links import (
    ALGORITHMS,
    LOOPBACK,
    OPERATIONS,
    PRESETS,
    Link,
    Measured,
    Network,
    fastest,
    fit_link,
    network_seconds,
    parse_link,
    seconds,
    terms,
)
from parity.common.scaling.projection import Model, measured_link, project
from parity.common.scaling.result import Configuration, Interval, Mode, PhaseTimes, Projection
from parity_tests.helpers.records import one_line

LINK = Link("test", 1e-5, 1e9, "made up")
SOME = settings(max_examples=40, deadline=None)

# `parity collectives` of gloo, 2 ranks on 2 cores, 2026-11-21: (operation, bytes, median seconds of 20).
MEASURED = [
    Measured(operation, 4 ** (k + 5), 2, 1e-6 * micro)
    for operation, times in {
        "all_reduce": (305.4, 233.5, 243.0, 325.6, 342.3, 2544.0, 3908.5, 9429.3),
        "all_gather": (299.5, 225.4, 272.9, 285.6, 410.0, 527.0, 2608.9, 12001.6),
    }.items()
    for k, micro in enumerate(times)
]


# --- collectives ---


def ring_by_hand(operation: str, size: float, devices: int) -> float:
    """Every step of a ring sends one of p parts to the neighbour."""
    rounds = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}[operation]
    return sum(LINK.alpha + size / devices / LINK.bandwidth for _ in range(rounds * (devices - 1)))


def halving_by_hand(operation: str, size: float, devices: int) -> float:
    """Parts halve from step to step; gathering doubles them again."""
    total, part = 0.0, size
    while part > size / devices * 1.5:
        part /= 2
        total += LINK.alpha + part / LINK.bandwidth
    return total * (2 if operation == "all_reduce" else 1)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "broadcast"])
@pytest.mark.parametrize("devices", [2, 4, 8, 64])
def test_closed_forms_are_the_sums_of_their_steps(operation: str, devices: int) -> None:
    for size in (1.0, 1e4, 1e8):
        assert seconds(LINK, "ring", operation, size, devices) == pytest.approx(
            ring_by_hand(operation, size, devices)
        )
        assert seconds(LINK, "recursive halving", operation, size, devices) == pytest.approx(
            halving_by_hand(operation, size, devices)
        )


def test_trees_and_doubling_by_hand() -> None:
    # 8 devices: three levels up and three down; three exchanges of everything.
    assert terms("tree", "all_reduce", 8) == (6, 2.0)
    assert terms("recursive doubling", "all_reduce", 8) == (3, 3.0)
    assert terms("tree", "all_reduce", 5) == (6, 2.0)
    assert terms("tree", "all_gather", 8) is None
    assert terms("recursive doubling", "broadcast", 5) == (3, 3.0)
    with pytest.raises(ValueError, match="gossip"):
        terms("ring", "gossip", 2)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_device_sends_nothing(algorithm: str) -> None:
    assert seconds(LINK, algorithm, "all_reduce", 1e9, 1) == 0


@pytest.mark.parametrize("devices", [2, 3, 16, 1000])
def test_a_ring_all_reduce_is_a_scatter_and_a_gather(devices: int) -> None:
    parts = [seconds(LINK, "ring", name, 1e6, devices) for name in ("reduce_scatter", "all_gather")]
    assert seconds(LINK, "ring", "all_reduce", 1e6, devices) == pytest.approx(sum(parts))


def test_small_messages_double_and_large_ones_do_not() -> None:
    network = Network(LINK)
    assert fastest(network, "all_reduce", 8, 64)[1] == "recursive doubling"
    assert fastest(network, "all_reduce", 1e9, 64)[1] in ("ring", "recursive halving")
    # No algorithm moves less than 2 (p - 1)/p of the bytes, nor in less than log2 p messages.
    for size in (8.0, 1e5, 1e9):
        bound = max(2 * 63 / 64 * size / LINK.bandwidth, 6 * LINK.alpha)
        assert fastest(network, "all_reduce", size, 64)[0] >= bound


def test_nodes_reduce_inside_first() -> None:
    inner, outer = Link("in", 1e-6, 1e11, ""), Link("out", 1e-5, 1e10, "")
    network = Network(inner, outer, 8)
    # 32 devices: 4 nodes; a device's part is an eighth.
    expected = 2 * (7 * 1e-6 + 7 / 8 * 1e8 / 1e11) + 2 * (3 * 1e-5 + 3 / 4 * (1e8 / 8) / 1e10)
    assert network_seconds(network, "ring", "all_reduce", 1e8, 32) == pytest.approx(expected)
    assert network_seconds(network, "ring", "all_reduce", 1e8, 8) == seconds(
        inner, "ring", "all_reduce", 1e8, 8
    )
    flat = Network(outer)
    assert network_seconds(network, "ring", "all_reduce", 1e8, 32) < fastest(flat, "all_reduce", 1e8, 32)[0]


# --- links from text and from measurements ---


def test_links_from_text() -> None:
    assert parse_link("ndr").inner is PRESETS["ndr"]
    given = parse_link("alpha=5us,beta=25GB/s").inner
    assert (given.alpha, given.bandwidth) == pytest.approx((5e-6, 25e9))
    assert parse_link("alpha=0.5ms,beta=200Gbit/s").inner.bandwidth == pytest.approx(25e9)
    network = parse_link("nvlink4*8+alpha=5us,beta=25GB/s")
    assert (network.per_node, network.inner) == (8, PRESETS["nvlink4"])
    assert network.outer is not None and network.outer.alpha == pytest.approx(5e-6)
    assert all(0 < link.alpha < 1e-3 and link.bandwidth > 1e9 and link.source for link in PRESETS.values())


@pytest.mark.parametrize(
    "text",
    ["", "fast", "alpha=5us", "alpha=5us,beta=0GB/s", "alpha=5,beta=1GB/s", "beta=1GB/s,alpha=5us", "ndr+ndr",
     "ndr*1+ndr", "ndr*x+ndr", "ndr*8+slow", "alpha=-1us,beta=1GB/s", "alpha=5us,beta=1e400GB/s"],
)  # fmt: skip
def test_links_that_are_none(text: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_link(text)
    assert "--link" in one_line(error.value)


@given(st.floats(1e-7, 1e-3), st.floats(1e8, 1e12))
@SOME
def test_a_link_is_recovered_from_its_collectives(alpha: float, bandwidth: float) -> None:
    link = Link("true", alpha, bandwidth, "")
    points = [
        Measured(name, size, devices, seconds(link, "ring", name, size, devices))
        for name in OPERATIONS[:3]
        for size in (1e3, 1e6, 1e9)
        for devices in (2, 4)
    ]
    found = fit_link("found", points)
    assert (found.alpha, found.bandwidth) == pytest.approx((alpha, bandwidth), rel=1e-6)


def test_a_link_from_what_parity_collectives_wrote(tmp_path: Path) -> None:
    def written(name: str, measured: list[Measured]) -> str:
        rows = [{"operation": m.operation, "bytes": m.size, "median_seconds": m.seconds} for m in measured]
        rows.append({"operation": "barrier", "bytes": 0, "median_seconds": 1.0})
        (tmp_path / name).write_text(json.dumps({"ranks": 2, "rows": rows}))
        return str(tmp_path / name)

    found = parse_link(written("all.json", MEASURED) + "*2+ndr")
    assert found.inner == fit_link("all.json", MEASURED) and found.outer is PRESETS["ndr"]
    (tmp_path / "foreign.json").write_text("[1]")
    for text in (
        written("one.json", MEASURED[:1]),
        str(tmp_path / "foreign.json"),
        str(tmp_path / "none.json"),
    ):
        with pytest.raises(SpecError) as error:
            parse_link(text)
        assert text in one_line(error.value)


def test_one_size_cannot_tell_alpha_from_the_bandwidth() -> None:
    with pytest.raises(ValueError, match="two unknowns"):
        fit_link("found", [Measured("all_reduce", 1e6, 2, 1e-3)] * 3)


def test_the_model_predicts_real_collectives_that_it_was_not_fitted_to() -> None:
    fitted = fit_link("loopback", MEASURED[::2])
    assert 2e-5 < fitted.alpha < 1e-3 and 2e8 < fitted.bandwidth < 2e10
    errors = [abs(seconds(fitted, "ring", m.operation, m.size, 2) / m.seconds - 1) for m in MEASURED[1::2]]
    # Four decades of size on a machine with neighbours: right within half, and not by chance.
    assert np.median(errors) < 0.5
    for wrong in (
        Link("", fitted.alpha / 10, fitted.bandwidth * 10, ""),
        Link("", fitted.alpha * 5, 1e15, ""),
    ):
        off = [abs(seconds(wrong, "ring", m.operation, m.size, 2) / m.seconds - 1) for m in MEASURED[1::2]]
        assert np.median(off) > 0.5


def test_a_link_from_the_messages_of_one_run() -> None:
    link = measured_link([("all_reduce", 1_000_000, 2)], 0.01, 2)
    assert link.alpha == LOOPBACK.alpha
    assert 2 * fastest(Network(link), "all_reduce", 1e6, 2)[0] == pytest.approx(0.01)
    fast = measured_link([("all_reduce", 10, 100)], 1e-4, 2)
    assert 100 * fastest(Network(fast), "all_reduce", 10, 2)[0] == pytest.approx(1e-4)
    assert fast.alpha == pytest.approx(0.5e-4 / 100), "half of the time, for want of knowing"
    assert measured_link([], 0.0, 2) is LOOPBACK


# --- projections ---


def model(**changes: object) -> Model:
    usual = Model(
        global_batch=256,
        fixed=0.001,
        per_sample=0.0002,
        optimizer=0.002,
        divided_optimizer=False,
        messages=(("all_reduce", 10_000_000, 4),),
        beside=0.6,
        hidden=0.8,
        network=Network(Link("net", 5e-6, 10e9, "")),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_a_point_by_hand() -> None:
    point = model().point(8, "strong")
    passes = 0.001 + 0.0002 * 32
    messages = 4 * fastest(model().network, "all_reduce", 10_000_000, 8)[0]
    exposed = messages - 0.8 * min(messages, 0.6 * passes)
    assert point.compute_seconds == pytest.approx(passes + 0.002)
    assert (point.communication_seconds, point.exposed_seconds) == pytest.approx((messages, exposed))
    assert point.step_seconds == pytest.approx(passes + 0.002 + exposed)
    alone = 0.001 + 0.0002 * 256 + 0.002
    assert point.speedup == pytest.approx(alone / point.step_seconds)
    assert point.efficiency == pytest.approx(point.speedup / 8)
    assert point.samples_per_second == pytest.approx(256 / point.step_seconds)
    assert model().point(1, "weak").speedup == 1 and model().point(1, "weak").algorithm == "none"


def test_perfect_devices_scale_perfectly() -> None:
    ideal = model(fixed=0.0, optimizer=0.0, network=Network(Link("", 0.0, math.inf, "")))
    for mode in ("strong", "weak"):
        assert ideal.point(128, mode).efficiency == pytest.approx(1)  # type: ignore[arg-type]
    # The controls: a whole optimizer on each device, and any alpha.
    assert model(network=ideal.network).point(128, "strong").efficiency < 0.5
    assert model(network=ideal.network, fixed=0.0, divided_optimizer=True).point(
        128, "strong"
    ).efficiency == pytest.approx(1)


@given(st.integers(1, 10), st.floats(1.1, 100), st.sampled_from(["strong", "weak"]))
@SOME
def test_faster_links_are_never_slower(power: int, factor: float, mode: Mode) -> None:
    slow = model()
    for faster in (Link("", 5e-6 / factor, 10e9, ""), Link("", 5e-6, 10e9 * factor, "")):
        fast = replace(slow, network=Network(faster))
        assert fast.point(2**power, mode).step_seconds <= slow.point(2**power, mode).step_seconds * (
            1 + 1e-12
        )


@given(st.integers(1, 9))
@SOME
def test_efficiency_falls_with_the_devices(power: int) -> None:
    for mode in ("strong", "weak"):
        smaller, larger = (model().point(2**n, mode).efficiency for n in (power, power + 1))  # type: ignore[arg-type]
        assert larger <= smaller * (1 + 1e-12)


def configuration(
    replicas: int, mode: Mode, truth: Model, crowding: float = 1.0, with_phases: bool = True
) -> Configuration:
    """What a session would have measured of a model."""
    point = truth.point(replicas, mode, crowding)
    batch = truth.global_batch * (replicas if mode == "weak" else 1)
    passes = crowding * truth.passes(batch / replicas)
    times = PhaseTimes(
        data=0.0,
        forward=passes * 0.4,
        backward=passes * 0.6,
        communication=point.communication_seconds,
        optimizer=crowding * truth.optimizer / (replicas if truth.divided_optimizer else 1),
        exposed=point.exposed_seconds,
        hidden=point.communication_seconds - point.exposed_seconds,
        step=point.step_seconds,
        imbalance=0.0,
        ranks=replicas,
        message_bytes={name: size * count for name, size, count in truth.messages} if replicas > 1 else {},
        messages={name: count for name, _, count in truth.messages} if replicas > 1 else {},
        sizes=truth.messages if replicas > 1 else (),
    )
    rate = point.samples_per_second
    step = Interval(*[point.step_seconds] * 3)
    return Configuration(
        f"torch ddp x{replicas}" if replicas > 1 else "torch single x1",
        "torch",
        "ddp" if replicas > 1 else "single",
        replicas,
        mode,
        batch,
        rounds=5,
        timed_steps=100,
        warm_up_steps=3,
        settled=True,
        samples_per_second=Interval(rate, rate, rate),
        step_seconds=step,
        unit="core",
        units=replicas,
        per_unit=Interval(rate, rate, rate).scaled(1 / replicas),
        memory_bytes={},
        phases=times if with_phases else None,
        oversubscribed=crowding > 1,
        crowding=crowding,
    )


def projected(truth: Model, link: Network | None = None, slower: float = 1.0) -> Projection:
    """From the single replica and two replicas, checked on 4 and 8 that take `slower` times the model's time."""
    measured = [configuration(n, "strong", truth) for n in (2, 4, 8)] + [configuration(2, "weak", truth)]
    measured[1:] = [replace(c, step_seconds=c.step_seconds.scaled(slower)) for c in measured[1:]]
    return project(configuration(1, "strong", truth), measured, 1024, link)


# alpha is the preset's, so that one communication time is enough to know the link.
TRUTH = model(network=Network(Link("", LOOPBACK.alpha, 2e9, "")), fixed=0.01, per_sample=0.002, beside=0.6)


def test_the_model_finds_itself_from_two_points_and_predicts_the_others() -> None:
    found = projected(TRUTH)
    assert {(v.replicas, v.mode): v.fitted for v in found.validation} == {
        (1, "strong"): True, (2, "strong"): True, (4, "strong"): False, (8, "strong"): False, (2, "weak"): False,
    }  # fmt: skip
    assert found.error < 1e-6
    largest = {p.mode: p for p in found.points if p.devices in (256, 1024)}
    assert largest["strong"].devices == 256, "a device has one sample at least"
    assert largest["weak"].devices == 1024
    assert largest["weak"].step_seconds == pytest.approx(TRUTH.point(1024, "weak").step_seconds, rel=1e-6)


def test_a_model_that_is_wrong_says_by_how_much() -> None:
    assert projected(TRUTH, slower=1.25).error == pytest.approx(0.2, abs=1e-6)


def test_another_link_changes_the_projection_and_not_its_check() -> None:
    here, there = projected(TRUTH), projected(TRUTH, parse_link("nvlink4*8+ndr"))
    assert there.validation == here.validation
    assert all(a.step_seconds <= b.step_seconds for a, b in zip(there.points, here.points, strict=True))
    assert "InfiniBand NDR" in there.link
    text = "\n".join(there.assumptions)
    for words in (
        "ms a sample",
        "share nothing",
        "4 all_reduce of 40,000,000 bytes",
        "one sample a device",
        "ran on",
    ):
        assert words in text
    assert "1,024 devices: ring" in there.assumptions[-1]


def test_crowded_cores_are_in_the_prediction() -> None:
    measured = [configuration(2, "strong", TRUTH), configuration(4, "strong", TRUTH, crowding=2.0)]
    found = project(configuration(1, "strong", TRUTH), measured, 4)
    assert found.error < 1e-6
    blind = [measured[0], replace(measured[1], crowding=1.0)]
    assert project(configuration(1, "strong", TRUTH), blind, 4).error > 0.2


def test_without_phases_there_is_a_reason() -> None:
    measured = [configuration(2, "strong", TRUTH, with_phases=False)]
    found = project(configuration(1, "strong", TRUTH), measured, 64)
    assert not found.points and math.isnan(found.error) and "--phase_repeats" in found.why_not


def test_only_weak_points_are_enough() -> None:
    found = project(configuration(1, "strong", TRUTH), [configuration(n, "weak", TRUTH) for n in (2, 4)], 16)
    assert [v.fitted for v in found.validation] == [True, True, False]
    assert found.error < 0.05


def test_what_messages_say_of_the_optimizer() -> None:
    sharded = replace(TRUTH, divided_optimizer=True, messages=(("reduce_scatter", 10_000_000, 4),))
    for truth, words in ((TRUTH, "whole on every device"), (sharded, "divided among the devices")):
        found = projected(truth)
        assert words in found.assumptions[0]
        assert found.error < 1e-6


def test_points_that_share_cores_do_not_count_where_others_do() -> None:
    four, crowded = configuration(4, "strong", TRUTH), configuration(8, "strong", TRUTH, crowding=4.0)
    wrong = replace(crowded, step_seconds=crowded.step_seconds.scaled(3.0))
    found = project(configuration(1, "strong", TRUTH), [configuration(2, "strong", TRUTH), four, wrong], 8)
    assert found.error < 1e-6 and abs(found.validation[-1].error) > 0.5, "it is shown"
