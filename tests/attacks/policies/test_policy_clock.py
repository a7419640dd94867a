"""Time passes while a policy is held: every load is judged for the moment at which it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from made_certificates import NOW, authority, leaf
from policy_host import loaded, policy_host, resign
from policy_setting import Setting, ago

from aotc.contract.trust.attestations import format_instant, parse_instant
from aotc.errors import AotcError
from aotc.store.installing import install
from aotc.verification.container.folder_container import FolderContainer
from aotc.verification.gate import authenticate, verify
from aotc.verification.policy.host_trust import Trust, apply_policy, resolve, trust_in_policy
from aotc.verification.policy.policy_document import read_policy


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    with policy_host(tmp_path, monkeypatch) as made:
        yield made


def soon(steps: Callable[[], object]) -> str:
    """A moment some seconds from now, as it is written: at least ten times what `steps` take."""
    started = time.monotonic()
    steps()
    return format_instant(
        datetime.now(UTC) + timedelta(seconds=2 + 10 * (time.monotonic() - started))
    )


def wait_until(moment: str) -> None:
    while (left := (parse_instant(moment) - datetime.now(UTC)).total_seconds()) >= 0:
        time.sleep(left + 0.01)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(AotcError) as caught:
        call()
    return caught.value.code


def codes(host: Setting, trust: Trust, channel: str | None = None) -> list[str]:
    return [
        refusal.code for refusal in verify(host.artifact, trust=trust, channel=channel).refusals
    ]


def judged(host: Setting, trust: Trust) -> str:
    """The gate as a load calls it."""
    with FolderContainer(host.artifact) as container:
        return authenticate(container, trust).id


def held(host: Setting, name: str) -> Trust:
    """The policy as it now is, resolved by a service that keeps it."""
    host.policy["name"] = name
    host.write()
    return resolve(host.path)


def test_what_ends_while_a_policy_is_held(host: Setting) -> None:
    """The policy, a key, an approval and a certificate end at one moment."""
    company = authority("company")
    certified = Setting(host.folder / "certified", host.keys, {**host.policy})

    def steps() -> None:
        host.write()
        assert host.verify().authentic

    # The time of signing and building is not taken from the seconds that are left.
    end = soon(steps)

    host.policy["expires"] = end
    policy = held(host, "policy")

    host.policy["expires"] = "2099-01-01T00:00:00Z"
    host.policy["keys"][0]["valid_until"] = end
    key = held(host, "key")

    del host.policy["keys"][0]["valid_until"]
    host.require("approval", "ops")
    host.approve("ops", expires=end)
    approval = resolve(held(host, "approval"), channel="prod")

    resign(certified, leaf(company, ends=parse_instant(end)).signer())
    certified.policy.update(name="certified", expires="2099-01-01T00:00:00Z")
    certified.policy["authorities"] = [{"id": "ca", "pem": company.pem, "usage": ["oms"]}]
    certified.policy["rules"] = [
        {
            "name": "certified",
            "match": {"name": "linear"},
            "require": [{"predicate": "oms", "signers": ["ca"]}],
        }
    ]
    certified.write()
    certificate = resolve(certified.path)

    wait_until(end)
    for call in (
        lambda: verify(host.artifact, trust=policy),
        lambda: judged(host, policy),
        lambda: install(host.artifact, policy, store=host.folder / "store"),
        lambda: resolve(policy).at_present(),
    ):
        assert refusal(call) == "AOTC-G020"
    assert loaded(host, policy) == "AOTC-G020"
    for trust, code in ((key, "AOTC-G028"), (approval, "AOTC-G032")):
        assert codes(host, trust, "prod") == [code]
        assert refusal(lambda trust=trust: judged(host, trust)) == code  # type: ignore[misc]
        assert loaded(host, trust, channel="prod") == code
    # What was taken is still what was resolved: only the time went on.
    assert codes(certified, certificate) == ["AOTC-G037"]
    assert loaded(certified, certificate) == "AOTC-G037"


def test_a_policy_that_does_not_begin_yet(host: Setting) -> None:
    begins = soon(host.write)
    host.policy["valid_from"] = begins
    host.write()
    assert refusal(lambda: resolve(host.path)) == "AOTC-G020"
    wait_until(begins)
    assert judged(host, resolve(host.path)) == host.id


def certified(host: Setting) -> None:
    """The payload is vouched for by a certificate that holds from yesterday until tomorrow."""
    company = authority("company", begins=NOW - timedelta(days=99), ends=NOW + timedelta(days=99))
    resign(host, leaf(company).signer())
    host.policy["authorities"] = [{"id": "ca", "pem": company.pem, "usage": ["oms"]}]
    host.rule["require"] = [{"predicate": "oms", "signers": ["ca"]}]
    host.write()


@pytest.mark.parametrize("days", [-5, 5])
def test_certificates_are_checked_for_the_time_of_the_policy(days: int, host: Setting) -> None:
    certified(host)
    file = read_policy(host.path)
    now = datetime.now(UTC)
    assert codes(host, trust_in_policy(apply_policy(file, now))) == []
    other = trust_in_policy(apply_policy(file, now + timedelta(days=days)))
    assert codes(host, other) == ["AOTC-G037"]
    assert refusal(lambda: judged(host, other)) == "AOTC-G037"
    assert loaded(host, other) == "AOTC-G037"


def test_a_stated_time_stays(host: Setting) -> None:
    """Whoever asks what held then is told that, and not what holds now."""
    host.policy["keys"][0]["valid_until"] = ago(days=1)
    host.write()
    file = read_policy(host.path)
    assert codes(host, trust_in_policy(apply_policy(file, datetime.now(UTC)))) == ["AOTC-G028"]
    assert (
        codes(host, trust_in_policy(apply_policy(file, datetime.now(UTC) - timedelta(days=2))))
        == []
    )
