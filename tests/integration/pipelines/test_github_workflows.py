"""The workflows of `aotc init`: their shell steps in a clean folder, with aotc from this tree."""

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
from typing import Any

import pytest
import yaml
from file_bytes import flip_bit
from github_runner import Runner
from made_models import linear, save
from ready_command import write_program
from repository import ROOT, TOOLCHAIN

TEMPLATES = ROOT / "ci" / "templates" / "github"
FILES = {
    "build.yml": "aotc.yml",
    "release.yml": "aotc-release.yml",
    "deploy.yml": "aotc-deploy.yml",
}
SHA, BASE = "c" * 40, "b" * 40
URL = "https://github.com/example/repo"


def aotc(folder: Path, *words: str) -> str:
    """What this tree's aotc prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "aotc.cli.main", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def job(folder: Path, python: Path, offline: dict[str, str], model: str = "model.onnx") -> Runner:
    """A job in a new checkout with a folder of models, in which `aotc init` was run for one."""
    workspace, temp, home = folder / "work", folder / "temp", folder / "home"
    for each in (workspace, temp, home):
        each.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", workspace], check=True)
    place = workspace / "models" / model
    place.parent.mkdir(parents=True)
    save(linear(), place)
    aotc(workspace / "models", "init", model)
    variables = {
        **offline,
        "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_REF_TYPE": "branch",
        "GITHUB_REF_NAME": "main",
    }
    contexts = {
        "vars": {"AOTC_PACKAGE": str(ROOT), "AOTC_TRUST": "trust.pub"},
        "runner": {"temp": str(temp), "os": "Linux", "arch": "X64"},
        "github": {
            "server_url": "https://github.com",
            "repository": "example/repo",
            "workflow_ref": "example/repo/.github/workflows/aotc.yml@refs/heads/main",
            "run_id": "17",
            "run_attempt": "1",
            "sha": SHA,
            "token": "secret",
            "event": {},
        },
    }
    return Runner(workspace=workspace, temp=temp, variables=variables, contexts=contexts)


def of_a_pull_request(job_: Runner, *, fork: bool = False) -> None:
    """Make it the job of a pull request."""
    job_.variables["GITHUB_EVENT_NAME"] = "pull_request"
    job_.contexts["github"]["event"] = {
        "pull_request": {"base": {"sha": BASE}, "head": {"repo": {"fork": fork}}}
    }


@pytest.fixture
def clean(tmp_path: Path, python_on_path: Path, request: pytest.FixtureRequest) -> Runner:
    """A job with a Python that holds nothing but pip, and packages to install from."""
    offline: dict[str, str] = request.getfixturevalue("offline")
    made = tmp_path / "python"
    subprocess.run([python_on_path / "python", "-m", "venv", made], check=True)
    return job(tmp_path / "job", made / "bin", offline)


@pytest.fixture
def ready(tmp_path: Path, python_on_path: Path) -> Runner:
    """A job in which aotc is installed already: this tree, by this Python."""
    return installed(tmp_path, python_on_path)


def installed(folder: Path, python: Path, model: str = "model.onnx") -> Runner:
    """The same with another model."""
    programs = folder / "programs"
    programs.mkdir()
    write_program(programs)
    job_ = job(folder / "job", python, {"PYTHONPATH": str(TOOLCHAIN)}, model)
    job_.variables["PATH"] = f"{programs}:{job_.variables['PATH']}"
    job_.left_out = frozenset(("Install",))
    return job_


def as_gh(job_: Runner, lines: str) -> Path:
    """Put a program `gh` into the job, which writes its words into the file returned."""
    folder = job_.temp.parent / "gh"
    folder.mkdir()
    words = folder / "words"
    program = folder / "gh"
    program.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" >> "{words}"\n{lines}\n')
    program.chmod(0o755)
    job_.variables["PATH"] = f"{folder}:{job_.variables['PATH']}"
    return words


def id_of(path: Path) -> str:
    return hashlib.sha256((path / "payload" / "aotc.json").read_bytes()).hexdigest()


@pytest.mark.slow
def test_builds_verifies_and_keeps(clean: Runner) -> None:
    assert clean.run("aotc.yml") == 0, clean.steps
    assert [step.name for step in clean.steps] == [
        "actions/checkout",
        "actions/setup-python",
        "Install",
        "actions/cache",
        "Artifact of the base branch",
        "Build",
        "actions/upload-artifact",
        "github/codeql-action/upload-sarif",
    ]
    first = id_of(clean.temp / "model.aotc")
    kept = clean.temp / "aotc"
    assert sorted(each.name for each in kept.iterdir()) == [
        "build.html",
        "build.sarif",
        "model.aotc.zip",
    ]
    assert zipfile.is_zipfile(kept / "model.aotc.zip")
    assert clean.step("actions/upload-artifact").inputs == {"name": "aotc", "path": f"{kept}/"}
    sarif = clean.step("github/codeql-action/upload-sarif").inputs["sarif_file"]
    assert json.loads(Path(sarif).read_text())["version"] == "2.1.0"
    assert clean.summary.startswith("### ✅ `aotc build` passed\n\n|  | this |\n")
    claims = json.dumps(json.loads(aotc(kept, "inspect", "model.aotc.zip", "--json")))
    assert f"{URL}/.github/workflows/aotc.yml@refs/heads/main" in claims
    # What the next job takes: the build cache, and on the base branch the artifact.
    cache, base = clean.step("actions/cache").inputs, clean.step("Artifact of the base branch")
    assert cache == {
        "path": "~/.cache/aotc",
        "key": "aotc-Linux-X64-17-1",
        "restore-keys": "aotc-Linux-X64-",
    }
    assert list((Path(clean.variables["HOME"]) / ".cache/aotc").rglob("index.json"))
    assert base.inputs == {
        "path": str(clean.temp / "base"),
        "key": f"aotc-base-{SHA}",
        "restore-keys": "aotc-base-",
    }
    assert zipfile.is_zipfile(clean.temp / "base" / "base.aotc.zip")

    # A pull request builds beside it, with another key, and keeps nothing for others.
    of_a_pull_request(clean)
    held = (clean.temp / "base" / "base.aotc.zip").read_bytes()
    for folder in ("model.aotc", "aotc"):
        shutil.rmtree(clean.temp / folder)
    shutil.rmtree(Path(clean.variables["HOME"]) / ".config", ignore_errors=True)
    shutil.rmtree(Path(clean.variables["HOME"]) / ".local", ignore_errors=True)
    save(linear(features=8), clean.workspace / "models" / "model.onnx")
    profile = clean.workspace / "models" / "model.profile.yaml"
    profile.write_text("schema: aotc.profile/1\nname: model\n")
    clean.summary = ""
    assert clean.run("aotc.yml") == 0, clean.steps
    assert clean.step("Artifact of the base branch").inputs["key"] == f"aotc-base-{BASE}"
    assert id_of(clean.temp / "model.aotc") != first
    rows = [line.split(" | ") for line in clean.summary.splitlines() if line.startswith("| ")]
    assert rows[0] == ["| ", "this", "base", "change |"]
    assert [row[0] for row in rows[2:5]] == ["| `verdict`", "| `size`", "| `latency`"]
    assert rows[2][1:3] == ["`passed`", "`UNVERIFIED: signed by nobody you trust`"]
    assert first[:12] in clean.summary
    assert (clean.temp / "base" / "base.aotc.zip").read_bytes() == held


def test_a_breach_ends_the_job_with_its_reason(ready: Runner) -> None:
    (ready.workspace / "models" / "model.profile.yaml").write_text(
        "schema: aotc.profile/1\nname: tight\nbudgets:\n  artifact_bytes: 10\n", encoding="utf-8"
    )
    of_a_pull_request(ready)
    assert ready.run("aotc.yml") == 1
    # What was found is kept and sent, and there is no artifact.
    assert [step.name for step in ready.steps][-3:] == [
        "Build",
        "actions/upload-artifact",
        "github/codeql-action/upload-sarif",
    ]
    assert sorted(each.name for each in (ready.temp / "aotc").iterdir()) == [
        "build.html",
        "build.sarif",
    ]
    assert not (ready.temp / "base" / "base.aotc.zip").exists()
    assert "budgets.artifact_bytes" in ready.summary
    # Files are named as the repository has them, from whatever folder they are built.
    title = "AOTC-M001 artifact exceeds its size budget"
    said = f"::error file=models/model.profile.yaml,line=4,col=3,title={title}::"
    assert said in ready.step("Build").output
    sarif = json.loads((ready.temp / "aotc" / "build.sarif").read_text())
    (place,) = (each["locations"][0] for each in sarif["runs"][0]["results"] if "M001" in str(each))
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "models/model.profile.yaml"


def test_a_fork_sends_nothing_to_code_scanning_and_does_not_fail(ready: Runner) -> None:
    of_a_pull_request(ready, fork=True)
    assert ready.run("aotc.yml") == 0, ready.steps
    assert [step.name for step in ready.steps][-2:] == ["Build", "actions/upload-artifact"]
    # Whatever else refuses them fails no build.
    steps = yaml.safe_load((TEMPLATES / "build.yml").read_text())["jobs"]["build"]["steps"]
    assert steps[-1]["continue-on-error"] is True


def test_what_did_not_begin_keeps_nothing(clean_of_aotc: Runner) -> None:
    clean_of_aotc.contexts["vars"]["AOTC_PACKAGE"] = "missing.whl"
    assert clean_of_aotc.run("aotc.yml") == 1
    assert [step.name for step in clean_of_aotc.steps] == [
        "actions/checkout",
        "actions/setup-python",
        "Install",
    ]


@pytest.mark.parametrize("model", ["a b,c=d@e+f_\u00e9-1.onnx", "x/-h.onnx", "x/--help.onnx"])
def test_a_name_like_an_option_is_a_name(model: str, tmp_path: Path, python_on_path: Path) -> None:
    ready = installed(tmp_path, python_on_path, model)
    assert ready.run("aotc.yml") == 0, ready.steps
    (packed,) = (ready.temp / "aotc").glob("*.zip")
    assert packed.name == f"{Path(model).stem}.aotc.zip"
    assert zipfile.is_zipfile(packed)


@pytest.fixture
def clean_of_aotc(tmp_path: Path, python_on_path: Path) -> Runner:
    """A job with nothing installed, that reaches no index."""
    return job(tmp_path / "job", python_on_path, {"PIP_NO_INDEX": "1"})


@pytest.mark.parametrize("workflow", sorted(FILES.values()))
@pytest.mark.parametrize("package", ["", "aotc", "missing.whl", "elsewhere"])
def test_a_name_is_never_looked_up_on_an_index(
    workflow: str, package: str, clean_of_aotc: Runner
) -> None:
    (clean_of_aotc.workspace / "elsewhere").mkdir()
    clean_of_aotc.contexts["vars"]["AOTC_PACKAGE"] = package
    assert clean_of_aotc.run(workflow) != 0
    step = clean_of_aotc.steps[-1]
    assert step.name == "Install"
    assert "looking in indexes" not in step.output.lower()
    assert re.search("realpath: |does not appear to be a Python project", step.output)


def test_a_lock_without_hashes_installs_nothing(clean_of_aotc: Runner, unhashed_lock: str) -> None:
    (clean_of_aotc.workspace / "aotc.lock").write_text(unhashed_lock)
    clean_of_aotc.contexts["vars"]["AOTC_LOCK"] = "aotc.lock"
    assert clean_of_aotc.run("aotc.yml") == 1
    assert "Hashes are required" in clean_of_aotc.step("Install").output


@pytest.mark.slow
def test_a_lock_says_all_that_is_installed(clean: Runner, offline: dict[str, str]) -> None:
    wheels = Path(offline["PIP_FIND_LINKS"])
    entries = {
        "==".join(path.name.split("-")[:2]): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(wheels.glob("*.whl"))
    }
    lock = clean.workspace / "aotc.lock"
    clean.contexts["vars"]["AOTC_LOCK"] = "aotc.lock"
    text = "".join(f"{name} --hash=sha256:{each}\n" for name, each in entries.items())
    # Another wheel of that version is not taken.
    lock.write_text(text.replace(entries[next(iter(entries))], "0" * 64))
    assert clean.run("aotc.yml") == 1
    assert "DO NOT MATCH" in clean.step("Install").output
    lock.write_text(text)
    assert clean.run("aotc.yml") == 0, clean.steps
    python = clean.variables["PATH"].partition(":")[0]
    listed = subprocess.run(
        [f"{python}/python", "-m", "pip", "list", "--format", "json"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    found = {re.sub(r"[-_.]+", "_", each["name"].lower()) for each in json.loads(listed)}
    locked = {re.sub(r"[-_.]+", "_", name.partition("==")[0].lower()) for name in entries}
    assert found - {"pip", "setuptools"} <= locked | {"aotc"}


@pytest.mark.slow
def test_a_release_is_signed_by_its_workflow_and_named_by_its_tag(
    ready: Runner, tmp_path: Path
) -> None:
    pytest.importorskip("sigstore")
    from keyless_services import Services, serving

    workflow = "example/repo/.github/workflows/aotc-release.yml@refs/tags/v1.4.0"
    issuer = "https://token.actions.githubusercontent.com"
    words = as_gh(ready, "")
    (tmp_path / "services").mkdir()
    with serving(tmp_path / "services") as services:
        assert isinstance(services, Services)
        services.job.update(iss=issuer, sub="repo:example/repo", job_workflow_ref=workflow)
        services.name = lambda claims: f"https://github.com/{claims['job_workflow_ref']}"
        config = ready.workspace / "sigstore.json"
        config.write_text(json.dumps(services.config(1)))
        # The services of this test stand for the public ones.
        path = ready.workspace / ".github" / "workflows" / "aotc-release.yml"
        path.write_text(path.read_text().replace("--keyless", f"--keyless --trust-config={config}"))
        ready.variables.update(
            GITHUB_REF_TYPE="tag",
            GITHUB_REF_NAME="v1.4.0",
            ACTIONS_ID_TOKEN_REQUEST_TOKEN="job",
            ACTIONS_ID_TOKEN_REQUEST_URL=f"{services.url}/token?job=1",
            NO_PROXY="127.0.0.1",
        )
        assert ready.run("aotc-release.yml") == 0, ready.steps
        assert [step.name for step in ready.steps] == [
            "actions/checkout",
            "actions/setup-python",
            "Release",
        ]
        assert f"https://github.com/{workflow}" in " ".join(ready.step("Release").output.split())
        packed = ready.temp / "model.aotc.zip"
        assert words.read_text().splitlines() == [
            *("release", "create", "--verify-tag", f"--notes-file={ready.temp}/build.md"),
            *("--", "v1.4.0", str(packed)),
        ]
        assert (ready.temp / "build.md").read_text().startswith("### ✅ `aotc build` passed\n")
        # Other branches may write a CI's cache: a release neither takes nor keeps anything there.
        assert not (Path(ready.variables["HOME"]) / ".cache/aotc/build").exists()

        # It is deployed as what that workflow signed at that tag, and as nothing else.
        usage = ["oms", "provenance"]
        identity = {
            "id": "workflow",
            "identity": f"https://github.com/{workflow}",
            "issuer": issuer,
            "usage": usage,
            "trusted_root": json.dumps(services.trusted_root()),
        }
        required = [{"predicate": each, "signers": ["workflow"]} for each in usage]
        policy = {
            "schema": "aotc.trust/1",
            "name": "plant",
            "sequence": 1,
            "expires": "2099-01-01T00:00:00Z",
            "identities": [identity],
            "rules": [{"name": "all", "match": {"name": "*"}, "require": required}],
        }
        trust = ready.workspace / "trust.json"
        ready.contexts["vars"]["AOTC_TRUST"] = "trust.json"
        given = tmp_path / "given.zip"
        shutil.copy2(packed, given)
        deployed = deploying(ready, given)
        trust.write_text(json.dumps(policy))
        assert ready.run("aotc-deploy.yml") == 0, ready.steps
        assert deployed() == [str(packed)]
        identity["identity"] = f"https://github.com/{workflow}1"
        policy["sequence"] = 2
        trust.write_text(json.dumps(policy))
        assert ready.run("aotc-deploy.yml") == 1
        assert "AOTC-G0" in ready.step("Verify").output
        assert deployed() == []

        # Without the permission there is no identity, and nothing is built.
        del ready.variables["ACTIONS_ID_TOKEN_REQUEST_URL"]
        shutil.rmtree(ready.temp / "model.aotc")
        assert ready.run("aotc-release.yml") == 3
        assert "AOTC-I037" in ready.step("Release").output


def deploying(job_: Runner, artifact: Path) -> Callable[[], list[str]]:
    """A job whose release holds an artifact; a function that says what was deployed since."""
    shutil.rmtree(job_.temp.parent / "gh", ignore_errors=True)
    # As the real one, which writes where `--output=` says.
    as_gh(
        job_,
        f'for word; do case "$word" in --output=*) cp "{artifact}" "${{word#*=}}";; esac; done',
    )
    said = job_.temp / "deployed"
    program = job_.workspace / "deploy.sh"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" > "{said}"\n')
    program.chmod(0o755)
    job_.contexts["inputs"] = {"tag": "v1.4.0"}

    def deployed() -> list[str]:
        found = said.read_text().splitlines() if said.exists() else []
        said.unlink(missing_ok=True)
        return found

    return deployed


@pytest.fixture
def released(
    ready: Runner, tmp_path: Path
) -> Iterator[tuple[Runner, Path, Callable[[], list[str]]]]:
    """A job that deploys, the artifact of the release, and what was deployed."""
    folder = ready.workspace / "models"
    aotc(folder, "keygen", "-o", str(tmp_path / "key.pem"))
    shutil.copy2(tmp_path / "key.pub", ready.workspace / "trust.pub")
    aotc(folder, "build", "model.onnx", "--key", str(tmp_path / "key.pem"), "-o", "made.aotc", "-q")
    given = tmp_path / "given.zip"
    aotc(folder, "pack", "made.aotc", "-o", str(given))
    yield ready, given, deploying(ready, given)


Released = tuple[Runner, Path, Callable[[], list[str]]]


def test_what_verifies_is_deployed_and_nothing_else(released: Released) -> None:
    ready, given, deployed = released
    assert ready.run("aotc-deploy.yml") == 0, ready.steps
    assert deployed() == [str(ready.temp / "model.aotc.zip")]
    flip_bit(given, given.stat().st_size // 2)
    assert ready.run("aotc-deploy.yml") == 1
    assert [step.name for step in ready.steps][-1] == "Verify"
    assert deployed() == []


@pytest.mark.parametrize("trust", ["", "missing.pub", "other.pub"])
def test_without_somebody_to_trust_nothing_is_deployed(
    trust: str, released: Released, tmp_path: Path
) -> None:
    ready, _, deployed = released
    aotc(ready.workspace, "keygen", "-o", "other.pem")
    ready.contexts["vars"]["AOTC_TRUST"] = trust
    assert ready.run("aotc-deploy.yml") != 0
    assert deployed() == []


@pytest.mark.parametrize("tag", ["--help", "$(touch forged)", "`touch forged`", "a\nb", "; exit 0"])
def test_what_an_input_says_is_no_code(tag: str, released: Released) -> None:
    ready, _, deployed = released
    ready.contexts["inputs"]["tag"] = tag
    assert ready.run("aotc-deploy.yml") == 0, ready.steps
    words = (ready.temp.parent / "gh" / "words").read_text()
    assert words.endswith(f"\n--\n{tag}\n")
    assert not (ready.workspace / "forged").exists()
    assert deployed()


def documents() -> dict[str, Any]:
    return {name: yaml.safe_load((TEMPLATES / name).read_text()) for name in FILES}


def test_no_script_holds_an_expression() -> None:
    steps = [
        step
        for document in documents().values()
        for job_ in document["jobs"].values()
        for step in job_["steps"]
    ]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 7
    assert not any("${{" in script for script in scripts)
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
        assert done.returncode == 0


def test_every_action_is_pinned_by_its_commit() -> None:
    found = []
    for name in FILES:
        for line in (TEMPLATES / name).read_text().splitlines():
            if "uses:" in line:
                pin = re.search(r"uses: ([\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$", line)
                assert pin is not None, line
                found.append(pin.groups())
    assert len(found) == 10
    # One release of each.
    assert len({name for name, _, _ in found}) == len(set(found)) == 5


def test_weights_in_large_file_storage_are_checked_out() -> None:
    """Where a model is built; what deploys builds none."""
    for name in ("build.yml", "release.yml"):
        (job_,) = documents()[name]["jobs"].values()
        assert job_["steps"][0]["with"] == {"lfs": True, "persist-credentials": False}


def test_a_job_may_do_no_more_than_it_must() -> None:
    found = documents()
    assert all(each["permissions"] == {"contents": "read"} for each in found.values())
    may = {
        name: job_.get("permissions")
        for each in found.values()
        for name, job_ in each["jobs"].items()
    }
    assert may == {
        "build": {"actions": "read", "contents": "read", "security-events": "write"},
        "release": {"contents": "write", "id-token": "write"},
        "deploy": None,
    }
    # A release takes nothing from a cache, and a deployment neither.
    for name in ("release.yml", "deploy.yml"):
        assert "uses: actions/cache" not in (TEMPLATES / name).read_text()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The workflows as they are written for a model."""
    folder = tmp_path_factory.mktemp("written")
    subprocess.run(["git", "init", "-q", folder], check=True)
    save(linear(), folder / "model.onnx")
    aotc(folder, "init", "model.onnx")
    return sorted((folder / ".github").rglob("*.yml"))


def test_they_are_short(written: list[Path]) -> None:
    assert [path.name for path in written] == sorted(FILES.values())
    assert sum(len(path.read_text().splitlines()) for path in written) <= 120
    assert not any("@MODEL@" in path.read_text() for path in written)


def test_zizmor_finds_nothing(written: list[Path]) -> None:
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists():
        pytest.skip("zizmor is not installed: pip install zizmor")
    words = ("--offline", "--no-progress", "--no-config", "--min-severity=low")
    done = subprocess.run([program, *words, *written], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_are_what_github_reads(written: list[Path]) -> None:
    pytest.importorskip("check_jsonschema")
    words = ("-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows")
    done = subprocess.run(
        [sys.executable, *words, *written],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
