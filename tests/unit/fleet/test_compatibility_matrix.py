"""Artifacts by hosts: verdicts with their codes, what is required of them, and what is checked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from artifact_builder import build_artifact, native_fits
from file_bytes import flip_bit
from policy_setting import Setting, make_keys

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.fleet.executors.local import LocalExecutor
from aotc.fleet.matrix import live_hosts, verify_matrix
from aotc.host.probe import probe
from aotc.spec.codec import encode
from aotc.spec.matrix_report import CompatibilityReport, Required
from aotc.spec.target import Target
from aotc.spec.variant import Parity
from aotc.trust import contents
from aotc.trust.gate import verify, verify_for_each
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.policy import roots

HOSTS = ("host", "linux-x86-64", "linux-arm64")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts that run, were not proven, were changed, and ask for a newer ONNX Runtime."""
    folder = tmp_path_factory.mktemp("artifacts")
    key = load_private(generate(folder / "key.pem")[0])
    build_artifact(folder / "good.aotc", key)
    unproven = Parity(status="not-run", reason="there was no such device")
    build_artifact(folder / "unproven.aotc", key, parity=unproven)
    newer = {"onnxruntime_min": "9.0", "onnxruntime_below": "9.1"}
    build_artifact(folder / "newer.aotc", key, requirements=newer)
    shutil.copytree(folder / "good.aotc", folder / "changed.aotc")
    flip_bit(folder / "changed.aotc" / "payload" / "manifest.json")
    return folder


def matrix(
    folder: Path,
    *names: str,
    targets: tuple[str, ...] = HOSTS,
    live: Sequence[Target] = (),
    required: Required = "degraded",
) -> CompatibilityReport:
    artifacts = [folder / name for name in names]
    return verify_matrix(artifacts, targets, live=live, required=required, key=folder / "key.pub")


def verdicts(report: CompatibilityReport) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [
        (Path(each.artifact).stem, each.host, each.verdict, each.codes) for each in report.cells
    ]


def test_each_artifact_is_judged_for_each_host(folder: Path) -> None:
    found = matrix(folder, "good.aotc", "unproven.aotc", "newer.aotc", "changed.aotc")
    told = verdicts(found)
    here = ("optimal", ()) if native_fits("linux-x86-64") else ("degraded", ("AOTC-C010",))
    assert [row for row in told if row[0] == "good"] == [
        ("good", "host", "optimal", ()),
        ("good", "linux-x86-64", *here),
        ("good", "linux-arm64", "incompatible", ("AOTC-C002", "AOTC-C004")),
    ]
    assert [row[2:] for row in told if row[0] == "unproven"][:2] == [
        ("degraded", ("AOTC-N002",)),
        ("degraded", (*here[1], "AOTC-N002")),
    ]
    assert ("newer", "host", "incompatible", ("AOTC-C005",)) in told
    assert {row[2:] for row in told if row[0] == "changed"} == {("unverified", ("AOTC-G005",))}


def test_it_is_what_verify_says_of_each(folder: Path) -> None:
    path, key = folder / "unproven.aotc", folder / "key.pub"
    together = verify_for_each(path, HOSTS, key=key)
    for target, found in zip(HOSTS, together, strict=True):
        alone = verify(path, key=key, target=target)
        assert replace(found, seconds=0.0) == replace(alone, seconds=0.0)


