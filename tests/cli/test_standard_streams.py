"""Standard streams that are closed or full: what is said is lost, and nothing else is harmed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command import TOOLCHAIN, Command

_OPENS = """
import sys
sys.path.insert(0, {toolchain!r})
from aotc.cli.main import main
status = main(["--version"])
with open({place!r}, "w") as file:
    file.write(f"{{status}} {{file.fileno()}}")
"""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&- 2>&-", "2>&-", "<&- 2>&-"])
def test_no_file_gets_the_number_of_a_closed_stream(closed: str, tmp_path: Path) -> None:
    """What a library in C writes to standard error would go into that file."""
    place = tmp_path / "opened"
    program = _OPENS.format(toolchain=str(TOOLCHAIN), place=str(place))
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program]
    assert subprocess.run(words, check=False, stdout=subprocess.PIPE).returncode == 0
    status, number = place.read_text().split()
    assert status == "0"
    assert int(number) > 2


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_long_answer_that_standard_output_does_not_take(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    """One that no buffer holds fails at once, and is told as the short one is."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    prefix = ("sh", "-c", 'exec "$@" >/dev/full', "sh")
    outcome = Command(tmp_path).plain("explain", "--list", *more, prefix=prefix)
    assert outcome.status == 3
    assert "AOTC-I018" in outcome.stderr
    assert "standard output" in outcome.stderr
    assert "TMPDIR" not in outcome.stderr
