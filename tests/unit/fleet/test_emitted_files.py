"""Emitted files: what each system reads, and that their jobs build every shard once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_models import linear, save

from aotc.base.errors import AotcError
from aotc.fleet.cells import read_fleet
from aotc.fleet.emitted import FORMS
from aotc.fleet.emitting import emitted_files
from aotc.fleet.shards import shards
from aotc.spec.matrix_report import EmitReport

FLEET = """\
schema: aotc.fleet/1
name: zoo.v1
models: [{path: models/*.onnx}]
profiles: [edge, server-cpu]
targets: [host, linux-x86-64]
rows:
- match: {profile: server-cpu}
  settings:
    needs: {cpus: 4, memory_bytes: 8000000000, resources: {xeon: 1}}
- match: {model: b, profile: server-cpu}
  settings:
    needs: {num_gpus: 0.5, accelerator_type: H100}
"""
# Cells: 6 of edge, 4 on a Xeon, 2 with a GPU.
SHARDS = 5

Emit = Callable[..., EmitReport]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a fleet of three models below its root."""
    folder = tmp_path / "zoo"
    (folder / "models").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in "abc":
        save(linear(), folder / "models" / f"{name}.onnx")
    (folder / "fleet.yaml").write_text(FLEET)
    return tmp_path


@pytest.fixture
def emit(repository: Path) -> Emit:
    """Emits the fleet into a folder of its repository."""

    def emitted(form: str, count: int = SHARDS, folder: str = "ci", **more: bool) -> EmitReport:
        return emitted_files(
            repository / "zoo" / "fleet.yaml",
            form=form,
            shards=count,
            folder=repository / folder,
            **more,
        )

    return emitted


def read(report: EmitReport, part: str = "") -> Any:
    (file,) = (file for file in report.files if part in file)
    return yaml.safe_load(Path(file).read_text())


def called(repository: Path, script: str, variables: Mapping[str, str]) -> list[str]:
    """The shards that a script builds, by a program `aotc` that writes down how it is called."""
    programs = repository / "programs"
    programs.mkdir(exist_ok=True)
    words = repository / "words"
    program = programs / "aotc"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{words}"\nexit "${{ENDS:-0}}"\n')
    program.chmod(0o755)
    words.write_text("")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=repository,
        env={"PATH": f"{programs}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(variables.get("EXPECTED", 0)), done.stderr
    lines = words.read_text().splitlines()
    assert lines[-1] == "zoo/fleet.yaml"
    return [line.removeprefix("--shard=") for line in lines if line.startswith("--shard=")]


ALL = [f"{number}/{SHARDS}" for number in range(1, SHARDS + 1)]


def needed(repository: Path) -> list[str]:
    """What the cells of each shard ask for, by `aotc fleet build --shard`."""
    tasks = read_fleet(repository / "zoo" / "fleet.yaml").tasks
    found = []
    for part in shards([task.cell for task in tasks], SHARDS):
        (needs,) = {str(each.needs): each.needs for each in part}.values()
        found.append(needs.accelerator_type or next(iter(needs.resources), ""))
    return found


def test_each_form_is_there() -> None:
    assert tuple(FORMS) == ("github", "gitlab", "kubernetes")


# GitHub.


def test_github_builds_every_shard_where_it_can_be(emit: Emit, repository: Path) -> None:
    workflow = read(emit("github"))
    jobs = workflow["jobs"]
    rows = jobs["shard"]["strategy"]["matrix"]["include"]
    (script,) = (s["run"] for s in jobs["shard"]["steps"] if s.get("id") == "build")
    variables = {
        **workflow["env"],
        "RUNNER_TEMP": str(repository / "temp"),
        "GITHUB_STEP_SUMMARY": str(repository / "summary"),
    }
    built = [
        shard
        for row in rows
        for shard in called(repository, script, {**variables, "SHARD": str(row["shard"])})
    ]
    assert built == ALL
    labels = [row["runner"] for row in rows]
    assert ["" if each == "ubuntu-24.04" else each[-1] for each in labels] == needed(repository)
    assert labels[-1] == ["self-hosted", "linux", "gpu", "H100"]
    assert rows[-1]["extra"] == "gpu"
    uploads = [s["with"] for s in jobs["shard"]["steps"] if "upload" in s.get("uses", "")]
    assert uploads[1]["path"].split() == ["zoo/artifacts/"]


def test_github_takes_it(emit: Emit) -> None:
    pytest.importorskip("check_jsonschema")
    (file,) = emit("github").files
    validated("vendor.github-workflows", file)
    # Every action is pinned to a commit.
    uses = re.findall(r"uses: (\S+)", Path(file).read_text())
    assert uses
    assert all(re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", each) for each in uses)


def test_zizmor_finds_nothing_in_it(emit: Emit) -> None:
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists():
        pytest.skip("zizmor is not installed: pip install zizmor")
    words = ("--offline", "--no-progress", "--no-config", "--min-severity=low")
    done = subprocess.run(
        [program, *words, *emit("github").files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def validated(schema: str, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


# GitLab.


def test_gitlab_builds_every_shard_where_it_can_be(emit: Emit, repository: Path) -> None:
    report = emit("gitlab")
    parent, child = read(report, "v1.gitlab"), read(report, "shards")
    (trigger,) = (job["trigger"] for job in parent.values())
    place = trigger["include"][0]["local"]
    assert (repository / place).read_text() == Path(report.files[1]).read_text()
    script = child[".shards"]["script"][0]
    built, tags = [], []
    for name in child["merge"]["needs"]:
        job = child[name]
        for index in range(1, job.get("parallel", 1) + 1):
            # GitLab numbers the parts of a job where there are several.
            node = {"CI_NODE_INDEX": str(index)} if "parallel" in job else {}
            stated = {**child[".fleet"]["variables"], **job["variables"], **node}
            built += called(repository, script.replace("/tmp/", f"{repository}/"), stated)
            tags.append(job.get("tags", [""])[-1])
    assert (built, tags) == (ALL, needed(repository))


def test_gitlab_takes_it(emit: Emit) -> None:
    pytest.importorskip("check_jsonschema")
    validated("vendor.gitlab-ci", "--data-transform", "gitlab-ci", *emit("gitlab").files)


def test_gitlab_finds_a_child_in_the_repository_alone(
    emit: Emit, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(AotcError) as refused:
        emit("gitlab", folder=str(tmp_path_factory.mktemp("outside")))
    assert refused.value.code == "AOTC-I189"


# Kubernetes.


def manifests(report: EmitReport) -> list[Any]:
    return [each for file in report.files for each in yaml.safe_load_all(Path(file).read_text())]


def test_kubernetes_builds_every_shard_where_it_can_be(emit: Emit, repository: Path) -> None:
    *jobs, _ = manifests(emit("kubernetes"))
    built, nodes = [], []
    for job in jobs:
        spec = job["spec"]
        assert (spec["completionMode"], spec["parallelism"]) == ("Indexed", spec["completions"])
        (container,) = spec["template"]["spec"]["containers"]
        stated = {each["name"]: each["value"] for each in container["env"]}
        for index in range(spec["completions"]):
            indexed = {**stated, "JOB_COMPLETION_INDEX": str(index)}
            built += called(repository, container["args"][0], indexed)
            selector = spec["template"]["spec"]["nodeSelector"]
            nodes.append(
                selector.get("aotc/accelerator-type") or ("xeon" if "aotc/xeon" in selector else "")
            )
    assert (built, nodes) == (ALL, needed(repository))
    plain, xeon, gpu = (
        job["spec"]["template"]["spec"]["containers"][0]["resources"] for job in jobs
    )
    assert plain["requests"]["cpu"] == "1000m"
    assert xeon == {
        "requests": {"cpu": "4000m", "memory": "7630Mi"},
        "limits": {"memory": "7630Mi"},
    }
    # A node gives no part of a GPU.
    assert gpu["limits"]["nvidia.com/gpu"] == "1"
    labels = {job["metadata"]["labels"]["aotc/fleet"] for job in jobs}
    assert labels == {"zoo-v1"}


@pytest.mark.parametrize(("ends", "status"), [(0, 0), (1, 0), (3, 3), (70, 70)])
def test_a_pod_whose_cell_failed_has_done_its_work(
    emit: Emit, repository: Path, ends: int, status: int
) -> None:
    job = manifests(emit("kubernetes"))[0]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variables = {"ENDS": str(ends), "EXPECTED": str(status), "JOB_COMPLETION_INDEX": "0"}
    stated = {each["name"]: each["value"] for each in container["env"]}
    called(repository, container["args"][0], {**stated, **variables})
    rules = job["spec"]["podFailurePolicy"]["rules"]
    assert (status in rules[1]["onExitCodes"]["values"]) == (status != 0)


def test_kubernetes_takes_it(emit: Emit) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    found = manifests(emit("kubernetes"))
    assert [each["kind"] for each in found] == ["Job"] * 4
    for each in found:
        validator.validate(each, validator.latest_version(), strict=True)
    names = Counter(each["metadata"]["name"] for each in found)
    assert max(names.values()) == 1
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names)


# What is refused.


def test_too_few_shards_for_the_machines(emit: Emit) -> None:
    with pytest.raises(AotcError) as refused:
        emit("github", 2)
    error = refused.value
    assert (error.code, error.expected, error.found) == ("AOTC-I189", "at least 3", "2")


def test_no_shard_is_empty(emit: Emit) -> None:
    assert emit("github", 100).shards == 12


@pytest.mark.parametrize("name", ["$(id)", "a:b", "-x", "a/b"])
def test_names_that_mean_something_else(emit: Emit, repository: Path, name: str) -> None:
    fleet = repository / "zoo" / "fleet.yaml"
    fleet.write_text(FLEET.replace("xeon", f"'{name}'"))
    with pytest.raises(AotcError) as refused:
        emit("github")
    assert (refused.value.code, refused.value.where) == ("AOTC-I189", name)


def test_a_path_that_means_something_else(repository: Path) -> None:
    folder = (repository / "zoo").rename(repository / "zoo $(id)")
    with pytest.raises(AotcError) as refused:
        emitted_files(folder / "fleet.yaml", form="github", shards=5, folder=repository / "ci")
    assert refused.value.code == "AOTC-I189"


def test_what_exists_stays(emit: Emit) -> None:
    (file,) = map(Path, emit("github").files)
    text = file.read_text()
    with pytest.raises(AotcError) as refused:
        emit("github", 7)
    assert refused.value.code == "AOTC-I017"
    assert file.read_text() == text
    emit("github", 7, force=True)
    assert file.read_text() != text
    # Of the user's own, --force does not make ours.
    file.write_text("name: mine\n")
    with pytest.raises(AotcError):
        emit("github", force=True)
    assert file.read_text() == "name: mine\n"


def test_a_fleet_without_a_cell_is_refused(repository: Path, emit: Emit) -> None:
    text = FLEET + "exclude: [{match: {}}]\n"
    (repository / "zoo" / "fleet.yaml").write_text(text)
    with pytest.raises(AotcError) as caught:
        emit("github")
    assert caught.value.code == "AOTC-I166"
    assert not (repository / "ci").exists()
