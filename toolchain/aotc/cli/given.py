"""What a call is given is text: its words, the variables that aotc reads, and where it is called.

Linux lets all three be any bytes, which Python shows as lone surrogates.  Names of files in such a
form can neither be written in a manifest or a report, nor be handed to ONNX Runtime, so a call with
one ends before it has done anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.text import is_utf8

_PREFIXES: Final = ("AOTC_", "XDG_")
_NAMES: Final = frozenset(("HOME", "TMPDIR", "TEMP", "TMP"))
# A password is bytes.
_BYTES: Final = frozenset(("AOTC_KEY_PASSWORD",))
_FIX: Final = "Name it in UTF-8; a file whose name is in another encoding has to be renamed."


def refuse_other_bytes(
    words: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str], prog: str
) -> None:
    """Raise AOTC-I027 for the first word, variable or working directory that is not UTF-8.

    `words` are options in the form `--option=value`, then `--` and the operands, whose names are
    `arguments`.
    """
    options = before_operands(words)
    named = [(word.partition("=")[0], word) for word in options]
    named += zip(arguments, words[len(options) + 1 :], strict=False)
    for name, text in named:
        if not is_utf8(text):
            raise _refusal(f"argument {name} is not UTF-8", prog, text)
    for name, text in environment.items():
        read = name.startswith(_PREFIXES) or name in _NAMES
        if read and name not in _BYTES and not is_utf8(name + text):
            raise _refusal("a variable is not UTF-8", f"${name}", text)
    try:
        folder = os.getcwd()  # noqa: PTH109 - only its name matters
    except OSError:
        # It is gone; paths may be absolute.
        return
    if not is_utf8(folder):
        raise _refusal("the name of the working directory is not UTF-8", folder, "")


def before_operands(words: Sequence[str]) -> Sequence[str]:
    """The words that may be options: what follows `--` is a name, whatever it looks like."""
    return words[: words.index("--")] if "--" in words else words


def _refusal(what: str, where: str, found: str) -> AotcError:
    return AotcError("AOTC-I027", what, where=where, found=found, fix=_FIX)
