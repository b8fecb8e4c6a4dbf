"""Every strategy, option and engine, and the page docs/evidence/strategies.md that says what each was seen to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from parity.common.parity.compare import Comparison
from parity.common.record import RunRecord
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.capabilities import ENGINES, STRATEGIES, packages_of
from parity_tests.helpers.matrix import small
from parity_tests.tables.capabilities import section

DROPOUT = (
    "model.layers=[{kind: flatten}, {kind: dense, units: 64}, {kind: activation, function: relu},"
    " {kind: dropout, rate: 0.3}, {kind: dense, units: 10}]"
)
RECIPES = ("digits_cnn", "digits_transformer", "dropout")
# Batch norm of the whole global batch cannot be cut into micro-batches; it is refused.
CUT = ("digits_transformer", "dropout")
MICRO_BATCHES = (2, 3)
# What torch.compile looks for, where CXX names no other.
COMPILER = "g++"


@dataclass(frozen=True)
class Row:
    """One way to train: 'framework:strategy', its options, and at how many replicas it makes sense.

    overrides: of the spec, where this way cannot train the usual one; the reference has them too.
    """

    name: str
    options: str = ""
    replicas: tuple[int, ...] = (1, 2, 4)
    accumulates: bool = True
    overrides: tuple[str, ...] = ()
    caveat: str = ""

    def text(self, replicas: int, more: str = "") -> str:
        """The placement as the command line takes it."""
        return ",".join(part for part in (f"{self.name}:{replicas}", self.options, more) if part)

    def placement(self, replicas: int, more: str = "") -> Placement:
        return Placement.from_text(self.text(replicas, more))

    def trains(self, recipe: str) -> bool:
        """Whether this way trains a recipe.

        A convolutional net and one of two dense layers have nothing that tensor parallelism divides. XLA
        cannot sum the statistics of batch norm over replicas.
        """
        if self.name.startswith("tensorflow") and "compile=true" in self.options:
            return recipe != "digits_cnn"
        return "tensor_parallel" not in self.name or recipe == "digits_transformer"

    @property
    def package(self) -> str | None:
        """The optional package that this way needs."""
        placement = self.placement(self.replicas[0])
        if placement.compile and placement.framework == "torch":
            return COMPILER
        return next(iter(packages_of(placement).values()), None)

    @property
    def installed(self) -> bool:
        if self.package == COMPILER:
            return shutil.which(os.environ.get("CXX", COMPILER)) is not None
        return self.package is None or importlib.util.find_spec(self.package) is not None

    @property
    def key(self) -> str:
        return ",".join(part for part in (self.name, self.options) if part)

    @property
    def precision(self) -> str:
        return "float32" if "precision=float32" in self.overrides else "float64"


_STOCK = "What users do today, not the law: `fit` averages the replicas' means, which is another number on an uneven batch; the figures are of even batches (`data.tail: drop`)."
_FLOAT32 = "float64 is not possible: it keeps its master weights in float32. Judged against the noise floor."
ROWS = [
    Row("tensorflow:single", replicas=(1,)),
    Row("tensorflow:mirrored"),
    Row("tensorflow:mirrored", "cross_device=hierarchical_copy", (4,)),
    Row("tensorflow:mirrored", "compile=true", (2,)),
    Row("tensorflow:multi_worker"),
    Row("tensorflow:multi_worker", "replicas_per_worker=2", (4,)),
    Row(
        "tensorflow:mirrored",
        "engine=keras",
        (1, 2),
        False,
        ("data.tail=drop", "global_batch_size=36"),
        _STOCK,
    ),
    Row("torch:single", replicas=(1,)),
    Row(
        "torch:data_parallel",
        replicas=(1,),
        caveat="Without GPUs it is one device, whatever one asks for; more replicas are refused there.",
    ),
    Row("torch:manual"),
    Row("torch:ddp"),
    Row("torch:ddp", "find_unused_parameters=true", (2,)),
    Row("torch:ddp", "gradient_as_bucket_view=false", (2,)),
    Row(
        "torch:ddp",
        "static_graph=true",
        (2,),
        caveat="Reduces at every micro-batch: `no_sync` fails under a static graph (torch 2.13).",
    ),
    Row("torch:ddp", "bucket_mb=1", (2,)),
    Row("torch:ddp", "checkpoint=true", (2,)),
    Row("torch:fsdp1"),
    Row("torch:fsdp1", "sharding=shard_grad_op", (4,)),
    Row("torch:fsdp1", "sharding=no_shard", (4,)),
    Row("torch:fsdp1", "sharding=hybrid_shard,shard_group=2", (4,)),
    Row("torch:fsdp1", "wrap=blocks", (4,)),
    Row("torch:fsdp2"),
    Row("torch:fsdp2", "reshard=true", (4,)),
    Row("torch:fsdp2", "reshard=false,wrap=blocks", (4,)),
    Row("torch:fsdp2", "shard_group=2", (4,)),
    Row("torch:fsdp2", "wrap=blocks", (4,)),
    Row("torch:fsdp2", "wrap=blocks,checkpoint=true", (4,)),
    Row("torch:fsdp2", "cpu_offload=true", (2,)),
    Row("torch:zero_redundancy"),
    Row("torch:single", "compile=true", (1,)),
    Row("torch:ddp", "compile=true", (2,)),
    Row("torch:fsdp2", "compile=true", (2,)),
    Row("torch:tensor_parallel", replicas=(1, 2), caveat="Models with attention or feed-forward blocks."),
    Row("torch:deepspeed", "stage=1", (2, 4), overrides=("precision=float32",), caveat=_FLOAT32),
    Row("torch:deepspeed", "stage=2", (2, 4), overrides=("precision=float32",), caveat=_FLOAT32),
    Row("torch:deepspeed", "stage=3", overrides=("precision=float32",), caveat=_FLOAT32),
    Row("torch:deepspeed", "stage=2,offload_optimizer=true", (2,), True, ("precision=float32",), _FLOAT32),
    Row(
        "torch:deepspeed",
        "stage=3,offload_optimizer=true,offload_parameters=true",
        (2,),
        True,
        ("precision=float32",),
        _FLOAT32,
    ),
    Row("torch:ddp", "engine=lightning", (2, 4)),
    Row("torch:ddp", "engine=lightning,launcher=mp_spawn", (2,)),
    Row("torch:fsdp2", "engine=lightning", (2,)),
    Row("torch:ddp", "engine=fabric", (2, 4)),
    Row("torch:fsdp2", "engine=fabric", (2,)),
    Row("torch:ddp", "engine=accelerate", (2, 4)),
]


def spec_of(row: Row, recipe: str) -> TrainSpec:
    """50 steps at a global batch that ends each epoch uneven, and over four replicas with an empty share."""
    name, more = ("digits_mlp", (DROPOUT,)) if recipe == "dropout" else (recipe, ())
    return small(name, "steps=50", *more, *row.overrides)


def missing() -> list[str]:
    """Strategies, engines and options that no row tries with another value than the usual one."""
    found = {f"{f}:{s}" for f, strategies in STRATEGIES.items() for s in strategies} - {r.name for r in ROWS}
    placements = [row.placement(row.replicas[-1]) for row in ROWS]
    found |= {e for engines in ENGINES.values() for e in engines} - {p.engine for p in placements}
    for framework, strategies in STRATEGIES.items():
        for strategy, row in strategies.items():
            given = [p for p in placements if (p.framework, p.strategy) == (framework, strategy)]
            usual = row.options()
            for option in row.options.model_fields:
                if all(getattr(p.options, option) == getattr(usual, option) for p in given):
                    found.add(f"{framework}:{strategy}:{option}")
    return sorted(found)


_HEAD = """# Strategies

