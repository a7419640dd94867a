"""What a trust policy decided about an artifact, and why: part of `aotc verify --json`."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.attestation_kinds import Usage
from aotc.records import record

ChannelSource = Literal["", "argument", "approval"]


@record
class RuleMatch:
    """Whether a rule matches the artifact's name and channel."""

    rule: str
    name: Annotated[str, "pattern"]
    channel: Annotated[str, "pattern"]
    matches: bool


@record
class ConsideredAttestation:
    """An attestation that was considered for a requirement, and whether it counts."""

    path: str
    key: Annotated[str, "key id: sha256 of the public key's PEM"]
    id: Annotated[str, "id of the key or authority in the policy"]
    counts: bool
    code: Annotated[str, "reason why it does not count; empty if it counts"] = ""
    why: str = ""


@record
class RequirementResult:
    """The result of one requirement of the rule that applies."""

    predicate: Usage
    signers: tuple[str, ...]
    threshold: int
    distinct: Annotated[int, "number of distinct signers that count"]
    met: bool
    considered: tuple[ConsideredAttestation, ...] = ()


@record
class ArtifactRelease:
    """A release of an artifact, ordered by version, by time of approval, or by time of build."""

    kind: Literal["version", "approved", "built"]
    value: str


@record
class PolicyDecision:
    """The decision of a policy, with the rule that applies and its requirements."""

    policy: str
    sequence: int
    sha256: Annotated[str, "of the policy file"]
    expires: str
    roots: Annotated[tuple[str, ...], "key ids of the roots that signed it; empty: unsigned"] = ()
    artifact: Annotated[str, "name of the artifact"] = ""
    channel: str = ""
    channel_from: ChannelSource = ""
    accepted: bool = False
    rule: Annotated[str, "name of the rule that matches; empty: none or several match"] = ""
    rules: tuple[RuleMatch, ...] = ()
    requirements: tuple[RequirementResult, ...] = ()
    qualified: Annotated[
        tuple[str, ...] | None, "variants that may be loaded here, if a rule requires it; None: all"
    ] = None
    release: ArtifactRelease | None = None
    highest: Annotated[ArtifactRelease | None, "highest release seen on this host before"] = None
