"""What Keras 2 computes, beside what stands for it in Keras 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import tf_keras

from parity.common.spec.external.target import Target
from parity.tf_impl.legacy.keras2 import rebuilt
from parity_tests.external_models import keras2_models
from parity_tests.peers import Arrays


def statistics(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Outputs and weights of facts["model"] after a pass in training on arrays["x"], of Keras 2's own ('2/...') and of the rebuilt one ('3/...')."""
    tf_keras.utils.set_random_seed(0)
    model = getattr(keras2_models, facts["model"])()
    other = rebuilt(model, Target.of("a:b"), "float32")
    found = {}
    for version, each in ((2, model), (3, other)):
        found[f"{version}/outputs"] = np.asarray(each(arrays["x"], training=True))
        found |= {f"{version}/{number}": np.asarray(w.numpy()) for number, w in enumerate(each.weights)}
    return found
