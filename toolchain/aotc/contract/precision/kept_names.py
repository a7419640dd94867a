"""Names of nodes that a profile keeps in float32: exact names, or patterns with `*`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable


def matching_names(names: Collection[str], patterns: Iterable[str]) -> frozenset[str]:
    """Those of `names` that one of `patterns` matches; only `*` is special, for any characters."""
    found: set[str] = set()
    known = frozenset(names)
    for pattern in patterns:
        if pattern in known:
            found.add(pattern)
            continue
        if "*" in pattern:
            parts = map(re.escape, pattern.split("*"))
            matched = re.compile(".*".join(parts), re.DOTALL).fullmatch
            found.update(name for name in known if matched(name))
    return frozenset(found)


def unmatched(names: Collection[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns that match none of `names`, in order."""
    return tuple(pattern for pattern in patterns if not matching_names(names, (pattern,)))
