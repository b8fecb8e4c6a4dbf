"""Whether gradients that should be float32 have passed through a low type as a whole.

A reduction in a low type hides in the noise of a mixed precision, whose products round as coarsely. But it
leaves its grain: every element of every gradient, times the count that it was divided by, is a number of
the low type. Of sums kept in float32 hardly any is.
"""

from __future__ import annotations

import numpy as np

from parity.common.parity.deviation import skipped
from parity.common.record import RunRecord

# Significant bits of float16, which has all the numbers of bfloat16's eight.
BITS = 11
# Of a tensor with fewer elements, all may be low by chance.
FEWEST_ELEMENTS = 16
# Of unrounded sums about one in a hundred looks low; sums of few products somewhat more often.
LARGEST_SHARE = 0.5


def low_share(record: RunRecord) -> tuple[float, str]:
    """(share, tensor) of low elements in the first update's gradient that has the fewest; 0 without any.

    Embeddings are left to the other tensors: a row that one token uses takes over that token's gradient,
    which a product has rounded.
    """
    rows = np.flatnonzero(~skipped(record))
    penalized = record.spec.loss.l1 or record.spec.loss.l2
    shares = {}
    if len(rows) and not penalized:
        count = record.columns["count"][rows[0]]
        for name, gradient in record.state("first_gradients").items():
            sums = np.asarray(gradient, np.float64).ravel() * count
            fractions, _ = np.frexp(sums[sums != 0])
            if len(fractions) >= FEWEST_ELEMENTS:
                scaled = np.ldexp(fractions, BITS)
                # The gradient has been divided and rounded since, to 24 bits.
                shares[name] = float((np.abs(scaled - np.round(scaled)) < 2.0**-8).mean())
    if not shares:
        return 0.0, "no gradient large enough"
    least = min(shares, key=lambda name: shares[name])
    return shares[least], least
