"""The jobs for GitLab: their script lines run in one shell, in a folder that all may write."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_models import linear, save
from repository import ROOT, TOOLCHAIN

GITLAB = ROOT / "ci" / "templates" / "gitlab"
JOBS = GITLAB / "aotc.gitlab-ci.yml"
PIPELINE = GITLAB / "pipeline.yml"


def jobs() -> dict[str, Any]:
    found = yaml.safe_load(JOBS.read_text())
    assert isinstance(found, dict)
    return found


def run(
    folder: Path,
    place: Path,
    python: Path,
    environment: dict[str, str],
    *,
    installs: bool = True,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run `before_script` and `script` of the build job in one shell, as a runner does.

    Without `installs` the step that installs aotc is left out.
    """
    job = jobs()[".aotc-build"]
    before = [each for each in job["before_script"] if installs or "pip install" not in each]
    assert len(before) == 2 + installs
    lines = "\n".join((*before, *job["script"]))
    # Each job has its container: what lies in /tmp there is a folder of its own here.
    script = lines.replace("/tmp/", f"{place}/")
    return subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=folder,
        env={
            **environment,
            **job["variables"],
            "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(place),
            "GITLAB_CI": "true",
            "CI_PROJECT_URL": "https://gitlab.example.com/team/models",
            "CI_JOB_URL": "https://gitlab.example.com/team/models/-/jobs/17",
            "AOTC_MODEL": "model.onnx",
            "AOTC_ARTIFACT": "model.aotc",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def project(folder: Path) -> Path:
    """A checkout as GitLab's runner leaves it: anybody may write there."""
    folder.mkdir()
    save(linear(), folder / "model.onnx")
    folder.chmod(0o777)
    return folder


@pytest.mark.slow
def test_builds_verifies_and_keeps(
    tmp_path: Path, python_on_path: Path, offline: dict[str, str]
) -> None:
    folder = project(tmp_path / "checkout")
    (tmp_path / "first").mkdir()
    done = run(folder, tmp_path / "first", python_on_path, offline, AOTC_PACKAGE=str(ROOT))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    # What the job keeps is what it made, wherever that is; GitLab puts its variables in.
    (kept,) = jobs()[".aotc-build"]["artifacts"]["paths"]
    assert kept.replace("$AOTC_ARTIFACT", "model.aotc") == "model.aotc.zip"
    assert (folder / "model.aotc.zip").is_file()
    assert (folder / "aotc.xml").is_file()
    assert (folder / "aotc.codequality.json").is_file()
    assert list((folder / ".aotc-cache").rglob("index.json"))
    # The next job begins with the cache, unpacked so that anybody may write it.
    following = project(tmp_path / "following")
    shutil.copytree(folder / ".aotc-cache", following / ".aotc-cache")
    for path in (following / ".aotc-cache").rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (tmp_path / "second").mkdir()
    done = run(following, tmp_path / "second", python_on_path, offline, AOTC_PACKAGE=str(ROOT))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "from the build cache" in done.stdout
    # A release takes nothing from the cache, which other branches may write.
    done = run(
        *(following, tmp_path / "second", python_on_path, offline),
        AOTC_PACKAGE=str(ROOT),
        AOTC_RELEASE="tag",
        CI_COMMIT_TAG="v1.4.0",
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "from the build cache" not in done.stdout
    # A tag of another form is refused, and what is told is the status of the job.
    (folder / "model.aotc.zip").unlink()
    done = run(
        *(folder, tmp_path / "second", python_on_path, offline),
        AOTC_PACKAGE=str(ROOT),
        AOTC_RELEASE="tag",
        CI_COMMIT_TAG="nightly",
    )
    assert done.returncode == 3
    assert "AOTC-I069" in done.stdout + done.stderr
    assert not (folder / "model.aotc.zip").exists()


@pytest.fixture
def ready(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs the job in `tmp_path/checkout`, with this tree's aotc on the path."""
    folder, programs = project(tmp_path / "checkout"), tmp_path / "programs"
    programs.mkdir()
    (programs / "aotc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m aotc.cli.main "$@"\n')
    (programs / "aotc").chmod(0o755)
    path = {"PYTHONPATH": str(TOOLCHAIN)}
    return functools.partial(run, folder, tmp_path, programs, path, installs=False)


def test_a_name_like_an_option_is_a_name(
    ready: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "checkout"
    # What an older commit holds is not what the job keeps.
    for name in ("-o.aotc.zip", "aotc.xml", "aotc.codequality.json"):
        (folder / name).write_text("older")
    done = ready(AOTC_MODEL="-h", AOTC_ARTIFACT="-o.aotc")
    assert (done.returncode, done.stderr) == (1, "AOTC_MODEL: there is no such file.\n")
    save(linear(), folder / "-h")
    done = ready(AOTC_MODEL="-h", AOTC_ARTIFACT="-o.aotc", AOTC_PROFILE="missing")
    assert done.returncode == 3
    assert not (folder / "-o.aotc.zip").exists()
    assert "older" not in (folder / "aotc.xml").read_text()
    done = ready(AOTC_MODEL="-h", AOTC_ARTIFACT="-o.aotc")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert zipfile.is_zipfile(folder / "-o.aotc.zip")


def test_an_aotc_that_builds_nothing_fails_the_job(
    ready: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert ready().returncode == 0
    (tmp_path / "programs" / "aotc").write_text("#!/bin/sh\nexit 0\n")
    done = ready()
    assert (done.returncode, done.stderr) == (1, "aotc build: it reports nothing.\n")
    assert not (tmp_path / "checkout" / "model.aotc.zip").exists()


_NAMES = ("MODEL", "PROFILE", "ARTIFACT", "PACKAGE", "EXTRAS", "LOCK", "RELEASE", "TRUST")
_CONTROL = [(f"AOTC_{name}", f"a{each}b") for name in _NAMES for each in "\n\r\x1b"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *_CONTROL,
        ("AOTC_TRUST_CONFIG", "a\nb"),
        *(("AOTC_MODEL", each) for each in ("", "-", "./-", "missing.onnx", "/dev/zero", ".")),
        *(
            ("AOTC_ARTIFACT", each)
            for each in ("", ".", "..", "/", "a/", "*.aotc", "$HOME", "a\\b")
        ),
        *(("AOTC_EXTRAS", each) for each in ("", "cpu] @ https://example.com/#", "cpu, sigstore")),
        *(("AOTC_KEYLESS", each) for each in ("", "True", "yes")),
    ],
)
def test_variables_that_are_none(
    name: str, value: str, ready: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = ready(**{name: value})
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


# What GitLab states in the pipelines that a push, a merge request and a tag ask for.
_BRANCH = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "topic"}
_REQUEST = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_IID": "1"}
_TAG = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_TAG": "v1.4.0"}


def holds(condition: str, variables: dict[str, str]) -> bool:
    """Whether a condition of variables that are stated, or equal to a text, holds."""
    if "||" in condition:
        return any(holds(each, variables) for each in condition.split("||"))
    for term in condition.split("&&"):
        name, sign, text = term.strip().partition(" == ")
        value = variables.get(name.removeprefix("$"), "")
        if not (value == text.strip('"') if sign else value):
            return False
    return True


def runs(rules: list[dict[str, str]], variables: dict[str, str]) -> bool:
    """Whether the first rule that applies lets it run."""
    found = next((each for each in rules if holds(each["if"], variables)), {"when": "never"})
    return found.get("when") != "never"


@pytest.mark.parametrize(
    ("asked", "run", "job"),
    [
        ([_BRANCH], [True], "build-artifact"),
        # With an open merge request, a push asks for two pipelines of one commit.
        ([_BRANCH | {"CI_OPEN_MERGE_REQUESTS": "a!1"}, _REQUEST], [False, True], "build-artifact"),
        ([_TAG], [True], "release-artifact"),
    ],
)
def test_a_commit_has_one_pipeline(asked: list[dict[str, str]], run: list[bool], job: str) -> None:
    pipeline = yaml.safe_load(PIPELINE.read_text())
    assert [runs(pipeline["workflow"]["rules"], each) for each in asked] == run
    rules = {
        "build-artifact": pipeline["build-artifact"]["rules"],
        "release-artifact": jobs()[".aotc-release"]["rules"],
    }
    last = asked[-1]
    assert [name for name, own in rules.items() if runs(own, last)] == [job]


def test_a_lock_without_hashes_installs_nothing(
    tmp_path: Path, python_on_path: Path, unhashed_lock: str
) -> None:
    folder = project(tmp_path / "checkout")
    (folder / "aotc.lock").write_text(unhashed_lock)
    words = {"AOTC_PACKAGE": str(ROOT), "AOTC_LOCK": "aotc.lock"}
    done = run(folder, tmp_path, python_on_path, {"PIP_NO_INDEX": "1"}, **words)
    assert done.returncode == 1
    assert "Hashes are required" in done.stdout + done.stderr
    assert not (tmp_path / "aotc" / "bin" / "aotc").exists()


@pytest.mark.parametrize("package", ["", "aotc", "missing.whl"])
def test_nothing_is_looked_up_by_its_name(
    package: str, tmp_path: Path, python_on_path: Path
) -> None:
    folder = project(tmp_path / "checkout")
    done = run(folder, tmp_path, python_on_path, {"PIP_NO_INDEX": "1"}, AOTC_PACKAGE=package)
    assert done.returncode == 1
    assert "Set the variable AOTC_PACKAGE" in done.stderr
    assert not (tmp_path / "aotc").exists()


@pytest.mark.parametrize("file", [JOBS, PIPELINE], ids=lambda path: path.name)
def test_it_is_what_gitlab_reads(file: Path) -> None:
    pytest.importorskip("check_jsonschema")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci"),
            *("--data-transform", "gitlab-ci", str(file)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_release_is_a_build_with_an_identity_and_a_tag() -> None:
    found = jobs()
    release = found[".aotc-release"]
    assert release["extends"] == ".aotc-build"
    assert release["cache"] == []
    assert set(release["variables"]) <= set(found[".aotc-build"]["variables"])
    assert release["id_tokens"] == {"SIGSTORE_ID_TOKEN": {"aud": "sigstore"}}
    pipeline = yaml.safe_load(PIPELINE.read_text())
    extended = {each["extends"] for each in pipeline.values() if "extends" in each}
    assert extended == {".aotc-build", ".aotc-release"}
