"""Environments of another ONNX Runtime: which one is asked for, and which are used again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from other_runtimes import made_wheel

from aotc.fleet.runtimes import _wanted, runtime_of

USABLE = """\
__version__ = "1.32.99"
def set_default_logger_severity(level): pass
def get_available_providers(): return ["CPUExecutionProvider"]
"""


@pytest.mark.parametrize(
    ("stated", "asked"),
    [("1.33", "==1.33.*"), ("1.33.0", "==1.33.0"), ("1.33rc1", "==1.33rc1")],
)
def test_only_two_numbers_are_the_newest_of_a_minor(stated: str, asked: str) -> None:
    (requirement,) = _wanted(stated).arguments
    assert requirement.endswith(asked)


@pytest.mark.parametrize("line", ["onnxruntime @ file://{0}", "onnxruntime\n-c {1}\n"])
def test_files_that_requirements_name_count(tmp_path: Path, line: str) -> None:
    """A wheel of the same name may be another one."""
    other = tmp_path / "onnxruntime-1.32.99-py3-none-any.whl"
    other.write_bytes(b"one")
    stated = tmp_path / "requirements.txt"
    stated.write_text(line.format(other, other.name))
    before = _wanted(str(stated)).identity
    assert _wanted(str(stated)).identity == before
    other.write_bytes(b"two")
    assert _wanted(str(stated)).identity != before


def test_an_environment_that_lost_its_runtime_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what removes old files of caches leaves it: the runtime of today is behind it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    wheel = str(made_wheel(tmp_path, code=USABLE))
    runtime, _ = runtime_of(wheel)
    assert (runtime.version, runtime.about.reused) == ("1.32.99", False)
    assert runtime_of(wheel)[0].about.reused
    (packages,) = (tmp_path / "cache").glob("aotc/environments/*/lib/python*/site-packages")
    for lost in packages.glob("onnxruntime*"):
        shutil.rmtree(lost)
    again, _ = runtime_of(wheel)
    assert (again.version, again.about.reused) == ("1.32.99", False)
    assert again.stamp != runtime.stamp
