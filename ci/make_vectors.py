"""Generate manifests/vectors: what a verifier must accept, and what it must refuse with which code.

Without `--write` say whether the files are current; `--folder DIR` means another folder.  The keys
are made from texts that stand here, so anybody has them: they vouch for nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vectors.bundles import bad_shape, bad_signatures, bad_text, valid_bundles
from vectors.collection import Vectors
from vectors.manifests import manifests, other_payloads
from vectors.signing import SECOND, TRUSTED
from vectors.statements import bad_statements

FOLDER = Path(__file__).resolve().parents[1] / "manifests" / "vectors"


def vectors() -> dict[str, bytes]:
    """All files by path."""
    out = Vectors()
    valid_bundles(out)
    bad_text(out)
    bad_shape(out)
    bad_signatures(out)
    bad_statements(out)
    manifests(out)
    other_payloads(out)
    out.files["trusted.pub"] = (TRUSTED.public_pem + SECOND.public_pem).encode()
    return out.written()


def main(arguments: list[str]) -> int:
    """Compare, or with `--write` write, the files; 1 where they are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: %(default)s")
    asked = parser.parse_args(arguments)
    wanted = vectors()
    there = {
        path.relative_to(asked.folder).as_posix()
        for path in asked.folder.rglob("*")
        if path.is_file()
    }
    stale = sorted(
        name
        for name in wanted.keys() | there
        if name not in wanted
        or name not in there
        or (asked.folder / name).read_bytes() != wanted[name]
    )
    for name in stale:
        if not asked.write:
            print(f"not current: {asked.folder / name}")
        elif name in wanted:
            (asked.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (asked.folder / name).write_bytes(wanted[name])
        else:
            (asked.folder / name).unlink()
    return 1 if stale and not asked.write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
