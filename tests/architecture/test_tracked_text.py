"""No file names the place where it was written, or a package index.

The patterns are joined from parts, so that this file does not match them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from repository import ROOT

REGISTRIES = (
    ("pypi", "org"),
    ("pypi", "python", "org"),
    ("pythonhosted", "org"),
    ("pypi", "nvidia", "com"),
    ("download", "pytorch", "org"),
    ("npmjs", "org"),
    ("yarnpkg", "com"),
    ("anaconda", "org"),
    ("anaconda", "com"),
    ("crates", "io"),
    ("rubygems", "org"),
    ("proxy", "golang", "org"),
    ("jfrog", "io"),
)
PATTERNS = {
    "a path of the machine it was written on": re.compile(
        r"(?<![\w.\-/$}])/(?:" + "|".join(("wo" + "rk", "ro" + "ot")) + r")/[\w.]"
    ),
    "a folder beside the repository": re.compile(r"\.\./" + "shared" + r"\b"),
    "the host of a package registry": re.compile(
        r"\b(?:" + "|".join(r"\.".join(parts) for parts in REGISTRIES) + r")\b"
    ),
    "an option that names an index": re.compile("--(?:extra-)?" + "index" + "-url"),
}
# Files that may name what the others may not, by pattern.
ALLOWED = {"a folder beside the repository": {".ci/run"}}


def tracked() -> list[str]:
    """Files in version control, or that the next commit would add."""
    result = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        pytest.skip("not a git checkout: there is no list of tracked files")
    return sorted(name for name in result.stdout.split("\0") if name)


def text_of(path: Path) -> str | None:
    """The text of a file; None for a binary, or a listed file that is deleted."""
    try:
        content = path.read_bytes()
        return None if b"\0" in content else content.decode("utf-8")
    except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
        return None


def test_no_tracked_text_file_names_its_workplace_or_an_index() -> None:
    found = []
    for name in tracked():
        text = text_of(ROOT / name)
        for number, line in enumerate((text or "").splitlines(), 1):
            found += [
                f"{name}:{number}: {what}: {match[0]}"
                for what, pattern in PATTERNS.items()
                if (match := pattern.search(line)) and name not in ALLOWED.get(what, ())
            ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of the machine it was written on", "open('/" + "work" + "/x.onnx')"),
        ("a path of the machine it was written on", "cd /" + "root" + "/.cache"),
        ("a folder beside the repository", "AOTC_MODELS=../" + "shared/models"),
        ("the host of a package registry", "https://" + "files.python" + "hosted.org/a.whl"),
        ("the host of a package registry", "see py" + "pi.org/simple"),
        ("an option that names an index", "--extra-" + "index-" + "url=https://host"),
    ],
)
def test_a_pattern_matches_what_it_names(what: str, line: str) -> None:
    assert PATTERNS[what].search(line)


@pytest.mark.parametrize("line", ["a/work/b", "the framework/", "root/x", "the work/life", "PyPI"])
def test_ordinary_text_matches_no_pattern(line: str) -> None:
    assert not [what for what, pattern in PATTERNS.items() if pattern.search(line)]
