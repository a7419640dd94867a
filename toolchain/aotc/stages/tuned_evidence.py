"""The measurements in an artifact's evidence, for a build that repeats their choice."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from aotc.contract.parsing import ParseError, decode, strict_json
from aotc.contract.report import Evidence
from aotc.contract.tuning import Tried
from aotc.errors import AotcError

_FILE = "attestations/evidence.sigstore.json"


def tuning_of(path: Path) -> tuple[Tried, ...]:
    """The table in an artifact's folder, or in its evidence attestation.

    No signature is asked for: the table only chooses among candidates of the user's own profile,
    each of which is proven again.  Raises AOTC-I001, and O006 where there is no table.
    """
    file = path / _FILE if path.is_dir() else path
    try:
        bundle = strict_json(file.read_bytes())
        statement = strict_json(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
        table = decode(Evidence, statement["predicate"], allow_unknown=True).tuning
    except OSError as error:
        raise AotcError(
            "AOTC-I001", f"the evidence cannot be read: {error.strerror}", where=str(file)
        ) from None
    except (ParseError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise AotcError(
            "AOTC-O006", "this is no evidence of a build", where=str(file), found=str(error)[:300]
        ) from None
    if not table:
        raise AotcError("AOTC-O006", "the evidence is of a build without --tune", where=str(file))
    return table
