"""The locks pin whatever is installed by them, also what is wanted with extras."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {lock.stem: lock for lock in sorted((ROOT / "requirements").glob("*.lock"))}
# One that aotc wants with an extra, and one that this extra wants with another.
SURELY_WANTED = {"cyclonedx-python-lib", "jsonschema"}


@pytest.mark.parametrize("name", LOCKS)
def test_a_package_that_another_wants_with_extras_is_pinned_with_them(name: str) -> None:
    # To pip with hashes, `a[extra]` is not pinned by `a==1`: once there is a newer release it
    # takes that one, and fails as it has no hash.
    pins = pins_of(LOCKS[name])
    wanted = set(wanted_extras(pins, {"aotc": locked_extras().get(name, set())}))
    missing = {
        f"{package}[{extra}] of {dependent}"
        for package, extra, dependent in wanted
        if extra not in pins[package]
    }
    assert not missing
    if name == "dev":
        assert {package for package, *_ in wanted} >= SURELY_WANTED


def pins_of(lock: Path) -> dict[str, set[str]]:
    """The extras of each package that a lock pins."""
    lines = (line for line in lock.read_text().splitlines() if re.match(r"[A-Za-z0-9]", line))
    pins = (Requirement(line.removesuffix("\\").strip()) for line in lines)
    return {canonicalize_name(pin.name): set(pin.extras) for pin in pins}


def locked_extras() -> dict[str, set[str]]:
    """The extras of aotc that each lock is for, as ci/lock.sh has it."""
    found = re.findall(r"^compile (\S+)(.*)$", (ROOT / "ci" / "lock.sh").read_text(), re.MULTILINE)
    return {lock: set(re.findall(r"--extra (\S+)", options)) for lock, options in found}


def wanted_extras(
    pins: Mapping[str, set[str]], own: Mapping[str, set[str]]
) -> Iterator[tuple[str, str, str]]:
    """What installed packages, with the extras that they are pinned with, want with extras here.

    Each is a package, one extra of it, and the package that wants it.
    """
    for found in distributions():
        dependent = canonicalize_name(found.metadata["Name"])
        extras = own.get(dependent, pins.get(dependent))
        if extras is None:
            continue
        for line in found.requires or ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            marker, package = requirement.marker, canonicalize_name(requirement.name)
            applies = marker is None or any(
                marker.evaluate({"extra": extra}) for extra in (*extras, "")
            )
            if applies and package in pins:
                yield from ((package, extra, dependent) for extra in requirement.extras)
