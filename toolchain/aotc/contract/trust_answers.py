"""What the commands of `aotc trust` print with `--json`."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.parsing import record


@record
class TrustAnswer:
    """`aotc trust init|add|check|sign --json`: the policy as it is now."""

    schema: Literal["aotc.trust-answer/1"] = "aotc.trust-answer/1"
    file: str
    name: str
    sequence: int
    sha256: str
    expires: str
    rules: tuple[str, ...]
    keys: Annotated[tuple[str, ...], "ids of keys, authorities and identities"]
    signed_by: Annotated[
        tuple[str, ...], "key ids of roots: all that count, or who signed now"
    ] = ()
    bundle: Annotated[str, "the signature that was written"] = ""
    checked: Annotated[bool, "as this host would before it takes it"] = False


@record
class RootAnswer:
    """`aotc trust root --json`: the file of root keys that was written."""

    schema: Literal["aotc.root-answer/1"] = "aotc.root-answer/1"
    file: str
    threshold: int
    keys: Annotated[tuple[str, ...], "key ids"]
