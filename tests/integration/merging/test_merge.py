"""Artifacts of one model from several hosts, as one: what it is, and what it says of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shared_workers
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from file_bytes import contents_of, flip_bit
from made_models import linear
from made_profiles import profile_with
from workbench import Built, Workbench

from aotc import diff, inspect, load, verify
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph import values
from aotc.host.probe import probe
from aotc.session.worker_pool import Workers
from aotc.spec.attestation_kinds import KINDS, Usage
from aotc.spec.codec import decode
from aotc.spec.command_reports import MergeReport
from aotc.spec.evidence import Evidence
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.profile import WorkerLimits
from aotc.spec.target import Gpu
from aotc.tools.merge import merge_artifacts, merged_evidence
from aotc.tools.merge_agreement import Input
from aotc.trust import statements
from aotc.trust.compatibility import judge
from aotc.trust.key_loading import load_private, read_public
from aotc.trust.sealing import sign_all

HERE = probe(gpus=False).isa or ()
# A CPU of the same kind with fewer features.
ELDER = HERE[: max(1, len(HERE) - 3)]


@contextmanager
def other_host(features: tuple[str, ...]) -> Iterator[None]:
    """As on a CPU that has these features alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_HOST_ISA", " ".join(features))
        probe.cache_clear()
        yield
    probe.cache_clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A merged artifact with its manifest, and the report of the merge."""

    path: Path
    report: MergeReport
    manifest: Manifest

    def names(self) -> list[str]:
        """Its variants, in order."""
        return [variant.name for variant in self.manifest.variants]

    def statement(self, usage: Usage, bench: Workbench) -> Any:
        """What its signer states, verified."""
        bundle = (self.path / KINDS[usage].path).read_bytes()
        (key,) = read_public(bench.public.read_text(), str(bench.public))
        return statements.verify(bundle, [key]).predicate


def merge(bench: Workbench, name: str, *built: Built | Merged | Path, **options: Any) -> Merged:
    paths = [each if isinstance(each, Path) else each.path for each in built]
    output = bench.folder / f"{name}.aotc"
    report = shared_workers.merge(paths, output, key=bench.private, **options)
    text = (output / "payload" / "aotc.json").read_bytes()
    return Merged(path=output, report=report, manifest=decode(Manifest, strict_json(text)))


def digests(folder: Path) -> dict[str, str]:
    return {
        path: hashlib.sha256(content).hexdigest() for path, content in contents_of(folder).items()
    }


def payload(of: Built | Merged) -> dict[str, str]:
    return digests(of.path / "payload")


@pytest.fixture(scope="module")
def model(bench: Workbench) -> Path:
    """Wide enough for its weights to be a file."""
    return bench.save(linear(features=32), "wide")


@pytest.fixture(scope="module")
def here(model: Path, bench: Workbench) -> Built:
    return bench.build(model, "here", profile=profile_with("server-cpu", dims={"batch": "1..4"}))


@pytest.fixture(scope="module")
def there(model: Path, bench: Workbench) -> Built:
    with other_host(ELDER):
        return bench.build(
            model, "there", profile=profile_with("server-cpu", dims={"batch": "1..4"})
        )


@pytest.fixture(scope="module")
def merged(here: Built, there: Built, bench: Workbench) -> Merged:
    return merge(bench, "merged", here, there)


def test_equal_variants_are_one_and_different_ones_are_told_apart(merged: Merged) -> None:
    portable, *native = merged.names()
    assert portable == "portable"
    assert len(native) == 2
    assert all(name.startswith("native-") for name in native)
    (renamed,) = merged.report.findings[:1]
    assert (renamed.code, renamed.where) == ("AOTC-I180", "variant native")
    shares = {each.name: sorted(each.artifacts.values()) for each in merged.report.variants}
    assert shares == {"portable": ["portable", "portable"], **{name: ["native"] for name in native}}
    profile = merged.manifest.profile
    assert [spec["name"] for spec in profile["variants"]] == merged.names()


def test_weights_are_stored_once(merged: Merged, here: Built) -> None:
    weights = [entry for entry in merged.manifest.files if entry.role == "weights"]
    alone = [entry for entry in here.manifest.files if entry.role == "weights"]
    # The layout of a native variant's weights may be that of its CPU.
    assert sum(entry.size for entry in weights) < 1.5 * sum(entry.size for entry in alone)
    assert merged.report.payload_bytes < 0.75 * merged.report.input_bytes
    folders = {variant.weights for variant in merged.manifest.variants}
    assert len(folders) == 1


def test_order_decides_nothing(merged: Merged, here: Built, there: Built, bench: Workbench) -> None:
    turned = merge(bench, "turned", there, here)
    assert payload(turned) == payload(merged)
    for usage in ("oms", "evidence", "sbom"):
        place = KINDS[usage].path
        assert (turned.path / place).read_bytes() == (merged.path / place).read_bytes()


@pytest.mark.parametrize("features", [HERE, ELDER])
def test_each_host_loads_what_was_proven_there(
    merged: Merged, bench: Workbench, features: tuple[str, ...]
) -> None:
    with other_host(features):
        report = verify(merged.path, key=bench.public)
        assert (report.verdict, report.authentic) == ("optimal", True)
        with load(merged.path, key=bench.public, store=bench.folder / "store") as model:
            variant = model.variants[0]
            assert variant.requirements.isa_exact
            assert set(features) <= set(variant.requirements.isa)
            assert model.report.fixtures > 0
            assert report.best == variant.name


def test_another_host_runs_what_runs_anywhere(merged: Merged, bench: Workbench) -> None:
    with other_host(HERE[:1]):
        report = verify(merged.path, key=bench.public)
    assert (report.verdict, report.best) == ("degraded", "portable")


def test_it_says_which_host_proved_which_variant(
    merged: Merged, here: Built, there: Built, bench: Workbench
) -> None:
    ids = {here.report.artifact_id: HERE, there.report.artifact_id: ELDER}
    evidence = decode(Evidence, merged.statement("evidence", bench))
    assert {each.name for each in evidence.variants} == set(merged.names())
    for proof in evidence.merged:
        features = set(proof.host["isa"].split()) - {"lesser"}
        assert features == set(ids[proof.artifact_id])
        assert sorted(proof.variants.values()) == ["native", "portable"]
    # What the second host measured of a variant that both proved is kept as well.
    assert [len(proof.further) for proof in evidence.merged] == [0, 1]
    assert {each.artifact_id: each.target_sha256 for each in merged.manifest.merged} == {
        here.report.artifact_id: here.manifest.target_sha256,
        there.report.artifact_id: there.manifest.target_sha256,
    }
    shown = inspect(merged.path).artifact
    assert shown is not None
    assert {each.artifact_id for each in shown.merged} == set(ids)
    (changed,) = (area for area in diff(here.path, merged.path).areas if area.area == "toolchain")
    assert any(change.what.startswith("merged") for change in changed.changes)


def test_provenance_has_that_of_each_input(
    merged: Merged, here: Built, there: Built, bench: Workbench
) -> None:
    definition = merged.statement("provenance", bench)["buildDefinition"]
    assert definition["buildType"] == "urn:aotc:merge:v1"
    inputs = sorted([here.report.artifact_id, there.report.artifact_id])
    assert definition["externalParameters"]["artifacts"] == inputs
    materials = {each["digest"]["sha256"]: each for each in definition["resolvedDependencies"]}
    assert {*inputs, here.manifest.source.sha256} <= materials.keys()
    for built in (here, there):
        for usage in ("evidence", "provenance", "sbom"):
            assert digests(built.path / "attestations")[f"{usage}.sigstore.json"] in materials
    kept = definition["internalParameters"]["provenance"]
    hosts = [each["buildDefinition"]["internalParameters"]["host"]["isa"] for each in kept.values()]
    assert sorted(len(isa.split()) for isa in hosts) == sorted([len(HERE), len(ELDER) + 1])


def test_the_bill_of_materials_is_valid(merged: Merged, here: Built, bench: Workbench) -> None:
    bill = merged.statement("sbom", bench)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(refs) == len(set(refs))
    about = {each["name"]: each["value"] for each in bill["metadata"]["component"]["properties"]}
    assert all("ONNX Runtime" in about[f"aotc:proven:{name}"] for name in merged.names())


def test_one_build_of_all_gives_the_same_payload(model: Path, bench: Workbench) -> None:
    exact = {"name": "exact"}
    others = [{"name": "half", "precision": "float16"}, {"name": "native", "isa": "host"}]
    built = [
        bench.build(
            model, name, profile=profile_with("edge", dims={"batch": "1..4"}, variants=variants)
        )
        for name, variants in (("a", [exact]), ("b", others), ("both", [exact, *others]))
    ]
    apart = merge(bench, "apart", *built[:2])
    assert apart.report.built_alike
    assert payload(apart) == payload(built[2])
    signatures = [each.path / KINDS["oms"].path for each in (apart, built[2])]
    assert signatures[0].read_bytes() == signatures[1].read_bytes()
    # Two proofs of one payload are one artifact, which is as it was.
    again = bench.build(
        model, "again", profile=profile_with("edge", dims={"batch": "1..4"}, variants=[exact])
    )
    twice = merge(bench, "twice", built[0], again)
    assert payload(twice) == payload(again)
    evidence = decode(Evidence, twice.statement("evidence", bench))
    assert [list(proof.variants) for proof in evidence.merged] == [["exact"], ["exact"]]


def test_what_was_merged_is_merged_again(
    model: Path, merged: Merged, here: Built, bench: Workbench
) -> None:
    features = HERE[: max(1, len(HERE) - 1)]
    with other_host(features):
        third = bench.build(
            model, "third", profile=profile_with("server-cpu", dims={"batch": "1..4"})
        )
        all_three = merge(bench, "three", merged, third)
        assert {each.artifact_id for each in all_three.manifest.merged} == {
            *(each.artifact_id for each in merged.manifest.merged),
            third.report.artifact_id,
        }
        report = verify(all_three.path, key=bench.public)
        assert (report.verdict, report.best) == ("optimal", "native")
    inputs = [as_input(each) for each in (merged, third)]
    for turned in (inputs, inputs[::-1], [*inputs, inputs[0]]):
        names = [{each.name: each.name for each in one.manifest.variants} for one in turned]
        evidence = merged_evidence(turned, names)
        assert len(evidence.merged) == 3
        # Each of the three hosts has measured it.
        measured = [
            *evidence.variants,
            *(one for proof in evidence.merged for one in proof.further),
        ]
        assert [each.name for each in measured].count("portable") == 3


def as_input(built: Built | Merged) -> Input:
    """What a merge reads of an artifact."""
    artifact_id, predicates, bundles = built.report.artifact_id, {}, {}
    for usage in ("evidence", "provenance", "sbom"):
        bundle = (built.path / KINDS[usage].path).read_bytes()
        predicates[usage] = statements.read_unverified(bundle).predicate
        bundles[usage] = hashlib.sha256(bundle).hexdigest()
    return Input(
        path=built.path,
        artifact_id=artifact_id,
        manifest=built.manifest,
        evidence=decode(Evidence, predicates["evidence"]),
        provenance=predicates["provenance"],
        sbom=predicates["sbom"],
        statements=bundles,
        folder=built.path / "payload",
    )


def test_a_build_that_is_in_two_of_them(merged: Merged, here: Built, bench: Workbench) -> None:
    error = refused(bench, merged, here)
    assert error.code == "AOTC-I182"
    assert here.report.artifact_id in error.where
    assert '{"native":"native"}' in (error.expected, error.found)


def test_a_profile_as_an_earlier_release_stated_it(plain: Built, bench: Workbench) -> None:
    def earlier(folder: Path, document: Any) -> None:
        del document["profile"]["waivers"]
        document["variants"][0]["session"]["threads"] = 1

    found = merge(bench, "earlier", plain, edited(plain, bench, "stated-earlier", earlier))
    assert found.report.built_alike
    assert found.manifest.profile["waivers"] == []


def test_control_flow_is_shown_as_far_as_every_proof_shows_it(
    plain: Built, bench: Workbench
) -> None:
    def reached(then: int, other: int) -> Callable[[Path, Any], None]:
        def change(folder: Path, document: Any) -> None:
            document["branches"] = [
                {
                    "node": "if",
                    "op_type": "If",
                    "path": path,
                    "fixtures": fixtures,
                    "missing": not fixtures,
                }
                for path, fixtures in (("then_branch", then), ("else_branch", other))
            ]
            document["variants"][0]["session"]["threads"] = 1 + then

        return change

    built = [
        edited(plain, bench, f"reached-{then}-{other}", reached(then, other))
        for then, other in ((0, 2), (1, 0))
    ]
    paths = merge(bench, "reached", *built).manifest.branches
    assert [(each.fixtures, each.missing) for each in paths] == [(0, True), (0, True)]


@pytest.mark.parametrize(
    ("gpus", "driver", "verdict"),
    [
        ((), None, "optimal"),
        ((Gpu(name="H100", compute_capability="9.0"),), "570.1", "degraded"),
        ((Gpu(name="H100", compute_capability="9.0"),), "580.1", "optimal"),
    ],
)
def test_a_gpu_whose_driver_is_too_old_is_not_passed_over(
    merged: Merged, gpus: tuple[Gpu, ...], driver: str | None, verdict: str
) -> None:
    """The variant of another host is for the GPU of this one, which could run it."""
    # That of this host runs here, and the other host's is made one for a GPU.
    best = judge(merged.manifest, probe(gpus=False)).best
    portable, *native = merged.manifest.variants
    (theirs,) = (each for each in native if each.name != best)
    (mine,) = (each for each in native if each.name == best)
    needs = replace(theirs.requirements, isa=(), isa_exact=False)
    on_gpu = replace(
        theirs,
        providers=("cuda", "cpu"),
        requirements=replace(needs, nvidia_driver_min="580.0", cuda_major=13),
    )
    manifest = replace(merged.manifest, variants=(on_gpu, portable, mine))
    host = replace(
        probe(gpus=False), gpus=gpus, nvidia_driver=driver, cuda_major=13 if driver else None
    )
    found = judge(manifest, host)
    assert found.verdict == verdict
    codes = {finding.code for finding in found.findings}
    assert ("AOTC-C010" in codes) == (verdict == "degraded")


@pytest.fixture(scope="module")
def tight(model: Path, bench: Workbench) -> Built:
    return bench.build(
        model,
        "tight",
        profile=profile_with(
            "edge",
            name="tight",
            dims={"batch": "1..4"},
            budgets={"partitions": 7},
            variants=[{"name": "narrow", "threads": 1}],
        ),
    )


def test_budgets_of_one_host_do_not_judge_another(
    here: Built, tight: Built, bench: Workbench
) -> None:
    found = merge(bench, "budgets", here, tight)
    assert found.manifest.profile["name"] == "server-cpu_tight"
    assert found.manifest.profile["budgets"]["partitions"] is None
    stated = {
        name: each.profile["budgets"]["partitions"]
        for each in found.manifest.merged
        for name in each.variants
    }
    assert stated == {"portable": None, "native": None, "narrow": 7}
    # ONNX Runtime takes the first variant of a provider in a component.
    places = {each.name: each.component for each in found.manifest.variants}
    assert sorted(places[name] for name in ("portable", "narrow")) == ["model", "model.portable"]


def test_budgets_of_a_build_judge_its_own_variants(
    here: Built, tight: Built, bench: Workbench
) -> None:
    def exceeded(folder: Path, document: Any) -> None:
        limits = {"cpu": {"min_node_share": 0, "max_node_share": 0.5}}
        document["profile"]["budgets"]["providers"] = limits
        # A placement that was observed is compared, and not judged.
        document["variants"][0]["placement"]["origin"] = "predicted"

    error = refused(bench, here, edited(tight, bench, "exceeded", exceeded))
    found = [(each.code, each.where) for each in error.also]
    assert found == [("AOTC-P002", "variant narrow")]


def test_what_is_said_of_variants_is_said_of_the_same_ones(
    here: Built, tight: Built, bench: Workbench
) -> None:
    def skipped(folder: Path, document: Any) -> None:
        document["dropped"] = [
            {"name": name, "spec": name, "reason": "slow"} for name in ("native", "quick")
        ]
        document["findings"] = [
            {"code": code, "what": "it is so", "where": f"variant {name}"}
            for code, name in (("AOTC-O002", "native"), ("AOTC-O002", "quick"))
        ]
        document["waivers"] = [{"code": "AOTC-P002", "reason": "known"}]

    found = merge(bench, "said", here, edited(tight, bench, "skipped", skipped)).manifest
    # The other host has what this one could not build.
    assert [each.name for each in found.dropped] == ["quick"]
    assert [each.where for each in found.findings if each.code == "AOTC-O002"] == ["variant quick"]
    assert [each.variant for each in found.waivers] == ["narrow"]


# Contradictions.


def edited(
    built: Built,
    bench: Workbench,
    name: str,
    change: Callable[[Path, Any], None] = lambda folder, document: None,
    restate: Callable[[Any], None] = lambda predicates: None,
) -> Path:
    """A copy of which `change` edits the payload in a folder and the document of its manifest.

    `restate` edits what is stated about it, by usage.
    """
    copy = bench.folder / f"{name}.aotc"
    shutil.copytree(built.path, copy)
    place = copy / "payload" / "aotc.json"
    document = strict_json(place.read_bytes())
    change(copy / "payload", document)
    found = digests(copy / "payload")
    for entry in document["files"]:
        entry["sha256"] = found[entry["path"]]
        entry["size"] = (copy / "payload" / entry["path"]).stat().st_size
    place.write_bytes(canonical_json(document))
    predicates: dict[Usage, Any] = {
        usage: statements.read_unverified((copy / KINDS[usage].path).read_bytes()).predicate
        for usage in ("evidence", "provenance", "sbom")
    }
    shutil.rmtree(copy / "attestations")
    restate(predicates)
    sign_all(copy, digests(copy / "payload"), predicates, load_private(bench.private))
    return copy


def scale(payload_folder: Path, kind: str, by: float) -> None:
    """Other values in the inputs or outputs of all fixtures."""
    for place in payload_folder.glob(f"fixtures/*/{kind}_*.npy"):
        array = values.load(place)
        values.save((array * np.float32(by)).astype(array.dtype), place)


@pytest.fixture(scope="module")
def source(bench: Workbench) -> Path:
    return bench.save(linear(), "linear")


@pytest.fixture(scope="module")
def plain(source: Path, bench: Workbench) -> Built:
    return bench.build(source, "plain", dims={"batch": "1..4"})


def answers(manifest: Manifest) -> set[tuple[str, ...]]:
    """Of each fixture its plain name, and the sha256 of what it is to answer."""
    digests = {entry.path: entry.sha256 for entry in manifest.files}
    return {
        (each.name.partition("-")[0], *(digests[tensor.path] for tensor in each.outputs))
        for each in manifest.fixtures
    }


def refused(bench: Workbench, *built: Built | Merged | Path) -> AotcError:
    with pytest.raises(AotcError) as caught:
        merge(bench, "refused", *built)
    assert not (bench.folder / "refused.aotc").exists()
    return caught.value


def test_another_model(plain: Built, bench: Workbench, tmp_path: Path) -> None:
    elsewhere = tmp_path / "linear.onnx"
    model = linear()
    model.graph.doc_string = "another"
    elsewhere.write_bytes(model.SerializeToString())
    other = bench.build(elsewhere, "other-model", dims={"batch": "1..4"})
    error = refused(bench, plain, other)
    assert (error.code, error.what) == (
        "AOTC-I176",
        "the artifacts are of different models: sha256 of the model",
    )
    assert {error.expected, error.found} == {
        plain.manifest.source.sha256,
        other.manifest.source.sha256,
    }
    named = bench.build(linear(), "other-name", dims={"batch": "1..4"})
    assert refused(bench, plain, named).what.endswith(": name")


def test_other_ranges(plain: Built, source: Path, bench: Workbench) -> None:
    other = bench.build(source, "other-ranges", dims={"batch": "1..8"})
    error = refused(bench, plain, other)
    assert (error.code, error.what) == (
        "AOTC-I177",
        "the artifacts take different calls: ranges",
    )
    assert '"max":4' in error.expected + error.found
    assert '"max":8' in error.expected + error.found


def test_other_promises(plain: Built, source: Path, bench: Workbench) -> None:
    tolerance = {"float32": {"atol": 0.1, "rtol": 0.1}}
    loose = profile_with("edge", parity=tolerance, dims={"batch": "1..4"})
    same = profile_with("edge", dims={"batch": "1..4"})
    built = [
        bench.build(source, name, profile=profile)
        for name, profile in (("loose", loose), ("strictly", same))
    ]
    error = refused(bench, *built)
    assert (error.code, error.what) == (
        "AOTC-I178",
        "the artifacts promise different things: parity",
    )
    assert "0.1" in error.expected + error.found


def test_other_fixtures(plain: Built, bench: Workbench) -> None:
    other = edited(plain, bench, "other-inputs", lambda folder, _: scale(folder, "input", 2))
    error = refused(bench, plain, other)
    assert error.code == "AOTC-I179"
    assert "has other inputs" in error.what

    def another_answer(folder: Path, document: Any) -> None:
        scale(folder, "output", 2)

    error = refused(bench, plain, edited(plain, bench, "other-answers", another_answer))
    assert error.code == "AOTC-I179"
    assert "differ between the hosts" in error.what


def test_answers_that_differ_in_bits_are_those_of_their_host(
    plain: Built, source: Path, bench: Workbench
) -> None:
    def nearly(folder: Path, document: Any) -> None:
        scale(folder, "output", 1 + 2.0**-20)
        document["variants"][0]["session"]["threads"] = 1

    other = edited(plain, bench, "nearly", nearly)
    found = merge(bench, "bits", plain, other)
    fixtures = found.manifest.fixtures
    assert len(fixtures) == 2 * len(plain.manifest.fixtures)
    names = set(found.names())
    for fixture in fixtures:
        (judged,) = names - set(fixture.excluded_variants)
        assert judged.startswith("portable-")
    assert len({tensor.path for each in fixtures for tensor in each.inputs}) == len(fixtures) // 2
    assert verify(found.path, key=bench.public).ok

    def as_there(folder: Path, document: Any) -> None:
        scale(folder, "output", 1 + 2.0**-20)
        document["variants"][0]["session"]["threads"] = 2

    def as_here(folder: Path, document: Any) -> None:
        document["variants"][0]["session"]["threads"] = 3

    # A third that answers like one of them is judged by what that is judged by.
    for name, change in (("like-there", as_there), ("like-here", as_here)):
        third = edited(plain, bench, name, change)
        joined = merge(bench, f"bits-{name}", found, third).manifest
        again = joined.fixtures
        # Which of two has the plain name follows from the ids of the artifacts.
        assert answers(joined) == answers(found.manifest)
        assert len({tensor.path for each in again for tensor in each.inputs}) == len(fixtures) // 2
        left_out = sorted(len(each.excluded_variants) for each in again)
        assert left_out == [*[1] * (len(fixtures) // 2), *[2] * (len(fixtures) // 2)]


def test_a_manifest_of_another_version(plain: Built, bench: Workbench) -> None:
    def newer(folder: Path, document: Any) -> None:
        document["schema"] = "aotc.manifest/1.1"

    error = refused(bench, plain, edited(plain, bench, "newer", newer))
    assert (error.code, error.found) == ("AOTC-I181", "aotc.manifest/1.1")


def test_one_artifact_twice(plain: Built, bench: Workbench) -> None:
    assert refused(bench, plain, plain).code == "AOTC-I182"
    assert refused(bench, plain).code == "AOTC-I182"
    with pytest.raises(AotcError, match="the output is one of the artifacts") as caught:
        merge_artifacts([plain.path, plain.path], plain.path, key=bench.private, force=True)
    assert caught.value.code == "AOTC-I182"
    for place in (plain.path / "payload" / "new.aotc", plain.path / "new.aotc.zip"):
        with pytest.raises(AotcError, match="or stands in it") as caught:
            merge_artifacts([plain.path, bench.folder / "none.aotc"], place, key=bench.private)
        assert caught.value.code == "AOTC-I182"


def test_the_limits_are_those_of_the_builds(
    plain: Built, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def larger(folder: Path, document: Any) -> None:
        document["profile"]["limits"]["memory_bytes"] = 1 << 40
        document["variants"][0]["session"]["threads"] = 1

    given = []

    def workers(limits: WorkerLimits) -> Workers:
        given.append(limits)
        return Workers(limits)

    monkeypatch.setattr("aotc.tools.merge.Workers", workers)
    paths = [plain.path, edited(plain, bench, "larger", larger)]
    merge_artifacts(paths, bench.folder / "limits.aotc", key=bench.private)
    assert [each.memory_bytes for each in given] == [1 << 40]


@pytest.mark.parametrize(
    ("usage", "change"),
    [
        ("evidence", lambda stated: stated.pop("variants")),
        (
            "evidence",
            lambda stated: stated.update(
                merged=[
                    {
                        "artifact_id": "0" * 64,
                        "statement_sha256": "0" * 64,
                        "host": {},
                        "target": "host",
                        "onnxruntime": "1.32.0",
                        "built_at": "2026-01-01T00:00:00Z",
                        "variants": {"another": "another"},
                        "further": [],
                    }
                ]
            ),
        ),
        ("provenance", lambda stated: stated["buildDefinition"].pop("resolvedDependencies")),
        ("sbom", lambda stated: stated.pop("components")),
        ("sbom", lambda stated: stated.update(metadata=[])),
    ],
)
def test_a_statement_of_another_form(
    plain: Built,
    bench: Workbench,
    tmp_path: Path,
    usage: Usage,
    change: Callable[[Any], object],
) -> None:
    def restate(predicates: Any) -> None:
        change(predicates[usage])

    error = refused(bench, plain, edited(plain, bench, tmp_path.name, restate=restate))
    assert (error.code, error.what) == ("AOTC-I183", f"the artifact has no usable {usage}")


def test_no_evidence(plain: Built, source: Path, bench: Workbench) -> None:
    lacking = bench.folder / "lacking.aotc"
    shutil.copytree(plain.path, lacking)
    (lacking / KINDS["evidence"].path).unlink()
    error = refused(bench, plain, lacking)
    assert (error.code, error.what) == ("AOTC-I183", "the artifact has no usable evidence")


def test_an_input_that_nobody_trusts(
    plain: Built, there: Built, bench: Workbench, tmp_path: Path
) -> None:
    changed = bench.folder / "changed.aotc"
    shutil.copytree(plain.path, changed)
    flip_bit(next(changed.rglob("weights.bin")))
    assert refused(bench, plain, changed).code == "AOTC-G005"
    stranger = Workbench.at(tmp_path)
    with pytest.raises(AotcError) as caught:
        merge_artifacts([plain.path, there.path], tmp_path / "x.aotc", key=stranger.private)
    assert caught.value.code in ("AOTC-G002", "AOTC-G003")
