"""The files of all vectors, with what a verifier must say of each."""

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
        """One file, with the code that a verifier must give; none: it is accepted.

        A manifest stands for the aotc.json in the folder `payload`, which is said where it is not
        the one of that name.
        """
        ending = "json" if kind == "manifest" else "sigstore.json"
        file = f"{name}.{ending}"
        self.files[f"{folder}/{file}"] = data
        row = {"file": file, "kind": kind, "code": code, "why": why}
        if payload != "payload":
            row["payload"] = payload
        self.index.setdefault(folder, []).append(row)

    def written(self) -> dict[str, bytes]:
        """All files, the indexes too."""
        indexes = {f"{folder}/index.json": json_text(rows) for folder, rows in self.index.items()}
        return {**self.files, **indexes}
