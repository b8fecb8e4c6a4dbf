"""What `parity pair` is asked in tests."""

from __future__ import annotations

from typing import Any

from parity.common.external.pairs.objectives import parsed_loss
from parity.common.external.pairs.request import PairRequest, SampleFile, parsed_optimizer
from parity.common.spec.external.target import Target


def pair_request(keras: Target, torch: Target, data: SampleFile, **fields: Any) -> PairRequest:
    """Three steps of SGD on eight samples in float64; `fields` are others of a PairRequest."""
    usual = {
        "loss": parsed_loss("softmax_cross_entropy"),
        "optimizer": parsed_optimizer("sgd,learning_rate=0.1"),
        "optimizers": None,
        "steps": 3,
        "global_batch": 8,
        "precision": "float64",
        "weights": "keras",
        "without_dropout": False,
    }
    return PairRequest(keras=keras, torch=torch, data=data, **{**usual, **fields})
