"""The way of a model and of a request through a build is counted, and does not grow."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from repository import ROOT

# Files, and climbs: lower them where a change shortens a way. One of them captures and answers what
# a framework has, and four observe, plan and judge the memory of what was built.
LONGEST = {"model": (63, 43), "request": (27, 21)}


def ways(toolchain: Path) -> dict[str, tuple[int, int]]:
    """Files and climbs of both ways, as the script prints them."""
    done = subprocess.run(
        [sys.executable, "ci/architecture/way.py", str(toolchain)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.findall(r"^(\w+): (\d+) files, (\d+) climbs", done.stdout, re.MULTILINE)
    return {name: (int(files), int(climbs)) for name, files, climbs in found}


def test_the_way_through_a_build_does_not_grow() -> None:
    for name, (files, climbs) in ways(ROOT / "toolchain").items():
        most_files, most_climbs = LONGEST[name]
        assert files <= most_files, name
        assert climbs <= most_climbs, name


def test_files_and_climbs_are_counted(tmp_path: Path) -> None:
    """`build` hands the model to `one`, and that to `two`; then, after a climb, `three` gets it."""
    modules = {
        "pipeline/__init__": "",
        "pipeline/build": (
            "from aotc.pipeline.one import first\n"
            "def build(model: SourceModel):\n"
            "    first(model)\n"
            "    run('aotc.pipeline.three:job')\n"
        ),
        "pipeline/one": (
            "from aotc.pipeline.two import second\n"
            "def first(source: SourceModel):\n"
            "    return second(source, options)\n"
        ),
        "pipeline/two": "def second(source: SourceModel, options: BuildContext):\n    pass\n",
        "pipeline/three": "def job(request):\n    pass\n",
        "pipeline/four": "def unused(model: SourceModel):\n    pass\n",
    }
    for name, text in modules.items():
        place = tmp_path / "aotc" / f"{name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    assert ways(tmp_path) == {"model": (4, 1), "request": (1, 0)}
