"""A process that becomes an unprivileged user, loads what is requested, and prints the results.

`python loading_user.py REQUEST` prints a JSON list.  It loads once before, since the interpreter's
own files may lie where others cannot read them.
"""

from __future__ import annotations

import json
import os
import pwd  # noqa: F401
import sys
from typing import Any

NOBODY = 65534


def main() -> None:
    """Load as the user that started the process, then all requested loads as `nobody`."""
    request = json.loads(sys.argv[1])
    attempt({"path": request["warm"], "store": request["warm_store"]}, request)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    print(json.dumps([attempt(load, request) for load in request["loads"]]))


def attempt(load_request: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """The result of one load: the digest of all outputs' bytes, or the code of the refusal."""
    import hashlib

    from aotc.base.errors import AotcError
    from aotc.runtime import value_files
    from aotc.runtime.loading import load

    for name in ("AOTC_SYSTEM_STORE", "AOTC_SYSTEM_STORE_OWNER", "AOTC_STORE"):
        os.environ.pop(name, None)
    os.environ.update(load_request.get("environment", {}))
    try:
        with load(
            load_request["path"],
            key=load_request.get("key", request["key"]),
            store=load_request.get("store"),
            variant="portable",
            threads=1,
            warm_up=False,
        ) as model:
            digest = hashlib.sha256()
            for fixture in model.manifest.fixtures:
                for value in model.run(value_files.read_fixture(model.payload, fixture)).values():
                    digest.update(value.tobytes())
            report = model.report
            return {
                "hashed": report.hashed,
                "from_store": report.from_store,
                "payload": str(model.payload),
                "answer": digest.hexdigest(),
            }
    except AotcError as error:
        return {"code": error.code, "where": error.where, "also": [e.code for e in error.also]}


if __name__ == "__main__":
    main()
