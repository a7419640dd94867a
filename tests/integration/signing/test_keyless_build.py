"""Builds that an identity signs, with real services on this machine; releases named by tags."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sigstore")

from keyless_services import CERTIFICATES, Services, serving
from made_models import linear, save
from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier, policy
from sigstore_models.trustroot.v1 import TrustedRoot as RootDocument

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.trust.provenance import release_of_tag

ACTIONS = "https://token.actions.githubusercontent.com"
WORKFLOW = "example/repo/.github/workflows/release.yml@refs/tags/v1.4.0"
WHO = f"https://github.com/{WORKFLOW}"
CI_VARIABLES = (
    *("GITHUB_ACTIONS", "GITHUB_REF_TYPE", "GITHUB_REF_NAME", "SIGSTORE_ID_TOKEN", "GITLAB_CI"),
    *("CI_COMMIT_TAG", "CI_COMMIT_BRANCH", "BUILDKITE", "BUILDKITE_TAG", "CIRCLECI", "CIRCLE_TAG"),
    *("AOTC_SIGNING_KEY", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL"),
)


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No identity and no tag but those of a test; no key at all, and nothing is sent elsewhere."""
    for name in CI_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with serving(tmp_path_factory.mktemp("services")) as running:
        running.job.update(
            iss=ACTIONS, sub="repo:example/repo:ref:refs/tags/v1.4.0", job_workflow_ref=WORKFLOW
        )
        running.name = lambda claims: f"https://github.com/{claims['job_workflow_ref']}"
        yield running


@pytest.fixture
def job(services: Services, monkeypatch: pytest.MonkeyPatch) -> Services:
    """A job of GitHub Actions for the tag v1.4.0 that may ask for an identity."""
    services.asked.clear()
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REF_TYPE": "tag",
        "GITHUB_REF_NAME": "v1.4.0",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "job",
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"{services.url}/token?job=1",
    }.items():
        monkeypatch.setenv(name, value)
    return services


@pytest.fixture
def config(services: Services, tmp_path: Path) -> Path:
    path = tmp_path / "sigstore.json"
    path.write_text(json.dumps(services.config(1)))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(linear(), tmp_path / "linear.onnx")


def aotc(*words: str | Path, status: int = 0) -> dict[str, Any]:
    """The JSON document of a command, after checking its exit status."""
    with redirect_stdout(StringIO()) as output:
        assert main([*map(str, words), "--json"]) == status, output.getvalue()
    document = json.loads(output.getvalue())
    assert isinstance(document, dict)
    return document


def trust(services: Services, folder: Path, identity: str = WHO) -> Path:
    """A policy by which the identity, and no key, must have signed and stated the provenance."""
    path = folder / "trust.json"
    required = ("oms", "provenance", "evidence", "sbom")
    path.write_text(
        json.dumps(
            {
                "schema": "aotc.trust/1",
                "name": "plant",
                "sequence": 1,
                "expires": "2099-01-01T00:00:00Z",
                "identities": [
                    {
                        "id": "workflow",
                        "identity": identity,
                        "issuer": ACTIONS,
                        "usage": list(required),
                        "trusted_root": json.dumps(services.trusted_root()),
                    }
                ],
                "rules": [
                    {
                        "name": "all",
                        "match": {"name": "*"},
                        "require": [
                            {"predicate": kind, "signers": ["workflow"]} for kind in required
                        ],
                    }
                ],
            }
        )
    )
    return path


def test_an_identity_signs_all_that_a_build_states(
    job: Services, config: Path, model: Path, tmp_path: Path
) -> None:
    words = ("build", model, "--keyless", "--trust-config", config, "--release")
    report = aotc(*words)
    assert report["identity"] == f"{WHO} by {ACTIONS}"
    assert not report["development_key"]
    assert job.asked.count(CERTIFICATES) == 4
    # No key was made or used.
    assert not list(tmp_path.rglob("*.pem"))
    artifact = tmp_path / "linear.aotc"
    root = TrustedRoot(RootDocument.from_json(json.dumps(job.trusted_root())))
    bundles = sorted((artifact / "attestations").iterdir())
    assert len(bundles) == 4
    statements = {}
    for bundle in bundles:
        _, payload = Verifier(trusted_root=root).verify_dsse(
            Bundle.from_json(bundle.read_bytes()), policy.Identity(identity=WHO, issuer=ACTIONS)
        )
        statements[bundle.name.partition(".")[0]] = json.loads(payload)
    parameters = statements["provenance"]["predicate"]["buildDefinition"]
    assert "1.4.0" in json.dumps(parameters)
    assert aotc("verify", artifact, "--trust", trust(job, tmp_path))["policy"]["accepted"]
    other = trust(job, tmp_path, WHO.replace("v1.4.0", "v1.4.1"))
    assert aotc("verify", artifact, "--trust", other, status=1)["refusals"]
    # This user's development key is no reason to trust it.
    assert aotc("verify", artifact, status=1)["refusals"][0]["code"] == "AOTC-G002"
    # Each time it signs with another key, so what stands there is never known to be its own.
    (refused,) = aotc(*words, status=3)["errors"]
    assert (refused["code"], refused["what"]) == (
        "AOTC-I017",
        "the output exists and is signed by another key",
    )
    # A build that the cache has is signed anew, by the same rules.
    again = aotc(*words, "--force")
    assert again["cached"]
    assert again["identity"] == report["identity"]
    assert again["artifact_id"] == report["artifact_id"]


