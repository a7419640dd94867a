"""The number of distinct signers of some signatures, which does not depend on their order."""

from __future__ import annotations

from collections.abc import Iterable


def distinct_signers(signed: Iterable[tuple[str, str]]) -> int:
    """The maximum number of signers that have both a key and a name of their own.

    `signed` are pairs of the key and the name of each signature, of which there are few: an
    artifact has at most 64 bundles.  A name may have several keys, and a key may be certified for
    several names, so this is the size of a maximum matching of keys and names (by Berge's theorem,
    a matching without an augmenting path is a maximum).
    """
    names: dict[str, set[str]] = {}
    for key, name in signed:
        names.setdefault(key, set()).add(name)
    keys: dict[str, str] = {}

    def assign(key: str, tried: set[str]) -> bool:
        """Assign a name to a key, moving other keys to other names if necessary."""
        for name in sorted(names[key] - tried):
            if name in tried:
                continue
            tried.add(name)
            if name not in keys or assign(keys[name], tried):
                keys[name] = key
                return True
        return False

    return sum(assign(key, set()) for key in names)
