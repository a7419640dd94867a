"""OpenVINO from profile to answers: compiled parts, promises, and refusals."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino_models as models
import pytest
from file_bytes import flip_bit
from made_profiles import profile_with
from model_parts import info
from repository import ROOT
from shared_workers import build
from third_party_models import MODELS, needs_models
from workbench import (
    Built,
    Workbench,
    assert_agree,
    only_variant,
    plain_answer,
    plain_session,
    tolerance_of,
)

from aotc import load, verify
from aotc.base.errors import AotcError
from aotc.host.probe import probe
from aotc.runtime.model import Model
from aotc.spec.codec import encode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.manifest import AcceptedWaiver, Manifest, provider_options, session_options
from aotc.spec.payload import FileEntry
from aotc.spec.profile import Profile
from aotc.spec.variant import Variant
from aotc.trust import key_files, oms
from aotc.trust.key_loading import load_private

pytestmark = pytest.mark.openvino
CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
AOTC = Path(sys.executable).with_name("aotc")
# The boundaries of such small models always cost more than they gain.
KEEP_PARTS = {"partitioning": {"weigh_boundaries": False}}
# Keeps runs short: eight rows prove as much as many.
FEW = {"dims": {"batch": "1..8"}}


def profile(**fields: Any) -> Profile:
    """`edge-openvino` with other fields; partitions are kept however small they are."""
    return profile_with("edge-openvino", **{**KEEP_PARTS, **FEW, **fields})


@pytest.fixture(scope="module")
def plain(bench: Workbench) -> Built:
    return bench.build(models.plain(), "plain", profile=profile())


@pytest.fixture(scope="module")
def divided(bench: Workbench) -> Built:
    return bench.build(models.divided(), "divided", profile=profile())


@pytest.fixture(scope="module")
def bucketed(bench: Workbench) -> Built:
    return bench.build(
        models.plain(256), "bucketed", profile=profile(dims={"batch": {"buckets": [1, 4, 8]}})
    )


def x_of(built: Built, batch: int = 3) -> dict[str, Any]:
    return built.inputs({"batch": batch})


def assert_answers(bench: Workbench, built: Built, inputs: Mapping[str, Any]) -> None:
    """Loaded, it gives what the source model gives."""
    expected = plain_answer(plain_session(built.source), inputs)
    name = built.manifest.variants[0].name
    with bench.load(built) as model:
        assert_agree(expected, dict(model.run(inputs)), tolerance_of(built, name), built.path.name)


def codes_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(AotcError) as caught:
        call()
    return [caught.value.code, *(error.code for error in caught.value.also)]


# Everything that it claims is compiled.


def test_a_model_that_it_takes_is_one_compiled_part(bench: Workbench, plain: Built) -> None:
    variant = only_variant(plain)
    assert variant.providers == (OPENVINO,)
    assert variant.placement.origin == "observed"
    assert variant.placement.share == {OPENVINO: 1.0}
    assert variant.partitioning is not None
    (part,) = variant.partitioning.partitions
    assert (part.provider, part.nodes, part.compiled) == (OPENVINO, 4, True)
    assert variant.partitioning.alternations == 0
    assert variant.transfers.count == 0
    assert [node.op_type for node in plain.nodes()] == ["EPContext"]
    roles = {entry.role: entry for entry in plain.manifest.files}
    assert roles["ep-context"].path in variant.files
    assert variant.parity.status == "passed"
    assert_answers(bench, plain, x_of(plain))


def test_what_a_host_must_have_is_stated(plain: Built) -> None:
    needs = only_variant(plain).requirements
    (plugin,) = needs.plugins
    assert (plugin.name, plugin.provider) == ("onnxruntime-ep-openvino", OPENVINO)
    assert plugin.version and plugin.sha256
    assert needs.compatibility[OPENVINO]
    assert OPENVINO in needs.providers


def test_the_manifest_says_how_exactly_it_computes(plain: Built) -> None:
    options = only_variant(plain).session.provider_options[OPENVINO]
    assert json.loads(options["load_config"])["CPU"]["INFERENCE_PRECISION_HINT"] == "f32"
    assert only_variant(plain).precision == "keep"
    assert only_variant(plain).parity.arithmetic == "float32"


def test_no_path_of_this_machine_is_in_the_payload(
    bench: Workbench, plain: Built, divided: Built
) -> None:
    for built in (plain, divided):
        for file in built.payload.rglob("*"):
            if file.is_file():
                data = file.read_bytes()
                for word in (str(bench.folder), str(Path.home()), "/site-packages/"):
                    assert word.encode() not in data, f"{word} in {file.name}"


def test_equal_builds_give_equal_bytes(bench: Workbench, divided: Built, plain: Built) -> None:
    for built, name in ((divided, "divided"), (plain, "plain")):
        folder = bench.folder / f"again-{name}"
        folder.mkdir()
        source = folder / built.source.name
        shutil.copyfile(built.source, source)
        again = build(source, output=folder / "other.aotc", key=bench.private, profile=profile())
        assert again.artifact_id == built.report.artifact_id


# A node that it refuses makes a boundary.


def test_a_refused_node_in_the_middle_makes_three_parts(bench: Workbench, divided: Built) -> None:
    variant = only_variant(divided)
    report = variant.partitioning
    assert report is not None
    assert [(part.provider, part.nodes) for part in report.partitions] == [
        (OPENVINO, 2), (CPU, 1), (OPENVINO, 2),
    ]  # fmt: skip
    assert [node.op_type for node in divided.nodes()] == ["EPContext", "Trilu", "EPContext"]
    (refusal,) = report.refusals
    assert (refusal.node, refusal.op, refusal.provider) == (
        "odd0", "com.microsoft::Trilu", OPENVINO,
    )  # fmt: skip
    assert "Trilu" in refusal.reason
    assert report.alternations == 2
    assert {provider.provider: provider.nodes for provider in report.providers} == {
        OPENVINO: 4,
        CPU: 1,
    }
    placed = {node.name: node.provider for node in variant.placement.nodes}
    assert placed["odd0"] == CPU and sum(p == OPENVINO for p in placed.values()) == 2
    assert_answers(bench, divided, x_of(divided, 5))


def test_transfers_are_counted_in_bytes(divided: Built) -> None:
    """[batch, 4, 32] floats to the CPU and back; the domain's maximum batch is 8."""
    variant = only_variant(divided)
    report = variant.partitioning
    assert report is not None
    one, maximum = 4 * models.ROWS * models.WIDTH, 8
    opt = divided.manifest.domain.corner("opt")["batch"]
    assert [
        (c.value, c.source, c.target, c.dtype, c.bytes, c.bytes_max) for c in report.transfers
    ] == [
        ("a0", OPENVINO, CPU, "float", opt * one, maximum * one),
        ("t0", CPU, OPENVINO, "float", opt * one, maximum * one),
    ]
    sums = variant.transfers
    assert (sums.count, sums.bytes, sums.bytes_max) == (2, 2 * opt * one, 2 * maximum * one)


