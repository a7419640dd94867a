"""Running an importer: in a sandboxed process of a build, or of a command that reads a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import file_state
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import field, record
from aotc.session.worker_pool import Workers
from aotc.sources.base import Captured, CaptureRequest, Importer, Taken
from aotc.sources.registry import importer_of
from aotc.spec.codec import Json, decode, encode


@record
class SourceTrust:
    """What is allowed of a source, and what its importer is told beside."""

    trusted: bool = False
    options: Mapping[str, Json] = field(default_factory=dict)


UNTRUSTED: Final = SourceTrust()
"""What strangers' sources get."""
_CRASHED: Final = "AOTC-I013"


def take(
    importer: Importer,
    source: str,
    folder: Path,
    workers: Workers,
    allowed: SourceTrust = UNTRUSTED,
) -> Taken:
    """Capture `source` into `folder`.

    Raises AOTC-I127 (the source runs code, and is not trusted), I019 (packages are missing), I152
    (the process ended), and what the importer refuses.
    """
    if importer.runs_code and not allowed.trusted:
        raise AotcError("AOTC-I127", f"{importer.title} runs code of its own", where=source)
    importer.require(source)
    files = importer.files(source)
    states = {path: file_state(path) for path in files}
    asked = CaptureRequest(
        source=str(Path(source).absolute()) if files else source,
        trusted=allowed.trusted,
        options=allowed.options,
        directory=str(Path.cwd()) if allowed.trusted else "",
    )
    where = Path(source).name
    if importer.is_remote(source):
        asked = decode(
            CaptureRequest,
            workers.run(
                "aotc.sources.base:fetch_job",
                {"importer": importer.name, "request": encode(asked)},
                folder=folder.with_name(f"{folder.name}-fetched"),
                where=where,
            ).value,
        )
    try:
        result = workers.run(
            "aotc.sources.base:capture_job",
            {"importer": importer.name, "request": encode(asked)},
            folder=folder,
            where=where,
        )
    except AotcError as error:
        if error.code != _CRASHED:
            raise
        what = f"the process that captures {importer.title} ended"
        raise AotcError("AOTC-I152", what, where=error.where, found=error.found) from None
    return Taken(
        importer=importer.name,
        request=asked,
        folder=folder,
        captured=decode(Captured, result.value),
        source_name=importer.model_name(source),
        states=states,
    )


@contextmanager
def captured(source: str | Path, allowed: SourceTrust = UNTRUSTED) -> Iterator[Taken | None]:
    """The capture of a source, as long as the context lasts; None if it is an ONNX model.

    Raises what `take` does.
    """
    importer = importer_of(source)
    if importer is None:
        yield None
        return
    with temporary_folder("capture") as work, Workers() as workers:
        yield take(importer, str(source), work / "capture", workers, allowed)
