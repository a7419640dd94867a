"""What is asked to be added to a policy, from the words of `aotc trust add`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotc.authoring.policy_changes import Change
from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.trust.attestations import format_instant, parse_date
from aotc.contract.trust.trust_policy import Match, PolicyKey, Requirement, Revoked, Rule
from aotc.errors import AotcError
from aotc.signing.keys.key_loading import one_key
from aotc.verification.policy.policy_document import read_bytes

# Options that say more of what another one adds.
_OF_A_KEY = ("id", "usage", "valid_from", "valid_until")
_OF_A_RULE = ("match", "match_channel", "require", "min_version")


def change_of(**given: Any) -> Change:
    """The change that the arguments of `aotc trust add` ask for; raises I001, I023 and I027."""
    key, authority = given["key"], given["authority"]
    if key is None and authority is None:
        _refuse_alone(given, _OF_A_KEY, "--key or --authority")
    elif given["id"] is None:
        option = "--authority" if key is None else "--key"
        raise _wrong(f"{option} takes --id: its name in the policy", "--id")
    if given["rule"] is None:
        _refuse_alone(given, _OF_A_RULE, "--rule")
    pairs = [each.partition("=") for each in given["revoke_key"]]
    change = Change(
        keys=(_key(given, one_key(key)),) if key else (),
        authorities=(_key(given, _text(authority)),) if authority else (),
        rules=(_rule(given),) if given["rule"] is not None else (),
        revoked=Revoked(
            artifacts=tuple(given["revoke_artifact"]), keys=tuple(name for name, _, _ in pairs)
        ),
        reasons={name: reason for name, _, reason in pairs if reason},
        rollback=tuple(given["allow_rollback"]),
        expires=_moment(given, "expires"),
        name=given["name"],
    )
    if change == Change():
        raise _wrong("nothing to add was given")
    return change


def requirement(text: str) -> Requirement:
    """A requirement as the command line states it: PREDICATE:ID[,ID][:THRESHOLD]; raises I027."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise _unreadable(text, "PREDICATE:ID[,ID][:THRESHOLD]")
    stated: dict[str, object] = {"predicate": parts[0], "signers": parts[1].split(",")}
    if len(parts) == 3:
        if not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 6):
            raise _unreadable(text, "a threshold that is a number")
        stated["threshold"] = int(parts[2])
    try:
        return decode(Requirement, stated)
    except ParseError as error:
        raise _unreadable(text, str(error.problems[0])) from None


def _rule(given: dict[str, Any]) -> Rule:
    if not given["require"]:
        raise _wrong("--rule takes --require: what must be there, and by whom", "--require")
    match = Match(name=_or(given["match"], "*"), channel=_or(given["match_channel"], "*"))
    require = tuple(requirement(each) for each in given["require"])
    return Rule(name=given["rule"], match=match, require=require, min_version=given["min_version"])


def _key(given: dict[str, Any], pem: str) -> PolicyKey:
    if given["usage"] is None:
        raise _wrong("a key takes --usage: what it may sign, such as approval", "--usage")
    usage = [each for each in given["usage"].split(",") if each]
    stated: dict[str, object] = {"id": given["id"], "pem": pem, "usage": usage}
    moments = {name: _moment(given, name) for name in ("valid_from", "valid_until")}
    stated.update({name: moment for name, moment in moments.items() if moment is not None})
    try:
        return decode(PolicyKey, stated)
    except ParseError as error:
        problem = error.problems[0]
        option = f"--{problem.path.partition('[')[0].replace('_', '-')}"
        raise _wrong(f"the key cannot be added so: {problem.what}", option) from None


def _moment(given: dict[str, Any], name: str) -> str | None:
    text = given[name]
    try:
        return None if text is None else format_instant(parse_date(text))
    except ValueError:
        raise AotcError(
            "AOTC-I027",
            "this is no date",
            where=_option(name),
            expected="a date such as 2027-01-31, or a moment such as 2027-01-31T12:00:00Z",
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
        fix="Such as approval:ops,security:2.",
    )


def _text(path: Path) -> str:
    return read_bytes(path, "certificate").decode("utf-8", "replace")


def _refuse_alone(given: dict[str, Any], names: tuple[str, ...], of: str) -> None:
    """Refuse options that say more of what is not there; raises I027."""
    for name in names:
        if given[name] not in (None, []):
            raise _wrong(f"{_option(name)} is of {of}, which is not given", _option(name))


def _or(text: str | None, default: str) -> str:
    return default if text is None else text


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _wrong(what: str, where: str = "aotc trust add") -> AotcError:
    return AotcError("AOTC-I027", what, where=where, fix="See 'aotc trust add --help'.")
