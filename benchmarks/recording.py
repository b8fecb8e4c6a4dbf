"""What recording costs: the same trainer with recording on and off, interleaved.

Run: python benchmarks/recording.py [--rounds 7] [--steps 150]
Prints a Markdown table: the ratio of step times (on / off), median and quartiles over rounds, beside
the same ratio of two runs that both record, which shows what this machine can resolve.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from common import recipes
from common.launch.worker import Worker
from common.parity.scaling import throughput
from common.record import RunRecord, read_record
from common.spec import Placement, override

PLACEMENTS = [
    ("tensorflow", "mirrored", 1),
    ("tensorflow", "mirrored", 2),
    ("torch", "single", 1),
    ("torch", "ddp", 2),
]
VARIANTS = {"on": "full", "off": "off", "again": "full"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--recipe", default="digits_cnn")
    options = parser.parse_args()
    print(f"{options.recipe}, {options.steps} steps, {options.rounds} rounds; {machine()}\n")
    print("| placement | precision | on / off | quartiles | on / on again | quartiles | ms per step |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for precision in ("float64", "float32"):
        for framework, strategy, replicas in PLACEMENTS:
            print(row(options, precision, framework, strategy, replicas), flush=True)


def row(options: argparse.Namespace, precision: str, framework: str, strategy: str, replicas: int) -> str:
    """One line of the table: every round runs each variant once, in an order drawn anew."""
    spec = override(recipes.get(options.recipe), [f"steps={options.steps}", f"precision={precision}"])
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    version = ""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parity-benchmark-")))
        worker = stack.enter_context(Worker(framework, replicas))
        for number in range(options.rounds + 1):
            order = list(VARIANTS)
            random.Random(number).shuffle(order)
            for name in order:
                placement = Placement.parse(
                    {
                        "framework": framework,
                        "strategy": strategy,
                        "replicas": replicas,
                        "pin": True,
                        "recording": VARIANTS[name],
                    }
                )
                record = read_record(worker.train(spec, placement, folder / f"{number}_{name}"))
                version = record.header.versions[framework]
                if number:  # the first round warms up
                    times[name].append(milliseconds(record))
    on_off = [a / b for a, b in zip(times["on"], times["off"], strict=True)]
    on_on = [a / b for a, b in zip(times["on"], times["again"], strict=True)]
    label = f"{framework} {version} {strategy} x{replicas}"
    return f"| {label} | {precision} | {spread(on_off)} | {spread(on_on)} | {statistics.median(times['on']):.1f} |"


def milliseconds(record: RunRecord) -> float:
    """Time of a full global batch."""
    return 1000 * record.spec.global_batch_size / throughput(record)


def spread(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} | {low:.3f} - {high:.3f}"


def machine() -> str:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
