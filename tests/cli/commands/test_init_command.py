"""`aotc init`: what it writes is valid, works, and replaces nothing of the user's."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import pytest
import yaml
from command import SCRIPT, Command
from made_models import linear, save
from model_parts import model_of
from onnx import TensorProto, helper
from third_party_models import MODELS, needs_models

# What a dim may be called in a model, and what a comment, YAML or a terminal would make of it.
HOSTILE = {
    "a line": "batch\n  evil: 1..8",
    "a comment": "batch # evil",
    "a mapping": "batch: {evil: 1}",
    "quotes": "'\"`$(evil)",
    "an expression": "${{ secrets.TOKEN }}",
    "a terminal's": "batch\x1b[31m\r",
    "right to left": "batch\u202eevil",
    "beyond the first plane": "\U0001f600 batch",
    "another line end": "batch\u2028evil\x85",
    "a word of YAML": "null",
    "a number": "1e3x",
    "a document": "---",
    "an alias": "*batch",
    "blanks": " batch ",
    "NUL": "batch\x00evil",
}


def named(dims: Mapping[str, str]) -> onnx.ModelProto:
    """A model whose inputs have these names, and each a free dim of its own."""

    def value(name: str, dim: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, 16])

    return model_of(
        [helper.make_node("Relu", [name], [f"y{at}"]) for at, name in enumerate(dims)],
        inputs=[value(name, dim) for name, dim in dims.items()],
        outputs=[value(f"y{at}", dim) for at, dim in enumerate(dims.values())],
    )


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    command = Command(tmp_path / "project")
    command.folder.mkdir()
    return command


def actions(document: dict[str, object]) -> dict[str, str]:
    files = document["files"]
    assert isinstance(files, list)
    return {each["path"]: each["action"] for each in files}


def test_what_it_writes_is_checked_and_built(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    found = aotc("init", "model.onnx")
    assert found.status == 0
    assert found.document["dims"] == {"batch": ["x.0"]}
    assert actions(found.document) == dict.fromkeys(
        (
            "model.profile.yaml",
            ".github/workflows/aotc.yml",
            ".github/workflows/aotc-release.yml",
            ".github/workflows/aotc-deploy.yml",
            ".gitignore",
        ),
        "written",
    )
    assert aotc.plain("profile", "check", "model.profile.yaml").status == 0
    assert aotc("build", "model.onnx", "--profile", "model.profile.yaml").status == 0
    text = (aotc.folder / "model.profile.yaml").read_text()
    assert "#   batch: 1..8  # x.0\n" in text
    # What is offered works once it is taken: the range is then promised.
    offered = text.replace("# dims:\n#   batch: 1..8", "dims:\n  batch: 1..8")
    (aotc.folder / "model.profile.yaml").write_text(offered)
    built = aotc("build", "model.onnx", "--profile", "model.profile.yaml", "--force")
    assert built.status == 0
    ranges = aotc("inspect", "model.aotc").document["domain"]["dims"]
    assert (ranges["batch"]["min"], ranges["batch"]["max"]) == (1, 8)
    # The inputs stand in the profile: a model with others is refused, as a pull request should be.
    save(linear(features=8), aotc.folder / "model.onnx")
    words = ("build", "model.onnx", "--profile", "model.profile.yaml", "--force")
    assert aotc(*words).status == 3


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_name_is_a_name(kind: str, aotc: Command) -> None:
    name = HOSTILE[kind]
    save(named({"x": name}), aotc.folder / "model.onnx")
    plain = aotc.plain("init", "model.onnx")
    assert plain.status == 0, plain
    assert not any(character in plain.stdout for character in "\x1b\r\u202e\x00\x85\u2028")
    raw = (aotc.folder / "model.profile.yaml").read_bytes().decode()
    stated = yaml.safe_load(raw)
    assert set(stated) == {"schema", "name", "inputs"}
    comments = [line for line in raw.splitlines() if line.startswith("#   ")]
    assert len(comments) == 1
    # What it offers to take is this one dim.
    (taken,) = yaml.safe_load(comments[0][1:])
    document = aotc("init", "model.onnx").document
    assert list(document["dims"]) == [taken]
    assert aotc.plain("profile", "check", "model.profile.yaml").status == 0
    workflow = (aotc.folder / ".github/workflows/aotc.yml").read_text()
    assert "evil" not in workflow
    assert "secrets" not in workflow


def test_hostile_inputs_and_dims_are_names(aotc: Command) -> None:
    """A model that has them all is built with the profile."""
    names = {f"x{number}": dim for number, dim in enumerate(HOSTILE.values())}
    names["x: {}\n# \u202e"] = "batch"
    save(named(names), aotc.folder / "model.onnx")
    assert aotc("init", "model.onnx").status == 0
    assert aotc.plain("profile", "check", "model.profile.yaml").status == 0
    assert aotc("build", "model.onnx", "--profile", "model.profile.yaml").status == 0


@needs_models
@pytest.mark.parametrize(
    "name",
    [
        "silero_vad_v6",
        "tiny_gpt2_past_genai",
        "tinybert_untrained",
        "basic_pitch_nmp",
        "ultraface_rfb320",
        "xgboost_onnxmltools",
        "gtcrn_stream",
        "yunet_n_dynamic",
    ],
)
def test_models_of_others(name: str, aotc: Command) -> None:
    model = aotc.folder / "models" / f"{name}.onnx"
    model.parent.mkdir()
    model.write_bytes((MODELS / f"{name}.onnx").read_bytes())
    found = aotc("init", f"models/{name}.onnx", "--ci", "none")
    assert found.status == 0
    profile = found.document["profile"]
    assert aotc.plain("profile", "check", profile).status == 0
    described = aotc("inspect", f"models/{name}.onnx").document
    free = {d for each in described["inputs"] for d in each["shape"] if isinstance(d, str)}
    assert set(found.document["dims"]) == free
    # What it says is right of the model, as its build finds, which is long for some.
    if name in ("ultraface_rfb320", "xgboost_onnxmltools", "tinybert_untrained"):
        built = aotc("build", f"models/{name}.onnx", "--profile", profile)
        assert built.status == 0


def test_nothing_of_the_user_is_replaced(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    (aotc.folder / ".gitignore").write_text("mine\n*.pem")
    (aotc.folder / "model.profile.yaml").write_text("mine\n")
    workflow = aotc.folder / ".github" / "workflows" / "aotc.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("mine\n")
    for words in ((), ("--force",)):
        found = actions(aotc("init", "model.onnx", *words).document)
        assert found["model.profile.yaml"] == "kept"
        assert found[".github/workflows/aotc.yml"] == "kept"
        assert (aotc.folder / "model.profile.yaml").read_text() == "mine\n"
        assert workflow.read_text() == "mine\n"
    ignored = (aotc.folder / ".gitignore").read_text().splitlines()
    assert ignored[:2] == ["mine", "*.pem"]
    assert ignored.count("*.pem") == 1
    assert "*.aotc/" in ignored
    # A second time there is nothing to do, and no need for --force.
    assert set(actions(aotc("init", "model.onnx").document).values()) == {"kept"}


def test_a_file_of_its_own_is_brought_up_to_date(aotc: Command) -> None:
    own = ".gitlab/aotc.gitlab-ci.yml"
    save(linear(), aotc.folder / "model.onnx")
    first = aotc("init", "model.onnx", "--ci", "gitlab")
    assert set(actions(first.document).values()) == {"written"}
    profile = aotc.folder / "model.profile.yaml"
    bounded = profile.read_text().replace("# dims:\n#   batch: 1..8", "dims:\n  batch: 1..8")
    profile.write_text(bounded)
    current = (aotc.folder / own).read_text()
    (aotc.folder / own).write_text("of an earlier release\n")
    refused = aotc("init", "model.onnx", "--ci", "gitlab")
    assert refused.refused("AOTC-I017", 3)["where"] == own
    forced = actions(aotc("init", "model.onnx", "--ci", "gitlab", "--force").document)
    assert {path for path, action in forced.items() if action != "kept"} == {own}
    assert (aotc.folder / own).read_text() == current
    assert profile.read_text() == bounded


def test_workflows_that_it_wrote_for_the_model_are_brought_up_to_date(aotc: Command) -> None:
    for name in ("model", "other"):
        save(linear(), aotc.folder / f"{name}.onnx")
    assert aotc("init", "model.onnx").status == 0
    workflow = aotc.folder / ".github" / "workflows" / "aotc.yml"
    current = workflow.read_text()
    workflow.write_text(current.replace("v7.0.1", "v6.0.0"))
    # What a user may have edited is kept, and so is the workflow of another model.
    for words in (("model.onnx",), ("other.onnx", "--force")):
        found = actions(aotc("init", *words).document)
        assert found[".github/workflows/aotc.yml"] == "kept"
    found = actions(aotc("init", "model.onnx", "--force").document)
    assert [path for path, action in found.items() if action == "replaced"] == [
        ".github/workflows/aotc.yml"
    ]
    assert workflow.read_text() == current


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_a_second_model_is_told_that_nothing_builds_it(ci: str, repository: Path) -> None:
    first, second = with_model(repository / "a"), with_model(repository / "b")
    assert first("init", "model.onnx", "--ci", ci).document["of_others"] == []
    before = {path: path.read_bytes() for path in repository.rglob("*.yml")}
    # Of one name, in another folder: it is not taken for the first.
    for words in ((), ("--force",)):
        found = second("init", "model.onnx", "--ci", ci, *words)
        assert (
            found.document["of_others"]
            == {
                "github": [
                    "../.github/workflows/aotc.yml",
                    "../.github/workflows/aotc-release.yml",
                ],
                "gitlab": ["../.gitlab-ci.yml"],
            }[ci]
        )
        assert before == {path: path.read_bytes() for path in repository.rglob("*.yml")}
    said = second.plain("init", "model.onnx", "--ci", ci).stdout
    assert "kept, and not about this model, which they do not build\n  ../.git" in said
    assert "  add it to them, or rename them and repeat 'aotc init'\n" in said
    assert first("init", "model.onnx", "--ci", ci).document["of_others"] == []


def with_model(folder: Path) -> Command:
    """The command in a new folder with a model."""
    folder.mkdir(parents=True)
    save(linear(), folder / "model.onnx")
    return Command(folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The top of a git repository."""
    subprocess.run(["git", "init", "-q", tmp_path / "repository"], check=True)
    return tmp_path / "repository"


