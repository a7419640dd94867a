"""Files of policies and of root keys: written whole, once what is written is read back as good."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.authoring.policy_changes import Change, changed
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

# Which option says what stands at a place of the policy.
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
    """Change the policy of a file, which nobody else of ours changes meanwhile: its next sequence.

    Raises I001 and G019 where it is none, I027 where it would be none, I018, I026, G041.
    """
    # What cannot be read gets no lock file beside it.
    read_policy(path)
    with editing(path):
        file = read_policy(path)
        return _written(path, changed(file.policy, change), before=file.data)


def write_policy(path: Path, policy: TrustPolicy, *, new: bool) -> PolicyFile:
    """Write a policy, once it is found to be a good one.

    Raises I027 where it is none, I017 where it is `new` and there is a file, I018, I026, G041.
    """
    with editing(path):
        return _written(path, policy, new=new)


def _written(
    path: Path, policy: TrustPolicy, *, new: bool = False, before: bytes | None = None
) -> PolicyFile:
    try:
        file = parse_policy(yaml_text(policy, full=False).encode("utf-8"), path)
    except AotcError as error:
        raise _not_so(error, path) from None
    if before is not None and read_bytes(path, "trust policy") != before:
        # An editor asks nobody for a lock.
        raise AotcError(
            "AOTC-G041",
            "the policy was changed by another program meanwhile",
            where=str(path),
            fix="Nothing was written: look at the file, and try again.",
        )
    _replace(path, file.data, new=new)
    return file


def write_roots(
    path: Path, keys: Sequence[str], threshold: int, *, policy: str, new: bool = True
) -> None:
    """Write the root keys of a host, and the name of the policy that it takes.

    Raises I027 where they are none, I017 where it is `new` and there is a file, I018, I026, G041.
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
            "root keys cannot be written so",
            where=f"--{problem.path}",
            found=problem.what,
            fix="See 'aotc trust root --help'.",
        ) from None
    write(path, yaml_text(roots, full=False).encode("utf-8"), new=new)


def write(path: Path, data: bytes, *, new: bool) -> None:
    """Write a file in one step; raises I017 where it is `new` and something is there.

    Raises I018, I026 and G041 too.
    """
    with editing(path):
        _replace(path, data, new=new)


def _replace(path: Path, data: bytes, *, new: bool) -> None:
    # A policy may be kept elsewhere, and a link lead to it: the link stays.
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
            "the file is already there",
            where=str(path),
            fix="Choose another -o, or give --force.",
        ) from None
    except OSError as error:
        raise cannot_write(error, "cannot write the file", str(path)) from None


def _not_so(error: AotcError, path: Path) -> AotcError:
    """What is wrong with a policy, as an error of the arguments that it was made from."""
    place = error.where.removeprefix(f"{path}: ")
    option = next((each for start, each in _OPTIONS if place.startswith(start)), "")
    return AotcError(
        "AOTC-I027",
        "the policy cannot be made so",
        where=option or place,
        found=error.found if place.isalpha() else f"{place}: {error.found}",
        fix="Correct the option that is named; nothing was written.",
        also=tuple(_not_so(each, path) for each in error.also),
    )
