"""Only qualified variants load if a policy demands it; others displace no earlier release."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from artifact_builder import sign_artifact
from built_artifact import BuiltArtifact

from aotc import export, load, verify
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.runtime.qualification import qualify
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.attestations import Qualification, target_digest
from aotc.spec.codec import encode
from aotc.spec.json import canonical_json
from aotc.spec.reports import VerifyReport
from aotc.trust import key_files, oms, statements
from aotc.trust.key_loading import PrivateKey, load_private
from aotc.trust.policy import roots
from aotc.trust.policy.state import user_state

UNQUALIFIED, NO_VARIANT, OLDER = "AOTC-G033", "AOTC-C009", "AOTC-G030"


@dataclass(frozen=True)
class Site:
    """A separate host, an artifact with two variants, and a policy about it."""

    artifact: Path
    policy: Path
    release: PrivateKey
    lab: PrivateKey

    @property
    def store(self) -> Path:
        """Where loads install."""
        return self.policy.with_name("store")

    @property
    def manifest(self) -> dict[str, Any]:
        """aotc.json as it now is."""
        found: dict[str, Any] = json.loads((self.artifact / "payload" / "aotc.json").read_bytes())
        return found

    @property
    def public(self) -> Path:
        """The release key, without a policy."""
        path = self.policy.with_name("release.pub")
        path.write_text(self.release.public_pem)
        return path

    def require(self, *demands: dict[str, Any]) -> None:
        """Write a policy that requires the release key's signature and `demands`."""
        signed = {"predicate": "oms", "signers": ["release"]}
        document = {
            "schema": "aotc.trust/1",
            "name": "site",
            "sequence": 1,
            "expires": "2099-01-01T00:00:00Z",
            "keys": [
                {
                    "id": "release",
                    "pem": self.release.public_pem,
                    "usage": ["oms", "provenance", "evidence", "sbom"],
                },
                {"id": "lab", "pem": self.lab.public_pem, "usage": ["qualification"]},
            ],
            "rules": [{"name": "digits", "match": {"name": "*"}, "require": [signed, *demands]}],
        }
        self.policy.write_text(yaml.safe_dump(document))

    def qualify(self, *variants: str) -> Qualification:
        """Measured here, and signed by the lab."""
        answer = qualify(self.artifact, self.lab, trust=self.public, variant=variants, runs=1)
        assert answer.qualification is not None
        return answer.qualification

    def say(self, kind: str, predicate: Any, signer: PrivateKey, name: str) -> None:
        """Add an attestation of any kind."""
        data = (self.artifact / "payload" / "aotc.json").read_bytes()
        subject = {"aotc.json": hashlib.sha256(data).hexdigest()}
        path = self.artifact / "attestations" / f"{name}.sigstore.json"
        path.write_bytes(statements.sign(kind, predicate, subject, signer))

    def forget_qualifications(self) -> None:
        """As if nothing had been measured."""
        for path in (self.artifact / "attestations").glob("qualification-*"):
            path.unlink()

    def verified(self) -> VerifyReport:
        """The report of `verify` under the policy."""
        return verify(self.artifact, trust=self.policy)

    def loaded(self, **options: Any) -> str:
        """The name of the loaded variant, after checking its answers."""
        with load(self.artifact, trust=self.policy, store=self.store, **options) as model:
            payload = model.payload
            fixture = self.manifest["fixtures"][0]
            inputs = {
                value["name"]: np.load(payload / value["path"]) for value in fixture["inputs"]
            }
            found = model.run(inputs)
            for value in fixture["outputs"]:
                wanted = np.load(payload / value["path"])
                np.testing.assert_allclose(found[value["name"]], wanted, rtol=1e-3, atol=1e-4)
            return model.report.variant

    def refused(self, **options: Any) -> AotcError:
        """The refusal of `load` under the policy."""
        with pytest.raises(AotcError) as caught:
            self.loaded(**options)
        return caught.value


@pytest.fixture
def site(digits: BuiltArtifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "qualified"))
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    monkeypatch.setattr(roots, "SYSTEM_ROOT", tmp_path / "etc" / "root.yaml")
    shutil.copytree(digits.path, tmp_path / "a.aotc")
    release = load_private(digits.public_key.with_suffix(".pem"))
    lab = load_private(key_files.generate(tmp_path / "lab.pem")[0])
    site_with_policy = Site(tmp_path / "a.aotc", tmp_path / "trust.yaml", release, lab)
    site_with_policy.require({"predicate": "qualification", "signers": ["lab"]})
    yield site_with_policy
    for place in [*site_with_policy.store.rglob("*"), *(tmp_path / "qualified").rglob("*")]:
        if place.is_dir():
            place.chmod(0o700)


def preferred(site: Site) -> tuple[str, str]:
    """The variant that loads without requirements, and the other one."""
    with load(site.artifact, trust=site.public, store=site.store, warm_up=False) as model:
        first = model.report.variant
    (second,) = {variant["name"] for variant in site.manifest["variants"]} - {first}
    return first, second


