"""What has nothing to compare with, or differs where no area looked, is never called the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact, sign_artifact

from aotc.base.records import replace
from aotc.spec.diff_report import AREAS, AreaDiff
from aotc.spec.evidence import Comparison, Evidence, OutputError, VariantEvidence
from aotc.spec.variant import Parity
from aotc.tools.diff.areas import Measured, exactness
from aotc.tools.diff.artifacts import diff, failures, read_allowed
from aotc.tools.diff.opened_artifact import Pair, open_side
from aotc.tools.inspect import ArtifactContents
from aotc.trust.key_loading import PrivateKey

OF_VARIANTS = (
    *("passes", "placement", "shapes", "precision", "exactness", "memory"),
    *("weights", "requirements"),
)


@pytest.fixture
def a(tmp_path: Path, key: PrivateKey) -> Path:
    return with_manifest(tmp_path / "a.aotc", key)


def changed_manifest(folder: Path, key: PrivateKey, **fields: Any) -> Path:
    """The same artifact, whose manifest has other values in these fields, and another order."""
    return with_manifest(folder, key, backwards=True, **fields)


def with_manifest(folder: Path, key: PrivateKey, *, backwards: bool = False, **fields: Any) -> Path:
    """The artifact, whose manifest is of one length in both orders of its fields."""
    build_artifact(folder, key)
    path = folder / "payload" / "aotc.json"
    document = {**json.loads(path.read_bytes()), **fields}
    items = reversed(document.items()) if backwards else document.items()
    path.write_text(json.dumps(dict(items)))
    sign_artifact(folder, key)
    return folder


@pytest.mark.parametrize("is_gone", [True, False])
def test_variants_of_one_side(a: Path, key: PrivateKey, tmp_path: Path, is_gone: bool) -> None:
    """Each area of variants fails, with and without a ratio."""
    b = build_artifact(tmp_path / "b.aotc", key, native=False)
    pair, side = ((a, b), "A") if is_gone else ((b, a), "B")
    report = diff(*pair, fail_on=OF_VARIANTS)
    assert len(report.failed) == len(OF_VARIANTS)
    for name in OF_VARIANTS:
        assert f"nothing to compare with native of {side}" in report.area(name).reason
    assert report.area("precision").status == "not-compared"
    ratios = diff(*pair, fail_on=["exactness:9", "memory:9", "size:9"]).failed
    assert [each.what.rpartition(" ")[2] for each in ratios] == ["exactness", "memory"]


@pytest.mark.parametrize(
    ("field", "area", "what"),
    [
        ("findings", "contents", "findings"),
        ("dropped", "variants", "dropped.cuda"),
        ("variants", "variants", "order"),
        ("fixtures", "contents", "fixtures.opt"),
        ("", "contents", "sha256"),
    ],
)
def test_what_manifests_list_besides(
    a: Path, key: PrivateKey, tmp_path: Path, field: str, area: Any, what: str
) -> None:
    """Also where only the order or the spelling of the manifest differs."""
    document = json.loads((a / "payload" / "aotc.json").read_bytes())
    values = {
        "findings": [{"code": "AOTC-S001", "what": "something"}],
        "dropped": [{"name": "cuda", "spec": "cuda", "reason": "no GPU"}],
        "variants": document["variants"][::-1],
        "fixtures": [],
    }
    given = {field: values[field]} if field else {}
    report = diff(a, changed_manifest(tmp_path / "b.aotc", key, **given), fail_on=[area])
    assert not report.same_id
    assert what in {change.what for change in report.area(area).changes}
    assert [each.code for each in report.failed] == ["AOTC-I061"]


def test_files_are_compared_by_digest(a: Path, key: PrivateKey, tmp_path: Path) -> None:
    document = json.loads((a / "payload" / "aotc.json").read_bytes())
    entry = next(each for each in document["files"] if each["role"] == "fixture")
    entry["sha256"] = "f" * 64
    b = changed_manifest(tmp_path / "b.aotc", key, files=document["files"])
    report = diff(a, b)
    (change,) = report.area("contents").changes
    assert (change.subject, change.what, change.b) == (entry["path"], "sha256", "f" * 64)
    assert {each.area for each in report.areas if each.status == "changed"} == {"contents"}


@pytest.fixture
def opened(a: Path) -> Iterator[ArtifactContents]:
    contents = open_side(a)
    yield contents
    contents.container.close()


def measured(contents: ArtifactContents, *errors: OutputError) -> ArtifactContents:
    """The artifact with these errors as evidence, and an id of its own."""
    comparison = Comparison(fixture="opt", outputs=errors)
    found = VariantEvidence(name="portable", comparisons=(comparison,) if errors else ())
    evidence = Evidence(built_at="", stages={}, variants=(found,), host={})
    return replace(contents, evidence=evidence, artifact_id=str(errors))


Y, Z = (OutputError(output=name, max_abs=1e-6, max_rel=1e-6) for name in "yz")


@pytest.mark.parametrize(
    ("before", "after", "verdict", "reason"),
    [
        ((Y,), (Y,), "passed", ""),
        ((Y,), (Y, Z), "passed", ""),
        ((Y, Z), (Y,), "passed", "portable: output z is not measured in B"),
        ((Y,), (), "passed", "portable: output y is not measured in B"),
        ((Y,), (Y,), "not-run", "portable: parity passed in A and not-run in B"),
        ((Y,), (replace(Y, passed=False),), "passed", "portable: output y passed in A alone"),
    ],
)
def test_a_lost_proof_fails_a_ratio(
    opened: ArtifactContents, before: Any, after: Any, verdict: Any, reason: str
) -> None:
    one = opened.manifest.variants[0]
    pair = Pair(one, replace(one, parity=replace(one.parity, status=verdict)), "name")
    found = exactness(measured(opened, *before), measured(opened, *after), [pair])
    assert found.reason == reason
    assert failing("exactness:2", found) == (reason != "")


def test_errors_that_nobody_measured(opened: ArtifactContents) -> None:
    pair = Pair(opened.manifest.variants[0], opened.manifest.variants[0], "name")
    found = exactness(opened, replace(opened, artifact_id="other"), [pair])
    assert found == Measured(
        changes=(), ratio=None, reason="portable: neither artifact has measured errors"
    )
    # Of one payload they are equal, whatever they are.
    assert exactness(opened, opened, [pair]) == Measured(changes=(), ratio=None)


def test_an_area_that_nobody_measured_is_not_the_same(
    a: Path, key: PrivateKey, tmp_path: Path
) -> None:
    parity = Parity(status="not-run", reason="no such device")
    paths = [
        build_artifact(tmp_path / f"{n}.aotc", key, parity=parity, change={"name": f"m{n}"})
        for n in range(2)
    ]
    report = diff(*paths, fail_on=["exactness"])
    assert report.area("exactness").status == "not-compared"
    assert [each.code for each in report.failed] == ["AOTC-I061"]


def failing(word: str, found: Measured) -> bool:
    """Whether a gate fails on what was measured."""
    allowed = read_allowed([word])
    areas = []
    for name in AREAS:
        area = AreaDiff(area=name, status="same")
        if name == allowed[0].area:
            area = AreaDiff(area=name, status="changed", reason=found.reason, ratio=found.ratio)
        areas.append(area)
    return bool(failures(allowed, areas, "a and b"))
