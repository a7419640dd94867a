"""The jobs for GitLab: their script lines run in one shell, in a folder that all may write."""

from __future__ import annotations

import json
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
from file_bytes import flip_bit
from made_models import linear, save
from ready_command import write_program
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
    name: str = ".aotc-build",
    installs: bool = True,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run `before_script` and `script` of a job in one shell, as a runner does.

    Without `installs` the step that installs aotc is left out.
    """
    common, job = jobs()[".aotc"], jobs()[name]
    before = [each for each in common["before_script"] if installs or "pip install" not in each]
    assert len(before) == 1 + installs
    lines = "\n".join((*before, *job["script"]))
    # Each job has its container: what lies in /tmp there is a folder of its own here.
    script = lines.replace("/tmp/", f"{place}/")
    return subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=folder,
        env={
            **environment,
            **common["variables"],
            **job.get("variables", {}),
            "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(place),
            "GITLAB_CI": "true",
            "CI_PROJECT_DIR": str(folder),
            "CI_PROJECT_URL": "https://gitlab.example.com/team/models",
            "CI_JOB_URL": "https://gitlab.example.com/team/models/-/jobs/17",
            "AOTC_FOLDER": "models",
            "AOTC_MODEL": "model.onnx",
            "AOTC_PROFILE": "edge",
            "AOTC_ARTIFACT": "model.aotc",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def project(folder: Path) -> Path:
    """A checkout as GitLab's runner leaves it: anybody may write there."""
    (folder / "models").mkdir(parents=True)
    save(linear(), folder / "models" / "model.onnx")
    folder.chmod(0o777)
    return folder


@pytest.fixture
def python_of_a_container(tmp_path: Path, python_on_path: Path) -> Path:
    """A folder with a Python that holds nothing but pip."""
    subprocess.run([python_on_path / "python", "-m", "venv", tmp_path / "python"], check=True)
    return tmp_path / "python" / "bin"


