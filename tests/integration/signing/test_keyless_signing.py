"""Signing without a stored key: sigstore's own client with real services on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

pytest.importorskip("sigstore")

from built_artifact import BuiltArtifact
from keyless_services import CERTIFICATES, ENTRIES, TIMESTAMPS, Services, serving
from keyless_world import World
from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier, policy
from sigstore_models.trustroot.v1 import TrustedRoot as RootDocument

from aotc import verify
from aotc.cli.main import main
from aotc.spec.json import canonical_json
from aotc.trust import key_files, keyless_signing
from aotc.trust.attesting import sign
from aotc.trust.keyless_signing import KeylessSigner

ISSUER = "https://token.example.com"
WHO = "release@example.com"
ACTIONS = "https://token.actions.githubusercontent.com"
WORKFLOW = "example/repo/.github/workflows/release.yml@refs/tags/v1"
STATEMENT = canonical_json(
    {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "aotc.json", "digest": {"sha256": "2" * 64}}],
        "predicateType": "https://example.com/p",
        "predicate": {"b": 1, "a": "\u00e9"},
    }
)


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine's environment contains no identity, and nothing is sent elsewhere."""
    for name in ("GITHUB_ACTIONS", "SIGSTORE_ID_TOKEN", "BUILDKITE", "GITLAB_CI", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "store"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with serving(tmp_path_factory.mktemp("services")) as services:
        yield services


@pytest.fixture
def services(running: Services) -> Iterator[Services]:
    """The services, reset for each test."""
    name, world = running.name, running.world
    running.asked.clear()
    yield running
    running.says.clear()
    running.name, running.world = name, world


@pytest.fixture
def token(services: Services, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(services.token(email=WHO) + "\n")
    return path


def config(services: Services, folder: Path, *, log: int = 1, url: str = "") -> Path:
    path = folder / f"config-{log}.json"
    path.write_text(json.dumps(services.config(log, url)))
    return path


def verified_payload(services: Services, bundle: bytes, who: str, issuer: str = ISSUER) -> bytes:
    """The payload, if sigstore's library accepts the bundle for this identity."""
    root = TrustedRoot(RootDocument.from_json(json.dumps(services.trusted_root())))
    kind, payload = Verifier(trusted_root=root).verify_dsse(
        Bundle.from_json(bundle), policy.Identity(identity=who, issuer=issuer)
    )
    assert kind == "application/vnd.in-toto+json"
    return payload


def trust(services: Services, folder: Path, digits: BuiltArtifact, **identity: Any) -> Path:
    """A policy by which the key and the identity must both have signed."""
    path = folder / "trust.yaml"
    usage = ["oms", "approval", "qualification"]
    who = {"id": "people", "identity": WHO, "issuer": ISSUER, "usage": usage, **identity}
    who.setdefault("trusted_root", json.dumps(services.trusted_root()))
    path.write_text(
        json.dumps(
            {
                "schema": "aotc.trust/1",
                "name": "plant",
                "sequence": 1,
                "expires": "2099-01-01T00:00:00Z",
                "keys": [{"id": "key", "pem": digits.public_key.read_text(), "usage": ["oms"]}],
                "identities": [who],
                "rules": [
                    {
                        "name": "all",
                        "match": {"name": "*"},
                        "require": [
                            {"predicate": "oms", "signers": ["key", "people"], "threshold": 2},
                        ],
                    }
                ],
            }
        )
    )
    return path


@pytest.fixture
def artifact(digits: BuiltArtifact, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits.path, tmp_path / "digits.aotc"))


def aotc(*words: str | Path, status: int = 0) -> dict[str, Any]:
    """The JSON document of a command, after checking its exit status."""
    with redirect_stdout(StringIO()) as output:
        assert main([*map(str, words), "--json"]) == status, output.getvalue()
    document = json.loads(output.getvalue())
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("log", [1, 2])
def test_what_is_signed_is_ours_and_what_comes_back_verifies_elsewhere(
    log: int, services: Services, token: Path, tmp_path: Path
) -> None:
    signer = KeylessSigner(token, config(services, tmp_path, log=log))
    assert services.asked == []
    for _ in range(3):
        bundle = signer.seal(STATEMENT)
        envelope = json.loads(bundle)["dsseEnvelope"]
        assert base64.b64decode(envelope["payload"]) == STATEMENT
        assert verified_payload(services, bundle, WHO) == STATEMENT
    stamped = [TIMESTAMPS] if log == 2 else []
    assert services.asked == [CERTIFICATES, *stamped, ENTRIES[log]] * 3
    assert token.read_text().strip().encode() not in bundle


@pytest.mark.parametrize("log", [1, 2])
def test_a_signed_artifact_passes_a_policy_that_names_the_identity(
    log: int,
    services: Services,
    token: Path,
    tmp_path: Path,
    artifact: Path,
    digits: BuiltArtifact,
) -> None:
    rules = trust(services, tmp_path, digits)
    before = aotc("verify", artifact, "--trust", rules, status=1)
    assert before["refusals"][0]["code"] == "AOTC-G026"
    options = ("--keyless", "--identity-token", token, "--trust", digits.public_key)
    words = ("sign", artifact, *options, "--trust-config", config(services, tmp_path, log=log))
    answer = aotc(*words)
    assert answer["identity"] == f"{WHO} by {ISSUER}"
    assert not answer["development_key"]
    assert aotc("verify", artifact, "--trust", rules)["policy"]["accepted"]
    bundle = Path(answer["path"]).read_bytes()
    verified_payload(services, bundle, WHO)
    # Once is enough, and it can be renewed.
    assert aotc(*words, status=3)["errors"][0]["code"] == "AOTC-I017"
    assert aotc(*words, "--force")["replaced"]
    assert Path(answer["path"]).read_bytes() != bundle
    assert aotc("verify", artifact, "--trust", rules)["policy"]["accepted"]


def test_a_policy_of_another_identity_or_another_root_does_not_count_it(
    services: Services, token: Path, tmp_path: Path, artifact: Path, digits: BuiltArtifact
) -> None:
    sign(artifact, KeylessSigner(token, config(services, tmp_path)), trust=digits.public_key)
    impostor = json.dumps(World.new().trusted_root())
    for other in (
        {"identity": "x" + WHO},
        {"issuer": ISSUER + "/x"},
        {"trusted_root": impostor},
    ):
        rules = trust(services, tmp_path, digits, **other)
        codes = [refusal.code for refusal in verify(artifact, trust=rules).refusals]
        assert codes[0] == "AOTC-G026"
    rules = trust(services, tmp_path, digits, trusted_root="roots.json")
    assert aotc("verify", artifact, "--trust", rules, status=3)["errors"][0]["code"] == "AOTC-G019"


def test_approval_and_qualification(
    services: Services, token: Path, tmp_path: Path, artifact: Path, digits: BuiltArtifact
) -> None:
    options = ("--keyless", "--identity-token", token, "--trust-config", config(services, tmp_path))
    vouching = ("--trust", digits.public_key)
    for words in (
        ("--approve", "--channel", "prod", "--expires", "2099-01-01"),
        ("--qualify", "--runs", "1"),
    ):
        answer = aotc("attest", artifact, *words, *options, *vouching)
        payload = json.loads(verified_payload(services, Path(answer["path"]).read_bytes(), WHO))
        digest = hashlib.sha256((artifact / "payload" / "aotc.json").read_bytes()).hexdigest()
        assert payload["subject"] == [{"name": "aotc.json", "digest": {"sha256": digest}}]
        assert payload["predicateType"] == answer["predicate_type"]


def test_nothing_is_asked_for_an_artifact_that_nobody_vouches_for(
    services: Services, token: Path, tmp_path: Path, artifact: Path, digits: BuiltArtifact
) -> None:
    signer = KeylessSigner(token, config(services, tmp_path))
    _, stranger = key_files.generate(tmp_path / "stranger.pem")
    assert refusal(lambda: sign(artifact, signer, trust=stranger)).code == "AOTC-G002"
    (artifact / "payload" / "aotc.json").write_text("{}")
    assert refusal(lambda: sign(artifact, signer, trust=digits.public_key)).code == "AOTC-G005"
    assert services.asked == []


def test_the_token_is_that_of_the_environment_or_of_the_job(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = config(services, tmp_path)
    services.job.update(
        iss=ACTIONS, sub="repo:example/repo:ref:refs/tags/v1", job_workflow_ref=WORKFLOW
    )
    services.name = lambda claims: f"https://github.com/{claims['job_workflow_ref']}"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "job")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{services.url}/token?job=1")
    signer = KeylessSigner(None, place)
    bundle = signer.seal(STATEMENT)
    assert (
        verified_payload(services, bundle, f"https://github.com/{WORKFLOW}", ACTIONS) == STATEMENT
    )
    # A stated token has precedence.
    services.name = lambda claims: claims["sub"]
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", services.token(sub="https://example.com/a"))
    other = KeylessSigner(None, place)
    assert verified_payload(services, other.seal(STATEMENT), "https://example.com/a") == STATEMENT
    assert other.tag() != signer.tag()
    monkeypatch.delenv("SIGSTORE_ID_TOKEN")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "stranger")
    assert "403" in refusal(lambda: KeylessSigner(None, place)).found
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
    assert "ACTIONS_ID_TOKEN_REQUEST_TOKEN" in refusal(lambda: KeylessSigner(None, place)).found


