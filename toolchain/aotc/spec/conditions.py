"""Conditions on sizes, as a framework states them of a captured program: `(y_1 + 1)//2 != 1`.

The text is an expression of Python with integers, names of dims, `+ - * // %`, `min`, `max`,
comparisons, `and`, `or` and `not`; nothing else is read, and nothing is run.  A name may stand in
quotes, as a subscript of `D`: `D['a b'] >= 2`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from aotc.base.records import record

_MAX_CHARACTERS: Final = 2000
_MAX_NUMBER: Final = 2**63
_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED: Final[Mapping[type[ast.cmpop], Callable[[int, int], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLED: Final[Mapping[str, Callable[..., int]]] = {"min": min, "max": max}
# What a subscript that is a dim is taken of.
_DIMS: Final = "D"


@record
class Condition:
    """A condition that can be read: its text, and the dims that it is about."""

    text: str
    dims: tuple[str, ...]

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds at `sizes`; so it does where they lack one of its dims."""
        if not sizes.keys() >= set(self.dims):
            return True
        try:
            return bool(_value(_parsed(self.text), sizes))
        except (ArithmeticError, ValueError):
            return False

    def renamed(self, names: Mapping[str, str]) -> Condition:
        """The same condition, about dims of other names."""
        if all(names.get(dim, dim) == dim for dim in self.dims):
            return self
        tree = _Renaming(names).visit(_parsed(self.text))
        dims = (names.get(dim, dim) for dim in self.dims)
        return Condition(text=ast.unparse(tree), dims=tuple(dict.fromkeys(dims)))


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [self.visit(argument) for argument in node.args]
        return ast.Call(func=node.func, args=arguments, keywords=[])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _dim_node(self._names.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name = _subscript(node)
        return _dim_node(self._names.get(name, name))


def _dim_node(name: str) -> ast.expr:
    return ast.parse(quoted_dim(name), mode="eval").body


def read_condition(text: str) -> Condition | None:
    """The condition in `text`; None where it is of another form, or about no dim."""
    try:
        tree = _parsed(text)
        dims = tuple(dict.fromkeys(_names(tree)))
        _value(tree, dict.fromkeys(dims, 2))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    except ArithmeticError:
        pass
    return Condition(text=text, dims=dims) if dims else None


def quoted_dim(name: str) -> str:
    """A dim as a condition has it."""
    plain = name.isidentifier() and name.isascii() and name not in (*_CALLED, _DIMS)
    return name if plain and not _is_keyword(name) else f"{_DIMS}[{name!r}]"


def _is_keyword(name: str) -> bool:
    import keyword

    return keyword.iskeyword(name)


def _parsed(text: str) -> ast.expr:
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(text)
    return ast.parse(text.strip(), mode="eval").body


def _names(tree: ast.expr) -> Iterator[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    held = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            yield _subscript(node)
        elif isinstance(node, ast.Name) and id(node) not in called and id(node) not in held:
            yield node.id


def _subscript(node: ast.Subscript) -> str:
    name, key = node.value, node.slice
    if isinstance(name, ast.Name) and name.id == _DIMS and isinstance(key, ast.Constant):
        return str(key.value)
    raise ValueError(ast.dump(node))


def _value(node: ast.expr, sizes: Mapping[str, int]) -> Any:
    """The value of an expression; raises `ValueError` for what is not of the form."""
    match node:
        case ast.Constant(value=bool() | int() as value):
            return value
        case ast.Name(id=name):
            return sizes[name]
        case ast.Subscript():
            return sizes[_subscript(node)]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            found = _ARITHMETIC[type(op)](_value(left, sizes), _value(right, sizes))
            if abs(found) > _MAX_NUMBER:
                raise ValueError(found)
            return found
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, sizes)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, sizes)
        case ast.BoolOp(op=op, values=parts):
            truths = [bool(_value(part, sizes)) for part in parts]
            return all(truths) if isinstance(op, ast.And) else any(truths)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARED for op in ops
        ):
            numbers = [_value(left, sizes), *(_value(other, sizes) for other in others)]
            pairs = zip(ops, numbers, numbers[1:], strict=False)
            return all(_COMPARED[type(op)](one, other) for op, one, other in pairs)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if (
            name in _CALLED
        ):
            return _CALLED[name](*(_value(argument, sizes) for argument in arguments))
    raise ValueError(ast.dump(node))