def test_in_a_folder_of_a_repository_the_ci_finds_its_files(repository: Path) -> None:
    aotc = with_model(repository / "models" / "a b")
    found = aotc("init", "model.onnx").document
    assert found["repository"] == str(repository.resolve())
    names = [f"../../.github/workflows/aotc{each}.yml" for each in ("", "-release", "-deploy")]
    assert list(actions(found)) == ["model.profile.yaml", *names, ".gitignore"]
    assert sorted(path.name for path in (repository / ".github").rglob("*.yml")) == [
        "aotc-deploy.yml",
        "aotc-release.yml",
        "aotc.yml",
    ]
    assert not (aotc.folder / ".github").exists()
    workflow = yaml.safe_load((repository / ".github/workflows/aotc.yml").read_text())
    (build,) = (each for each in workflow["jobs"]["build"]["steps"] if each.get("id") == "build")
    assert build["working-directory"] == "models/a b"
    said = f"The CI reads its files at the top of the git repository: {repository.resolve()}"
    assert said in " ".join(aotc.plain("init", "model.onnx").stdout.split())
    # A second time there is nothing to do.
    assert set(actions(aotc("init", "model.onnx").document).values()) == {"kept"}


def test_of_gitlab_too(repository: Path) -> None:
    aotc = with_model(repository / "models" / "a b")
    (repository / ".gitlab-ci.yml").write_text("stages: [mine]\n")
    found = aotc("init", "model.onnx", "--ci", "gitlab").document
    assert (repository / ".gitlab" / "aotc.gitlab-ci.yml").is_file()
    added = yaml.safe_load(found["to_add"]["../../.gitlab-ci.yml"])
    assert added[".aotc-model"]["variables"]["AOTC_FOLDER"] == "models/a b"
    assert not (aotc.folder / ".gitlab").exists()


