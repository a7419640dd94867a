"""Which variants of an artifact a host loads, and which of them takes a call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aotc.base.errors import AotcError
from aotc.base.text import did_you_mean
from aotc.spec.buckets import routed_first, served_buckets
from aotc.spec.manifest import Manifest
from aotc.spec.reports import VariantVerdict
from aotc.spec.shapes import sizes_in_words
from aotc.spec.variant import Variant
from aotc.trust.compatibility import by_preference, error_of

if TYPE_CHECKING:
    from aotc.spec.command_reports import Cause


# For how many combinations of sizes the route is cached.
_MAX_ROUTES: Final = 4096
# In place of a variant's index: its calls are refused.
_REJECTED: Final = -1


def choose(
    manifest: Manifest,
    verdicts: Sequence[VariantVerdict],
    wanted: str | Sequence[str] | None = None,
) -> tuple[Variant, ...]:
    """The variants that are loaded together, in the manifest's order.

    Either those called `wanted` (names of variants, or of one of the profile's variants: all of its
    buckets), or all buckets of the most preferred of the profile's variants that runs on the host.
    Raises AOTC-I027 (no such variant, or of several of the profile's) and AOTC-C009 with the
    reasons (it does not run, or none does).
    """
    runs = {verdict.name for verdict in verdicts if verdict.runs}
    if wanted is not None:
        named = variants_named(manifest, (wanted,) if isinstance(wanted, str) else tuple(wanted))
    else:
        best = next(
            (variant for variant in by_preference(manifest.variants) if variant.name in runs), None
        )
        named = tuple(
            variant
            for variant in manifest.variants
            if best is not None and spec_of(variant) == spec_of(best) and variant.name in runs
        )
    missing = [variant.name for variant in named if variant.name not in runs]
    if named and not missing:
        return named
    unsuitable = [verdict for verdict in verdicts if not named or verdict.name in missing]
    raise AotcError(
        "AOTC-C009",
        f"variant {missing[0]!r} does not run on this host"
        if missing
        else "no variant runs on this host",
        also=tuple(error_of(reason) for verdict in unsuitable for reason in verdict.reasons),
    )


def spec_of(variant: Variant) -> str:
    """The name of the profile's variant to which a variant belongs."""
    return variant.spec or variant.name


def variants_named(manifest: Manifest, wanted: Sequence[str]) -> tuple[Variant, ...]:
    """The variants called so, by their names or that of the profile's variant; raises AOTC-I027."""
    specs = tuple(dict.fromkeys(spec_of(variant) for variant in manifest.variants))
    names = tuple(dict.fromkeys((*specs, *(variant.name for variant in manifest.variants))))
    for name in wanted:
        if name not in names:
            raise AotcError(
                "AOTC-I027",
                f"the artifact has no variant {name!r}{did_you_mean(name, names)}",
                expected=" or ".join(names),
                found=name,
                fix="Name some of the artifact's variants, or none.",
            )
    # A spec's name means all of its buckets, although its dynamic variant has the same name.
    found = tuple(
        variant
        for variant in manifest.variants
        if spec_of(variant) in wanted or variant.name in wanted
    )
    if len({spec_of(variant) for variant in found}) > 1:
        raise AotcError(
            "AOTC-I027",
            "the variants are not buckets of one variant",
            expected="buckets of " + " or of ".join(specs),
            found=", ".join(wanted),
            fix="Load them as two models.",
        )
    return found


class Route(NamedTuple):
    """Which variant takes a call: its index, the sizes that the call is padded to, and why."""

    variant: int
    wanted: Mapping[str, int]
    pads: bool
    cause: Cause


class Router:
    """Routes calls among loaded variants; thread-safe.

    A call goes to the smallest bucket that accepts it, padded if its dims are: that of a static
    variant, or one of those that a variant captures.  Or, if its dims are routed, it goes to the
    dynamic variant at its own size.  What a dim's `outside` lists first is tried first.
    """

    def __init__(self, manifest: Manifest, variants: Sequence[Variant]) -> None:
        self._domain = manifest.domain
        self._names = tuple(variant.name for variant in variants)
        order = sorted(
            range(len(variants)), key=lambda at: math.prod(variants[at].buckets.values())
        )
        specs = {spec_of(variant) for variant in variants}
        rejected = [
            (_REJECTED, variant.buckets)
            for variant in manifest.dropped
            if variant.rejects and variant.spec in specs
        ]
        # A variant that captures sizes takes a bucket for each of them.
        served = [
            (at, buckets)
            for at in order
            for buckets in served_buckets(manifest, variants[at])
            if buckets
        ]
        self._buckets = tuple(
            sorted([*served, *rejected], key=lambda entry: math.prod(entry[1].values()))
        )
        self._dynamic = next((at for at in order if not variants[at].buckets), None)
        self._bucketed = {name: dim for name, dim in self._domain.dims.items() if dim.buckets}
        self._routes: dict[tuple[tuple[str, int], ...], Route] = {}

    def route(self, sizes: Mapping[str, int], outside: tuple[str, ...] = ()) -> Route:
        """The route of a call of `sizes`; `outside` are dims outside the proven range.

        Raises AOTC-S010 if no loaded variant accepts the call, and R013 if its variant was omitted
        by the fallback policy.
        """
        key = tuple(sizes.items())
        found = self._routes.get(key)
        if found is None:
            found = self._find(sizes, outside)
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[key] = found
        return found

    def _find(self, sizes: Mapping[str, int], outside: tuple[str, ...]) -> Route:
        others = {
            name: size if dim.allows(size) else dim.padded_size(size) or size
            for name, dim in self._domain.dims.items()
            if not dim.buckets and (size := sizes.get(name)) is not None
        }
        finders = [self._bucket_for, self._dynamic_variant]
        for find in reversed(finders) if routed_first(self._domain, sizes) else finders:
            found_variant = find(sizes)
            if found_variant is not None:
                variant, buckets = found_variant
                wanted = self._with_related_dims(sizes, {**others, **buckets})
                pads = wanted != sizes
                # Calls of a bucket that is not loaded also go to the dynamic variant.
                dynamic = bool(self._bucketed) and find == self._dynamic_variant
                cause: Cause = "padded" if pads else "routed" if dynamic else "exact"
                return Route(variant, wanted, pads, "outside" if outside else cause)
        raise AotcError(
            "AOTC-S010",
            "no loaded variant accepts a call of these sizes",
            # Without sizes: refusals are counted by place, and there must be few places.
            where=f"dim {', '.join(self._bucketed)}",
            expected="; ".join(f"{name}: {dim.text()}" for name, dim in self._bucketed.items()),
            found=f"{sizes_in_words(sizes)}, with {', '.join(self._names)} loaded",
            fix="Load the artifact's other variants too.",
        )

    def _bucket_for(self, sizes: Mapping[str, int]) -> tuple[int, Mapping[str, int]] | None:
        for at, buckets in self._buckets:
            if all(self._fits(name, sizes.get(name), full) for name, full in buckets.items()):
                if at == _REJECTED:
                    raise AotcError(
                        "AOTC-R013",
                        "the variant for these sizes was left out at build",
                        where=f"dim {', '.join(buckets)}",
                        expected="sizes of another variant: " + ", ".join(self._names),
                        found=sizes_in_words(sizes),
                    )
                return at, buckets
        return None

    def _fits(self, name: str, size: int | None, full: int) -> bool:
        minimum = self._bucketed[name].pad_from
        return size == full or (
            size is not None and minimum is not None and max(minimum, 1) <= size <= full
        )

    def _dynamic_variant(self, sizes: Mapping[str, int]) -> tuple[int, Mapping[str, int]] | None:
        if self._dynamic is None:
            return None
        wanted = {}
        for name, dim in self._bucketed.items():
            size = sizes.get(name)
            if size is None:
                continue
            full = size if dim.spans(size) else dim.padded_size(size)
            if full is None:
                return None
            wanted[name] = full
        return self._dynamic, wanted

    def _with_related_dims(
        self, sizes: Mapping[str, int], free: Mapping[str, int]
    ) -> dict[str, int]:
        wanted = {**sizes, **{name: size for name, size in free.items() if name in sizes}}
        for relation in self._domain.relations:
            if not relation.enforced and relation.is_broken(sizes):
                continue
            if relation.dim in wanted and all(term in wanted for term in relation.terms):
                wanted[relation.dim] = relation.value(wanted)
        return wanted
