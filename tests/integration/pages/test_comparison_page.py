"""Two artifacts side by side: marks, the same node on the other side, and what cannot be read."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from artifact_builder import build_artifact
from chromium import chromium, needs_chromium
from drawn_artifacts import DIGITS, built, read_page, text_of
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.report.html.diff_page import comparison_page
from aotc.spec.diff_report import (
    AREAS,
    AreaDiff,
    Change,
    DiffReport,
    MeasuredRow,
    NodeChange,
    TensorChange,
    WeightsDiff,
)
from aotc.spec.reports import Refusal
from aotc.tools.diff.artifacts import diff
from aotc.trust import key_files
from aotc.trust.key_loading import load_private

OLD = ROOT / "manifests" / "compat" / "0.1.0" / "digits.aotc.zip"
NEW = ROOT / "tests" / "data" / "onnxruntime-1.30.aotc.zip"
HOSTILE = "</title></table><script>alert(1)</script>\"' onload=x \u202e\n"
PLAIN = """\
schema: aotc.profile/1
name: plain
variants:
  - {name: portable, isa: baseline, optimization: basic}
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One model, built with the usual optimization and with a lower level."""
    folders = [tmp_path_factory.mktemp(name) for name in ("a", "b")]
    profile = folders[1] / "plain.yaml"
    profile.write_text(PLAIN)
    a = built(folders[0], DIGITS, "--dim", "batch=1..8")
    return a, built(folders[1], DIGITS, "--dim", "batch=1..8", "--profile", str(profile))


def written(a: Path, b: Path, file: Path) -> DiffReport:
    """The page of a comparison in `file`, and what it is of."""
    report = diff(a, b)
    file.write_text(comparison_page(a, b, report), "ascii")
    assert file.stat().st_size < 2_000_000
    return report


def test_nodes_of_one_side_are_marked(pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "diff.html"
    report = written(*pair, file)
    page = read_page(file.read_text("ascii"))
    drawn = [e for e in page.iter("g") if e.get("class", "").startswith("node")]
    (nodes,) = report.nodes
    assert len(drawn) == nodes.nodes_a + nodes.nodes_b
    assert nodes.added
    for kind, changes in (("added", nodes.added), ("removed", nodes.removed)):
        marked = [e for e in drawn if e.get("class") == f"node {kind}"]
        assert len(marked) == len(changes)
        assert not any("data-peer" in e.attrib for e in marked)
    ids = {e.get("id") for e in drawn}
    peers = [e.get("data-peer") for e in drawn if "data-peer" in e.attrib]
    assert len(peers) == 2 * nodes.matched > 0
    assert ids.issuperset(peers)
    said = text_of(page)
    assert "UNVERIFIED: both artifacts say so of themselves: 'aotc verify' checks them." in said
    assert f"{nodes.nodes_a} -> {nodes.nodes_b}, {nodes.matched} in both" in said
    told = [next(map(text_of, row.iter("td"))) for row in rows(page, "nodes")]
    kinds = ("replaced", "renamed", "moved", "added", "removed")
    assert told == [kind for kind in kinds for _ in getattr(nodes, kind)]
    names = {change.b for change in nodes.added} | {change.a for change in nodes.removed}
    assert all(name in said for name in names)


def rows(page: Element, section: str) -> list[Element]:
    """The rows of the tables of one section."""
    (found,) = (each for each in page.iter("section") if each.get("id") == section)
    return [row for body in found.iter("tbody") for row in body.iter("tr")]


def test_all_that_differs_is_told(tmp_path: Path) -> None:
    """An earlier release's artifact, packed, against one with another ONNX Runtime."""
    report = written(OLD, NEW, tmp_path / "diff.html")
    page = read_page((tmp_path / "diff.html").read_text("ascii"))
    told = len(rows(page, "changes"))
    assert told == sum(len(area.changes) for area in report.areas) > 0
    assert len(rows(page, "measured")) == len(report.measured) > 0
    said = text_of(page)
    for side in (report.a, report.b):
        assert side.artifact_id in said
        assert side.path in said


def test_several_variants(tmp_path: Path) -> None:
    """Made up artifacts, whose models are none: they are compared by name, and not drawn."""
    key = load_private(key_files.generate(tmp_path / "release.pem")[0])
    a = build_artifact(tmp_path / "a.aotc", key)
    b = build_artifact(tmp_path / "b.aotc", key, padding=10)
    report = written(a, b, tmp_path / "diff.html")
    page = read_page((tmp_path / "diff.html").read_text("ascii"))
    titles = {text_of(each) for each in page.iter("h3")}
    assert {nodes.variant for nodes in report.nodes} <= titles
    assert len(report.nodes) == 2


def test_names_of_others_are_text(pair: tuple[Path, Path]) -> None:
    """A hostile report makes the elements and attributes that a plain one makes."""
    real = diff(*pair)

    def page_of(text: str) -> tuple[str, Element]:
        found = comparison_page(*pair, spoilt(real, text))
        return found, read_page(found)

    (hostile_text, hostile), (_, plain) = page_of(HOSTILE), page_of("plain words " * 6)
    # Where a long word may be broken there is a `wbr`, and nothing in it.
    made, wanted = ([e for e in each.iter() if e.tag != "wbr"] for each in (hostile, plain))
    assert [each.tag for each in made] == [each.tag for each in wanted]
    for one, other in zip(made, wanted, strict=True):
        assert set(one.attrib) == set(other.attrib)
        assert not any(name.startswith("on") for name in one.attrib)
    assert len(list(hostile.iter("script"))) == 1
    assert hostile_text.isascii()
    said = text_of(hostile)
    assert "<script>alert(1)</script>" in said
    assert "\\u202e" in said
    assert "\u202e" not in said


def spoilt(report: DiffReport, text: str) -> DiffReport:
    """A report in which everything that an artifact says of itself is `text`."""
    changed = NodeChange(a=text, b=text, op_a=text, op_b=text, provider_a=text, provider_b=text)
    tensor = TensorChange(
        a=text, b=text, dtype_a=text, dtype_b=text, shape_a=(1,), shape_b=(1,), max_abs=1.0
    )
    said = Refusal(code="AOTC-I061", what=text, where=text, expected=text, found=text)
    change = Change(subject=text, what=text, a={text: [text]}, b=text)
    return replace(
        report,
        a=replace(report.a, name=text, path=text, built_at=text, manifest=text),
        b=replace(report.b, name=text, path=text, built_at=text, manifest=text),
        areas=tuple(
            AreaDiff(area=area, status="changed", reason=text, changes=(change,)) for area in AREAS
        ),
        nodes=tuple(replace(nodes, moved=(changed,)) for nodes in report.nodes),
        weights=(WeightsDiff(variants=(text,), equal=1, changed=(tensor,)),),
        measured=(MeasuredRow(variant=text, what=text, unit="seconds", a=1.0, b=2.0, ratio=2.0),),
        failed=(said,),
        problems=(said,),
    )


def test_an_artifact_that_was_replaced_since(pair: tuple[Path, Path]) -> None:
    with pytest.raises(AotcError) as refused:
        comparison_page(pair[1], pair[1], diff(*pair))
    assert refused.value.code == "AOTC-G006"


def test_an_artifact_and_itself(pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "same.html"
    written(pair[0], pair[0], file)
    page = read_page(file.read_text("ascii"))
    drawn = [e for e in page.iter("g") if e.get("class", "").startswith("node")]
    assert {e.get("class") for e in drawn} == {"node"}
    assert "all alike" in text_of(page)


@needs_chromium
def test_a_click_marks_the_node_on_the_other_side(pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "diff.html"
    written(*pair, file)
    with chromium(tmp_path / "profile") as browser:
        browser.open(file)
        clicked, peer, hit, stroke = browser.run(
            "const e = document.querySelector('.node[data-peer]');"
            "const peer = document.getElementById(e.getAttribute('data-peer'));"
            "peer.classList.add('moved');"
            "e.querySelector('.box').dispatchEvent(new MouseEvent('click', {bubbles: true}));"
            "const mark = document.createElement('i'); document.body.append(mark);"
            "mark.style.color = 'var(--mark)';"
            "return [e.id, peer.id, Array.from(document.querySelectorAll('.hit'), (h) => h.id),"
            " [getComputedStyle(peer.querySelector('.box')).stroke, getComputedStyle(mark).color]]"
        )
        assert set(hit) == {clicked, peer}
        assert stroke[0] == stroke[1], "a mark of a difference does not hide it"
        root = "document.documentElement"
        assert browser.run(f"return {root}.scrollWidth <= {root}.clientWidth")
        assert browser.errors() == []
        assert browser.requests() == [file.as_uri()]


@needs_chromium
def test_a_browser_runs_nothing_of_a_hostile_report(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(comparison_page(*pair, spoilt(diff(*pair), HOSTILE)), "ascii")
    with chromium(tmp_path / "profile") as browser:
        browser.open(file)
        assert browser.run("return document.querySelectorAll('script').length") == 1
        assert browser.run("return document.querySelectorAll('[onload]').length") == 0
        assert "alert(1)" in browser.run("return document.title")
        assert browser.errors() == []
        assert browser.requests() == [file.as_uri()]