def test_bytes_are_hashed_once_for_all_hosts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    check = contents.check_digests

    def counted(state: object, **more: object) -> None:
        checked.append(state)
        check(state, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(contents, "check_digests", counted)
    matrix(folder, "good.aotc")
    assert len(checked) == 1


@pytest.mark.parametrize(
    ("required", "names", "failed"),
    [
        ("none", ("good.aotc", "newer.aotc"), []),
        ("some", ("good.aotc",), []),
        ("some", ("newer.aotc",), ["newer.aotc"]),
        ("degraded", ("unproven.aotc",), ["unproven.aotc on linux-arm64"]),
        (
            "optimal",
            ("unproven.aotc",),
            [f"unproven.aotc on {host}" for host in HOSTS],
        ),
    ],
)
def test_what_is_required(
    folder: Path, required: Required, names: tuple[str, ...], failed: list[str]
) -> None:
    found = matrix(folder, *names, required=required)
    assert [each.where for each in found.failed] == [f"{folder}/{name}" for name in failed]
    assert {each.code for each in found.failed} <= {"AOTC-I184"}


def test_one_that_cannot_be_read_stops_no_other(folder: Path) -> None:
    found = matrix(folder, "gone.aotc", "changed.aotc", "good.aotc", targets=("host",))
    assert [row[1:] for row in verdicts(found)] == [
        ("host", "unverified", ("AOTC-I001",)),
        ("host", "unverified", ("AOTC-G005",)),
        ("host", "optimal", ()),
    ]
    # Told once for all hosts, whatever is required.
    assert [(each.code, Path(each.where).name) for each in found.failed] == [
        ("AOTC-I001", "gone.aotc"),
        ("AOTC-G005", "changed.aotc"),
    ]


def described(folder: Path, name: str, **changes: str) -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump({**encode(probe()), **changes}))
    return path


def test_probed_hosts_are_called_by_their_files(folder: Path, tmp_path: Path) -> None:
    # `aotc target probe` calls every host `host`.
    here = described(tmp_path, "edge-box.yaml")
    old = described(tmp_path, "old-box.yaml", onnxruntime="1.10.0")
    found = matrix(folder, "good.aotc", targets=(str(here), str(old)))
    assert [row[1:] for row in verdicts(found)] == [
        ("edge-box", "optimal", ()),
        ("old-box", "incompatible", ("AOTC-C005",)),
    ]


def test_two_hosts_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    targets = tuple(str(described(each, "box.yaml")) for each in (tmp_path, other))
    with pytest.raises(AotcError) as refused:
        matrix(folder, "good.aotc", targets=targets)
    assert (refused.value.code, refused.value.found) == ("AOTC-I185", "box")
    with pytest.raises(AotcError) as refused:
        matrix(
            folder,
            "good.aotc",
            targets=("linux-arm64",),
            live=[Target(schema="aotc.target/1", name="linux-arm64")],
        )
    assert refused.value.code == "AOTC-I185"


@pytest.mark.parametrize("targets", [(), ("none",)])
def test_a_matrix_needs_hosts(folder: Path, targets: tuple[str, ...]) -> None:
    with pytest.raises(AotcError) as refused:
        matrix(folder, "good.aotc", targets=targets)
    assert refused.value.code == "AOTC-I027"


def test_live_hosts_describe_themselves(folder: Path) -> None:
    with LocalExecutor() as executor:
        (host,) = live_hosts(executor)
        (worker,) = executor.workers()
    assert host == replace(probe(), name=worker.name)
    found = matrix(folder, "good.aotc", targets=(), live=[host])
    assert verdicts(found) == [("good", worker.name, "optimal", ())]


def test_a_policy_is_applied_for_each_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    monkeypatch.setattr(roots, "SYSTEM_ROOT", tmp_path / "etc" / "root.yaml")
    setting = Setting(tmp_path, make_keys(tmp_path))
    setting.rule["require"].append({"predicate": "qualification", "signers": ["ci"]})
    setting.write()
    setting.qualify(variants=["portable", "native"])
    here = probe()
    other = replace(here, name="other", architecture="riscv64")
    first, second = verify_for_each(setting.artifact, (here, other), trust=setting.path)
    assert first.refusals == ()
    assert [each.code for each in second.refusals] == ["AOTC-G033"]
    # In the other order as well: nothing that one host is told is said of the next.
    again = verify_for_each(setting.artifact, (other, here), trust=setting.path)
    assert [each.authentic for each in again] == [False, True]
