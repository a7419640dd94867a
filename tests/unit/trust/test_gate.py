"""The gate against every way of tampering that is known, and against every kind of host."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from artifact_builder import build_artifact, payload_digests, sign_artifact
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.report.runs import verified_breaches, verified_gates
from aotc.spec.codec import encode
from aotc.spec.json import canonical_json
from aotc.spec.payload import CHUNK_BYTES
from aotc.spec.reports import VerifyReport
from aotc.spec.variant import Parity
from aotc.trust import container, gate, oms, statements
from aotc.trust.container import FolderContainer
from aotc.trust.gate import authenticate, check_compatibility, verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private, load_public


@dataclasses.dataclass(frozen=True)
class Keys:
    """A signer, and the file of its public key."""

    private: PrivateKey
    public: Path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    private, public = generate(tmp_path_factory.mktemp("keys") / "signer.pem")
    return Keys(load_private(private), public)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    private, public = generate(tmp_path_factory.mktemp("keys") / "other.pem")
    return Keys(load_private(private), public)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Path:
    return build_artifact(tmp_path_factory.mktemp("template") / "linear.aotc", keys.private)


@pytest.fixture
def artifact(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "linear.aotc"))


def reasons(report: VerifyReport) -> list[tuple[str, str]]:
    return [(refusal.code, refusal.where) for refusal in report.refusals]


def statuses(report: VerifyReport) -> list[str]:
    return [step.status for step in report.steps]


def weights_of(artifact: Path) -> Path:
    return next(artifact.rglob("weights.bin"))


def test_a_good_artifact_is_optimal(artifact: Path, keys: Keys) -> None:
    report = verify(artifact, key=keys.public)
    assert report.authentic
    assert report.verdict == "optimal"
    assert report.refusals == ()
    assert report.signers == (keys.private.key_id,)
    assert not report.development_key
    assert [step.step for step in report.steps] == list(gate.STEPS)
    assert statuses(report) == [*["passed"] * 6, "not-run", "passed", "passed"]
    assert report.steps[6].detail == "no policy"
    assert report.steps[8].detail == "optimal: native"
    assert report.artifact_id == payload_digests(artifact)["aotc.json"]
    assert report.hashed_bytes == sum(
        path.stat().st_size for path in (artifact / "payload").rglob("*") if path.is_file()
    )
    json.dumps(encode(report))


@settings(
    max_examples=200,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_flipped_bit_in_any_file_is_refused(
    data: st.DataObject, template: Path, keys: Keys
) -> None:
    files = sorted(path for path in template.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    good = path.read_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        path.write_bytes(bad)
        report = verify(template, key=keys.public)
    finally:
        path.write_bytes(good)
    where = path.relative_to(template).as_posix()
    assert not report.authentic
    assert report.verdict == "unverified"
    found = [refusal for refusal in report.refusals if refusal.where == where]
    if where.startswith("payload/"):
        assert "AOTC-G005" in {refusal.code for refusal in found}
    else:
        assert {refusal.code for refusal in found} <= {"AOTC-G002", "AOTC-G003", "AOTC-G004"}
        assert found


def _flip(artifact: Path) -> None:
    path = weights_of(artifact)
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)


def _truncate(artifact: Path) -> None:
    os.truncate(weights_of(artifact), 10)


def _append(artifact: Path) -> None:
    with weights_of(artifact).open("ab") as file:
        file.write(b"x")


def _remove(artifact: Path) -> None:
    (artifact / "payload/model/portable/model.onnx").unlink()


def _remove_aotc_json(artifact: Path) -> None:
    (artifact / "payload/aotc.json").unlink()


def _extra(artifact: Path) -> None:
    (artifact / "payload/fixtures/more.npy").write_bytes(b"x")


def _extra_outside(artifact: Path) -> None:
    (artifact / "setup.sh").write_bytes(b"x")


def _extra_attestation(artifact: Path) -> None:
    (artifact / "attestations/notes.txt").write_bytes(b"x")


def _empty_folder(artifact: Path) -> None:
    (artifact / "payload/shared_assets/sha256-0").mkdir()


def _rename(artifact: Path) -> None:
    (artifact / "payload/fixtures/opt/x.npy").rename(artifact / "payload/fixtures/opt/z.npy")


def _symlink(artifact: Path) -> None:
    path = artifact / "payload/manifest.json"
    path.rename(artifact.parent / "manifest.json")
    path.symlink_to(artifact.parent / "manifest.json")


def _symlinked_folder(artifact: Path) -> None:
    path = artifact / "payload/fixtures"
    path.rename(artifact.parent / "fixtures")
    path.symlink_to(artifact.parent / "fixtures")


def _hardlink(artifact: Path) -> None:
    os.link(artifact / "payload/manifest.json", artifact.parent / "elsewhere")


def _fifo(artifact: Path) -> None:
    path = artifact / "payload/manifest.json"
    path.unlink()
    os.mkfifo(path)


def _backslash(artifact: Path) -> None:
    (artifact / "payload/a\\b").write_bytes(b"x")


def _unsigned(artifact: Path) -> None:
    shutil.rmtree(artifact / "attestations")


def _only_evidence(artifact: Path) -> None:
    (artifact / "attestations/oms.sigstore.json").unlink()


def _not_json(artifact: Path) -> None:
    (artifact / "attestations/oms.sigstore.json").write_bytes(b"\x00\x01")


def _two_signatures_in_one(artifact: Path) -> None:
    path = artifact / "attestations/oms.sigstore.json"
    bundle = json.loads(path.read_bytes())
    bundle["dsseEnvelope"]["signatures"] *= 2
    path.write_bytes(canonical_json(bundle))


def _no_payload(artifact: Path) -> None:
    shutil.rmtree(artifact / "payload")


WEIGHTS = "payload/shared_assets/"
OMS = "attestations/oms.sigstore.json"
TAMPERS: list[tuple[Callable[[Path], None], list[tuple[str, str]]]] = [
    (_flip, [("AOTC-G005", WEIGHTS)]),
    (_truncate, [("AOTC-G005", WEIGHTS)]),
    (_append, [("AOTC-G005", WEIGHTS)]),
    (
        _remove,
        [
            ("AOTC-G006", "payload/model/portable/model.onnx"),
        ],
    ),
    (_remove_aotc_json, [("AOTC-G006", "payload/aotc.json")]),
    (_extra, [("AOTC-G007", "payload/fixtures/more.npy")]),
    (_extra_outside, [("AOTC-G007", "setup.sh")]),
    (_extra_attestation, [("AOTC-G007", "attestations/notes.txt")]),
    (_empty_folder, [("AOTC-G007", "payload/shared_assets/sha256-0")]),
    (
        _rename,
        [
            ("AOTC-G006", "payload/fixtures/opt/x.npy"),
            ("AOTC-G007", "payload/fixtures/opt/z.npy"),
        ],
    ),
    (_symlink, [("AOTC-G008", "payload/manifest.json")]),
    (
        _symlinked_folder,
        [
            ("AOTC-G008", "payload/fixtures"),
            ("AOTC-G006", "payload/fixtures/opt/x.npy"),
            ("AOTC-G006", "payload/fixtures/opt/y.npy"),
        ],
    ),
    (_hardlink, [("AOTC-G008", "payload/manifest.json")]),
    (_fifo, [("AOTC-G008", "payload/manifest.json")]),
    (_backslash, [("AOTC-G007", "'payload/a\\\\b'")]),
    (_unsigned, [("AOTC-G001", "attestations")]),
    (_only_evidence, [("AOTC-G001", "attestations")]),
    (_not_json, [("AOTC-G004", OMS)]),
    (_two_signatures_in_one, [("AOTC-G004", OMS)]),
    (_no_payload, [("AOTC-G015", "")]),
]


@pytest.mark.parametrize(
    ("tamper", "wanted"), TAMPERS, ids=lambda each: getattr(each, "__name__", "")
)
def test_tampering_has_its_code(
    tamper: Callable[[Path], None], wanted: list[tuple[str, str]], artifact: Path, keys: Keys
) -> None:
    tamper(artifact)
    report = verify(artifact, key=keys.public)
    assert not report.authentic
    assert report.verdict == "unverified"
    assert len(report.steps) == 9
    found = reasons(report)
    assert [code for code, _ in found] == [code for code, _ in wanted]
    for (_, where), (_, start) in zip(found, wanted, strict=True):
        assert where.startswith(start)
    with pytest.raises(AotcError) as caught, FolderContainer(artifact) as opened:
        authenticate(opened, load_public(keys.public))
    assert caught.value.code == wanted[0][0]


def test_every_reason_is_listed_and_no_later_step_is_reported_as_done(
    artifact: Path, keys: Keys, other: Keys
) -> None:
    _flip(artifact)
    _extra(artifact)
    _remove(artifact)
    report = verify(artifact, key=other.public)
    # Finding a flipped byte takes a read, and no trusted signer lists this file.
    assert [code for code, _ in reasons(report)] == ["AOTC-G002", "AOTC-G006", "AOTC-G007"]
    assert statuses(report) == [
        "passed", "passed", "failed", "failed", "failed", *["not-run"] * 4,
    ]  # fmt: skip
    assert (
        report.steps[1].detail == "bundles only: there is no trusted signature over the manifests"
    )
    assert report.steps[3].detail == (
        "1 refused; no file was hashed: there is no trusted signature"
    )
    assert report.hashed_bytes == 0
    assert report.signers == ()
    assert report.refusals[0].expected == other.private.key_id
    assert report.refusals[0].found == keys.private.key_id


def test_files_signed_by_an_unknown_key_are_not_trusted(artifact: Path, other: Keys) -> None:
    report = verify(artifact, key=other.public)
    assert reasons(report) == [("AOTC-G002", OMS)]
    assert statuses(report)[2:] == ["failed", *["not-run"] * 6]


def test_loading_reads_no_large_file_for_an_unknown_signer(
    artifact: Path, other: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = FolderContainer.open
    monkeypatch.setattr(
        FolderContainer, "open", lambda self, path: opened.append(path) or original(self, path)
    )
    with pytest.raises(AotcError) as caught, FolderContainer(artifact) as held:
        authenticate(held, load_public(other.public))
    assert caught.value.code == "AOTC-G002"
    assert not [path for path in opened if path.endswith((".bin", ".onnx", ".npy"))]


def test_any_trusted_signature_suffices(artifact: Path, keys: Keys, other: Keys) -> None:
    name = f"oms-{other.private.key_id}.sigstore.json"
    (artifact / "attestations" / name).write_bytes(
        oms.sign(payload_digests(artifact), other.private)
    )
    report = verify(artifact, key=other.public)
    assert report.authentic
    assert report.signers == (other.private.key_id,)
    assert [(finding.code, finding.where) for finding in report.findings] == [
        ("AOTC-G018", "attestations/evidence.sigstore.json"),
        ("AOTC-G018", OMS),
    ]
    both = artifact.parent / "both.pub"
    both.write_text(keys.public.read_text() + other.public.read_text())
    assert len(verify(artifact, trust=both).signers) == 2


def test_a_signature_under_the_name_of_another_key_is_refused(artifact: Path, keys: Keys) -> None:
    path = artifact / OMS
    bundle = json.loads(path.read_bytes())
    bundle["verificationMaterial"]["publicKey"]["hint"] = "0" * 64
    path.write_bytes(canonical_json(bundle))
    report = verify(artifact, key=keys.public)
    assert reasons(report) == [("AOTC-G003", OMS)]


def test_no_trust_is_no_success(
    artifact: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty"))
    report = verify(artifact)
    assert reasons(report) == [("AOTC-G002", OMS)]
    assert report.refusals[0].what == "no key is trusted"


def test_an_attestation_about_another_artifact_is_refused(artifact: Path, keys: Keys) -> None:
    (artifact / "attestations/evidence.sigstore.json").write_bytes(
        statements.sign("urn:aotc:evidence:v1", {}, {"aotc.json": "0" * 64}, keys.private)
    )
    report = verify(artifact, key=keys.public)
    assert reasons(report) == [("AOTC-G014", "attestations/evidence.sigstore.json")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"schema": "aotc.manifest/1.1", "schema": "x"}', "schema: duplicate key"),
        (b'{"schema": NaN}', "(top): NaN is not JSON"),
        (b'{"schema": 1e999}', "(top): number 1e999 is out of range"),
        (b'{"schema": "x"', "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'\xef\xbb\xbf{"schema": "x"}', "not JSON"),
    ],
)
def test_ambiguous_json_is_refused_though_signed(
    text: bytes, found: str, artifact: Path, keys: Keys
) -> None:
    (artifact / "payload/aotc.json").write_bytes(text)
    sign_artifact(artifact, keys.private)
    report = verify(artifact, key=keys.public)
    assert reasons(report) == [("AOTC-G009", "payload/aotc.json")]
    assert found in report.refusals[0].found
    assert statuses(report)[1] == "failed"
    assert statuses(report)[5:] == ["not-run"] * 4


@pytest.mark.parametrize(
    ("change", "code", "found"),
    [
        ({"schema": "aotc.manifest/2.0"}, "AOTC-G010", "aotc.manifest/2.0"),
        ({"schema": "other"}, "AOTC-G009", "schema: is not like aotc.manifest/1.0"),
        ({"required_features": ["shape-routing", "magic"]}, "AOTC-G011", "magic"),
        ({"colour": "red"}, "AOTC-G009", "colour: unknown field"),
        ({"name": "x" * 256}, "AOTC-G009", "name: 256 is more than 255"),
        ({"name": "a\nb"}, "AOTC-G009", "name: 'a\\nb' does not match"),
        ({"variants": []}, "AOTC-G009", "variants: 0 is less than 1"),
        ({"files": []}, "AOTC-G009", "is not among files"),
    ],
)
def test_a_bad_manifest_is_refused_though_signed(
    change: dict[str, object], code: str, found: str, tmp_path: Path, keys: Keys
) -> None:
    artifact = build_artifact(tmp_path / "a.aotc", keys.private, change=change)
    report = verify(artifact, key=keys.public)
    assert {refusal.code for refusal in report.refusals} == {code}
    assert found in report.refusals[0].found
    assert statuses(report)[5] == "failed"


@pytest.mark.parametrize(
    ("provider", "option"),
    [
        ("TensorrtExecutionProvider", {"trt_extra_plugin_lib_paths": "/tmp/evil.so"}),
        ("CPUExecutionProvider", {"use_arena": "1"}),
        ("OpenVINOExecutionProvider", {"load_config": '{"CPU":{"CACHE_DIR":"/tmp"}}'}),
    ],
)
def test_provider_options_that_no_artifact_may_have(
    provider: str, option: dict[str, str], artifact: Path, tmp_path: Path, keys: Keys
) -> None:
    variants = json.loads((artifact / "payload/aotc.json").read_bytes())["variants"]
    variants[0]["session"]["provider_options"] = {provider: option}
    made = build_artifact(tmp_path / "a.aotc", keys.private, change={"variants": variants})
    report = verify(made, key=keys.public)
    assert not report.authentic
    (key,) = option
    place = f"variants[0].session.provider_options.{provider}.{key}"
    assert any(
        refusal.code == "AOTC-G014" and place in refusal.where + refusal.found
        for refusal in report.refusals
    )


def test_a_newer_minor_version_is_a_finding(tmp_path: Path, keys: Keys) -> None:
    change = {"schema": "aotc.manifest/1.7", "colour": "red"}
    artifact = build_artifact(tmp_path / "a.aotc", keys.private, change=change)
    report = verify(artifact, key=keys.public)
    assert report.authentic
    assert [finding.code for finding in report.findings] == ["AOTC-G017"]


def _edit_package(
    edit: Callable[[dict[str, object]], None], artifact: Path, key: PrivateKey
) -> None:
    """Change manifest.json and keep every digest correct."""
    path = artifact / "payload/manifest.json"
    package = json.loads(path.read_bytes())
    edit(package)
    path.write_bytes(canonical_json(package))
    manifest = json.loads((artifact / "payload/aotc.json").read_bytes())
    for entry in manifest["files"]:
        if entry["path"] == "manifest.json":
            entry["size"] = path.stat().st_size
            entry["sha256"] = payload_digests(artifact)["manifest.json"]
    (artifact / "payload/aotc.json").write_bytes(canonical_json(manifest))
    sign_artifact(artifact, key)


def _portable(package: dict[str, object]) -> dict[str, object]:
    return package["components"]["model"]["variants"]["portable"]  # type: ignore[index,no-any-return]


@pytest.mark.parametrize(
    ("edit", "where", "found"),
    [
        (
            lambda p: _portable(p)["executor_info"]["ort"].update(provider_options={"x": "y"}),
            "provider_options.x",
            "is not promised",
        ),
        (
            lambda p: _portable(p)["executor_info"]["ort"]["session_options"].update(a="b"),
            "session_options.a",
            "is not promised",
        ),
        (
            lambda p: _portable(p)["executor_info"]["ort"].pop("session_options"),
            "session_options.session.graph_optimization_level",
            "is not enable_all",
        ),
        (
            lambda p: _portable(p)["executor_info"]["ort"].update(model_file="../evil.onnx"),
            "model_file",
            "model/portable/../evil.onnx is not model/portable/model.onnx",
        ),
        (lambda p: _portable(p).update(ep="CUDAExecutionProvider"), ".ep", "is not CPU"),
        (lambda p: _portable(p).update(executor_info={"ort": "info.json"}), "executor", "inline"),
        (lambda p: p["components"].update(more={"variants": {"v": {}}}), "more", "not in aotc"),
        (lambda p: p["components"].update(more="folder"), "components.more", "is not inline"),
        (lambda p: p["components"].pop("model"), "components.model", "has no variant portable"),
        (lambda p: p.update(layout="installed"), "layout", "is not portable"),
        (lambda p: p.update(surprise=1), "surprise", "is unknown"),
        (lambda p: p.update(shared_assets={"sha256:0": "/etc"}), "shared_assets", "moves"),
    ],
)
def test_ort_manifest_may_say_nothing_that_ours_does_not(
    edit: Callable[[dict[str, object]], None], where: str, found: str, artifact: Path, keys: Keys
) -> None:
    _edit_package(edit, artifact, keys.private)
    report = verify(artifact, key=keys.public)
    assert {refusal.code for refusal in report.refusals} == {"AOTC-G014"}
    assert any(where in each.where and found in each.found for each in report.refusals)
    assert statuses(report) == [*["passed"] * 5, "failed", *["not-run"] * 3]


def test_a_signed_file_that_the_manifest_does_not_list_is_refused(
    artifact: Path, keys: Keys
) -> None:
    _extra(artifact)
    sign_artifact(artifact, keys.private)
    report = verify(artifact, key=keys.public)
    assert reasons(report) == [("AOTC-G014", "fixtures/more.npy")]


def test_limits(artifact: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_ENTRIES", 5)
    report = verify(artifact, key=keys.public)
    assert [refusal.code for refusal in report.refusals] == ["AOTC-G012"]
    assert statuses(report) == ["failed", *["not-run"] * 8]
    monkeypatch.undo()
    # What is refused for another reason counts as well.
    shutil.copytree(artifact, links := artifact.with_name("links"))
    for number in range(40):
        (links / f"l{number}").symlink_to("x")
        (links / f"\\{number}").write_bytes(b"")
    monkeypatch.setattr(container, "MAX_ENTRIES", 50)
    codes = [each.code for each in verify(links, key=keys.public).refusals]
    assert len(codes) <= 51
    assert "AOTC-G012" in codes
    monkeypatch.undo()
    deep = artifact / "payload" / "/".join("abcdefghij")
    deep.mkdir(parents=True)
    assert "AOTC-G012" in {each.code for each in verify(artifact, key=keys.public).refusals}


def test_arguments_that_cannot_be_used_raise(artifact: Path, keys: Keys, tmp_path: Path) -> None:
    for arguments, code in [
        ({"key": tmp_path / "none.pub"}, "AOTC-I001"),
        ({"key": artifact / "payload/aotc.json"}, "AOTC-I023"),
        ({"trust": artifact / "payload/aotc.json"}, "AOTC-G013"),
    ]:
        with pytest.raises(AotcError) as caught:
            verify(artifact, **arguments)
        assert caught.value.code == code
    with pytest.raises(AotcError) as caught:
        verify(tmp_path / "none.aotc", key=keys.public)
    assert caught.value.code == "AOTC-I001"
    file = tmp_path / "file.aotc"
    file.write_bytes(b"x")
    assert reasons(verify(file, key=keys.public)) == [("AOTC-G015", str(file))]


def test_a_large_file_is_checked_by_its_chunks(tmp_path: Path, keys: Keys) -> None:
    artifact = build_artifact(tmp_path / "a.aotc", keys.private, padding=CHUNK_BYTES + 1000)
    assert verify(artifact, key=keys.public).authentic
    size = weights_of(artifact).stat().st_size
    plain, full = verify(artifact, key=keys.public), verify(artifact, key=keys.public, full=True)
    assert full.authentic
    assert full.hashed_bytes == plain.hashed_bytes + size
    with weights_of(artifact).open("r+b") as file:
        file.seek(size - 1)
        last = file.read(1)
        file.seek(size - 1)
        file.write(bytes([last[0] ^ 1]))
    report = verify(artifact, key=keys.public)
    assert [refusal.code for refusal in report.refusals] == ["AOTC-G005"]
    assert report.refusals[0].expected.endswith(f"from byte {CHUNK_BYTES}")


def test_verdicts(tmp_path: Path, keys: Keys) -> None:
    host = probe(gpus=False)
    trust = load_public(keys.public)
    artifact = build_artifact(tmp_path / "a.aotc", keys.private)
    with FolderContainer(artifact) as opened:
        authentic = authenticate(opened, trust)
    assert check_compatibility(authentic, host).best == "native"
    weaker = dataclasses.replace(host, isa=(host.isa or ())[:1])
    compatible = check_compatibility(authentic, weaker)
    assert (compatible.best, compatible.verdict) == ("portable", "degraded")
    assert [finding.code for finding in compatible.findings] == ["AOTC-C010"]
    assert [reason.code for variant in compatible.variants for reason in variant.reasons] == [
        "AOTC-C004"
    ]
    foreign = dataclasses.replace(host, os="darwin", architecture="sparc")
    with pytest.raises(AotcError) as caught:
        check_compatibility(authentic, foreign)
    assert caught.value.code == "AOTC-C009"
    assert [error.code for error in caught.value.also][:2] == ["AOTC-C001", "AOTC-C002"]


def test_an_unproven_variant_is_degraded(tmp_path: Path, keys: Keys) -> None:
    parity = Parity(status="not-run", reason="no GPU on the build host")
    artifact = build_artifact(tmp_path / "a.aotc", keys.private, native=False, parity=parity)
    report = verify(artifact, key=keys.public)
    assert (report.verdict, report.best) == ("degraded", "portable")
    assert [variant.unproven for variant in report.variants] == ["no GPU on the build host"]
    assert report.findings[0].what == (
        "portable was not proven: no GPU on the build host; "
        "on the device, 'aotc attest a.aotc --qualify' proves it"
    )
    gates = {gate.name: gate for gate in verified_gates(report)}
    assert "7 policy" not in gates
    proof = gates["proof"]
    assert (proof.subject, proof.status) == ("variant portable", "not-judged")
    assert proof.measured == "not proven: no GPU on the build host"


def test_without_a_target_authenticity_is_the_question(tmp_path: Path, keys: Keys) -> None:
    """No host is judged, so nothing is said of one, whatever the artifact needs."""
    artifact = build_artifact(
        tmp_path / "a.aotc",
        keys.private,
        requirements={"onnxruntime_min": "99", "onnxruntime_below": "100"},
    )
    report = verify(artifact, key=keys.public, target="none")
    assert (report.ok, report.authentic, report.verdict) == (True, True, "authentic")
    assert (report.target, report.best, report.variants) == ("none", "", ())
    assert statuses(report) == [*["passed"] * 6, "not-run", "not-run", "passed"]
    assert report.steps[7].detail == "not asked; --target host asks, or --target NAME"
    assert verified_breaches(report) == ()
    gates = {gate.name: gate.status for gate in verified_gates(report)}
    assert gates["8 host compatibility"] == "not-judged"
    asked = verify(artifact, key=keys.public)
    assert (asked.ok, asked.target, asked.verdict) == (False, "host", "incompatible")
    _flip(artifact)
    changed = verify(artifact, key=keys.public, target="none")
    assert (changed.ok, changed.verdict) == (False, "unverified")
    # A gate is there or not whatever the outcome.
    assert [gate.name for gate in verified_gates(changed)] == list(gates)


def test_incompatible_lists_the_reasons(tmp_path: Path, keys: Keys) -> None:
    artifact = build_artifact(
        tmp_path / "a.aotc",
        keys.private,
        requirements={"onnxruntime_min": "99", "onnxruntime_below": "100"},
    )
    report = verify(artifact, key=keys.public)
    assert report.authentic
    assert report.verdict == "incompatible"
    assert reasons(report) == [
        ("AOTC-C009", "target host"),
        ("AOTC-C005", "variant portable"),
        ("AOTC-C005", "variant native"),
    ]
    assert report.refusals[1].fix == 'pip install "onnxruntime>=99,<100"'
    assert statuses(report) == [*["passed"] * 6, "not-run", "failed", "failed"]


def test_the_fallback_for_systems_without_openat_refuses_links_too(
    artifact: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_BY_DESCRIPTOR", False)
    assert verify(artifact, key=keys.public).authentic
    _symlinked_folder(artifact)
    assert reasons(verify(artifact, key=keys.public))[0] == ("AOTC-G008", "payload/fixtures")
    with FolderContainer(artifact) as opened, pytest.raises(AotcError) as caught:
        opened.open("payload/fixtures/opt/x.npy")
    assert caught.value.code == "AOTC-G008"


def test_a_folder_swapped_for_a_link_is_not_followed(artifact: Path) -> None:
    with FolderContainer(artifact) as opened:
        opened.listing()
        _symlinked_folder(artifact)
        with pytest.raises(AotcError) as caught:
            opened.open("payload/fixtures/opt/x.npy")
    assert caught.value.code == "AOTC-G008"


def test_verifying_imports_no_array_or_model_library(artifact: Path, keys: Keys) -> None:
    program = (
        "import sys; from aotc.trust.gate import verify; "
        "report = verify(sys.argv[1], key=sys.argv[2]); assert report.authentic; "
        "print(sorted({'onnx', 'onnxruntime', 'numpy', 'typer', 'rich', 'yaml', 'rfc8785'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(artifact), str(keys.public)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(gate.__file__).parents[2])},
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


class Vanishing(FolderContainer):
    """A folder from which a file is removed as soon as it was listed."""

    removed = ""

    def listing(self, folder: str = "") -> container.Listing:
        """The listing, with the file that is no longer there."""
        found = super().listing(folder)
        (self.root / self.removed).unlink(missing_ok=True)
        return found


def test_an_attestation_removed_while_it_is_read_counts_as_absent(
    artifact: Path, keys: Keys
) -> None:
    """As when another one replaces it at a mount point, where nothing can be renamed."""
    held = artifact / "attestations"
    shutil.copyfile(held / "oms.sigstore.json", held / "oms-again.sigstore.json")
    trust = load_public(keys.public)
    with Vanishing(artifact) as source:
        source.removed = "attestations/oms-again.sigstore.json"
        assert authenticate(source, trust).id == payload_digests(artifact)["aotc.json"]
    with Vanishing(artifact) as source, pytest.raises(AotcError) as caught:
        source.removed = "attestations/oms.sigstore.json"
        authenticate(source, trust)
    assert caught.value.code == "AOTC-G001"
