"""What this process could do to a store in spite of its owner and modes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.ownership import ROOT_USER

# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETUID, CAP_SYS_ADMIN (capabilities(7)).
_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 3, 7, 21))
# File systems that show one owner for all, or what another machine says.
_OWNERLESS: Final = frozenset(
    {"9p", "cifs", "exfat", "fuse", "fuseblk", "hfs", "hfsplus", "msdos", "ntfs", "ntfs3"}
    | {"prl_fs", "smb3", "smbfs", "vboxsf", "vfat", "vmhgfs"}
)


def require_owners(folder: int, shown: Path) -> None:
    """Raises R016 where a folder's file system is known to keep no owners; best effort."""
    kind = _file_system(folder)
    if kind.partition(".")[0] in _OWNERLESS:
        raise AotcError(
            "AOTC-R016",
            "the store is on a file system that keeps no owners",
            where=str(shown),
            expected="a local file system such as ext4 or xfs",
            found=kind,
        )


def may_write(owner: int) -> bool:
    """Whether this process could change what only `owner` and root may write."""
    users = os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())
    return bool({ROOT_USER, owner} & set(users)) or bool(_effective() & _CAPABILITIES)


def is_shared(folder: int) -> bool:
    """Whether others than its owner may search an open folder, as that of a system-wide store."""
    return bool(os.fstat(folder).st_mode & 0o011)


def _effective() -> int:
    """This process's effective capabilities as bits; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text("utf-8", "replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.partition(":")[2], 16)
    return 0


def _file_system(folder: int) -> str:
    """The kind of file system of an open folder; an empty string where the system does not tell.

    `mnt_id` of /proc/self/fdinfo leads to a row of /proc/self/mountinfo (proc_pid_mountinfo(5)).
    """
    try:
        about = Path(f"/proc/self/fdinfo/{folder}").read_text("utf-8", "replace")
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
    except OSError:
        return ""
    number = next(
        (line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:")), ""
    )
    for line in mounts.splitlines():
        if line.partition(" ")[0] == number:
            return line.partition(" - ")[2].partition(" ")[0]
    return ""
