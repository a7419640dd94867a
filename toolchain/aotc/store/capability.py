"""What this process could do to a store despite its owner and modes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.mounts import file_info, mount_of
from aotc.files.ownership import ROOT_USER

# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETUID, CAP_SYS_ADMIN (capabilities(7)).
_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 3, 7, 21))
# File systems that report one owner for everything, or what another machine reports.
_OWNERLESS: Final = frozenset(
    {"9p", "cifs", "exfat", "fuse", "fuseblk", "hfs", "hfsplus", "msdos", "ntfs", "ntfs3"}
    | {"prl_fs", "smb3", "smbfs", "vboxsf", "vfat", "vmhgfs"}
)


def require_owners(folder: int, shown: Path) -> None:
    """Raise AOTC-R016 if the folder's file system is known not to keep owners; best effort."""
    kind = _file_system(folder)
    if kind.partition(".")[0] in _OWNERLESS:
        raise AotcError(
            "AOTC-R016",
            "the store is on a file system that does not keep owners",
            where=str(shown),
            expected="a local file system such as ext4 or xfs",
            found=kind,
        )


def may_write(owner: int) -> bool:
    """Whether this process could change what only `owner` and root may write."""
    users = os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())
    return bool({ROOT_USER, owner} & set(users)) or bool(_effective_capabilities() & _CAPABILITIES)


def is_shared(folder: int) -> bool:
    """Whether others than its owner may search an open folder, such as a system-wide store."""
    return bool(os.fstat(folder).st_mode & 0o011)


def _effective_capabilities() -> int:
    """This process's effective capabilities as bits; 0 if the system does not report them."""
    try:
        status = Path("/proc/self/status").read_text("utf-8", "replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.partition(":")[2], 16)
    return 0


def _file_system(folder: int) -> str:
    """The type of an open folder's file system; "" if the system does not report it."""
    try:
        mount = mount_of(file_info(folder))
    except OSError:
        return ""
    return "" if mount is None else mount.kind
