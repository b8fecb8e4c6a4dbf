"""What the scripts of `checked_scripts` and `checked_keras` break, for `test_script_checks`; needs no framework."""

from __future__ import annotations

from parity.common.record.invariants import FINITE, GRADIENT, MOVEMENT, REPLICAS
from parity.common.record.script_checks import (
    DECLARED,
    FROZEN,
    MODE,
    OPTIMIZER,
    ORDER,
    SHARES,
    TRAINS,
    TYPES,
    ZEROED,
)

BATCH, STEPS, LATER, EPOCH = 8, 12, 5, 4
# The invariant that a script breaks, and the first step.
Broken = tuple[str, int] | None

# Functions of `checked_scripts`: right ones, and those with a mistake.
SCRIPTS: dict[str, Broken] = {
    **dict.fromkeys(
        (
            "plain",
            "accumulated",
            "head_alone",
            "two_models",
            "adversary",
            "warmed_up",
            "assigned",
            "listed_and_given",
            "shrunk_weights",
            "summed_by_the_optimizer",
            "fine_tuned",
            "evaluated",
            "closed",
            "scaled",
            "updated_by_hand",
        )
    ),
    "not_zeroed": (ZEROED, LATER),
    "zeroed_too_late": (OPTIMIZER, 0),
    "zeroed_in_place": (GRADIENT, 0),
    "layer_replaced": (OPTIMIZER, 0),
    "model_copied": (OPTIMIZER, 0),
    "trains_what_is_frozen": (OPTIMIZER, 0),
    "moves_nothing": (MOVEMENT, 0),
    "optimizer_made_anew": (TRAINS, EPOCH),
    "never_stepped": (MOVEMENT, 0),
    "listed": (OPTIMIZER, 0),
    "frozen_too_late": (FROZEN, LATER),
    "left_in_eval": (MODE, LATER),
    "widened": (TYPES, LATER),
    "thawed": (DECLARED, 0),
    "other_batches": (DECLARED, 0),
    "not_finite": (FINITE, LATER),
}
# Of these, recorded with checks=False.
UNCHECKED = ("not_zeroed", "shrunk_weights")
# Keras's, and those on two ranks.
KERAS: dict[str, Broken] = {
    "keras": None,
    "frozen by its layer": None,
    "thawed layer": (DECLARED, 0),
    "not finite": (FINITE, LATER),
    "moves nothing": (MOVEMENT, 0),
    "no gradient": (GRADIENT, 0),
    "fitted before": None,
    "compiled again": (TRAINS, STEPS // 2),
}
RANKED: dict[str, Broken] = {
    "ddp": None,
    "other weights": (REPLICAS, 0),
    "not reduced": (REPLICAS, 0),
    "same samples": (SHARES, 1),
    "set epoch": None,
    "epoch not set": (ORDER, EPOCH + 1),
}
