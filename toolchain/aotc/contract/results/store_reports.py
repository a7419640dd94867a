"""What `aotc install` and `aotc store` print."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.finding import Finding
from aotc.contract.manifest.payload_files import Sha256
from aotc.records import record


@record
class InstallReport:
    """`aotc install --json`: an artifact that is now in a store."""

    schema: Literal["aotc.install/1"] = "aotc.install/1"
    artifact: Annotated[str, "path it was read from"]
    artifact_id: Sha256
    name: str
    store: Annotated[str, "folder of the store"]
    folder: Annotated[str, "folder of the entry, an artifact that can be verified and loaded"]
    installed: Annotated[
        bool, "true: copied now; false: it was there, and its digests were checked again"
    ]
    attestations: Annotated[tuple[str, ...], "bundles that were added to the entry"] = ()
    bytes: Annotated[int, "of the payload"]
    findings: tuple[Finding, ...] = ()
    seconds: float


@record
class StoreEntry:
    """One artifact of a store, not verified."""

    artifact_id: Annotated[str, "id in the name of its folder"]
    name: Annotated[str, "name in its manifest; empty if that cannot be read"]
    bytes: int
    attestations: Annotated[int, "signature bundles"]
    installed: Annotated[str, "UTC, ISO 8601"]
    used: Annotated[
        str,
        "last known use; UTC, ISO 8601. Uses by others than the store's owner are known from the "
        "file system, to the day",
    ]
    in_use: Annotated[bool, "a process has loaded it, or is about to"]


@record
class StoreListReport:
    """`aotc store list --json`: the entry that was used last comes first."""

    schema: Literal["aotc.store-list/1"] = "aotc.store-list/1"
    store: str
    bytes: int
    entries: tuple[StoreEntry, ...]


@record
class StorePruneReport:
    """`aotc store prune --json`, `aotc store remove --json`: what was removed and what remains."""

    schema: Literal["aotc.store-prune/1"] = "aotc.store-prune/1"
    store: str
    removed: Annotated[tuple[str, ...], "ids of artifacts"] = ()
    removed_bytes: int = 0
    leftovers: Annotated[int, "incomplete folders of processes that were killed"] = 0
    in_use: Annotated[tuple[str, ...], "ids that were not removed because they are in use"] = ()
    kept: Annotated[int, "entries"] = 0
    kept_bytes: int = 0
