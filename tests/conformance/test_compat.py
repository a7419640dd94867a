"""Every release's artifact is verified, read, loaded and answered by this release."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_bytes import contents_of, flip_bit
from jsonschema import Draft202012Validator
from repository import ROOT

from aotc import inspect, load
from aotc.base.errors import AotcError
from aotc.spec.attestations import parse_instant
from aotc.spec.codec import encode
from aotc.spec.profile_files import load_target
from aotc.spec.reports import VerifyReport
from aotc.spec.trust_anchors import key_id
from aotc.spec.versions import VERSION
from aotc.spec.yaml import strict_yaml, yaml_text
from aotc.trust.gate import verify
from aotc.trust.key_loading import load_public
from aotc.trust.packing import unpack
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.policy.host_trust import Trust, apply_policy, trust_in_policy
from aotc.trust.policy.roots import require_root_signatures

COMPAT = ROOT / "manifests" / "compat"
RELEASES = sorted(path.name for path in COMPAT.iterdir() if path.is_dir())
FORMS = ("digits.aotc", "digits.aotc.zip")


@dataclasses.dataclass(frozen=True)
class Release:
    """The artifact of a release, and the reports that the release made about it."""

    folder: Path

    @property
    def artifact(self) -> Path:
        return self.folder / FORMS[0]

    @property
    def archive(self) -> Path:
        return self.folder / FORMS[1]

    @property
    def expected(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "expected.json").read_bytes())
        return document

    @property
    def roots(self) -> tuple[str, ...]:
        """Who signed the policy."""
        file = read_policy(self.folder / "trust.yaml")
        return require_root_signatures(file, read_roots(self.folder / "root.yaml"))

    @property
    def trust(self) -> Trust:
        """The policy at the recorded time, without state of earlier checks."""
        file = read_policy(self.folder / "trust.yaml")
        moment = parse_instant(self.expected["moment"])
        return trust_in_policy(
            apply_policy(file, moment, roots=self.roots), channel=self.expected["channel"]
        )

    def verified(self, form: str, target: str | Path = "host") -> VerifyReport:
        return verify(self.folder / form, trust=self.trust, target=target, full=True)


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    return Release(COMPAT / request.param)


def fits_schema(name: str, record: Any) -> None:
    schema = json.loads((ROOT / "manifests" / f"{name}.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(record)


def test_this_release_has_one() -> None:
    assert VERSION in RELEASES, "run: make compat"


def test_it_is_small_and_holds_no_secret(release: Release) -> None:
    files = contents_of(release.folder)
    assert sum(map(len, files.values())) < 300_000
    assert not [name for name, data in files.items() if b"PRIVATE KEY" in data]


@pytest.mark.parametrize("form", FORMS)
def test_it_is_verified_as_it_was_then(release: Release, form: str) -> None:
    report = release.verified(form, release.folder / "target.yaml")
    expected = release.expected
    assert report.refusals == ()
    assert (report.authentic, report.verdict) == (True, expected["verdict"])
    assert report.artifact_id == expected["artifact_id"]
    assert list(report.signers) == expected["signers"]
    assert {step.step: step.status for step in report.steps} == expected["steps"]
    assert report.policy is not None
    assert report.policy.rule == expected["rule"]
    assert sorted(report.policy.roots) == expected["policy_signers"]
    assert [requirement.predicate for requirement in report.policy.requirements] == expected[
        "requirements"
    ]
    assert all(requirement.met for requirement in report.policy.requirements)
    fits_schema("verify", encode(report, full=True))


def test_only_its_public_key_is_needed_to_verify_it(release: Release) -> None:
    public = release.folder / "release.pub"
    report = verify(release.artifact, key=public, target=release.folder / "target.yaml")
    assert report.authentic
    assert list(report.signers) == [key_id(key.pem) for key in load_public(public)]


def test_its_policy_denies_what_it_is_not_for(release: Release) -> None:
    report = verify(release.artifact, trust=dataclasses.replace(release.trust, channel="other"))
    assert [refusal.code for refusal in report.refusals] == ["AOTC-G023"]
    file = read_policy(release.folder / "trust.yaml")
    roots = read_roots(release.folder / "root.yaml")
    assert len(release.roots) == roots.threshold < len(roots.keys)
    with pytest.raises(AotcError) as caught:
        apply_policy(file, parse_instant(file.policy.expires))
    assert caught.value.code == "AOTC-G020"


@pytest.mark.parametrize("form", FORMS)
def test_it_is_read(release: Release, form: str) -> None:
    report = inspect(release.folder / form)
    assert report.problems == ()
    fits_schema("inspect", encode(report, full=True))


def test_its_documents_fit_the_schemas(release: Release) -> None:
    fits_schema("manifest", json.loads((release.artifact / "payload/aotc.json").read_bytes()))
    fits_schema("trust", strict_yaml((release.folder / "trust.yaml").read_bytes()))
    fits_schema("root", strict_yaml((release.folder / "root.yaml").read_bytes()))


def test_its_packed_form_holds_the_same_bytes(release: Release, tmp_path: Path) -> None:
    found = hashlib.sha256(release.archive.read_bytes()).hexdigest()
    assert found == release.expected["archive_sha256"]
    unpack(release.archive, tmp_path / "unpacked.aotc")
    assert contents_of(tmp_path / "unpacked.aotc") == contents_of(release.artifact)


@pytest.mark.parametrize("form", FORMS)
def test_it_answers_or_does_not_fit_this_host(release: Release, form: str, tmp_path: Path) -> None:
    report = release.verified(form)
    assert report.authentic
    assert all(refusal.code.startswith("AOTC-C") for refusal in report.refusals)
    path = release.folder / form
    if report.verdict == "incompatible":
        with pytest.raises(AotcError) as caught:
            load(path, trust=release.trust, store=tmp_path / "store")
        refused = (caught.value, *caught.value.also)
        assert {refusal.code[:6] for refusal in refused} == {"AOTC-C"}
        return
    with load(path, trust=release.trust, store=tmp_path / "store") as model:
        # Loading itself compares the answers to the fixtures with the golden ones.
        assert model.ready
        assert sum(variant.fixtures for variant in model.report.variants) == len(
            model.manifest.fixtures
        )
        fits_schema("load", encode(model.report, full=True))
        for fixture in model.manifest.fixtures:
            given = {
                value.name: np.load(release.artifact / "payload" / value.path)
                for value in fixture.inputs
            }
            answer = model.run(given)
            for value in fixture.outputs:
                golden = np.load(release.artifact / "payload" / value.path)
                np.testing.assert_allclose(answer[value.name], golden, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"onnxruntime": "1.0.0"}, "AOTC-C005"),
        ({"onnxruntime": "99.0.0"}, "AOTC-C005"),
        ({"os": "windows"}, "AOTC-C001"),
        ({"architecture": "aarch64"}, "AOTC-C002"),
    ],
)
def test_a_host_that_it_does_not_fit(
    release: Release, change: dict[str, Any], code: str, tmp_path: Path
) -> None:
    other = dataclasses.replace(load_target(release.folder / "target.yaml"), **change)
    (tmp_path / "other.yaml").write_text(yaml_text(other))
    report = release.verified("digits.aotc", tmp_path / "other.yaml")
    assert (report.authentic, report.verdict) == (True, "incompatible")
    codes = {refusal.code for refusal in report.refusals}
    assert code in codes
    assert all(code.startswith("AOTC-C") for code in codes)


@pytest.mark.parametrize("file", ["payload/aotc.json", "payload/model/portable/model.onnx"])
def test_a_changed_copy_is_refused(release: Release, file: str, tmp_path: Path) -> None:
    copy = Release(shutil.copytree(release.folder, tmp_path / "copy"))
    flip_bit(copy.artifact / file)
    report = copy.verified("digits.aotc")
    assert not report.authentic
    assert "AOTC-G005" in {refusal.code for refusal in report.refusals}


def generate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "ci/make_compat.py", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_generator_makes_a_release_and_replaces_none(tmp_path: Path) -> None:
    result = generate("--folder", str(tmp_path))
    assert result.returncode == 0, result.stderr
    current = Release(tmp_path / VERSION)
    test_it_is_verified_as_it_was_then(current, "digits.aotc.zip")
    before = contents_of(current.folder)
    result = generate("--folder", str(tmp_path))
    assert result.returncode == 1
    assert "the artifact of a release is never changed" in result.stderr
    assert contents_of(current.folder) == before
