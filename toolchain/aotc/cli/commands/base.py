"""What a command is, the arguments that several commands take, and the form of their answers.

Arguments are read with the standard library's argparse: a start must stay within 200 ms, and
the libraries that build a command line from type hints take half of that to import.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from aotc.contract.artifact_names import artifact_path
from aotc.contract.codec.spelling import nearest
from aotc.errors import AotcError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.contract.trust.signer import Sealer, Signer

Answer = TypeVar("Answer")


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses with AOTC-I027, and never ends the process."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=False,
            allow_abbrev=False,
        )
        self.add_argument("-h", "--help", action="store_true", help="show this text")

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments; raises AOTC-I027."""
        raise AotcError("AOTC-I027", message, where=self.prog, fix=f"See '{self.prog} --help'.")

    def read(self, words: Sequence[str]) -> dict[str, object]:
        """The arguments by name; raises AOTC-I027, naming the nearest option to an unknown one."""
        options, unknown = self.parse_known_args(words)
        for word in unknown:
            close = nearest(word.partition("=")[0], tuple(self._option_string_actions))
            hint = f"; did you mean {close!r}?" if close and word.startswith("-") else ""
            self.error(f"there is no argument {word!r}{hint}")
        found = vars(options)
        del found["help"]
        return found


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `run` takes the arguments by name and returns the exit status.

    The docstring of `run` is the text of `--help`.
    """

    run: Callable[..., int]
    arguments: Callable[[Parser], None]

    def parser(self, prog: str) -> Parser:
        """The parser of this command's arguments."""
        made = Parser(prog, inspect.getdoc(self.run) or "")
        self.arguments(made)
        return made


@dataclass(frozen=True, slots=True)
class Group:
    """Commands below a command, with what each is for."""

    about: str
    commands: Mapping[str, tuple[str, Command]]


def add_artifact(parser: Parser, *, packed: bool = True) -> None:
    """The artifact to read; `packed` where it may be one file."""
    form = "the NAME.aotc folder"
    if packed:
        form += ", or packed file, or sha256-ID of one in a store"
    parser.add_argument("artifact", metavar="ARTIFACT", type=artifact_path, help=form)


def add_trust(parser: Parser) -> None:
    """Whom to trust."""
    instead = "instead of this user's development key"
    parser.add_argument(
        "--trust",
        metavar="FILE",
        type=Path,
        help=f"trust policy, or list of public keys to trust, {instead}",
    )
    parser.add_argument("--key", metavar="PUB", type=Path, help=f"public key to trust, {instead}")
    parser.add_argument(
        "--unsafe-no-trust-state",
        action="store_true",
        help="remember nothing of what a policy takes, as where no file can be kept: an older one "
        "or release may be taken later",
    )


def add_signing_key(parser: Parser) -> None:
    """The key that signs, and where it is else."""
    _add_signing_key(parser)


def add_signer(parser: Parser) -> None:
    """Who signs: a key, or an identity without one."""
    either = parser.add_mutually_exclusive_group()
    _add_signing_key(either)
    either.add_argument(
        "--keyless",
        action="store_true",
        help="sign as an identity, with sigstore's services (extra: sigstore); names are published",
    )
    parser.add_argument(
        "--identity-token",
        metavar="FILE",
        type=Path,
        help="OIDC token for --keyless; else $SIGSTORE_ID_TOKEN, else the one of the CI job",
    )
    parser.add_argument(
        "--trust-config",
        metavar="FILE",
        type=Path,
        help="services for --keyless (a ClientTrustConfig in JSON); else the public ones",
    )


def signer_of(
    key: Path | None, keyless: bool, identity_token: Path | None, trust_config: Path | None
) -> Signer | Sealer:
    """Who the arguments of `add_signer` name; raises I027 and what loading raises."""
    if keyless:
        from aotc.signing.keyless.keyless_signing import KeylessSigner

        return KeylessSigner(identity_token, trust_config)
    for option, given in (("--identity-token", identity_token), ("--trust-config", trust_config)):
        if given is not None:
            raise AotcError("AOTC-I027", f"{option} is of --keyless", where=option)
    from aotc.signing.keys.signer_loading import load_signer

    return load_signer(key)


