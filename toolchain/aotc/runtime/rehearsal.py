"""Before an artifact is published: the gate's verdict on it, and a load as its users will load it.

Fresh processes do it (see `rehearsal_jobs`), within the limits of the profile: whoever built the
artifact does not judge it, and this file's own imports show it, as they lead to no gate.  Small
artifacts are judged and loaded side by side, since nothing is published before all is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.target import Target
from aotc.contract.trust.anchors import TrustedKey
from aotc.contract.trust.signer import Signer
from aotc.engine.worker_pool import Workers
from aotc.errors import AotcError
from aotc.records import record

_JOBS: Final = "aotc.runtime.rehearsal_jobs"
# Above this, several sessions at once would take more memory than a build had before.
_LARGE_BYTES: Final = 1 << 30
# They speak of this machine or of the profile's limits, and not of the artifact.
_OF_THE_MACHINE: Final = frozenset(
    {"AOTC-I014", "AOTC-I015", "AOTC-I018", "AOTC-I043", "AOTC-R999"}
)
# Reasons for which most likely nobody's bug is to blame.
_MENDS: Final = {
    "AOTC-N003": "The model answers otherwise in another run: leave the sizes of this fixture out "
    "with --dim NAME=MIN..MAX, or report it to ONNX Runtime with the model.",
    "AOTC-C009": "The target, as it is described, takes no variant of this build: build with what "
    "it has, or correct its description.",
}


@record
class Staged:
    """A finished artifact in `folder`, where nobody looks for it yet, and who signed it.

    `target` is what it was built for; None: this host.  `ran` are the names of the variants that
    were run on this host at build, by the profile's variant that they belong to.
    """

    folder: Path
    signer: Signer
    target: Target | None
    ran: Mapping[str, Sequence[str]]
    libraries: Mapping[str, str]
    bytes: int


def rehearse(staged: Staged, workers: Workers, work: Path) -> None:
    """Judge and load a staged artifact; `work` is a folder for the jobs.

    1. The gate, all of it, trusting the key that signed and no other: container, signatures,
       digests, schema, references; then whether the target takes it, and on this host each variant
       that ran here.
    2. Each of the profile's variants that ran here is loaded from the staged folder, its placement
       compared, and its fixtures run.
    Raises AOTC-G040 with the reasons in `also`; and I014, I015 and I018, which are none of the
    artifact.
    """
    folder = staged.folder.resolve()
    key = TrustedKey(
        pem=staged.signer.public_pem,
        origin="the key of this build",
        development=staged.signer.development,
    )
    common: dict[str, Json] = {
        "artifact": str(folder),
        "key": encode(key),
        "libraries": dict(staged.libraries),
    }
    target = encode(staged.target, full=True) if staged.target is not None else None
    ran = [name for names in staged.ran.values() for name in names]

    def judged() -> list[AotcError]:
        request = {**common, "target": target, "ran": ran}
        return _reasons(workers, "gate", request, work / "gate", "the gate")

    def loaded(spec: str, names: Sequence[str]) -> list[AotcError]:
        request = {**common, "variants": list(names)}
        return _reasons(workers, "load", request, work / f"load-{spec}", f"variant {spec}")

    asked: list[Callable[[], list[AotcError]]] = [
        judged,
        *(partial(loaded, spec, names) for spec, names in staged.ran.items()),
    ]
    if staged.bytes < _LARGE_BYTES:
        running = [workers.submit(each) for each in asked]
        found = [reason for each in running for reason in each.result()]
    else:
        found = [reason for each in asked for reason in each()]
    if found:
        raise _refusal(found, folder)


def _reasons(
    workers: Workers, job: str, request: Json, folder: Path, where: str
) -> list[AotcError]:
    """What a job has against the artifact; raises what speaks of the machine."""
    try:
        found = workers.run(f"{_JOBS}:{job}", request, folder=folder, where=where).value
    except AotcError as error:
        if error.code in _OF_THE_MACHINE:
            raise
        return [error]
    reasons = [
        AotcError(
            each["code"],
            each["what"],
            where=each.get("where", where),
            **{key: each.get(key, "") for key in ("expected", "found")},
            fix=each.get("mend", ""),
        )
        for each in found["refusals"]
    ]
    for reason in reasons:
        if reason.code in _OF_THE_MACHINE:
            raise reason
    return reasons


def _refusal(found: Sequence[AotcError], folder: Path) -> AotcError:
    """G040, with the reasons in `also`, each once."""
    reasons = list({(each.code, each.where, each.found): each for each in found}.values())
    first = reasons[0]
    error = AotcError(
        "AOTC-G040",
        "the finished artifact fails its own gate, and was not published",
        found=f"{first.code} {first.what}",
        fix=_MENDS.get(first.code, ""),
        also=tuple(reasons),
    )
    for each in reasons:
        each.where = each.where.replace(f"{folder}/", "")
        if not each.code.startswith("AOTC-C"):
            # Theirs are for who gets an artifact: nobody got this one.
            each.fix = error.fix
    return error