def test_copies_at_boundaries_stand_in_the_plan(divided: Built) -> None:
    """OpenVINO's memory is not planned; what it takes from the CPU and gives to it is known."""
    plan = divided.report.variants[0].planned
    assert plan is not None
    assert (plan.elsewhere, plan.device, plan.at) == (True, None, ())
    one, opt = 4 * models.ROWS * models.WIDTH, divided.manifest.domain.corner("opt")["batch"]
    assert [
        (each.sizes["batch"], each.source, each.target, each.values, each.bytes, each.unknown)
        for each in plan.copies
    ] == [
        (size, *sides, 1, size * one, 0)
        for size in (opt, 8)
        for sides in ((OPENVINO, CPU), (CPU, OPENVINO))
    ]


def test_shares_of_compute_are_by_operations(divided: Built) -> None:
    """Two products and two tanh for OpenVINO, one pass over the elements for the CPU."""
    report = only_variant(divided).partitioning
    assert report is not None
    elements = models.ROWS * models.WIDTH * divided.manifest.domain.corner("opt")["batch"]
    theirs, ours = 2 * elements * (2 * models.WIDTH + 1), elements
    shares = {provider.provider: provider for provider in report.providers}
    assert shares[OPENVINO].opt.flops == theirs
    assert shares[CPU].opt.flops == ours
    assert shares[CPU].flops_share == round(ours / (ours + theirs), 4)
    assert sum(provider.opt.unknown + provider.max.unknown for provider in report.providers) == 0


