"""Before an artifact is published: the gate's verdict on it, and a load as its users will load it.

This happens in fresh processes (see `rehearsal_jobs`), within the limits of the profile: the
process that built the artifact does not judge it, and this file does not import the gate.  Small
artifacts are judged and loaded in parallel, since nothing is published before everything is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.session.worker_pool import Workers
from aotc.spec.codec import Json, encode
from aotc.spec.target import Target
from aotc.spec.trust_anchors import Anchor, TrustedIdentity, TrustedKey

_JOBS: Final = "aotc.runtime.rehearsal_jobs"
# Above this, several sessions at once would need more memory than the build did.
_LARGE_BYTES: Final = 1 << 30
# They are about this machine or the profile's limits, not about the artifact.
_MACHINE_CODES: Final = frozenset({"AOTC-I014", "AOTC-I015", "AOTC-I018", "AOTC-I043", "AOTC-R999"})
# Fixes for reasons that are most likely not caused by a bug.
_FIXES: Final = {
    "AOTC-N003": "The model's answers differ between runs: leave the sizes of this fixture out "
    "with --dim NAME=MIN..MAX, or report it to ONNX Runtime with the model.",
    "AOTC-C009": "No variant of this build runs on the target as described: build with what it "
    "has, or correct its description.",
}


@record
class Staged:
    """A finished artifact in `folder`, not published yet, and the key or identity that signed it.

    `target` is what it was built for (None: this host).  `ran` are the names of the variants that
    were run on this host at build, by the profile's variant that they belong to.  `libraries` are
    those of plugins, and `custom_ops` those of custom operators; `bytes` is the artifact's size.
    """

    folder: Path
    signers: tuple[Anchor, ...]
    target: Target | None
    ran: Mapping[str, Sequence[str]]
    libraries: Mapping[str, str]
    custom_ops: Sequence[str]
    bytes: int


def staged_request(staged: Staged) -> dict[str, Json]:
    """What the jobs are told of a staged artifact, and who is trusted with it."""
    return {
        "artifact": str(staged.folder.resolve()),
        "keys": [encode(item) for item in staged.signers if isinstance(item, TrustedKey)],
        "identities": [
            encode(item) for item in staged.signers if isinstance(item, TrustedIdentity)
        ],
        "libraries": dict(staged.libraries),
        "custom_ops": list(staged.custom_ops),
    }


def rehearse(staged: Staged, workers: Workers, work: Path) -> None:
    """Judge and load a staged artifact; `work` is a folder for the jobs.

    1. The whole gate, trusting only who signed: container, signatures, digests, schema,
       references; then whether the target accepts it, and on this host each variant that ran here.
    2. Each of the profile's variants that ran here is loaded from the staged folder: its placement
       is compared, and its fixtures run.

    Raises AOTC-G040 with the reasons in `also`; and I014, I015 and I018, which are not about the
    artifact.
    """
    folder, common = staged.folder.resolve(), staged_request(staged)
    target = encode(staged.target, full=True) if staged.target is not None else None
    ran = [name for names in staged.ran.values() for name in names]

    def judge_artifact() -> list[AotcError]:
        request = {**common, "target": target, "ran": ran}
        return _run_job(workers, "gate", request, work / "gate", "the gate")

    def load_variant(spec: str, names: Sequence[str]) -> list[AotcError]:
        request = {**common, "variants": list(names)}
        return _run_job(workers, "load", request, work / f"load-{spec}", f"variant {spec}")

    tasks: list[Callable[[], list[AotcError]]] = [
        judge_artifact,
        *(partial(load_variant, spec, names) for spec, names in staged.ran.items()),
    ]
    if staged.bytes < _LARGE_BYTES:
        running = [workers.submit(task) for task in tasks]
        found = [reason for future in running for reason in future.result()]
    else:
        found = [reason for task in tasks for reason in task()]
    if found:
        raise _gate_error(found, folder)


def _run_job(
    workers: Workers, job: str, request: Json, folder: Path, where: str
) -> list[AotcError]:
    """The refusals that a job found; raises those about the machine."""
    try:
        found = workers.run(f"{_JOBS}:{job}", request, folder=folder, where=where).value
    except AotcError as error:
        if error.code in _MACHINE_CODES:
            raise
        return [error]
    reasons = [
        AotcError(
            refusal["code"],
            refusal["what"],
            where=refusal.get("where", where),
            **{key: refusal.get(key, "") for key in ("expected", "found")},
            fix=refusal.get("fix", ""),
        )
        for refusal in found["refusals"]
    ]
    for reason in reasons:
        if reason.code in _MACHINE_CODES:
            raise reason
    return reasons


def _gate_error(found: Sequence[AotcError], folder: Path) -> AotcError:
    """AOTC-G040, with the distinct reasons in `also`."""
    reasons = list({(item.code, item.where, item.found): item for item in found}.values())
    first = reasons[0]
    error = AotcError(
        "AOTC-G040",
        "the finished artifact fails its own gate, and was not published",
        found=f"{first.code} {first.what}" + (f": {first.found}" if first.found else ""),
        fix=_FIXES.get(first.code, ""),
        also=tuple(reasons),
    )
    for reason in reasons:
        reason.where = reason.where.replace(f"{folder}/", "")
        if not reason.code.startswith("AOTC-C"):
            # The catalogue's fixes are for users of an artifact, but this one has none.
            reason.fix = error.fix
    return error