def test_without_a_qualification_nothing_loads(site: Site) -> None:
    assert [refusal.code for refusal in site.verified().refusals] == ["AOTC-G025"]
    assert site.refused().code == "AOTC-G025"


def test_a_qualification_of_variants_that_are_not_there(site: Site) -> None:
    """The lab qualified a variant that does not run here."""
    preferred(site)
    seen = site.qualify()
    site.forget_qualifications()
    predicate = {**encode(seen), "variant": "no-such", "variants": ["no-such"]}
    site.say(KINDS["qualification"].predicate_type, predicate, site.lab, "qualification-x")
    error = site.refused()
    assert error.code == NO_VARIANT
    reasons = [(other.code, other.where) for other in error.also]
    names = [variant["name"] for variant in site.manifest["variants"]]
    assert sorted(reasons) == sorted((UNQUALIFIED, f"variant {name}") for name in names)
    report = site.verified()
    assert report.verdict == "incompatible"
    assert not any(variant.runs for variant in report.variants)
    assert [refusal.code for refusal in report.refusals] == [
        NO_VARIANT,
        *[UNQUALIFIED] * len(names),
    ]
    assert report.policy is not None
    assert report.policy.qualified == ("no-such",)
    # Nor does naming one help.
    for name in names:
        named = site.refused(variant=name)
        assert named.code == NO_VARIANT
        assert UNQUALIFIED in [error.code for error in named.also]


def test_only_a_qualified_variant_is_exported(site: Site, tmp_path: Path) -> None:
    first, second = preferred(site)
    site.qualify(second)
    report = export(site.artifact, tmp_path / "plain", trust=site.policy)
    assert report.variant == second
    with pytest.raises(AotcError) as caught:
        export(site.artifact, tmp_path / "other", trust=site.policy, variant=first)
    assert (caught.value.code, caught.value.where) == (UNQUALIFIED, f"variant {first}")
    assert not (tmp_path / "other").exists()


def test_the_qualified_variant_loads_though_another_is_preferred(site: Site) -> None:
    first, second = preferred(site)
    seen = site.qualify(second)
    assert seen.variants == (second,)
    # The first load may install; the others read what the store holds.
    assert [site.loaded() for _ in range(3)] == [second] * 3
    assert site.loaded(variant=second) == second
    named = site.refused(variant=first)
    assert (named.code, [error.code for error in named.also]) == (NO_VARIANT, [UNQUALIFIED])
    report = site.verified()
    assert report.authentic
    assert report.verdict == "degraded"
    assert {variant.name: variant.runs for variant in report.variants} == {
        first: False,
        second: True,
    }
    (reason,) = next(variant.reasons for variant in report.variants if variant.name == first)
    assert reason.code == UNQUALIFIED
    assert report.policy is not None
    assert report.policy.qualified == (second,)
    # Once both are, the preferred one loads again.
    site.qualify(first)
    assert site.loaded() == first
    assert site.verified().verdict == "optimal"


def test_the_bytes_of_the_variant_that_loads_are_checked(site: Site) -> None:
    """The store's copy of the variant that is not preferred is damaged."""
    _, second = preferred(site)
    site.qualify(second)
    assert site.loaded() == second
    (model,) = [
        variant["model"] for variant in site.manifest["variants"] if variant["name"] == second
    ]
    (entry,) = site.store.glob("sha256-*")
    copy = entry / "payload" / model
    good = copy.read_bytes()
    copy.parent.chmod(0o755)
    copy.chmod(0o644)
    copy.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    # Installed anew from the source.
    assert site.loaded() == second
    (entry,) = site.store.glob("sha256-*")
    assert (entry / "payload" / model).read_bytes() == good


def test_a_threshold_is_of_one_variant(site: Site) -> None:
    """Two labs that qualified different variants do not count as two for one variant."""
    first, second = preferred(site)
    other = load_private(key_files.generate(site.policy.with_name("other.pem"))[0])
    site.require({"predicate": "qualification", "signers": ["lab", "other"], "threshold": 2})
    document = yaml.safe_load(site.policy.read_text())
    document["keys"].append({"id": "other", "pem": other.public_pem, "usage": ["qualification"]})
    site.policy.write_text(yaml.safe_dump(document))
    site.qualify(first)
    seen = site.qualify(second)
    for path in (site.artifact / "attestations").glob("qualification-*"):
        predicate = statements.verify(path.read_bytes(), [site.lab.trusted()]).predicate
        if predicate["variants"] == [second]:
            path.unlink()
    site.say(KINDS["qualification"].predicate_type, encode(seen), other, "qualification-other")
    error = site.refused()
    assert error.code == NO_VARIANT
    assert {other.code for other in error.also} == {UNQUALIFIED}
    assert site.verified().verdict == "incompatible"


# Releases that do not run here.


