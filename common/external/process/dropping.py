"""Calls of a live model that drop, in both frameworks: counted in the order of a pass, each given the mask that is planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from parity.common.base.errors import ExternalModelError
from parity.common.execution.pass_context import Context
from parity.common.external.process.operations import Recording
from parity.common.external.process.pass_result import Array
from parity.common.spec.layers import KeyedDropout, Shape


@dataclass
class Dropping:
    """The calls of one pass that drop.

    plan: of each call, in their order; None: no call drops anything. context: what masks are drawn by. seen: gathers
    what is known of each call, where that is asked for. recording: of the operations of the pass, where there is one.
    """

    plan: Sequence[KeyedDropout] | None
    context: Context
    seen: list[dict[str, Any]] | None = None
    recording: Recording | None = None
    _count: int = field(default=0, init=False)

    def next(
        self, owner: str, x: Any, rate: float, shared: Sequence[int], active: bool
    ) -> KeyedDropout | None:
        """How the mask of the next call is drawn; None where it drops nothing.

        Args:
            owner: the layer that it is called in.
            x: what it is given, (batch, ...).
            rate: the share that it drops.
            shared: axes of x along which elements are dropped together.
            active: whether it drops in this pass at all.

        Raises:
            ExternalModelError: the pass has more such calls than the one that was planned by.
        """
        number, self._count = self._count, self._count + 1
        if self.seen is not None:
            facts = {"owner": owner, "rate": float(rate), "shared": list(shared), "active": bool(active)}
            self.seen.append({**facts, "value": x})
        if self.plan is None or not active or not rate:
            return None
        if number >= len(self.plan):
            raise ExternalModelError(
                f"dropout {number + 1} of a pass, in {owner or 'the model'}, has no mask: the pass that was looked at"
                f" had {len(self.plan)}; a part that is computed again (checkpointing), or a call that is made only"
                " now and then, cannot be given masks: leave it out, or give --without-dropout"
            )
        return self.plan[number]

    def drawn(
        self, draw: Callable[[], Any], array_of: Callable[[Any], Array], rate: float, shared: Sequence[int]
    ) -> Any:
        """Return the mask that `draw` gives; how it comes about is no part of the model.

        Args:
            draw: gives what is multiplied with, of the shape (batch, ...) that it is used with.
            array_of: gives it as an array, (batch, ...).
            rate: the share that is dropped. shared: axes along which elements are dropped together.
        """
        if self.recording is None:
            return draw()
        with self.recording.hidden():
            mask = draw()
            self.recording.masks.append((array_of(mask), rate, bool(shared)))
            return mask


def noise_shape(planned: KeyedDropout, axes: int, shared: Sequence[int]) -> Shape:
    """The shape of one sample's mask, in Keras's layout, before it is repeated along the shared axes.

    Args:
        planned: of the call.
        axes: how many the call's tensor has.
        shared: those of them along which elements are dropped together.

    Raises:
        ExternalModelError: the samples would share a mask, or axes that are joined or split would.
    """
    if not shared:
        return planned.shape
    order = planned.order or tuple(range(axes))
    if 0 in [order[axis] for axis in shared] or not len(order) == axes == len(planned.shape) + 1:
        raise ExternalModelError(
            f"dropout {planned.key}: elements of several samples are dropped together, and a mask belongs to one"
            " sample; give --without-dropout"
        )
    return tuple(
        1 if axis in [order[each] for each in shared] else size
        for axis, size in enumerate(planned.shape, start=1)
    )
