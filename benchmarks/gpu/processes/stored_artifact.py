"""An artifact of a store and its first answer: `ARTIFACT INPUTS.npz STORE`."""

import sys


def main() -> None:
    """Import, load, answer."""
    import aotc

    model = aotc.load(sys.argv[1], store=sys.argv[3])
    import numpy as np

    model.run(dict(np.load(sys.argv[2])))
    print("answered", flush=True)


if __name__ == "__main__":
    main()
