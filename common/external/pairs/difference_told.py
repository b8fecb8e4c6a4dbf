"""What a reader is told of a difference in what two models compute: where it is, what it is, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.differences import RECURRENT, Difference
from parity.common.external.pairs.expressions import CAUSAL, Expression, is_far_below
from parity.common.external.pairs.places import CAUSE

# A longer formula stands in the finding, and not again in what to do.
_LONG = 120
# Of more lines only the ends are told.
_LISTED = 4


def in_code(line: str, called: str) -> str:
    """A line of the user's code, and the one that it is reached from, where it is from several, for a sentence."""
    return f"{line}, called in {called}" if called else line


def explanation_of(
    difference: Difference, whole: Expression, evidence: str, layers: tuple[str, ...], confirmed: bool
) -> Explanation:
    """The explanation that is a difference within all that torch computes at a place."""
    part = difference.torch if difference.torch.line else whole
    line = part.line
    place = in_code(line, part.called)
    if difference.kind == "other":
        place += _lines_besides(difference.torch, line)
    return Explanation(
        f"{CAUSE}{difference.kind}",
        f"{place}: {difference}" if line else str(difference),
        "confirmed" if confirmed else "likely",
        _to_do(difference),
        evidence,
        defect=_defect(difference, line),
        layers=layers,
    )


def _defect(difference: Difference, line: str) -> str:
    """Alike where the same line does the same otherwise, or another one, as of the way back, has the same two numbers."""
    if difference.kind == "number" and None not in (difference.torch.number, difference.keras.number):
        return f"{difference.torch.number:.6g} {difference.keras.number:.6g}"
    return f"{(difference.keras if difference.kind == 'left_out' else difference.torch).name} {line}"


def _to_do(difference: Difference) -> str:
    keras, due = difference.keras, difference.due
    at = f", as {keras.line} does" if keras.line else ""
    if difference.kind == "broadcast":
        return "give both operands one shape: squeeze(-1), or [:, None]"
    if difference.kind == "left_out" and keras.name in RECURRENT:
        return (
            f"torch's {keras.name} takes no mask: give it pack_padded_sequence with the lengths, or read each sample's own last state, at its"
            f" length - 1: that is what Keras repeats where its mask hides the input{at}"
        )
    if difference.kind == "term_too_much":
        return "leave it out, or add it in Keras"
    if difference.kind == "term_left_out":
        return f"add it{at}" if len(due) > _LONG else f"add {due}{at}"
    hides = keras.name == "where" and any(map(is_far_below, keras.operands))
    if difference.kind == "left_out" and hides and CAUSAL not in due:
        return (
            f"hide there what Keras hides{at}: nn.MultiheadAttention takes a key_padding_mask for it, nn.TransformerEncoder a"
            " src_key_padding_mask, True where it hides"
        )
    if len(due) > _LONG:
        due = "the mean by that mask or weights" if difference.kind == "mask" else "what Keras computes"
    elif CAUSAL in due:
        due += " (in torch an attn_mask; F.scaled_dot_product_attention takes is_causal=True alone)"
    elif difference.kind == "too_much" and "smooth_l1_loss(" in due:
        due += " (it is F.huber_loss, divided by beta)"
    spread = f"; or{difference.spread[1:]}: give both one shape by squeeze(-1), or [:, None]"
    return f"compute {due} there{at}{spread if difference.spread else ''}"


def _lines_besides(computed: Expression, line: str) -> str:
    """The other lines of a file that take part in what is computed otherwise: any of these may be it."""
    file, _, own = line.rpartition(":")
    parts = {each.line.rpartition(":") for each in computed.parts()}
    found = sorted(int(number) for name, _, number in parts if name == file and number != own)
    if not found:
        return ""
    return f", with line{'s' * (len(found) > 1)} {_listed(found)}"


def _listed(numbers: Sequence[int]) -> str:
    shown = list(map(str, numbers))
    return ", ".join(shown) if len(shown) <= _LISTED else f"{', '.join(shown[:2])} to {shown[-1]}"
