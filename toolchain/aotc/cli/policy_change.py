"""What `aotc trust add` is asked to add to a policy, from its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.errors import AotcError

if TYPE_CHECKING:
    from aotc.authoring.editing import Change
    from aotc.cli.commands.base import Parser
    from aotc.contract.trust.trust_policy import PolicyKey, Rule

# Options that say more of what another one adds.
_OF_A_KEY = ("id", "usage", "valid_from", "valid_until")
_OF_A_RULE = ("match", "match_channel", "require", "min_version")


def add_change(parser: Parser) -> None:
    """The changes that a policy takes."""
    key = parser.add_argument_group("a key, or a certificate authority")
    key.add_argument("--id", help="its name in the policy; one of that name is replaced")
    key.add_argument("--key", metavar="PUB", type=Path, help="public key")
    key.add_argument("--authority", metavar="CERT", type=Path, help="certificate of an authority")
    key.add_argument("--usage", metavar="KIND[,KIND]", help="what it may sign, such as approval")
    key.add_argument("--valid-from", metavar="MOMENT", help="such as 2027-01-31")
    key.add_argument("--valid-until", metavar="MOMENT")
    rule = parser.add_argument_group("a rule")
    rule.add_argument("--rule", metavar="NAME", help="its name; one of that name is replaced")
    rule.add_argument("--match", metavar="PATTERN", help="of artifacts' names; all by default")
    rule.add_argument("--match-channel", metavar="PATTERN", help="of channels; all by default")
    rule.add_argument(
        "--require",
        metavar="KIND:ID[,ID][:N]",
        action="append",
        default=[],
        help="an attestation by N of these keys; may be repeated",
    )
    rule.add_argument("--min-version", metavar="VERSION")
    other = parser.add_argument_group("other changes")
    other.add_argument("--revoke-artifact", metavar="SHA256", action="append", default=[])
    other.add_argument(
        "--revoke-key",
        metavar="ID[=REASON]",
        action="append",
        default=[],
        help="a name in the policy, or the sha256 of a public key's PEM",
    )
    other.add_argument(
        "--allow-rollback",
        metavar="SHA256",
        action="append",
        default=[],
        help="an artifact that is taken though a later release was seen",
    )
    other.add_argument("--expires", metavar="MOMENT", help="of the policy")
    other.add_argument(
        "--name", help="a new name of the policy, which then states that it replaces the old one"
    )


def change_of(**given: Any) -> Change:
    """The change that the arguments of `add_change` ask for; raises I001, I023 and I027."""
    from aotc.authoring.editing import Change
    from aotc.contract.trust.trust_policy import Revoked

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


def one_key(path: Path) -> str:
    """The one public key of a file, as PEM; raises I001 and I023."""
    from aotc.signing.keys.keyring import load_public

    found = load_public(path, code="AOTC-I023")
    if len(found) != 1:
        raise AotcError(
            "AOTC-I023",
            "the file holds several keys",
            where=str(path),
            expected="one public key",
            found=str(len(found)),
        )
    return found[0].pem


def _rule(given: dict[str, Any]) -> Rule:
    from aotc.authoring.editing import requirement
    from aotc.contract.trust.trust_policy import Match, Rule

    if not given["require"]:
        raise _wrong("--rule takes --require: what must be there, and by whom", "--require")
    match = Match(name=_or(given["match"], "*"), channel=_or(given["match_channel"], "*"))
    require = tuple(requirement(each) for each in given["require"])
    return Rule(name=given["rule"], match=match, require=require, min_version=given["min_version"])


def _key(given: dict[str, Any], pem: str) -> PolicyKey:
    from aotc.contract.codec.parsing import ParseError, decode
    from aotc.contract.trust.trust_policy import PolicyKey

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
    from aotc.contract.trust.attestations import instant, parse_date

    text = given[name]
    try:
        return None if text is None else instant(parse_date(text))
    except ValueError:
        raise AotcError(
            "AOTC-I027",
            "this is no date",
            where=_option(name),
            expected="a date such as 2027-01-31, or a moment such as 2027-01-31T12:00:00Z",
            found=text,
            mend="Give a date.",
        ) from None


def _text(path: Path) -> str:
    from aotc.verification.policy.policy_document import read_bytes

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
    return AotcError("AOTC-I027", what, where=where, mend="See 'aotc trust add --help'.")
