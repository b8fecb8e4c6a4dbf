"""Models that no one here wrote, beside our specs of them: sizes, weights and inputs, framework-free."""

from __future__ import annotations

import numpy as np

from parity.common.spec import ModelSpec
from parity.common.spec.model import walk
from parity.common.state.canonical import canonical_name
from parity_tests.peers import Arrays


def weights(model: ModelSpec, seed: int) -> Arrays:
    """Random tensors by canonical name without the first word, scaled so that no signal dies or explodes."""
    random = np.random.default_rng(seed)
    result = {}
    for node in walk(model.tree()):
        for p in node.parameters:
            values = random.normal(size=p.shape)
            if "variance" in p.name:
                values = 0.5 + np.abs(values)
            elif p.name == "gamma":
                values = 1 + 0.1 * values
            elif len(p.shape) > 1 and "embedding" not in p.name:
                values = values / np.sqrt(np.prod(p.shape[:-1]))
            else:
                values = 0.1 * values
            result[canonical_name(node.path, p).partition("/")[2]] = values
    return result


def inputs(model: ModelSpec, seed: int, batch: int = 2) -> np.ndarray:
    """Random images, or random tokens with padding at the end of the last sample."""
    random = np.random.default_rng(seed + 1)
    shape = (batch, *model.input_shape)
    if model.inputs == "numbers":
        return random.normal(size=shape)
    tokens = random.integers(1, model.layers[0].vocabulary, shape)
    if model.pad_id is not None:
        tokens[-1, shape[1] // 2 :] = model.pad_id
    return tokens


def _attention(w: Arrays, prefix: str, part: str) -> Arrays:
    return {"weight": w[f"{prefix}/{part}_kernel"].T, "bias": w[f"{prefix}/{part}_bias"]}


def _linear(w: Arrays, prefix: str) -> Arrays:
    return {"weight": w[f"{prefix}/kernel"].T, "bias": w[f"{prefix}/bias"]}


def _norm(w: Arrays, prefix: str) -> Arrays:
    return {"weight": w[f"{prefix}/gamma"], "bias": w[f"{prefix}/beta"]}


def _below(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}.{name}": value for name, value in arrays.items()}


def gpt2_state(w: Arrays, depth: int) -> Arrays:
    """The state dict of transformers' GPT2LMHeadModel; its Conv1D stores kernels (in, out), as we do."""
    state = {
        "transformer.wte.weight": w["tokens/embedding"],
        "lm_head.weight": w["tokens/embedding"],
        "transformer.wpe.weight": w["tokens/position_embedding/embedding"],
        **_below("transformer.ln_f", _norm(w, "tokens/layer_norm")),
    }
    for number in range(depth):
        block, theirs = f"tokens/block_{number + 1}", f"transformer.h.{number}"
        attention = f"{block}/attend/self_attention"
        for kind in ("kernel", "bias"):
            joined = np.concatenate(
                [w[f"{attention}/{part}_{kind}"] for part in ("query", "key", "value")], -1
            )
            name = "weight" if kind == "kernel" else "bias"
            state[f"{theirs}.attn.c_attn.{name}"] = joined
            state[f"{theirs}.attn.c_proj.{name}"] = w[f"{attention}/output_{kind}"]
            state[f"{theirs}.mlp.c_fc.{name}"] = w[f"{block}/feed_forward/widen/{kind}"]
            state[f"{theirs}.mlp.c_proj.{name}"] = w[f"{block}/feed_forward/narrow/{kind}"]
        state |= _below(f"{theirs}.ln_1", _norm(w, f"{block}/attend/layer_norm"))
        state |= _below(f"{theirs}.ln_2", _norm(w, f"{block}/feed_forward/layer_norm"))
    return state


def bert_state(w: Arrays, depth: int) -> Arrays:
    """The state dict of transformers' BertForMaskedLM."""
    state = {
        "bert.embeddings.word_embeddings.weight": w["tokens/embedding"],
        "cls.predictions.decoder.weight": w["tokens/embedding"],
        "cls.predictions.decoder.bias": w["tokens/output_bias"],
        "cls.predictions.bias": w["tokens/output_bias"],
        "bert.embeddings.position_embeddings.weight": w["tokens/position_embedding/embedding"],
        "bert.embeddings.token_type_embeddings.weight": w["tokens/segment_embedding/embedding"],
        **_below("bert.embeddings.LayerNorm", _norm(w, "tokens/embedding_norm")),
        **_below("cls.predictions.transform.dense", _linear(w, "tokens/head")),
        **_below("cls.predictions.transform.LayerNorm", _norm(w, "tokens/head_norm")),
    }
    for number in range(depth):
        block, theirs = f"tokens/block_{number + 1}", f"bert.encoder.layer.{number}"
        attention = f"{block}/attend/self_attention"
        for part in ("query", "key", "value"):
            state |= _below(f"{theirs}.attention.self.{part}", _attention(w, attention, part))
        state |= _below(f"{theirs}.attention.output.dense", _attention(w, attention, "output"))
        state |= _below(f"{theirs}.attention.output.LayerNorm", _norm(w, f"{block}/layer_norm_1"))
        state |= _below(f"{theirs}.intermediate.dense", _linear(w, f"{block}/feed_forward/widen"))
        state |= _below(f"{theirs}.output.dense", _linear(w, f"{block}/feed_forward/narrow"))
        state |= _below(f"{theirs}.output.LayerNorm", _norm(w, f"{block}/layer_norm_2"))
    return state


def vit_state(w: Arrays, depth: int) -> Arrays:
    """The state dict of transformers' ViTForImageClassification."""
    state = {
        "vit.embeddings.cls_token": w["class_token/embedding"][None, None],
        "vit.embeddings.position_embeddings": w["position_embedding/embedding"][None],
        "vit.embeddings.patch_embeddings.projection.weight": w["embed/kernel"].transpose(3, 2, 0, 1),
        "vit.embeddings.patch_embeddings.projection.bias": w["embed/bias"],
        **_below("vit.layernorm", _norm(w, "layer_norm")),
        **_below("classifier", _linear(w, "head")),
    }
    for number in range(depth):
        block, theirs = f"block_{number + 1}", f"vit.layers.{number}"
        attention = f"{block}/attend/self_attention"
        for part, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj")):
            state |= _below(f"{theirs}.attention.{name}", _attention(w, attention, part))
        state |= _below(f"{theirs}.layernorm_before", _norm(w, f"{block}/attend/layer_norm"))
        state |= _below(f"{theirs}.layernorm_after", _norm(w, f"{block}/feed_forward/layer_norm"))
        state |= _below(f"{theirs}.mlp.fc1", _linear(w, f"{block}/feed_forward/widen"))
        state |= _below(f"{theirs}.mlp.fc2", _linear(w, f"{block}/feed_forward/narrow"))
    return state


def resnet50_layers(w: Arrays) -> dict[str, list[np.ndarray]]:
    """The weights of each layer of keras.applications.ResNet50 by its name."""
    layers = {**_conv_and_norm(w, "conv2d", "batch_norm", "conv1_conv", "conv1_bn")}
    blocks = sorted({path.partition("/")[0] for path in w if path.startswith("stage_")})
    for block in blocks:
        _, stage, number = block.split("_")
        theirs = f"conv{int(stage) + 1}_block{number}"
        projects = f"{block}/add/inside/conv2d_1/kernel" in w
        inside = f"{block}/add/inside" if projects else f"{block}/residual"
        for i in (1, 2, 3):
            layers |= _conv_and_norm(
                w,
                f"{inside}/conv2d_{i}",
                f"{inside}/batch_norm_{i}",
                f"{theirs}_{i}_conv",
                f"{theirs}_{i}_bn",
            )
        if projects:
            side = f"{block}/add/shortcut"
            layers |= _conv_and_norm(
                w, f"{side}/conv2d", f"{side}/batch_norm", f"{theirs}_0_conv", f"{theirs}_0_bn"
            )
    return {**layers, "predictions": [w["head/kernel"], w["head/bias"]]}


def mobilenet_v2_layers(w: Arrays) -> dict[str, list[np.ndarray]]:
    """The weights of each layer of keras.applications.MobileNetV2 by its name."""
    layers = {
        **_conv_and_norm(w, "conv2d", "batch_norm", "Conv1", "bn_Conv1"),
        **_conv_and_norm(w, "last", "last_norm", "Conv_1", "Conv_1_bn"),
        "predictions": [w["head/kernel"], w["head/bias"]],
    }
    for block in sorted({path.partition("/")[0] for path in w if path.startswith("block_")}):
        expands = f"{block}/conv2d_1/kernel" in w
        ours = ["conv2d_1", "depthwise_conv2d", "conv2d_2"] if expands else ["depthwise_conv2d", "conv2d"]
        theirs = ["expand", "depthwise", "project"] if expands else ["depthwise", "project"]
        prefix = block if expands else "expanded_conv"
        for number, (conv, name) in enumerate(zip(ours, theirs, strict=True), start=1):
            layers |= _conv_and_norm(
                w,
                f"{block}/{conv}",
                f"{block}/batch_norm_{number}",
                f"{prefix}_{name}",
                f"{prefix}_{name}_BN",
            )
    return layers


def _conv_and_norm(
    w: Arrays, conv: str, norm: str, their_conv: str, their_norm: str
) -> dict[str, list[np.ndarray]]:
    kernel = [w[f"{conv}/{part}"] for part in ("kernel", "bias") if f"{conv}/{part}" in w]
    parts = ("gamma", "beta", "moving_mean", "moving_variance")
    return {their_conv: kernel, their_norm: [w[f"{norm}/{part}"] for part in parts]}
