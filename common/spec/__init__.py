"""What is trained (TrainSpec) and how it is run (Placement), as frozen, validated data."""

from parity.common.spec.base import Convention, Spec
from parity.common.spec.instrumentation import Instrumentation, Replay
from parity.common.spec.io import dump_json, dump_yaml, json_schema, load_spec, override
from parity.common.spec.layers import LayerSpec, Node, ParameterSpec
from parity.common.spec.model import ModelSpec, walk
from parity.common.spec.optimizers import SGD, Adam, AdamW
from parity.common.spec.placement import Placement
from parity.common.spec.run_config import RunConfig
from parity.common.spec.run_options import RunOptions
from parity.common.spec.schedules import Constant, WarmupCosine
from parity.common.spec.script_info import ScriptInfo
from parity.common.spec.train import TrainSpec

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Constant",
    "Convention",
    "Instrumentation",
    "LayerSpec",
    "ModelSpec",
    "Node",
    "ParameterSpec",
    "Placement",
    "Replay",
    "RunConfig",
    "RunOptions",
    "ScriptInfo",
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
