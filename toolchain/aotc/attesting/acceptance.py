"""The acceptance test of an artifact: load it, check placement and outputs, measure it.

It runs in a process of its own, so that a crash of ONNX Runtime ends only that process, and its
peak memory is that of the model.  `python -m aotc.attesting.acceptance REQUEST RESULT` reads and
writes JSON files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.results.reports import LoadReport
from aotc.contract.target import Target
from aotc.contract.trust.anchors import TrustedKey
from aotc.contract.trust.attestations import Latency
from aotc.errors import AotcError, missing_package
from aotc.files.work_folders import temporary_folder
from aotc.records import record

_MORE_FIXTURES: Final = (
    "Build it with a larger fixtures.max_bytes; static int8 also needs --embed-fixtures."
)


@record
class AcceptanceResult:
    """What an acceptance test found and measured, in seconds and bytes."""

    name: str
    report: LoadReport
    host: Target
    latency: tuple[Latency, ...]
    peak_memory_bytes: int


@record
class AcceptanceRequest:
    """The artifact to load and its trusted keys, and how often to run each fixture."""

    artifact: str
    keys: tuple[TrustedKey, ...]
    variant: tuple[str, ...]
    threads: int | None
    runs: int


def accept(request: AcceptanceRequest) -> AcceptanceResult:
    """Run the acceptance test in a new process.

    Raises what `load` raises, AOTC-N009 if the process died, and AOTC-R999 for a bug of aotc.
    """
    with temporary_folder("accept") as folder:
        request_file, result = folder / "request.json", folder / "result.json"
        request_file.write_text(json.dumps(encode(request, full=True)))
        process = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "aotc.attesting.acceptance",
                str(request_file),
                str(result),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if not result.is_file():
            last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            status = process.returncode
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise AotcError(
                "AOTC-N009",
                "the process that loaded the artifact died",
                where=request.artifact,
                found=": ".join([how, *last])[:500],
            )
        document = json.loads(result.read_text())
    if "errors" in document:
        raise _error_from(document["errors"])
    return decode(AcceptanceResult, document)


def run(request: AcceptanceRequest) -> AcceptanceResult:
    """Run the acceptance test in this process: load the artifact, and time every fixture.

    Raises what `load` raises, and AOTC-N009 if a loaded variant was compared with no fixture.
    """
    from aotc.engine.worker import peak_memory_bytes
    from aotc.host.probe import probe
    from aotc.runtime import arrays
    from aotc.runtime.loading import load
    from aotc.verification.policy.host_trust import Trust

    loaded = load(
        request.artifact,
        trust=Trust(keys=request.keys),
        variant=list(request.variant) or None,
        threads=request.threads,
        rerun_fixtures=True,
    )
    with loaded as model:
        unjudged = [each.name for each in model.report.variants if not each.accepted]
        if unjudged:
            raise AotcError(
                "AOTC-N009",
                "no fixture was compared: the artifact has none that the variant takes",
                where=request.artifact,
                found=f"variant {', '.join(unjudged)}",
                fix=_MORE_FIXTURES,
            )
        latency = []
        for fixture in model.manifest.fixtures:
            inputs = arrays.read_fixture(model.payload, fixture)
            route = model.route(inputs)
            if route.variant in fixture.without:
                continue
            seconds = []
            model.run(inputs)
            for _ in range(request.runs):
                started = time.perf_counter()
                model.run(inputs)
                seconds.append(time.perf_counter() - started)
            latency.append(_latency(fixture.name, route.variant, fixture.sizes, seconds))
        return AcceptanceResult(
            name=model.manifest.name,
            report=model.report,
            host=probe(digests=True),
            latency=tuple(latency),
            peak_memory_bytes=peak_memory_bytes(),
        )


def _latency(
    fixture: str, variant: str, sizes: Mapping[str, int], seconds: Sequence[float]
) -> Latency:
    from aotc.runtime.telemetry import percentile

    ordered = sorted(seconds)
    return Latency(
        fixture=fixture,
        variant=variant,
        sizes=sizes,
        runs=len(ordered),
        median_seconds=percentile(ordered, 0.5),
        lower_seconds=percentile(ordered, 0.25),
        upper_seconds=percentile(ordered, 0.75),
    )


def _error_from(documents: Json) -> AotcError:
    errors = [
        AotcError(
            document["code"],
            document["what"],
            **{key: document.get(key, "") for key in ("where", "expected", "found")},
            fix=document.get("mend", ""),
        )
        for document in documents
    ]
    errors[0].also = tuple(errors[1:])
    return errors[0]


def main(arguments: Sequence[str]) -> int:
    """Read a request from one file, and write its result to another."""
    request_file, result = arguments
    request = decode(AcceptanceRequest, json.loads(Path(request_file).read_text()))
    document: Json
    try:
        document = encode(run(request), full=True)
    except AotcError as error:
        document = {"errors": [item.to_dict() for item in (error, *error.also)]}
    except ModuleNotFoundError as error:
        missing = missing_package(error, "'aotc attest --qualify'", only_loads=True)
        if not isinstance(missing, AotcError):
            raise
        document = {"errors": [missing.to_dict()]}
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        document = {"errors": [{"code": "AOTC-R999", "what": what, "where": "acceptance"}]}
    Path(result).write_text(json.dumps(document))
    # Without tearing down sessions, which takes time.
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
