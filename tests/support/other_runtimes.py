"""Environments beside the one of the tests: its own packages, and an ONNX Runtime that differs."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from changed_runtime import changed_runtime
from repository import TOOLCHAIN


def changed_environment(folder: Path, change: str) -> Path:
    """A venv that sees the packages of this one, in which ONNX Runtime answers `change` of `o`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    visible = [TOOLCHAIN, *(path for path in sys.path if "site-packages" in path)]
    (packages / "around.pth").write_text("".join(f"{path}\n" for path in visible))
    changed_runtime(packages, change)
    return folder


def installed_wheel(folder: Path, distribution: str) -> Path:
    """A wheel of what is installed of a distribution, as it was before it was installed."""
    about = metadata.distribution(distribution)
    tags = [line for line in (about.read_text("WHEEL") or "").splitlines() if "Tag: " in line]
    stem = f"{distribution.replace('-', '_')}-{about.version}"
    wheel = folder / f"{stem}-{tags[0].partition(': ')[2]}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in about.files or ():
            is_made = file.suffix == ".pyc" or file.parts[0] == ".." or file.name == "INSTALLER"
            if not is_made:
                archive.write(file.locate(), str(file))
    return wheel


def made_wheel(
    folder: Path,
    name: str = "onnxruntime",
    *,
    tag: str = "py3-none-any",
    code: str = "",
    further: Mapping[str, str] | None = None,
) -> Path:
    """A wheel of one module with `code`, and of `further` files by path."""
    stem = f"{name}-1.32.99"
    files = {
        f"{name}/__init__.py": code,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.32.99\n",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        **(further or {}),
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(text.encode())}\n")
    files[f"{stem}.dist-info/RECORD"] = "".join([*rows, f"{stem}.dist-info/RECORD,,\n"])
    wheel = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel
