"""What the processes of a fleet's workers do: build a cell, and say ahead what they could build.

Requests name the files of a job as `{file:PATH}`, which is their path where the job runs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from aotc.base.errors import AotcError
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import record, replace
from aotc.fleet.cells import HOST, Task
from aotc.fleet.executors.base import OUT
from aotc.pipeline.build import PRELOADED_MODULES, build, foreseen_keys
from aotc.pipeline.request import BuildRequest
from aotc.pipeline.reuse import kept_judgements, model_digest
from aotc.session.worker_pool import Workers
from aotc.spec.codec import Json, decode, encode
from aotc.spec.fleet import CellSettings
from aotc.spec.packed_form import SUFFIX
from aotc.spec.profile import Profile
from aotc.spec.profile_files import builtin_targets
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Journal
from aotc.trust.compatibility import refusal_of

BUILD: Final = "aotc.fleet.cell_jobs:build_cell"
FORESEE: Final = "aotc.fleet.cell_jobs:foresee"
MODEL: Final = "model"
T = TypeVar("T")


@record
class Asked:
    """What a build is asked for but for its model, as data, and the files that it reads."""

    request: Mapping[str, Json]
    files: Mapping[str, Path]


def asked_of(task: Task) -> Asked:
    """What the build of a cell is asked for."""
    files: dict[str, Path] = {}

    def shipped(place: str, path: str | Path) -> str:
        """The word for a file of the user's, which may have another path where the job runs."""
        name = f"{place}/{Path(path).name}"
        # Jobs run in folders of their own.
        files[name] = Path(path).absolute()
        return f"{{file:{name}}}"

    target = task.target
    if target not in (HOST, *builtin_targets()):
        target = shipped("target", target)
    request = {
        "profile": encode(with_shipped(task.profile, shipped), full=True),
        "target": target,
        "settings": encode(task.settings),
        "trust_source": task.trust_source,
        "fixtures": shipped("fixtures", task.fixtures) if task.fixtures is not None else None,
        "calibration": (
            shipped("calibration", task.calibration) if task.calibration is not None else None
        ),
    }
    return Asked(request=request, files=files)


def with_shipped(profile: Profile, shipped: Callable[[str, str], str]) -> Profile:
    """The profile with words in place of the paths of its libraries and data.

    `shipped` is called with a folder for the file where the job runs, and with its path here.
    """
    plugins = {
        name: replace(spec, library=shipped(f"profile/plugins-{number}", spec.library))
        for number, (name, spec) in enumerate(profile.plugins.items())
    }
    custom_ops = tuple(
        replace(spec, library=shipped(f"profile/custom-ops-{number}", spec.library))
        for number, spec in enumerate(profile.custom_ops)
    )
    calibration, gates = profile.calibration, profile.gates
    if calibration.data:
        data = shipped("profile/calibration", calibration.data)
        calibration = replace(calibration, data=data)
    if gates.task is not None:
        data = shipped("profile/task", gates.task.data)
        gates = replace(gates, task=replace(gates.task, data=data))
    return replace(
        profile, plugins=plugins, custom_ops=custom_ops, calibration=calibration, gates=gates
    )


def artifact_name(output: str) -> str:
    """The name of the folder that a cell with this output is built into."""
    name = Path(output).name
    return name[: -len(SUFFIX)] if name.lower().endswith(SUFFIX) else name


def _options(asked: Json) -> dict[str, Any]:
    """The arguments of `aotc.build` that stand in what is asked."""
    settings = decode(CellSettings, asked["settings"])
    return {
        "profile": decode(Profile, asked["profile"]),
        "target": asked["target"],
        "precision": settings.precision,
        "random": settings.random,
        "allow_unproven": settings.allow_unproven is True,
        "dims": {name: encode(each) for name, each in settings.dims.items()},
        "values": dict(settings.values),
        "fixtures": asked["fixtures"],
        "embed_fixtures": settings.embed_fixtures is True,
        "calibration": asked["calibration"],
        "trust_source": asked["trust_source"],
    }


def refusals_of(error: AotcError) -> tuple[Refusal, ...]:
    """An error and those that it brings, as records."""
    return tuple(replace(refusal_of(each), rows=each.rows) for each in error.every())


# In a worker.


def foresee(request: Json) -> Json:
    """What this machine says of each of the `cells` before their models are read.

    Each is what is `asked` of a build, with the `models` that it is asked of: pairs of name and
    digest.  Returns for each the `keys` in the build cache, or the `refusals`.
    """
    found = []
    for number, each in enumerate(request["cells"]):
        with temporary_folder("foresee") as folder:
            try:
                asked = BuildRequest(f"{number}.onnx", **_options(each["asked"]))
                keys = foreseen_keys(asked, each["models"], folder)
            except AotcError as error:
                found.append({"refusals": encode(refusals_of(error))})
            else:
                found.append({"keys": list(keys)})
    return found


def build_cell(request: Json) -> Json:
    """Build the model `source` as it is `asked`, to the folder `artifact` of what comes back.

    `keys` are those that were foreseen: the one that is still right is returned, as the files may
    have changed meanwhile.  What refuses the build is returned, too, with what was judged: it is
    not the worker's failure.
    """
    source, options = request["source"], _options(request["asked"])
    journal = Journal()
    out = Path(OUT).absolute()
    value: dict[str, Json] = {"key": "", "refusals": [], "cached": False}
    with _directory(request["directory"]):
        try:
            with Workers(options["profile"].limits, PRELOADED_MODULES, forked=True) as workers:
                report = build(
                    source,
                    output=out / request["artifact"],
                    key=request["key"],
                    cache=request["cache"],
                    journal=journal,
                    workers=workers,
                    **options,
                )
            value |= {
                "artifact_id": report.artifact_id,
                "key_id": report.key_id,
                "cached": report.cached,
                "payload_bytes": report.payload_bytes,
                "key": _still(BuildRequest(source, **options), request),
            }
        except AotcError as error:
            value["refusals"] = encode(refusals_of(error))
    return {
        **value,
        "judged": kept_judgements(journal),
        "findings": [encode(each) for each in journal.findings],
    }


def _still(wanted: BuildRequest, request: Json) -> str:
    """The key that was foreseen, if that of the files as they are now is equal; else empty."""
    digest = model_digest(request["source"]) if request["keys"] else None
    if digest is None:
        return ""
    with temporary_folder("foresee") as folder:
        (key,) = foreseen_keys(wanted, [(request["name"], digest)], folder)
    return key if key in request["keys"] else ""


@contextlib.contextmanager
def _directory(path: str) -> Iterator[None]:
    """In another working directory, where the code of a source is found; empty: in this one."""
    before = Path.cwd()
    if path:
        os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
