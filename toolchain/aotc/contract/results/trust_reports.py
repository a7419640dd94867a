"""What the commands of `aotc trust` print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.finding import Finding
from aotc.records import field, record


@record
class TrustReport:
    """`aotc trust init|add|check|sign --json`: the policy after the command."""

    schema: Literal["aotc.trust-answer/1"] = "aotc.trust-answer/1"
    file: str
    name: str
    sequence: int
    sha256: str
    expires: str
    rules: tuple[str, ...]
    keys: Annotated[tuple[str, ...], "ids of keys, authorities and identities that are not revoked"]
    revoked_keys: Annotated[
        Mapping[str, str], "reasons by id, or by sha256 of a key; a reason may be empty"
    ] = field(default_factory=dict)
    revoked_artifacts: Annotated[tuple[str, ...], "artifact ids"] = ()
    signed_by: Annotated[
        tuple[str, ...], "key ids of roots: all that count, or the one that signed now"
    ] = ()
    counting: Annotated[
        tuple[str, ...] | None,
        "for `sign`: roots of this host that have signed; None: it has no roots",
    ] = None
    threshold: Annotated[int | None, "for `sign`: number of roots of this host that must sign"] = (
        None
    )
    findings: tuple[Finding, ...] = ()
    bundle: Annotated[str, "the signature that was written"] = ""
    checked: Annotated[
        bool, "whether it was checked as this host checks a policy before using it"
    ] = False


@record
class RootReport:
    """`aotc trust root --json`: the file of root keys that was written."""

    schema: Literal["aotc.root-answer/1"] = "aotc.root-answer/1"
    file: str
    policy: Annotated[str, "name of the only policy that hosts with this file take"]
    threshold: int
    keys: Annotated[tuple[str, ...], "key ids"]
