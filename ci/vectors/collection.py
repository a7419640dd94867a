"""The files of all vectors, with the verdict that a verifier must reach on each."""

from __future__ import annotations

from vectors.values import json_text


class Vectors:
    """Files by path, and an index of each folder."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.index: dict[str, list[dict[str, str]]] = {}

    def add(
        self,
        folder: str,
        name: str,
        kind: str,
        code: str,
        why: str,
        data: bytes,
        *,
        payload: str = "payload",
    ) -> None:
        """Add a file with the code that a verifier must give; without a code it is accepted.

        A manifest is verified as the aotc.json of the folder `payload`, which the index states if
        it is another one than `payload`.
        """
        ending = "json" if kind == "manifest" else "sigstore.json"
        file = f"{name}.{ending}"
        self.files[f"{folder}/{file}"] = data
        row = {"file": file, "kind": kind, "code": code, "why": why}
        if payload != "payload":
            row["payload"] = payload
        self.index.setdefault(folder, []).append(row)

    def written(self) -> dict[str, bytes]:
        """All files, including the indexes."""
        indexes = {f"{folder}/index.json": json_text(rows) for folder, rows in self.index.items()}
        return {**self.files, **indexes}
