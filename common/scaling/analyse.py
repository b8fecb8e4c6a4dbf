"""From rounds of records to everything that a report says about scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parity.common.base.errors import RecordError
from parity.common.record import RunRecord
from parity.common.scaling import statistics
from parity.common.scaling.laws import Speedups, fit_laws, serial_fraction
from parity.common.scaling.links import Network, parse_link
from parity.common.scaling.phases import loss_of, phase_times
from parity.common.scaling.projection import project
from parity.common.scaling.result import Configuration, Interval, LawFit, Mode, Projection, Ratio, Scaling
from parity.common.scaling.statistics import Rounds, Timing
from parity.common.scaling.target import time_to_accuracy, time_to_loss
from parity.common.spec import Placement

# A placement with its global batch: what a round has one run of.
Key = tuple[str, int]


@dataclass(frozen=True)
class _Runs:
    """All runs of one configuration, a round each, and the single replica they are compared with.

    name: unlike a label, of one global batch only.
    """

    name: str
    records: list[RunRecord]
    timings: list[Timing] = field(repr=False)
    baseline: Key | None
    configuration: Configuration


def analyse(
    rounds: Sequence[Sequence[RunRecord]],
    *,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    devices: int = 0,
    link: str | None = None,
) -> Scaling | None:
    """Everything about the speed of rounds of runs; every round holds one run of each configuration.

    A speedup compares with the framework's own single replica: at the same global batch (strong
    scaling), or at the batch that each replica has (weak scaling). The frameworks are compared with
    each other at equal replica counts.

    Args:
        rounds: interleaved. A configuration is a placement with a global batch.
        target_loss, target_accuracy: qualities whose time to report.
        devices: the largest number to project to; 0: no projection.
        link: of the projection, see `links.parse_link`; None: fitted to the measured messages.

    Returns:
        None where there is nothing to compare: no whole rounds, no steps after the warm-up, neither
        a single replica to compare with nor two frameworks.

    Raises:
        SpecError: `link` is not understood.
    """
    network = None if link is None else parse_link(link)
    timed = _timed(rounds)
    if timed is None:
        return None
    found, measured = timed
    configurations = [runs.configuration for runs in found.values()]
    # By label, the first: a weak run of the same placement.
    weak = {c.label: c for c in reversed(configurations) if c.mode == "weak"}
    speedups, between = _speedups(found, measured), _between(found, measured)
    if not speedups and not between:
        return None
    return Scaling(
        tuple(configurations),
        tuple(speedups),
        tuple(between),
        all(record.header.threads.get("pinned") for runs in found.values() for record in runs.records),
        sum(timing.timed for timing in next(iter(found.values())).timings),
        len(rounds),
        laws=tuple(_laws(found, measured)),
        losses=tuple(
            loss_of(runs.configuration, found[runs.baseline].configuration, weak.get(label))
            for (label, _), runs in found.items()
            if runs.baseline is not None
        ),
        projections=tuple(_projections(found, devices, network)) if devices else (),
        targets=tuple(
            reached(runs.configuration, runs.records, target)
            for reached, target in ((time_to_loss, target_loss), (time_to_accuracy, target_accuracy))
            if target is not None
            for runs in found.values()
        ),
        notes=tuple(_notes(configurations, speedups, len(rounds))),
    )


def _timed(rounds: Sequence[Sequence[RunRecord]]) -> tuple[dict[Key, _Runs], Rounds] | None:
    """The runs of each configuration, in the order of the first round; None without whole, timed rounds."""
    by_round = [{key_of(record): record for record in round_} for round_ in rounds]
    if not rounds or any(
        len(records) != len(round_) or records.keys() != by_round[0].keys()
        for records, round_ in zip(by_round, rounds, strict=True)
    ):
        return None
    timings = {key: [statistics.timing_of(records[key]) for records in by_round] for key in by_round[0]}
    if not all(len(timing.rates) for timed in timings.values() for timing in timed):
        return None
    names = {(label, batch): f"{label} batch {batch}" for label, batch in timings}
    measured = Rounds.of(
        [{names[key]: timed[number] for key, timed in timings.items()} for number in range(len(rounds))]
    )
    found = {}
    for key, first in by_round[0].items():
        baseline, mode = _baseline(first, by_round[0])
        records, timed = [records[key] for records in by_round], timings[key]
        configuration = _configuration(records, timed, mode, measured.throughput(names[key]))
        found[key] = _Runs(names[key], records, timed, baseline, configuration)
    return found, measured


def key_of(record: RunRecord) -> Key:
    """What tells a record's configuration from others."""
    return record.label, record.spec.global_batch_size


