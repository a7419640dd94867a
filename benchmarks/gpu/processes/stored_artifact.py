"""An artifact of a store and its first answer: `ARTIFACT INPUTS.npz STORE`.

After `answered` it prints what its stages took, as JSON; `begun` is when it began, by a clock that
all processes share.
"""

import sys
import time


def main() -> None:
    """Import, load, answer."""
    begun = time.perf_counter()
    import aotc

    load = aotc.load
    imported = time.perf_counter()
    model = load(sys.argv[1], store=sys.argv[3])
    loaded = time.perf_counter()
    import numpy as np

    types = {value.name: value.dtype for value in model.inputs}
    inputs = np.load(sys.argv[2]).items()
    model.run({name: array.astype(types[name], copy=False) for name, array in inputs})
    print("answered", flush=True)
    answered = time.perf_counter()
    report = model.report
    known = {
        "verify": report.verify_seconds,
        "session": report.session_seconds,
        "warm-up": report.warmup_seconds,
    }
    stages = {
        "imports": imported - begun,
        **known,
        # For what is imported, and for the GPU's context, beside the verification.
        "waits": loaded - imported - sum(known.values()),
        "call": answered - loaded,
    }
    import json

    print(json.dumps({"begun": begun, "stages": stages}), flush=True)


if __name__ == "__main__":
    main()
