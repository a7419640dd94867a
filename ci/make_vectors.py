"""Generate manifests/vectors: what a verifier must accept, and must refuse with which code.

Without `--write` check whether the files are current; `--folder DIR` selects another folder.  The
keys are derived from texts in the source, so everybody has them: they must never be trusted.
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
    """Compare the files, or write them with `--write`; 1 if they are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: %(default)s")
    options = parser.parse_args(arguments)
    wanted = vectors()
    present = {
        path.relative_to(options.folder).as_posix()
        for path in options.folder.rglob("*")
        if path.is_file()
    }
    stale = sorted(
        name
        for name in wanted.keys() | present
        if name not in wanted
        or name not in present
        or (options.folder / name).read_bytes() != wanted[name]
    )
    for name in stale:
        if not options.write:
            print(f"not current: {options.folder / name}")
        elif name in wanted:
            (options.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (options.folder / name).write_bytes(wanted[name])
        else:
            (options.folder / name).unlink()
    return 1 if stale and not options.write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
