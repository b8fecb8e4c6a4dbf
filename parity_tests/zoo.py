"""Models of other people's packages, unmodified, in pairs: one of Keras and one of PyTorch each.

What they are called with are arguments that their packages offer, as someone who ports a model would choose them;
`differs` says what then still is not the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.common.spec.external.target import Target

Arrays = dict[str, np.ndarray]

# Where scripts/setup puts the packages that pip would let replace torch; see zoo_packages.txt.
PACKAGES = ".venv/zoo"

CLASSES = 1000


@dataclass(frozen=True)
class Images:
    """A batch of random images: channels last for Keras, channels first for torch.

    factor: Keras's numbers are torch's times this, where Keras's model begins with a division by it.
    """

    side: int
    batch: int = 2
    factor: float = 1.0
    names: tuple[str, str] = ("images", "images")

    def draw(self, random: np.random.Generator) -> tuple[Arrays, Arrays]:
        """Inputs of Keras and of torch."""
        images = random.normal(size=(self.batch, self.side, self.side, 3))
        keras, torch = self.names
        return {keras: images * self.factor}, {torch: np.ascontiguousarray(images.transpose(0, 3, 1, 2))}


@dataclass(frozen=True)
class Tokens:
    """A batch of random tokens; the end of the last sample is padding, where there is a mask.

    names: Keras's name of tokens, mask, segments and so on, with torch's.
    positions: torch's name for 0, 1, 2, ..., where it would count from another number by itself.
    """

    names: Mapping[str, str]
    vocabulary: int
    length: int = 12
    batch: int = 2
    padded: bool = True
    positions: str | None = None

    def draw(self, random: np.random.Generator) -> tuple[Arrays, Arrays]:
        """Inputs of Keras and of torch."""
        shape = (self.batch, self.length)
        keras: Arrays = {}
        for name in self.names:
            if "mask" in name:
                keras[name] = np.ones(shape, np.int64)
                if self.padded:
                    keras[name][-1, 2 * self.length // 3 :] = 0
            elif "segment" in name:
                keras[name] = random.integers(0, 2, shape)
            else:
                keras[name] = random.integers(3, self.vocabulary, shape)
        torch = {theirs: keras[name] for name, theirs in self.names.items()}
        if self.positions is not None:
            torch[self.positions] = np.broadcast_to(np.arange(self.length), shape).copy()
        return keras, torch


@dataclass(frozen=True)
class ZooPair:
    """Two models that are meant to be the same.

    outputs: names of Keras's outputs and of torch's that are compared.
    differs: what is not the same, by row of DIFFERENCES where there is one; empty: nothing is.
    zeros: tensors that only torch has, which are set to zero.
    float32: whether the packages' own code computes some of it in float32, whatever the model is in.
    """

    name: str
    keras: Target
    torch: Target
    inputs: Images | Tokens
    outputs: tuple[tuple[str, str], ...] = (("output", "output"),)
    differs: str = ""
    zeros: tuple[str, ...] = ()
    float32: bool = False

    @property
    def widened(self) -> ZooPair:
        """The same with float64 where their code asks for float32: an experiment."""
        keras = Target.of(
            "parity_tests.zoo_keras:hub_widened", {"name": self.keras.attribute, **self.keras.arguments}
        )
        torch = Target.of("parity_tests.zoo_torch:hugging_face_widened", self.torch.arguments)
        return replace(self, keras=keras, torch=torch)


def _keras(name: str, side: int, **arguments: Any) -> Target:
    """Of keras.applications, with logits for outputs, as torch's models have them."""
    head = {"classifier_activation": None} if arguments.get("include_top", True) else {}
    given = {"weights": None, "input_shape": [side, side, 3], **head, **arguments}
    return Target.of(f"keras.applications:{name}", given)


def _timm(name: str, **arguments: Any) -> Target:
    return Target.of("timm:create_model", {"model_name": name, **arguments})


def _transformers(name: str, **config: Any) -> Target:
    return Target.of("parity_tests.zoo_torch:hugging_face", {"name": name, **config})


def _hub(name: str, **arguments: Any) -> Target:
    return Target.of(f"keras_hub.models:{name}", arguments)


_LOGITS = (("output", "logits"),)
_BARE = {"include_preprocessing": False}
_FEATURES = {"features_only": True, "out_indices": [5]}

