"""The manifest `payload/aotc.json`: everything that the artifact promises.

It holds no time, host name, user name, absolute path or measurement, so that equal inputs give
equal bytes; measurements are in the evidence attestation (`contract.results.build_evidence`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from aotc.contract.codec.parsing import Bounds, Json, Pattern, Problem
from aotc.contract.finding import Finding
from aotc.contract.manifest.fixture_consistency import fixture_problems, value_problems
from aotc.contract.manifest.interface import Value, ValueShapes
from aotc.contract.manifest.payload_files import (
    CHUNK_BYTES,
    NAME,
    FileEntry,
    Fixture,
    Sha256,
)
from aotc.contract.manifest.shape_consistency import (
    bucket_problems,
    capture_problems,
    domain_problems,
    padding_problems,
)
from aotc.contract.manifest.source import Capture
from aotc.contract.manifest.toolchain import Toolchain
from aotc.contract.manifest.variant import DroppedVariant, Variant
from aotc.contract.shapes.domain import Domain
from aotc.contract.shapes.padding_rules import Padding
from aotc.records import record


@record
class AcceptedWaiver:
    """A refusal at load that the builder of the artifact accepted."""

    code: Annotated[str, Pattern(r"AOTC-[A-Z]\d{3}")]
    variant: Annotated[str, "variant of the profile; empty: all"] = ""
    reason: str


@record
class Manifest:
    """The content of `aotc.json`."""

    schema: str
    required_features: tuple[str, ...] = ()
    name: Annotated[str, Bounds(1, 255), Pattern(NAME), "name of the model; hosts remember it"]
    source: Capture
    profile: Annotated[Json, "the resolved profile, as written in aotc.profile/1"]
    profile_sha256: Sha256
    target: Annotated[str, "name of the target it was built for"]
    target_sha256: Annotated[
        Sha256, "of the target's OS, architecture, libc and ISA, as canonical JSON"
    ]
    toolchain: Toolchain
    inputs: tuple[Value, ...]
    outputs: Annotated[tuple[Value, ...], Bounds(1)]
    domain: Domain = Domain()
    shapes: Annotated[tuple[ValueShapes, ...], "shapes of the outputs"] = ()
    padding: Padding | None = None
    strict: Annotated[bool, "calls outside probed ranges are refused, too"] = False
    findings: tuple[Finding, ...] = ()
    variants: Annotated[tuple[Variant, ...], Bounds(1)]
    dropped: Annotated[
        tuple[DroppedVariant, ...], "variants that the fallback policy left out"
    ] = ()
    waivers: tuple[AcceptedWaiver, ...] = ()
    fixtures: tuple[Fixture, ...] = ()
    files: Annotated[tuple[FileEntry, ...], "every payload file except aotc.json, sorted by path"]

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        paths = [entry.path for entry in self.files]
        if paths != sorted(set(paths)):
            found.append(Problem("files", "paths are not sorted and unique"))
        known = set(paths)
        for index, variant in enumerate(self.variants):
            if variant.model not in known:
                found.append(Problem(f"variants[{index}].model", "is not among files"))
            if variant.model not in variant.files or not known.issuperset(variant.files):
                found.append(
                    Problem(f"variants[{index}].files", "do not list all files of the variant")
                )
            parts = variant.partitioning.partitions if variant.partitioning is not None else ()
            if any(part.file is not None and part.file not in variant.files for part in parts):
                found.append(
                    Problem(
                        f"variants[{index}].partitioning",
                        "names a file that is not listed in files of the variant",
                    )
                )
        if not isinstance(self.profile, Mapping):
            found.append(Problem("profile", "is not a mapping"))
        found += domain_problems(self.domain, self.variants)
        found += bucket_problems(self.domain, self.variants, self.dropped)
        found += capture_problems(self.domain, self.variants)
        found += padding_problems(
            self.padding, self.domain, self.inputs, self.outputs, self.fixtures
        )
        found += value_problems(self.inputs, self.outputs)
        found += fixture_problems(self.fixtures, self.inputs, self.outputs, self.files)
        for index, entry in enumerate(self.files):
            wanted = -(-entry.size // CHUNK_BYTES) if entry.chunks else 0
            if entry.chunks and len(entry.chunks) != wanted:
                found.append(Problem(f"files[{index}].chunks", f"expected {wanted} digests"))
        return found
