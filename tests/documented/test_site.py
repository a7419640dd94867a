"""The website builds with no warning and no broken link, and asks nothing of another host."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from repository import ROOT

SCRIPT = ROOT / "ci" / "site" / "build_site.py"
# Its environment is its own: `make site` makes it.
PYTHON = ROOT / ".venv-site" / "bin" / "python"


@pytest.fixture(scope="module")
def links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_links", SCRIPT.with_name("links.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-site: 'make site' makes it")
def test_the_site_builds(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [str(PYTHON), str(SCRIPT), str(site)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    for name in ("index", "docs/guides/profiles", "reference/commands", "reference/python"):
        assert (site / f"{name}.html").is_file()
    reference = (site / "reference" / "python.html").read_text("utf-8")
    assert all(f'id="aotc.{name}"' in reference for name in ("load", "bench", "Model", "Watcher"))
    # What functions return is linked.
    assert 'href="reports.html#aotc.BuildReport"' in reference
    assert 'id="aotc.BenchReport"' in (site / "reference" / "reports.html").read_text("utf-8")
    assert "aotc trust add [OPTIONS]" in (site / "reference" / "commands.html").read_text("utf-8")
    assert (site / "searchindex.js").is_file()


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