def test_many_parts_are_in_one_file(bench: Workbench) -> None:
    built = bench.build(models.divided(5), "many", profile=profile())
    assert sum(node.op_type == "EPContext" for node in built.nodes()) == 6
    assert sum(entry.role == "ep-context" for entry in built.manifest.files) == 1
    assert_answers(bench, built, x_of(built))


def test_small_parts_go_to_the_neighbour(bench: Workbench) -> None:
    few = profile(partitioning={"weigh_boundaries": False, "min_nodes": 3})
    cheap = profile(partitioning={"weigh_boundaries": True})
    for name, spec, why in (("few", few, "fewer than 3"), ("cheap", cheap, "cost more")):
        built = bench.build(models.divided(), name, profile=spec)
        variant = only_variant(built)
        assert variant.providers == (CPU,)
        assert variant.requirements.plugins == ()
        assert variant.partitioning is not None
        reasons = {refusal.node: refusal.reason for refusal in variant.partitioning.refusals}
        assert why in reasons["a0_product"]
        assert variant.placement.share == {CPU: 1.0}


def test_a_part_with_constants_of_its_own_and_one_without(bench: Workbench) -> None:
    """Parts compiled with shared weights and parts compiled without load together."""
    shape = ["batch", models.ROWS, models.WIDTH]
    model = models.model_of(
        [
            onnx.helper.make_node("Tanh", ["x"], ["h"], name="bare_tanh"),
            onnx.helper.make_node("Exp", ["h"], ["e"], name="bare_exp"),
            models.refused("e", "t", "odd"),
            *models.dense("t", "w", "y"),
        ],
        [info("x", shape)],
        [info("y", shape)],
        [models.weight("w", models.WIDTH, models.WIDTH)],
    )
    built = bench.build(model, "mixed", profile=profile())
    assert sum(node.op_type == "EPContext" for node in built.nodes()) == 2
    assert_answers(bench, built, x_of(built))


def test_control_flow_that_it_refuses_keeps_its_constants(bench: Workbench) -> None:
    """Subgraphs on the CPU between two parts are the only consumers of some constants."""
    built = bench.build(models.branching(), "branching", profile=profile())
    variant = only_variant(built)
    report = variant.partitioning
    assert report is not None
    assert any(part.compiled for part in report.partitions)
    placed = {node.name: node.provider for node in variant.placement.nodes}
    assert placed["choice"] == placed["then_odd"] == CPU
    inputs = x_of(built)
    for sign in (1.0, -1.0):
        assert_answers(bench, built, {"x": sign * np.abs(inputs["x"])})


def test_buckets_share_their_weights(bench: Workbench, bucketed: Built) -> None:
    """Every variant is compiled for its size, and the constants are stored once."""
    static = [variant for variant in bucketed.manifest.variants if variant.buckets]
    assert sorted(variant.buckets["batch"] for variant in static) == [1, 4, 8]
    assert len({variant.weights for variant in static}) == 1
    one = bench.build(models.plain(256), "one-bucket", profile=profile(dims={"batch": 8}))
    constants = 2 * 4 * 256 * 256
    alone, all_ = (sum(e.size for e in b.manifest.files) for b in (one, bucketed))
    assert alone >= constants
    assert all_ - alone < constants
    for batch in (1, 4, 8):
        assert_answers(bench, bucketed, x_of(bucketed, batch))


# The profile decides on precision.


def test_bfloat16_is_held_to_its_own_tolerance(bench: Workbench) -> None:
    if "avx512_bf16" not in (probe(gpus=False).isa or ()):
        pytest.skip("this CPU has no avx512_bf16, which bfloat16 requires")
    built = bench.build(models.plain(), "bf16", profile=profile(precision="bfloat16"))
    variant = only_variant(built)
    assert (variant.precision, variant.parity.arithmetic) == ("bfloat16", "bfloat16")
    assert variant.parity.tolerance == profile().parity.bfloat16
    assert "avx512_bf16" in variant.requirements.isa
    options = json.loads(variant.session.provider_options[OPENVINO]["load_config"])
    assert options["CPU"]["INFERENCE_PRECISION_HINT"] == "bf16"
    assert_answers(bench, built, x_of(built))
    inputs = x_of(built)
    expected = plain_answer(plain_session(built.source), inputs)["y"]
    with bench.load(built) as model:
        error = float(np.abs(model.run(inputs)["y"] - expected).max())
    # With f32 it would be a thousand times smaller: the precision has an effect.
    assert error > 1e-5


