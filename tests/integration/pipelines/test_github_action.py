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
from repository import ROOT, TOOLCHAIN

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
        *("Check the inputs", "Set up Python", "Install aotc", "Key of the build cache"),
        *("Build cache", "Build", "Verify", "Upload"),
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


@pytest.fixture
def ready(tmp_path: Path, python_on_path: Path) -> Runner:
    """A job in which aotc is installed already: this tree, by this Python."""
    job_ = job(tmp_path / "job", python_on_path, {})
    programs = job_.temp / "aotc" / "bin"
    programs.mkdir(parents=True)
    for name, words in (("python", ""), ("aotc", " -P -m aotc.cli.main")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (programs / name).chmod(0o755)
    job_.variables["PYTHONPATH"] = str(TOOLCHAIN)
    job_.left_out = frozenset(("Install aotc",))
    return job_


GOOD = {"model": "model.onnx", "artifact": "model.aotc"}


def test_a_name_like_an_option_is_a_name(ready: Runner) -> None:
    assert ready.run(**GOOD) == 0, ready.steps
    first = ready.outputs["build"]["artifact-id"]
    # An older artifact lies there, and what looks like an option is no file.
    for model in ("-h", "--help", "--version", "--profile=edge"):
        ready.outputs.clear()
        assert ready.run(model=model, artifact="model.aotc") == 1
        assert ready.steps[-1].name == "Check the inputs"
        assert "::error title=input 'model'::There is no such file." in ready.steps[-1].output
        assert not any(ready.outputs.values())
    # The same where it is one.
    save(linear(features=8), ready.workspace / "-h")
    (ready.workspace / "-p").write_text("schema: aotc.profile/1\nname: mine\n")
    assert ready.run(model="-h", profile="-p", artifact="-o.aotc") == 0, [
        s.output for s in ready.steps if s.status
    ]
    made = ready.outputs["build"]
    assert made["artifact"] == "-o.aotc"
    manifest = ready.workspace / "-o.aotc" / "payload" / "aotc.json"
    assert made["artifact-id"] == hashlib.sha256(manifest.read_bytes()).hexdigest() != first
    assert zipfile.is_zipfile(made["packed"])


def test_what_is_published_is_what_was_built(ready: Runner) -> None:
    """An aotc that ends well and builds nothing, as its help does."""
    assert ready.run(**GOOD) == 0, ready.steps
    (ready.temp / "aotc" / "bin" / "aotc").write_text("#!/bin/sh\nexit 0\n")
    ready.outputs.clear()
    assert ready.run(**GOOD) == 1
    assert (
        "It reports another artifact"
        in [step for step in ready.steps if step.name == "Build"][-1].output
    )
    assert not ready.outputs["build"]


@pytest.mark.parametrize("end", ["\n", "\r", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("name", sorted(yaml.safe_load(ACTION.read_text())["inputs"]))
def test_no_input_ends_a_line(name: str, end: str, ready: Runner) -> None:
    words = {**GOOD, name.replace("-", "_"): f"model.aotc{end}artifact-id={'0' * 64}"}
    assert ready.run(**words) == 1
    (step,) = ready.steps
    assert step.output == (
        f"::error title=input '{name}'::It holds a line break or a control character.\n"
    )
    assert not any(ready.outputs.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("model", each) for each in ("", "-", "./-", "missing.onnx", "/dev/zero", ".")),
        *(("artifact", each) for each in ("", ".", "..", "/", "a/..", "*.aotc", "!a.aotc", "a\\b")),
        *(("extras", each) for each in ("", "cpu] @ https://example.com/#", "cpu, sigstore")),
        *((name, each) for name in ("keyless", "upload") for each in ("", "True", "yes")),
        ("profile", ""),
    ],
)
def test_inputs_that_are_none(name: str, value: str, ready: Runner) -> None:
    # As another step of the job may have left it.
    stale = ready.temp / "aotc-reports" / "build.json"
    stale.parent.mkdir()
    stale.write_text("{}")
    assert ready.run(**{**GOOD, name: value}) == 1
    assert [step.name for step in ready.steps] == ["Check the inputs"]
    assert ready.steps[0].output.startswith(f"::error title=input '{name}'::")
    assert not stale.exists()


def test_names_that_a_program_escapes(ready: Runner) -> None:
    folder = ready.workspace / "a\\b ü"
    folder.mkdir()
    (ready.workspace / "model.onnx").rename(folder / "model.onnx")
    words = {"model": "a\\b ü/model.onnx", "artifact": "ü $HOME `id` 'x'.aotc"}
    assert ready.run(**words) == 0, ready.steps
    manifest = ready.workspace / words["artifact"] / "payload" / "aotc.json"
    made = ready.outputs["build"]
    assert made["artifact-id"] == hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert made["artifact"] == words["artifact"]


def test_outputs_have_an_end_that_nobody_knows() -> None:
    (build,) = (
        each
        for each in yaml.safe_load(ACTION.read_text())["runs"]["steps"]
        if each["name"] == "Build"
    )
    assert "/dev/urandom" in build["run"]
    assert not re.search(r"echo.*>> \"\$GITHUB_OUTPUT", build["run"])


def test_zizmor_finds_nothing() -> None:
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists():
        pytest.skip("zizmor is not installed: pip install zizmor")
    done = subprocess.run(
        [
            program,
            "--offline",
            "--no-progress",
            "--no-config",
            "--min-severity=medium",
            ACTION,
            WORKFLOW,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
    assert [step.name for step in job_.steps][1:] == ["Set up Python", "Install aotc", "Upload"]
    assert "::error title=aotc is not installed::" in job_.step("Install aotc").output
    assert not (job_.temp / "aotc").exists()


def test_what_an_input_says_is_no_code() -> None:
    """Inputs reach the shell as variables: no expression stands in a script."""
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 5
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