def test_the_terminal_names_the_identity(
    job: Services,
    config: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On one of 80 columns it is cut, as a line of the summary.
    monkeypatch.setenv("COLUMNS", "160")
    words = ["build", str(model), "--keyless", "--trust-config", str(config)]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"signed by {WHO}" in shown


@pytest.mark.parametrize("missing", ["token", "permission", "file"])
def test_without_an_identity_nothing_is_built(
    missing: str,
    job: Services,
    config: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words: list[str | Path] = ["build", model, "--keyless", "--trust-config", config]
    expected = "AOTC-I037"
    if missing == "token":
        monkeypatch.delenv("GITHUB_ACTIONS")
    elif missing == "permission":
        monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL")
    else:
        words += ["--identity-token", tmp_path / "none"]
        expected = "AOTC-I001"
    # Nothing of the model is read before the identity is known.
    model.write_bytes(b"not a model")
    assert aotc(*words, status=3)["errors"][0]["code"] == expected
    assert not (tmp_path / "linear.aotc").exists()
    assert not list(tmp_path.glob(".linear*"))


def test_services_that_refuse_leave_nothing(
    job: Services, config: Path, model: Path, tmp_path: Path
) -> None:
    job.says[CERTIFICATES] = lambda: (503, b'{"message": "later"}')
    try:
        words = ("build", model, "--keyless", "--trust-config", config)
        assert aotc(*words, status=3)["errors"][0]["code"] == "AOTC-I037"
    finally:
        job.says.clear()
    assert not (tmp_path / "linear.aotc").exists()


def test_options_that_do_not_go_together(config: Path, model: Path) -> None:
    for words in (
        ("--identity-token", config),
        ("--trust-config", config),
        ("--keyless", "--key", config),
        ("--tune", "--tuned-from", config),
    ):
        assert aotc("build", model, *words, status=2)["errors"][0]["code"] == "AOTC-I027"


@pytest.mark.parametrize(
    ("variables", "version"),
    [
        ({"GITHUB_REF_TYPE": "tag", "GITHUB_REF_NAME": "1.4"}, "1.4"),
        ({"CI_COMMIT_TAG": "v2.0.1"}, "2.0.1"),
        ({"BUILDKITE_TAG": "3"}, "3"),
        ({"CIRCLE_TAG": "v4.0.0.1"}, "4.0.0.1"),
    ],
)
def test_a_tag_is_a_release(
    variables: dict[str, str], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert release_of_tag() == version


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {},
            "AOTC-I068 there is no tag to take the release from [--release] (expected a CI job "
            "that a tag started, or a version)",
        ),
        (
            {"GITHUB_REF_TYPE": "branch", "GITHUB_REF_NAME": "main"},
            "AOTC-I068 there is no tag to take the release from [--release] (expected a CI job "
            "that a tag started, or a version; found a job for main)",
        ),
        (
            {"CI_COMMIT_TAG": "nightly\n"},
            "AOTC-I069 the tag of this CI job is not a version [$CI_COMMIT_TAG] (expected one to "
            "four numbers, such as 1.4.0 or v1.4.0; found nightly\\n)",
        ),
    ],
)
def test_what_is_no_release(
    variables: dict[str, str],
    text: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AotcError) as raised:
        release_of_tag()
    assert raised.value.line() == text
    # Before, after and between other words; nothing is built.
    code = text.partition(" ")[0]
    for words in (("--release",), ("--release", "--force"), ("--release=tag",)):
        document = aotc("build", model, *words, status=3)
        assert document["errors"][0]["code"] == code
    assert not (tmp_path / "linear.aotc").exists()


def test_a_release_that_swallows_the_model_says_so(model: Path) -> None:
    document = aotc("build", "--release", model, status=2)
    assert "MODEL" in document["errors"][0]["what"]


def test_a_signature_never_holds_the_token(job: Services, config: Path, model: Path) -> None:
    token = job.token(job_workflow_ref=WORKFLOW, iss=ACTIONS)
    file = model.parent / "token"
    file.write_text(token)
    aotc("build", model, "--keyless", "--trust-config", config, "--identity-token", file)
    parts = [part for part in token.split(".") if len(part) > 40]
    for path in (model.parent / "linear.aotc").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for part in parts:
            assert part.encode() not in data
            assert base64.b64encode(part.encode()) not in data
