"""Failed calls of the operating system are translated to codes in one place."""

from __future__ import annotations

import errno
import io
import os
import re
from pathlib import Path

import pytest
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.base.files import failures

PACKAGE = ROOT / "toolchain" / "aotc"
# Errors of disks and networks that a test cannot cause.
NUMBERS = (
    *(errno.EACCES, errno.EBUSY, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EISDIR),
    *(errno.ELOOP, errno.EMFILE, errno.ENAMETOOLONG, errno.ENFILE, errno.ENODEV, errno.ENOSPC),
    *(errno.ENOTDIR, errno.ENXIO, errno.EPERM, errno.EROFS, errno.ESTALE, errno.EXDEV),
)


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.__getitem__)
def test_every_error_names_a_fix(number: int) -> None:
    error = OSError(number, os.strerror(number), "/some/file")
    full = number in (errno.ENOSPC, errno.EDQUOT)
    written = failures.cannot_write(error, "cannot write it", "/some/file")
    assert written.code == ("AOTC-I018" if full else "AOTC-I026")
    assert written.found == os.strerror(number)
    read = failures.cannot_read(error, "cannot read it", "/some/file")
    assert (read.code, read.what) == ("AOTC-I001", f"cannot read it: {os.strerror(number)}")
    last = failures.uncaught_refusal(error)
    assert last is not None
    assert (last.code, last.where) == ("AOTC-I018" if full else "AOTC-I043", "/some/file")
    assert os.strerror(number) in last.line()
    if not full:
        # Not the title of the code, which does not name the reason.
        assert failures.fix_for(error)
        assert written.fix == read.fix == last.fix == failures.fix_for(error)


def test_a_variable_that_leads_to_somebody_elses_folder_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/other")
    denied = PermissionError(errno.EACCES, "Permission denied", "/home/other/.config/x")
    assert "HOME leads there" in failures.fix_for(denied)
    elsewhere = PermissionError(errno.EACCES, "Permission denied", "/srv/x")
    assert "HOME" not in failures.fix_for(elsewhere)


def test_other_exceptions_stay_a_bug() -> None:
    for bug in (ValueError("of ours"), KeyError("x"), io.UnsupportedOperation("read")):
        assert failures.uncaught_refusal(bug) is None
    for path in ("a\0b", "a\ud800b"):
        with pytest.raises(ValueError, match=r"null|surrogates") as refused:
            Path(path).stat()
        told = failures.uncaught_refusal(refused.value)
        assert told is not None
        assert told.code == "AOTC-I027"


def test_two_names_and_none() -> None:
    both = failures.refusal_of(OSError(errno.EXDEV, "Invalid cross-device link", "/a", None, "/b"))
    assert (both.where, both.what.endswith("Invalid cross-device link (to /b)")) == ("/a", True)
    assert failures.refusal_of(OSError(errno.EFBIG, "File too large"), "/out").where == "/out"
    assert failures.refusal_of(OSError("a library's words")).what.endswith("a library's words")


def test_within_a_block_every_error_is_translated() -> None:
    with pytest.raises(AotcError) as caught, failures.translated_errors("/out"):
        raise OSError(errno.EFBIG, "File too large")
    assert (caught.value.code, caught.value.where) == ("AOTC-I043", "/out")
    with pytest.raises(ZeroDivisionError), failures.translated_errors("/out"):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="of ours"), failures.translated_errors("/out"):
        raise ValueError("of ours")


def test_no_other_module_handles_a_full_disk() -> None:
    """Code that handles ENOSPC itself would map errors to codes a second time."""
    # The second uses ENOSPC as an exit status.
    known = {"base/files/failures.py", "session/worker.py"}
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"errno\.(ENOSPC|EDQUOT)", path.read_text(encoding="utf-8"))
    }
    assert found == known