def test_a_precision_that_it_lacks_is_refused(bench: Workbench) -> None:
    codes = codes_of(lambda: bench.build(models.plain(), "tf32", profile=profile(precision="tf32")))
    assert codes == ["AOTC-N008"]
    assert not (bench.folder / "tf32.aotc").exists()


# Promises of the manifest are checked at load.


def reforged(
    built: Built, folder: Path, change: Callable[[Manifest], Manifest]
) -> tuple[Path, Path]:
    """A copy with another manifest, signed by another key; and that key's public part.

    Files changed in the copy by `change`, which may write to `folder/other.aotc`, are entered with
    their new digests; ONNX Runtime's manifest.json follows the variants.
    """
    private, public = key_files.generate(folder / "other.pem")
    artifact = folder / "other.aotc"
    shutil.copytree(built.path, artifact)
    payload = artifact / "payload"
    manifest = change(built.manifest)
    package = strict_json((payload / "manifest.json").read_bytes())
    for variant in manifest.variants:
        if variant in built.manifest.variants:
            continue
        described = package["components"][variant.component]["variants"][variant.name]
        ort = described["executor_info"]["ort"]
        ort["session_options"] = session_options(variant)
        ort["provider_options"] = provider_options(variant)
        described["compatibility_string"] = variant.requirements.compatibility[OPENVINO]
    (payload / "manifest.json").write_bytes(canonical_json(package))
    manifest = replace(manifest, files=tuple(entered(payload, file) for file in manifest.files))
    (payload / "aotc.json").write_bytes(canonical_json(encode(manifest)))
    for bundle in (artifact / "attestations").iterdir():
        bundle.unlink()
    digests = {
        path.relative_to(payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in payload.rglob("*")
        if path.is_file()
    }
    signed = oms.sign(digests, load_private(private))
    (artifact / "attestations" / "oms.sigstore.json").write_bytes(signed)
    return artifact, public


def entered(payload: Path, entry: FileEntry) -> FileEntry:
    data = (payload / entry.path).read_bytes()
    return replace(entry, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def each_variant(change: Callable[[Variant], Variant]) -> Callable[[Manifest], Manifest]:
    return lambda manifest: replace(
        manifest, variants=tuple(change(variant) for variant in manifest.variants)
    )


def with_options(text: str) -> Callable[[Variant], Variant]:
    def change(variant: Variant) -> Variant:
        options = variant.session.provider_options[OPENVINO]["load_config"].replace(
            '"INFERENCE_PRECISION_HINT":"f32"', text
        )
        spec = replace(variant.session, provider_options={OPENVINO: {"load_config": options}})
        return replace(variant, session=spec)

    return change


@pytest.mark.parametrize("what", ["options", "compatibility"])
def test_what_onnx_runtimes_manifest_denies_is_refused(
    plain: Built, tmp_path: Path, what: str
) -> None:
    """ONNX Runtime's manifest.json and aotc.json must agree, even if both are signed."""

    def deny(manifest: Manifest) -> Manifest:
        place = tmp_path / "other.aotc" / "payload" / "manifest.json"
        package = strict_json(place.read_bytes())
        (described,) = package["components"]["model"]["variants"].values()
        if what == "options":
            described["executor_info"]["ort"]["provider_options"] = {"load_config": "{}"}
        else:
            described["compatibility_string"] = "any"
        place.write_bytes(canonical_json(package))
        return manifest

    artifact, public = reforged(plain, tmp_path, deny)
    refused_alike(artifact, public, tmp_path / "store", "AOTC-G014")


def test_another_precision_at_load_is_shown_by_the_golden_answers(
    plain: Built, tmp_path: Path
) -> None:
    """The options at load set the precision: an artifact signed with other options is refused."""
    if "amx_bf16" not in (probe(gpus=False).isa or ()):
        pytest.skip("this CPU has no AMX: bfloat16 would be computed as float32")
    change = each_variant(with_options('"INFERENCE_PRECISION_HINT":"bf16"'))
    artifact, public = reforged(plain, tmp_path, change)
    codes = codes_of(lambda: load(artifact, key=public, store=tmp_path / "store"))
    assert codes[0] == "AOTC-N003"


def refused_alike(artifact: Path, public: Path, store: Path, code: str) -> None:
    """`verify` and `load` both refuse with `code`."""
    assert code in codes_of(lambda: load(artifact, key=public, store=store))
    report = verify(artifact, key=public)
    assert code in {refusal.code for refusal in report.refusals}
    assert report.verdict == "incompatible" or not report.authentic


def with_plugin(**fields: Any) -> Callable[[Variant], Variant]:
    def change(variant: Variant) -> Variant:
        (plugin,) = variant.requirements.plugins
        needs = replace(variant.requirements, plugins=(replace(plugin, **fields),))
        return replace(variant, requirements=needs)

    return change


def test_a_replaced_library_is_refused(plain: Built, tmp_path: Path) -> None:
    artifact, public = reforged(plain, tmp_path, each_variant(with_plugin(sha256="0" * 64)))
    refused_alike(artifact, public, tmp_path / "store", "AOTC-C012")


def test_another_version_of_the_plugin_is_refused(plain: Built, tmp_path: Path) -> None:
    artifact, public = reforged(plain, tmp_path, each_variant(with_plugin(version="1.7.0")))
    refused_alike(artifact, public, tmp_path / "store", "AOTC-C006")


def other_compatibility(variant: Variant) -> Variant:
    text = variant.requirements.compatibility[OPENVINO]
    changed = text.replace(";ov=", ";ov=1")
    assert changed != text
    needs = replace(variant.requirements, compatibility={OPENVINO: changed})
    return replace(variant, requirements=needs)


def moved(variant: Variant) -> Variant:
    first, *others = variant.placement.nodes
    nodes = (replace(first, provider=CPU), *others)
    return replace(variant, placement=replace(variant.placement, nodes=nodes))


def with_waiver(code: str, variant: str) -> Callable[[Manifest], Manifest]:
    waiver = AcceptedWaiver(code=code, variant=variant, reason="tried by hand")
    return lambda manifest: replace(manifest, waivers=(waiver,))


@pytest.mark.parametrize(
    ("code", "change"), [("AOTC-C013", other_compatibility), ("AOTC-P003", moved)]
)
def test_a_broken_promise_is_refused_unless_it_was_waived(
    plain: Built, tmp_path: Path, code: str, change: Callable[[Variant], Variant]
) -> None:
    other = "AOTC-P003" if code == "AOTC-C013" else "AOTC-C013"
    waivers: dict[str, Callable[[Manifest], Manifest]] = {
        "none": lambda manifest: manifest,
        "another": with_waiver(other, ""),
        "elsewhere": with_waiver(code, "native"),
        "all": with_waiver(code, ""),
        "this": with_waiver(code, "portable"),
    }
    for name, waive in waivers.items():
        folder = tmp_path / name
        folder.mkdir()

        def changed(manifest: Manifest, waive: Any = waive) -> Manifest:
            return each_variant(change)(waive(manifest))  # type: ignore[no-any-return]

        artifact, public = reforged(plain, folder, changed)
        if name in ("none", "another", "elsewhere"):
            refusals = codes_of(
                lambda a=artifact, p=public: load(a, key=p, store=tmp_path / "store")
            )  # type: ignore[misc]
            assert refusals == [code], name
            continue
        with load(artifact, key=public, store=tmp_path / "store") as model:
            (finding,) = (
                finding for finding in model.report.findings if finding.code == "AOTC-P008"
            )
            assert code in finding.what and "tried by hand" in finding.what


def test_a_profiles_waivers_are_in_the_artifact(bench: Workbench) -> None:
    waivers = [
        {"code": "AOTC-C013", "variant": "portable", "reason": "older hosts"},
        {"code": "AOTC-P003", "reason": "tried by hand"},
    ]
    built = bench.build(models.plain(), "waived", profile=profile(waivers=waivers))
    assert built.manifest.waivers == (
        AcceptedWaiver(code="AOTC-C013", variant="portable", reason="older hosts"),
        AcceptedWaiver(code="AOTC-P003", variant="", reason="tried by hand"),
    )


# Compiled parts are signed files.


def blob_of(artifact: Path, index: int = 0) -> Path:
    found = sorted((artifact / "payload").rglob("*.bin"))
    return [path for path in found if path.name.startswith("openvino")][index]


def link(artifact: Path) -> None:
    blob = blob_of(artifact)
    target = artifact.parent / "elsewhere.bin"
    blob.rename(target)
    blob.symlink_to(target)


def cut(artifact: Path) -> None:
    """In the middle of the compiled part: the space at its end may be empty."""
    blob = blob_of(artifact)
    blob.write_bytes(blob.read_bytes()[: (1 << 16) + 512])


def swap(artifact: Path) -> None:
    one, other = blob_of(artifact, 0), blob_of(artifact, 1)
    first, second = one.read_bytes(), other.read_bytes()
    assert first != second
    one.write_bytes(second)
    other.write_bytes(first)


def flip(artifact: Path) -> None:
    flip_bit(blob_of(artifact))


def remove(artifact: Path) -> None:
    blob_of(artifact).unlink()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (link, "AOTC-G008"),
        (cut, "AOTC-G005"),
        (swap, "AOTC-G005"),
        (flip, "AOTC-G005"),
        (remove, "AOTC-G006"),
    ],
)
def test_a_compiled_part_that_is_not_the_signed_one(
    bench: Workbench,
    bucketed: Built,
    tmp_path: Path,
    change: Callable[[Path], None],
    code: str,
) -> None:
    artifact = tmp_path / "spoilt.aotc"
    shutil.copytree(bucketed.path, artifact)
    change(artifact)
    refused_alike(artifact, bench.public, tmp_path / "store", code)


