"""What a comparison reads of one artifact, which variants are pairs, and fields that differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.graph.foreign_files import OTHER_SUFFIXES
from aotc.spec.codec import Json, encode
from aotc.spec.diff_report import Change, VariantPair
from aotc.spec.profile import WorkerLimits
from aotc.spec.variant import Variant
from aotc.spec.versions import artifact_path, stated_id
from aotc.tools.diff.model_side import open_model
from aotc.tools.inspect import ArtifactContents, read_artifact
from aotc.trust.opening import open_container

_MODEL: Final = ".onnx"
# Suffixes of models, of which the message can say more.


def open_side(name: str | Path) -> ArtifactContents:
    """Open the artifact at a path, the store's entry of an id, or the model in a file of its name.

    Its container is to be closed.  Raises AOTC-I059 for a file that is neither, G015 for a folder
    that is no artifact, I001 if there is nothing, and what `aotc inspect` does for an artifact or
    a model that cannot be read.
    """
    path = artifact_path(name)
    if stated_id(path) is None and path.is_file() and not _is_packed(path):
        return open_model(path)
    container = open_container(path)
    try:
        return read_artifact(path, container)
    except BaseException:
        container.close()
        raise


def _is_packed(path: Path) -> bool:
    """Whether a file is a packed artifact, and not an ONNX model; raises AOTC-I059 for others."""
    from aotc.trust.archive import is_packed

    if is_packed(path):
        return True
    suffix = path.suffix.lower()
    if suffix == _MODEL:
        return False
    raise AotcError(
        "AOTC-I059",
        "this is a model in another form than ONNX"
        if suffix in OTHER_SUFFIXES
        else "this file is neither a packed artifact nor an ONNX model",
        where=str(path),
        expected="an artifact (a folder NAME.aotc, a packed file, or the id of one in a store) or "
        f"a model (NAME{_MODEL})",
    )


def require_artifacts(*paths: Path) -> None:
    """Raise AOTC-I059 for a model: both graphs of a page are those of artifacts."""
    for path in paths:
        if stated_id(path) is None and path.is_file() and not _is_packed(path):
            raise AotcError(
                "AOTC-I059",
                "this is a model, and a page draws two artifacts",
                where=str(path),
                fix="Leave --html out, or build it first, and compare the artifacts: aotc build "
                f"{path.name} -o {path.stem}.aotc",
            )


# Differences of two values as they stand in a manifest: by path, down to single fields.


def changes_of(
    a: Any, b: Any, what: str = "", *, subject: str = "", without: Iterable[str] = ()
) -> tuple[Change, ...]:
    """The differences of two records, or of two JSON values; mappings are entered, lists are not.

    `what` is the path of the values themselves, and `without` names fields to leave out.  A list of
    mappings that all have a `name` is entered by that name.
    """
    left_out = frozenset(without)
    return tuple(
        change(path, one, other, subject)
        for path, one, other in _walk(encode(a, full=True), encode(b, full=True), what)
        if path.rpartition(".")[2] not in left_out
    )


def change(what: str, a: Json, b: Json, subject: str = "") -> Change:
    """One difference, with its ratio where both values are positive numbers."""
    return Change(subject=subject, what=what, a=a, b=b, ratio=ratio(a, b))


def ratio(a: Json, b: Json) -> float | None:
    """b / a, to 6 digits; None unless both are positive numbers."""
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        for value in (a, b)
    )
    return float(f"{b / a:.6g}") if numbers else None


def _walk(a: Json, b: Json, path: str) -> Iterator[tuple[str, Json, Json]]:
    if a == b:
        return
    one, other = _by_name(a), _by_name(b)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys((*one, *other)):
            yield from _walk(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    else:
        yield path, a, b


def _by_name(value: Json) -> Json:
    """A list of mappings with different names as a mapping by name; anything else as it is."""
    if not isinstance(value, list):
        return value
    names = [item.get("name") if isinstance(item, Mapping) else None for item in value]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return value
    return dict(zip(names, value, strict=True))


# Which variant of one artifact is compared with which of the other.


@record(kw_only=False)
class Pair:
    """Two variants that are compared, and how they were matched."""

    a: Variant
    b: Variant
    matched_by: Literal["name", "providers", "buckets", "alone"]

    @property
    def label(self) -> str:
        """How reports name the pair."""
        return self.row().label

    def row(self) -> VariantPair:
        """The pair as a row of the report."""
        return VariantPair(a=self.a.name, b=self.b.name, matched_by=self.matched_by)


def pair_variants(
    a: Sequence[Variant], b: Sequence[Variant]
) -> tuple[tuple[Pair, ...], tuple[VariantPair, ...]]:
    """Pairs of variants in A's order, and the variants that one artifact alone has.

    Variants are matched by name; what is left, by buckets and providers; then by buckets, if one
    variant of each artifact has them; then, if one is left of each artifact, these two.
    """
    left_a, left_b = list(a), list(b)
    pairs: list[Pair] = []

    def match(
        key: Callable[[Variant], Hashable],
        how: Literal["name", "providers", "buckets", "alone"],
    ) -> None:
        for one in list(left_a):
            here = [each for each in left_a if key(each) == key(one)]
            there = [each for each in left_b if key(each) == key(one)]
            if len(here) == len(there) == 1:
                pairs.append(Pair(one, there[0], how))
                left_a.remove(one)
                left_b.remove(there[0])

    match(lambda variant: variant.name, "name")
    match(lambda variant: (_buckets(variant), variant.providers), "providers")
    match(_buckets, "buckets")
    match(lambda _: True, "alone")
    order = {variant.name: index for index, variant in enumerate(a)}
    pairs.sort(key=lambda pair: order[pair.a.name])
    alone = [VariantPair(a=variant.name) for variant in left_a]
    alone += [VariantPair(b=variant.name) for variant in left_b]
    return tuple(pairs), tuple(alone)


def _buckets(variant: Variant) -> Hashable:
    return tuple(sorted(variant.buckets.items()))


# Limits of reading graphs of artifacts that nobody verified: of pages and of comparisons.


# A payload's weights are in files of their own, so a model that is larger has a graph that nobody
# reads, and takes minutes.
MAX_MODEL_BYTES: Final = 64 << 20
# Of the worker that reads one of them.
LIMITS: Final = WorkerLimits(seconds=120.0, memory_bytes=8 << 30)