def _add_signing_key(to: argparse._ActionsContainer) -> None:
    to.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        default=os.environ.get("AOTC_SIGNING_KEY") or None,
        help="signing key (.pem) or signer file (.yaml); else $AOTC_SIGNING_KEY, else this user's "
        "development key",
    )


def add_vouching(parser: Parser) -> None:
    """Who must vouch for an artifact before something more is said of it."""
    parser.add_argument(
        "--trust",
        metavar="FILE",
        type=Path,
        help="public keys of which one must vouch for the artifact already; else this user's "
        "development key and the signing key",
    )


def add_channel(parser: Parser) -> None:
    """What a trust policy judges the artifact for."""
    parser.add_argument(
        "--channel",
        metavar="NAME",
        help="channel that a trust policy judges for; by default the one it is approved for",
    )


def add_store(parser: Parser) -> None:
    """Which store to work on."""
    parser.add_argument("--store", metavar="DIR", type=Path, help="folder of the store")
    parser.add_argument(
        "--system",
        action="store_true",
        help="the system-wide store: $AOTC_SYSTEM_STORE, or /var/lib/aotc/store",
    )


def refuse_two_stores(store: Path | None, system: bool) -> None:
    """Raise AOTC-I027 where the arguments of `add_store` name both."""
    if system and store is not None:
        raise AotcError("AOTC-I027", "--store and --system name two stores", where="--store")


def add_loading(parser: Parser) -> None:
    """Which store a load goes through."""
    parser.add_argument(
        "--store",
        metavar="DIR",
        type=Path,
        help="folder of the one store to load from, where ARTIFACT may be the name sha256-ID of an "
        "entry; else the system-wide one, or this user's",
    )
    parser.add_argument(
        "--trust-store",
        action="store_true",
        help="take what a system-wide store holds as it was verified at install, even if this "
        "process could have changed it",
    )


def add_variant(parser: Parser) -> None:
    """Which variant to load."""
    parser.add_argument(
        "--variant",
        metavar="NAME[,NAME]",
        action="append",
        default=[],
        help="variants to load: a kind with all its buckets, or some buckets; may be repeated",
    )


def add_json(parser: Parser) -> None:
    """Whether to answer with data."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document, and nothing else"
    )


def respond(
    answer: Answer, view: Callable[[Answer], Iterable[RenderableType]], *, json: bool
) -> None:
    """Write an answer to standard output: as one JSON document, or as `view` shows it."""
    if json:
        from aotc.cli.json_document import write_document

        write_document(answer)
    else:
        from aotc.cli.render import show

        show(view(answer))


def split_names(words: list[str]) -> list[str] | None:
    """Names that commas separate, of every word; None where there are none."""
    return [name for word in words for name in word.split(",") if name] or None


def positive(text: str) -> int:
    """A number that counts something, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def byte_count(text: str) -> int:
    """A number of bytes, with or without a unit, for argparse."""
    found = re.fullmatch(r"(\d{1,15})(?: ?([kMGT])(i?)B)?", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 1000000, 500MB or 1GiB")
    number, unit, binary = found.groups()
    power = " kMGT".index(unit) if unit else 0
    return int(number) * int((1024 if binary else 1000) ** power)


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` words as a mapping; raises AOTC-I027."""
    found: dict[str, str] = {}
    for word in words:
        # A dim's name may hold '='; a value never does.
        name, _, value = word.rpartition("=")
        if not name or not value:
            raise AotcError("AOTC-I027", f"{option} takes NAME=VALUE", where=option, found=word)
        if name in found:
            raise AotcError("AOTC-I027", f"{name!r} is given twice", where=option, found=word)
        found[name] = value
    return found
