"""Root keys, which must sign the policy of a host.

Next to the policy file `trust.yaml` there is a bundle for each root key that signed it:
`trust.yaml.<first 16 digits of the key id>.sigstore.json`, a DSSE envelope with an in-toto
Statement whose subject is the sha256 of the policy file.  The host's file of root keys states how
many must have signed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.folders import config_folder
from aotc.base.files.reading import read_at_most
from aotc.base.records import record
from aotc.spec.trust_anchors import TrustedKey, key_id
from aotc.trust import dsse, statements

if TYPE_CHECKING:
    from aotc.spec.trust_policy import RootKeys
    from aotc.trust.policy.document import PolicyFile


ROOT_VARIABLE: Final = "AOTC_TRUST_ROOT"
SYSTEM_ROOT: Final = Path("/etc/aotc/root.yaml")
POLICY_NAME: Final = "trust.yaml"
# Of those that have the name of no root key.
MAX_BUNDLES: Final = 1024
_MAX_PROBLEMS: Final = 20
_SUFFIX: Final = ".sigstore.json"
# The fixes of the catalogue are for bundles of artifacts.
_FIXES: Final = {
    "AOTC-G002": "Have the holder of a root key of this host sign with 'aotc trust sign', or "
    "remove the file.",
    "AOTC-G003": "The policy was changed after it was signed: sign again with 'aotc trust sign'.",
    "AOTC-G004": "Sign again with 'aotc trust sign', or remove the file.",
}
_FIX_UNSEEN: Final = (
    "This user may not look there for root keys, as under ProtectHome of systemd. Set "
    "XDG_CONFIG_HOME to a folder that this user may read, which may be empty, or AOTC_TRUST_ROOT "
    "to the file of root keys."
)


@record(kw_only=False)
class Roots:
    """The root keys of this host, and the file that states them."""

    path: Path
    record: RootKeys

    @property
    def policy_path(self) -> Path:
        """The policy that is used by default."""
        return self.path.with_name(POLICY_NAME)


def host_roots() -> Roots | None:
    """The root keys of this host, or None if it has none; raises AOTC-I001, I046 and G019.

    They are in /etc/aotc/root.yaml, $AOTC_TRUST_ROOT or aotc/root.yaml in the user's configuration
    folder, the first of these that exists; so a variable cannot replace the administrator's file.
    """
    stated = os.environ.get(ROOT_VARIABLE)
    if _exists(SYSTEM_ROOT):
        path = SYSTEM_ROOT
    elif stated:
        path = Path(stated)
    else:
        folder = config_folder()
        if folder is None or not _exists(folder / "aotc" / "root.yaml"):
            return None
        path = folder / "aotc" / "root.yaml"
    from aotc.trust.policy.document import read_roots

    try:
        return Roots(path, read_roots(path))
    except AotcError as error:
        if error.code == "AOTC-I001" and not stated and not os.path.lexists(path):
            # It is not known whether there are root keys, so nothing else may vouch.
            error.fix = _FIX_UNSEEN
        raise


def require_named_policy(file: PolicyFile, roots: Roots) -> None:
    """Check that a policy is the one that the file of root keys names, or replaces it.

    Raises AOTC-G042 if that file names another one.
    """
    policy, named = file.policy, roots.record.policy
    if named not in (policy.name, *policy.replaces):
        raise AotcError(
            "AOTC-G042",
            "the root keys of this host name another policy",
            where=str(file.path),
            expected=f"policy {named}, which {roots.path} names, or one that replaces it",
            found=f"policy {policy.name}",
        )


def bundle_path(policy: Path, identity: str) -> Path:
    """The path of the bundle of the root key with this id."""
    return policy.with_name(f"{policy.name}.{identity[:16]}{_SUFFIX}")


def require_root_signatures(file: PolicyFile, roots: RootKeys) -> tuple[str, ...]:
    """The ids of the distinct root keys that signed the policy.

    Raises AOTC-G021 if they are fewer than the threshold; `also` says what is wrong with bundles.
    """
    signers, problems = _signers(file, roots, enough=roots.threshold)
    if len(signers) >= roots.threshold:
        return signers
    raise AotcError(
        "AOTC-G021",
        "the policy is not signed by enough root keys",
        where=str(file.path),
        expected=f"{roots.threshold} of {len(roots.keys)} root keys",
        found=", ".join(id_[:16] for id_ in signers) or "none",
        also=problems,
    )


def root_signers(file: PolicyFile, roots: RootKeys) -> tuple[str, ...]:
    """The ids of the distinct root keys that signed the policy, even if they are too few."""
    return _signers(file, roots, enough=len(roots.keys))[0]


def _signers(
    file: PolicyFile, roots: RootKeys, *, enough: int
) -> tuple[tuple[str, ...], tuple[AotcError, ...]]:
    """The ids of root keys that signed, and an error for each bundle that does not count.

    Bundles that have the name of no root key are read only until there are `enough`.
    """
    trusted = [TrustedKey(pem=pem, origin="root key") for pem in roots.keys]
    signers: dict[str, None] = {}
    problems: list[AotcError] = []
    named = [bundle_path(file.path, key_id(pem)) for pem in roots.keys]
    for path in chain(filter(_exists, named), _others(file.path, named)):
        if len(signers) >= enough and path not in named:
            break
        try:
            signers[_signer(path, file, trusted)] = None
        except AotcError as error:
            error.where = error.where or str(path)
            error.fix = _FIXES.get(error.code, error.fix)
            problems.append(error)
    return tuple(signers), tuple(problems[:_MAX_PROBLEMS])


def _signer(path: Path, file: PolicyFile, trusted: list[TrustedKey]) -> str:
    from aotc.spec.trust_policy import POLICY_PREDICATE

    try:
        bundle = read_at_most(path, dsse.MAX_BUNDLE_BYTES)
    except OSError as error:
        raise cannot_read(error, "cannot read the bundle", str(path)) from None
    attestation = statements.verify(bundle, trusted, predicate_type=POLICY_PREDICATE)
    if tuple(attestation.subjects.values()) != (file.sha256,):
        raise AotcError(
            "AOTC-G003",
            "the signature is for another policy file",
            where=str(path),
            expected=f"sha256 {file.sha256}",
            found=", ".join(attestation.subjects.values()),
        )
    return key_id(attestation.key.pem)


def _others(policy: Path, named: Collection[Path]) -> Iterator[Path]:
    """Bundles beside a policy that have the name of no root key, the smallest first.

    Whoever may write there could add any number, so their number and bytes are limited; one with a
    signature is smaller than what would use up the limit before it.
    """
    sizes: list[tuple[int, Path]] = []
    try:
        with os.scandir(policy.parent) as entries:
            for entry in entries:
                path = policy.parent / entry.name
                if (
                    entry.name.startswith(f"{policy.name}.")
                    and entry.name.endswith(_SUFFIX)
                    and path not in named
                ):
                    sizes.append((_size(entry), path))
    except OSError:
        return
    total = 0
    for size, path in sorted(sizes)[:MAX_BUNDLES]:
        total += size
        if total > dsse.MAX_BUNDLE_BYTES:
            return
        yield path


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        # It is refused when it is read.
        return 0


def _exists(path: Path) -> bool:
    """Whether a file exists; one that cannot be examined counts, and is refused when it is read."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True
