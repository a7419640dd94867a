"""Names of the parts of an artifact, the same in a folder and in a packed file."""

from __future__ import annotations

from typing import Final

PAYLOAD: Final = "payload"
ATTESTATIONS: Final = "attestations"
MANIFEST: Final = f"{PAYLOAD}/aotc.json"
"""The file that makes a folder an artifact.  It is removed first when a folder is emptied."""
