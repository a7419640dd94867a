"""The composite action: its shell steps in a clean folder, with aotc installed from this tree."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from github_runner import Runner
from made_models import linear, save
from repository import ROOT

TEMPLATES = ROOT / "ci" / "templates"
ACTION = TEMPLATES / "github" / "action.yml"
WORKFLOW = TEMPLATES / "github" / "workflow.yml"


def job(folder: Path, python: Path, offline: dict[str, str]) -> Runner:
    """A job in a new folder with a model, that knows nothing of this environment."""
    workspace, temp, home = folder / "work", folder / "temp", folder / "home"
    for each in (workspace, temp, home):
        each.mkdir(parents=True)
    save(linear(), workspace / "model.onnx")
    variables = {
        **offline,
        "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "example/repo",
        "GITHUB_WORKFLOW_REF": "example/repo/.github/workflows/aotc.yml@refs/heads/main",
        "GITHUB_RUN_ID": "17",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_REF_TYPE": "branch",
        "GITHUB_REF_NAME": "main",
    }
    return Runner(workspace=workspace, temp=temp, action=ACTION, variables=variables)


@pytest.fixture
def runner(
    tmp_path: Path, python_on_path: Path, request: pytest.FixtureRequest
) -> Callable[[], Runner]:
    def make() -> Runner:
        offline: dict[str, str] = request.getfixturevalue("offline")
        return job(tmp_path / f"job-{len(list(tmp_path.iterdir()))}", python_on_path, offline)

    return make


@pytest.mark.slow
def test_builds_verifies_and_keeps(runner: Callable[[], Runner]) -> None:
    job = runner()
    # Used where it lies, in a clone: nothing says what to install.
    assert job.run(model="model.onnx", artifact="model.aotc") == 0, job.steps
    names = [step.name for step in job.steps]
    assert names == [
        *("Set up Python", "Install aotc", "Key of the build cache", "Build cache", "Build"),
        *("Verify", "Upload"),
    ]
    manifest = job.workspace / "model.aotc" / "payload" / "aotc.json"
    artifact_id = hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert job.outputs["build"]["artifact-id"] == artifact_id
    packed = Path(job.outputs["build"]["packed"])
    assert zipfile.is_zipfile(packed)
    assert str(packed) in job.step("Upload").inputs["path"]
    aotc = job.temp / "aotc" / "bin" / "aotc"
    text = subprocess.run(
        [aotc, "inspect", packed, "--json"],
        env=job.variables,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    claims = json.dumps(json.loads(text))
    assert "https://github.com/example/repo/.github/workflows/aotc.yml@refs/heads/main" in claims
    # The cache is keyed by the tools and by what is built, and holds what the build made.
    key = job.step("Build cache").inputs
    assert re.fullmatch(r"aotc-1-Linux-X64-[0-9a-f]{32}-[0-9a-f]{32}-17-1", key["key"])
    nearest, next_best = key["restore-keys"].split()
    assert key["key"] == f"{nearest}17-1"
    assert nearest.startswith(next_best)
    assert list(Path(key["path"]).rglob("index.json"))

    # The next job of an equal model, on another runner, takes it from there.
    again = runner()
    shutil.copytree(key["path"], again.temp / "aotc-cache")
    again.variables["GITHUB_RUN_ID"] = "18"
    assert again.run(model="model.onnx", artifact="model.aotc") == 0, again.steps
    # What it makes is kept too, whatever else than the model the build depends on.
    assert again.step("Build cache").inputs["key"] == f"{nearest}18-1"
    assert again.step("Build cache").inputs["restore-keys"] == key["restore-keys"]
    assert "from the build cache" in again.step("Build").output
    assert again.outputs["build"]["artifact-id"] == artifact_id

    # Another model has another key with the same beginning.
    save(linear(features=8), again.workspace / "model.onnx")
    again.steps.clear()
    assert again.run(model="model.onnx", artifact="model.aotc") == 0, again.steps
    other = again.step("Build cache").inputs
    assert not other["key"].startswith(nearest)
    assert other["restore-keys"].split()[1] == next_best


@pytest.mark.slow
def test_a_breach_ends_the_job_with_its_reason(runner: Callable[[], Runner]) -> None:
    job = runner()
    # As 'aotc init' writes it, away from any clone.
    job.action = job.workspace / ".github" / "actions" / "aotc" / "action.yml"
    job.action.parent.mkdir(parents=True)
    shutil.copy2(ACTION, job.action)
    profile = job.workspace / "tight.profile.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: tight\nbudgets:\n  artifact_bytes: 10\n", encoding="utf-8"
    )
    words = {"model": "model.onnx", "profile": "tight.profile.yaml", "artifact": "model.aotc"}
    assert job.run(**words, package=str(ROOT)) == 1
    assert [step.name for step in job.steps][-2:] == ["Build", "Upload"]
    assert "AOTC-B" in job.step("Build").output or "artifact_bytes" in job.step("Build").output
    assert not (job.workspace / "model.aotc").exists()
    assert "artifact_bytes" in job.summary
    assert (job.temp / "aotc-reports" / "build.sarif").is_file()
    assert "::error" in job.step("Build").output


@pytest.mark.slow
def test_signed_by_the_job_and_named_by_its_tag(
    runner: Callable[[], Runner], tmp_path: Path
) -> None:
    pytest.importorskip("sigstore")
    from keyless_services import Services, serving

    workflow = "example/repo/.github/workflows/aotc.yml@refs/tags/v1.4.0"
    issuer = "https://token.actions.githubusercontent.com"
    job = runner()
    (tmp_path / "services").mkdir()
    with serving(tmp_path / "services") as services:
        assert isinstance(services, Services)
        services.job.update(iss=issuer, sub="repo:example/repo", job_workflow_ref=workflow)
        services.name = lambda claims: f"https://github.com/{claims['job_workflow_ref']}"
        (job.workspace / "sigstore.json").write_text(json.dumps(services.config(1)))
        policy = {
            "schema": "aotc.trust/1",
            "name": "plant",
            "sequence": 1,
            "expires": "2099-01-01T00:00:00Z",
            "identities": [
                {
                    "id": "workflow",
                    "identity": f"https://github.com/{workflow}",
                    "issuer": issuer,
                    "usage": ["oms", "provenance"],
                    "trusted_root": json.dumps(services.trusted_root()),
                }
            ],
            "rules": [
                {
                    "name": "all",
                    "match": {"name": "*"},
                    "require": [
                        {"predicate": "oms", "signers": ["workflow"]},
                        {"predicate": "provenance", "signers": ["workflow"]},
                    ],
                }
            ],
        }
        (job.workspace / "trust.json").write_text(json.dumps(policy))
        job.variables.update(
            GITHUB_REF_TYPE="tag",
            GITHUB_REF_NAME="v1.4.0",
            ACTIONS_ID_TOKEN_REQUEST_TOKEN="job",
            ACTIONS_ID_TOKEN_REQUEST_URL=f"{services.url}/token?job=1",
            NO_PROXY="127.0.0.1",
        )
        words = {
            "model": "model.onnx",
            "artifact": "model.aotc",
            "extras": "cpu,sigstore",
            "keyless": "true",
            "release": "tag",
            "trust_config": "sigstore.json",
            "trust": "trust.json",
        }
        assert job.run(**words) == 0, job.steps
        assert f"https://github.com/{workflow}" in " ".join(job.step("Build").output.split())
        assert job.step("Verify").status == 0
        # Other branches may write a CI's cache: a release neither takes nor keeps anything there.
        assert "Build cache" not in [step.name for step in job.steps]
        assert not (job.temp / "aotc-cache").exists()
        # Without the permission there is no identity, and nothing is built.
        del job.variables["ACTIONS_ID_TOKEN_REQUEST_URL"]
        job.steps.clear()
        assert job.run(**words) == 3
        assert "AOTC-I037" in job.step("Build").output


@pytest.mark.slow
def test_a_lock_says_all_that_is_installed(
    runner: Callable[[], Runner], tmp_path: Path, python_on_path: Path, offline: dict[str, str]
) -> None:
    wheels = Path(offline["PIP_FIND_LINKS"])
    entries = {
        "==".join(path.name.split("-")[:2]): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(wheels.glob("*.whl"))
    }
    job = runner()
    lock = job.workspace / "aotc.lock"
    lock.write_text("".join(f"{name} --hash=sha256:{each}\n" for name, each in entries.items()))
    words = {"model": "model.onnx", "artifact": "model.aotc", "lock": "aotc.lock"}
    assert job.run(**words) == 0, job.steps
    listed = subprocess.run(
        [job.temp / "aotc" / "bin" / "python", "-m", "pip", "list", "--format", "json"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    installed = {re.sub(r"[-_.]+", "_", each["name"].lower()) for each in json.loads(listed)}
    locked = {re.sub(r"[-_.]+", "_", name.partition("==")[0].lower()) for name in entries}
    assert installed - {"pip", "setuptools"} <= locked | {"aotc"}
    # Another wheel of that version is not taken.
    other = runner()
    lock.write_text(lock.read_text().replace(entries[next(iter(entries))], "0" * 64))
    shutil.copy2(lock, other.workspace)
    assert other.run(**words) == 1
    assert "DO NOT MATCH" in other.step("Install aotc").output
    assert "Build" not in [step.name for step in other.steps]


def test_a_job_may_use_it_twice(tmp_path: Path, python_on_path: Path, unhashed_lock: str) -> None:
    job_ = job(tmp_path / "job", python_on_path, {"PIP_NO_INDEX": "1"})
    earlier = job_.temp / "aotc-reports" / "build.md"
    earlier.parent.mkdir()
    earlier.write_text("of the first use\n")
    (job_.workspace / "aotc.lock").write_text(unhashed_lock)
    words = {"model": "model.onnx", "artifact": "b.aotc", "upload_name": "second"}
    assert job_.run(**words, package=str(ROOT), lock="aotc.lock") == 1
    # Nothing without a hash is installed, and what is kept is this use's, under its own name.
    assert "Hashes are required" in job_.step("Install aotc").output
    assert not (job_.temp / "aotc" / "bin" / "aotc").exists()
    assert job_.step("Upload").inputs["name"] == "build-second"
    assert not earlier.exists()


@pytest.mark.parametrize("package", ["aotc", "missing.whl", "elsewhere"])
def test_a_name_is_never_looked_up_on_an_index(
    package: str, tmp_path: Path, python_on_path: Path
) -> None:
    job_ = job(tmp_path / "job", python_on_path, {"PIP_NO_INDEX": "1"})
    (job_.workspace / "elsewhere").mkdir()
    assert job_.run(model="model.onnx", artifact="model.aotc", package=package) == 1
    assert [step.name for step in job_.steps] == ["Set up Python", "Install aotc", "Upload"]
    assert "::error title=aotc is not installed::" in job_.step("Install aotc").output
    assert not (job_.temp / "aotc").exists()


def test_what_an_input_says_is_no_code() -> None:
    """Inputs reach the shell as variables: no expression stands in a script."""
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 4
    assert not any("${{" in script for script in scripts)
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
        assert done.returncode == 0


def _uses() -> Iterator[tuple[str, str]]:
    for path in (ACTION, WORKFLOW):
        for line in path.read_text().splitlines():
            if found := re.search(r"uses: (\S+)(?: # (\S+))?$", line):
                yield found[1], found[2] or ""


def test_every_action_is_pinned_by_its_commit() -> None:
    found = list(_uses())
    assert len(found) == 7
    for name, release in found:
        if name.startswith("./"):
            continue
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name), name
        assert re.fullmatch(r"v\d+\.\d+\.\d+", release), name


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-actions", (ACTION,)),
        ("vendor.github-workflows", (WORKFLOW,)),
    ],
)
def test_they_are_what_github_reads(schema: str, files: tuple[Path, ...]) -> None:
    pytest.importorskip("check_jsonschema")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_may_do_no_more_than_it_must() -> None:
    document = yaml.safe_load(WORKFLOW.read_text())
    assert document["permissions"] == {"contents": "read"}
    may = {name: each.get("permissions") for name, each in document["jobs"].items()}
    assert may == {"build": None, "release": {"contents": "read", "id-token": "write"}}
    for each in document["jobs"].values():
        assert each["steps"][0]["with"] == {"persist-credentials": False}
        given = set(each["steps"][1]["with"])
        assert given <= set(yaml.safe_load(ACTION.read_text())["inputs"])
