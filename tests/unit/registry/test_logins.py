"""Logins as docker keeps them, and to whom they are never sent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from referrers_registry import BASIC, Fault, ReferrersRegistry, referrers_registry
from registries import PASSWORD, USER, Registry, docker_registry, log_in

from aotc.base.errors import AotcError
from aotc.registry.connection import Connection
from aotc.registry.references import parse_reference
from aotc.registry.repository import Repository

DIGEST = "sha256:" + "00" * 32
LOGIN = {"auth": BASIC.removeprefix("Basic ")}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Debian's, which asks for a password."""
    with docker_registry(tmp_path_factory.mktemp("locked"), users=True) as registry:
        yield registry


@pytest.fixture(params=["basic", "bearer"])
def asking(request: pytest.FixtureRequest, ours: ReferrersRegistry) -> ReferrersRegistry:
    """That of the tests, which asks for a password, or for tokens that it gives for one."""
    ours.auth = request.param
    return ours


def configured(
    monkeypatch: pytest.MonkeyPatch, folder: Path, document: object, text: str | None = None
) -> Path:
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    path = folder / "config.json"
    path.write_text(json.dumps(document) if text is None else text)
    return path


def helper(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """A credential helper `docker-credential-tests`, which answers by a program in Python."""
    folder.mkdir(exist_ok=True)
    program = folder / "docker-credential-tests"
    program.write_text(f"#!{sys.executable}\nimport sys\nhost = sys.stdin.read()\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def has_blob(host: str) -> bool:
    return Repository(parse_reference(f"{host}/a/b")).has_blob(DIGEST)


def refused(host: str) -> AotcError:
    with pytest.raises(AotcError) as caught:
        has_blob(host)
    return caught.value


def test_the_registry_asks_and_the_configuration_answers(
    locked: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(locked.host)
    assert error.code == "AOTC-I199"
    assert error.what == f"{locked.host} does not allow reading"
    assert error.where == f"http://{locked.host}/v2/a/b/blobs/{DIGEST}"
    assert error.expected == "a login that may; docker's configuration has none"
    assert error.found == "401 Unauthorized"
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "good", locked.host)))
    assert not has_blob(locked.host)
    wrong = log_in(tmp_path / "wrong", locked.host, password="wrong")
    monkeypatch.setenv("DOCKER_CONFIG", str(wrong))
    error = refused(locked.host)
    assert error.code == "AOTC-I199"
    assert error.expected == "a login that may; docker's configuration has one"
    assert "wrong" not in error.line()


def test_the_home_folder_has_a_configuration(asking: ReferrersRegistry, tmp_path: Path) -> None:
    log_in(tmp_path / "home/.docker", asking.host)
    assert not has_blob(asking.host)


