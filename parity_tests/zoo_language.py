"""Pairs of transformers of words and of sound: of KerasHub, and of Hugging Face's package of that name."""

from __future__ import annotations

from typing import Any

from parity.common.spec.external.target import Target
from parity_tests.zoo_pair import (
    GELU,
    Sound,
    Together,
    Tokens,
    ZooPair,
    hub,
    hugging_face,
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


def _without(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


# Later additions are short: their blocks are all alike.
_FEW = 4
_SHORT = {**_TEXT, "num_layers": _FEW}
_SHORT_BERT = {**_BERT, "num_hidden_layers": _FEW}
_GROUPED = {
    "vocabulary_size": _WORDS,
    "num_layers": _FEW,
    "num_query_heads": _HEADS,
    "num_key_value_heads": 2,
    "hidden_dim": _WIDTH,
    "intermediate_dim": _INNER,
}
_THEIR_GROUPED = {**_SHORT_BERT, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "pad_token_id": 0}
_HEAD: dict[str, Any] = {"head_dim": _WIDTH // _HEADS}
_BLOOM = hugging_face("BloomModel", vocab_size=_WORDS, hidden_size=_WIDTH, n_layer=_DEPTH, n_head=_HEADS)
# torch multiplies matrices in groups in float32 at most.
_LOOP = {"experts_implementation": "eager"}
_FLOATS = "torch takes angles of rotary positions in float32"
_BOTH_TOKENS = {
    "encoder_token_ids": "input_ids",
    "encoder_padding_mask": "attention_mask",
    "decoder_token_ids": "decoder_input_ids",
    "decoder_padding_mask": "decoder_attention_mask",
}
_BOTH_SEQUENCES = (
    ("encoder_sequence_output", "encoder_last_hidden_state"),
    ("decoder_sequence_output", "last_hidden_state"),
)


def _rotary(
    name: str,
    keras: str,
    torch: str,
    config: dict[str, Any] | None = None,
    differs: str = _FLOATS,
    **arguments: Any,
) -> ZooPair:
    """Of a language model that has rotary positions and groups of heads."""
    return ZooPair(
        name,
        hub(keras, **(_GROUPED | arguments)),
        hugging_face(torch, **(_THEIR_GROUPED | (config or {}))),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=differs,
    )


def _t5(name: str, form: str, **arguments: Any) -> ZooPair:
    return ZooPair(
        name,
        hub("T5Backbone", vocabulary_size=_WORDS, **_SIZES, **arguments),
        hugging_face(
            "T5Model",
            vocab_size=_WORDS,
            d_model=_WIDTH,
            d_kv=_WIDTH // _HEADS,
            d_ff=_INNER,
            num_layers=_DEPTH,
            num_heads=_HEADS,
            feed_forward_proj=form,
        ),
        Tokens(_BOTH_TOKENS, _WORDS),
        _BOTH_SEQUENCES,
    )


LANGUAGE = (
    ZooPair(
        "BERT",
        hub("BertBackbone", **_TEXT),
        hugging_face("BertModel", **_BERT, **_TANH),
        Tokens(_SEGMENTS, _WORDS),
        _AND_POOLED,
        differs=GELU,
    ),
    ZooPair(
        "DistilBERT",
        hub("DistilBertBackbone", **_TEXT),
        hugging_face(
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
        differs=GELU,
    ),
    ZooPair(
        "RoBERTa",
        hub("RobertaBackbone", **_TEXT),
        hugging_face("RobertaModel", **_BERT, type_vocab_size=1, layer_norm_eps=1e-5, model=_NO_POOLER),
        Tokens(_PLAIN, _WORDS, positions="position_ids"),
        _SEQUENCE,
        differs=f"{GELU}; torch has an embedding of segments, of which Keras has none",
        zeros=("embeddings.token_type_embeddings.weight",),
    ),
    ZooPair(
        "ALBERT",
        hub("AlbertBackbone", **_TEXT, embedding_dim=32),
        hugging_face("AlbertModel", **_BERT, **_TANH, embedding_size=32),
        Tokens(_SEGMENTS, _WORDS),
        _AND_POOLED,
        differs=GELU,
    ),
    ZooPair(
        "ELECTRA",
        hub("ElectraBackbone", vocab_size=_WORDS, **_without(_TEXT, "vocabulary_size"), embedding_dim=32),
        hugging_face("ElectraModel", **_BERT, **_TANH, embedding_size=32),
        Tokens(_SEGMENTS, _WORDS),
        _SEGMENT_SEQUENCE,
        differs=f"{GELU}; Keras has a pooler, of which torch has none",
    ),
    ZooPair(
        "GPT-2",
        hub("GPT2Backbone", **_TEXT),
        hugging_face(
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
        differs=GELU,
    ),
    ZooPair(
        "GPT-NeoX",
        hub("GPTNeoXBackbone", **_TEXT),
        hugging_face("GPTNeoXModel", **_BERT, **_TANH),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=f"{GELU}; {_FLOATS}",
    ),
    ZooPair(
        "BLOOM",
        hub("BloomBackbone", vocabulary_size=_WORDS, **(_SIZES | {"intermediate_dim": 4 * _WIDTH})),
        _BLOOM,
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=f"{GELU}, torch one to eight digits",
        without=Target.of("parity_tests.zoo_torch:with_exact_gelu", _BLOOM.arguments),
        besides="GELU's constants have eight digits in torch",
    ),
    ZooPair(
        "Llama",
        hub(
            "LlamaBackbone",
            vocabulary_size=_WORDS,
            num_query_heads=_HEADS,
            num_key_value_heads=2,
            **_without(_SIZES, "num_heads"),
        ),
        hugging_face("LlamaModel", **_BERT, num_key_value_heads=2, rms_norm_eps=1e-6),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=f"{_FLOATS}; Keras has an output embedding",
    ),
    _t5("T5", "gated-relu"),
    _t5("T5, as it first was", "relu", use_gated_activation=False),
    ZooPair(
        "XLM-RoBERTa",
        hub("XLMRobertaBackbone", **_SHORT),
        hugging_face(
            "XLMRobertaModel", **_SHORT_BERT, type_vocab_size=1, layer_norm_eps=1e-5, model=_NO_POOLER
        ),
        Tokens(_PLAIN, _WORDS, positions="position_ids"),
        _SEQUENCE,
        differs=f"{GELU}; torch has an embedding of segments, of which Keras has none",
        zeros=("embeddings.token_type_embeddings.weight",),
    ),
    ZooPair(
        "DeBERTa-v3",
        hub("DebertaV3Backbone", **_SHORT, bucket_size=8),
        hugging_face(
            "DebertaV2Model",
            **_SHORT_BERT,
            relative_attention=True,
            position_buckets=8,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            type_vocab_size=0,
            layer_norm_eps=1e-7,
        ),
        # torch sets what is embedded at padded places to zero.
        Tokens(_PLAIN, _WORDS, padded=False),
        _SEQUENCE,
        differs=f"{GELU}; the scale of attention in float32",
    ),
    ZooPair(
        "FNet",
        hub("FNetBackbone", **_without(_SHORT, "num_heads")),
        hugging_face("FNetModel", **_without(_SHORT_BERT, "num_attention_heads"), type_vocab_size=4),
        Tokens(_without(_SEGMENTS, "padding_mask"), _WORDS),
        _AND_POOLED,
        differs=f"{GELU}; Keras transforms in float32",
    ),
    ZooPair(
        "ESM-2",
        hub(
            "ESMBackbone",
            **_without(_SHORT, "max_sequence_length"),
            use_pre_layer_norm=False,
            layer_norm_eps=1e-5,
        ),
        hugging_face(
            "EsmModel",
            **_SHORT_BERT,
            position_embedding_type="rotary",
            emb_layer_norm_before=False,
            token_dropout=False,
            layer_norm_eps=1e-5,
            pad_token_id=0,
            mask_token_id=1,
            model=_NO_POOLER,
        ),
        Tokens({"token_ids": "input_ids"}, _WORDS),
        _SEQUENCE,
        differs=GELU,
    ),
    # torch's table of positions has two more rows, to which it adds the numbers that it is given.
    ZooPair(
        "OPT",
        hub("OPTBackbone", **_SHORT),
        hugging_face(
            "OPTModel",
            vocab_size=_WORDS,
            num_hidden_layers=_FEW,
            num_attention_heads=_HEADS,
            hidden_size=_WIDTH,
            word_embed_proj_dim=_WIDTH,
            ffn_dim=_INNER,
            max_position_embeddings=_PLACES - 2,
        ),
        Tokens(_PLAIN, _WORDS, positions="position_ids", first=-2),
        _SEQUENCE,
    ),
    ZooPair(
        "Whisper",
        hub(
            "WhisperBackbone",
            **_without(_SHORT, "max_sequence_length"),
            num_mels=16,
            max_encoder_sequence_length=2 * _PLACES,
            max_decoder_sequence_length=_PLACES,
        ),
        hugging_face(
            "WhisperModel",
            vocab_size=_WORDS,
            d_model=_WIDTH,
            encoder_layers=_FEW,
            decoder_layers=_FEW,
            encoder_attention_heads=_HEADS,
            decoder_attention_heads=_HEADS,
            encoder_ffn_dim=_INNER,
            decoder_ffn_dim=_INNER,
            num_mel_bins=16,
            max_source_positions=_PLACES,
            max_target_positions=_PLACES,
            pad_token_id=0,
            bos_token_id=0,
            eos_token_id=0,
            decoder_start_token_id=0,
        ),
        Together(
            (
                Sound(("encoder_features", "input_features"), 2 * _PLACES, 16),
                Tokens(
                    {
                        "decoder_token_ids": "decoder_input_ids",
                        "decoder_padding_mask": "decoder_attention_mask",
                    },
                    _WORDS,
                ),
            )
        ),
        _BOTH_SEQUENCES,
        differs=GELU,
    ),
    ZooPair(
        "Falcon",
        hub(
            "FalconBackbone",
            **_without(_SHORT, "num_heads", "max_sequence_length"),
            num_attention_heads=_HEADS,
        ),
        hugging_face(
            "FalconModel",
            **_without(_SHORT_BERT, "intermediate_size"),
            ffn_hidden_size=_INNER,
            alibi=True,
            bias=True,
            multi_query=False,
            parallel_attn=False,
            new_decoder_architecture=False,
        ),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=GELU,
    ),
    _rotary(
        "Llama 3.1",
        "Llama3Backbone",
        "LlamaModel",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            }
        },
        rope_max_wavelength=500000,
        rope_frequency_adjustment_factor=8.0,
        rope_low_freq_factor=1.0,
        rope_high_freq_factor=4.0,
        rope_pretraining_sequence_length=8192,
        layer_norm_epsilon=1e-6,
    ),
    _rotary("Mistral", "MistralBackbone", "MistralModel", {"sliding_window": 512}),
    _rotary("Phi-3", "Phi3Backbone", "Phi3Model"),
    _rotary("Qwen2", "QwenBackbone", "Qwen2Model"),
    # KerasHub's norms of queries and keys have an epsilon of 1e-5, whatever it is given.
    _rotary(
        "Qwen3",
        "Qwen3Backbone",
        "Qwen3Model",
        {"rms_norm_eps": 1e-5, **_HEAD},
        layer_norm_epsilon=1e-5,
        **_HEAD,
    ),
    _rotary(
        "Qwen2-MoE",
        "QwenMoeBackbone",
        "Qwen2MoeModel",
        {
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 80,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            **_LOOP,
        },
        moe_intermediate_dim=48,
        shared_expert_intermediate_dim=80,
        num_experts=4,
        top_k=2,
    ),
    _rotary(
        "Qwen3-MoE",
        "Qwen3MoeBackbone",
        "Qwen3MoeModel",
        {"moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2, **_LOOP, **_HEAD},
        moe_intermediate_dim=48,
        num_experts=4,
        top_k=2,
        **_HEAD,
    ),
    ZooPair(
        "SmolLM3",
        hub(
            "SmolLM3Backbone",
            **_without(_GROUPED, "num_query_heads"),
            num_attention_heads=_HEADS,
            attention_bias=False,
            attention_dropout=0.0,
            rope_layer_enabled_list=[True, True, True, False],
            layer_types=["full_attention"] * _FEW,
            mlp_bias=False,
            layer_norm_epsilon=1e-6,
            max_position_embeddings=_PLACES,
            rope_theta=10000.0,
            partial_rotary_factor=1.0,
        ),
        hugging_face(
            "SmolLM3Model",
            **_THEIR_GROUPED,
            no_rope_layers=[1, 1, 1, 0],
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        Tokens(_PLAIN, _WORDS),
        _SEQUENCE,
        differs=_FLOATS,
    ),
    ZooPair(
        "CLIP's text encoder",
        hub("CLIPTextEncoder", **_SHORT, embedding_dim=_WIDTH),
        hugging_face("CLIPTextModel", **_SHORT_BERT, layer_norm_eps=1e-5, eos_token_id=2),
        Tokens({"token_ids": "input_ids"}, _WORDS),
        _SEQUENCE,
        differs="epsilon of the last layer norm: 1e-6 against 1e-5 (row 40)",
    ),
    ZooPair(
        "MetaCLIP 2's text encoder",
        hub("MetaCLIP2TextEncoder", **_SHORT, embedding_dim=_WIDTH),
        hugging_face("MetaClip2TextModel", **_SHORT_BERT, eos_token_id=2),
        Tokens({"token_ids": "input_ids"}, _WORDS),
        _SEQUENCE,
    ),
    ZooPair(
        "SigLIP's text encoder",
        hub("SigLIPTextEncoder", **_SHORT, embedding_dim=_WIDTH, projection_dim=48),
        hugging_face(
            "SiglipTextModel",
            **_SHORT_BERT,
            projection_size=48,
            pad_token_id=0,
            bos_token_id=0,
            eos_token_id=0,
        ),
        Tokens({"token_ids": "input_ids"}, _WORDS, length=_PLACES),
        (("output", "pooler_output"),),
        differs=GELU,
    ),
)
