"""The rows of the benchmark table."""

from __future__ import annotations

import importlib.metadata
import json
import re
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import diagnosis, models
from benchmarks.harness import Line, Ratio, Row, Target, cost, loops, output_of, speed
from benchmarks.runs import Variant, in_turns
from parity.common.spec import TrainSpec, override
from parity.common.spec.strategies import Framework

AS_FAST = Target(0.99)
FASTER = Target(1.0, beyond=True)
AGAIN = "noise: ours / ours again"

_SPECS = {"cnn": "compute_bound_cnn", "net": "overhead_bound_net"}
# Blocks of some 0.4 s, and as many as even out what the machine does besides.
_BLOCKS = {"cnn": ("4", 15), "net": ("100", 25)}
# Of whole numbers of checkpoints, and so long that waiting for the last of a block is a small part of it.
_SAVING_BLOCKS = {"cnn": ("50", 9), "net": ("500", 15)}
_SHOWN = {"cnn": "compute-bound CNN", "net": "overhead-bound net"}

_SHORT: dict[Framework, str] = {"torch": "torch", "tensorflow": "tf"}
_NAMES: dict[Framework, str] = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
_ONE: dict[Framework, str] = {"torch": "torch:single:1", "tensorflow": "tensorflow:mirrored:1"}
_TWO: dict[Framework, tuple[str, str]] = {
    "torch": ("torch:ddp:2", "PyTorch DDP x2"),
    "tensorflow": ("tensorflow:mirrored:2", "TensorFlow Mirrored x2"),
}


def _loop_row(
    name: str,
    kind: str,
    title: str,
    arguments: tuple[str, ...],
    variants: str,
    *ratios: Ratio,
    blocks: Mapping[str, tuple[str, int]] = _BLOCKS,
) -> Row:
    """Variants of one of the modules of loops, on one of the specs."""
    steps, rounds = blocks[kind]
    framework = "tf" if name.startswith("tf") else "torch"
    given = (
        *arguments,
        "--replicas",
        "2",
        "--spec",
        _SPECS[kind],
        "--block-steps",
        steps,
        "--variants",
        variants,
    )
    return Row(
        f"{name}_{kind}",
        f"{title}, {_SHOWN[kind]}",
        loops(f"benchmarks.{framework}_loops", *given),
        ratios,
        rounds,
    )


def _torch(kind: str) -> list[Row]:
    again = speed(AGAIN, "ours", "ours_again")
    return [
        _loop_row(
            "torch_ddp",
            kind,
            "PyTorch DDP x2",
            ("--placement", "ddp"),
            "ours,ours_again,bare,lightning,accelerate",
            speed("throughput, ours / bare loop", "ours", "bare", AS_FAST),
            speed("throughput, ours / Lightning", "ours", "lightning", FASTER),
            speed("throughput, ours / Accelerate", "ours", "accelerate", FASTER),
            again,
        ),
        _loop_row(
            "torch_fsdp2",
            kind,
            "PyTorch FSDP2 x2",
            ("--placement", "fsdp2"),
            "ours,ours_again,bare",
            speed("throughput, ours / bare loop", "ours", "bare", AS_FAST),
            again,
        ),
    ]


def _tensorflow(kind: str) -> Row:
    return _loop_row(
        "tf_mirrored",
        kind,
        "TensorFlow Mirrored x2",
        (),
        "ours,ours_again,bare,keras_fit",
        speed("throughput, ours / Keras fit", "ours", "keras_fit", Target(1.1)),
        speed("throughput, ours / bare loop", "ours", "bare", AS_FAST),
        speed(AGAIN, "ours", "ours_again"),
    )


# Families of models, on one core and on two.

_FAMILIES = {
    "gpt": "a GPT of 4 blocks, AdamW, clipped",
    "lstm": "two LSTMs of 128, Adam",
    "gru": "two GRUs of 128, Adam",
}


