"""Values that completion offers for an option or an argument, each with what it is."""

from __future__ import annotations


def profiles(incomplete: str) -> list[str]:
    """The built-in profiles whose names begin so."""
    from aotc.contract.builtin import builtin_profiles

    return [name for name in builtin_profiles() if name.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """The built-in targets whose names begin so, and this machine."""
    from aotc.contract.builtin import builtin_targets

    return [name for name in ("host", *builtin_targets()) if name.startswith(incomplete)]


def precisions(incomplete: str) -> list[str]:
    """The precisions that a build may be asked for."""
    from typing import get_args

    from aotc.contract.profile_terms import WantedPrecision

    return [name for name in get_args(WantedPrecision) if name.startswith(incomplete)]


def codes(incomplete: str) -> list[tuple[str, str]]:
    """Reason codes and their titles, spelled as the word begins: `G005` or `AOTC-G005`."""
    from aotc.reasons import REASONS

    word = incomplete.upper()
    prefix = "AOTC-" if word.startswith("A") or not word else ""
    spelled = ((f"{prefix}{code.removeprefix('AOTC-')}", REASONS[code]) for code in sorted(REASONS))
    return [(name, reason.title) for name, reason in spelled if name.startswith(word)]


def usages(incomplete: str) -> list[str]:
    """The kinds of attestations that a key may sign, after a comma the next one."""
    from typing import get_args

    from aotc.contract.attestation_kinds import Usage

    before, comma, word = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in get_args(Usage) if name.startswith(word)]


def areas(incomplete: str) -> list[str]:
    """The areas in which artifacts are compared, after a comma the next one."""
    from aotc.contract.results.diff_report import AREAS

    before, comma, word = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in AREAS if name.startswith(word)]
