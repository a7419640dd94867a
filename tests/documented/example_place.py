"""A place in which examples run as they would in a clone, by a user who never ran aotc before."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from documented_pages import Example
from jsonschema import Draft202012Validator
from output_matching import missing_lines, said_of_prints
from ready_command import write_program
from repository import ROOT, TOOLCHAIN

# Generous: a machine may be busy, and only what is broken takes so long.
SECONDS = 900
_OWN = {"build", "dist", ".git"}
_STATUS = re.compile(r"^(.*\S)\s+# exit status (\d+)\b.*$")
_PROFILE = "aotc.profile/1"
# As `python -c` runs its first word.
_SCRIPT = f"""#!{sys.executable} -P
import sys as _sys

_sys.path.insert(0, "")
exec(compile(_sys.argv[1], "<string>", "exec"))
"""


class Place:
    """A clone at `folder / "clone"` with a `build` of its own, and a home beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "clone"

    @classmethod
    def new(cls, folder: Path) -> Place:
        """A place where nothing has been done yet."""
        place = cls(folder)
        place.clone.mkdir(parents=True)
        (folder / "home").mkdir()
        place._write_programs()
        for path in ROOT.iterdir():
            if path.name not in _OWN and not path.name.startswith(".venv"):
                (place.clone / path.name).symlink_to(path)
        return place

    def copy(self, folder: Path) -> Place:
        """The same, so that what follows does not change this one."""
        shutil.copytree(self.folder, folder, symlinks=True)
        place = Place(folder)
        shutil.rmtree(folder / "programs")
        place._write_programs()
        return place

    def _write_programs(self) -> None:
        """`aotc`, and what runs examples in Python, where they start at once if that may be."""
        (self.folder / "programs").mkdir()
        write_program(self.folder / "programs")
        self._script.write_text(_SCRIPT, "utf-8")
        self._script.chmod(0o755)
        write_program(self.folder / "programs", self._script)

    @property
    def _script(self) -> Path:
        return self.folder / "run_example"

    def environment(self) -> dict[str, str]:
        """The caller's, without what it says of aotc, of its user's folders, and of Python."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AOTC_", "XDG_", "PYTHON")) or name.startswith("AOTC_HOST_")
        }
        programs = (str(self.folder / "programs"), str(Path(sys.executable).parent))
        return kept | {
            "HOME": str(self.folder / "home"),
            "PATH": os.pathsep.join((*programs, kept["PATH"])),
            "PYTHONPATH": str(TOOLCHAIN),
            "COLUMNS": "120",
        }

    def run(self, example: Example) -> None:
        """Run one example, and compare what it prints with what the page shows."""
        if example.language == "yaml":
            self._check_document(example)
        elif example.language == "python":
            printed = self._run(str(self.folder / "programs" / self._script.name), example.text)
            _compare(said_of_prints(example.text), printed)
            _compare(example.output, printed)
        elif example.language == "console":
            for command, shown in _console(example.text):
                _compare(shown, self._run("sh", "-c", command, any_status=True))
        else:
            _compare(example.output, self._run("sh", "-eu", "-c", _expecting(example.text)))

    def _run(self, *command: str, any_status: bool = False) -> str:
        done = subprocess.run(
            command,
            cwd=self.clone,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert any_status or done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"
        return done.stdout

    def _check_document(self, example: Example) -> None:
        part_of = example.notes.get("part of")
        head = f"schema: {part_of}\nname: example\n" if part_of else ""
        document = yaml.safe_load(head + example.text)
        schema = document["schema"]
        if schema == _PROFILE:
            path = self.folder / "example.yaml"
            path.write_text(head + example.text, "utf-8")
            self._run("aotc", "profile", "check", str(path))
        Draft202012Validator(schema_of(schema)).validate(_as_json(document))


def schema_of(name: str) -> Any:
    """The committed JSON Schema of documents whose field `schema` is `name`."""
    for folder in ("profiles", "manifests"):
        for path in (ROOT / folder).glob("*.schema.json"):
            schema = json.loads(path.read_text("utf-8"))
            if name in json.dumps(schema.get("properties", {}).get("schema", {})):
                return schema
    raise LookupError(name)


def _as_json(document: Any) -> Any:
    """YAML reads moments; our documents hold them as text."""
    return json.loads(json.dumps(document, default=lambda moment: f"{moment:%Y-%m-%dT%H:%M:%SZ}"))


def _compare(shown: str, printed: str) -> None:
    missing = missing_lines(shown, printed)
    assert not missing, "\n".join(("shown, and not printed:", *missing, "printed:", printed))


def _console(text: str) -> list[tuple[str, str]]:
    """Commands of a console, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _expecting(text: str) -> str:
    """Commands for a shell that ends at the first that fails, but for those said to fail."""
    lines = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if found := _STATUS.match(line):
            line = f'status=0; {{ {found[1]}; }} || status=$?; [ "$status" -eq {found[2]} ]'
        lines.append(line)
    return "\n".join(lines)