def _family(framework: Framework, name: str, strategy: str) -> Row:
    """A family beside stock code, of one replica or of two."""
    replicas = 1 if strategy == "single" else 2
    others = {"bare": "bare loop"} | ({"keras_fit": "Keras fit"} if framework == "tensorflow" else {})
    given = ("--placement", strategy) if framework == "torch" else ()
    sizes = ("--replicas", str(replicas), "--spec", name, "--block-steps", "8")
    where = {"single": "on one core", "ddp": "DDP x2", "fsdp2": "FSDP2 x2", "mirrored": "Mirrored x2"}[
        strategy
    ]
    return Row(
        f"{_SHORT[framework]}_{'' if replicas == 1 else f'{strategy}_'}{name}",
        f"{_NAMES[framework]} {where}, {_FAMILIES[name]}",
        loops(
            f"benchmarks.{_SHORT[framework]}_loops",
            *given,
            *sizes,
            "--variants",
            ",".join(("ours", "ours_again", *others)),
        ),
        (
            *(
                speed(f"throughput, ours / {shown}", "ours", other, AS_FAST)
                for other, shown in others.items()
            ),
            speed(AGAIN, "ours", "ours_again"),
        ),
    )


# What can be switched, in the same sessions: recording, compilation, several steps a call.


def _switches(framework: str, kind: str) -> Row:
    on_off = cost(
        "time, recording scalars and norms / nothing", "ours", "ours_unrecorded", Target(1.02, True)
    )
    tapped = cost(
        "time, a digest of every activation and gradient / none", "ours_tapped", "ours", Target(1.15, True)
    )
    compiled = cost("time, compiled / not", "ours_compiled", "ours")
    looked_into = cost(
        "time, every tensor of the step kept, states included / none",
        "ours_looked_into",
        "ours",
        Target(2.0, True),
    )
    again = cost("noise: ours again / ours", "ours_again", "ours")
    if framework == "torch":
        return _loop_row(
            "torch_switches",
            kind,
            "PyTorch DDP x2, what switches cost",
            ("--placement", "ddp"),
            "ours,ours_again,ours_unrecorded,ours_tapped,ours_looked_into,ours_compiled",
            on_off,
            tapped,
            looked_into,
            compiled,
            again,
        )
    return _loop_row(
        "tf_switches",
        kind,
        "TensorFlow Mirrored x2, what switches cost",
        (),
        "ours,ours_again,ours_unrecorded,ours_tapped,ours_looked_into,ours_compiled,ours_4_a_call",
        on_off,
        tapped,
        looked_into,
        compiled,
        cost("time, 4 steps a call / 1", "ours_4_a_call", "ours"),
        again,
    )


def _saving(framework: Framework, kind: str) -> Row:
    """What it costs to be able to go on: the writing in the background, and all of it done when a block ends."""
    return _loop_row(
        f"{_SHORT[framework]}_saving",
        kind,
        f"{_TWO[framework][1]}, what checkpoints cost",
        ("--placement", "ddp") if framework == "torch" else (),
        "ours,ours_again,ours_saving",
        cost(
            "time, a checkpoint every 50 steps / none",
            "ours_saving",
            "ours",
            Target(1.03, at_most=True, beyond=True),
        ),
        cost("noise: ours again / ours", "ours_again", "ours"),
        blocks=_SAVING_BLOCKS,
    )


# From one replica to two.


def _speedup(framework: Framework, name: str, title: str, target: float, suffix: str = "") -> Row:
    """The limit is what two processes reach that share nothing but the machine."""
    two, where = _TWO[framework]

    def variants() -> dict[str, Variant]:
        spec = _trained(name, framework, 16)
        half = override(spec, [f"global_batch_size={spec.global_batch_size // 2}"])
        one = _ONE[framework]
        return {
            "one": Variant(spec, one),
            "two": Variant(spec, two),
            "again": Variant(spec, one),
            "apart": Variant(half, one, apart=2),
        }

    return Row(
        f"{_SHORT[framework]}_speedup{suffix}",
        f"{where}, speedup over one replica, {title}",
        in_turns(variants),
        (
            speed("throughput, 2 replicas / 1", "two", "one", Target(target)),
            speed("two processes that share nothing, half the batch each / 1", "apart", "one"),
            speed("noise: 1 replica / 1 replica again", "one", "again"),
        ),
        rounds=7,
    )


def _trained(name: str, framework: Framework, steps: int) -> TrainSpec:
    return override(models.get(name, "torch" if framework == "torch" else "keras"), [f"steps={steps}"])


def _dropout(framework: Framework) -> Row:
    """Keyed dropout is the same on every placement and in both frameworks; the stock one is neither."""
    return Row(
        f"{_SHORT[framework]}_dropout",
        f"{_NAMES[framework]}, dropout keyed by sample, one core",
        loops("benchmarks.dropout", "--framework", framework),
        (
            cost("time, keyed / stock, forward and backward, 32 x 128 x 256", "keyed", "stock"),
            cost("time, a step of a small GPT, keyed dropout / none", "gpt_keyed", "gpt_none"),
            cost("time, a step of a small GPT, stock dropout / none", "gpt_stock", "gpt_none"),
        ),
    )


