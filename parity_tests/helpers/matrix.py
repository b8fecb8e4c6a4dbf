"""The matrix of specs and placements over which parity is proved."""

from __future__ import annotations

from importlib.metadata import version

from parity.common import recipes
from parity.common.base.package import numbers
from parity.common.spec import Placement, RunConfig, TrainSpec, override

OPTIMIZERS = {
    # Not higher: at 0.05 the transformer with Keras initial values is unstable, and its permuted runs of
    # one framework already part by 3e-13.
    "sgd": "{kind: sgd, learning_rate: 0.02, momentum: 0.9}",
    "adam": "{kind: adam, learning_rate: 0.003}",
    "adamw": "{kind: adamw, learning_rate: 0.003}",
}
CONVENTIONS = ("keras", "torch")
DIGITS = ("digits_mlp", "digits_cnn", "digits_transformer")
SPECS = [(r, o, c) for r in DIGITS for o in OPTIMIZERS for c in CONVENTIONS]

# One spec for each recipe and for each pair of optimizer and convention: the default suite.
CORE = [
    ("digits_mlp", "sgd", "torch"),
    ("digits_mlp", "adam", "keras"),
    ("digits_cnn", "sgd", "keras"),
    ("digits_cnn", "adamw", "torch"),
    ("digits_transformer", "adam", "torch"),
    ("digits_transformer", "adamw", "keras"),
]

# 34 does not divide the 1437 samples: every epoch ends in 9, over 4 replicas 3, 3, 3 and none.
BATCH = "global_batch_size=34"
# The recipe's own widths serve to measure speed; parity does not need them.
NARROW = ["model.layers.0.filters=8", "model.layers.3.filters=16"]


def matrix_spec(recipe: str, optimizer: str, convention: str, precision: str = "float64") -> TrainSpec:
    """A recipe with an uneven batch, 200 steps, and the given optimizer and convention."""
    return small(
        recipe,
        "steps=200",
        f"optimizer={OPTIMIZERS[optimizer]}",
        f"convention={convention}",
        f"precision={precision}",
    )


def small(recipe: str, *assignments: str) -> TrainSpec:
    """A recipe with an uneven batch and further overrides."""
    narrow = NARROW if recipe == "digits_cnn" else []
    return override(recipes.get(recipe), [BATCH, *narrow, *assignments])


# What is trained below float32. float16 begins with scales that are too large, and tries larger ones again and again.
LOW_PRECISION = {
    "bfloat16": small("digits_transformer", "steps=12", "precision=bfloat16_mixed"),
    "float16": small(
        "digits_mlp",
        "steps=12",
        "precision=float16_mixed",
        "loss_scale={initial: 131072.0, growth_interval: 3}",
    ),
}


def tensorflow(replicas: int, **more: object) -> Placement:
    return Placement.parse({"framework": "tensorflow", "strategy": "mirrored", "replicas": replicas, **more})


def torch(strategy: str, replicas: int, **more: object) -> Placement:
    return Placement.parse({"framework": "torch", "strategy": strategy, "replicas": replicas, **more})


def config(run: Placement | RunConfig, **fields: object) -> RunConfig:
    """A run with other fields of its placement, run options or instrumentation."""
    parts = run.parts if isinstance(run, RunConfig) else [run]
    return RunConfig.parse({name: value for part in parts for name, value in part.to_dict().items()} | fields)


TENSORFLOW = [tensorflow(1), tensorflow(2), tensorflow(4)]
# On CPU torch has had FSDP2 since 2.7.
SHARDED = "fsdp2" if numbers(version("torch")) >= (2, 7) else "fsdp1"
TORCH = [torch("single", 1), torch("ddp", 1), torch("ddp", 2), torch("ddp", 4), torch(SHARDED, 2)]
