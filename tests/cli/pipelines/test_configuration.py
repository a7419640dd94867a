"""Defaults by `aotc.yaml`: who reads it, what goes before it, and what it may not touch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import Command
from made_models import linear, save
from repository import ROOT

import aotc as library
from aotc.base.errors import AotcError


@pytest.fixture
def aotc(aotc: Command) -> Command:
    save(linear(), aotc.folder / "model.onnx")
    return aotc


def write(aotc: Command, text: str, name: str = "aotc.yaml") -> Path:
    path = aotc.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def values(aotc: Command) -> dict[tuple[str, str], tuple[str, str, str]]:
    document = aotc("config").document
    return {
        (row["command"], row["option"]): (row["value"], row["source"], row["place"])
        for row in document["values"]
    }


def profile(aotc: Command, place: str) -> None:
    shown = aotc.plain("profile", "show", "edge").stdout
    write(aotc, shown.replace("name: edge", "name: mine"), place)


def test_a_file_sets_defaults_of_a_build(aotc: Command) -> None:
    profile(aotc, "mine.yaml")
    assert aotc.plain("keygen", "-o", "release.pem").status == 0
    write(
        aotc,
        "schema: aotc.config/1\nprofile: mine.yaml\nkey: release.pem\nbuild:\n  cache: false\n",
    )
    done = aotc.plain("build", "model.onnx", "--json")
    assert done.status == 0, done
    told = "aotc.yaml sets profile mine.yaml, key release.pem, cache off\n"
    assert done.stderr == told
    assert done.document["development_key"] is False
    assert aotc("inspect", "model.aotc").document["artifact"]["profile"] == "mine"
    assert aotc.plain("cache", "list", "--json").document["entries"] == []
    # Whoever may write into the folder is not obeyed unseen, however quiet a call is to be.
    assert aotc.plain("build", "model.onnx", "--force", "-q").stderr == told


def test_the_command_line_goes_before_it_and_the_environment_too(aotc: Command) -> None:
    write(aotc, "profile: missing.yaml\nkey: missing.pem\ncache: false\n")
    refused = aotc("build", "model.onnx")
    assert refused.refused("AOTC-I021", 3)
    assert aotc.plain("keygen", "-o", "other.pem").status == 0
    own = aotc.plain(
        "build", "model.onnx", "--profile", "edge", "--key", "other.pem", "--cache", "--json"
    )
    assert (own.status, own.stderr) == (0, "")
    named = Command(aotc.folder, {"AOTC_SIGNING_KEY": "other.pem"})
    done = named.plain("build", "model.onnx", "--profile", "edge", "--force", "--json")
    assert (done.status, done.stderr) == (0, "aotc.yaml sets cache off\n")


def test_paths_are_relative_to_the_file(aotc: Command) -> None:
    profile(aotc, "ci/mine.yaml")
    write(aotc, "profile: mine.yaml\ntarget: linux-x86-64\n", "ci/aotc.yaml")
    named = Command(aotc.folder, {"AOTC_CONFIG": "ci/aotc.yaml"})
    done = named.plain("build", "model.onnx", "-q")
    assert done.status == 0
    assert done.stderr == "ci/aotc.yaml sets profile ci/mine.yaml, target linux-x86-64\n"
    found = values(named)
    assert found["build", "profile"] == ("ci/mine.yaml", "file", "ci/aotc.yaml:1:1")
    assert found["build", "target"] == ("linux-x86-64", "file", "ci/aotc.yaml:2:1")
    assert found["check-models", "profile"] == ("ci/mine.yaml", "file", "ci/aotc.yaml:1:1")


def test_the_section_of_a_command_goes_before_the_rest(aotc: Command) -> None:
    write(
        aotc,
        "profile: edge\ncache: true\nkey: release.pem\nreport: all.json\n"
        "build: {profile: server-cpu, report: [a.json, b.md]}\n"
        "check_models:\n  cache: false\nbench:\n  key: release.pub\n",
    )
    found = values(Command(aotc.folder, {"AOTC_CONFIG": "aotc.yaml"}))
    assert found["build", "profile"] == ("server-cpu", "file", "aotc.yaml:5:9")
    assert found["build", "report"] == ("a.json, b.md", "file", "aotc.yaml:5:30")
    assert found["build", "cache"] == ("on", "file", "aotc.yaml:2:1")
    assert found["check-models", "profile"] == ("edge", "file", "aotc.yaml:1:1")
    assert found["check-models", "cache"] == ("off", "file", "aotc.yaml:7:3")
    assert found["bench", "key"] == ("release.pub", "file", "aotc.yaml:9:3")
    assert found["bench", "report"] == ("all.json", "file", "aotc.yaml:4:1")


def test_a_key_that_signs_is_not_one_to_trust(aotc: Command) -> None:
    write(aotc, "key: release.pem\n")
    found = values(aotc)
    assert found["build", "key"][0] == "release.pem"
    assert found["bench", "key"] == ("this user's development key", "default", "")


SIGNER = """\
schema: aotc.signer/1
public_key: |
{public}
command: [sh, -c, "touch ran; exit 1"]
"""
PLUGIN = """\
schema: aotc.profile/1
name: mine
plugins:
  cuttlefish: {provider: CuttlefishExecutionProvider, library: ./libcuttlefish.so}
