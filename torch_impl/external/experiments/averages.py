"""Means and sums over other elements than an expression takes: of all, of each sample, of what counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from parity.torch_impl.external.experiments.syntax import (
    applied,
    argument,
    called,
    changed,
    code,
    copied,
    given,
    operand,
    renamed,
)

_BOUNDS = ("clamp", "clamp_min", "clip")
# Losses of torch's that take a mean by themselves.
_LOSSES = (
    *("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"),
)
# V: values, W: their weights. Of all, of each sample, of each row.
_OF_ALL = ("(V * W).sum() / W.sum()", "(V * W).sum() / W.sum().clamp(min=1)")
_OF_EACH = (
    "((V * W).flatten(1).sum(-1) / W.flatten(1).sum(-1)).mean()",
    "((V * W).flatten(1).sum(-1) / W.flatten(1).sum(-1).clamp(min=1)).mean()",
    "((V * W).sum(-1) / W.sum(-1)).mean()",
    "((V * W).sum(-1) / W.sum(-1).clamp(min=1)).mean()",
)
_UNWEIGHTED = (
    *("V.mean()", "V.sum()", "V.sum(-1).mean()", "V.sum(1).mean()", "V.flatten(1).sum(-1).mean()"),
    *("V.sum() / len(V)", "V.flatten(1).mean(-1).sum()"),
)


def other_averages(node: ast.expr) -> Iterator[ast.expr]:
    """What may be meant by a mean, a sum, a quotient of two, or a loss."""
    text = ast.dump(node)
    yield from (each for each in _others(node) if ast.dump(each) != text)


def _others(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        # What is summed up over samples may be divided in each of them.
        each = _Unsummed()
        apart = each.visit(copied(node))
        if each.sums > 1:
            yield code("V.mean()", V=apart)
        if isinstance(node.left, ast.Call):
            yield from _of_quotient(node.left, node.right)
    if not isinstance(node, ast.Call):
        return
    name, of = called(node), operand(node)
    if name in _LOSSES:
        yield from _of_loss(node)
    if name not in ("mean", "sum") or of is None:
        return
    if axes := _axes(node):
        if name == "mean" and isinstance(axes[0], ast.Tuple):
            # Of one axis the sum, as of the real and imaginary parts of a square.
            for axis in axes[0].elts:
                yield applied(node, code("V.sum(D, keepdim=True)", V=of, D=axis))
        if name == "mean" and isinstance(of, ast.BinOp) and isinstance(of.op, ast.Mult):
            for weights in (of.right, of.left):
                sums = [applied(renamed(node, "sum"), each) for each in (of, weights)]
                yield code("A / B", A=sums[0], B=sums[1])
        return
    if name == "mean":
        yield from _of_mean(of)
    yield from (code(each, V=of) for each in _UNWEIGHTED)


def _of_mean(of: ast.expr) -> Iterator[ast.expr]:
    if isinstance(of, ast.BinOp) and isinstance(of.op, ast.Mult):
        for values, weights in ((of.left, of.right), (of.right, of.left)):
            yield from (code(each, V=values, W=weights) for each in (*_OF_ALL, *_OF_EACH))
    if isinstance(of, ast.BinOp) and isinstance(of.op, ast.Div) and _is_reduced(of.left):
        # The mean of quotients as one quotient of all.
        bare = _bare(of.right)
        if _is_reduced(bare):
            parts = {"A": _summed(of.left), "B": _summed(bare)}
            yield from (
                code(each, **parts) for each in ("A.sum() / B.sum()", "A.sum() / B.sum().clamp(min=1)")
            )
    if _is_reduced(of) and isinstance(of, ast.Call) and _axes(of):
        other = renamed(of, "mean" if called(of) == "sum" else "sum")
        yield code("V.mean()", V=other)
    if isinstance(of, ast.Subscript) and not isinstance(of.slice, ast.Slice | ast.Constant | ast.Tuple):
        # Of what a mask chooses in all samples each sample's mean.
        yield from (code(each, V=of.value, W=of.slice) for each in _OF_EACH)


def _of_quotient(left: ast.Call, right: ast.expr) -> Iterator[ast.expr]:
    if called(left) not in ("sum", "mean"):
        return
    yield renamed(left, "mean")
    bare = _bare(right)
    if not _axes(left) and _is_reduced(bare) and isinstance(bare, ast.Call) and not _axes(bare):
        parts = {"A": _summed(left), "B": _summed(bare)}
        for end in ("flatten(1).sum(-1)", "sum(-1)"):
            yield code(f"(A.{end} / B.{end}).mean()", **parts)
            yield code(f"(A.{end} / B.{end}.clamp(min=1)).mean()", **parts)


def _of_loss(node: ast.Call) -> Iterator[ast.expr]:
    """A loss by other elements: of each sample, or without what is ignored."""
    kept = [each for each in node.keywords if each.arg != "reduction"]
    each = changed(node, keywords=[*kept, ast.keyword("reduction", ast.Constant("none"))])
    yield from (code(template, V=each) for template in _UNWEIGHTED)
    ignored, targets = argument(node, "ignore_index"), given(node)
    if ignored is not None and targets:
        counts = code("T != I", T=targets[0], I=ignored)
        yield from (code(template, V=each, W=counts) for template in _OF_EACH)


class _Unsummed(ast.NodeTransformer):
    """Takes sums over all away, and counts them."""

    sums = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        of = self.generic_visit(node)
        if isinstance(of, ast.Call) and called(of) == "sum" and not _axes(of) and operand(of) is not None:
            self.sums += 1
            return operand(of) or of
        return of


def _bare(node: ast.expr) -> ast.expr:
    """An expression without a bound or a small number around it."""
    if isinstance(node, ast.Call) and called(node) in _BOUNDS:
        return operand(node) or node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Constant):
        return node.left
    return node


def _is_reduced(node: ast.expr) -> bool:
    return called(node) in ("sum", "mean")


def _summed(node: ast.expr) -> ast.expr:
    """What a reduction is of."""
    return (operand(node) if isinstance(node, ast.Call) else None) or node


def _axes(call: ast.Call) -> list[ast.expr]:
    """The axes that a reduction is given; none where it is over all."""
    named = (argument(call, name) for name in ("dim", "axis"))
    return [*given(call)[:1], *(each for each in named if each is not None)]
