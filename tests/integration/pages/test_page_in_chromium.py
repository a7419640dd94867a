"""Pages in a real browser: they open without an error or a request, unfold, and find a node."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, chromium, needs_chromium
from drawn_artifacts import DIGITS, built
from third_party_models import MODELS, needs_models

from aotc.report.html.artifact_page import write_page

pytestmark = needs_chromium

# Whether boxes of the same level lie over each other, and edges end at their things.
OVERLAPS = """
const open = Array.from(document.querySelectorAll('.variant:not([hidden]) svg.graph .level'))
  .filter((e) => e.getClientRects().length && e.getBoundingClientRect().width > 0
    && getComputedStyle(e).display !== 'none');
let found = 0;
for (const level of open) {
  const boxes = Array.from(level.children).filter((e) => e.matches('.node, .group'))
    .map((e) => e.querySelector(':scope > .box').getBoundingClientRect());
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    const beside = a.left >= b.right - 1 || b.left >= a.right - 1;
    const above = a.top >= b.bottom - 1 || b.top >= a.bottom - 1;
    if (!beside && !above) found += 1;
  }));
}
return found;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(
    scope="module",
    params=["cnn", pytest.param("bert", marks=needs_models)],
)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "cnn":
        artifact = built(folder, DIGITS, "--dim", "batch=1..8")
    else:
        artifact = built(folder, MODELS / "tinybert_untrained.onnx")
    file = folder / f"{request.param}.html"
    write_page(artifact, file)
    assert file.stat().st_size < 2_000_000
    return file


def visible(browser: Browser, what: str) -> int:
    found = browser.run(
        "return Array.from(document.querySelectorAll(arguments[0]))"
        ".filter((e) => e.checkVisibility() && e.getBoundingClientRect().width > 0).length",
        f"svg.graph {what}",
    )
    assert isinstance(found, int)
    return found


def press(browser: Browser, what: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", what)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_error_or_request(browser: Browser, page: Path, scheme: str) -> None:
    browser.open(page, prefers_color_scheme=scheme)
    assert browser.errors() == []
    assert browser.requests() == [page.as_uri()]
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert colour == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 20, 26)"}[scheme]
    browser.run("document.getElementById('graph').scrollIntoView()")
    kept = page.with_name(f"{page.stem}-{scheme}.png")
    assert browser.driver.save_screenshot(str(kept))
    assert kept.stat().st_size > 10_000


def test_groups_unfold_and_fold(browser: Browser, page: Path) -> None:
    browser.open(page)
    press(browser, "[data-do=close]")
    folded = visible(browser, ".node")
    press(browser, "[data-do=open]")
    nodes = browser.run("return document.querySelectorAll('svg.graph .node').length")
    assert visible(browser, ".node") == nodes >= folded
    assert browser.run(OVERLAPS) == 0
    browser.driver.save_screenshot(str(page.with_name(f"{page.stem}-unfolded.png")))
    press(browser, "[data-do=close]")
    assert visible(browser, ".node") == folded
    assert browser.errors() == []


def test_a_click_unfolds_one_group(browser: Browser, page: Path) -> None:
    browser.open(page)
    press(browser, "[data-do=close]")
    if visible(browser, ".group") == 0:
        assert page.stem == "cnn"
        return
    before = visible(browser, ".node, .group")
    browser.run(
        "document.querySelector('svg.graph .group > .box')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    assert visible(browser, ".node, .group") > before
    assert browser.run(OVERLAPS) == 0


def test_a_node_is_found_and_told_of(browser: Browser, page: Path) -> None:
    browser.open(page)
    press(browser, "[data-do=close]")
    last = browser.run(
        "return document.querySelector('table.nodes tbody tr:last-child').cells[0].textContent"
    )
    find = browser.driver.find_element("id", "find")
    find.send_keys(last, "\ue007")
    hit: dict[str, Any] = browser.run(
        "const e = document.querySelector('svg.graph .hit'), b = e.getBoundingClientRect();"
        "return {label: e.getAttribute('aria-label'), top: b.top, bottom: b.bottom,"
        " focus: document.activeElement === e, height: innerHeight}"
    )
    assert last in hit["label"]
    assert hit["focus"]
    assert 0 <= hit["top"] < hit["bottom"] <= hit["height"]
    assert last in browser.run("return document.querySelector('.detail').textContent")
    assert browser.run("return document.getElementById('said').textContent").endswith("found")


def test_keys_alone_are_enough(browser: Browser, page: Path) -> None:
    browser.open(page)
    press(browser, "[data-do=close]")
    stops = browser.run("return document.querySelectorAll(\"svg.graph [tabindex='0']\").length")
    assert stops == browser.run("return document.querySelectorAll('svg.graph').length")
    browser.run("document.querySelector(\"svg.graph [tabindex='0']\").focus()")
    seen = set()
    for key in ("\ue015", "\ue014", "\ue015", "\ue015", "\ue012", "\ue007", "\ue010", "\ue011"):
        browser.driver.switch_to.active_element.send_keys(key)
        seen.add(browser.run("return document.activeElement.id"))
        assert browser.run("return document.activeElement.getAttribute('role')") == "treeitem"
    assert len(seen) > 2
    assert browser.errors() == []


def test_every_control_and_picture_has_a_name(browser: Browser, page: Path) -> None:
    browser.open(page)
    tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "treeitem", "tree", "img", "image", "combobox", "searchbox", "region"}
    nameless = [
        node["role"]["value"]
        for node in tree
        if not node.get("ignored")
        and node.get("role", {}).get("value") in roles
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    assert any(node.get("role", {}).get("value") == "treeitem" for node in tree)


def test_the_manifest_is_searched(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.driver.find_element("id", "lines").send_keys("sha256")
    counted = browser.run("return document.getElementById('counted').textContent")
    assert int(counted.split(" ")[0]) > 3
    shown = browser.run(
        "return Array.from(document.querySelectorAll('#manifest details[open] pre'))"
        ".map((e) => e.textContent).join('\\n')"
    )
    assert shown.count("sha256") == int(counted.split(" ")[0])


def test_it_prints_in_light_colours_without_controls(browser: Browser, page: Path) -> None:
    browser.open(page, prefers_color_scheme="dark")
    browser.emulate("print", prefers_color_scheme="dark")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert not browser.run("return document.querySelector('.tools').checkVisibility()")
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 20_000
    page.with_suffix(".pdf").write_bytes(base64.b64decode(printed["data"]))
    browser.emulate("")
