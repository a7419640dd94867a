"""Statements without usable content."""

from __future__ import annotations

import json
from collections.abc import Callable

from aotc.spec.attestation_kinds import KINDS
from vectors.collection import Vectors
from vectors.signing import OMS, bundle_of, statement_of
from vectors.values import Json, changed, compact, json_text, put, sha256


def bad_statements(out: Vectors) -> None:
    """Statements that a trusted key signed, but that have no usable content."""
    listed = ("predicate", "resources")
    evidence = statement_of(KINDS["evidence"].predicate_type, {})
    good = json.loads(OMS)

    def add(name: str, kind: str, why: str, payload: bytes) -> None:
        out.add("invalid-payload", name, kind, "AOTC-G004", why, json_text(bundle_of(payload)))

    changes: tuple[tuple[str, str, Callable[[Json], object]], ...] = (
        (
            "parent-path",
            "a file outside of the payload",
            lambda s: put(s, *listed, 0, "name", to="../aotc.json"),
        ),
        (
            "absolute-path",
            "a file outside of the payload",
            lambda s: put(s, *listed, 0, "name", to="/aotc.json"),
        ),
        (
            "backslash-path",
            "a separator on some systems",
            lambda s: put(s, *listed, 0, "name", to="a\\aotc.json"),
        ),
        (
            "listed-twice",
            "one file with two digests",
            lambda s: put(s, *listed, 1, "name", to="aotc.json"),
        ),
        ("no-files", "a signature over nothing", lambda s: put(s, *listed, to=[])),
        (
            "weak-digest",
            "another digest than sha256",
            lambda s: put(s, *listed, 0, "algorithm", to="md5"),
        ),
        (
            "upper-case-digest",
            "one digest has one spelling",
            lambda s: put(
                s, *listed, 0, "digest", to=s["predicate"]["resources"][0]["digest"].upper()
            ),
        ),
        (
            "other-subject",
            "the subject is not the digest of the list",
            lambda s: put(s, "subject", 0, "digest", "sha256", to=sha256(b"")),
        ),
        (
            "statement-v01",
            "another version of statements",
            lambda s: put(s, "_type", to="https://in-toto.io/Statement/v0.1"),
        ),
    )
    for name, why, change in changes:
        add(name, "oms", why, compact(changed(good, change)))
    add(
        "replayed-kind",
        "oms",
        "another statement by the same key is not a signature of files",
        compact(evidence),
    )
    duplicate = OMS[:-1] + b',"predicate":{}}'
    add("duplicate-key-inside", "oms", "ambiguous, though signed", duplicate)
    add(
        "lone-surrogate-inside",
        "oms",
        "half of a surrogate pair, though signed",
        OMS[:-1] + b',"more":"\\udc00"}',
    )
    add(
        "no-subject",
        "attestation",
        "about nothing",
        compact(changed(evidence, lambda s: put(s, "subject", to=[]))),
    )
    add(
        "subject-twice",
        "attestation",
        "one name with two digests",
        compact(changed(evidence, lambda s: s["subject"].append(dict(s["subject"][0])))),
    )