@pytest.mark.parametrize("change", [cut, swap])
def test_a_signed_part_that_is_wrong_is_refused_with_a_code(
    bucketed: Built, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """A signed but wrong statement is refused at load, and not at the first call."""

    def spoil(manifest: Manifest) -> Manifest:
        change(tmp_path / "other.aotc")
        return manifest

    artifact, public = reforged(bucketed, tmp_path, spoil)
    codes = codes_of(lambda: load(artifact, key=public, store=tmp_path / "store"))
    assert codes[0] in ("AOTC-R008", "AOTC-N003", "AOTC-R005")


# Fallback and budgets.


def test_an_alternate_variant_serves(bench: Workbench) -> None:
    built = bench.build(
        models.divided(),
        "alternate",
        profile=profile(
            providers=["openvino"],
            variants=[{"name": "fast"}, {"name": "portable", "providers": ["cpu"]}],
            fallback={"policy": "alternate-variant"},
        ),
    )
    assert [variant.name for variant in built.manifest.variants] == ["portable"]
    (dropped,) = built.manifest.dropped
    assert (dropped.name, dropped.rejects) == ("fast", False)
    assert "AOTC-P001" in dropped.reason and "odd0" in dropped.reason
    assert "another variant serves" in built.finding("AOTC-P009")
    assert_answers(bench, built, x_of(built))


def test_without_another_variant_the_build_ends(bench: Workbench) -> None:
    for policy in ("fail", "alternate-variant", "reject-route"):
        spec = profile(providers=["openvino"], fallback={"policy": policy})
        with pytest.raises(AotcError) as caught:
            bench.build(models.divided(), f"nowhere-{policy}", profile=spec)
        error = caught.value
        assert (error.code, error.exit_status) == ("AOTC-P001", 1)
        assert "odd0" in error.what


def test_a_route_is_rejected(bench: Workbench) -> None:
    """A budget of bytes that four rows keep and eight do not: calls of eight rows are refused."""
    row = 4 * models.ROWS * models.WIDTH
    built = bench.build(
        models.divided(),
        "rejected",
        profile=profile(
            dims={"batch": {"buckets": [4, 8]}},
            fallback={"policy": "reject-route"},
            budgets={"transfer_bytes": 2 * 4 * row},
        ),
    )
    assert [variant.buckets for variant in built.manifest.dropped] == [{"batch": 8}]
    assert built.manifest.dropped[0].rejects
    assert "calls of its sizes are refused" in built.finding("AOTC-P009")
    with bench.load(built) as model:
        model.run(x_of(built, 4))
        assert codes_of(lambda: model.run(x_of(built, 8))) == ["AOTC-R013"]
        assert model.telemetry.to_dict()["refusals"]["AOTC-R013"] == 1


@pytest.mark.parametrize(
    ("budget", "found"),
    [
        ({"cpu_share": 0.001}, "cpu_share"),
        ({"partitions": 2}, "3"),
        ({"transfer_bytes": 100}, "8192"),
    ],
)
def test_a_budget_that_cannot_be_met_ends_the_command_with_a_table(
    bench: Workbench, tmp_path: Path, budget: dict[str, Any], found: str
) -> None:
    path = tmp_path / "tight.yaml"
    path.write_text(json.dumps(encode(profile(budgets=budget))))
    source = bench.save(models.divided(), "tight")
    output = tmp_path / "tight.aotc"
    words = [str(AOTC), "build", source, "--profile", path, "-o", output, "--key", bench.private]
    processes = [
        subprocess.run([str(w) for w in (*words, *more)], capture_output=True, text=True)
        for more in ((), ("--json",))
    ]
    assert [process.returncode for process in processes] == [1, 1], processes
    assert not output.exists()
    text, document = processes[0].stderr, json.loads(processes[1].stdout)
    assert processes[0].stdout == ""
    assert "Traceback" not in text + processes[1].stderr
    for word in ("AOTC-P002", "odd0", "Trilu", "com.microsoft", "refused by"):
        assert word in text, text
    (error,) = document["errors"]
    assert (error["code"], document["exit_status"]) == ("AOTC-P002", 1)
    assert found in error["found"] + error["what"]
    (row,) = error["rows"]
    assert (row["node"], row["op"], row["domain"], row["refused by"]) == (
        "odd0", "Trilu", "com.microsoft", OPENVINO,
    )  # fmt: skip
    assert row["reason"] and row["fix"]


def test_budgets_that_are_met_pass(bench: Workbench) -> None:
    row = 4 * models.ROWS * models.WIDTH
    budgets = {"cpu_share": 0.02, "partitions": 3, "transfer_bytes": 2 * 8 * row}
    built = bench.build(models.divided(), "met", profile=profile(budgets=budgets))
    assert only_variant(built).transfers.bytes_max == 2 * 8 * row


def test_a_share_of_nodes_is_of_the_models_nodes(bench: Workbench) -> None:
    """One node of eleven is refused; it does not matter that two compiled parts are two nodes."""
    nodes = [*models.dense("x", "w", "a0"), models.refused("a0", "t", "odd")]
    value = "t"
    for index in range(1, 5):
        nodes += models.dense(value, "w", f"a{index}")
        value = f"a{index}"
    shape = ["batch", models.ROWS, models.WIDTH]
    model = models.model_of(
        nodes,
        [info("x", shape)],
        [info(value, shape)],
        [models.weight("w", models.WIDTH, models.WIDTH)],
    )
    spec = profile(fallback={"policy": "cpu", "max_node_share": 0.1}, providers=["openvino", "cpu"])
    built = bench.build(model, "share", profile=spec)
    report = only_variant(built).partitioning
    assert report is not None
    assert {provider.provider: provider.nodes for provider in report.providers} == {
        OPENVINO: 10,
        CPU: 1,
    }


# A user's own plugin, given by path and name.


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OpenVINO's plugin as a user's own: a copy, with links to the libraries that it needs."""
    from aotc.providers.openvino import OpenVinoBackend

    original = OpenVinoBackend().library()
    assert original is not None
    folder = tmp_path_factory.mktemp("own")
    for path in original.parent.iterdir():
        if path.is_file() and path != original:
            (folder / path.name).symlink_to(path)
    return Path(shutil.copyfile(original, folder / original.name))


def own_plugin(library: Path, name: str = OPENVINO, **more: Any) -> dict[str, Any]:
    options = {"load_config": '{"CPU":{"INFERENCE_PRECISION_HINT":"f32"}}'}
    spec = {"provider": name, "library": str(library), "options": options}
    return {"providers": ["mine", "cpu"], "plugins": {"mine": {**spec, **more}}}


LOADING = """
import sys, aotc
from aotc.base.errors import AotcError
artifact, key, store, *plugins = sys.argv[1:]
stated = dict(pair.split("=", 1) for pair in plugins)
try:
    with aotc.load(artifact, key=key, store=store, plugins=stated) as m:
        print("loaded", m.report.fixtures, m.manifest.variants[0].providers[0])
except AotcError as error:
    print(error.code, *(other.code for other in error.also))
"""


def load_elsewhere(
    built: Built, bench: Workbench, *plugins: str, environment: Mapping[str, str] | None = None
) -> list[str]:
    """The output of a process that has only the stated plugins."""
    done = subprocess.run(
        [
            sys.executable, "-c", LOADING, str(built.path), str(bench.public),
            str(bench.folder / "elsewhere"), *plugins,
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_a_plugin_by_its_path_and_name(bench: Workbench, library: Path) -> None:
    built = bench.build(models.plain(), "own", profile=profile(**own_plugin(library)))
    variant = only_variant(built)
    assert variant.providers == (OPENVINO,)
    assert [node.op_type for node in built.nodes()] == ["EPContext"]
    (plugin,) = variant.requirements.plugins
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    assert (plugin.name, plugin.sha256) == (library.name, digest)
    for file in built.payload.rglob("*"):
        if file.is_file():
            assert str(library.parent).encode() not in file.read_bytes(), file.name
    stated = f"{OPENVINO}={library}"
    assert load_elsewhere(built, bench, stated)[0] == "loaded"
    assert load_elsewhere(built, bench, environment={"AOTC_PLUGINS": stated})[0] == "loaded"
    assert "AOTC-C006" in load_elsewhere(built, bench)
    library.write_bytes(library.read_bytes() + b"\0")
    assert "AOTC-C012" in load_elsewhere(built, bench, stated)


def test_a_host_on_which_it_offers_no_device(bench: Workbench, plain: Built) -> None:
    """The plugin is installed, so the fix does not propose to install it."""
    hidden = {"AOTC_HOST_WITHOUT": OPENVINO}
    assert "AOTC-C006" in load_elsewhere(plain, bench, environment=hidden)


def test_a_host_without_the_plugin(bench: Workbench, plain: Built, tmp_path: Path) -> None:
    """All packages except OpenVINO's: no build, and no load; verify says why."""
    from onnxruntime import __file__ as place

    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(place).parents[1].iterdir():
        if "openvino" not in path.name and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    code = (
        "import sys, aotc\nfrom aotc.base.errors import AotcError\n"
        "model, artifact, key, store, out, private = sys.argv[1:]\n"
        "for call in (lambda: aotc.build(model, profile='edge-openvino', output=out,\n"
        "                                 key=private),\n"
        "             lambda: aotc.load(artifact, key=key, store=store)):\n"
        "    try:\n        call()\n        print('done')\n"
        "    except AotcError as error:\n"
        "        print(error.code, *(e.code for e in error.also), '|', error.found, error.fix)\n"
        "print(*(refusal.code for refusal in aotc.verify(artifact, key=key).refusals))\n"
    )
    toolchain = ROOT / "toolchain"
    words = (
        plain.source, plain.path, bench.public, tmp_path / "store", tmp_path / "out.aotc",
        bench.private,
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{toolchain}{os.pathsep}{packages}"},
    )
    assert "Traceback" not in done.stderr, done.stderr
    built, loaded, verified = done.stdout.splitlines()
    assert built.startswith("AOTC-P004") and "'.[openvino]'" in built
    assert "AOTC-C006" in loaded
    assert "AOTC-C006" in verified
    assert not (tmp_path / "out.aotc").exists()


# Models of other projects.

REAL = tuple(sorted(path.stem for path in MODELS.glob("*.onnx")))
MOBILENET = "mobilenet_qdq_int8"


@needs_models
@pytest.mark.parametrize("name", REAL or ("none",))
def test_a_real_model(bench: Workbench, name: str) -> None:
    """Compiled and exact, or refused with a code that names nodes; it answers after loading."""
    data = MODELS / f"{name}.test_data_set_0"
    try:
        built = bench.build(
            MODELS / f"{name}.onnx",
            f"real-{name}",
            profile="edge-openvino",
            fixtures=data if data.is_dir() else None,
        )
    except AotcError as error:
        assert error.code in ("AOTC-P001", "AOTC-P002", "AOTC-N001"), error.line()
        assert "node" in error.line() or error.rows, error.line()
        return
    variant = only_variant(built)
    assert variant.parity.status == "passed"
    assert variant.placement.origin == "observed"
    report = variant.partitioning
    assert report is not None
    assert sum(provider.nodes for provider in report.providers) >= sum(
        part.nodes for part in report.partitions
    )
    assert {node.provider for node in variant.placement.nodes} == set(variant.providers)
    with bench.load(built) as model:
        assert isinstance(model, Model)
        assert model.report.fixtures > 0