def _baseline(record: RunRecord, records: dict[Key, RunRecord]) -> tuple[Key | None, Mode]:
    """The single replica that a configuration is compared with, and how.

    The first of the framework that is trained alike but for the strategy, else the first.
    """
    placement, batch = record.placement, record.spec.global_batch_size
    if placement.replicas == 1:
        return None, "strong"
    singles = [
        (key, single.placement)
        for key, single in records.items()
        if single.placement.framework == placement.framework
        and single.placement.replicas * single.placement.ranks_per_replica == 1
    ]
    singles.sort(key=lambda pair: _manner(pair[1]) != _manner(placement))
    strong = next((key for key, _ in singles if key[1] == batch), None)
    weak = next((key for key, _ in singles if key[1] * placement.replicas == batch), None)
    if strong is None and weak is not None:
        return weak, "weak"
    return strong, "strong"


def _manner(placement: Placement) -> tuple[str, bool, int, bool]:
    """What a single replica may have in common with many."""
    return placement.engine, placement.compile, placement.steps_per_call, placement.accumulates


def _configuration(
    records: Sequence[RunRecord], timings: Sequence[Timing], mode: Mode, throughput: Interval
) -> Configuration:
    record = records[0]
    placement, header = record.placement, record.header
    batch = record.spec.global_batch_size
    devices = placement.replicas * placement.ranks_per_replica
    on_cores = all("cpu" in device.lower() for device in header.devices)
    units = devices * (placement.threads_per_replica if on_cores else 1)
    # A pinned process sees its own cores only, and is pinned only where there are enough for all.
    cores = header.threads.get("cores", 0) * placement.nodes
    crowded = on_cores and not header.threads.get("pinned") and units > cores
    return Configuration(
        label=record.label,
        framework=placement.framework,
        strategy=_strategy(placement),
        replicas=placement.replicas,
        mode=mode,
        global_batch=batch,
        rounds=len(records),
        timed_steps=sum(timing.timed for timing in timings),
        warm_up_steps=max(timing.warm_up for timing in timings),
        settled=all(timing.settled for timing in timings),
        samples_per_second=throughput,
        step_seconds=Interval(batch / throughput.median, batch / throughput.high, batch / throughput.low),
        unit="core" if on_cores else "device",
        units=units,
        per_unit=throughput.scaled(1 / units),
        memory_bytes=memory_of(records),
        phases=phase_times(records),
        oversubscribed=crowded,
        crowding=units / cores if crowded and cores else 1.0,
    )


def _strategy(placement: Placement) -> str:
    """Everything that tells placements apart but their framework and replicas."""
    return placement.label.removeprefix(f"{placement.framework} ").replace(f" x{placement.replicas}", "", 1)


def memory_of(records: Sequence[RunRecord]) -> dict[str, int]:
    """The most bytes a replica held in any round. A process says what one of its replicas holds, but its peak is of all."""
    most: dict[str, int] = {}
    for record in records:
        try:
            ranks = record.memory
        except RecordError:  # a record from before memory was recorded
            continue
        placement = record.placement
        for name in ranks[0]:
            shared = placement.replicas_per_process if name.startswith("peak") else 1
            held = sum(measured.get(name, 0) for measured in ranks) / len(ranks)
            most[name] = max(most.get(name, 0), int(held * placement.ranks_per_replica / shared))
    return most


def _speedups(found: dict[Key, _Runs], measured: Rounds) -> list[Ratio]:
    compared = [(runs, found[runs.baseline]) for runs in found.values() if runs.baseline is not None]
    ratios = [_ratio(runs, baseline, measured) for runs, baseline in compared]
    return [replace(r, serial_fraction=serial_fraction(r.interval, r.replicas, r.mode)) for r in ratios]


