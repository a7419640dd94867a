"""Writing files of policies and of root keys, after a check of what is to be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.authoring.policy_changes import Change, apply_change
from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.codec.strict_yaml import yaml_text
from aotc.contract.trust.trust_policy import RootKeys, TrustPolicy
from aotc.errors import AotcError
from aotc.files.failures import cannot_write
from aotc.files.locking import editing
from aotc.files.replacing import check_output
from aotc.files.writing import write_atomically, write_new
from aotc.verification.policy.policy_document import (
    PolicyFile,
    parse_policy,
    read_bytes,
    read_policy,
)

# The option for each field of a policy.
_OPTIONS: Final = (
    ("name", "--name"),
    ("replaces", "--name"),
    ("expires", "--expires"),
    ("keys", "--key or --signer"),
    ("authorities", "--authority"),
    ("rules", "--rule"),
    ("revoked.artifacts", "--revoke-artifact"),
    ("revoked.keys", "--revoke-key"),
    ("rollback", "--allow-rollback"),
)


def change_policy(path: Path, change: Change) -> PolicyFile:
    """Apply a change to the policy of a file, and write it; a lock excludes other changes by aotc.

    Raises AOTC-I001 and G019 if the file is not a valid policy, I027 if the change would make it
    invalid, I018 and I026 if it cannot be written, and G041 if another process holds the lock or
    changes the file.
    """
    # Read first, so that a file that is not a policy gets no lock file.
    read_policy(path)
    with editing(path):
        file = read_policy(path)
        return _write_checked(path, apply_change(file.policy, change), before=file.data)


def write_policy(path: Path, policy: TrustPolicy, *, new: bool) -> PolicyFile:
    """Write a policy after checking that it is valid.

    With `new`, the file must not exist.  Raises AOTC-I027 if the policy is not valid, I017 if the
    file exists, I018 and I026 if it cannot be written, and G041 if another process holds the lock.
    """
    with editing(path):
        return _write_checked(path, policy, new=new)


def _write_checked(
    path: Path, policy: TrustPolicy, *, new: bool = False, before: bytes | None = None
) -> PolicyFile:
    try:
        file = parse_policy(yaml_text(policy, full=False).encode("utf-8"), path)
    except AotcError as error:
        raise _as_usage_error(error, path) from None
    if before is not None and read_bytes(path, "trust policy") != before:
        # Editors do not use the lock.
        raise AotcError(
            "AOTC-G041",
            "another program changed the policy meanwhile",
            where=str(path),
            fix="Nothing was written: look at the file, and try again.",
        )
    _replace(path, file.data, new=new)
    return file


def write_roots(
    path: Path, keys: Sequence[str], threshold: int, *, policy: str, new: bool = True
) -> None:
    """Write the file of a host's root keys (PEM), their threshold, and the name of its policy.

    With `new`, the file must not exist.  Raises AOTC-I027 if the arguments are not valid, I017 if
    the file exists, I018 and I026 if it cannot be written, and G041 if another process holds the
    lock.
    """
    stated = {
        "schema": "aotc.root/2", "policy": policy, "threshold": threshold, "keys": list(keys),
    }  # fmt: skip
    try:
        roots = decode(RootKeys, stated)
    except ParseError as error:
        problem = error.problems[0]
        raise AotcError(
            "AOTC-I027",
            "these root keys cannot be written",
            where=f"--{problem.path}",
            found=problem.what,
            fix="See 'aotc trust root --help'.",
        ) from None
    write_file(path, yaml_text(roots, full=False).encode("utf-8"), new=new)


def write_file(path: Path, data: bytes, *, new: bool) -> None:
    """Write a file atomically; with `new` it must not exist.

    Raises AOTC-I017 if it is `new` and exists, I018 and I026 if it cannot be written, and G041 if
    another process holds the lock.
    """
    with editing(path):
        _replace(path, data, new=new)


def _replace(path: Path, data: bytes, *, new: bool) -> None:
    # If the path is a link to the policy, the link is kept.
    place = path if new else Path(os.path.realpath(path))
    if not new:
        check_output(place, force=True)
    try:
        if new:
            write_new(place, data, mode=0o644, durable=True)
        else:
            write_atomically(place, data, mode=0o644, durable=True)
    except FileExistsError:
        raise AotcError(
            "AOTC-I017",
            "the file already exists",
            where=str(path),
            fix="Choose another -o, or give --force.",
        ) from None
    except OSError as error:
        raise cannot_write(error, "cannot write the file", str(path)) from None


def _as_usage_error(error: AotcError, path: Path) -> AotcError:
    """An error of a policy as an error of the options that the policy was made from."""
    place = error.where.removeprefix(f"{path}: ")
    option = next((name for start, name in _OPTIONS if place.startswith(start)), "")
    return AotcError(
        "AOTC-I027",
        "the policy would not be valid",
        where=option or place,
        found=error.found if place.isalpha() else f"{place}: {error.found}",
        fix="Correct the option that is named; nothing was written.",
        also=tuple(_as_usage_error(other, path) for other in error.also),
    )
