"""The page of `aotc diff --html`: all nodes of both graphs, names of others as text."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from repository import ROOT

from aotc.cli.pages.diff_page import diff_page
from aotc.comparing.aligned_nodes import aligned_nodes
from aotc.comparing.artifact_comparison import compare
from aotc.contract.results.diff_report import (
    AREAS,
    AreaDiff,
    Change,
    ComparedArtifact,
    DiffReport,
    NodeChange,
    NodesDiff,
    TensorChange,
    WeightsDiff,
)
from aotc.contract.results.reports import Refusal
from aotc.inspection.summary import inspect
from aotc.signing.keys import key_files
from aotc.signing.keys.key_loading import load_private

OLD = ROOT / "manifests" / "compat" / "0.1.0" / "digits.aotc.zip"
NEW = ROOT / "tests" / "data" / "onnxruntime-1.30.aotc.zip"
HOSTILE = "</title></table><script>alert(1)</script>\"' onload=x \u202e\n"


class Parsed(HTMLParser):
    """Tags, attributes and the rows of the graphs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update((name, value or "") for name, value in attrs)


def row(name: str, *, op: str = "Relu", runs_on: str = "CPU") -> NodeChange:
    return NodeChange(a=name, b=name, op_a=op, op_b=op, provider_a=runs_on, provider_b=runs_on)


def report(text: str) -> DiffReport:
    side = ComparedArtifact(
        path=text, name=text, artifact_id="0" * 64, manifest=text, payload_bytes=1, built_at=text
    )
    return DiffReport(
        a=side,
        b=side,
        same_id=False,
        areas=tuple(
            AreaDiff(
                area=area,
                status="changed",
                changes=(Change(subject=text, what=text, a={text: [text]}, b=text),),
            )
            if index
            else AreaDiff(area=area, status="not-compared", reason=text)
            for index, area in enumerate(AREAS)
        ),
        nodes=(NodesDiff(variant=text, nodes_a=9, nodes_b=9, matched=9, by_structure=False),),
        weights=(
            WeightsDiff(
                variants=(text,),
                equal=1,
                changed=(TensorChange(a=text, b=text, dtype_a=text, dtype_b=text, max_abs=1.0),),
            ),
        ),
        failed=(Refusal(code="AOTC-I061", what=text, expected=text, found=text),),
    )


def graphs(text: str) -> dict[str, tuple[NodeChange, ...]]:
    equal = tuple(row(text, op=text, runs_on=text) for _ in range(9))
    return {text: (NodeChange(b=text, op_b=text, provider_b=text), *equal)}


def test_names_of_others_are_text() -> None:
    hostile, plain = (Parsed(diff_page(report(t), graphs(t))) for t in (HOSTILE, "plain"))
    assert hostile.tags == plain.tags
    assert "script" not in hostile.tags
    assert hostile.attributes == plain.attributes
    assert "\u202e" not in diff_page(report(HOSTILE), graphs(HOSTILE))


def test_every_node_of_both_stands_once() -> None:
    compared = compare(OLD, NEW)
    aligned = aligned_nodes(OLD, NEW, compared)
    page = diff_page(compared, aligned)
    (nodes,) = compared.nodes
    rows = aligned[nodes.variant]
    assert len([each for each in rows if each.a]) == nodes.nodes_a
    assert len([each for each in rows if each.b]) == nodes.nodes_b
    assert len([each for each in rows if each.a and each.b]) == nodes.matched
    assert [each for each in rows if each.a and not each.b] == list(nodes.removed)
    for path in (OLD, NEW):
        summary = inspect(path).artifact
        assert summary is not None
        assert summary.variants[0].nodes == nodes.nodes_a
    for each in rows:
        assert each.a in page


def test_equal_nodes_are_folded_and_others_marked() -> None:
    equal = tuple(row(f"n{number}") for number in range(20))
    moved = NodeChange(
        a="m", b="m", op_a="Add", op_b="Add", provider_a="CPU", provider_b="CUDAExecutionProvider"
    )
    rows = (*equal, moved, NodeChange(a="g", op_a="Cast"), NodeChange(b="c", op_b="Mul"))
    renamed = NodeChange(a="old", b="new", op_a="Mul", op_b="Mul")
    replaced = NodeChange(a="r", b="r", op_a="Gelu", op_b="FastGelu")
    page = diff_page(report("v"), {"v": (*rows, renamed, replaced)})
    assert page.count("<summary>20 equal nodes</summary>") == 1
    for kind, word in (
        *(("moved", "moved"), ("gone", "removed"), ("new", "added")),
        *(("renamed", "renamed"), ("replaced", "replaced")),
    ):
        (found,) = (part for part in page.split("<tr") if part.startswith(f' class="{kind}"'))
        assert f"<small>{word}</small>" in found


def test_an_artifact_of_several_variants(tmp_path: Path) -> None:
    key = load_private(key_files.generate(tmp_path / "release.pem")[0])
    a = build_artifact(tmp_path / "a.aotc", key)
    b = build_artifact(tmp_path / "b.aotc", key, padding=10)
    compared = compare(a, b)
    page = diff_page(compared, aligned_nodes(a, b, compared))
    assert page.count("<h2>Graphs of ") == 2
    assert "Graphs of native: no node differs" in page


def test_it_opens_in_a_browser(tmp_path: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    compared = compare(OLD, NEW)
    page = tmp_path / "page.html"
    page.write_text(diff_page(compared, aligned_nodes(OLD, NEW, compared)), "utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=900,1200"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=driver)
    ) as chrome:
        chrome.get(page.as_uri())
        assert chrome.get_log("browser") == []
        root = "document.documentElement"
        assert chrome.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth")
        summary = chrome.find_element("css selector", "summary")
        hidden = chrome.find_element("css selector", "details div")
        assert not hidden.is_displayed()
        summary.send_keys("\n")
        assert hidden.is_displayed(), "a key unfolds it"
