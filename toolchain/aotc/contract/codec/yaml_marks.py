"""Where in a YAML document a value stands, by its path."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_INDEX = re.compile(r"\[(\d+)\]")


class Mark(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


def marks(data: bytes, paths: tuple[str, ...]) -> dict[str, Mark]:
    """The places of what `paths` name, such as `build.profile`, in a document that was read before.

    A field's place is that of its name.  A path that the document lacks has the place of the last
    part of it that is there.  What is no YAML has no path: without `paths` it is not read again.
    """
    if not paths:
        return {}
    import yaml

    top = yaml.compose(data.decode("utf-8"), yaml.SafeLoader)
    return {path: _found(top, path) for path in paths}


def _found(node: Any, path: str) -> Mark:
    mark = node.start_mark if node is not None else None
    while path and node is not None:
        node, place, path = _below(node, path)
        mark = place or mark
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)


def _below(node: Any, path: str) -> tuple[Any, Any, str]:
    """The value below a node that the path begins with, its place, and the rest of the path."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        # A name may hold a dot, so that the longest one counts.
        for key, value in sorted(node.value, key=lambda item: -len(str(item[0].value))):
            name = str(key.value)
            rest = path[len(name) :]
            if path.startswith(name) and (not rest or rest[0] in ".["):
                return value, key.start_mark, rest.removeprefix(".")
    index = _INDEX.match(path)
    if index and isinstance(node, yaml.SequenceNode) and int(index[1]) < len(node.value):
        item = node.value[int(index[1])]
        return item, item.start_mark, path[index.end() :].removeprefix(".")
    return None, None, ""
