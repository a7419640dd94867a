"""What several commands do: answer, find out who signs, and refuse two stores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from aotc.base.errors import EXIT_YES, AotcError
from aotc.base.records import replace
from aotc.cli.grammar import current
from aotc.spec.versions import artifact_name, stated_reference

if TYPE_CHECKING:
    from aotc.report.sheet import Sheet
    from aotc.spec.trust_policy import Sealer, Signer


Answer = TypeVar("Answer")
# What is noticed of each artifact that the user's own development key signed.
_REMARK: Final = "AOTC-G016"


def respond(
    answer: Answer,
    view: Callable[[Answer], Sheet],
    *,
    json: bool,
    brief: Callable[[Answer], str | Iterable[str]] | None = None,
    status: int = EXIT_YES,
) -> None:
    """Write an answer to standard output: as one JSON document, or as the sheet of `view`.

    With --quiet that is what `brief` makes of it: by default the id of the artifact that the answer
    is of, or its headline.  If the answer is no, the sheet is told on standard error then.
    """
    if json:
        from aotc.cli.output import write_document

        write_document(answer)
        return
    from aotc.cli.terminal import may_be_lost, show_sheet, write_lines

    if not current().quiet:
        show_sheet(_untold(view(answer)))
        return
    said = brief(answer) if brief is not None else _brief(answer, view)
    write_lines((said,) if isinstance(said, str) else said)
    if status != EXIT_YES:
        with may_be_lost(sys.stderr):
            show_sheet(view(answer), file=sys.stderr)


@contextmanager
def bars(*, json: bool) -> Iterator[None]:
    """On a terminal, a bar for what takes long meanwhile: hashing."""
    if json or current().quiet or not sys.stderr.isatty():
        yield
        return
    from aotc.cli.progress import stages

    with stages():
        yield


def _untold(sheet: Sheet) -> Sheet:
    """The sheet without the remark on the development key, if this user was told of that key.

    Documents and reports have it each time, and so has a CI, where nobody sees what came before.
    """
    from aotc.report.sheet import Table

    shown: Sheet = []
    for part in sheet:
        said = [row for row in part.rows if row[0] == _REMARK] if isinstance(part, Table) else []
        if isinstance(part, Table) and said and _was_told():
            part = replace(part, rows=[row for row in part.rows if row[0] != _REMARK])
        shown.append(part)
    return shown


def _was_told() -> bool:
    """Whether this user was told of the development key, which is remembered from now on.

    It is not where the user's state cannot be written.
    """
    from aotc.base.files.folders import PRIVATE, belongs_to_others, make_folder, state_folder
    from aotc.spec.trust_anchors import key_id
    from aotc.trust.development_key import default_trust

    state = state_folder()
    if state is None or os.environ.get("CI", "") not in ("", "0", "false"):
        return False
    told = state / "aotc" / "told"
    try:
        if state.exists() and belongs_to_others(state):
            return False
        for key in default_trust():
            make_folder(told, PRIVATE)
            (told / f"{_REMARK}-{key_id(key.pem)}").touch(exist_ok=False)
    except FileExistsError:
        return True
    except OSError:
        return False
    return False


def _brief(answer: Answer, view: Callable[[Answer], Sheet]) -> Iterable[str]:
    if found := getattr(answer, "artifact_id", ""):
        return (str(found),)
    from aotc.report.sheet import Heading

    headings = (part for part in view(answer) if isinstance(part, Heading))
    return (f"{each.text}  {each.status}".rstrip() for each in islice(headings, 1))


def respond_lines(answer: Any, lines: Iterable[str], *, json: bool, brief: str = "") -> None:
    """Write an answer to standard output: as one JSON document, or as `lines`.

    With --quiet that is `brief`, where there is one.
    """
    if json:
        from aotc.cli.output import write_document

        write_document(answer)
    else:
        from aotc.cli.terminal import write_lines

        write_lines((brief,) if brief and current().quiet else lines)


def respond_yaml(answer: Any, *, json: bool) -> None:
    """Write a profile or a target to standard output: as one JSON document, or as YAML."""
    if json:
        from aotc.cli.output import write_document

        write_document(answer)
    else:
        from aotc.spec.yaml import yaml_text

        sys.stdout.write(yaml_text(answer))


def respond_list(
    kind: Literal["profile", "target"], items: Mapping[str, str], *, json: bool
) -> None:
    """Write names to standard output, each with what it is."""
    if json:
        from aotc.cli.output import write_document
        from aotc.spec.command_reports import ListReport

        write_document(ListReport(kind=kind, items=items))
    else:
        from aotc.cli.terminal import show_names

        show_names({name: "" if current().quiet else text for name, text in items.items()})


def signer_of(
    key: Path | None,
    keyless: bool,
    identity_token: Path | None,
    trust_config: Path | None,
    *,
    allow_expired: bool = False,
) -> Signer | Sealer:
    """Who signs, as --key, --keyless and its options say; raises I027 and what loading raises."""
    if keyless:
        from aotc.trust.keyless_signing import KeylessSigner

        return KeylessSigner(identity_token, trust_config)
    for option, given in (("--identity-token", identity_token), ("--trust-config", trust_config)):
        if given is not None:
            raise AotcError("AOTC-I027", f"{option} needs --keyless", where=option)
    from aotc.trust.signers import load_signer

    return load_signer(key, allow_expired=allow_expired)


def require_push(artifact: Path, push: bool) -> None:
    """Raise AOTC-I027 unless --push is given for an artifact in a registry, and for no other."""
    far = stated_reference(artifact) is not None
    if far and not push:
        raise AotcError(
            "AOTC-I027",
            "the attestation of an artifact in a registry is written there: say so with --push",
            where=artifact_name(artifact),
        )
    if push and not far:
        raise AotcError(
            "AOTC-I027",
            "--push takes the reference of an artifact in a registry",
            where="--push",
            expected="oci://HOST/REPOSITORY:TAG, or @sha256:DIGEST",
            found=str(artifact),
            fix="Push the artifact first, with 'aotc push'; or leave --push out.",
        )


def refuse_two_stores(store: Path | None, system: bool) -> None:
    """Raise AOTC-I027 where both --store and --system are given."""
    if system and store is not None:
        raise AotcError(
            "AOTC-I027", "--store and --system cannot be used together", where="--store"
        )
