"""Relations among dims as a profile writes them, and which names of dims say nothing."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from aotc.base.records import record
from aotc.spec.codec import ParseError, Problem
from aotc.spec.shapes import Relation

# Relations among dims as a profile writes them: `batch = ids.0 = mask.0`, `total = past + seq`.
#
# A name is a sequence of characters without blanks and without `= + - * "`; other names are written
# in double quotes. `A = B = C` states that dims are equal. A sum has names, integers and products
# of both (`2*a`), joined by `+`, or by `-` before an integer.


CODE = "AOTC-S015"

_TOKEN = re.compile(r'\s*(?:"([^"]+)"|([=+*-])|([^\s"=+*-]+))', re.ASCII)
_MAX_CHARACTERS = 1000
_MAX_TERMS = 16
_MAX_CONSTANT = 2**31

# tf2onnx and ONNX's inference count `unk__12`, Paddle2ONNX `p2o.DynamicDimension.0`, torch.onnx
# `x_dynamic_axes_1`; converters of Python objects write None.  `N`, `s0` and `dim_0` are names.
_ANONYMOUS = re.compile(
    r"""\s* (?:
        \?+ | \*+ | -\d+
        | none | null | nil | nan | undefined | dynamic
        | unk (?: nown )? (?: _{0,2} \d+ )?
        | (?: p2o\. )? DynamicDimension (?: \.\d+ )?
        | (?: .* _ )? dynamic_axes_\d+
    )? \s*""",
    re.ASCII | re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


@record
class Equality:
    """Dims that have the same size."""

    names: tuple[str, ...]


class _Name(str):
    """A token that is a name, in contrast to an operator or a number."""

    __slots__ = ()


def read_relation(text: str) -> Equality | Relation:
    """Read one equality or relation; raises `ParseError` with AOTC-S015."""
    sides: list[list[str]] = [[]]
    for token in _tokens(text):
        if _is_operator(token, "="):
            sides.append([])
        else:
            sides[-1].append(token)
    if len(sides) < 2 or not all(sides):
        raise _unreadable(text, "is neither NAME = NAME nor NAME = SUM")
    if all(_is_name(side) for side in sides):
        return _equality(text, [side[0] for side in sides])
    if len(sides) > 2:
        raise _unreadable(text, "has a sum, and more than one '='")
    left, right = sides if _is_name(sides[0]) else reversed(sides)
    if not _is_name(left):
        raise _unreadable(text, "does not have a side that is a single name")
    return _linear(text, str(left[0]), right)


def read_relations(texts: Sequence[str]) -> tuple[Equality | Relation, ...]:
    """Read the relations of a profile; raises `ParseError` with all problems, also among them."""
    problems: list[Problem] = []
    read: list[Equality | Relation] = []
    for index, text in enumerate(texts):
        try:
            read.append(read_relation(text))
        except ParseError as error:
            problems += [Problem(f"[{index}]", p.what, p.code) for p in error.problems]
    if not problems:
        names = representatives(item for item in read if isinstance(item, Equality))
        sums = [renamed(item, names) for item in read if isinstance(item, Relation)]
        if what := ordering_problem(sums):
            problems.append(Problem("", what, CODE))
    if problems:
        raise ParseError(problems)
    return tuple(read)


def read_sum(text: str) -> Relation:
    """Read a sum of dims, such as `past + seq - 1`, as that of a dim without a name.

    Raises `ParseError` with AOTC-S015.
    """
    return _linear(text, "", _tokens(text))


def sum_text(relation: Relation) -> str:
    """What `read_sum` reads: the sum of a relation, with quotes around names that need them."""
    terms = tuple(quoted(term) for term in relation.terms)
    return str(Relation(dim="", terms=terms, constant=relation.constant)).removeprefix(" = ")


def quoted(name: str) -> str:
    """The name of a dim as a relation has it, in double quotes where it needs them."""
    return f'"{name}"' if re.search(r"[\s=+*-]", name) or name.isdecimal() else name


def representatives(equalities: Iterable[Equality]) -> dict[str, str]:
    """For each dim, the dim that represents all that equal it: the first one that was named."""
    parents: dict[str, str] = {}
    order: dict[str, int] = {}

    def root_of(name: str) -> str:
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    for equality in equalities:
        for name in equality.names:
            parents.setdefault(name, name)
            order.setdefault(name, len(order))
        roots = {root_of(name) for name in equality.names}
        root = min(roots, key=order.__getitem__)
        parents.update(dict.fromkeys(roots, root))
    return {name: root_of(name) for name in parents}


def renamed(relation: Relation, names: Mapping[str, str]) -> Relation:
    """`relation` with its dims replaced by `names`."""
    return Relation(
        dim=names.get(relation.dim, relation.dim),
        terms=tuple(names.get(term, term) for term in relation.terms),
        constant=relation.constant,
    )


def ordering_problem(relations: Sequence[Relation]) -> str:
    """Why `relations` cannot be computed one after the other; empty if they can."""
    derived = Counter(relation.dim for relation in relations)
    twice = [dim for dim, count in derived.items() if count > 1]
    if twice:
        stated = "; ".join(str(relation) for relation in relations if relation.dim == twice[0])
        return f"{twice[0]!r} is derived twice: {stated}"
    followed = {relation.dim for relation in in_dependency_order(relations)}
    cycle = [str(relation) for relation in relations if relation.dim not in followed]
    return f"the relations are circular: {'; '.join(cycle)}" if cycle else ""


def in_dependency_order(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """`relations`, each after those that its terms follow from; circular ones are left out.

    If several could be next, the first of them is.
    """
    waiting = Counter(relation.dim for relation in relations)
    readers: dict[str, list[int]] = {}
    unknown_terms = []
    for index, relation in enumerate(relations):
        terms = {term for term in relation.terms if term in waiting}
        unknown_terms.append(len(terms))
        for term in terms:
            readers.setdefault(term, []).append(index)
    ready = [index for index, count in enumerate(unknown_terms) if not count]
    chosen: list[Relation] = []
    while ready:
        relation = relations[heapq.heappop(ready)]
        chosen.append(relation)
        waiting[relation.dim] -= 1
        for index in () if waiting[relation.dim] else readers.get(relation.dim, ()):
            unknown_terms[index] -= 1
            if not unknown_terms[index]:
                heapq.heappush(ready, index)
    return tuple(chosen)


def _tokens(text: str) -> list[str]:
    if len(text) > _MAX_CHARACTERS:
        raise _unreadable(f"{text[:40]}...", f"has more than {_MAX_CHARACTERS} characters")
    tokens: list[str] = []
    position, text = 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()[:20]
            raise _unreadable(text, f"cannot be read at {rest!r}")
        quoted, operator, word = match.groups()
        plain = operator or (word if word and word.isdecimal() else None)
        tokens.append(plain if plain is not None else _Name(quoted or word))
        position = match.end()
    return tokens


def _is_operator(token: str, operator: str) -> bool:
    return token == operator and not isinstance(token, _Name)


def _is_name(side: Sequence[str]) -> bool:
    return len(side) == 1 and isinstance(side[0], _Name)


def _equality(text: str, names: Sequence[str]) -> Equality:
    plain = tuple(str(name) for name in names)
    if len(set(plain)) < len(plain):
        raise _unreadable(text, "names a dim twice")
    return Equality(names=plain)


def _linear(text: str, dim: str, tokens: Sequence[str]) -> Relation:
    terms: list[str] = []
    constant, sign = 0, 1
    rest = list(tokens)
    while rest:
        product = [rest.pop(0)]
        while rest and _is_operator(rest[0], "*"):
            product += rest[1:2] or ["*"]
            del rest[:2]
        added, number = _product(text, product, sign)
        terms += added
        constant += number
        if rest:
            operator = rest.pop(0)
            if not (_is_operator(operator, "+") or _is_operator(operator, "-")) or not rest:
                raise _unreadable(text, f"has {str(operator)!r} where '+ TERM' is expected")
            sign = 1 if operator == "+" else -1
    if not terms:
        raise _unreadable(text, "states a single size; state sizes under dims")
    if len(terms) > _MAX_TERMS or abs(constant) > _MAX_CONSTANT:
        raise _unreadable(text, f"has more than {_MAX_TERMS} terms, or too large a number")
    if dim in terms:
        raise _unreadable(text, f"derives {dim!r} from itself")
    return Relation(dim=dim, terms=tuple(terms), constant=constant)


def _product(text: str, factors: Sequence[str], sign: int) -> tuple[list[str], int]:
    """The names of a product, repeated by its factor, or its value if it has no name."""
    names = [str(factor) for factor in factors if isinstance(factor, _Name)]
    number = 1
    for factor in factors:
        if isinstance(factor, _Name):
            continue
        if not factor.isdecimal() or len(factor) > len(str(_MAX_CONSTANT)):
            raise _unreadable(text, f"has {factor!r} where a name or a number is expected")
        number *= int(factor)
    if len(names) > 1:
        raise _unreadable(text, "multiplies dims; only sums are supported")
    if not names:
        return [], sign * number
    if sign < 0:
        raise _unreadable(text, f"subtracts {names[0]!r}; write it as a sum on the other side")
    if not 1 <= number <= _MAX_TERMS:
        raise _unreadable(
            text, f"has {names[0]!r} {number} times; 1 to {_MAX_TERMS} times are supported"
        )
    return names * number, 0


def _unreadable(text: str, why: str) -> ParseError:
    return ParseError([Problem("", f"{text!r} {why}", CODE)])


# Anonymous names of dims: what exporters write if they know neither size nor name.


def is_anonymous(name: str) -> bool:
    """Whether the name of a dim, such as `None`, `?` or `unk__12`, does not identify it.

    Two positions with the same anonymous name are different dims.
    """
    return _ANONYMOUS.fullmatch(name) is not None
