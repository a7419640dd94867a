"""Passwords of key files: from a prompt, a file or an environment variable.

They are never command line arguments, which process lists and shell histories show.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aotc.errors import AotcError
from aotc.escaping import printable

FILE_VARIABLE = "AOTC_KEY_PASSWORD_FILE"
VARIABLE = "AOTC_KEY_PASSWORD"
# OpenSSL reads no more bytes of a password.
MAX_PASSWORD_BYTES = 1023


def from_file(path: Path) -> bytes:
    """The first line of a file; raises AOTC-I034 if it is empty, too long or cannot be read."""
    try:
        with path.open("rb") as file:
            line = file.readline(MAX_PASSWORD_BYTES + 3)
    except (OSError, ValueError) as error:
        raise AotcError(
            "AOTC-I034",
            "the password file cannot be read",
            where=str(path),
            found=getattr(error, "strerror", None) or str(error),
            fix="Give a file whose first line is the password.",
        ) from None
    password = line.removesuffix(b"\n").removesuffix(b"\r")
    return _checked(password, str(path), "Put the password on the first line of the file.")


def from_variable(name: str) -> bytes:
    """The value of an environment variable; raises AOTC-I034 if it is unset, empty or too long."""
    stated = os.environ.get(name)
    if stated is None:
        raise AotcError(
            "AOTC-I034",
            "the environment variable is not set",
            where=name,
            fix="Set it to the password, or name the variable that holds it.",
        )
    fix = "Set the variable to the password."
    return _checked(stated.encode("utf-8", "surrogateescape"), name, fix)


def ask_new() -> bytes:
    """A new password, which the user types twice.

    Raises AOTC-I034 if there is no terminal, or the two differ.
    """
    fix = "Without a terminal, give it with --password-file or --password-env."
    first = _ask("password for the new key: ", fix_no_terminal=fix)
    if _ask("the same again: ", fix_no_terminal=fix) != first:
        raise AotcError(
            "AOTC-I034",
            "the two passwords differ",
            where="prompt",
            fix="Run the command again, and type the same password twice.",
        )
    return first


def password_of(key: Path) -> bytes:
    """The password of a key file: from $AOTC_KEY_PASSWORD_FILE, $AOTC_KEY_PASSWORD or a prompt.

    Raises AOTC-I034 if there is none, or it is empty, too long or cannot be read.
    """
    file = os.environ.get(FILE_VARIABLE)
    if file:
        return from_file(Path(file))
    if VARIABLE in os.environ:
        return from_variable(VARIABLE)
    return _ask(f"password of {key}: ", where=str(key))


def _ask(prompt: str, where: str = "prompt", fix_no_terminal: str = "") -> bytes:
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not terminal:
        raise AotcError(
            "AOTC-I034",
            "there is no terminal to ask for a password on",
            where=where,
            fix=fix_no_terminal,
        )
    import getpass

    try:
        typed = getpass.getpass(printable(prompt))
    except EOFError:
        typed = ""
    return _checked(typed.encode("utf-8", "surrogateescape"), where, "Type a password.")


def _checked(password: bytes, where: str, fix: str) -> bytes:
    if not password or len(password) > MAX_PASSWORD_BYTES:
        raise AotcError(
            "AOTC-I034",
            "the password is unusable",
            where=where,
            expected=f"1 to {MAX_PASSWORD_BYTES} bytes",
            found=f"{len(password)} bytes" if password else "nothing",
            fix=fix,
        )
    return password
