"""Store an artifact of this release in manifests/compat, for every later release to verify.

It is the digits example, signed, approved and qualified as an organisation would do it, under a
trust policy that its roots signed.  The private keys are generated for it and discarded.  An
existing artifact is replaced only with `--force`, and only before the release is published.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from aotc import build
from aotc.base.errors import AotcError
from aotc.runtime.qualification import qualify
from aotc.spec.attestation_kinds import Usage
from aotc.spec.attestations import parse_instant
from aotc.spec.profile_files import load_target
from aotc.spec.trust_policy import Match, PolicyKey, Requirement, Rule, TrustPolicy
from aotc.spec.versions import VERSION
from aotc.spec.yaml import yaml_text
from aotc.trust.attesting import approve
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private
from aotc.trust.packing import pack
from aotc.trust.policy.authoring import sign_policy, write_policy, write_roots
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.policy.host_trust import apply_policy, trust_in_policy
from aotc.trust.policy.roots import bundle_path, require_root_signatures

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "manifests" / "compat"
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
TARGET = "linux-x86-64"
BUILDER = "https://ci.example.com/builders/1"
CHANNEL = "prod"
BEGIN, END = "2026-01-01T00:00:00Z", "2126-01-01T00:00:00Z"
# The moment at which later releases verify it.
MOMENT = "2030-01-01T00:00:00Z"
MAX_BYTES = 300_000
# Who signs what; two approve, and two roots sign the policy.
USAGES: Mapping[str, tuple[Usage, ...]] = {
    "release": ("oms", "provenance", "sbom", "evidence"),
    "lab": ("qualification",),
    "ops": ("approval",),
    "security": ("approval",),
}
ROOTS = ("root-1", "root-2", "root-3")


@dataclass(frozen=True)
class Keys:
    """Private keys by name, in a folder that is discarded."""

    folder: Path

    def make(self) -> None:
        """Generate all keys."""
        for name in (*USAGES, *ROOTS):
            generate(self.folder / f"{name}.pem")

    def __getitem__(self, name: str) -> PrivateKey:
        return load_private(self.folder / f"{name}.pem")

    def public(self, name: str) -> Path:
        """The file of a public key."""
        return self.folder / f"{name}.pub"


def make(place: Path) -> None:
    """Write the release's folder, replacing an existing one."""
    with tempfile.TemporaryDirectory(prefix="aotc-compat-") as scratch:
        work = Path(scratch)
        os.environ["AOTC_STORE"] = str(work / "store")
        keys = Keys(work / "keys")
        keys.folder.mkdir()
        keys.make()
        draft = work / "draft"
        draft.mkdir()
        artifact = draft / "digits.aotc"
        build_artifact(artifact, keys)
        pack(artifact, draft / "digits.aotc.zip")
        shutil.copyfile(keys.public("release"), draft / "release.pub")
        target = replace(load_target(TARGET), name="compat")
        (draft / "target.yaml").write_text(yaml_text(target), encoding="utf-8")
        write_trust(draft, keys)
        (draft / "expected.json").write_text(expected(draft), encoding="utf-8")
        size = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
        if size > MAX_BYTES:
            raise SystemExit(f"{size} bytes are too many to store permanently; at most {MAX_BYTES}")
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(draft, place)


def build_artifact(artifact: Path, keys: Keys) -> None:
    """Build, qualify on this host, and approve it twice."""
    build(
        MODEL,
        profile="edge",
        target=TARGET,
        output=artifact,
        key=keys["release"],
        cache=False,
        builder_id=BUILDER,
        release="1.0.0",
    )
    vouching = keys.public("release")
    qualify(artifact, keys["lab"], trust=vouching, runs=5)
    for name in ("ops", "security"):
        approve(artifact, keys[name], channel=CHANNEL, expires=END, trust=vouching)


def write_trust(folder: Path, keys: Keys) -> None:
    """Write the policy, its roots, and their signatures."""
    policy = TrustPolicy(
        schema="aotc.trust/1",
        name="compat",
        sequence=1,
        valid_from=BEGIN,
        expires=END,
        keys=tuple(
            PolicyKey(id=name, pem=keys[name].public_pem, usage=usage)
            for name, usage in USAGES.items()
        ),
        rules=(
            Rule(
                name="production",
                match=Match(name="digits", channel=CHANNEL),
                require=(
                    Requirement(predicate="oms", signers=("release",)),
                    Requirement(predicate="provenance", signers=("release",), builders=(BUILDER,)),
                    Requirement(predicate="sbom", signers=("release",)),
                    Requirement(predicate="approval", signers=("ops", "security"), threshold=2),
                    Requirement(predicate="qualification", signers=("lab",), target="any"),
                ),
                min_version="1.0",
            ),
            Rule(
                name="trials",
                match=Match(name="*", channel="staging"),
                require=(Requirement(predicate="oms", signers=("release",)),),
            ),
        ),
    )
    file = write_policy(folder / "trust.yaml", policy, new=True)
    roots = [keys[name].public_pem for name in ROOTS]
    write_roots(folder / "root.yaml", roots, 2, policy=policy.name)
    for name in ROOTS[:2]:
        bundle_path(file.path, keys[name].key_id).write_bytes(sign_policy(file, keys[name]))


def expected(folder: Path) -> str:
    """This release's verdict on it, at the stated moment and for the stated target."""
    file = read_policy(folder / "trust.yaml")
    roots = require_root_signatures(file, read_roots(folder / "root.yaml"))
    trust = trust_in_policy(apply_policy(file, parse_instant(MOMENT), roots=roots), channel=CHANNEL)
    report = verify(folder / "digits.aotc", trust=trust, target=folder / "target.yaml", full=True)
    if report.refusals or report.policy is None:
        raise SystemExit(f"this release refuses it: {report.refusals}")
    document = {
        "release": VERSION,
        "made": datetime.now(UTC).date().isoformat(),
        "moment": MOMENT,
        "channel": CHANNEL,
        "artifact_id": report.artifact_id,
        "archive_sha256": hashlib.sha256((folder / "digits.aotc.zip").read_bytes()).hexdigest(),
        "verdict": report.verdict,
        "signers": list(report.signers),
        "policy_signers": sorted(roots),
        "rule": report.policy.rule,
        "requirements": [entry.predicate for entry in report.policy.requirements],
        "steps": {entry.step: entry.status for entry in report.steps},
    }
    return json.dumps(document, indent=1) + "\n"


def main(arguments: list[str]) -> int:
    """Write the artifact of this release; 1 if there is one already."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="replace the one of this release")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: %(default)s")
    options = parser.parse_args(arguments)
    place = options.folder / VERSION
    if place.exists() and not options.force:
        print(f"{place} exists; the artifact of a release is never changed", file=sys.stderr)
        return 1
    try:
        make(place)
    except AotcError as error:
        print(error.line(), file=sys.stderr)
        return 1
    print(place)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
