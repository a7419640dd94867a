"""What a trust policy decided of an artifact, and why: part of `aotc verify --json`."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.attestation_kinds import Usage
from aotc.records import record

ChannelSource = Literal["", "argument", "approval"]


@record
class RuleMatch:
    """Whether a rule is for the artifact, by name and channel."""

    rule: str
    name: Annotated[str, "pattern"]
    channel: Annotated[str, "pattern"]
    matches: bool


@record
class ConsideredAttestation:
    """One attestation that was looked at for a requirement, and whether it counts."""

    path: str
    key: Annotated[str, "key id: sha256 of the public key's PEM"]
    id: Annotated[str, "of the key or authority in the policy"]
    counts: bool
    code: Annotated[str, "why it does not count; empty where it does"] = ""
    why: str = ""


@record
class RequirementResult:
    """One requirement of the rule that decided."""

    predicate: Usage
    signers: tuple[str, ...]
    threshold: int
    distinct: Annotated[int, "people with keys of their own that count"]
    met: bool
    considered: tuple[ConsideredAttestation, ...] = ()


@record
class ArtifactRelease:
    """What orders the releases of an artifact: its version, its approval, or its build."""

    kind: Literal["version", "approved", "built"]
    value: str


@record
class PolicyDecision:
    """Which rule of which policy decided, and on what grounds."""

    policy: str
    sequence: int
    sha256: Annotated[str, "of the policy file"]
    expires: str
    roots: Annotated[tuple[str, ...], "key ids of the roots that signed it; none: unsigned"] = ()
    artifact: Annotated[str, "its name"] = ""
    channel: str = ""
    channel_from: ChannelSource = ""
    accepted: bool = False
    rule: Annotated[str, "the one that matches; empty: none, or several"] = ""
    rules: tuple[RuleMatch, ...] = ()
    requirements: tuple[RequirementResult, ...] = ()
    qualified: Annotated[
        tuple[str, ...] | None, "variants that may be loaded here, where a rule asks; None: all"
    ] = None
    release: ArtifactRelease | None = None
    highest: Annotated[ArtifactRelease | None, "seen on this host before"] = None
