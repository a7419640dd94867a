"""From the start of a process to its first answer, with one captured size.

Each sample is a fresh process; the clock is its parent's.  aotc and plain sessions find byte code
of what they import, as packages have that pip installed.  What the stages of aotc's took is kept.
torch.compile is measured with an empty cache, as where a network starts for the first time, and
with what that process left in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.byte_code import compile_packages
from benchmarks.fresh import ROOT
from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import ONE_BATCH, TUNED, Network, Settings
from benchmarks.gpu.child import ChildFailedError
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.inputs import inputs_at
from benchmarks.gpu.run import Run
from benchmarks.gpu.stages import STAGES, label

ROUNDS, COMPILED_ROUNDS = 15, 1
SECONDS = 240
OURS, PLAIN = "aotc", "plain session"
COLD, WARM = "torch.compile", "torch.compile, cached"
PROCESSES = ROOT / "benchmarks" / "gpu" / "processes"
# By aotc and by plain sessions.
IMPORTED = ("aotc", "onnxruntime", "numpy", "cryptography", "yaml", "rfc8785", "cuda")


def run(run: Run) -> None:
    """Measure each wanted network in the first precision."""
    settings = run.settings
    compile_packages(*IMPORTED)
    for case, network, model in run.cases("first_answer", TUNED):
        with run.guarded("first_answer", [case]):
            precision = settings.precisions(network)[0]
            samples = _measure(settings, network, model, precision)
            run.keep("first_answer", {"case": case, "samples": samples})


def _measure(
    settings: Settings, network: Network, model: Path, precision: str
) -> dict[str, list[float]]:
    sizes = network.sizes(2 if settings.small else ONE_BATCH)
    fields = profile_fields(settings, precision, batch_dims([sizes["batch"]], network.dims))
    built = artifact(settings, model, f"{precision}-1-size", fields)
    inputs = settings.folder / "models" / f"{model.stem}.npz"
    np.savez(inputs, **inputs_at(model, sizes))  # type: ignore[arg-type]
    given = [str(inputs), settings.device]
    small = "1" if settings.small else "0"
    compiled = ["torch_compile", network.name, *given, precision, small]
    commands = {
        OURS: ["stored_artifact", str(built), str(inputs), str(settings.store)],
        PLAIN: ["plain_session", str(in_type(model, precision)), *given],
        COLD: compiled,
        WARM: compiled,
    }
    samples: dict[str, list[float]] = {side: [] for side in commands}
    samples |= {label(stage): [] for stage in STAGES}
    # Round 0 fills the page cache and the store, and is not counted.
    rounds = 1 if settings.small else ROUNDS
    for turn in range(rounds + 1):
        for side, command in commands.items():
            if command is compiled and not 1 <= turn <= COMPILED_ROUNDS:
                continue
            spent, stages = _answered(settings, command, cold=side == COLD)
            if turn:
                samples[side].append(spent)
                for stage, seconds in stages.items():
                    samples[label(stage)].append(seconds)
    return samples


def _answered(
    settings: Settings, command: list[str], *, cold: bool
) -> tuple[float, dict[str, float]]:
    """Seconds until the program of a fresh process says that it answered, and of its stages."""
    cache = settings.folder / "inductor-first"
    if cold:
        shutil.rmtree(cache, ignore_errors=True)
    program, *arguments = command
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
    }
    log = Path(settings.folder) / "first_answer.log"
    with log.open("w") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, str(PROCESSES / f"{program}.py"), *arguments],
            cwd=settings.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        found = any(line.strip() == "answered" for line in iter(process.stdout.readline, ""))
        spent = time.perf_counter() - started
        said = process.stdout.read()
        process.stdout.close()
        try:
            process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if not found:
        lines = log.read_text(errors="replace").splitlines()
        raise ChildFailedError(f"{program}: {lines[-1] if lines else process.returncode}")
    if not said.strip():
        return spent, {}
    told = json.loads(said)
    return spent, {"Python": told["begun"] - started, **told["stages"]}
