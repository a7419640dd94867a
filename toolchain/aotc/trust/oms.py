"""The OpenSSF Model Signing (OMS) v1.0 signature over every file of a payload.

It is a sigstore bundle with an in-toto Statement v1: the predicate lists each file with its sha256,
and the subject is the sha256 of the concatenated raw digests in the order of that list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from aotc.base.records import record
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.codec import Json, ParseError, Problem, decode
from aotc.spec.json import strict_json
from aotc.spec.payload import PayloadPath
from aotc.trust import dsse
from aotc.trust.statements import STATEMENT_TYPE

if TYPE_CHECKING:
    from aotc.spec.trust_policy import Sealer, Signer


PREDICATE_TYPE: Final = KINDS["oms"].predicate_type
SUBJECT_NAME = "payload"


@record
class _Resource:
    name: PayloadPath
    algorithm: str
    digest: str

    def problems(self) -> list[Problem]:
        found = []
        if self.algorithm != "sha256":
            found.append(Problem("algorithm", f"{self.algorithm!r} is not sha256"))
        if not re.fullmatch(r"[0-9a-f]{64}", self.digest):
            found.append(Problem("digest", "is not a sha256 in lowercase hexadecimal digits"))
        return found


def in_path_order(paths: Iterable[str]) -> list[str]:
    """Paths sorted as `model_signing` lists them, so that equal payloads have equal root digests.

    They are compared part by part; sorted as text, `model.avx2/a` would come before `model/a`.
    """
    return sorted(paths, key=lambda path: path.split("/"))


def root_digest(digests: Iterable[str]) -> str:
    """The sha256 (hex) of concatenated raw digests; it does not depend on names of files."""
    return hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests)).hexdigest()


def sign(digests: Mapping[str, str], key: Signer | Sealer) -> bytes:
    """The bundle that signs a payload; with a key in a file, equal arguments give equal bytes.

    `digests` maps each path in the payload, including aotc.json and manifest.json, to the sha256
    (hex) of the file.
    """
    names = in_path_order(digests)
    return dsse.sign(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {
                    "name": SUBJECT_NAME,
                    "digest": {"sha256": root_digest(digests[name] for name in names)},
                }
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "serialization": {
                    "method": "files",
                    "hash_type": "sha256",
                    "allow_symlinks": False,
                    "ignore_paths": [],
                },
                "resources": [
                    {"name": name, "algorithm": "sha256", "digest": digests[name]} for name in names
                ],
            },
        },
        key,
    )


def read_digests(payload: bytes) -> dict[str, str]:
    """The digests that a statement lists; raises AOTC-G004 if it is malformed.

    The statement's `ignore_paths` is ignored: an artifact with a file that is not listed is
    refused.
    """
    try:
        return _read(strict_json(payload, limit=dsse.MAX_BUNDLE_BYTES))
    except ParseError as error:
        raise dsse.malformed(error) from None


def _read(statement: Json) -> dict[str, str]:
    if not isinstance(statement, dict):
        raise ParseError([Problem("", "the statement is not a mapping")])
    problems = [
        Problem(name, f"expected {wanted}")
        for name, wanted in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE))
        if statement.get(name) != wanted
    ]
    predicate = statement.get("predicate")
    if not isinstance(predicate, dict):
        raise ParseError([*problems, Problem("predicate", "expected a mapping")])
    method = predicate.get("serialization")
    if not isinstance(method, dict):
        method = {}
    for name, wanted in (("method", "files"), ("hash_type", "sha256")):
        if method.get(name) != wanted:
            problems.append(Problem(f"predicate.serialization.{name}", f"expected {wanted}"))
    listed = predicate.get("resources")
    if not isinstance(listed, list) or not listed:
        raise ParseError([*problems, Problem("predicate.resources", "expected a list of files")])
    if problems:
        raise ParseError(problems)
    resources = decode(tuple[_Resource, ...], listed, path="predicate.resources")
    digests = {resource.name: resource.digest for resource in resources}
    if len(digests) != len(resources):
        raise ParseError([Problem("predicate.resources", "a file is listed twice")])
    stated = statement.get("subject")
    subject = stated[0] if isinstance(stated, list) and len(stated) == 1 else None
    wanted_root = {"sha256": root_digest(resource.digest for resource in resources)}
    if not isinstance(subject, dict) or subject.get("digest") != wanted_root:
        raise ParseError([Problem("subject", "is not the digest of the listed files")])
    return digests