Written by `scripts/test -m "" --strategies=docs/evidence/strategies.md`; do not edit.

Every way to train, each proved against one replica of PyTorch over 50 steps: the law says that none of them
may change the curve. *Start it* is what `parity run --placement` takes; `python -m parity.tf_impl` and
`python -m parity.torch_impl` take the same as flags (`--strategy fsdp2 --replicas 4 --option wrap=blocks`).
The global batch of 34 does not divide the 1437 samples: every epoch ends in a batch of 9, of which over four
replicas one gets none. *cnn* has batch norm with statistics of the whole global batch, *transformer* trains
with AdamW, *dropout* has masks keyed by sample. Figures are the largest relative deviation of the loss at any
step over all replica counts listed; allowed in float64: 1e-12, and 1e-10 for every tensor of the final state.
*Micro-batches*: the same with every local batch cut into 2 and into 3 uneven parts (batch norm over the global
batch refuses to be cut). *Held*: parameters and optimizer slots that one process really holds between two
steps, as a share of the whole, at the most replicas listed. After every step the replicas held the same
parameters, bit for bit, in every run behind this table (checked by digest).

"""
_COLUMNS = (
    "start it",
    "replicas",
    "works",
    "cnn",
    "transformer",
    "dropout",
    "micro-batches",
    "held: parameters, slots",
    "on a GPU",
    "remarks",
)


@dataclass
class StrategyTable:
    """What the tests measured, by row."""

    deviations: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    held: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def saw(self, row: Row, column: str, comparison: Comparison) -> None:
        """One proved run: its largest loss deviation."""
        self.deviations.setdefault((row.key, column), []).append(float(comparison.loss_deviation.max()))

    def holds(self, row: Row, record: RunRecord, whole: RunRecord) -> None:
        """What a rank of a run held, against what one process alone did."""
        self.versions |= record.header.versions
        replicas = record.placement.replicas
        if replicas >= self.held.get(row.key, (0, 0.0, 0.0))[0]:
            shares = (
                max(rank[kind] for rank in record.memory) / whole.memory[0][kind]
                for kind in ("parameters", "slots")
            )
            self.held[row.key] = (replicas, *shares)

    def write(self, path: Path, gpu: dict[str, str] | None = None) -> None:
        """The page. A row that no test has seen says so."""
        lines = [_HEAD + f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}\n"]
        for row in ROWS:
            cells = [self._figure(row, column) for column in (*RECIPES, "micro-batches")]
            works = "yes" if any(key == row.key for key, _ in self.deviations) else "not run"
            held = self.held.get(row.key)
            lines.append(
                f"| `{row.text(row.replicas[-1])}` | {', '.join(f'x{r}' for r in row.replicas)} | {works}"
                f" | {' | '.join(cells)} | {f'{held[1]:.0%}, {held[2]:.0%}' if held else 'not run'}"
                f" | {(gpu or {}).get(row.key, 'not yet run on a GPU')} | {row.caveat or 'none'} |\n"
            )
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        lines.append(f"\nCPU only, {versions}.\n\n{section()}")
        path.write_text("".join(lines), encoding="utf-8")

    def _figure(self, row: Row, column: str) -> str:
        found = self.deviations.get((row.key, column))
        if found:
            return f"{max(found):.1e}"
        if column == "micro-batches" and not row.accumulates:
            return "refused"
        if column == "micro-batches" or row.trains(column):
            return "not run"
        return "refused" if "compile=true" in row.options else "nothing to divide"
