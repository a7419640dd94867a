"""A plugin's library: which one is loaded, what it leaves behind, and what it needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import openvino_models as models
import pytest
from made_profiles import small_profile
from workbench import Built, Workbench, only_variant

from aotc.host.probe import probe
from aotc.spec.codec import encode
from aotc.spec.profile import Profile

pytestmark = pytest.mark.openvino
CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"


def profile(**fields: Any) -> Profile:
    """`edge-openvino` with other fields, quick to prove, its partitions kept."""
    return small_profile("edge-openvino", **fields)


@pytest.fixture(scope="module")
def plain(bench: Workbench) -> Built:
    return bench.build(models.plain(), "plain", profile=profile())


# The library that is loaded is the one that was promised.

LOADING = """
import os, sys, aotc
from aotc.base.errors import AotcError
artifact, key, store, name, library, how = sys.argv[1:]
stated = {name: library} if how == "argument" else {}
if how == "environment":
    os.environ["AOTC_PLUGINS"] = f"{name}={library}"
try:
    with aotc.load(artifact, key=key, store=store, plugins=stated) as model:
        print("loaded", model.report.fixtures)
except AotcError as error:
    print(error.code, *(other.code for other in error.also))
print(library in open("/proc/self/maps").read())
"""


def load_elsewhere(bench: Workbench, built: Built, library: Path, how: str) -> tuple[str, bool]:
    """A new process's result of loading with `library`, and whether the process mapped it."""
    words = (built.path, bench.public, bench.folder / "elsewhere", OPENVINO, library, how)
    done = subprocess.run(
        [sys.executable, "-c", LOADING, *map(str, words)], capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    said, mapped = done.stdout.splitlines()
    return said, mapped == "True"


def installed() -> Path:
    from aotc.providers.openvino import OpenVinoBackend

    library = OpenVinoBackend().library()
    assert library is not None
    return library


def linked(folder: Path) -> Path:
    """The plugin and all files next to it, as links in `folder`."""
    folder.mkdir()
    for path in installed().parent.iterdir():
        if path.is_file():
            (folder / path.name).symlink_to(path)
    return folder / installed().name


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_library_that_was_tampered_with_is_not_even_loaded(
    bench: Workbench, plain: Built, tmp_path: Path, how: str
) -> None:
    library = linked(tmp_path / "copy")
    library.unlink()
    library.write_bytes(installed().read_bytes() + b"tampered")
    said, mapped = load_elsewhere(bench, plain, library, how)
    assert said.startswith("AOTC-C009")
    assert {"AOTC-C006", "AOTC-C012"} & set(said.split())
    assert not mapped


def test_a_link_to_the_library_brings_no_others_with_it(
    bench: Workbench, plain: Built, tmp_path: Path
) -> None:
    """The dynamic loader looks for the plugin's own libraries next to the given path."""
    library = linked(tmp_path / "links")
    core = next(path for path in library.parent.glob("libopenvino.so*") if path.is_file())
    data = core.read_bytes()
    core.unlink()
    core.write_bytes(data + b"tampered")
    said, mapped = load_elsewhere(bench, plain, library, "argument")
    assert said.startswith("AOTC-C009")
    assert not mapped


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_the_installed_library_may_be_stated(bench: Workbench, plain: Built, how: str) -> None:
    said, mapped = load_elsewhere(bench, plain, installed(), how)
    assert said.split() == ["loaded", str(len(plain.manifest.fixtures))]
    assert mapped


# A crash here shows nothing about this machine.

CRASHING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef void *(*create)(void *, void *, void *, void *, void *, void *);
typedef void *(*release)(void *);
static void *real(const char *name) {
  static void *library;
  if (!library) library = dlopen(getenv("REAL_PLUGIN"), RTLD_NOW);
  return dlsym(library, name);
}
void *CreateEpFactories(void *a, void *b, void *c, void *d, void *e, void *f) {
  char place[4096];
  if (getcwd(place, sizeof place) && strstr(place, "/compile-")) {
    fprintf(stderr, "gone for good\\n");
    abort();
  }
  return ((create)real("CreateEpFactories"))(a, b, c, d, e, f);
}
void *ReleaseEpFactory(void *a) { return ((release)real("ReleaseEpFactory"))(a); }
"""


def test_a_plugin_that_crashes_at_compile_leaves_no_path_in_the_payload(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It claims what OpenVINO claims, and crashes when it should compile."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make a bad plugin with")
    (tmp_path / "crashing.c").write_text(CRASHING)
    library = tmp_path / "libcrashing.so"
    words = [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "crashing.c"]
    subprocess.run([*words, "-ldl"], check=True)
    monkeypatch.setenv("REAL_PLUGIN", str(installed()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plugins = {"mine": {"provider": OPENVINO, "library": str(library)}}
    spec = profile(providers=["mine", "cpu"], plugins=plugins)
    built = bench.build(models.plain(), "crashing", profile=spec)
    assert list((tmp_path / "state").rglob("*.log"))
    assert only_variant(built).providers == (CPU,)
    report = only_variant(built).partitioning
    assert report is not None
    assert [refusal.node for refusal in report.refusals] == [
        "a_product", "a_tanh", "y_product", "y_tanh",
    ]  # fmt: skip
    assert "AOTC-I013" in built.finding("AOTC-P006")
    for file in built.payload.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            for word in (str(tmp_path), str(Path.home()), "state/aotc/logs", "(log:"):
                assert word.encode() not in data, f"{word} in {file.name}"


# What it needs is stated.


def test_a_plugin_of_ones_own_requires_the_cpu_that_it_compiled_for(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its library is stated relative to the profile's file, and not to the working folder."""
    library = linked(tmp_path / "own")
    stated = encode(profile(providers=["mine", "cpu"]))
    options = {"load_config": '{"CPU":{"INFERENCE_PRECISION_HINT":"f32"}}'}
    spec = {"provider": OPENVINO, "library": f"own/{library.name}", "options": options}
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({**stated, "plugins": {"mine": spec}}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    built = bench.build(models.plain(), "mine", profile=path)
    variant = only_variant(built)
    assert variant.providers == (OPENVINO,)
    assert variant.requirements.plugins[0].name == library.name
    features = probe(gpus=False).isa
    assert features
    assert set(variant.requirements.isa) == set(features)
