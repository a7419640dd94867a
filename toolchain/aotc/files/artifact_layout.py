"""What an artifact's folder holds: the names of its parts, in a folder as in a packed file."""

from __future__ import annotations

from typing import Final

PAYLOAD: Final = "payload"
ATTESTATIONS: Final = "attestations"
MANIFEST: Final = f"{PAYLOAD}/aotc.json"
"""What makes a folder an artifact.  It goes first where a folder is emptied."""