def release_of(site: Site, version: str, *, architecture: str = "") -> None:
    """Sign the artifact again with a version, and for another architecture if given."""
    manifest = site.manifest
    for variant in manifest["variants"]:
        variant["requirements"]["architecture"] = architecture or platform.machine()
    payload = site.artifact / "payload"
    (payload / "aotc.json").write_bytes(canonical_json(manifest))
    for path in (site.artifact / "attestations").iterdir():
        path.unlink()
    digests = {
        path.relative_to(payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in payload.rglob("*")
        if path.is_file()
    }
    bundle = oms.sign(digests, site.release)
    (site.artifact / "attestations" / "oms.sigstore.json").write_bytes(bundle)
    predicate = {
        "buildDefinition": {
            "buildType": "urn:aotc:build:v1",
            "externalParameters": {"version": version},
        },
        "runDetails": {
            "builder": {"id": "https://ci.example.com/builders/1"},
            "metadata": {"finishedOn": "2026-01-01T00:00:00Z"},
        },
    }
    site.say(KINDS["provenance"].predicate_type, predicate, site.release, "provenance")


@pytest.mark.parametrize("look", ["verify", "load", "load by name"])
def test_what_does_not_run_here_is_not_remembered(look: str, site: Site) -> None:
    site.require()
    release_of(site, "2.0", architecture="another")
    if look == "verify":
        report = site.verified()
        assert report.authentic
        assert report.verdict == "incompatible"
    else:
        name = site.manifest["variants"][0]["name"] if look == "load by name" else None
        assert site.refused(variant=name).code == NO_VARIANT
    assert "digits" not in user_state().read().artifacts
    release_of(site, "1.0")
    assert site.verified().verdict == "optimal"
    assert site.loaded()
    assert user_state().read().artifacts["digits"].value == "1.0"


@pytest.mark.parametrize("look", ["verify", "load"])
def test_what_runs_here_is_remembered(look: str, site: Site) -> None:
    """Shows that the test above depends on what runs, and not on recording releases."""
    site.require()
    release_of(site, "2.0")
    assert site.verified().authentic if look == "verify" else site.loaded()
    release_of(site, "1.0")
    assert [refusal.code for refusal in site.verified().refusals] == [OLDER]
    assert site.refused().code == OLDER


def test_an_unqualified_release_is_not_remembered(site: Site) -> None:
    """It is signed and of a later version, and none of its variants may load."""
    preferred(site)
    release_of(site, "2.0")
    seen = encode(site.qualify())
    site.forget_qualifications()
    predicate = {**seen, "variant": "no-such", "variants": ["no-such"]}
    site.say(KINDS["qualification"].predicate_type, predicate, site.lab, "qualification-x")
    assert site.refused().code == NO_VARIANT
    assert site.verified().verdict == "incompatible"
    release_of(site, "1.0")
    site.qualify()
    assert site.loaded()
    assert site.verified().authentic


def unproven(site: Site) -> None:
    """The artifact as a build elsewhere would have made it, which could run no variant."""
    manifest = site.manifest
    for variant in manifest["variants"]:
        variant["parity"] |= {"status": "not-run", "reason": "built elsewhere", "shapes": []}
    (site.artifact / "payload" / "aotc.json").write_bytes(canonical_json(manifest))
    shutil.rmtree(site.artifact / "attestations")
    sign_artifact(site.artifact, site.release)


def test_a_trusted_qualification_proves_what_no_build_could(site: Site) -> None:
    unproven(site)
    report = verify(site.artifact, key=site.public)
    assert (report.verdict, report.refusals) == ("degraded", ())
    assert {variant.unproven for variant in report.variants} == {"built elsewhere"}
    # A key that is not trusted proves nothing.
    seen = site.qualify()
    assert seen.verdict == "degraded"
    assert verify(site.artifact, key=site.public).verdict == "degraded"
    # Nor does one that is, for another kind of host, or without what it must say.
    kind = KINDS["qualification"].predicate_type
    other = replace(seen.target, os="other")
    said = {**encode(seen), "target": encode(other), "target_sha256": target_digest(other)}
    site.say(kind, said, site.release, "qualification-other")
    malformed = {key: value for key, value in encode(seen).items() if key != "variants"}
    site.say(kind, malformed, site.release, "qualification-malformed")
    assert verify(site.artifact, key=site.public).verdict == "degraded"
    site.say(kind, encode(seen), site.release, "qualification-here")
    report = verify(site.artifact, key=site.public)
    assert (report.verdict, report.best) == ("optimal", seen.variant)
    left = {variant.name for variant in report.variants if variant.unproven}
    assert left == {variant.name for variant in report.variants} - set(seen.variants)
    assert all(finding.where != f"variant {seen.variant}" for finding in report.findings)
    with load(site.artifact, trust=site.public, store=site.store) as model:
        assert model.report.verdict == "optimal"
        assert "AOTC-N002" not in [finding.code for finding in model.report.findings]


def test_of_a_policy_the_key_must_be_one_for_qualifications(site: Site) -> None:
    """No rule asks for one: the lab's counts, as its key may sign them, and the builder's not."""
    unproven(site)
    seen = site.qualify()
    site.require()
    assert site.verified().verdict == "optimal"
    site.forget_qualifications()
    kind = KINDS["qualification"].predicate_type
    site.say(kind, encode(seen), site.release, "qualification-here")
    assert site.verified().verdict == "degraded"