@pytest.mark.slow
def test_builds_verifies_and_keeps(
    tmp_path: Path, python_of_a_container: Path, offline: dict[str, str]
) -> None:
    python = python_of_a_container
    folder = project(tmp_path / "checkout")
    (tmp_path / "first").mkdir()
    done = run(folder, tmp_path / "first", python, offline, AOTC_PACKAGE=str(ROOT))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    # What the job keeps is what it made, wherever that is; GitLab shows the reports.
    kept = jobs()[".aotc-build"]["artifacts"]
    assert kept["paths"] == ["aotc-out/"]
    found = {f"aotc-out/{each.name}" for each in (folder / "aotc-out").iterdir()}
    assert found == {
        "aotc-out/model.aotc.zip",
        "aotc-out/build.html",
        *kept["reports"].values(),
    }
    issues = json.loads((folder / kept["reports"]["codequality"]).read_text())
    assert {each["location"]["path"] for each in issues} <= {"models/model.onnx"}
    assert list((folder / ".aotc-cache").rglob("index.json"))
    # The next job begins with the cache, unpacked so that anybody may write it.
    following = project(tmp_path / "following")
    shutil.copytree(folder / ".aotc-cache", following / ".aotc-cache")
    for path in (following / ".aotc-cache").rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (tmp_path / "second").mkdir()
    done = run(
        *(following, tmp_path / "second", python, offline),
        AOTC_PACKAGE=str(ROOT),
        AOTC_BESIDE=str(folder / "aotc-out" / "model.aotc.zip"),
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "from the build cache" in done.stdout
    page = (following / "aotc-out" / "build.html").read_text()
    assert "UNVERIFIED: signed by nobody you trust" in page


@pytest.fixture
def ready(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs a job in `tmp_path/checkout`, with this tree's aotc on the path."""
    folder, programs = project(tmp_path / "checkout"), tmp_path / "programs"
    programs.mkdir()
    write_program(programs)
    path = {"PYTHONPATH": str(TOOLCHAIN)}

    def again(**words: str) -> subprocess.CompletedProcess[str]:
        # Each job begins without what an earlier one built outside of the checkout.
        for name in ("model.aotc", "-o.aotc"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        return run(folder, tmp_path, programs, path, installs=False, **words)

    return again


def test_a_name_like_an_option_is_a_name(
    ready: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "checkout"
    words = {"AOTC_MODEL": "-h", "AOTC_ARTIFACT": "-o.aotc"}
    # What an older commit holds is not what the job keeps.
    (folder / "aotc-out").mkdir()
    for name in ("-o.aotc.zip", "build.xml", "build.codequality.json"):
        (folder / "aotc-out" / name).write_text("older")
    done = ready(**words)
    assert done.returncode == 3
    assert not (folder / "aotc-out" / "-o.aotc.zip").exists()
    assert "older" not in (folder / "aotc-out" / "build.xml").read_text()
    save(linear(), folder / "models" / "-h")
    assert ready(**words, AOTC_PROFILE="missing").returncode == 3
    done = ready(**words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert zipfile.is_zipfile(folder / "aotc-out" / "-o.aotc.zip")


def test_a_breach_fails_the_job_and_is_shown_at_its_line(
    ready: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "checkout"
    (folder / "models" / "p.yaml").write_text(
        "schema: aotc.profile/1\nname: tight\nbudgets:\n  artifact_bytes: 10\n"
    )
    done = ready(AOTC_PROFILE="p.yaml")
    assert done.returncode == 1
    out = folder / "aotc-out"
    (issue,) = (
        each
        for each in json.loads((out / "build.codequality.json").read_text())
        if each["check_name"] == "AOTC-M001"
    )
    assert issue["location"] == {"path": "models/p.yaml", "lines": {"begin": 4}}
    assert 'file="models/p.yaml"' in (out / "build.xml").read_text()
    assert not (out / "model.aotc.zip").exists()


def test_an_aotc_that_builds_nothing_fails_the_job(
    ready: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    program = tmp_path / "programs" / "aotc"
    real = program.rename(program.with_name("real"))
    # As its help ends; what packs and verifies is the real one.
    program.write_text(f'#!/bin/sh\n[ "$1" != build ] || exit 0\nexec "{real}" "$@"\n')
    program.chmod(0o755)
    assert ready().returncode == 3
    assert not (tmp_path / "checkout" / "aotc-out" / "model.aotc.zip").exists()


def test_a_release_takes_nothing_from_a_cache(
    ready: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Its lines as they are; without a token of GitLab's it ends before anything is built."""
    pytest.importorskip("sigstore")
    done = ready(name=".aotc-release", CI_COMMIT_TAG="v1.4.0")
    assert done.returncode == 3
    assert "AOTC-I037" in done.stderr
    assert not (tmp_path / ".cache" / "aotc" / "build").exists()
    assert "--no-cache" in jobs()[".aotc-release"]["script"][0]
    assert "cache" not in jobs()[".aotc-release"]


def test_what_verifies_is_deployed_and_nothing_else(
    ready: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder, said = tmp_path / "checkout", tmp_path / "deployed"
    assert ready().returncode == 0
    packed = folder / "aotc-out" / "model.aotc.zip"
    program = folder / "models" / "deploy.sh"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" > "{said}"\n')
    program.chmod(0o755)
    key = next((tmp_path / ".config" / "aotc").rglob("*.pub"))
    shutil.copy2(key, folder / "trust.pub")
    words = {"name": ".aotc-deploy", "AOTC_TRUST": "trust.pub"}
    done = ready(**words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said.read_text() == f"{packed}\n"
    said.unlink()
    flip_bit(packed)
    assert ready(**words).returncode == 1
    assert ready(**words | {"AOTC_TRUST": ""}).returncode != 0
    assert not said.exists()


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
    # What is deployed is deployed by hand.
    assert jobs()[".aotc-deploy"]["rules"] == [{"if": "$CI_COMMIT_TAG", "when": "manual"}]
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


@pytest.mark.parametrize("package", ["", "aotc", "missing.whl"])
def test_nothing_is_looked_up_by_its_name(
    package: str, tmp_path: Path, python_on_path: Path
) -> None:
    folder = project(tmp_path / "checkout")
    done = run(folder, tmp_path, python_on_path, {"PIP_NO_INDEX": "1"}, AOTC_PACKAGE=package)
    assert done.returncode != 0
    assert "realpath: " in done.stderr
    assert "indexes" not in done.stdout
    assert not (folder / "aotc-out").exists()


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


def test_jobs_are_short_and_a_release_is_signed_by_its_pipeline() -> None:
    found, pipeline = jobs(), yaml.safe_load(PIPELINE.read_text())
    assert sum(len(path.read_text().splitlines()) for path in (JOBS, PIPELINE)) <= 120
    assert found[".aotc-release"]["id_tokens"] == {"SIGSTORE_ID_TOKEN": {"aud": "sigstore"}}
    # What Git LFS has is fetched, whatever the project states.
    assert found[".aotc"]["variables"]["GIT_LFS_SKIP_SMUDGE"] == "0"
    extended = {name: each["extends"] for name, each in pipeline.items() if "extends" in each}
    assert extended == {
        f"{name}-artifact": [f".aotc-{name}", ".aotc-model"]
        for name in ("build", "release", "deploy")
    }
    assert {each["extends"] for name, each in found.items() if name != ".aotc"} == {".aotc"}
