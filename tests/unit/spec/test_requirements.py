"""What a variant requires: its own requirements merged with those of its providers."""

from __future__ import annotations

from dataclasses import replace

from aotc.spec.codec import encode
from aotc.spec.target import Libc, Plugin
from aotc.spec.variant import NO_REQUIREMENTS, Requirements

BASE = Requirements(
    os="linux",
    architecture="x86_64",
    libc=Libc(name="glibc", version="2.28"),
    isa=("avx512f", "avx2"),
    isa_exact=True,
    onnxruntime_min="1.31.0",
    onnxruntime_below="1.32",
    providers=("CPUExecutionProvider",),
    compatibility={"A": "1"},
)
FIRST = Plugin(name="first", version="1")
SECOND = Plugin(name="second", version="2")


def test_merging_empty_requirements_changes_nothing() -> None:
    merged = BASE.merged((NO_REQUIREMENTS, NO_REQUIREMENTS))
    assert merged == replace(BASE, isa=("avx2", "avx512f"))
    assert encode(BASE.merged(())) == encode(merged)


def test_requirements_are_merged_field_by_field() -> None:
    one = replace(
        NO_REQUIREMENTS,
        plugins=(FIRST,),
        isa=("fma", "avx2"),
        nvidia_driver_min="580.65.06",
        cuda_major=13,
        compute_capabilities=("8.6", "12.0"),
    )
    other = replace(
        NO_REQUIREMENTS,
        plugins=(SECOND,),
        nvidia_driver_min="1000.2",
        cuda_major=9,
        compute_capabilities=("8.9",),
        compatibility={"B": "2"},
    )
    merged = BASE.merged((one, other))
    # Lists are concatenated; features of the CPU are a set, in order of names.
    assert merged.plugins == (FIRST, SECOND)
    assert merged.compute_capabilities == ("8.6", "12.0", "8.9")
    assert merged.isa == ("avx2", "avx512f", "fma")
    # The newest version is required, compared as numbers and not as text.
    assert (merged.nvidia_driver_min, merged.cuda_major) == ("1000.2", 13)
    assert merged.compatibility == {"A": "1", "B": "2"}
    # No part changes what every variant states itself.
    same = ("os", "architecture", "libc", "onnxruntime_min", "onnxruntime_below", "providers")
    assert all(getattr(merged, name) == getattr(BASE, name) for name in same)
    assert merged.isa_exact


def test_the_newer_of_two_c_libraries_is_required() -> None:
    part = replace(NO_REQUIREMENTS, libc=Libc(name="glibc", version="2.9"))
    assert BASE.merged((part,)).libc == BASE.libc
    newer = replace(NO_REQUIREMENTS, libc=Libc(name="glibc", version="2.100"))
    assert BASE.merged((part, newer)).libc == newer.libc
