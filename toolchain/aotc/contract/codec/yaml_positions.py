"""The line and column of each value of a YAML document, for who says what is wrong with it.

Positions are found by a second reading, and only once something is to be told: what is valid is
read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aotc.contract.codec.parsing import ParseError, Problem
from aotc.contract.codec.strict_yaml import MAX_YAML_BYTES, loader
from aotc.errors import Place
from aotc.records import replace

# Line and column, from 1, by the path of a value (`variants[0].inputs[2].shape`); "" is the top.
Positions = Mapping[str, tuple[int, int]]


def positions(data: bytes) -> Positions:
    """Where each value of a document stands: its key, or in a list the value itself.

    Empty for what is not YAML, or longer than `MAX_YAML_BYTES`.
    """
    import yaml

    if len(data) > MAX_YAML_BYTES:
        return {}
    try:
        # A character that YAML does not allow is refused here already.
        reading = loader()(data.decode("utf-8", "replace"))
    except yaml.YAMLError:
        return {}
    try:
        root = reading.get_single_node()
        return {"": (1, 1)} if root is None else {"": _position(root), **dict(_below(root, ""))}
    except (yaml.YAMLError, ParseError, RecursionError, ValueError):
        return {}
    finally:
        reading.dispose()


def _below(node: Any, path: str) -> Iterator[tuple[str, tuple[int, int]]]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            yield name, _position(key)
            yield from _below(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            name = f"{path}[{index}]"
            yield name, _position(value)
            yield from _below(value, name)


def _position(node: Any) -> tuple[int, int]:
    return int(node.start_mark.line) + 1, int(node.start_mark.column) + 1


def nearest_position(known: Positions, path: str) -> tuple[int, int]:
    """The position of a value, or of the nearest one around it that the document has."""
    while path and path not in known:
        # A name may hold a dot itself: then what is around is found a step later.
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return known.get(path, (1, 1))


def located(problems: Sequence[Problem], data: bytes) -> tuple[Problem, ...]:
    """Problems of a document, each with its line and column."""
    known = positions(data) if any(not problem.line for problem in problems) else {}
    found = []
    for problem in problems:
        line, column = nearest_position(known, problem.path)
        found.append(problem if problem.line else replace(problem, line=line, column=column))
    return tuple(found)


def place_of(problem: Problem, file: str) -> Place | None:
    """The place of a problem in its file; None where its line is not known."""
    return Place(file=file, line=problem.line, column=problem.column) if problem.line else None