APPLICATIONS = (
    ZooPair(
        "VGG16",
        _keras("VGG16", 64, include_top=False),
        _timm("vgg16", **_FEATURES),
        Images(64),
        outputs=(("output", "0"),),
    ),
    ZooPair(
        "VGG19",
        _keras("VGG19", 64, include_top=False),
        _timm("vgg19", **_FEATURES),
        Images(64),
        outputs=(("output", "0"),),
    ),
    # Every convolution and pool of stride 2 sees an odd size, where 'same' padding is symmetric.
    ZooPair(
        "Xception",
        _keras("Xception", 71),
        _timm("legacy_xception"),
        Images(71),
        differs="epsilon of batch norm (row 2)",
    ),
    ZooPair(
        "Xception, 96 pixels",
        _keras("Xception", 96),
        _timm("legacy_xception"),
        Images(96),
        differs="epsilon of batch norm (row 2), padding of pools and convolutions of stride 2 (row 33)",
    ),
    ZooPair(
        "MobileNet",
        _keras("MobileNet", 64),
        _transformers("MobileNetV1ForImageClassification", num_labels=CLASSES),
        Images(64, names=("images", "pixel_values")),
        outputs=_LOGITS,
    ),
    ZooPair(
        "MobileNetV2",
        _keras("MobileNetV2", 64),
        _timm("mobilenetv2_100", pad_type="same", bn_eps=1e-3),
        Images(64),
    ),
    ZooPair(
        "MobileNetV2, timm's defaults",
        _keras("MobileNetV2", 64),
        _timm("mobilenetv2_100"),
        Images(64),
        differs="epsilon of batch norm (row 2), padding of convolutions of stride 2 (row 33)",
    ),
    ZooPair(
        "MobileNetV3Small",
        _keras("MobileNetV3Small", 64, **_BARE),
        _timm("tf_mobilenetv3_small_100"),
        Images(64),
    ),
    ZooPair(
        "MobileNetV3Large",
        _keras("MobileNetV3Large", 64, **_BARE),
        _timm("tf_mobilenetv3_large_100"),
        Images(64),
    ),
    ZooPair(
        "DenseNet121",
        _keras("DenseNet121", 64),
        _timm("densenet121"),
        Images(64),
        differs="epsilon of batch norm: 1.001e-5 against 1e-5",
    ),
    ZooPair(
        "EfficientNetB0",
        _keras("EfficientNetB0", 64),
        _timm("tf_efficientnet_b0"),
        Images(64, factor=255.0),
    ),
    ZooPair(
        "EfficientNetV2B0",
        _keras("EfficientNetV2B0", 64, **_BARE),
        _timm("tf_efficientnetv2_b0"),
        Images(64),
    ),
    ZooPair(
        "ConvNeXtTiny",
        _keras("ConvNeXtTiny", 64, **_BARE),
        _transformers("ConvNextForImageClassification", num_labels=CLASSES, layer_norm_eps=1e-6),
        Images(64, names=("images", "pixel_values")),
        outputs=_LOGITS,
        differs="GELU: stock Keras rounds a constant to float32",
    ),
    ZooPair(
        "ResNet50",
        _keras("ResNet50", 64),
        _transformers("ResNetForImageClassification", num_labels=CLASSES, downsample_in_bottleneck=True),
        Images(64, names=("images", "pixel_values")),
        outputs=_LOGITS,
        differs="epsilon of batch norm: 1.001e-5 against 1e-5; Keras's convolutions have biases",
    ),
)

_DEPTH, _HEADS, _WIDTH, _INNER, _WORDS, _PLACES = 12, 4, 64, 160, 97, 24
_SIZES = {
    "num_layers": _DEPTH,
    "num_heads": _HEADS,
    "hidden_dim": _WIDTH,
    "intermediate_dim": _INNER,
}
_TEXT = {"vocabulary_size": _WORDS, "max_sequence_length": _PLACES, **_SIZES}
_BERT = {
    "vocab_size": _WORDS,
    "num_hidden_layers": _DEPTH,
    "num_attention_heads": _HEADS,
    "hidden_size": _WIDTH,
    "intermediate_size": _INNER,
    "max_position_embeddings": _PLACES,
}
_PLAIN = {"token_ids": "input_ids", "padding_mask": "attention_mask"}
_SEGMENTS = {**_PLAIN, "segment_ids": "token_type_ids"}
_SEQUENCE = (("output", "last_hidden_state"),)
_SEGMENT_SEQUENCE = (("sequence_output", "last_hidden_state"),)
_AND_POOLED = (*_SEGMENT_SEQUENCE, ("pooled_output", "pooler_output"))
_TANH = {"hidden_act": "gelu_pytorch_tanh"}
_NO_POOLER = {"add_pooling_layer": False}
_GELU = "GELU: stock Keras rounds a constant to float32"
_SIDE, _PATCH = 32, 8
_VISION = {
    "image_shape": [_SIDE, _SIDE, 3],
    "patch_size": _PATCH,
    "num_layers": _DEPTH,
    "num_heads": _HEADS,
    "hidden_dim": _WIDTH,
}
_THEIR_VISION = {
    "image_size": _SIDE,
    "patch_size": _PATCH,
    "hidden_size": _WIDTH,
    "num_hidden_layers": _DEPTH,
    "num_attention_heads": _HEADS,
    "intermediate_size": _INNER,
    "layer_norm_eps": 1e-6,
}