@pytest.mark.parametrize("kind", ["worktree", "submodule", "bare", "no repository"])
def test_what_is_the_top_of_a_repository(kind: str, repository: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    place = repository.parent / "other"
    if kind == "worktree":
        subprocess.run(
            [*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=repository, check=True
        )
        subprocess.run([*git, "worktree", "add", "-q", place], cwd=repository, check=True)
    elif kind == "submodule":
        source = repository.parent / "source"
        subprocess.run(["git", "init", "-q", source], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=source, check=True)
        place = repository / "models" / "sub"
        words = ("-c", "protocol.file.allow=always", "submodule", "add", "-q", source, "models/sub")
        subprocess.run([*git, *words], cwd=repository, check=True)
    elif kind == "bare":
        subprocess.run(["git", "init", "-q", "--bare", place], check=True)
    aotc = with_model(place / "deep")
    found = aotc("init", "model.onnx").document
    is_one = kind in ("worktree", "submodule")
    top = place if is_one else aotc.folder
    assert found["repository"] == (str(place.resolve()) if is_one else "")
    assert (top / ".github" / "workflows" / "aotc.yml").is_file()
    # Without files of a CI, nothing goes there.
    assert aotc("init", "model.onnx", "--ci", "none").document["repository"] == ""


def test_a_folder_that_a_job_would_read_as_code(repository: Path) -> None:
    aotc = with_model(repository / "$(evil)")
    refused = aotc("init", "model.onnx").refused("AOTC-I071", 3)
    assert refused["where"] == str(aotc.folder.resolve())
    assert not (aotc.folder / ".gitignore").exists()
    assert aotc("init", "model.onnx", "--ci", "none").status == 0


def test_a_link_is_not_followed(aotc: Command, tmp_path: Path) -> None:
    save(linear(), aotc.folder / "model.onnx")
    (tmp_path / "elsewhere").write_text("mine\n")
    linked = aotc.folder / ".gitlab" / "aotc.gitlab-ci.yml"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(tmp_path / "elsewhere")
    for words in ((), ("--force",)):
        aotc("init", "model.onnx", "--ci", "gitlab", *words).refused("AOTC-I017", 3)
    assert (tmp_path / "elsewhere").read_text() == "mine\n"
    # Nor is one that refers to nothing.
    (aotc.folder / "model.profile.yaml").symlink_to(tmp_path / "missing")
    aotc("init", "model.onnx", "--ci", "none").refused("AOTC-I017", 3)
    assert not (tmp_path / "missing").exists()


def test_a_pipeline_of_the_users_is_kept_and_told_what_it_lacks(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    pipeline = aotc.folder / ".gitlab-ci.yml"
    pipeline.write_text("stages: [mine]\n")
    for words in ((), ("--force",)):
        found = aotc("init", "model.onnx", "--ci", "gitlab", *words)
        assert found.status == 0
        assert pipeline.read_text() == "stages: [mine]\n"
        assert actions(found.document)[".gitlab-ci.yml"] == "kept"
        added = yaml.safe_load(found.document["to_add"][".gitlab-ci.yml"])
        assert added["include"] == [{"local": ".gitlab/aotc.gitlab-ci.yml"}]
        assert added[".aotc-model"]["variables"]["AOTC_MODEL"] == "model.onnx"
        # When pipelines run is the user's to say.
        assert "workflow" not in added
    assert (aotc.folder / ".gitlab" / "aotc.gitlab-ci.yml").is_file()
    shown = aotc.plain("init", "model.onnx", "--ci", "gitlab").stdout
    assert "add to .gitlab-ci.yml\n  include:\n    - local: .gitlab/aotc.gitlab-ci.yml\n" in shown
    # Once it is there, nothing is to add.
    pipeline.write_text("stages: [mine]\n" + found.document["to_add"][".gitlab-ci.yml"])
    again = aotc("init", "model.onnx", "--ci", "gitlab")
    assert "to_add" not in again.document or not again.document["to_add"]


def test_jobs_for_gitlab(aotc: Command) -> None:
    (aotc.folder / "models").mkdir()
    save(linear(), aotc.folder / "models" / "a model+1.onnx")
    found = aotc("init", "models/a model+1.onnx", "--ci", "gitlab")
    assert set(actions(found.document)) == {
        "a-model-1.profile.yaml",
        ".gitlab/aotc.gitlab-ci.yml",
        ".gitlab-ci.yml",
        ".gitignore",
    }
    pipeline = yaml.safe_load((aotc.folder / ".gitlab-ci.yml").read_text())
    assert pipeline[".aotc-model"]["variables"] == {
        "AOTC_FOLDER": ".",
        "AOTC_MODEL": "models/a model+1.onnx",
        "AOTC_PROFILE": "a-model-1.profile.yaml",
        "AOTC_ARTIFACT": "a model+1.aotc",
    }


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_a_job_names_the_model_as_it_is(ci: str, aotc: Command) -> None:
    name = "a b,c=d@e+f_\u00e9-1.onnx"
    save(linear(), aotc.folder / name)
    assert aotc("init", name, "--ci", ci).status == 0
    if ci == "gitlab":
        pipeline = yaml.safe_load((aotc.folder / ".gitlab-ci.yml").read_text())
        assert pipeline[".aotc-model"]["variables"]["AOTC_MODEL"] == name
        return
    for workflow in ("aotc", "aotc-release"):
        text = (aotc.folder / f".github/workflows/{workflow}.yml").read_text()
        (job,) = yaml.safe_load(text)["jobs"].values()
        words = [shlex.split(step["run"], comments=True) for step in job["steps"] if "run" in step]
        (line,) = (each for each in words if name in each)
        assert line[line.index(name) - 1] == "--"


@pytest.mark.parametrize(
    "name", ["$(evil).onnx", "${{ evil }}.onnx", "it's.onnx", "-evil.onnx", "a\nb.onnx", "a`b.onnx"]
)
def test_a_path_that_a_job_would_read_as_code(name: str, aotc: Command) -> None:
    save(linear(), aotc.folder / name)
    aotc("init", f"./{name}").refused("AOTC-I071", 3)
    assert not (aotc.folder / ".gitignore").exists()


def test_a_model_outside_of_the_project(aotc: Command, tmp_path: Path) -> None:
    save(linear(), tmp_path / "model.onnx")
    aotc("init", "../model.onnx").refused("AOTC-I071", 3)
    # By its absolute path, a model of the project is one.
    save(linear(), aotc.folder / "model.onnx")
    found = aotc("init", aotc.folder / "model.onnx")
    assert found.document["model"] == "model.onnx"


def test_what_is_no_model(aotc: Command) -> None:
    (aotc.folder / "model.onnx").write_bytes(b"not a model")
    assert aotc("init", "model.onnx").status == 3
    assert aotc("init", "missing.onnx").refused("AOTC-I001", 3)
    assert not (aotc.folder / ".gitignore").exists()


def test_without_a_terminal_it_needs_the_model(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    aotc("init").refused("AOTC-I070", 3)


def test_a_folder_that_cannot_be_written(aotc: Command) -> None:
    if os.geteuid() == 0:
        pytest.skip("the administrator may write anywhere")
    save(linear(), aotc.folder / "model.onnx")
    aotc.folder.chmod(0o500)
    aotc("init", "model.onnx").refused("AOTC-I026", 3)


def test_a_folder_in_the_way(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    (aotc.folder / ".github").write_text("a file\n")
    assert aotc("init", "model.onnx").status == 3


def on_terminal(command: Command, words: Sequence[str], typed: bytes) -> tuple[int, str]:
    """Run a command with a terminal on all three streams, and type an answer."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [str(SCRIPT), *words],
        cwd=command.folder,
        env=command.environment() | {"TERM": "dumb"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    os.write(controller, typed)
    shown = b""
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(controller)
    return process.wait(60), shown.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
@pytest.mark.parametrize(
    ("typed", "profile"),
    [
        (b"2\n", "b.profile.yaml"),
        (b"\n", "a.profile.yaml"),
        (b"deep/c.onnx\n", "c.profile.yaml"),
        (b"\x04", ""),
    ],
)
def test_on_a_terminal_it_asks(typed: bytes, profile: str, aotc: Command) -> None:
    for name in ("a", "b", "deep/c", "x.aotc/payload/d"):
        path = aotc.folder / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        save(linear(), path)
    status, shown = on_terminal(aotc, ("init",), typed)
    assert "  1  a.onnx" in shown
    assert "deep/c.onnx" in shown
    assert "d.onnx" not in shown.replace("\r", "")
    if profile:
        assert status == 0, shown
        assert (aotc.folder / profile).is_file()
    else:
        assert status == 3
        assert "AOTC-I070" in shown
