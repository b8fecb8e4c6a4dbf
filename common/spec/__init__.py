"""What is trained (TrainSpec) and how it is run (Placement), as frozen, validated data."""

from common.spec.base import Convention, Spec
from common.spec.described import Described
from common.spec.io import dump_json, dump_yaml, json_schema, load_spec, override
from common.spec.layers import LayerSpec, Node, ParameterSpec
from common.spec.model import ModelSpec, walk
from common.spec.optimizers import SGD, Adam, AdamW
from common.spec.placement import Placement
from common.spec.replay import Replay
from common.spec.schedules import Constant, WarmupCosine
from common.spec.strategies import STRATEGIES
from common.spec.train import TrainSpec

__all__ = [
    "SGD",
    "STRATEGIES",
    "Adam",
    "AdamW",
    "Constant",
    "Convention",
    "Described",
    "LayerSpec",
    "ModelSpec",
    "Node",
    "ParameterSpec",
    "Placement",
    "Replay",
    "Spec",
    "TrainSpec",
    "WarmupCosine",
    "dump_json",
    "dump_yaml",
    "json_schema",
    "load_spec",
    "override",
    "walk",
]
