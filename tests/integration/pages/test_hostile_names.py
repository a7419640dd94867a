"""Names that try to be more than text: a page shows them and runs nothing of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest
from chromium import chromium, needs_chromium
from drawn_artifacts import DIGITS, built, read_page, text_of

from aotc.report.html.artifact_page import artifact_page

ATTACKS = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</title></style><svg onload=alert(3)>",
    "a\u202egnp.exe\u2066",
    "line\nbreak\r\n\x00\x1b[31m",
    "n" * 10_000,
    "<!--",
    "]]>{{7*7}}${7*7}",
    "javascript:alert(4)//' onclick='alert(5)",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact whose files were changed afterwards: inspection verifies nothing."""
    folder = tmp_path_factory.mktemp("hostile")
    place = folder / "hostile.aotc"
    shutil.copytree(built(folder, DIGITS, "--dim", "batch=1..8"), place)
    manifest = place / "payload" / "aotc.json"
    data = json.loads(manifest.read_text("utf-8"))
    (variant,) = data["variants"]
    names = [node["name"] for node in variant["placement"]["nodes"]]
    renamed = {name: ATTACKS[i % len(ATTACKS)] + str(i) for i, name in enumerate(names)}
    for node in variant["placement"]["nodes"]:
        node["name"] = renamed[node["name"]]
    data["findings"] = [{"code": "AOTC-S008", "what": ATTACKS[0], "where": ATTACKS[1]}]
    data["source"]["producer_name"] = ATTACKS[2]
    data["target"] = ATTACKS[3]
    variant["passes"][0]["matched"] = {ATTACKS[0]: 1}
    data["name"] = ATTACKS[8].replace("/", "|")
    manifest.chmod(0o644)
    manifest.write_text(json.dumps(data), "utf-8")
    for file in place.glob("payload/*/*/model.onnx"):
        model = onnx.load(file, load_external_data=False)
        rename_values(model.graph, renamed)
        file.chmod(0o644)
        onnx.save(model, file)
    return place


def rename_values(graph: Any, renamed: dict[str, str]) -> None:
    inner = {name for node in graph.node for name in node.output}
    inner -= {value.name for value in graph.output}
    names = {name: f"{ATTACKS[i % len(ATTACKS)]}v{i}" for i, name in enumerate(sorted(inner))}
    for node in graph.node:
        node.name = renamed.get(node.name, node.name)
        for values in (node.input, node.output):
            values[:] = [names.get(name, name) for name in values]


def test_the_page_has_no_element_that_is_not_ours(hostile: Path) -> None:
    text = artifact_page(hostile)
    assert text.isascii()
    page = read_page(text)
    assert len(list(page.iter("script"))) == 1
    assert list(page.iter("script")) == [page.findall(".//body/script")[-1]]
    elements = {e.tag for e in page.iter()}
    assert not elements & {"img", "iframe", "object", "embed", "base", "form", "image", "use"}
    attributes = {name for e in page.iter() for name in e.attrib}
    assert not {name for name in attributes if name.startswith("on")}
    addresses = {e.get("href", "") for e in page.iter() if "href" in e.attrib}
    assert all(address.startswith("#") or address == "data:," for address in addresses)


def test_what_misleads_is_shown_as_an_escape(hostile: Path) -> None:
    page = read_page(artifact_page(hostile))
    said = text_of(page)
    assert "</script><script>alert(1)</script>" in said
    assert "a\\u202egnp.exe\\u2066" in said
    assert "\u202e" not in said
    assert "line\\nbreak\\r\\n\\x00\\x1b[31m" in said
    assert "(10,00" in said
    shown = (
        "".join(e.itertext()) + "".join(e.attrib.values())
        for e in page.iter()
        if e.tag not in ("pre", "script", "style", "path")
        and e.tag in ("td", "text", "title", "dd", "h1", "h3", "li", "code")
    )
    assert max(map(len, shown)) <= 2_100


@needs_chromium
def test_a_browser_runs_nothing_of_it(hostile: Path, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(artifact_page(hostile), "ascii")
    with chromium(tmp_path / "profile") as browser:
        browser.open(file)
        browser.run("document.querySelector('[data-do=open]').click()")
        for node in range(3):
            browser.run(
                "document.querySelectorAll('.node > .box')[arguments[0]]"
                ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
                node,
            )
        browser.run(
            "const find = document.getElementById('find'); find.value = 'alert';"
            "find.dispatchEvent(new Event('input'))"
        )
        assert browser.run("return document.querySelectorAll('#found li').length") > 0
        assert browser.run("return document.querySelectorAll('script').length") == 1
        assert (
            browser.run("return document.querySelectorAll('img, [onload], [onerror]').length") == 0
        )
        # A dialogue that is open would make this fail.
        assert "javascript:alert(4)" in browser.run("return document.title")
        assert browser.errors() == []
        assert browser.requests() == [file.as_uri()]
