"""The measurements in an artifact's evidence, for a build that repeats their choice."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aotc.contract.attestation_kinds import KINDS
from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.codec.strict_json import MAX_JSON_BYTES, strict_json
from aotc.contract.finding import Finding
from aotc.contract.results.build_evidence import Evidence
from aotc.contract.results.tuning import TuningCandidate
from aotc.contract.versions import is_newer
from aotc.errors import AotcError
from aotc.files.reading import read_at_most

# A bundle consists of a few fields around one text.
_MAX_VALUES = 10_000
_KIND: Final = KINDS["evidence"]


def read_tuning(path: Path) -> tuple[tuple[TuningCandidate, ...], str]:
    """The tuning table of an artifact's folder or evidence attestation, and its model's sha256.

    No signature is required: the table only chooses among candidates of the user's own profile,
    and each of them is proven again.  Raises AOTC-I001, I046, and O006 if there is no table.
    """
    file = path / _KIND.path if path.is_dir() else path
    try:
        data = read_at_most(file, MAX_JSON_BYTES)
        bundle = strict_json(data, values=_MAX_VALUES)
        statement = strict_json(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
        if is_newer(statement["predicateType"], _KIND.predicate_type):
            raise AotcError(
                "AOTC-I046",
                "the evidence was made by a newer aotc",
                where=str(file),
                expected=_KIND.predicate_type,
                found=statement["predicateType"],
            )
        evidence = decode(Evidence, statement["predicate"], allow_unknown=True)
    except OSError as error:
        raise AotcError(
            "AOTC-I001", f"the evidence cannot be read: {error.strerror}", where=str(file)
        ) from None
    except (ParseError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise AotcError(
            "AOTC-O006",
            "this is not the evidence of a build",
            where=str(file),
            found=str(error)[:300],
        ) from None
    if not evidence.tuning:
        raise AotcError("AOTC-O006", "the evidence is of a build without --tune", where=str(file))
    return evidence.tuning, evidence.tuned_on or "unknown"


def tuning_findings(evidence: Evidence) -> Iterator[Finding]:
    """AOTC-O007 if the measured model is not the model that was built."""
    if evidence.tuning and evidence.tuned_on != evidence.model:
        yield Finding(
            code="AOTC-O007",
            what=f"measured was the model {evidence.tuned_on[:16]}, and this is "
            f"{evidence.model[:16]}",
        )
