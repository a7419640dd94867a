"""The change of a policy that the options of `aotc trust add` ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotc.authoring.policy_changes import Change
from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.trust.attestations import format_instant, parse_date
from aotc.contract.trust.trust_policy import Match, PolicyKey, Requirement, Revoked, Rule
from aotc.errors import AotcError
from aotc.signing.keys.key_loading import load_one_public
from aotc.verification.policy.policy_document import read_bytes

# Options that belong to --key or --authority, and to --rule.
_KEY_OPTIONS = ("id", "usage", "valid_from", "valid_until")
_RULE_OPTIONS = ("match", "match_channel", "require", "min_version")


def change_from_options(**given: Any) -> Change:
    """The change that the options of `aotc trust add` ask for, given by their names.

    Raises AOTC-I001 and I023 if a key cannot be read, and I027 if options are wrong or missing.
    """
    key, authority = given["key"], given["authority"]
    if key is None and authority is None:
        _refuse_without(given, _KEY_OPTIONS, "--key or --authority")
    elif given["id"] is None:
        option = "--authority" if key is None else "--key"
        raise _usage_error(f"{option} requires --id, its name in the policy", "--id")
    if given["rule"] is None:
        _refuse_without(given, _RULE_OPTIONS, "--rule")
    pairs = [text.partition("=") for text in given["revoke_key"]]
    change = Change(
        keys=(_policy_key(given, load_one_public(key)),) if key else (),
        authorities=(_policy_key(given, _read_text(authority)),) if authority else (),
        rules=(_rule(given),) if given["rule"] is not None else (),
        revoked=Revoked(
            artifacts=tuple(given["revoke_artifact"]), keys=tuple(name for name, _, _ in pairs)
        ),
        reasons={name: reason for name, _, reason in pairs if reason},
        rollback=tuple(given["allow_rollback"]),
        expires=_parse_time(given, "expires"),
        name=given["name"],
    )
    if change == Change():
        raise _usage_error("there is nothing to add")
    return change


def parse_requirement(text: str) -> Requirement:
    """The requirement that `PREDICATE:ID[,ID][:THRESHOLD]` states; raises AOTC-I027."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise _unreadable(text, "PREDICATE:ID[,ID][:THRESHOLD]")
    stated: dict[str, object] = {"predicate": parts[0], "signers": parts[1].split(",")}
    if len(parts) == 3:
        if not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 6):
            raise _unreadable(text, "a threshold that is an integer")
        stated["threshold"] = int(parts[2])
    try:
        return decode(Requirement, stated)
    except ParseError as error:
        raise _unreadable(text, str(error.problems[0])) from None


def _rule(given: dict[str, Any]) -> Rule:
    if not given["require"]:
        raise _usage_error("--rule requires --require: attestations and their signers", "--require")
    match = Match(
        name=_with_default(given["match"], "*"), channel=_with_default(given["match_channel"], "*")
    )
    require = tuple(parse_requirement(text) for text in given["require"])
    return Rule(name=given["rule"], match=match, require=require, min_version=given["min_version"])


def _policy_key(given: dict[str, Any], pem: str) -> PolicyKey:
    if given["usage"] is None:
        raise _usage_error("a key requires --usage: what it may sign, such as approval", "--usage")
    usage = [name for name in given["usage"].split(",") if name]
    stated: dict[str, object] = {"id": given["id"], "pem": pem, "usage": usage}
    times = {name: _parse_time(given, name) for name in ("valid_from", "valid_until")}
    stated.update({name: time for name, time in times.items() if time is not None})
    try:
        return decode(PolicyKey, stated)
    except ParseError as error:
        problem = error.problems[0]
        option = f"--{problem.path.partition('[')[0].replace('_', '-')}"
        raise _usage_error(f"the key cannot be added: {problem.what}", option) from None


def _parse_time(given: dict[str, Any], name: str) -> str | None:
    text = given[name]
    try:
        return None if text is None else format_instant(parse_date(text))
    except ValueError:
        raise AotcError(
            "AOTC-I027",
            "this is not a valid date",
            where=_option(name),
            expected="a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z",
            found=text,
            fix="Give a date.",
        ) from None


def _unreadable(text: str, expected: str) -> AotcError:
    return AotcError(
        "AOTC-I027",
        "the requirement cannot be read",
        where="--require",
        expected=expected,
        found=text,
        fix="For example: approval:ops,security:2.",
    )


def _read_text(path: Path) -> str:
    return read_bytes(path, "certificate").decode("utf-8", "replace")


def _refuse_without(given: dict[str, Any], names: tuple[str, ...], option: str) -> None:
    """Refuse options that need another `option`, which is not given; raises AOTC-I027."""
    for name in names:
        if given[name] not in (None, []):
            raise _usage_error(f"{_option(name)} requires {option}", _option(name))


def _with_default(text: str | None, default: str) -> str:
    return default if text is None else text


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _usage_error(what: str, where: str = "aotc trust add") -> AotcError:
    return AotcError("AOTC-I027", what, where=where, fix="See 'aotc trust add --help'.")
