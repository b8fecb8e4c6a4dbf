"""A scaling analysis with every part in it, made up: what reports are tested on."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

from parity.common.scaling.result import (
    Cause,
    Configuration,
    Interval,
    LawFit,
    Loss,
    Mode,
    PhaseTimes,
    ProjectedPoint,
    Projection,
    Ratio,
    Residual,
    Scaling,
    Target,
    Validation,
)

NOISY = "the 95 % interval is 31% of the median wide, more than 10%; take about 48 rounds"


def around(median: float, share: float = 0.03) -> Interval:
    """An interval of some percent about a figure."""
    return Interval(median, median * (1 - share), median * (1 + share))


def phases(compute: float, exposed: float, hidden: float) -> PhaseTimes:
    sent = {"all_reduce": 1_250_000} if exposed else {}
    return PhaseTimes(
        data=0.0009,
        forward=compute * 0.33,
        backward=compute * 0.62,
        communication=exposed + hidden,
        optimizer=0.0011,
        exposed=exposed,
        hidden=hidden,
        step=compute + exposed + 0.002,
        imbalance=0.0004 if exposed else 0.0,
        ranks=2 if exposed else 1,
        message_bytes=sent,
        messages={"all_reduce": 2} if exposed else {},
    )


def configuration(name: str, replicas: int, speedup: float, mode: Mode = "strong") -> Configuration:
    framework, strategy = name.split(" ")
    base = 1900.0 if framework == "torch" else 1500.0
    batch = 64 * replicas if mode == "weak" else 64
    rate = around(base * speedup)
    exposed = 0.0015 * (replicas - 1)
    return Configuration(
        label=f"{name} x{replicas}",
        framework=framework,
        strategy=strategy,
        replicas=replicas,
        mode=mode,
        global_batch=batch,
        rounds=5,
        timed_steps=260,
        warm_up_steps=8,
        settled=True,
        samples_per_second=rate,
        step_seconds=Interval(batch / rate.median, batch / rate.high, batch / rate.low),
        unit="core",
        units=replicas,
        per_unit=rate.scaled(1 / replicas),
        memory_bytes={"parameters": 1_250_000, "slots": 2_500_000, "tensors": 5_100_000, "peak": 480_000_000},
        phases=phases(batch / base / replicas, exposed, 0.002 * (replicas > 1)),
        oversubscribed=replicas > 2,
    )


def speedup(of: Configuration, median: float) -> Ratio:
    noisy = of.oversubscribed
    spread = 0.15 if noisy else 0.03
    low, high = median * (1 - spread), median * (1 + spread)
    serial = around((1 / median - 1 / of.replicas) / (1 - 1 / of.replicas), 0.2)
    return Ratio(
        of.label,
        of.replicas,
        median,
        low,
        high,
        5,
        of.framework,
        of.mode,
        serial,
        "too noisy to conclude" if noisy else "conclusive",
        NOISY if noisy else "known to 3.0%",
    )


def loss(of: Configuration, median: float) -> Loss:
    step = of.step_seconds.median
    lost = step * (1 - median / of.replicas)
    parts = {
        "communication": 0.7,
        "data": 0.1,
        "imbalance": 0.05,
        "batch too small": 0.25,
        "unexplained": -0.1,
    }
    causes = tuple(
        Cause(name, share * lost, share * lost / step, share, "by taking the reduction away")
        for name, share in parts.items()
    )
    sentence = (
        f"{of.label} loses {lost / step:.0%} of a step, most of it to communication that nothing hides."
    )
    return Loss(of.label, of.framework, of.replicas, of.mode, step, step - lost, lost, causes, sentence)


def projection(name: str) -> Projection:
    framework, strategy = name.split(" ")
    points = []
    for mode in ("strong", "weak"):
        for power in range(11):
            devices = 2**power
            compute = 0.034 / (devices if mode == "strong" else 1)
            sent = 0.0 if devices == 1 else 0.0005 + 0.00008 * power
            grown = 0.034 / (compute + sent)
            points.append(
                ProjectedPoint(
                    devices,
                    mode,  # type: ignore[arg-type]
                    "ring" if devices < 64 else "tree",
                    compute,
                    sent,
                    sent * 0.6,
                    compute + sent,
                    1900.0 * grown * (devices if mode == "weak" else 1),
                    grown * (devices if mode == "weak" else 1),
                    grown if mode == "weak" else grown / devices,
                )
            )
    validation = (
        Validation(f"{name} x2", 2, "strong", 0.0181, 0.0184, 0.0166, True),
        Validation(f"{name} x2", 2, "weak", 0.0362, 0.0344, -0.05, False),
    )
    assumptions = (
        "The computation of a step is that of the single replica, divided by the devices.",
        "Every device has a link of its own; nothing else uses the network.",
    )
    link = "alpha 20 us, beta 10 Gbit/s"
    return Projection(framework, strategy, link, tuple(points), assumptions, validation, 0.05)


def with_text(value: Any, text: str) -> Any:
    """The same with `text` at the end of everything that is free text: labels, reasons, notes, names."""
    if is_dataclass(value) and not isinstance(value, type):
        fixed = {"framework", "mode", "unit", "quality", "conclusion", "algorithm"}
        changed = {
            f.name: with_text(getattr(value, f.name), text) for f in fields(value) if f.name not in fixed
        }
        return replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(with_text(item, text) for item in value)
    if isinstance(value, dict):
        return {f"{name} {text}": with_text(item, text) for name, item in value.items()}
    return f"{value} {text}" if isinstance(value, str) and value else value


def full_scaling() -> Scaling:
    """Both frameworks, strong and weak scaling, 1, 2 and 4 replicas, every part filled."""
    shapes = [("tensorflow mirrored", 1.74, 2.6), ("torch ddp", 1.86, 2.9)]
    configurations, speedups, losses = [], [], []
    for name, two, four in shapes:
        configurations.append(configuration(f"{name.split(' ')[0]} single", 1, 1.0))
        for replicas, median in ((2, two), (4, four)):
            for mode in ("strong", "weak"):
                grown = median * (1.04 if mode == "weak" else 1.0)
                made = configuration(name, replicas, grown, mode)  # type: ignore[arg-type]
                configurations.append(made)
                speedups.append(speedup(made, grown))
                losses.append(loss(made, grown))
    law = LawFit(
        "torch",
        "ddp",
        "strong",
        "Amdahl",
        {"serial fraction": around(0.075, 0.3)},
        (Residual(2, 1.86, 1.83), Residual(4, 2.9, 3.1)),
        0.05,
        13.3,
    )
    targets = (
        Target(
            "torch ddp x2", "torch", 2, "strong", "loss", 0.5, True, 0.41, 1.9, 2560.0, 40.0, "at step 40"
        ),
        Target(
            "torch ddp x2",
            "torch",
            2,
            "weak",
            "loss",
            0.5,
            False,
            0.62,
            math.nan,
            math.nan,
            math.nan,
            "no",
        ),
    )
    between = Ratio("torch ddp x2 / tensorflow mirrored x2", 2, 1.31, 1.27, 1.36, 5)
    return Scaling(
        tuple(configurations),
        tuple(speedups),
        (between,),
        False,
        260,
        5,
        (law, replace(law, law="Gustafson", parameters={}, residuals=(), why_not="3 points are too few")),
        tuple(losses),
        (projection("torch ddp"), replace(projection("tensorflow mirrored"), points=(), why_not="no phases")),
        targets,
        ("4 replicas on 2 cores: they share them, so this is no speedup of hardware.",),
    )
