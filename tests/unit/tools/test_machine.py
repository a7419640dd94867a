"""What a machine says of its speed, from the texts of its files."""

from __future__ import annotations

import json

import pytest

from aotc.spec.bench_reports import Machine
from aotc.spec.codec import decode, encode
from aotc.tools.bench_comparison import cpu_name_in, quota_in, this_machine

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Processor
stepping\t: 8

processor\t: 1
model name\t: another
"""
ARM = """processor\t: 0
Features\t: fp asimd
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (X86, "Intel(R) Xeon(R) Processor (family 6 model 143 stepping 8)"),
        (ARM, "CPU implementer 0x41, CPU variant 0x3, CPU part 0xd0c, CPU revision 1"),
        ("", ""),
        ("model name\t: Plain\n", "Plain (family ? model ? stepping ?)"),
    ],
)
def test_the_name_of_the_cpu(text: str, name: str) -> None:
    assert cpu_name_in(text) == name


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("200000 100000\n", 2.0),
        ("50000 100000", 0.5),
        ("max 100000\n", None),
        ("", None),
        ("1 0", None),
        ("nonsense", None),
    ],
)
def test_the_quota_of_the_control_group(text: str, quota: float | None) -> None:
    assert quota_in(text) == quota


def test_this_machine_is_the_same_twice_and_when_it_is_read_again() -> None:
    found = this_machine()
    assert found == this_machine()
    assert decode(Machine, json.loads(json.dumps(encode(found, full=True)))) == found
    assert found.cpu
    assert found.architecture in ("x86_64", "aarch64", "arm64")
