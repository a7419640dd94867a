"""Time passes while a service keeps a policy: every load is checked for the time of the load."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from made_certificates import NOW, authority, leaf
from policy_host import loaded, resign
from policy_setting import Setting, ago
from refusals import refusal_code

from aotc.runtime.store.installing import install
from aotc.spec.attestations import format_instant, parse_instant
from aotc.trust.container import FolderContainer
from aotc.trust.gate import authenticate, verify
from aotc.trust.policy.document import read_policy
from aotc.trust.policy.host_trust import Trust, apply_policy, resolve, trust_in_policy


def soon(steps: Callable[[], object]) -> str:
    """A time some seconds from now, as text: at least ten times as far away as `steps` takes."""
    started = time.monotonic()
    steps()
    return format_instant(
        datetime.now(UTC) + timedelta(seconds=2 + 10 * (time.monotonic() - started))
    )


def wait_until(instant: str) -> None:
    while (left := (parse_instant(instant) - datetime.now(UTC)).total_seconds()) >= 0:
        time.sleep(left + 0.01)


def codes(host: Setting, trust: Trust, channel: str | None = None) -> list[str]:
    return [
        refusal.code for refusal in verify(host.artifact, trust=trust, channel=channel).refusals
    ]


def authenticated_id(host: Setting, trust: Trust) -> str:
    """The artifact's id from the gate, called as a load calls it."""
    with FolderContainer(host.artifact) as container:
        return authenticate(container, trust).id


def resolve_as(host: Setting, name: str) -> Trust:
    """The current policy under this name, resolved as by a service that keeps it."""
    host.policy["name"] = name
    host.write()
    return resolve(host.path)


def test_what_ends_while_a_policy_is_kept(host: Setting) -> None:
    """The policy, a key, an approval and a certificate end at the same time."""
    company = authority("company")
    certified = Setting(host.folder / "certified", host.keys, {**host.policy})

    def steps() -> None:
        host.write()
        assert host.verify().authentic

    # Signing and building take no time from the seconds that are left.
    end = soon(steps)

    host.policy["expires"] = end
    policy = resolve_as(host, "policy")

    host.policy["expires"] = "2099-01-01T00:00:00Z"
    host.policy["keys"][0]["valid_until"] = end
    key = resolve_as(host, "key")

    del host.policy["keys"][0]["valid_until"]
    host.require("approval", "ops")
    host.approve("ops", expires=end)
    approval = resolve(resolve_as(host, "approval"), channel="prod")

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
        lambda: authenticated_id(host, policy),
        lambda: install(host.artifact, policy, store=host.folder / "store"),
        lambda: resolve(policy).at_present(),
    ):
        assert refusal_code(call) == "AOTC-G020"
    assert loaded(host, policy) == "AOTC-G020"
    for trust, code in ((key, "AOTC-G028"), (approval, "AOTC-G032")):
        assert codes(host, trust, "prod") == [code]
        assert refusal_code(lambda trust=trust: authenticated_id(host, trust)) == code  # type: ignore[misc]
        assert loaded(host, trust, channel="prod") == code
    # The resolved policy is unchanged; only time has passed.
    assert codes(certified, certificate) == ["AOTC-G037"]
    assert loaded(certified, certificate) == "AOTC-G037"


def test_a_policy_that_does_not_begin_yet(host: Setting) -> None:
    begins = soon(host.write)
    host.policy["valid_from"] = begins
    host.write()
    assert refusal_code(lambda: resolve(host.path)) == "AOTC-G020"
    wait_until(begins)
    assert authenticated_id(host, resolve(host.path)) == host.id


def certified(host: Setting) -> None:
    """The payload is signed with a certificate that is valid from yesterday until tomorrow."""
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
    assert refusal_code(lambda: authenticated_id(host, other)) == "AOTC-G037"
    assert loaded(host, other) == "AOTC-G037"


def test_a_stated_time_stays(host: Setting) -> None:
    """Who asks about a stated time gets the answer for that time, not for now."""
    host.policy["keys"][0]["valid_until"] = ago(days=1)
    host.write()
    file = read_policy(host.path)
    assert codes(host, trust_in_policy(apply_policy(file, datetime.now(UTC)))) == ["AOTC-G028"]
    assert (
        codes(host, trust_in_policy(apply_policy(file, datetime.now(UTC) - timedelta(days=2))))
        == []
    )
