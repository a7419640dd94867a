"""Two artifacts side by side: marks, the same node on the other side, and what cannot be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any

import pytest
from chromium import chromium, needs_chromium
from drawn_artifacts import DIGITS, built, read_page, text_of

from aotc.drawing.artifact_contents import Contents, read_contents
from aotc.drawing.comparison_page import write_comparison

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


def names(contents: Contents) -> list[str]:
    graph = contents.drawn[0].graph
    assert graph is not None
    return [node.name for node in graph.nodes]


def compared(a: Path, b: Path) -> Any:
    """What `aotc diff` says of two artifacts, as far as a page shows it."""
    sides = [read_contents(path) for path in (a, b)]
    one, other = (names(side) for side in sides)

    def change(name_a: str = "", name_b: str = "") -> Made:
        return Made(a=name_a, b=name_b)

    stated = [
        Made(
            name=side.manifest.name,
            path=str(path),
            artifact_id=side.report.artifact.artifact_id if side.report.artifact else "",
            payload_bytes=1,
            built_at="",
        )
        for side, path in zip(sides, (a, b), strict=True)
    ]
    nodes = Made(
        variant="portable",
        nodes_a=len(one),
        nodes_b=len(other),
        matched=len(set(one) & set(other)),
        moved=(),
        added=tuple(change(name_b=name) for name in other if name not in one),
        removed=tuple(change(name) for name in one if name not in other),
        renamed=(),
        replaced=(),
    )
    changed = Made(subject="<b>", what="session.optimization", a="extended", b=None, ratio=0.5)
    area = Made(area="passes", status="changed", reason="", ratio=2.0, changes=(changed,))
    return Made(
        a=stated[0],
        b=stated[1],
        same_id=False,
        areas=(area,),
        variants=(Made(a="portable", b="portable", label="portable"),),
        nodes=(nodes,),
        failed=(),
        problems=(),
    )


def test_nodes_of_one_side_are_marked(pair: tuple[Path, Path], tmp_path: Path) -> None:
    report = compared(*pair)
    file = tmp_path / "diff.html"
    write_comparison(*pair, report, file)
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
    assert "Nothing on this page was checked against a signature" in said
    assert f"{nodes.nodes_a} nodes in A, {nodes.nodes_b} in B" in said
    assert "session.optimization" in said


def test_an_artifact_and_itself(pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "same.html"
    write_comparison(pair[0], pair[0], compared(pair[0], pair[0]), file)
    page = read_page(file.read_text("ascii"))
    drawn = [e for e in page.iter("g") if e.get("class", "").startswith("node")]
    assert {e.get("class") for e in drawn} == {"node"}
    assert "all alike" in text_of(page)


@needs_chromium
def test_a_click_shows_the_node_on_the_other_side(pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "diff.html"
    write_comparison(*pair, compared(*pair), file)
    with chromium(tmp_path / "profile") as browser:
        browser.open(file)
        hit = browser.run(
            "const e = document.querySelector('[data-peer]');"
            "e.querySelector('.box').dispatchEvent(new MouseEvent('click', {bubbles: true}));"
            "return [e.getAttribute('data-peer'),"
            " ...Array.from(document.querySelectorAll('.hit')).map((h) => h.id), e.id]"
        )
        assert hit[0] in hit[1:3]
        assert hit[-1] in hit[1:3]
        assert browser.errors() == []
        assert browser.requests() == [file.as_uri()]