def _ratio(runs: _Runs, baseline: _Runs, measured: Rounds) -> Ratio:
    """The throughput of one configuration over another's."""
    record, interval = runs.records[0], measured.ratio(runs.name, baseline.name)
    placement, figures = record.placement, (interval.median, interval.low, interval.high)
    whose = (measured.count, placement.framework, runs.configuration.mode)
    conclusion, advice = statistics.conclude(interval, measured.count)
    return Ratio(record.label, placement.replicas, *figures, *whose, conclusion=conclusion, advice=advice)


def _between(found: dict[Key, _Runs], measured: Rounds) -> list[Ratio]:
    """torch over TensorFlow, wherever both have as many replicas at the same global batch."""
    ratios = []
    for (label, batch), ours in found.items():
        for (other, other_batch), theirs in found.items():
            pair = [runs.records[0].placement for runs in (ours, theirs)]
            frameworks = [placement.framework for placement in pair]
            alike = pair[0].replicas == pair[1].replicas and batch == other_batch
            if frameworks == ["torch", "tensorflow"] and alike:
                ratio = _ratio(ours, theirs, measured)
                ratios.append(replace(ratio, name=f"{label} / {other}", framework=""))
    return ratios


def _laws(found: dict[Key, _Runs], measured: Rounds) -> list[LawFit]:
    """The laws of every strategy in every mode that it was measured in."""
    series: dict[tuple[str, str, Mode], list[_Runs]] = {}
    for runs in found.values():
        c = runs.configuration
        if runs.baseline is not None and c.replicas > 1:
            series.setdefault((c.framework, c.strategy, c.mode), []).append(runs)
    fits = []
    for which, all_runs in series.items():
        all_runs = sorted(all_runs, key=lambda runs: runs.configuration.replicas)
        fair, crowded = (
            [runs for runs in all_runs if runs.configuration.oversubscribed == shared]
            for shared in (False, True)
        )
        pairs = [(runs.name, found[runs.baseline].name) for runs in fair if runs.baseline is not None]
        draws = [measured.ratio_draws(*pair) for pair in pairs]
        speedups = Speedups(
            *which,
            measured.count,
            tuple(runs.configuration.replicas for runs in fair),
            np.array([measured.ratio(*pair).median for pair in pairs]),
            np.stack(draws, axis=-1) if draws else np.empty((0, 0)),
            tuple(runs.configuration.replicas for runs in crowded),
        )
        fits += fit_laws(speedups)
    return fits


def _projections(found: dict[Key, _Runs], devices: int, network: Network | None) -> list[Projection]:
    """One of every strategy that has been measured on several replicas."""
    series: dict[tuple[str, str], list[tuple[Key, Configuration]]] = {}
    for runs in found.values():
        c = runs.configuration
        if runs.baseline is not None:
            series.setdefault((c.framework, c.strategy), []).append((runs.baseline, c))
    projections = []
    for measured in series.values():
        # Where there are several single replicas, the first is what is projected from.
        first = measured[0][0]
        mine = [c for baseline, c in measured if baseline == first]
        projections.append(project(found[first].configuration, mine, devices, network))
    return projections


def _notes(configurations: Sequence[Configuration], speedups: Sequence[Ratio], rounds: int) -> list[str]:
    notes = []
    noisy = sum(ratio.conclusion != "conclusive" for ratio in speedups)
    if rounds < statistics.FEWEST_ROUNDS:
        notes.append(f"{rounds} of at least {statistics.FEWEST_ROUNDS} rounds: no ratio can be conclusive.")
    elif noisy:
        rule = statistics.NOISE_RULE
        notes.append(f"{noisy} of {len(speedups)} speedups are too noisy to conclude ({rule}).")
    crowded = "replicas x threads are more than the cores, so that they took turns"
    drifting = (
        "still changing after half of a run's steps, or drifting by more than"
        f" {statistics.DRIFT:.0%} after the warm-up"
    )
    for words, names in (
        (crowded, [c.label for c in configurations if c.oversubscribed]),
        (drifting, [c.label for c in configurations if not c.settled]),
    ):
        if names:
            notes.append(f"{', '.join(dict.fromkeys(names))}: {words}.")
    compared = {ratio.name for ratio in speedups}
    alone = {c.label for c in configurations if c.replicas > 1} - compared
    lacks = "no single replica of the same framework with the same global batch, or the same batch a replica"
    if alone:
        notes.append(f"{', '.join(sorted(alone))}: {lacks}, so no speedup.")
    return notes