@pytest.mark.parametrize(
    ("claims", "who", "issuer"),
    [
        (
            {"iss": "https://gitlab.com", "ci_config_ref_uri": "gitlab.com/a/b//.ci.yml@refs/x"},
            "https://gitlab.com/a/b//.ci.yml@refs/x",
            "https://gitlab.com",
        ),
        (
            {"iss": "https://agent.buildkite.com", "organization_slug": "a", "pipeline_slug": "b"},
            "https://buildkite.com/a/b",
            "https://agent.buildkite.com",
        ),
        (
            {"iss": "https://token.actions.a.ghe.com", "job_workflow_ref": WORKFLOW},
            f"https://a.ghe.com/{WORKFLOW}",
            "https://token.actions.a.ghe.com",
        ),
        (
            {"email": WHO, "federated_claims": {"connector_id": "https://people.example.com"}},
            WHO,
            "https://people.example.com",
        ),
    ],
)
def test_an_identity_is_what_the_authority_makes_of_the_claims(
    claims: dict[str, Any], who: str, issuer: str, services: Services, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(services.token(**claims))
    services.name = lambda _: who
    signer = KeylessSigner(tmp_path / "token", config(services, tmp_path))
    assert verified_payload(services, signer.seal(STATEMENT), who, issuer) == STATEMENT
    assert signer.issuer() == issuer


BAD_TOKENS: dict[str, tuple[Callable[[Services], str], str]] = {
    "empty": (lambda _: "\n", "Not enough segments"),
    "malformed": (lambda _: "a.b.c", ""),
    "not ASCII": (lambda s: s.token() + "\u00e9", "ASCII"),
    "huge": (lambda s: s.token(x="y" * 70_000), "bytes"),
    "expired": (lambda s: s.token(exp=int(time.time()) - 60), "expired"),
    "not yet valid": (lambda s: s.token(nbf=int(time.time()) + 600), "validity period"),
    "without a subject": (lambda s: s.token(sub=None), "sub"),
    "for others": (lambda s: s.token(aud="another"), "udience"),
    "without an issuer": (lambda s: s.token(iss=None), "iss"),
    "without an address": (lambda s: s.token(iss="https://accounts.google.com"), "email"),
    "of nobody": (lambda s: s.token(sub=""), "has neither email nor sub"),
    "with a list for an issuer": (lambda s: s.token(iss=["a"]), ""),
    "with a text for an end": (lambda s: s.token(exp="later"), ""),
}


@pytest.mark.parametrize("kind", BAD_TOKENS)
def test_a_token_that_is_of_no_use(kind: str, services: Services, tmp_path: Path) -> None:
    make, found = BAD_TOKENS[kind]
    raw = make(services)
    (tmp_path / "token").write_text(raw)
    error = refusal(lambda: KeylessSigner(tmp_path / "token", config(services, tmp_path)))
    assert (error.code, error.where) == ("AOTC-I037", str(tmp_path / "token"))
    assert found in error.found
    assert not raw.strip() or raw not in str(error.to_dict())
    assert services.asked == []


def test_no_token(services: Services, tmp_path: Path, artifact: Path) -> None:
    place = config(services, tmp_path)
    error = aotc("sign", artifact, "--keyless", "--trust-config", place, status=3)["errors"][0]
    assert error["code"] == "AOTC-I037"
    assert "SIGSTORE_ID_TOKEN" in error["expected"]
    missing = tmp_path / "missing"
    assert refusal(lambda: KeylessSigner(missing, place)).code == "AOTC-I001"


def test_a_token_that_expires_meanwhile_is_read_again(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text(services.token(email=WHO))
    signer = KeylessSigner(path, config(services, tmp_path))
    monkeypatch.setattr(type(signer._identity.token), "in_validity_period", lambda _: False)
    assert refusal(lambda: signer.seal(STATEMENT)).code == "AOTC-I037"
    monkeypatch.undo()
    held = signer._identity.token
    monkeypatch.setattr(
        type(held), "in_validity_period", lambda other: other is not held, raising=True
    )
    path.write_text(services.token(email=WHO, jti="2"))
    assert verified_payload(services, signer.seal(STATEMENT), WHO) == STATEMENT
    held = signer._identity.token
    path.write_text(services.token(email="other@example.com", sub="other"))
    assert "another" in refusal(lambda: signer.seal(STATEMENT)).what


def _says(status: int, text: str) -> Callable[[], tuple[int, bytes]]:
    return lambda: (status, text.encode())


ANSWERS: dict[str, tuple[str, Callable[[], tuple[int, bytes]], str]] = {
    "authority refuses": (CERTIFICATES, _says(403, '{"code":7,"message":"not you"}'), "not you"),
    "authority breaks": (CERTIFICATES, _says(500, "<html>"), "500"),
    "authority says no JSON": (CERTIFICATES, _says(201, "<html>"), ""),
    "authority says a list": (CERTIFICATES, _says(201, "[]"), ""),
    "authority says no certificate": (
        CERTIFICATES,
        _says(201, '{"signedCertificateEmbeddedSct":{"chain":{"certificates":["a","b"]}}}'),
        "",
    ),
    "log refuses": (ENTRIES[1], _says(400, '{"code":400,"message":"too large"}'), "too large"),
    "log breaks": (ENTRIES[1], _says(503, ""), "503"),
    "log says no JSON": (ENTRIES[1], _says(201, "<html>"), ""),
    "log says nothing": (ENTRIES[1], _says(201, "{}"), ""),
    "log says too much": (ENTRIES[1], _says(201, '{"a":{},"b":{}}'), "multiple"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_services_that_refuse_or_break(
    kind: str, services: Services, token: Path, tmp_path: Path
) -> None:
    path, says, found = ANSWERS[kind]
    services.says[path] = says
    signer = KeylessSigner(token, config(services, tmp_path))
    error = refusal(lambda: signer.seal(STATEMENT))
    assert error.code == "AOTC-I037"
    assert error.found
    assert found in error.found
    assert token.read_text().strip() not in str(error.to_dict())


def test_a_token_that_the_authority_does_not_know(
    services: Services, tmp_path: Path, artifact: Path, digits: BuiltArtifact
) -> None:
    with serving(tmp_path) as others:
        (tmp_path / "token").write_text(others.token(email=WHO))
    before = sorted(artifact.rglob("*"))
    options = ("--identity-token", tmp_path / "token", "--trust", digits.public_key)
    place = config(services, tmp_path)
    document = aotc("sign", artifact, "--keyless", *options, "--trust-config", place, status=3)
    assert document["errors"][0]["code"] == "AOTC-I037"
    assert "401" in document["errors"][0]["found"]
    assert "identity token" in document["errors"][0]["found"]
    assert sorted(artifact.rglob("*")) == before


@pytest.mark.parametrize("who", ["other@example.com", "https://example.com/job"])
def test_a_certificate_of_somebody_else_is_not_taken(
    who: str, services: Services, token: Path, tmp_path: Path
) -> None:
    services.name = lambda _: who
    signer = KeylessSigner(token, config(services, tmp_path))
    error = refusal(lambda: signer.seal(STATEMENT))
    assert (error.code, error.also[0].code) == ("AOTC-I037", "AOTC-G002")
    assert WHO in error.expected
    assert who in error.found


def test_services_that_the_trusted_root_does_not_know(
    services: Services, token: Path, tmp_path: Path
) -> None:
    place = config(services, tmp_path)
    services.world = World.new()
    assert refusal(lambda: KeylessSigner(token, place).seal(STATEMENT)).code == "AOTC-I037"


def test_without_a_time_nothing_is_taken(services: Services, token: Path, tmp_path: Path) -> None:
    services.says[TIMESTAMPS] = _says(500, "")
    signer = KeylessSigner(token, config(services, tmp_path, log=2))
    error = refusal(lambda: signer.seal(STATEMENT))
    assert error.code == "AOTC-I037"
    assert "timestamp" in error.found


def test_services_that_cannot_be_reached(
    services: Services, token: Path, tmp_path: Path, artifact: Path, digits: BuiltArtifact
) -> None:
    with socket.socket() as bound:
        # Bound, but not listening: connections are refused as long as it is open.
        bound.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{bound.getsockname()[1]}"
        options = ("--identity-token", token, "--trust", digits.public_key)
        place = config(services, tmp_path, url=closed)
        document = aotc("sign", artifact, "--keyless", *options, "--trust-config", place, status=3)
    assert document["errors"][0]["code"] == "AOTC-I037"
    assert "refused" in document["errors"][0]["found"]


def test_the_public_instance_that_cannot_be_reached(
    token: Path, artifact: Path, digits: BuiltArtifact
) -> None:
    options = ("--identity-token", token, "--trust", digits.public_key)
    document = aotc("sign", artifact, "--keyless", *options, status=3)
    assert document["errors"][0]["code"] == "AOTC-I037"
    assert "public" in document["errors"][0]["what"]


@pytest.mark.parametrize("path", [CERTIFICATES, ENTRIES[1], ENTRIES[2]])
def test_services_that_never_answer(
    path: str,
    services: Services,
    token: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def wait() -> tuple[int, bytes]:
        over.wait(60)
        return 503, b""

    services.says[path] = wait
    monkeypatch.setattr(keyless_signing, "ANSWER_SECONDS", 0.3)
    log = 2 if path == ENTRIES[2] else 1
    signer = KeylessSigner(token, config(services, tmp_path, log=log))
    try:
        error = refusal(lambda: signer.seal(STATEMENT))
    finally:
        over.set()
    assert error.code == "AOTC-I037"
    assert "timed out" in error.found


CONFIGURATIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda c: c.clear(),
    "another type": lambda c: c.update(mediaType="text/plain"),
    "no authority": lambda c: c["signingConfig"].update(caUrls=[]),
    "no log": lambda c: c["signingConfig"].update(rekorTlogUrls=[]),
    "no root": lambda c: c.pop("trustedRoot"),
    "a log of no known version": lambda c: c["signingConfig"]["rekorTlogUrls"][0].update(
        majorApiVersion=9
    ),
    "a token in the clear": lambda c: c["signingConfig"]["caUrls"][0].update(
        url="http://ca.example.com"
    ),
    "another scheme": lambda c: c["signingConfig"]["caUrls"][0].update(url="ftp://127.0.0.1"),
    "services of the past": lambda c: c["signingConfig"]["caUrls"][0].update(
        validFor={"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"}
    ),
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_configuration_that_is_of_no_use(
    kind: str, services: Services, token: Path, tmp_path: Path
) -> None:
    stated = services.config(1)
    CONFIGURATIONS[kind](stated)
    (tmp_path / "config.json").write_text(json.dumps(stated))
    error = refusal(lambda: KeylessSigner(token, tmp_path / "config.json"))
    assert (error.code, error.where) == ("AOTC-I037", str(tmp_path / "config.json"))
    assert services.asked == []


def test_options_that_do_not_go_together(artifact: Path, token: Path) -> None:
    for words in (
        ("--identity-token", token),
        ("--trust-config", token),
        ("--keyless", "--key", token),
    ):
        document = aotc("sign", artifact, *words, status=2)
        assert document["errors"][0]["code"] == "AOTC-I027"


def test_without_the_extra_it_says_what_to_install(token: Path) -> None:
    program = (
        "import sys; sys.modules['sigstore'] = None\n"
        "from pathlib import Path\n"
        "from aotc.cli.main import main\n"
        "sys.exit(main(['sign', 'a.aotc', '--keyless', '--identity-token', sys.argv[1]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(token)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 3
    assert "AOTC-I019" in done.stderr
    assert "'.[sigstore]'" in done.stderr
    assert "Traceback" not in done.stderr
