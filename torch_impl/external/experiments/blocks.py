"""What one could have meant to write for some statements of a torch program: others, fewer, in another order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from parity.torch_impl.external.experiments.operators import COMPUTED, in_other_orders
from parity.torch_impl.external.experiments.syntax import (
    applied,
    called,
    changed,
    code,
    is_value,
    operand,
    placed,
    receiver,
    replaced,
)

# Statements that one is put behind.
_FARTHEST = 3


def blocks(around: Sequence[ast.stmt], place: int) -> Iterator[tuple[str, list[ast.stmt]]]:
    """(kind, statements) of what may stand in place of a block's because of one of them."""
    statement, before, behind = around[place], list(around[:place]), list(around[place + 1 :])
    instead: list[tuple[str, ast.stmt]] = []
    if isinstance(statement, ast.AugAssign):
        others = COMPUTED.get(type(statement.op), ())
        instead += [("operation", changed(statement, op=other())) for other in others]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(target, ast.Tuple):
        orders = in_other_orders(target, "elts")
        instead += [("order", changed(statement, targets=[other])) for _, other in orders]
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
        instead.append(("too_much", ast.copy_location(ast.Pass(), statement)))
    yield from ((kind, [*before, other, *behind]) for kind, other in instead)
    if isinstance(statement, ast.Assign) and behind and isinstance(behind[0], ast.Assign):
        turned = changed(statement, value=behind[0].value), changed(behind[0], value=statement.value)
        yield "order", [*before, *turned, *behind[1:]]
    following = behind[0] if behind else None
    if isinstance(target, ast.Name) and isinstance(following, ast.Assign | ast.Return) and following.value:
        of, names = statement.value, [getattr(e, "id", "") for e in ast.walk(following.value)]
        inner = operand(of) if isinstance(of, ast.Call) else None
        if inner is not None and is_value(inner) and target.id in names:
            # 'x = f(y); z = g(x)' for 'x = y; z = f(g(x))'.
            turned = changed(statement, value=inner), changed(following, value=applied(of, following.value))
            yield "sequence", [*before, *turned, *behind[1:]]
    yield from (("sequence", [*before, other, *behind]) for other in _made_anew(before, statement))
    yield from (("sequence", [*others, *behind]) for others in _with_moved_terms(before, statement))
    if not before:
        for name in _carried(around):
            stop = ast.parse(f"{name} = {name}.detach()").body[0]
            # Where it is run, lines are told.
            for node in ast.walk(stop):
                ast.copy_location(node, statement)
            yield "stopped", [stop, *around]
    for later in range(1, min(_FARTHEST, len(behind)) + 1):
        passed = behind[:later]
        if not all(map(_is_plain, [statement, *passed])):
            break
        yield "sequence", [*before, *passed, statement, *behind[later:]]
        if later > 1:
            yield "sequence", [*before, passed[-1], statement, *passed[:-1], *behind[later:]]


def _carried(block: Sequence[ast.stmt]) -> list[str]:
    """Names that statements read and write, as a loop hands them on."""
    names = [each for statement in block for each in ast.walk(statement) if isinstance(each, ast.Name)]
    written = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    read = {each.id: None for each in names if isinstance(each.ctx, ast.Load)}
    return [name for name in read if name in written]


def _is_plain(statement: ast.stmt) -> bool:
    """Whether a statement may stand elsewhere: it gives nothing back."""
    inner = (ast.Return, ast.Continue, ast.Break, ast.FunctionDef, ast.For, ast.While)
    return not any(isinstance(each, inner) for each in ast.walk(statement))


def _made_anew(before: Sequence[ast.stmt], statement: ast.stmt) -> Iterator[ast.stmt]:
    """A statement that makes anew what was assigned before, of tensors that are changed in between."""
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
        return
    read = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
    for place, each in enumerate(before):
        target = each.targets[0] if isinstance(each, ast.Assign) else None
        if isinstance(each, ast.Assign) and isinstance(target, ast.Name) and target.id in read:
            of = {part.id for part in ast.walk(each.value) if isinstance(part, ast.Name)}
            if any(_changes(later, of) for later in before[place + 1 :]):
                yield placed(statement, {target.id: each.value})


