"""What a start may not import: each of these costs as much as an empty Python's start, or more.

Nothing is timed here: `benchmarks/rows/startup.py` does that.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT, TOOLCHAIN

RELEASE = ROOT / "manifests" / "compat" / "0.1.0"
ARTIFACT, KEY = str(RELEASE / "digits.aotc"), str(RELEASE / "release.pub")

MODELS = ("onnx", "onnxruntime", "numpy", "ml_dtypes", "google")
COMMAND_LINE = ("typer", "click", "rich", "shellingham")
# Of the standard library, what reads source, compiles code at import, or starts processes.
SLOW = (
    *("dataclasses", "inspect", "ast", "decimal", "difflib", "pkgutil", "importlib.metadata"),
    *("subprocess", "platform", "tempfile", "shutil", "secrets", "csv", "textwrap", "unicodedata"),
)
DOCUMENTS = ("yaml", "rfc8785")
# Readers of every kind of key and certificate; one on P-256 takes none of them.
KEY_FORMATS = (
    "cryptography.x509",
    "cryptography.hazmat.primitives.serialization",
    "sigstore",
)
# What writes, builds or runs, and what profiles say.
ROOMS = (
    *(
        "aotc.pipeline",
        "aotc.session",
        "aotc.runtime",
        "aotc.runtime.store",
        "aotc.providers",
        "aotc.graph.passes",
        "aotc.registry",
    ),
    *("aotc.spec.profile", "aotc.spec.command_reports", "aotc.base.files.writing"),
    *("aotc.trust.policy.document", "aotc.trust.archive"),
)
LIBRARY = (*MODELS, *COMMAND_LINE, *SLOW, *DOCUMENTS, *KEY_FORMATS, *ROOMS)

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "import aotc": ("import aotc", (*LIBRARY, "cryptography", "hashlib", "json", "pathlib")),
    "aotc.verify": ("import aotc; aotc.verify", (*LIBRARY, "cryptography")),
    "aotc.inspect": ("import aotc; aotc.inspect", (*LIBRARY, "cryptography")),
    "aotc.diff": ("import aotc; aotc.diff", MODELS),
    "a verification": (
        f"import aotc; assert aotc.verify({ARTIFACT!r}, key={KEY!r}).authentic",
        LIBRARY,
    ),
    "an inspection": (
        f"import aotc; assert aotc.inspect({ARTIFACT!r}).artifact",
        (*LIBRARY, "cryptography"),
    ),
}
COMMANDS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "aotc --help": (
        ["--help"],
        (*MODELS, *DOCUMENTS, *ROOMS, "cryptography", "hashlib", "json", "aotc.spec.manifest"),
    ),
    "aotc explain": (
        ["explain", "AOTC-G005"],
        (
            *(*MODELS, *DOCUMENTS, *ROOMS, "cryptography", "rich", "hashlib", "decimal"),
            *("aotc.spec.manifest", "aotc.spec.reports", "aotc.trust"),
        ),
    ),
    "aotc inspect": (
        ["inspect", ARTIFACT],
        (*MODELS, *DOCUMENTS, *ROOMS, "cryptography", "aotc.host", "aotc.trust.gate"),
    ),
    "aotc verify": (
        ["verify", ARTIFACT, "--key", KEY],
        (*MODELS, *DOCUMENTS, *ROOMS, *KEY_FORMATS, "aotc.tools.inspect"),
    ),
}


_LISTING = """
import sys
before = set(sys.modules)
{code}
print(*(set(sys.modules) - before), file=sys.stderr)
"""


def imported(code: str, home: Path) -> set[str]:
    """What `code` imports in a fresh Python: packages with each of their modules.

    Without what an installation's own start hooks (`.pth` files) import before it.
    """
    names = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", _LISTING.format(code=code)],
        env={**os.environ, **names, "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_library_starts_with_little(program: str, tmp_path: Path) -> None:
    code, forbidden = PROGRAMS[program]
    assert sorted(imported(code, tmp_path) & set(forbidden)) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_starts_with_little(command: str, tmp_path: Path) -> None:
    words, forbidden = COMMANDS[command]
    # 1 where the host is not one that the artifact is for.
    code = f"from aotc.cli.main import main; assert main({words!r}) in (0, 1)"
    found = imported(code, tmp_path)
    assert sorted(found & set(forbidden)) == []
    others = {name for name in found if name.startswith("aotc.cli.commands.")}
    assert others <= {f"aotc.cli.commands.{words[0]}", "aotc.cli.commands.base"}


def test_what_is_forbidden_exists(tmp_path: Path) -> None:
    """A module that is renamed would be forbidden in vain."""
    names = {name for _, row in (*PROGRAMS.values(), *COMMANDS.values()) for name in row}
    optional = {"google", "click", "sigstore", *MODELS}
    imported(
        f"import importlib\nfor name in {sorted(names - optional)}: importlib.import_module(name)",
        tmp_path,
    )


def test_an_import_at_the_top_is_noticed(tmp_path: Path) -> None:
    assert "csv" in imported("import aotc, csv", tmp_path) & set(LIBRARY)


def test_classes_of_fields_are_records() -> None:
    """A dataclass takes half a millisecond to define, and `dataclasses` six to import."""
    found = [
        str(path.relative_to(TOOLCHAIN))
        for path in sorted(TOOLCHAIN.rglob("*.py"))
        if re.search(r"^\s*@(dataclasses\.)?dataclass\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert found == []