@pytest.mark.parametrize("key", ["HOST", "https://HOST", "http://HOST/", "https://HOST/v1/"])
def test_docker_has_other_names_for_a_registry(
    asking: ReferrersRegistry, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auths = {key.replace("HOST", asking.host): LOGIN, "other.example": {"auth": "eDp5"}}
    configured(monkeypatch, tmp_path / "docker", {"auths": auths})
    assert not has_blob(asking.host)


def test_a_ci_gives_the_configuration_in_a_variable(
    asking: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, tmp_path / "docker", {"auths": {asking.host: {"auth": "eDp5"}}})
    assert refused(asking.host).code == "AOTC-I199"
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", json.dumps({"auths": {asking.host: LOGIN}}))
    assert not has_blob(asking.host)


@pytest.mark.parametrize("where", ["credsStore", "credHelpers"])
def test_a_helper_is_asked(
    asking: ReferrersRegistry, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = "tests" if where == "credsStore" else {asking.host: "tests"}
    configured(monkeypatch, tmp_path / "docker", {where: stated, "auths": {asking.host: {}}})
    secret = json.dumps({"ServerURL": "x", "Username": USER, "Secret": PASSWORD})
    helper(
        monkeypatch,
        tmp_path / "bin",
        f"print({secret!r} if host == {asking.host!r} and sys.argv[1:] == ['get'] else '')",
    )
    assert not has_blob(asking.host)


def test_a_helper_without_a_login_is_no_error(
    asking: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, tmp_path / "docker", {"credsStore": "tests"})
    body = "print('credentials not found in native keychain'); sys.exit(1)"
    helper(monkeypatch, tmp_path / "bin", body)
    assert refused(asking.host).code == "AOTC-I199"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("print('the keyring is locked'); sys.exit(1)", "the keyring is locked"),
        ("sys.exit(3)", "exit status 3"),
        ("print('{}')", "an answer that is no login: 'Username'"),
        ("print('[')", "an answer that is no login: Expecting value: line 2 column 1 (char 2)"),
        (None, "No such file or directory"),
    ],
)
def test_a_helper_that_fails_is_told(
    ours: ReferrersRegistry,
    body: str | None,
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours.auth = "basic"
    configured(monkeypatch, tmp_path / "docker", {"credsStore": "tests"})
    if body is not None:
        helper(monkeypatch, tmp_path / "bin", body)
    error = refused(ours.host)
    assert (error.code, error.what) == ("AOTC-I200", "docker's credentials cannot be read")
    assert (error.where, error.found) == ("docker-credential-tests", found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "{",
            "(top): not JSON: Expecting property name enclosed in double quotes: line 1",
        ),
        ("[" * 100_000, "(top): nested too deeply"),
        ("[]", "no JSON object"),
        (" " * (1 << 20) + "{}", "(top): 1048577 bytes, at most 1048576 are read"),
        ('{"auths": []}', None),
        ('{"auths": [1]}', "'auths' is no object of objects"),
        ('{"auths": {"a": 1}}', "'auths' is no object of objects"),
        ('{"credHelpers": {"a": 1}}', "'credHelpers' is no object of texts"),
        ('{"credsStore": "../x"}', "a credential helper is named as no program is"),
        ('{"credsStore": "x\\u0000y"}', "a credential helper is named as no program is"),
        ('{"auths": {"HOST": {"auth": "%"}}}', "a login that is not base64 of USER:PASSWORD"),
        ('{"auths": {"HOST": {"auth": 1}}}', "'auths' has a login that is no text"),
    ],
)
def test_a_broken_configuration_is_told(
    asking: ReferrersRegistry,
    text: str,
    found: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = text.replace("HOST", asking.host)
    path = configured(monkeypatch, tmp_path / "docker", None, text)
    error = refused(asking.host)
    if found is None:
        assert error.code == "AOTC-I199"
    else:
        assert (error.code, error.where) == ("AOTC-I200", str(path))
        assert error.found.startswith(found)


def test_dockers_own_registry_has_names_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, tmp_path / "docker", {"auths": {"https://index.docker.io/v1/": LOGIN}})
    connection = Connection("docker.io", plain_http=False, ca=None)
    assert connection.base == "https://registry-1.docker.io"
    credentials = connection._credentials
    assert credentials.log_in('Basic realm="x"', "pull", connection.base, None)
    assert credentials.header("pull") == BASIC