def _recorder(framework: Framework) -> Row:
    """A recorder in someone's own loop."""
    return Row(
        f"{_SHORT[framework]}_recorder",
        f"{_NAMES[framework]}, a loop of one's own, small CNN, one core",
        loops("benchmarks.recorded", "--framework", framework),
        (
            cost("time, with a recorder / without", "recorded", "bare", Target(1.02, True)),
            cost("time, with norms at every step / without", "every", "bare"),
        ),
        25,
    )


# Whole diagnoses.


def _diagnosed(measured: dict[str, Any]) -> list[Line]:
    """How long each takes, by the clock."""
    taken = {name: statistics.median(measured["seconds"][f"{name} diagnosed"]) for name in diagnosis.CASES}
    rows = [
        {"what": f"a diagnosis: {case.title}", "value": f"{taken[name]:.1f} s", "wanted": "under 60 s"}
        for name, case in diagnosis.CASES.items()
    ]
    return tool_lines({"rows": rows})


_DIAGNOSES = Row(
    "diagnosis",
    f"Diagnoses of runs of {diagnosis.STEPS:,} steps, beside training both once more",
    loops("benchmarks.diagnosis", seconds_allowed=3600),
    tuple(
        cost(f"time, a diagnosis / both runs: {name}", f"{name} diagnosed", f"{name} trained")
        for name in diagnosis.CASES
    ),
    rounds=3,  # of some five minutes each
    figures=_diagnosed,
)


# Our own tools, which say what they reached in words.

_TOOLS = (
    "import json; from benchmarks import tools; print(json.dumps([vars(r) for r in tools.rows(rounds={})]))"
)
_UNITS = {"s": 1.0, "bytes": 1.0, "KB": 1e3, "MB": 1e6, "million": 1e6}


def _tools(rounds: int, log: Path) -> dict[str, Any]:
    # In a process of their own, since they look at their memory.
    said = output_of([sys.executable, "-c", _TOOLS.format(rounds)], log, seconds_allowed=900)
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "plotly", "pydantic")}
    return {"seconds": {}, "rows": json.loads(said), "versions": versions}


def tool_lines(measured: dict[str, Any]) -> list[Line]:
    """The lines of `benchmarks.tools`, judged by their numbers."""
    return [
        Line(row["what"], row["value"], target=row["wanted"], reached=_holds(row["value"], row["wanted"]))
        for row in measured["rows"]
    ]


def _holds(value: str, wanted: str) -> bool:
    """Whether '1.8 s' is 'under 2 s', '3 million' 'at least 1 million', or '90 MB, 91 MB' 'constant'."""
    figures, limits = _amounts(value), _amounts(wanted)
    if wanted == "constant":
        return figures[1] <= 1.05 * figures[0]
    return figures[0] < limits[0] if wanted.startswith("under") else figures[0] >= limits[0]


def _amounts(text: str) -> list[float]:
    return [float(n) * _UNITS[unit] for n, unit in re.findall(rf"([\d.]+) ({'|'.join(_UNITS)})\b", text)]


ROWS: list[Row] = [
    *(row for kind in _SPECS for row in _torch(kind)),
    *(_tensorflow(kind) for kind in _SPECS),
    *(_family(framework, name, "single") for framework in ("torch", "tensorflow") for name in _FAMILIES),
    _family("torch", "gpt", "ddp"),
    _family("torch", "gpt", "fsdp2"),
    _family("tensorflow", "gpt", "mirrored"),
    *(_switches(framework, kind) for framework in ("torch", "tensorflow") for kind in _SPECS),
    *(_saving(framework, kind) for framework in ("torch", "tensorflow") for kind in _SPECS),
    *(
        _speedup(framework, *what)
        for what in (
            ("compute_bound_cnn", _SHOWN["cnn"], 1.85),
            ("gpt", _FAMILIES["gpt"], 1.75, "_gpt"),
        )
        for framework in ("torch", "tensorflow")
    ),
    *(_dropout(framework) for framework in ("torch", "tensorflow")),
    *(_recorder(framework) for framework in ("torch", "tensorflow")),
    _DIAGNOSES,
    Row("tools", "Our own tools", _tools, rounds=5, figures=tool_lines),
]
