"""The acceptance test of an artifact on this host, and the statement of its result."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError, missing_package, with_others
from aotc.base.files.folders import ATTESTATIONS
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import record
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.attestations import (
    ArtifactName,
    AttestReport,
    Latency,
    Qualification,
    format_instant,
    target_digest,
)
from aotc.spec.codec import Json, decode, encode
from aotc.spec.json import canonical_sha256
from aotc.spec.payload import Finding
from aotc.spec.reports import LoadReport
from aotc.spec.target import Target
from aotc.spec.trust_anchors import TrustedKey
from aotc.spec.trust_policy import Sealer, Signer
from aotc.spec.versions import VERSION, artifact_name
from aotc.trust.attesting import (
    add_statement,
    attested_place,
    authenticate_artifact,
    check_can_add,
    signer_tag,
)
from aotc.trust.gate import AuthenticArtifact

# The acceptance test loads the artifact, checks placement and outputs, and measures it.
#
# It runs in a process of its own, so that a crash of ONNX Runtime ends only that process, and its
# peak memory is that of the model. `python -m aotc.runtime.qualification REQUEST RESULT` reads and
# writes JSON files.


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
                *(sys.executable, "-P", "-m", "aotc.runtime.qualification"),
                *(str(request_file), str(result)),
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
    from aotc.host.probe import probe
    from aotc.runtime.loading import load
    from aotc.runtime.value_files import read_fixture
    from aotc.session.worker import peak_memory_bytes
    from aotc.trust.policy.host_trust import Trust

    loaded = load(
        request.artifact,
        trust=Trust(keys=request.keys),
        variant=list(request.variant) or None,
        threads=request.threads,
        rerun_fixtures=True,
    )
    with loaded as model:
        unjudged = [each.name for each in model.report.variants if not each.fixtures]
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
            inputs = read_fixture(model.payload, fixture)
            route = model.route(inputs)
            if route.variant in fixture.excluded_variants:
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
    return with_others(
        AotcError(
            document["code"],
            document["what"],
            **{key: document.get(key, "") for key in ("where", "expected", "found")},
            fix=document.get("fix", ""),
        )
        for document in documents
    )


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


# Qualification: an acceptance test on this host, whose result is signed for this target.


RUNS: Final = 30
# Codes, and beginnings of codes, that say that the artifact does not keep its promises here.
_FAILURE_PREFIXES: Final = ("AOTC-P", "AOTC-N", "AOTC-C", "AOTC-S", "AOTC-M")
_FAILURE_CODES: Final = frozenset({"AOTC-R005", "AOTC-R008", "AOTC-R013", "AOTC-R036"})


def qualify(
    artifact: str | Path,
    signer: Signer | Sealer,
    *,
    trust: str | Path | None = None,
    variant: Sequence[str] = (),
    threads: int | None = None,
    runs: int = RUNS,
    force: bool = False,
) -> AttestReport:
    """Load and run an artifact on this host as a user would, and sign the result.

    In a process of its own it is loaded from the store, its placement is checked, its fixtures are
    compared with the golden outputs and timed `runs` times each, and the peak resident memory is
    measured.  `trust` and `force` are as for `aotc.sign`; `variant` and `threads` as for `load`.

    Raises AOTC-N009 if the acceptance test fails, and then signs nothing; the gate's refusals
    (AOTC-G), I001, I017, I018, I019, I026, I036, R006 and R007.
    """
    place = attested_place(artifact)
    # Refuse early if the artifact takes no attestation at all.
    check_can_add(place, KINDS["qualification"].file_stem(), force=True)
    authentic = authenticate_artifact(place, signer, trust)
    result = _accept(place, authentic, variant, threads, runs)
    report = result.report
    names = tuple(loaded.name for loaded in report.variants)
    digest = target_digest(result.host)
    predicate = Qualification(
        target=result.host,
        target_sha256=digest,
        artifact=ArtifactName(name=result.name, id=report.artifact_id),
        variant=report.variant,
        variants=names,
        verdict=report.verdict,
        load_seconds=report.session_seconds + report.warmup_seconds,
        verify_seconds=report.verify_seconds,
        latency=result.latency,
        peak_memory_bytes=result.peak_memory_bytes,
        fixtures=report.fixtures,
        findings=_findings(report, authentic),
        toolchain=VERSION,
        issued_at=format_instant(datetime.datetime.now(datetime.UTC)),
    )
    # Each signer can add one for every target and set of variants.
    scope = canonical_sha256({"target": digest, "variants": list(names)})[:16]
    name = KINDS["qualification"].file_stem(scope, signer_tag(signer))
    check_can_add(place, name, force=force)
    return add_statement(place, name, "qualification", predicate, signer, force=force)


def _accept(
    artifact: Path,
    authentic: AuthenticArtifact,
    variant: Sequence[str],
    threads: int | None,
    runs: int,
) -> AcceptanceResult:
    # This process verified it with all that is trusted; the other one trusts the keys that signed.
    request = AcceptanceRequest(
        artifact=artifact_name(artifact),
        keys=tuple(
            TrustedKey(pem=key.pem, origin=key.origin, development=key.development)
            for key in authentic.keys
        ),
        variant=tuple(variant),
        threads=threads,
        runs=runs,
    )
    try:
        return accept(request)
    except AotcError as error:
        fails = error.code.startswith(_FAILURE_PREFIXES) or error.code in _FAILURE_CODES
        if error.code == "AOTC-N009" or not fails:
            raise
        raise AotcError(
            "AOTC-N009",
            "the artifact failed the acceptance test on this host",
            where=artifact_name(artifact),
            found=error.line(),
            also=(error, *error.also),
        ) from None


def _findings(report: LoadReport, authentic: AuthenticArtifact) -> tuple[Finding, ...]:
    """The findings of the load, but those about bundles from this process.

    The other process trusted only the keys that signed, so it took every other key for unknown.
    """
    return (
        *(finding for finding in report.findings if not _is_about_bundle(finding)),
        *(finding for finding in authentic.findings if _is_about_bundle(finding)),
    )


def _is_about_bundle(finding: Finding) -> bool:
    return finding.where.startswith(f"{ATTESTATIONS}/")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
