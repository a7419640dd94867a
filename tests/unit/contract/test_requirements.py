"""What a variant requires, joined from what its execution providers state."""

from __future__ import annotations

from dataclasses import replace

from aotc.contract.codec.parsing import encode
from aotc.contract.manifest.requirements import NO_REQUIREMENTS, Requirements
from aotc.contract.target import Libc, Plugin

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


def test_a_part_states_what_it_needs_and_no_more() -> None:
    joined = BASE.merged((NO_REQUIREMENTS, NO_REQUIREMENTS))
    assert joined == replace(BASE, isa=("avx2", "avx512f"))
    assert encode(BASE.merged(())) == encode(joined)


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
    joined = BASE.merged((one, other))
    # Lists follow each other; features of the CPU are a set, in order of names.
    assert joined.plugins == (FIRST, SECOND)
    assert joined.compute_capabilities == ("8.6", "12.0", "8.9")
    assert joined.isa == ("avx2", "avx512f", "fma")
    # The newest holds, by number and not by letter.
    assert (joined.nvidia_driver_min, joined.cuda_major) == ("1000.2", 13)
    assert joined.compatibility == {"A": "1", "B": "2"}
    # What every variant states itself, no part can change.
    same = ("os", "architecture", "libc", "onnxruntime_min", "onnxruntime_below", "providers")
    assert all(getattr(joined, name) == getattr(BASE, name) for name in same)
    assert joined.isa_exact


def test_the_newer_of_two_c_libraries_is_required() -> None:
    part = replace(NO_REQUIREMENTS, libc=Libc(name="glibc", version="2.9"))
    assert BASE.merged((part,)).libc == BASE.libc
    newer = replace(NO_REQUIREMENTS, libc=Libc(name="glibc", version="2.100"))
    assert BASE.merged((part, newer)).libc == newer.libc
