"""A host with a trust policy, keys of several people, and an artifact that they sign."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from artifact_builder import build_artifact, payload_digests

from aotc.host.probe import probe
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.attestations import format_instant, target_digest
from aotc.spec.codec import Json, encode
from aotc.spec.reports import VerifyReport
from aotc.spec.target import Target
from aotc.trust import oms, statements
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private
from aotc.trust.policy.authoring import sign_policy
from aotc.trust.policy.document import read_policy
from aotc.trust.policy.roots import bundle_path

NAMES = ("release", "ci", "ops", "security", "root-a", "root-b", "stranger")
BUILDER = "https://ci.example.com/builders/1"


def ago(**period: float) -> str:
    """A moment in the past, in the format of predicates and policies."""
    return format_instant(datetime.now(UTC) - timedelta(**period))


def ahead(**period: float) -> str:
    """A moment in the future."""
    return format_instant(datetime.now(UTC) + timedelta(**period))


def make_keys(folder: Path) -> dict[str, PrivateKey]:
    """One key for each of `NAMES`."""
    return {name: load_private(generate(folder / f"{name}.pem")[0]) for name in NAMES}


@dataclass
class Setting:
    """The policy is a plain mapping until `write`, so that a test can make it invalid."""

    folder: Path
    keys: Mapping[str, PrivateKey]
    policy: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.artifact.exists():
            build_artifact(self.artifact, self.keys["release"])
        self.policy = self.policy or {
            "schema": "aotc.trust/1",
            "name": "prod",
            "sequence": 1,
            "expires": ahead(days=30),
            "keys": [
                self.key("release", "oms", "evidence", "sbom"),
                self.key("ci", "provenance", "qualification"),
                self.key("ops", "approval"),
                self.key("security", "approval"),
            ],
            "rules": [
                {
                    "name": "linear",
                    "match": {"name": "linear", "channel": "*"},
                    "require": [{"predicate": "oms", "signers": ["release"]}],
                }
            ],
        }

    @property
    def artifact(self) -> Path:
        return self.folder / "linear.aotc"

    @property
    def path(self) -> Path:
        return self.folder / "trust.yaml"

    @property
    def id(self) -> str:
        return payload_digests(self.artifact)["aotc.json"]

    @property
    def rule(self) -> dict[str, Any]:
        rule: dict[str, Any] = self.policy["rules"][0]
        return rule

    def key(self, name: str, *usage: str, **more: Any) -> dict[str, Any]:
        """A key as the policy lists it."""
        return {"id": name, "pem": self.keys[name].public_pem, "usage": list(usage), **more}

    def require(self, predicate: str, *signers: str, **more: Any) -> None:
        """Add a requirement to the rule."""
        self.rule["require"].append({"predicate": predicate, "signers": list(signers), **more})

    def write(self, *roots: str) -> Path:
        """Write the policy, signed by these roots."""
        self.path.write_text(yaml.safe_dump(self.policy, sort_keys=False))
        for root in roots:
            bundle = sign_policy(read_policy(self.path), self.keys[root])
            bundle_path(self.path, self.keys[root].key_id).write_bytes(bundle)
        return self.path

    def write_roots(self, threshold: int, *names: str, policy: str = "prod") -> Path:
        """Write the host's root keys to $AOTC_TRUST_ROOT of the tests."""
        path = self.folder / "root.yaml"
        keys = [self.keys[name].public_pem for name in names]
        record = {"schema": "aotc.root/1", "policy": policy, "threshold": threshold, "keys": keys}
        path.write_text(yaml.safe_dump(record))
        return path

    def say(self, predicate_type: str, predicate: Json, signer: str, name: str) -> Path:
        """Add an attestation to the artifact."""
        path = self.artifact / "attestations" / f"{name}.sigstore.json"
        subject = {"aotc.json": self.id}
        path.write_bytes(statements.sign(predicate_type, predicate, subject, self.keys[signer]))
        return path

    def approve(
        self, signer: str, *, channel: str = "prod", name: str = "", **changes: str
    ) -> Path:
        """An approval, as `aotc attest --approve` makes it."""
        predicate = {
            "channel": channel,
            "expires": ahead(days=10),
            "issued_at": ago(minutes=5),
            "artifact": {"name": "linear", "id": self.id},
            **changes,
        }
        return self.say(
            KINDS["approval"].predicate_type, predicate, signer, name or f"approval-{signer}"
        )

    def provenance(
        self,
        *,
        signer: str = "ci",
        version: str = "",
        builder: str = BUILDER,
        name: str = "provenance",
        finished: str = "",
    ) -> Path:
        """Provenance with the fields that a policy reads."""
        asked = {"version": version} if version else {}
        predicate = {
            "buildDefinition": {"buildType": "urn:aotc:build:v1", "externalParameters": asked},
            "runDetails": {
                "builder": {"id": builder},
                "metadata": {"finishedOn": finished or ago(days=2)},
            },
        }
        return self.say(KINDS["provenance"].predicate_type, predicate, signer, name)

    def qualify(self, target: Target | None = None, **changes: Any) -> Path:
        """A qualification on this host, or on `target`."""
        where = target or probe(gpus=False)
        predicate = {
            "target": encode(where),
            "target_sha256": target_digest(where),
            "artifact": {"name": "linear", "id": self.id},
            "variant": "portable",
            "variants": ["portable"],
            "verdict": "optimal",
            "load_seconds": 0.1,
            "verify_seconds": 0.1,
            "latency": [],
            "peak_memory_bytes": 1,
            "fixtures": 1,
            "toolchain": "0.1.0",
            "issued_at": ago(days=1),
            **changes,
        }
        return self.say(KINDS["qualification"].predicate_type, predicate, "ci", "qualification")

    def sign_payload(self, signer: str, name: str) -> Path:
        """An additional OMS signature."""
        path = self.artifact / "attestations" / f"{name}.sigstore.json"
        path.write_bytes(oms.sign(payload_digests(self.artifact), self.keys[signer]))
        return path

    def verify(self, channel: str | None = None) -> VerifyReport:
        """The gate's report under the policy file."""
        return verify(self.artifact, trust=self.path, channel=channel)

    def codes(self, channel: str | None = None) -> list[str]:
        """Codes of the refusals."""
        return [item.code for item in self.verify(channel).refusals]


def sha256(data: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(data).hexdigest()
