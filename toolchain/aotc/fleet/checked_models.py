"""The job of one checked model, in a worker: built, and its answers compared with its test data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError
from aotc.base.files import failures
from aotc.base.files.reading import open_plain
from aotc.base.records import replace
from aotc.fleet.executors.base import OUT
from aotc.pipeline.build import PRELOADED_MODULES
from aotc.session.worker_pool import Workers
from aotc.spec.codec import Json, decode, encode
from aotc.spec.command_reports import ModelCheck
from aotc.spec.profile import WorkerLimits
from aotc.spec.reports import Refusal
from aotc.tools import check_outcomes

CHECK: Final = "aotc.fleet.checked_models:check_model"


def check_model(request: Json) -> Json:
    """Build a model, and compare the artifact's answers with those of its test data.

    Each step is a process of its own, within `limits`.  Returns the `check`, without what the
    original model answered, and what `build_model` returned as `built` (None: it was not): if
    `answers` are wanted, their files are left behind by digest.
    """
    folder = Path.cwd()
    # A model is refused by the path that the user knows.
    hidden = {f"{folder}/": "", request["model"]: request["path"]}
    limits = decode(WorkerLimits, request["limits"])
    try:
        with Workers(limits, PRELOADED_MODULES, forked=True) as workers:
            check, built = _outcome(request, folder, workers, hidden)
        if built is not None:
            wanted = built["files"] if request["answers"] else {}
            for sha256, path in wanted.items():
                shutil.copyfile(path, folder / OUT / sha256)
            built["files"] = list(wanted)
    except OSError as error:
        check, built = refused_check(request["name"], failures.refusal_of(error), hidden), None
    shutil.rmtree(folder / "build", ignore_errors=True)
    return {"check": encode(check), "built": built}


def refused_check(name: str, error: AotcError, hidden: Mapping[str, str]) -> ModelCheck:
    """The outcome of a model that was not built; `hidden` texts are shown as others."""
    return ModelCheck(
        model=name,
        outcome=check_outcomes.outcome_of(error.code),
        code=error.code,
        other_refusals=tuple(
            Refusal(code=each.code, fix=each.fix, **_refusal_fields(each.to_dict(), hidden))
            for each in error.every()
            if each is not error
        ),
        **_refusal_fields(error.to_dict(), hidden),
    )


def _refusal_fields(error: Json, hidden: Mapping[str, str]) -> dict[str, Any]:
    """The texts of a refusal, without names of temporary folders."""
    fields = {name: error.get(name, "") for name in ("what", "where", "expected", "found")}
    for text, shown in hidden.items():
        fields = {name: value.replace(text, shown) for name, value in fields.items()}
    return fields


def _outcome(
    request: Json, folder: Path, workers: Workers, hidden: Mapping[str, str]
) -> tuple[ModelCheck, Json]:
    where = Path(request["path"]).name
    artifact = str(folder / f"{Path(where).stem}.aotc")
    asked = {name: request[name] for name in ("profile", "cache", "key", "model", "name")}
    fixtures = _fixtures(request, folder / "fixtures")
    try:
        built = workers.run(
            "aotc.tools.model_sandbox:build_model",
            {**asked, "artifact": artifact, "fixtures": fixtures},
            folder=folder / "build",
            where=where,
        ).value
    except AotcError as error:
        return refused_check(request["name"], error, hidden), None
    check = ModelCheck(
        model=request["name"],
        outcome="built",
        verdict=built["verdict"],
        findings=tuple(built["findings"]),
    )
    data = request["data"]
    if not data:
        return check, built
    asked = {name: request[name] for name in ("keys", "model", "data", "custom_ops")}
    try:
        found = workers.run(
            "aotc.tools.model_sandbox:compare_answers",
            {**asked, "artifact": artifact},
            folder=folder / "answers",
            where=where,
        ).value
    except AotcError as error:
        found = {"answers": "refused", **error.to_dict()}
    check = replace(
        check,
        answers=found["answers"],
        code=found.get("code", ""),
        compared=len(data),
        **_refusal_fields(found, hidden),
    )
    return check, built


def _fixtures(request: Json, folder: Path) -> str | None:
    """A folder of the inputs in the model's test data; None if there is none to give."""
    if not request["fixtures"]:
        return None
    for data_set in map(Path, request["data"]):
        for file in sorted(data_set.glob("input_*.pb")):
            target = folder / data_set.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_plain(file) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
    return os.fspath(folder) if folder.is_dir() else None
