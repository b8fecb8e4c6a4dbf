"""Constants that a torch model computes while it is built, with `.float()` in its code, rounded to float32.

Whether Keras rounds the same ones is up to each code (positions, angles of rotary embeddings), so both ways are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import TensorComparison
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench, LoadedPair, decides, losses
from parity.common.external.pairs.dropout import settle_randomness
from parity.common.external.pairs.request import PairRequest
from parity.common.external.process.pass_result import Arrays
from parity.common.spec.external.mapping import Mapping


def settle_built_constants(
    asked: PairRequest, opened: LoadedPair, mapping: Mapping, canonical: Arrays
) -> tuple[LoadedPair, str]:
    """Build torch's model again with its constants in float64, where it is nearer to Keras's so.

    Args:
        asked, opened: both models, with equal weights and nothing drawn at random. mapping: of their tensors.
        canonical: those weights.

    Returns:
        The models as they are from now on, and a line that says so; '' where nothing changed.
    """
    bench = Bench(**vars(opened), mapping=mapping)
    with exact_constants(bench):
        passes = [side.forward(inputs, taps=False) for side, _, inputs in opened.sides]
        worst = max((one.deviation for one in bench.outputs(*passes)), default=0.0)
        if worst <= limits.LIVE_FLOAT64:
            worst = max((one.deviation for one in _losses(bench)), default=0.0)
    if not limits.LIVE_FLOAT64 < worst <= limits.OF_FLOAT32_CONSTANTS:
        return opened, ""
    before = _seen(bench)
    try:
        _build(asked, opened, mapping.to_torch(canonical), exact=True)
        after = _seen(bench)
    except ExternalModelError:
        after = []
    if not _better(before, after):
        _build(asked, opened, mapping.to_torch(canonical), exact=False)
        return opened, ""
    left = max(one.deviation for one in after if decides(one))
    return replace(opened, built_exact=True), (
        f"constants that {opened.torch.target} rounds to float32 while it is imported and built: with these in float64 outputs and loss are"
        f" {left:.2g} apart instead of {worst:.2g}, and the models are compared so; no fault of the port"
    )


def _seen(bench: Bench) -> list[TensorComparison]:
    with exact_constants(bench):
        return [*bench.passes(bench.reference(False), bench.torch_pass(False), False), *_losses(bench)]


def _losses(bench: Bench) -> list[TensorComparison]:
    """Of both losses; nothing where the targets do not suit them yet."""
    try:
        return losses(bench, bench.reference(True), bench.torch_pass(True))
    except ExternalModelError:
        return []


def _build(asked: PairRequest, opened: LoadedPair, state: Arrays, exact: bool) -> None:
    opened.torch.hold(asked.torch, seed=asked.seed, exact=exact)
    opened.torch.outline(opened.inputs[1])  # which builds a lazy one
    opened.torch.write(state)
    settle_randomness(asked, opened)


def _better(before: Sequence[TensorComparison], after: Sequence[TensorComparison]) -> bool:
    """Whether more places agree than did, and all that did."""
    agreed = {one.name for one in before if one.agrees}
    return agreed < {one.name for one in after if one.agrees}
