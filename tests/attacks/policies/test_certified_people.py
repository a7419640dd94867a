"""People with certificates of an authority: revoked with their keys or CAs, and counted once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from made_certificates import Issued, authority, leaf, p256, public_pem
from policy_host import loaded, resign
from policy_setting import Setting, ahead

from aotc.base.errors import AotcError
from aotc.runtime.qualification import qualify
from aotc.spec.trust_anchors import key_id
from aotc.trust.attesting import approve, sign
from aotc.trust.gate import verify
from aotc.trust.key_loading import PrivateKey
from aotc.trust.policy.host_trust import resolve

REVOKED = "AOTC-G028"


def key_of(issued: Issued) -> str:
    """The sha256 by which a policy names its public key."""
    return key_id(public_pem(issued.secret))


def trusts(host: Setting, company: Issued, *usage: str) -> None:
    host.policy["authorities"] = [{"id": "ca", "pem": company.pem, "usage": list(usage)}]


def signed_only_by(host: Setting, signer: PrivateKey, company: Issued) -> None:
    """Sign the payload with this certified key alone, under a policy that requires no more."""
    resign(host, signer)
    trusts(host, company, "oms")
    host.rule["require"] = [{"predicate": "oms", "signers": ["ca"]}]
    host.write()


# Attesting under a policy whose certified signer is revoked.


def _sign(host: Setting) -> object:
    return sign(host.artifact, host.keys["stranger"], trust=host.path)


def _approve(host: Setting) -> object:
    return approve(
        host.artifact, host.keys["ops"], channel="prod", expires=ahead(days=3), trust=host.path
    )


def _qualify(host: Setting) -> object:
    return qualify(host.artifact, host.keys["ci"], trust=host.path, runs=1)


ATTESTING = {"sign": _sign, "approve": _approve, "qualify": _qualify}
Attest = Callable[[Setting], object]


@pytest.mark.parametrize("revoked", ["leaf", "intermediate", "root", "authority's name"])
@pytest.mark.parametrize("attest", ATTESTING.values(), ids=ATTESTING.keys())
def test_what_a_revoked_key_signed_is_not_attested(
    attest: Attest, revoked: str, host: Setting
) -> None:
    company = authority("company")
    team = authority("team", company)
    person = leaf(team)
    signed_only_by(host, person.signer(team), company)
    assert host.codes() == []
    names = {
        "leaf": key_of(person),
        "intermediate": key_of(team),
        "root": key_of(company),
        "authority's name": "ca",
    }
    host.policy["revoked"] = {"keys": [names[revoked]]}
    host.write()
    before = sorted((host.artifact / "attestations").iterdir())
    # Verify refuses it as well.
    assert host.codes() == [REVOKED]
    with pytest.raises(AotcError) as caught:
        attest(host)
    assert caught.value.code == REVOKED
    assert sorted((host.artifact / "attestations").iterdir()) == before


@pytest.mark.parametrize("attest", ATTESTING.values(), ids=ATTESTING.keys())
def test_what_a_certified_key_signed_is_attested(attest: Attest, host: Setting) -> None:
    """The refusals above are therefore those of the revocation."""
    company = authority("company")
    signed_only_by(host, leaf(company).signer(), company)
    before = len(list((host.artifact / "attestations").iterdir()))
    attest(host)
    assert len(list((host.artifact / "attestations").iterdir())) == before + 1
    assert host.codes("prod") == []


# Authorities whose keys are revoked.


def _root(company: Issued, team: Issued) -> Issued:
    return company


def _intermediate(company: Issued, team: Issued) -> Issued:
    return team


CAS = {"root": _root, "intermediate": _intermediate}
Choose = Callable[[Issued, Issued], Issued]


@pytest.mark.parametrize("choose", CAS.values(), ids=CAS.keys())
def test_a_ca_is_revoked_by_the_digest_of_its_key(choose: Choose, host: Setting) -> None:
    company = authority("company")
    team = authority("team", company)
    signed_only_by(host, leaf(team).signer(team), company)
    assert host.codes() == []
    host.policy["revoked"] = {"keys": [key_of(choose(company, team))]}
    host.write()
    assert host.codes() == [REVOKED]
    assert loaded(host) == REVOKED


@pytest.mark.parametrize("choose", CAS.values(), ids=CAS.keys())
def test_an_approval_below_a_revoked_ca(choose: Choose, host: Setting) -> None:
    company = authority("company")
    team = authority("team", company)
    trusts(host, company, "approval")
    host.require("approval", "ca")
    host.keys = {**host.keys, "alice": leaf(team, subject="alice").signer(team)}
    host.approve("alice")
    host.write()
    # Without remembering: otherwise the release itself would be refused once nobody approves it.
    held = resolve(host.path, channel="prod", remember=False)
    assert verify(host.artifact, trust=held).authentic
    host.policy["revoked"] = {"keys": [key_of(choose(company, team))]}
    host.write()
    assert host.codes("prod") == [REVOKED]
    assert loaded(host, channel="prod") == REVOKED


def test_a_certified_signer_has_the_name_of_its_certificate(host: Setting) -> None:
    company = authority("company")
    signed_only_by(host, leaf(company, subject="alice").signer(), company)
    report = host.verify()
    assert report.authentic
    assert report.signer_names == ("ca, CN=alice",)


def test_a_revoked_key_in_a_new_certificate(host: Setting) -> None:
    """The intermediate's key is certified again, under another name and for other years."""
    company, secret = authority("company"), p256()
    team = authority("team", company, secret)
    renewed = authority("renewed team", company, secret)
    host.policy["revoked"] = {"keys": [key_of(team)]}
    signed_only_by(host, leaf(renewed).signer(renewed), company)
    assert host.codes() == [REVOKED]
    # The same for a leaf: the key is revoked, whatever certificate it has.
    person = p256()
    host.policy["revoked"] = {"keys": [key_id(public_pem(person))]}
    signed_only_by(host, leaf(company, person, subject="somebody else").signer(), company)
    assert host.codes() == [REVOKED]
    assert loaded(host) == REVOKED