"""
OPERATORS = """\
schema: aotc.profile/1
name: mine
custom_ops: [{library: ./libcuttlefish.so}]
"""


@pytest.mark.parametrize(
    ("text", "field", "place", "what"),
    [
        ("key: s.yaml\n", "key", (1, 1), "a signer file, which runs a program"),
        ("build:\n  key: s.yaml\n", "build.key", (2, 3), "a signer file, which runs a program"),
        ("profile: p.yaml\n", "profile", (1, 1), "a profile that loads plugin libraries"),
        (
            *("profile: o.yaml\n", "profile", (1, 1)),
            "a profile that loads libraries of custom operators",
        ),
        ("bench: {key: release.pub}\n", "bench.key", (1, 9), "a key to trust"),
    ],
)
def test_a_file_that_nobody_named_runs_no_program_and_trusts_nobody(
    aotc: Command, text: str, field: str, place: tuple[int, int], what: str
) -> None:
    assert aotc.plain("keygen", "-o", "release.pem").status == 0
    public = (aotc.folder / "release.pub").read_text()
    write(
        aotc, SIGNER.format(public="".join(f"  {line}\n" for line in public.splitlines())), "s.yaml"
    )
    write(aotc, PLUGIN, "p.yaml")
    write(aotc, OPERATORS, "o.yaml")
    write(aotc, text)
    for words in (("build", "model.onnx"), ("bench", "model.aotc"), ("config",)):
        reason = aotc(*words).refused("AOTC-I052", 3)
        assert reason["what"] == f"the configuration in the working directory must not set {what}"
        assert reason["where"] == f"aotc.yaml: {field}"
        assert (reason["place"]["line"], reason["place"]["column"]) == place
        assert "AOTC_CONFIG" in reason["fix"]
    assert not (aotc.folder / "ran").exists()
    # Who names the file, names what it names.
    named = Command(aotc.folder, {"AOTC_CONFIG": "aotc.yaml"})
    assert named("config").status == 0
    if field == "key":
        assert named("build", "model.onnx").status != 0
        assert (aotc.folder / "ran").exists()


def test_a_report_to_standard_output_is_one_wherever_the_file_is(aotc: Command) -> None:
    write(aotc, "report: '-.md'\n", "ci/aotc.yaml")
    named = Command(aotc.folder, {"AOTC_CONFIG": "ci/aotc.yaml"})
    done = named.plain("build", "model.onnx")
    assert done.status == 0, done
    assert done.stdout.startswith("#")
    assert not (aotc.folder / "ci" / "-.md").exists()


def test_json_goes_before_a_report_that_the_file_has_on_standard_output(aotc: Command) -> None:
    write(aotc, "report: ['-', all.json]\n")
    done = aotc.plain("build", "model.onnx", "--json")
    assert (done.status, done.stderr) == (0, "aotc.yaml sets report all.json\n")
    assert done.document["artifact_id"]
    assert (aotc.folder / "all.json").is_file()
    write(aotc, "report: '-'\n")
    done = aotc.plain("build", "model.onnx", "--force", "--json")
    assert (done.status, done.stderr) == (0, "")
    assert done.document["artifact_id"]


def test_config_says_where_each_value_comes_from(aotc: Command) -> None:
    assert {source for _, source, _ in values(aotc).values()} == {"default"}
    write(aotc, "profile: server-cpu\nkey: a.pem\n")
    named = Command(aotc.folder, {"AOTC_SIGNING_KEY": "b.pem"})
    found = values(named)
    assert found["build", "key"] == ("b.pem", "environment", "AOTC_SIGNING_KEY")
    assert found["build", "target"] == ("the profile's", "default", "")
    shown = named.plain("config").stdout
    assert shown.startswith("aotc config  aotc.yaml\n")
    assert ["profile", "server-cpu", "aotc.yaml:1:1"] in [
        line.split() for line in shown.splitlines()
    ]
    document = named("config").document
    schema = json.loads((ROOT / "manifests" / "config-report.schema.json").read_text())
    jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("text", "field", "line", "what"),
    [
        ("profil: edge\n", "profil", 1, "unknown field; did you mean 'profile'?"),
        (
            "build:\n  cache: true\n  kee: a\n",
            "build.kee",
            3,
            "unknown field; did you mean 'key'?",
        ),
        ("cache: maybe\n", "cache", 1, "expected true or false, found 'maybe'"),
        (
            "schema: aotc.profile/1\n",
            "schema",
            1,
            "'aotc.profile/1' is none of: aotc.config/1",
        ),
        ("profile: a\nprofile: b\n", "profile", 2, "duplicate key"),
        ("[edge]\n", "", 1, "expected a mapping, found a list"),
        ("profile: &a edge\ntarget: *a\n", "", 2, "aliases are not allowed"),
        ("profile: ''\n", "profile", 1, "'' does not match"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(
    aotc: Command, text: str, field: str, line: int, what: str
) -> None:
    write(aotc, text)
    for words in (("build", "model.onnx"), ("config",), ("check-models", "."), ("bench", "a.aotc")):
        first = aotc(*words).refused("AOTC-I052", 3)
        assert first["where"] == (f"aotc.yaml: {field}" if field else "aotc.yaml")
        assert (first["place"]["file"], first["place"]["line"]) == ("aotc.yaml", line)
        assert what in first["what"], first
    assert not (aotc.folder / "model.aotc").exists()


def test_a_newer_schema_is_said_to_be_newer(aotc: Command) -> None:
    write(aotc, "schema: aotc.config/2\n")
    assert aotc("config").refused("AOTC-I046", 3)


def test_a_file_that_is_named_has_to_be_there(aotc: Command) -> None:
    named = Command(aotc.folder, {"AOTC_CONFIG": "missing.yaml"})
    assert named("config").refused("AOTC-I052", 3)["where"] == "missing.yaml"
    os.mkfifo(aotc.folder / "aotc.yaml")
    assert aotc("build", "model.onnx").refused("AOTC-I052", 3)
    off = Command(aotc.folder, {"AOTC_CONFIG": "off"})
    assert off("config").document["file"] == ""


def test_an_empty_file_sets_nothing(aotc: Command) -> None:
    write(aotc, "# nothing yet\n")
    assert {source for _, source, _ in values(aotc).values()} == {"default"}


POISON = (
    "key: attacker.pub\ntrust: attacker.pub\nverify: {key: attacker.pub}\nprofile: [\n",
    "bench:\n  key: attacker.pub\nkey: attacker.pub\nprofile: attacker.yaml\n",
)


def untimed(document: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(document, dict):
        return {k: untimed(v) for k, v in document.items() if "seconds" not in k}
    return [untimed(item) for item in document] if isinstance(document, list) else document


@pytest.mark.parametrize("poison", POISON)
def test_verify_and_load_read_none_of_it(
    aotc: Command, poison: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a file that is no YAML nor one that names another's key changes any answer."""
    assert aotc.plain("keygen", "-o", "release.pem").status == 0
    assert aotc.plain("keygen", "-o", "attacker.pem").status == 0
    for name, key in (("good", "release.pem"), ("forged", "attacker.pem")):
        built = aotc.plain("build", "model.onnx", "--key", key, "-o", f"{name}.aotc", "-q")
        assert built.status == 0
    calls = [
        (command, f"{name}.aotc", "--key", "release.pub")
        for command in ("verify", "run")
        for name in ("good", "forged")
    ]
    calls += [("verify", "forged.aotc"), ("inspect", "good.aotc")]
    # Once to fill the store.
    [aotc(*words) for words in calls]
    before = [aotc(*words) for words in calls]
    monkeypatch.chdir(aotc.folder)
    monkeypatch.setenv("AOTC_STORE", str(aotc.store))
    for name in ("", "aotc.yaml"):
        if name:
            write(aotc, poison)
            monkeypatch.setenv("AOTC_CONFIG", str(aotc.folder / name))
        assert library.verify("good.aotc", key="release.pub").authentic
        assert not library.verify("forged.aotc", key="release.pub").authentic
        with library.load("good.aotc", key="release.pub") as ready:
            assert ready.report.verdict == "optimal"
        with pytest.raises(AotcError):
            library.load("forged.aotc", key="release.pub")
    poisoned = Command(aotc.folder, {"AOTC_CONFIG": str(aotc.folder / "aotc.yaml")})
    for words, earlier in zip(calls, before, strict=True):
        for command in (aotc, poisoned):
            later = command(*words)
            assert (later.status, later.stderr) == (earlier.status, earlier.stderr)
            assert untimed(later.document) == untimed(earlier.document)


def test_foreign_text_of_the_file_is_escaped(aotc: Command) -> None:
    write(aotc, 'profile: "\\u202egpj.exe"\n')
    done = aotc.plain("build", "model.onnx")
    assert done.status == 3
    assert "\u202e" not in done.stderr
    assert done.stderr.startswith("aotc.yaml sets profile \\u202egpj.exe\n")
