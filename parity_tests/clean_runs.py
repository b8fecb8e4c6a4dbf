"""Pairs of runs in which nothing is wrong, of whatever spec and placements: none may be diagnosed.

Drawn by a seeded generator, so that each can be made again by its number.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from parity.common.base.errors import SpecError
from parity.common.execution.checks import check_run
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.instrumentation import Instrumentation, Replay
from parity_tests.faults.registry import spec_of

SEED, COUNT = 7, 200

# Tracing a large graph takes TensorFlow many seconds: these train in PyTorch, but for one pair of each.
LARGE = (
    "mobilenet_v2:tiny",
    "resnet50:tiny",
    "resnet50_torchvision:tiny",
    "resnet20:tiny",
    "unet:tiny",
    "vit_base:tiny",
    "gpt2:tiny",
    "bert_base:tiny",
    "lstm_classifier:tiny",
    "gru_tagger:tiny",
    "digits_transformer",
)
SMALL = ("digits_mlp", "digits_cnn", "lenet5:tiny", "autoencoder:tiny", "wide_and_deep:tiny")
# Every third pair has TensorFlow in it.
_TENSORFLOW_EVERY = 3

_PRECISIONS = ("float64",) * 7 + ("float32", "bfloat16_mixed", "float16_mixed")
OPTIMIZERS = (
    (),
    (),
    ("optimizer={kind: sgd, learning_rate: 0.02}",),
    ("optimizer={kind: sgd, learning_rate: 0.02, momentum: 0.9}",),
    ("optimizer={kind: sgd, learning_rate: 0.02, momentum: 0.9, nesterov: true, weight_decay: 0.001}",),
    ("optimizer={kind: sgd, learning_rate: 0.02, momentum: 0.9, clip_global_norm: 0.5}",),
    ("optimizer={kind: adam, learning_rate: 0.003}",),
    ("optimizer={kind: adamw, learning_rate: 0.003, decay_mask: matrices}",),
    ("optimizer={kind: adamw, learning_rate: 0.003, clip_norm: 0.3}",),
    ("optimizer={kind: adam, learning_rate: 0.003, ema: {decay: 0.9}}",),
    ("optimizer={kind: rmsprop, learning_rate: 0.001, momentum: 0.5}",),
    ("optimizer={kind: adamax, learning_rate: 0.002}",),
    ("optimizer={kind: nadam, learning_rate: 0.002}",),
)
SCHEDULES = (
    (),
    (),
    ("schedule={kind: constant}",),
    ("schedule={kind: step, every: 3, factor: 0.5}",),
    ("schedule={kind: exponential, decay_rate: 0.9}",),
    ("schedule={kind: polynomial, power: 2.0}",),
    ("schedule={kind: cosine_restarts, first_steps: 4}",),
    ("schedule={kind: linear, final_fraction: 0.1, warmup: {steps: 3}}",),
    ("schedule={kind: reduce_on_plateau, patience: 0, factor: 0.5}",),
)
# Replicas and micro-batches.
_REPLICAS, _MICRO_BATCHES = (1, 2, 2, 3, 4), (1, 1, 1, 2, 3)
_SHARE_OF_WORKERS = 0.1
_DATA = ((), (), (), ("data.split=strided",), ("data.tail=drop",), ("data.shuffle=false",))
_TORCH = (
    ("ddp", {}),
    ("ddp", {}),
    ("fsdp2", {}),
    ("fsdp2", {"wrap": "blocks"}),
    ("fsdp1", {}),
    ("fsdp1", {"sharding": "no_shard"}),
    ("manual", {}),
    ("zero_redundancy", {}),
)


@dataclass(frozen=True)
class CleanRun:
    """One spec on two placements."""

    number: int
    spec: TrainSpec
    reference: Placement
    candidate: Placement

    @property
    def id(self) -> str:
        placed = "-".join(p.label.replace(" ", "_") for p in (self.reference, self.candidate))
        return f"{self.number:03d}-{self.spec.name}-{self.spec.precision}-{placed}"

    @property
    def frameworks(self) -> set[str]:
        return {self.reference.framework, self.candidate.framework}


def clean_run(number: int) -> CleanRun:
    """The pair of a number, from 0 on without end."""
    draw = random.Random(f"{SEED}:{number}")
    # What does not go together is drawn anew: micro-batches with batch norm over the replicas, say.
    return next(filter(None, (_drawn(draw, number) for _ in itertools.count())))


def _drawn(draw: random.Random, number: int) -> CleanRun | None:
    with_tensorflow = number % _TENSORFLOW_EVERY == 0
    recipe = draw.choice(SMALL if with_tensorflow else (*SMALL, *LARGE))
    place = number // _TENSORFLOW_EVERY
    if with_tensorflow and place < len(LARGE):
        recipe = LARGE[place]
    reference, candidate = _tensorflow_pair(draw) if with_tensorflow else _torch_pair(draw)
    if reference == candidate:
        return None
    more = [*draw.choice(OPTIMIZERS), *draw.choice(SCHEDULES), *draw.choice(_DATA)]
    more += [f"convention={draw.choice(('keras', 'torch'))}", f"precision={draw.choice(_PRECISIONS)}"]
    more.append(f"seed={draw.randrange(1000)}")
    try:
        spec = spec_of(recipe, tuple(more)).resolved()
        for placement in (reference, candidate):
            check_run(spec, placement, instrumentation=Instrumentation(replay=Replay(stop=1)))
    except SpecError:
        return None
    return CleanRun(number, spec, reference, candidate)


def _torch_pair(draw: random.Random) -> tuple[Placement, Placement]:
    """Two ways of PyTorch, one of them often a process alone."""
    reference = _placement("torch", "single") if draw.random() < 0.7 else _torch(draw)
    return reference, _torch(draw)


def _torch(draw: random.Random) -> Placement:
    strategy, options = draw.choice(_TORCH)
    return _placement("torch", strategy, draw.choice(_REPLICAS), draw.choice(_MICRO_BATCHES), options=options)


def _tensorflow_pair(draw: random.Random) -> tuple[Placement, Placement]:
    """A way of TensorFlow beside one of PyTorch, or beside another of its own."""
    alone = _placement(draw.choice(("torch", "torch", "tensorflow")), "single")
    if draw.random() < _SHARE_OF_WORKERS:
        return alone, _placement("tensorflow", "multi_worker", 2, draw.choice(_MICRO_BATCHES))
    return alone, _placement("tensorflow", "mirrored", draw.choice(_REPLICAS), draw.choice(_MICRO_BATCHES))


def _placement(
    framework: str, strategy: str, replicas: int = 1, micro_batches: int = 1, **more: object
) -> Placement:
    given = {"framework": framework, "strategy": strategy, "replicas": replicas}
    return Placement.parse({**given, "accumulation": micro_batches, **more})
