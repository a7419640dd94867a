"""Trust that was resolved earlier is as strict as the file that it was read from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from policy_setting import Setting, make_keys
from refusals import refusal_code

from aotc import load
from aotc.host.probe import probe
from aotc.trust.gate import verify
from aotc.trust.policy import roots
from aotc.trust.policy.host_trust import Trust, resolve

KEYS_ONLY = "AOTC-I027"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """A load for prod needs an approval for it; staging needs the signature alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    monkeypatch.setattr(roots, "SYSTEM_ROOT", tmp_path / "etc" / "root.yaml")
    made = Setting(tmp_path, make_keys(tmp_path))
    made.policy["rules"] = [
        {
            "name": channel,
            "match": {"name": "linear", "channel": channel},
            "require": [{"predicate": "oms", "signers": ["release"]}],
        }
        for channel in ("prod", "staging")
    ]
    made.require("approval", "ops")
    made.approve("ops", channel="staging")
    made.write()
    yield made
    for place in (tmp_path / "store").rglob("*"):
        if place.is_dir():
            place.chmod(0o700)


@pytest.fixture(params=["file", "resolved", "resolved for staging", "resolved for prod"])
def trust(request: pytest.FixtureRequest, host: Setting) -> Path | Trust:
    _, _, channel = str(request.param).partition(" for ")
    return host.path if request.param == "file" else resolve(host.path, channel=channel or None)


def codes(host: Setting, trust: Path | Trust, **options: Any) -> list[str]:
    return [refusal.code for refusal in verify(host.artifact, trust=trust, **options).refusals]


def test_the_given_channel_is_the_one_that_counts(host: Setting, trust: Path | Trust) -> None:
    assert codes(host, trust, channel="prod") == ["AOTC-G025"]
    assert refusal_code(lambda: load(host.artifact, trust=trust, channel="prod")) == "AOTC-G025"
    assert not list((host.folder / "store").glob("sha256-*"))
    assert codes(host, trust, channel="nowhere") == ["AOTC-G023"]
    report = verify(host.artifact, trust=trust, channel="staging")
    assert report.policy is not None
    assert (report.policy.channel, report.policy.rule) == ("staging", "staging")
    with load(host.artifact, trust=trust, channel="staging", warm_up=False) as model:
        assert model.report.artifact_id == host.id


def test_without_a_channel_the_resolved_one_stays(host: Setting) -> None:
    assert codes(host, resolve(host.path, channel="prod")) == ["AOTC-G025"]
    # Its approval is for staging.
    assert codes(host, resolve(host.path)) == []


def test_a_key_besides_resolved_trust(host: Setting, trust: Path | Trust) -> None:
    for name in ("release", "stranger"):
        key = host.folder / f"{name}.pub"
        assert (
            refusal_code(lambda key=key: verify(host.artifact, trust=trust, key=key)) == KEYS_ONLY
        )  # type: ignore[misc]
        assert refusal_code(lambda key=key: load(host.artifact, trust=trust, key=key)) == KEYS_ONLY  # type: ignore[misc]


def test_a_channel_without_a_policy(host: Setting) -> None:
    public = host.folder / "release.pub"
    for trust in (resolve(key=public), resolve(public), Trust.of([host.keys["release"].trusted()])):
        assert codes(host, trust) == []
        for call in (
            lambda trust=trust: verify(host.artifact, trust=trust, channel="prod"),
            lambda trust=trust: load(host.artifact, trust=trust, channel="prod"),
            lambda trust=trust: resolve(trust, channel="prod"),
        ):
            assert refusal_code(call) == KEYS_ONLY
    assert refusal_code(lambda: verify(host.artifact, key=public, channel="prod")) == KEYS_ONLY
    assert refusal_code(lambda: load(host.artifact, key=public, channel="prod")) == KEYS_ONLY


def test_the_given_target_is_the_one_that_counts(host: Setting) -> None:
    """A qualification on this host says nothing about another host."""
    here = probe(gpus=False)
    other = replace(here, architecture="riscv64")
    host.policy["rules"][1]["require"].append({"predicate": "qualification", "signers": ["ci"]})
    host.write()
    host.qualify(variants=["portable", "native"])
    held = resolve(host.path, channel="staging")
    assert codes(host, held) == []
    assert codes(host, resolve(held, target=other)) == ["AOTC-G033"]
    assert codes(host, resolve(resolve(held, target=other), target=here)) == []
