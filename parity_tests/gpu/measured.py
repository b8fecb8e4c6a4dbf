"""Rows of the recorder, of throughput and of memory, which `torch_side` measures."""

from __future__ import annotations

import statistics
from typing import Any

from parity.common.base.units import show_size
from parity.common.planning.adviser.recommend import HEADROOM
from parity_tests.gpu.bench import Bench
from parity_tests.gpu.rows import Measured, NotPossibleError, row


@row(
    "recorder",
    "a plain torch loop with Recorder (taps, norms) and without, device: losses and final tensors bit for bit; the record",
    "all equal, nothing missing",
)
def recorder(bench: Bench) -> Measured:
    found: dict[str, Any] = bench.ask("recorder")
    unequal = {name: found[name] for name in ("losses", "tensors") if found[name]}
    why = [f"{count} {name} differ" for name, count in unequal.items()]
    why += [f"record without {', '.join(found['incomplete'])}"] if found["incomplete"] else []
    return Measured(f"{found['steps']} losses, {found['losses']} differ", "; ".join(why))


@row(
    "recorder_waits",
    "how often a step of a recorded loop waits for the device, by torch's sync debug mode",
    "0 at steps without taps; a control is counted",
)
def recorder_waits(bench: Bench) -> Measured:
    if not bench.on_gpu:
        raise NotPossibleError("a CPU, for which nothing waits")
    found: dict[str, Any] = bench.ask("waits")
    why = [f"waits {found['usual']} times, the loop alone {found['alone']}"] if found["usual"] else []
    why += [] if found["control"] else ["reading a loss was not counted, so nothing is"]
    figure = f"{found['usual']} in {found['usual_steps']} steps; {found['rare']} at the steps whose layers are looked at"
    return Measured(figure, "; ".join(why))


def _ratio(bench: Bench, name: str, other: str) -> str:
    """Median over the rounds of one variant's time divided by the other's, with both rates."""
    found: dict[str, Any] = bench.ask("throughput")
    ours, theirs = found["seconds"][name], found["seconds"][other]
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    rates = [found["samples"] / statistics.median(each) for each in (ours, theirs)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{statistics.median(ratios):.2f} x the time ({spread}, {len(ratios)} rounds); {rates[0]:.0f} and {rates[1]:.0f} samples/s"


@row(
    "throughput",
    "our trainer in bfloat16_mixed, recorded, against a bare loop with autocast of the same net, device",
    "reported",
)
def throughput(bench: Bench) -> Measured:
    return Measured(_ratio(bench, "recorded", "bare"))


@row("recording", "our trainer with recording full against recording off, device", "reported")
def recording(bench: Bench) -> Measured:
    return Measured(_ratio(bench, "recorded", "unrecorded"))


@row(
    "memory",
    "most memory of a step of a GPT-2 of 23 million parameters, by CUDA's allocator, against `parity advise`",
    f"within {HEADROOM:.0%}, what the adviser leaves free",
)
def memory(bench: Bench) -> Measured:
    if not bench.on_gpu:
        raise NotPossibleError("a CPU, whose allocator counts nothing")
    shown, why = [], []
    for precision, sizes in bench.ask("memory").items():
        if "measured" not in sizes:
            need = f"needs {show_size(sizes['foretold'])}, {show_size(sizes['free'])} are free"
            raise NotPossibleError(f"{precision} {need}")
        off = sizes["foretold"] / sizes["measured"] - 1
        shown.append(
            f"{precision} {show_size(sizes['measured'])}, foretold {show_size(sizes['foretold'])} ({off:+.1%})"
        )
        if abs(off) > HEADROOM:
            why.append(f"{precision} is {off:+.1%} off")
    return Measured("; ".join(shown), "; ".join(why))


ROWS = (recorder, recorder_waits, throughput, recording, memory)