def _without(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


TRANSFORMERS = (
    ZooPair(
        "BERT",
        _hub("BertBackbone", **_TEXT),
        _transformers("BertModel", **_BERT, **_TANH),
        Tokens(_SEGMENTS, _WORDS),
        _AND_POOLED,
        differs=_GELU,
    ),
    ZooPair(
        "DistilBERT",
        _hub("DistilBertBackbone", **_TEXT),
        _transformers(
            "DistilBertModel",
            vocab_size=_WORDS,
            max_position_embeddings=_PLACES,
            n_layers=_DEPTH,
            n_heads=_HEADS,
            dim=_WIDTH,
            hidden_dim=_INNER,
        ),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=_GELU,
    ),
    ZooPair(
        "RoBERTa",
        _hub("RobertaBackbone", **_TEXT),
        _transformers("RobertaModel", **_BERT, type_vocab_size=1, layer_norm_eps=1e-5, model=_NO_POOLER),
        Tokens(_PLAIN, _WORDS, positions="position_ids"),
        _SEQUENCE,
        differs=f"{_GELU}; torch has an embedding of segments, of which Keras has none",
        zeros=("embeddings.token_type_embeddings.weight",),
    ),
    ZooPair(
        "ALBERT",
        _hub("AlbertBackbone", **_TEXT, embedding_dim=32),
        _transformers("AlbertModel", **_BERT, **_TANH, embedding_size=32),
        Tokens(_SEGMENTS, _WORDS),
        _AND_POOLED,
        differs=_GELU,
    ),
    ZooPair(
        "ELECTRA",
        _hub("ElectraBackbone", vocab_size=_WORDS, **_without(_TEXT, "vocabulary_size"), embedding_dim=32),
        _transformers("ElectraModel", **_BERT, **_TANH, embedding_size=32),
        Tokens(_SEGMENTS, _WORDS),
        _SEGMENT_SEQUENCE,
        differs=f"{_GELU}; Keras has a pooler, of which torch has none",
    ),
    ZooPair(
        "GPT-2",
        _hub("GPT2Backbone", **_TEXT),
        _transformers(
            "GPT2Model",
            vocab_size=_WORDS,
            n_positions=_PLACES,
            n_embd=_WIDTH,
            n_layer=_DEPTH,
            n_head=_HEADS,
            n_inner=_INNER,
            activation_function="gelu_pytorch_tanh",
            bos_token_id=0,
            eos_token_id=0,
        ),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=_GELU,
    ),
    ZooPair(
        "GPT-NeoX",
        _hub("GPTNeoXBackbone", **_TEXT),
        _transformers("GPTNeoXModel", **_BERT, **_TANH),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=f"{_GELU}; both take angles of rotary positions in float32",
        float32=True,
    ),
    ZooPair(
        "BLOOM",
        _hub("BloomBackbone", vocabulary_size=_WORDS, **(_SIZES | {"intermediate_dim": 4 * _WIDTH})),
        _transformers("BloomModel", vocab_size=_WORDS, hidden_size=_WIDTH, n_layer=_DEPTH, n_head=_HEADS),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=f"{_GELU}, torch one to eight digits; torch's attention takes its softmax in float32",
        float32=True,
    ),
    ZooPair(
        "Llama",
        _hub(
            "LlamaBackbone",
            vocabulary_size=_WORDS,
            num_query_heads=_HEADS,
            num_key_value_heads=2,
            **_without(_SIZES, "num_heads"),
        ),
        _transformers("LlamaModel", **_BERT, num_key_value_heads=2, rms_norm_eps=1e-6),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs="both normalise and take angles of rotary positions in float32; Keras has an output embedding",
        float32=True,
    ),
    ZooPair(
        "T5",
        _hub("T5Backbone", vocabulary_size=_WORDS, **_SIZES),
        _transformers(
            "T5Model",
            vocab_size=_WORDS,
            d_model=_WIDTH,
            d_kv=_WIDTH // _HEADS,
            d_ff=_INNER,
            num_layers=_DEPTH,
            num_heads=_HEADS,
            feed_forward_proj="gated-relu",
        ),
        Tokens(
            {
                "encoder_token_ids": "input_ids",
                "encoder_padding_mask": "attention_mask",
                "decoder_token_ids": "decoder_input_ids",
                "decoder_padding_mask": "decoder_attention_mask",
            },
            _WORDS,
        ),
        (
            ("encoder_sequence_output", "encoder_last_hidden_state"),
            ("decoder_sequence_output", "last_hidden_state"),
        ),
        differs="torch normalises in float32",
        float32=True,
    ),
    ZooPair(
        "ViT",
        _hub("ViTBackbone", **_VISION, mlp_dim=_INNER),
        _transformers("ViTModel", **_THEIR_VISION, model=_NO_POOLER),
        Images(_SIDE, names=("images", "pixel_values")),
        _SEQUENCE,
        differs=_GELU,
    ),
    ZooPair(
        "DeiT",
        _hub("DeiTBackbone", **_VISION, intermediate_dim=_INNER),
        _transformers("DeiTModel", **_THEIR_VISION, model=_NO_POOLER),
        Images(_SIDE, names=("images", "pixel_values")),
        _SEQUENCE,
        differs=_GELU,
    ),
)

ZOO = {pair.name: pair for pair in (*APPLICATIONS, *TRANSFORMERS)}