def test_a_configuration_that_is_a_pipe_is_not_waited_for(
    ours: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.auth = "basic"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    os.mkfifo(tmp_path / "config.json")
    error = refused(ours.host)
    assert (error.code, error.found) == ("AOTC-I200", "it is a named pipe, not a plain file")


def test_a_token_is_of_what_is_asked_for(
    ours: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.auth = "bearer"
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", ours.host)))
    repository = Repository(parse_reference(f"{ours.host}/a/b"))
    repository.has_blob(DIGEST)
    repository.has_blob(DIGEST)
    assert list(ours.tokens.values()) == [{"repository:a/b:pull"}]
    # One that has ended is replaced.
    ours.tokens.clear()
    repository.has_blob(DIGEST)
    assert list(ours.tokens.values()) == [{"repository:a/b:pull"}]


def test_an_identity_token_is_exchanged(
    ours: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.auth = "bearer"
    login = {"auth": "MDA6", "identitytoken": "refresh-me"}
    configured(monkeypatch, tmp_path / "docker", {"auths": {ours.host: login}})
    assert not has_blob(ours.host)
    answer = json.dumps({"Username": "<token>", "Secret": "refresh-me"})
    helper(monkeypatch, tmp_path / "bin", f"print({answer!r})")
    configured(monkeypatch, tmp_path / "docker", {"credsStore": "tests"})
    assert not has_blob(ours.host)
    # It is no password.
    ours.auth = "basic"
    assert refused(ours.host).code == "AOTC-I199"
    logins = {asked.headers.get("Authorization", "").partition(" ")[0] for asked in ours.asked}
    assert logins == {"", "Bearer"}


def test_a_password_that_is_wrong_is_tried_once(
    ours: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.auth = "basic"
    wrong = log_in(tmp_path / "docker", ours.host, password="wrong")
    monkeypatch.setenv("DOCKER_CONFIG", str(wrong))
    assert refused(ours.host).code == "AOTC-I199"
    assert len(ours.asked) == 2


def test_passwords_of_netrc_are_no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    url = "https://registry.example/v2/"
    asked = requests.Request("GET", url, headers={"Authorization": "Bearer ours"})
    assert "Basic" in requests.Session().prepare_request(asked).headers["Authorization"]
    session = Connection("registry.example", plain_http=False, ca=None)._session
    assert session.prepare_request(asked).headers["Authorization"] == "Bearer ours"


def test_tokens_are_given_to_nobody_too(ours: ReferrersRegistry) -> None:
    ours.auth = "bearer"
    given = json.dumps({"access_token": "for all"}).encode()
    ours.tokens["for all"] = {"repository:a/b:pull"}
    ours.faults.append(Fault(of="GET /token", status=200, body=given))
    assert not has_blob(ours.host)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(of="/token", status=403), "AOTC-I199"),
        (Fault(of="/token", status=200, body=b"{}"), "AOTC-I199"),
        (Fault(of="/token", status=200, body=b"<html>"), "AOTC-I207"),
        (Fault(of="/token", status=200, body=b"[" * 100_000), "AOTC-I207"),
        (Fault(of="/token", status=200, body=b'{"token": 1}'), "AOTC-I199"),
        (Fault(of="/token", status=200, body=b'{"token": "a\\nb"}'), "AOTC-I199"),
        (Fault(of="/token", status=200, body=b" " * (5 << 20)), "AOTC-I206"),
        (Fault(of="/token", status=503), "AOTC-I202"),
        (Fault(of="/token", cut_after=1), "AOTC-I204"),
        (Fault(of="/token", status=302, headers={"Location": "http://x.example/"}), "AOTC-I199"),
    ],
)
def test_a_service_of_tokens_may_fail(
    ours: ReferrersRegistry,
    fault: Fault,
    code: str,
    pauses: list[float | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours.auth = "bearer"
    ours.faults.append(fault)
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", ours.host)))
    assert refused(ours.host).code == code


@pytest.mark.parametrize("realm", ["http://tokens.example/", "ftp://127.0.0.1/", "http://["])
def test_a_login_is_sent_to_no_realm_of_another_kind(
    ours: ReferrersRegistry, realm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.auth, ours.realm = "bearer", realm
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", ours.host)))
    assert refused(ours.host).code == "AOTC-I203"


@pytest.mark.parametrize("challenge", ["", "Negotiate", "Bearer", 'Bearer realm=""', "Digest x"])
def test_a_challenge_that_nobody_answers(
    ours: ReferrersRegistry, challenge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", ours.host)))
    ours.faults.append(Fault(of="HEAD", status=401, headers={"WWW-Authenticate": challenge}))
    assert refused(ours.host).code == "AOTC-I199"


def test_a_host_that_is_named_like_this_machine_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, tmp_path / "docker", {"auths": {"127.0.0.1.corp.example": LOGIN}})
    connection = Connection("localhost.corp.example", plain_http=False, ca=None)
    assert not connection._credentials.log_in('Basic realm="x"', "pull", connection.base, None)


def test_no_other_host_sees_a_login(
    asking: ReferrersRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path / "docker", asking.host)))
    with referrers_registry() as other:
        other.auth = "basic"
        away = f"http://{other.host}/v2/a/b/blobs/{DIGEST}"
        asking.faults.append(
            Fault(of="HEAD .*blobs", after=1, status=307, headers={"Location": away})
        )
        error = refused(asking.host)
        assert error.code == "AOTC-I199"
        assert error.where == away
        assert [asked.headers.get("Authorization") for asked in other.asked] == [None]
    assert asking.requests("HEAD")
