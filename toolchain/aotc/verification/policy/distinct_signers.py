"""How many distinct signers some signatures are by, in whichever order they are looked at."""

from __future__ import annotations

from collections.abc import Iterable


def distinct_signers(signed: Iterable[tuple[str, str]]) -> int:
    """The most signers that can be told apart: each has a key and a name that no other has.

    `signed` holds the key and the name of each signature, of which there are few: an artifact has
    64 bundles at most.  One name may go with several keys, and one key may be certified for
    several names, so this is the size of a maximum matching of keys with names (Berge's theorem:
    there is no larger one where no augmenting path is left).
    """
    names: dict[str, set[str]] = {}
    for key, name in signed:
        names.setdefault(key, set()).add(name)
    holders: dict[str, str] = {}

    def placed(key: str, tried: set[str]) -> bool:
        """Give a key a name, others taking another one where they must."""
        for name in sorted(names[key] - tried):
            if name in tried:
                continue
            tried.add(name)
            if name not in holders or placed(holders[name], tried):
                holders[name] = key
                return True
        return False

    return sum(placed(key, set()) for key in names)