def _with_moved_terms(before: Sequence[ast.stmt], statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Statements up to one, with a term of its sum in what that sum was made of, or the other way round: so is what lies between of another one."""
    if not isinstance(statement, ast.Assign | ast.Return):
        return
    for whole in _sums(statement):
        terms = _terms(whole)
        names = [each.id for adds, each in terms if adds and isinstance(each, ast.Name)]
        for place, made in enumerate(before):
            target = made.targets[0] if isinstance(made, ast.Assign) else None
            if not isinstance(made, ast.Assign) or not isinstance(target, ast.Name) or target.id not in names:
                continue
            between = (part for each in before[place + 1 :] for part in ast.walk(each))
            if not any(isinstance(part, ast.Name) and part.id == target.id for part in between):
                continue
            for index, (adds, each) in enumerate(terms):
                rest = terms[:index] + terms[index + 1 :]
                if adds and not (isinstance(each, ast.Name) and each.id == target.id):
                    first = changed(made, value=ast.BinOp(made.value, ast.Add(), each))
                    yield [
                        *before[:place],
                        first,
                        *before[place + 1 :],
                        replaced(statement, whole, _sum(rest)),
                    ]
            first_terms = _terms(made.value)
            for index, (adds, each) in enumerate(first_terms):
                rest = first_terms[:index] + first_terms[index + 1 :]
                if adds and any(sign for sign, _ in rest):
                    last = replaced(statement, whole, ast.BinOp(whole, ast.Add(), each))
                    yield [*before[:place], changed(made, value=_sum(rest)), *before[place + 1 :], last]


def with_what_comes_back(function: ast.AST, statement: ast.AST) -> ast.expr | None:
    """What the backward pass of a function of the code's own should give, where it leaves out the gradient that comes back to it: each gradient
    times that, by axes at the front; None elsewhere.
    """
    if (
        not isinstance(function, ast.FunctionDef)
        or function.name != "backward"
        or not isinstance(statement, ast.Return)
    ):
        return None
    given, whole = [each.arg for each in function.args.args], statement.value
    used = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}
    if len(given) != 2 or given[1] in used or whole is None:
        return None
    every = whole.elts if isinstance(whole, ast.Tuple) else [whole]
    times = [
        each
        if each is None or (isinstance(each, ast.Constant) and each.value is None)
        else code(
            "G.reshape(G.shape + (1,) * (V.ndim - G.ndim)) * V", G=ast.Name(given[1], ast.Load()), V=each
        )
        for each in every
    ]
    return changed(whole, elts=times) if isinstance(whole, ast.Tuple) else times[0]


def _sums(statement: ast.stmt) -> list[ast.BinOp]:
    """The sums of a statement that are no terms of another one."""
    every = [
        each
        for each in ast.walk(statement)
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add | ast.Sub)
    ]
    inner = {id(side) for each in every for side in (each.left, each.right)}
    return [each for each in every if id(each) not in inner]


def _terms(node: ast.expr) -> list[tuple[bool, ast.expr]]:
    """The terms of a sum, and whether each is added."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
        return [(True, node)]
    right = _terms(node.right)
    if isinstance(node.op, ast.Sub):
        right = [(not adds, each) for adds, each in right]
    return [*_terms(node.left), *right]


def _sum(terms: Sequence[tuple[bool, ast.expr]]) -> ast.expr:
    """Of terms of which one at least is added."""
    first = next(each for adds, each in terms if adds)
    found = first
    for adds, each in terms:
        if each is not first:
            found = ast.BinOp(found, ast.Add() if adds else ast.Sub(), each)
    return found


def _changes(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement changes a tensor in place that has one of some names."""
    calls = (each for each in ast.walk(statement) if isinstance(each, ast.Call))
    places = [receiver(each) for each in calls if called(each).endswith("_")]
    if isinstance(statement, ast.AugAssign):
        places.append(statement.target)
    parts = (part for each in places if each is not None for part in ast.walk(each))
    return any(isinstance(part, ast.Name) and part.id in names for part in parts)
