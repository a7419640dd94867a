"""What PyTorch itself does with hostile programs: `python bitten.py FOLDER HONEST`, a fork a file.

FOLDER has, by kind, a folder with `program.pt2`, and `how`: `load`, `forced`, `run` or `hangs`.
Prints a line for each kind of which the code ran, or whose loading did not end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import torch

SECONDS = 5
INPUTS = (torch.ones(3, 4),)


def warm_up(honest: str) -> None:
    """Import what loading and running import, once for all forks."""
    torch.set_num_threads(1)
    torch.export.load(honest).module()(*INPUTS, mask=torch.ones(3, 4))


def try_one(folder: Path, how: str) -> None:
    """Load the program in this process, and run it where that is how."""
    # The program's own folder is where PyTorch would find modules of it.
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1" if how == "forced" else "0"
    with contextlib.suppress(Exception):
        program = torch.export.load("program.pt2")
        if how == "run":
            program.module()(*INPUTS, mask=torch.ones(3, 4))


def main() -> None:
    """Try all, each in a fork."""
    warm_up(sys.argv[2])
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        how = (folder / "how").read_text()
        child = os.fork()
        if not child:
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            signal.alarm(SECONDS if how == "hangs" else 60)
            try_one(folder, how)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        hung = os.waitstatus_to_exitcode(status) == -signal.SIGALRM
        if (folder / "RAN").exists() or (how == "hangs" and hung):
            print(folder.name, flush=True)


if __name__ == "__main__":
    main()
