"""How Sphinx makes the website; `build_site.py` gathers its sources and runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.spec.versions import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "aotc"
version = release = VERSION
copyright = "its contributors, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "index"
# What GitHub makes of headings is what links name.
myst_heading_anchors = 4
# Docstrings mark code as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
suppress_warnings: list[str] = []

html_theme = "furo"
html_title = f"aotc {VERSION}"
# Sources are in the repository, and nothing is asked of another host.
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": "", "footer_icons": []}
html_static_path = ["static"]
html_css_files = ["site.css"]
# What has no language is an output: without colours of another, and read, not pasted.
highlight_language = "text"
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
copybutton_prompt_text = "$ "

_GUIDES: Final = {
    "Begin": (
        "docs/tutorial",
        "Overview <README>",
        "docs/glossary",
    ),
    "Guides": (
        "docs/guides/install",
        "docs/guides/command-line",
        "docs/guides/python",
        "docs/guides/serve",
        "docs/guides/sizes",
        "docs/guides/profiles",
        "docs/guides/precision",
        "docs/guides/traffic",
        "docs/guides/providers",
        "docs/guides/gpu",
        "docs/guides/cache",
        "docs/guides/outputs",
    ),
    "In a pipeline": (
        "docs/guides/pipeline/ci",
        "docs/guides/pipeline/reports",
        "docs/guides/pipeline/pages",
        "docs/guides/pipeline/diff",
        "docs/guides/pipeline/bench",
        "docs/guides/pipeline/check-models",
    ),
    "Artifacts and trust": (
        "docs/guides/artifact",
        "docs/guides/pack",
        "docs/guides/pipeline/registries",
        "docs/guides/verification",
        "docs/guides/keys",
        "docs/guides/trust",
        "docs/guides/attestations",
        "docs/guides/store",
        "docs/guides/without-aotc",
        "docs/threat-model",
    ),
    "Reference": (
        "reference/commands",
        "reference/python",
        "reference/reports",
        "reference/schemas",
        "docs/codes",
        "docs/limits",
        "docs/benchmarks",
        "docs/benchmarks-gpu",
        "docs/benchmarks-judge",
        "docs/benchmarks-precision",
        "docs/benchmarks-ranges",
        "docs/conformance",
        "docs/comparison",
    ),
    "Development": (
        "CONTRIBUTING",
        "docs/architecture",
        "docs/machines",
        "docs/adr/README",
        "SECURITY",
        "CHANGELOG",
    ),
    "Examples": (
        "examples/digits/README",
        "examples/signers/README",
        "examples/signers/kms",
        "examples/verifiers/README",
    ),
}

# By subject, as the page of profiles lists them.
_PROFILES: Final = ("variants", "dims", "search", "inputs", "parity", "gates", "half-precision")


def _navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give the pages that lead to others their part of the navigation, which Markdown lacks."""
    if docname == "index":
        for caption, pages in _GUIDES.items():
            source[0] += _toctree(pages, f":caption: {caption}\n")
        source[0] += _toctree(("docs/README",))
    elif docname == "docs/guides/profiles":
        source[0] += _toctree(tuple(f"profiles/{name}" for name in _PROFILES))
    elif docname == "docs/adr/README":
        source[0] += _toctree(("0*",), ":glob:\n")


def _toctree(pages: tuple[str, ...], option: str = "") -> str:
    return f"\n\n```{{toctree}}\n:hidden:\n{option}\n" + "\n".join(pages) + "\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _navigation)
