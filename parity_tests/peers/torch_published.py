"""Hugging Face transformers' models, and ours with the same weights."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from parity.common.execution.pass_context import Context
from parity.common.spec import ModelSpec
from parity.torch_impl.layers import build_layer
from parity.torch_impl.model import tensors_of
from parity_tests import published
from parity_tests.peers import Arrays


def ours(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The outputs of a model with weights drawn from a seed, in inference mode."""
    del arrays
    model = ModelSpec.parse(facts["model"])
    tree = model.tree()
    module = build_layer(tree).double()
    drawn = published.weights(model, facts["seed"])
    for name, tensor in tensors_of(tree, module).items():
        tensor.live.data.copy_(tensor.shard(drawn.pop(name.partition("/")[2])))
    x = torch.from_numpy(published.inputs(model, facts["seed"]))
    mask = None if model.pad_id is None else x != model.pad_id
    with torch.no_grad():
        y = module(x, context=Context(False, sample_ids=torch.arange(len(x)), token_mask=mask))
    return {"y": y.numpy()}


def _without_a_network() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return transformers


def size(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The number of parameters of one of transformers' models, built without memory."""
    del arrays
    transformers = _without_a_network()
    with torch.device("meta"):
        model = getattr(transformers, facts["class"])(
            getattr(transformers, facts["config_class"])(**facts["config"])
        )
    return {"parameters": torch.tensor(sum(p.numel() for p in model.parameters())).numpy()}


def theirs(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The outputs of one of transformers' models with the same weights, in inference mode."""
    del arrays
    transformers = _without_a_network()
    model = ModelSpec.parse(facts["model"])
    drawn = published.weights(model, facts["seed"])
    config = getattr(transformers, facts["config_class"])(**facts["config"])
    module = getattr(transformers, facts["class"])(config).double().eval()
    state = getattr(published, facts["state"])(drawn, facts["depth"])
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()})
    x = torch.from_numpy(published.inputs(model, facts["seed"]))
    with torch.no_grad():
        if model.inputs == "numbers":
            y = module(pixel_values=x.permute(0, 3, 1, 2)).logits
        elif model.pad_id is None:
            y = module(input_ids=x).logits
        else:
            separators = (x == facts["separator_id"]).long()
            segments = (separators.cumsum(1) - separators).clamp(max=1)
            mask = (x != model.pad_id).long()
            y = module(input_ids=x, attention_mask=mask, token_type_ids=segments).logits
    return {"y": y.numpy()}
