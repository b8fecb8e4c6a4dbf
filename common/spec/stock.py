"""Stock modes: what each framework does in its own way. They change the mathematics, so they belong to the TrainSpec.

mixed_bfloat16   the framework's own mixed precision: `torch.autocast`, and Keras's policy of that name
mixed_float16    likewise, with the framework's own numbers of dynamic loss scaling (`LossScale`)
dropout          masks from the framework's generator: `torch.nn.functional.dropout`, `keras.random.dropout`
shuffling        the order of samples from `torch.utils.data.DistributedSampler`, or `tf.data`'s `shuffle`
nondeterministic kernels whose sums may come in any order; without a GPU there are none

Two frameworks cannot agree on any of these, so nothing is proved of such a run: `parity study` shows whether two
trainings are equivalent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

StockMode = Literal["mixed_bfloat16", "mixed_float16", "dropout", "shuffling", "nondeterministic"]
MODES: tuple[StockMode, ...] = get_args(StockMode)
MIXED: tuple[StockMode, ...] = ("mixed_bfloat16", "mixed_float16")


def refuse_stock(stock: Sequence[StockMode], whose: str) -> str:
    """Return the one line that refuses a proof of a run with stock modes."""
    return (
        f"{whose}: stock {', '.join(stock)} is each framework's own mathematics, of which nothing can be proved; whether"
        " such trainings are equivalent is what 'parity study' shows"
    )
