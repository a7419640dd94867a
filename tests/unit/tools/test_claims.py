"""Attestations as text, whatever their predicate contains."""

from __future__ import annotations

from typing import Any

import pytest

from aotc.spec.attestation_kinds import KINDS
from aotc.tools.inspect import claim_text
from aotc.trust import oms

TYPES = (
    oms.PREDICATE_TYPE,
    KINDS["evidence"].predicate_type,
    KINDS["provenance"].predicate_type,
    KINDS["sbom"].predicate_type,
    KINDS["approval"].predicate_type,
    KINDS["qualification"].predicate_type,
)
APPROVAL = {
    "channel": "prod",
    "expires": "2027-01-31T00:00:00Z",
    "issued_at": "2026-11-21T00:00:00Z",
    "artifact": {"name": "digits", "id": "ab" * 32},
}


@pytest.mark.parametrize("predicate", [None, [], "x", {}, {"resources": 1}, {"runDetails": []}])
@pytest.mark.parametrize("kind", TYPES)
def test_any_predicate_is_put_into_words(kind: str, predicate: Any) -> None:
    assert len(claim_text(kind, predicate)) <= 200


@pytest.mark.parametrize(
    ("parameters", "start"), [({}, "built by ?"), ({"version": "1.4"}, "release 1.4, built by ?")]
)
def test_a_release_is_named_if_there_is_one(parameters: dict[str, str], start: str) -> None:
    said = {"buildDefinition": {"externalParameters": parameters, "resolvedDependencies": [{}]}}
    words = claim_text(KINDS["provenance"].predicate_type, said)
    assert words.startswith(start)
    assert words.endswith("from 1 dependency")


def test_an_unknown_type_says_nothing() -> None:
    assert claim_text("https://example.com/other", {"channel": "prod"}) == ""


def test_an_approval_by_a_newer_release_is_still_read() -> None:
    said = claim_text(
        KINDS["approval"].predicate_type, {**APPROVAL, "note": "by hand", "colour": "red"}
    )
    assert said == "approved for prod until 2027-01-31T00:00:00Z: by hand"


@pytest.mark.parametrize(
    "change",
    [
        {"channel": "../prod"},
        {"expires": "2027-02-30T00:00:00Z"},
        {"expires": "soon"},
        {"artifact": {"name": "digits", "id": "ab"}},
    ],
)
def test_an_approval_that_does_not_fit_says_nothing(change: dict[str, Any]) -> None:
    assert claim_text(KINDS["approval"].predicate_type, {**APPROVAL, **change}) == ""


def test_long_text_is_cut() -> None:
    said = claim_text(KINDS["approval"].predicate_type, {**APPROVAL, "note": "x" * 1000})
    assert len(said) == 200
