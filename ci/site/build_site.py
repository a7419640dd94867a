"""Build the website: guides as they stand in the repository, and reference made from the code.

`python ci/site/build_site.py [FOLDER]` writes FOLDER (build/site). It fails on any warning, on a
link to a page, an anchor or a file that is not there, and on whatever a page would fetch from
another host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import links

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What pages are made from, or link to.
SOURCES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "NOTICE"),
    *(".pre-commit-config.yaml", "docs", "examples", "manifests", "profiles"),
    *("benchmarks/rows", "ci/templates"),
)


def gather(folder: Path) -> None:
    """Put what the site is made from into `folder`, as it lies in the repository."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in SOURCES:
        # Links are resolved by Sphinx, and would lead out of its sources.
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    shutil.copyfile(HERE / "index.md", folder / "index.md")
    import reference_pages

    reference_pages.write(folder / "reference")


def main(arguments: list[str]) -> int:
    """Build; 1 where anything is to be said of the result."""
    site = Path(arguments[0] if arguments else ROOT / "build" / "site").resolve()
    sources = site.with_name(f"{site.name}-sources")
    gather(sources)
    shutil.rmtree(site, ignore_errors=True)
    doctrees = site.with_name(f"{site.name}-doctrees")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", str(HERE)),
            *("--doctree-dir", str(doctrees), "--fail-on-warning", "--fresh-env", "--quiet"),
            *(str(sources), str(site)),
        ],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'toolchain'}"},
        check=False,
    )
    if done.returncode:
        return 1
    found = list(links.problems(site))
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        print(f"wrote {site / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.path.insert(1, str(HERE.parent))
    sys.exit(main(sys.argv[1:]))
