"""Which reproductions a policy counts: by whom, of what outcome, by which builder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from policy_host import policy_host
from policy_setting import Setting, ago

from aotc.base.errors import AotcError
from aotc.spec.attestation_kinds import KINDS
from aotc.trust.policy.document import read_policy

KIND = KINDS["reproduction"].predicate_type
SECOND = "https://second.example.com/builders/1"
OTHER_ID = "f" * 64


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    with policy_host(tmp_path, monkeypatch) as found:
        for key in found.policy["keys"]:
            key["usage"].append("reproduction")
        yield found


def reproduce(host: Setting, signer: str, **changes: Any) -> None:
    """A reproduction, as `aotc reproduce --attest` makes it."""
    predicate = {
        "artifact": {"name": "linear", "id": host.id},
        "outcome": "identical",
        "rebuilt_id": host.id,
        "builder": SECOND,
        "environment": {
            "how": "this",
            "python": "3.11.7",
            "aotc": "0.1.0",
            "aotc_sha256": "0" * 64,
            "aotc_form": "checkout",
            "aotc_from": "this aotc",
        },
        "host": {"os": "linux"},
        "variants": [{"name": "portable", "outcome": "identical"}],
        "issued_at": ago(minutes=5),
        **changes,
    }
    host.say(KIND, predicate, signer, f"reproduction-{signer}")


def refused(host: Setting, **more: Any) -> list[tuple[str, str]]:
    """Codes and texts of the refusals, by a rule that requires a reproduction by some signer."""
    host.require("reproduction", "release", "ci", "ops", "security", **more)
    host.write()
    return [(each.code, each.what) for each in host.verify().refusals]


def test_a_second_builders_reproduction_meets_the_rule(host: Setting) -> None:
    reproduce(host, "ops")
    assert refused(host, builders=[SECOND], max_age=1) == []


def test_a_rule_without_one_is_not_met(host: Setting) -> None:
    assert refused(host) == [("AOTC-G025", "the required reproduction is missing")]


@pytest.mark.parametrize("signer", ["release", "ci"])
def test_who_signed_the_artifact_or_its_provenance_is_no_second(host: Setting, signer: str) -> None:
    host.provenance(signer="ci")
    reproduce(host, signer)
    what = "who signed the artifact signed its reproduction, too"
    assert refused(host) == [("AOTC-G051", what)]


def test_a_further_signer_is_no_second(host: Setting) -> None:
    """Who signed the payload as a further signer is no second builder either."""
    host.sign_payload("security", "oms-security")
    reproduce(host, "security")
    reproduce(host, "ops")
    assert refused(host, threshold=2) == [
        ("AOTC-G051", "who signed the artifact signed its reproduction, too")
    ]


@pytest.mark.parametrize(
    ("outcome", "suffices", "codes"),
    [
        ("in-part", None, ["AOTC-G050"]),
        ("same-answers", None, ["AOTC-G050"]),
        ("same-answers", "in-part", ["AOTC-G050"]),
        ("in-part", "in-part", []),
        ("in-part", "same-answers", []),
        ("same-answers", "same-answers", []),
    ],
)
def test_the_least_outcome(
    host: Setting, outcome: str, suffices: str | None, codes: list[str]
) -> None:
    reproduce(host, "ops", outcome=outcome, rebuilt_id=OTHER_ID)
    more = {} if suffices is None else {"outcome": suffices}
    assert [code for code, _ in refused(host, **more)] == codes


def test_one_that_contradicts_itself(host: Setting) -> None:
    reproduce(host, "ops", rebuilt_id=OTHER_ID)
    assert refused(host) == [("AOTC-G050", "the reproduction contradicts itself")]


def test_one_of_another_outcome_is_malformed(host: Setting) -> None:
    reproduce(host, "ops", outcome="different", rebuilt_id=OTHER_ID)
    assert [code for code, _ in refused(host)] == ["AOTC-G004"]


def test_another_builder(host: Setting) -> None:
    reproduce(host, "ops")
    found = refused(host, builders=["https://third.example.com"])
    assert found == [("AOTC-G031", "the rule does not list the builder")]


def test_one_about_another_artifact(host: Setting) -> None:
    reproduce(host, "ops", artifact={"name": "linear", "id": OTHER_ID}, rebuilt_id=OTHER_ID)
    assert "AOTC-G014" in [code for code, _ in refused(host)]


def test_an_outcome_is_for_reproductions_only(host: Setting) -> None:
    host.require("approval", "ops", outcome="in-part")
    with pytest.raises(AotcError) as caught:
        read_policy(host.write())
    assert caught.value.found == "is for reproduction only, not for approval"
