"""What `aotc install` and `aotc store` print."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.finding import Finding
from aotc.contract.manifest.payload_files import Sha256
from aotc.records import record


@record
class InstallReport:
    """`aotc install --json`: an artifact that is in a store now."""

    schema: Literal["aotc.install/1"] = "aotc.install/1"
    artifact: Annotated[str, "path that it was read from"]
    artifact_id: Sha256
    name: str
    store: Annotated[str, "folder of the store"]
    folder: Annotated[str, "the entry: an artifact that may be verified and loaded"]
    installed: Annotated[bool, "copied now; else it was there, and its digests were checked again"]
    attestations: Annotated[tuple[str, ...], "bundles that were added to what was there"] = ()
    bytes: Annotated[int, "of the payload"]
    findings: tuple[Finding, ...] = ()
    seconds: float


@record
class StoreEntry:
    """One artifact of a store; nothing of it is verified."""

    artifact_id: Annotated[str, "that its folder is named by"]
    name: Annotated[str, "as its manifest says; empty where that cannot be read"]
    bytes: int
    attestations: Annotated[int, "signature bundles"]
    installed: Annotated[str, "UTC, ISO 8601"]
    used: Annotated[
        str,
        "last use as far as it is known; UTC, ISO 8601. Of uses by others than the store's owner "
        "the file system tells, to a day",
    ]
    in_use: Annotated[bool, "a process has loaded it, or is about to"]


@record
class StoreListReport:
    """`aotc store list --json`: what was used last leads."""

    schema: Literal["aotc.store-list/1"] = "aotc.store-list/1"
    store: str
    bytes: int
    entries: tuple[StoreEntry, ...]


@record
class StorePruneReport:
    """`aotc store prune --json`, `aotc store remove --json`: what went, and what is left."""

    schema: Literal["aotc.store-prune/1"] = "aotc.store-prune/1"
    store: str
    removed: Annotated[tuple[str, ...], "ids of artifacts"] = ()
    removed_bytes: int = 0
    leftovers: Annotated[int, "half-written folders of processes that died"] = 0
    in_use: Annotated[tuple[str, ...], "ids that were to go, and are in use"] = ()
    kept: Annotated[int, "entries"] = 0
    kept_bytes: int = 0
