"""Reading compiled parts from the build cache, and storing them there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnx

from aotc.backends.base import Backend
from aotc.caching.cache import PARTITION
from aotc.contract.codec.parsing import Json
from aotc.stages.build_options import BuildOptions
from aotc.stages.reuse.content_digests import constants_digest
from aotc.stages.reuse.source_digest import source_digest


def part_key(
    request: Mapping[str, Json],
    part: onnx.ModelProto,
    text: bytes,
    weights: Path,
    backend: Backend,
    options: BuildOptions,
) -> str:
    """The key of what `compile_job` makes from `request`; empty without a cache.

    `text` is `part` serialized; its external data is in the folder `weights`.
    """
    if options.cache is None:
        return ""
    parts = {
        **request,
        "graph": hashlib.sha256(text).hexdigest(),
        "constants": constants_digest(part, weights),
        "fingerprint": backend.fingerprint(),
        "aotc": source_digest(),
        "host": sorted(options.host.isa or ()),
    }
    return options.cache.key(PARTITION, parts)


def cached_or_compiled(
    request: Mapping[str, Json],
    key: str,
    weights: Path,
    folder: Path,
    where: str,
    options: BuildOptions,
) -> Json:
    """Read a compiled part from the cache into `folder`, or compile and store it.

    A stored part remains if another part or variant fails.
    """
    cache = options.cache
    if cache is not None and (found := cache.get(key, folder)) is not None:
        return found
    value = options.workers.run(
        "aotc.stages.lowering.compile_job:compile_job",
        {**request, "weights": str(weights)},
        folder=folder,
        where=where,
    ).value
    if cache is not None:
        cache.put(key, folder, value["files"], {**value, "title": request["stem"]})
    return value
