"""What a host can know of a policy's age: when it expires, and what it has seen before."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from policy_setting import Setting, ahead
from refusals import refusal_code

from aotc import load
from aotc.cli.main import main
from aotc.spec.trust_policy import WARN_DAYS
from aotc.trust.policy import host_trust
from aotc.trust.policy.document import read_policy
from aotc.trust.policy.host_trust import expiry_findings, resolve
from aotc.trust.policy.state import user_state

SOON = "AOTC-G048"


@pytest.mark.parametrize(
    ("left", "stated", "warned"),
    [
        ({"days": WARN_DAYS, "hours": 1}, {}, False),
        ({"days": WARN_DAYS, "hours": -1}, {}, True),
        ({"minutes": 5}, {}, True),
        ({"days": 3}, {"warn_days": 2}, False),
        ({"days": 29}, {"warn_days": 30}, True),
        ({"minutes": 5}, {"warn_days": 0}, False),
    ],
)
def test_a_policy_that_expires_soon_is_told(
    left: dict[str, int], stated: dict[str, int], warned: bool, host: Setting
) -> None:
    host.policy.update(stated, expires=ahead(**left))
    report_codes = _verified(host)
    assert (SOON in report_codes) == warned
    with load(host.artifact, trust=host.path, warm_up=False) as model:
        assert (SOON in [finding.code for finding in model.report.findings]) == warned


def _verified(host: Setting) -> list[str]:
    host.write()
    report = host.verify()
    assert report.authentic
    return [finding.code for finding in report.findings]


def test_each_command_tells_it(
    host: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.policy["expires"] = ahead(days=5, hours=1)
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    host.write("root-a")
    for words in (["verify", str(host.artifact)], ["trust", "check", str(host.path)]):
        assert main([*words, "--json"]) == 0
        findings = json.loads(capsys.readouterr().out)["findings"]
        (found,) = (finding for finding in findings if finding["code"] == SOON)
        assert "in 5 days" in found["what"]
        assert host.policy["expires"] in found["what"]
        assert main(words) == 0
        assert SOON in capsys.readouterr().out
    main(["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["trust policy"]["status"] == "note"
    assert SOON in checks["trust policy"]["found"]


def test_a_service_that_runs_on_is_told_too(host: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trust that was made long before is judged at the time of each verification."""
    host.policy["expires"] = ahead(days=20)
    host.write()
    trust = resolve(host.path)
    assert SOON not in [finding.code for finding in trust.at_present().findings]

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + timedelta(days=15)

    monkeypatch.setattr(host_trust, "datetime", Later)
    later = trust.at_present()
    assert [finding.code for finding in later.findings].count(SOON) == 1
    # Only one finding, whose words are those of the present.
    assert [finding.code for finding in later.at_present().findings].count(SOON) == 1
    assert "in 4 days" in later.at_present().findings[-1].what


def test_the_last_days_in_words(host: Setting) -> None:
    host.policy["expires"] = "2027-01-15T00:00:00Z"
    policy = read_policy(host.write()).policy
    end = datetime(2027, 1, 15, tzinfo=UTC)
    said = {}
    for hours in (14 * 24, 13 * 24, 48, 47, 1):
        found = expiry_findings(policy, end - timedelta(hours=hours))
        said[hours] = found[0].what.partition(",")[0] if found else ""
    assert said == {
        14 * 24: "",
        13 * 24: "the policy expires in 13 days",
        48: "the policy expires in 2 days",
        47: "the policy expires within two days",
        1: "the policy expires within two days",
    }


def test_an_older_policy_is_refused_by_a_host_that_saw_a_later_one_alone(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network, a host that was never shown the later one cannot know of it."""
    monkeypatch.setenv("AOTC_TRUST_ROOT", str(host.write_roots(1, "root-a")))
    host.write("root-a")
    old, signed = host.path.read_bytes(), list(host.folder.glob("trust.yaml.*"))
    bundles = {path: path.read_bytes() for path in signed}
    assert host.codes() == []
    host.policy["sequence"] = 2
    host.policy["keys"][0]["revoked"] = "laptop lost"
    host.write("root-a")
    assert host.codes() == ["AOTC-G028"]
    host.path.write_bytes(old)
    for path, data in bundles.items():
        path.write_bytes(data)
    assert refusal_code(host.verify) == "AOTC-G022"
    user_state().path.unlink()
    assert host.codes() == []