def test_a_revoked_intermediate_that_is_trusted_by_itself(host: Setting) -> None:
    company = authority("company")
    team = authority("team", company)
    host.policy["revoked"] = {"keys": [key_of(team)]}
    signed_only_by(host, leaf(team).signer(), team)
    assert host.codes() == [REVOKED]


def test_another_ca_is_not_revoked_with_it(host: Setting) -> None:
    company = authority("company")
    team, other = authority("team", company), authority("team", company)
    host.policy["revoked"] = {"keys": [key_of(other)]}
    signed_only_by(host, leaf(team).signer(team), company)
    assert host.codes() == []
    assert loaded(host) == "native"


# One person with several certificates.


@pytest.fixture
def two_required(host: Setting) -> dict[str, Issued]:
    """The CAs of a company; the rule requires approvals of two of its people."""
    company = authority("company")
    trusts(host, company, "approval")
    host.require("approval", "ca", threshold=2)
    host.write()
    return {
        "company": company,
        "first": authority("first team", company),
        "second": authority("second team", company),
    }


def approved(host: Setting, **signers: PrivateKey) -> list[str]:
    """The codes of verify after each of these signers has approved."""
    host.keys = {**host.keys, **signers}
    for name in signers:
        host.approve(name)
    return host.codes("prod")


def test_one_person_of_two_teams_is_one_signer(
    host: Setting, two_required: dict[str, Issued]
) -> None:
    first, second = two_required["first"], two_required["second"]
    codes = approved(
        host,
        one=leaf(first, subject="alice").signer(first),
        two=leaf(second, subject="alice").signer(second),
    )
    assert codes == ["AOTC-G026"]
    assert loaded(host, channel="prod") == "AOTC-G026"
    # A third certificate, issued by the company itself, is not another person either.
    third = leaf(two_required["company"], subject="alice").signer()
    assert approved(host, three=third) == ["AOTC-G026"]
    assert approved(host, bob=leaf(second, subject="bob").signer(second)) == []
    assert loaded(host, channel="prod") == "native"


def test_one_key_of_two_teams_is_one_signer(host: Setting, two_required: dict[str, Issued]) -> None:
    """Whatever names its certificates state."""
    first, second, secret = two_required["first"], two_required["second"], p256()
    codes = approved(
        host,
        one=leaf(first, secret, subject="alice").signer(first),
        two=leaf(second, secret, subject="bob").signer(second),
    )
    assert codes == ["AOTC-G026"]


def test_people_of_one_name_at_two_authorities(
    host: Setting, two_required: dict[str, Issued]
) -> None:
    """Two companies may employ people of the same name; each authority names its own."""
    other = authority("other company")
    listed: list[Any] = host.policy["authorities"]
    listed.append({"id": "other", "pem": other.pem, "usage": ["approval"]})
    host.rule["require"][-1]["signers"].append("other")
    host.write()
    first = two_required["first"]
    codes = approved(
        host,
        one=leaf(first, subject="alice").signer(first),
        two=leaf(other, subject="alice").signer(),
    )
    assert codes == []


def test_one_key_of_two_names_qualifies_a_variant_once(host: Setting) -> None:
    """One key with two names qualifies a variant, another key another one: none has two signers."""
    company, secret = authority("company"), p256()
    trusts(host, company, "qualification")
    host.require("qualification", "ca", threshold=2)
    host.write()
    for name, variant, person in (
        ("alice", "native", leaf(company, secret, subject="alice")),
        ("bob", "native", leaf(company, secret, subject="bob")),
        ("carol", "portable", leaf(company, subject="carol")),
    ):
        host.keys = {**host.keys, "ci": person.signer()}
        path = host.qualify(variant=variant, variants=[variant])
        path.rename(path.with_name(f"{name}.sigstore.json"))
    report = host.verify()
    assert report.policy is not None
    assert report.policy.qualified == ()
    assert report.verdict == "incompatible"
    assert loaded(host) == "AOTC-C009"
