"""Our specs against code that no one here wrote: keras.applications and Hugging Face transformers."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest

from parity.common.recipes.models import sequence, vision
from parity.common.spec import ModelSpec
from parity.common.spec.model import walk
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

# Dozens of layers, each with sums over hundreds of products.
LIMIT = 1e-10

transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed; scripts/setup all,test,published",
)


def parameters(model: ModelSpec) -> int:
    nodes = walk(model.resolve("keras").tree())
    return sum(math.prod(p.shape) for node in nodes for p in node.parameters if p.trainable)


# What the papers, the frameworks' documentation or the libraries below give as the number of parameters.
PUBLISHED = {
    "lenet5": (vision.lenet5_model(), 61_706),
    "resnet20": (vision.small_resnet_model(20, 16, 32), 272_474),
    "resnet50": (vision.resnet50_model(), 25_583_592),
    "resnet50, torchvision": (vision.resnet50_model(first_version=False), 25_557_032),
    "mobilenet_v2": (vision.mobilenet_v2_model(), 3_504_872),
    "vit_tiny": (vision.vit_model(192, 12, 3), 5_717_416),
    "vit_small": (vision.vit_model(384, 12, 6), 22_050_664),
    "vit_base": (vision.vit_model(768, 12, 12), 86_567_656),
    "autoencoder": (vision.autoencoder_model(), 28_353),
    "gpt2": (sequence.gpt2_model(), 124_439_808),
    "bert_base": (sequence.bert_model(), 109_514_298),
    "text_classifier": (sequence.text_classifier_model(), 2_757_761),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_parameter_count_is_the_published_one(name: str) -> None:
    model, count = PUBLISHED[name]
    assert parameters(model) == count


def hugging_face(kind: str, size: dict[str, int]) -> dict[str, Any]:
    """Facts for the peers: our model and the same as a class of transformers."""
    width, depth, heads = size["width"], size["depth"], size["heads"]
    common = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": heads}
    common["intermediate_size"] = 4 * width
    if kind == "gpt2":
        return {
            "model": sequence.gpt2_model(**size),
            "class": "GPT2LMHeadModel",
            "config_class": "GPT2Config",
            "config": {
                "vocab_size": size["vocabulary"],
                "n_positions": size["positions"],
                "n_embd": width,
                "n_layer": depth,
                "n_head": heads,
                "bos_token_id": 0,
                "eos_token_id": 0,
            },
        }
    if kind == "bert":
        return {
            "model": sequence.bert_model(**size),
            "class": "BertForMaskedLM",
            "config_class": "BertConfig",
            "config": {
                "vocab_size": size["vocabulary"],
                "max_position_embeddings": size["positions"],
                **common,
            },
            "separator_id": size["separator_id"],
        }
    return {
        "model": vision.vit_model(**size),
        "class": "ViTForImageClassification",
        "config_class": "ViTConfig",
        "config": {
            "image_size": size["side"],
            "patch_size": size["patch"],
            "num_labels": size["classes"],
            "layer_norm_eps": 1e-6,
            **common,
        },
    }


def facts(given: dict[str, Any], kind: str, depth: int = 0) -> dict[str, Any]:
    model = given["model"].resolve("keras")
    return {**given, "model": model.to_dict(), "seed": 3, "state": kind, "depth": depth}


SMALL = {
    "gpt2": {"vocabulary": 97, "positions": 20, "tokens": 12, "width": 24, "depth": 3, "heads": 3},
    "bert": {
        "vocabulary": 23,
        "positions": 20,
        "tokens": 12,
        "width": 24,
        "depth": 3,
        "heads": 3,
        "separator_id": 5,
    },
    "vit": {"width": 24, "depth": 3, "heads": 3, "side": 32, "patch": 8, "classes": 7},
}
FULL = {
    "gpt2": {"vocabulary": 50257, "positions": 1024, "tokens": 48, "width": 768, "depth": 12, "heads": 12},
    "bert": {
        "vocabulary": 30522,
        "positions": 512,
        "tokens": 48,
        "width": 768,
        "depth": 12,
        "heads": 12,
        "separator_id": 102,
    },
    "vit": {"width": 768, "depth": 12, "heads": 12, "side": 224, "patch": 16, "classes": 1000},
}


def deviation(a: np.ndarray, b: np.ndarray) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())


def against(peers: dict[str, Peer], stock: str, given: dict[str, Any], changes: Any = None) -> list[float]:
    """Deviations of our torch and our TensorFlow side from a model of `stock`'s world."""
    altered = given if changes is None else {**given, "model": changes}
    calls = [peers[name].begin("published:ours", altered, {}) for name in ("torch", "tensorflow")]
    ours = [call.result()["y"] for call in calls]
    theirs = peers[stock]("published:theirs", given, {})["y"]
    return [deviation(y, theirs) for y in ours]


@transformers
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *((kind, SMALL[kind]) for kind in SMALL),
        *(pytest.param(kind, FULL[kind], marks=pytest.mark.exhaustive) for kind in FULL),
    ],
    ids=lambda value: value if isinstance(value, str) else f"width {value['width']}",
)
def test_transformers_models(
    peers: dict[str, Peer], vocabulary: Vocabulary, kind: str, size: dict[str, int]
) -> None:
    given = facts(hugging_face(kind, size), f"{kind}_state", size["depth"])
    expected = peers["torch"]("published:size", given, {})["parameters"]
    assert parameters(ModelSpec.parse(given["model"])) == expected
    found = against(peers, "torch", given)
    vocabulary.saw(
        "recipe", {"bert": "bert_base", "vit": "vit_base"}.get(kind, kind), max(found), "transformers"
    )
    assert max(found) <= LIMIT


KERAS = {
    "ResNet50": (vision.resnet50_model(side=64, classes=10), "resnet50_layers"),
    "MobileNetV2": (vision.mobilenet_v2_model(side=64, classes=10), "mobilenet_v2_layers"),
}


@pytest.mark.parametrize("name", ["MobileNetV2", pytest.param("ResNet50", marks=pytest.mark.slow)])
def test_keras_applications(peers: dict[str, Peer], vocabulary: Vocabulary, name: str) -> None:
    model, state = KERAS[name]
    given = {**facts({"model": model}, state), "class": name}
    full = {"ResNet50": "resnet50", "MobileNetV2": "mobilenet_v2"}[name]
    expected = peers["tensorflow"]("published:size", given, {})["parameters"]
    assert PUBLISHED[full][1] == expected
    found = against(peers, "tensorflow", given)
    vocabulary.saw("recipe", full, max(found), f"keras.applications.{name}")
    assert max(found) <= LIMIT


def test_a_model_that_is_nearly_theirs_is_seen(peers: dict[str, Peer]) -> None:
    """The negative control: one block's stride a convolution later, as torchvision has it."""
    model, state = KERAS["ResNet50"]
    given = {**facts({"model": model}, state), "class": "ResNet50"}
    changed = ModelSpec.parse(given["model"]).to_dict()
    (block,) = (layer for layer in changed["layers"] if layer["name"] == "stage_2_1")
    inside = block["layers"][0]["layers"][0]["layers"]
    inside[0]["strides"], inside[3]["strides"] = inside[3]["strides"], inside[0]["strides"]
    assert min(against(peers, "tensorflow", given, changed)) > 1e-3
