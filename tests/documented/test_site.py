"""The website builds with no warning and no broken link, asks nothing of another host, and is read
without a line that is cut or a page of profiles that has no end.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from chromium import Browser, chromium, needs_chromium
from documented_pages import Page
from repository import ROOT

SCRIPT = ROOT / "ci" / "site" / "build_site.py"
# Its environment is its own: `make site` makes it.
PYTHON = ROOT / ".venv-site" / "bin" / "python"
# Pixels of a page at a width of 1280.
TALLEST = 4000
PROFILES = [*ROOT.glob("docs/guides/profiles.md"), *ROOT.glob("docs/guides/profiles/*.md")]


@pytest.fixture(scope="module")
def links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_links", SCRIPT.with_name("links.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The website, built once."""
    if not PYTHON.exists():
        pytest.skip("there is no .venv-site: 'make site' makes it")
    site = tmp_path_factory.mktemp("website") / "site"
    done = subprocess.run(
        [str(PYTHON), str(SCRIPT), str(site)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return site


@pytest.mark.slow
def test_the_site_builds(site: Path) -> None:
    for name in ("index", "docs/guides/profiles", "reference/commands", "reference/python"):
        assert (site / f"{name}.html").is_file()
    reference = (site / "reference" / "python.html").read_text("utf-8")
    assert all(f'id="aotc.{name}"' in reference for name in ("load", "bench", "Model", "Watcher"))
    # What functions return is linked.
    assert 'href="reports.html#aotc.BuildReport"' in reference
    assert 'id="aotc.BenchReport"' in (site / "reference" / "reports.html").read_text("utf-8")
    assert "aotc trust add [OPTIONS]" in (site / "reference" / "commands.html").read_text("utf-8")
    assert (site / "searchindex.js").is_file()


@pytest.mark.slow
def test_the_start_page_leads_on(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    for target in ("docs/tutorial", "docs/glossary", "docs/guides/pipeline/ci", "CONTRIBUTING"):
        assert f'href="{target}.html"' in page
    assert 'src="_images/pipeline.svg"' in page
    # Its commands are those at the top of the README.
    start, readme = (Page(path).blocks for path in ("ci/site/index.md", "README.md"))
    assert start[0].text == readme[0].text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


# Code, and the page itself, that is wider than the place that it has.
CUT = """
return [...document.querySelectorAll("pre"), document.documentElement]
  .filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.textContent.slice(0, 80))
"""
# Of each block: whether it is an output, and how many buttons it has.
BUTTONS = """
return [...document.querySelectorAll("div.highlight")].map(each => [
  /highlight-text/.test(each.parentElement.className),
  each.querySelectorAll("button.copybtn").length,
])
"""


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_no_code_is_cut(width: int, site: Path, browser: Browser) -> None:
    browser.width(width)
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    cut = {}
    for page in pages:
        browser.open(page)
        if found := browser.run(CUT):
            cut[page.relative_to(site).as_posix()] = found
    assert cut == {}


@pytest.mark.slow
@needs_chromium
def test_pages_of_profiles_are_short(site: Path, browser: Browser) -> None:
    browser.width(1280)
    guides = site / "docs" / "guides"
    heights = {}
    for page in (guides / "profiles.html", *sorted((guides / "profiles").glob("*.html"))):
        browser.open(page)
        heights[page.stem] = browser.run("return document.documentElement.scrollHeight")
    assert {name: height for name, height in heights.items() if height > TALLEST} == {}
    assert set(heights) == {path.stem for path in PROFILES}


@pytest.mark.slow
@needs_chromium
def test_code_has_a_button_that_copies_it(site: Path, browser: Browser) -> None:
    for name in ("docs/tutorial", "README"):
        browser.open(site / f"{name}.html")
        found = browser.run(BUTTONS)
        assert len(found) > 10
        for is_output, buttons in found:
            assert buttons == (0 if is_output else 1)


PAGES = {
    "index.html": '<a href="guide.html#here">a</a><img src="_static/a.svg">'
    '<a href="#top" id="top">e</a>',
    "guide.html": '<h2 id="here">b</h2><a href="index.html">c</a><a href="https://x.example/">d</a>'
    '<link rel="next" href="https://x.example/"><img src="data:image/png;base64,AA">',
    "_static/a.svg": "",
    "_static/a.css": "a { background: url(a.svg) }",
}


def problems(links: ModuleType, folder: Path, changed: dict[str, str]) -> list[str]:
    for name, text in {**PAGES, **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return list(links.problems(folder))


def test_sound_pages_have_no_problems(links: ModuleType, tmp_path: Path) -> None:
    assert problems(links, tmp_path, {}) == []


@pytest.mark.parametrize(
    ("page", "text", "problem"),
    [
        ("index.html", '<a href="gone.html">a</a>', "no such file: gone.html"),
        ("index.html", '<a href="guide.html#gone">a</a>', "no such place: guide.html#gone"),
        ("index.html", '<a href="#gone">a</a>', "no such place: #gone"),
        ("index.html", '<img src="gone.png">', "no such file: gone.png"),
        (
            "index.html",
            '<script src="https://x.example/a.js"></script>',
            "fetched from another host: https://x.example/a.js",
        ),
        (
            "index.html",
            '<link rel="stylesheet" href="//x.example/a.css">',
            "fetched from another host: //x.example/a.css",
        ),
        ("_static/a.css", "@font-face { src: url(https://x.example/a) }", "fetches from another"),
    ],
)
def test_what_is_wrong_is_told(
    page: str, text: str, problem: str, links: ModuleType, tmp_path: Path
) -> None:
    (found,) = problems(links, tmp_path, {page: text})
    assert problem in found
