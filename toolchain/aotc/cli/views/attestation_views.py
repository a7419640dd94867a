"""Attestations for the terminal: one that was added, and those of an artifact as they claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.fixture_words import fixture_in_words
from aotc.cli.render import duration, facts, findings_view, heading, section, short, size
from aotc.cli.result_styles import PASSED
from aotc.contract.attestation_kinds import BUNDLE_SUFFIX, KINDS
from aotc.contract.trust.attestations import AttestReport, Qualification

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.contract.results.reports import Claim


def attested_view(answer: AttestReport) -> list[RenderableType]:
    """What was added to an artifact, and what it says."""
    only = " (this user's development key)" if answer.development_key else ""
    rows = [
        ("artifact", answer.artifact_id),
        ("written", answer.path + (", over the one that was there" if answer.replaced else "")),
        ("type", answer.predicate_type),
        ("signed by", f"{short(answer.key_id)}{only}"),
        ("identity", answer.identity),
    ]
    if (approval := answer.approval) is not None:
        rows += [
            ("channel", approval.channel),
            ("expires", approval.expires),
            ("note", approval.note),
        ]
    status = "signed" if answer.predicate_type == KINDS["oms"].predicate_type else "attested"
    parts = [heading(answer.artifact, status, PASSED), facts(rows)]
    if answer.qualification is not None:
        parts += _qualification(answer.qualification)
    return parts + findings_view(list(answer.findings))


def claims_view(claims: tuple[Claim, ...]) -> list[RenderableType]:
    """What each attestation says, and whom it names as its signer."""
    rows = [
        (claim.path.rpartition("/")[2].removesuffix(BUNDLE_SUFFIX), short(claim.key_id), claim.says)
        for claim in claims
    ]
    return [section("attestations", ("claimed key", "says"), rows)] if rows else []


def _qualification(measured: Qualification) -> list[RenderableType]:
    return [
        facts(
            [
                ("target", short(measured.target_sha256)),
                ("variants", ", ".join(measured.variants)),
                ("verdict", measured.verdict),
                ("load", duration(measured.load_seconds)),
                ("peak memory", size(measured.peak_memory_bytes)),
                ("fixtures", f"{measured.fixtures} matched"),
            ]
        ),
        section(
            "latency",
            ("variant", "median", "quartiles"),
            [
                (
                    fixture_in_words(latency.fixture),
                    latency.variant,
                    duration(latency.median_seconds),
                    f"{duration(latency.lower_seconds)} to {duration(latency.upper_seconds)}",
                )
                for latency in measured.latency
            ],
        ),
        *findings_view(list(measured.findings)),
    ]
