"""The locks pin whatever is installed by them, also what is wanted with extras."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
LOCKS = sorted(REQUIREMENTS.glob("*.lock"))


@pytest.mark.parametrize("lock", LOCKS, ids=[lock.stem for lock in LOCKS])
def test_a_package_that_another_wants_with_extras_is_pinned_with_them(lock: Path) -> None:
    # To pip with hashes, `a[extra]` is not pinned by `a==1`: once there is a newer release it
    # takes that one, and fails as it has no hash.
    pins = {canonicalize_name(pin.name): pin for pin in pins_of(lock)}
    wanted = {
        (name, extra, canonicalize_name(dependent))
        for dependent, requirement in installed_requirements()
        if canonicalize_name(dependent) in pins
        and (name := canonicalize_name(requirement.name)) in pins
        for extra in requirement.extras
    }
    missing = {
        f"{name}[{extra}] of {dependent}"
        for name, extra, dependent in wanted
        if extra not in pins[name].extras
    }
    assert not missing
    if lock.stem == "dev":
        assert wanted, "nothing that is installed wants extras: this test shows nothing"


def pins_of(lock: Path) -> Iterator[Requirement]:
    for line in lock.read_text().splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            yield Requirement(line.removesuffix("\\").strip())


def installed_requirements() -> Iterator[tuple[str, Requirement]]:
    """What installed packages want here, without what they want for extras of their own."""
    for found in distributions():
        for line in found.requires or ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield found.metadata["Name"], requirement
