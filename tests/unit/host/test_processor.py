"""What tells one processor from another, in the text of /proc/cpuinfo."""

from __future__ import annotations

from aotc.host.cpu import identity_in, processor_identity

ONE = """\
processor\t: {number}
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: a processor
stepping\t: 1
microcode\t: {microcode}
cpu MHz\t\t: {number}00.5
flags\t\t: fpu avx2

"""
ARM = """\
processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd0c

Serial\t\t: 0000
"""


def test_processors_of_one_kind_are_one() -> None:
    """Their numbers and their frequencies of this moment do not tell them apart."""
    text = "".join(ONE.format(number=number, microcode="0x1") for number in range(3))
    (found,) = identity_in(text)
    assert "cpu family: 25" in found
    assert "MHz" not in found
    assert identity_in(text) == identity_in(ONE.format(number=7, microcode="0x1"))


def test_kinds_are_told_apart() -> None:
    texts = [ONE.format(number=0, microcode=microcode) for microcode in ("0x2", "0x1")]
    assert len(identity_in("".join(texts))) == 2
    assert identity_in("".join(texts)) == identity_in("".join(reversed(texts)))


def test_arm() -> None:
    assert identity_in(ARM) == ("CPU implementer: 0x41\nCPU part: 0xd0c\nFeatures: fp asimd",)


def test_a_text_that_says_nothing() -> None:
    assert identity_in("") == ()


def test_this_machine_has_one() -> None:
    assert processor_identity()
