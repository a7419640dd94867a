"""Plugins and providers that a profile names: where libraries lie, budgets, threads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aotc.base.errors import AotcError
from aotc.host.plugin_libraries import stated_libraries
from aotc.providers.named_backends import with_threads
from aotc.spec.profile import PluginSpec
from aotc.spec.profile_files import load_profile, with_absolute_paths

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
PLUGIN = "providers: [mine, cpu]\nplugins:\n  mine: {{provider: MineProvider, library: {}}}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: mine\n{text}", encoding="utf-8")
    return path


# Libraries.


@pytest.mark.parametrize("stated", ["libs/mine.so", "./libs/mine.so", "{folder}/libs/mine.so"])
def test_a_library_is_found_next_to_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own").mkdir()
    folder = tmp_path / "own"
    write(folder, PLUGIN.format(stated.format(folder=folder)))
    monkeypatch.chdir(tmp_path / "elsewhere")
    for path in (folder / "mine.yaml", Path("..") / "own" / "mine.yaml"):
        library = Path(load_profile(path).plugins["mine"].library)
        assert library.is_absolute()
        assert library.resolve() == folder / "libs" / "mine.so"


def test_a_library_of_a_profile_without_a_file_is_found_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = load_profile(write(tmp_path, PLUGIN.format("/opt/mine.so")))
    assert profile.plugins["mine"].library == "/opt/mine.so"
    monkeypatch.chdir(tmp_path)
    spec = PluginSpec(provider="MineProvider", library="mine.so")
    made = with_absolute_paths(replace(profile, plugins={"mine": spec}), Path())
    assert made.plugins["mine"].library == str(tmp_path / "mine.so")


@pytest.mark.parametrize("text", ["MineProvider", "=/opt/mine.so", "MineProvider="])
def test_a_pair_that_names_no_plugin_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AOTC_PLUGINS", f"OtherProvider=/opt/other.so:{text}")
    with pytest.raises(AotcError) as caught:
        stated_libraries()
    assert (caught.value.code, caught.value.found) == ("AOTC-I027", text)


# Budgets.


def test_a_budget_of_an_unknown_provider_is_refused(tmp_path: Path) -> None:
    text = "providers: [openvino, cpu]\nbudgets: {providers: {openvnio: {min_node_share: 1.0}}}\n"
    path = write(tmp_path, text)
    with pytest.raises(AotcError) as caught:
        load_profile(path)
    error = caught.value
    assert (error.code, error.where) == ("AOTC-I022", f"{path}: budgets.providers.openvnio")
    assert "cpu, openvino" in error.line()


@pytest.mark.parametrize(
    "place",
    [
        "providers: [openvino, cpu]",
        "variants: [{name: portable}, {name: fast, providers: [openvino, cpu]}]",
        "tune: {providers: [[openvino, cpu], [cpu]]}",
    ],
)
def test_a_budget_of_any_provider_that_is_named_is_kept(tmp_path: Path, place: str) -> None:
    text = "\nbudgets: {providers: {openvino: {min_node_share: 0.5}, cpu: {max_node_share: 1.0}}}\n"
    profile = load_profile(write(tmp_path, place + text))
    assert set(profile.budgets.providers) == {"openvino", "cpu"}


@pytest.mark.parametrize("text", ["budgets: {cpu_share: 0.1}", "fallback: {max_node_share: 0.5}"])
def test_a_limit_on_the_cpu_as_the_first_choice_is_refused(tmp_path: Path, text: str) -> None:
    """Such a limit would limit nothing."""
    with pytest.raises(AotcError) as caught:
        load_profile(write(tmp_path, f"providers: [cpu]\n{text}\n"))
    assert caught.value.code == "AOTC-I022"
    load_profile(write(tmp_path, f"providers: [openvino, cpu]\n{text}\n"))


# Threads.


def test_threads_reach_a_provider_that_has_its_own() -> None:
    stated = {"load_config": '{"CPU":{"INFERENCE_PRECISION_HINT":"f32"}}', "other": "kept"}
    options = with_threads(OPENVINO, dict(stated), 1)
    assert options["other"] == "kept"
    assert json.loads(options["load_config"]) == {
        "CPU": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    }
    assert json.loads(with_threads(OPENVINO, {}, 3)["load_config"]) == {
        "CPU": {"INFERENCE_NUM_THREADS": 3}
    }


@pytest.mark.parametrize("name", [CPU, "MineProvider"])
def test_other_providers_get_their_options_alone(name: str) -> None:
    assert with_threads(name, {"some": "option"}, 1) == {"some": "option"}
