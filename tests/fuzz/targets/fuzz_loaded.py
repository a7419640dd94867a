"""Artifacts that a trusted key did sign, whatever they contain: verified, loaded, and run.

What is signed may be invalid; each of the three steps ends with a result or a refusal.  ONNX
Runtime itself may crash on what a trusted key signed (see the threat model), so a separate process
loads first, and inputs that kill it by a signal are ignored.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator

from edited_artifact import edited, make_place, mutate, written
from fuzz_target import Target
from made_keys import TRUSTED

from aotc.base.errors import AotcError
from aotc.runtime import value_files
from aotc.runtime.loading import load
from aotc.session import sessions
from aotc.tools.inspect import inspect
from aotc.trust.gate import verify
from aotc.trust.policy.host_trust import Trust

TRUST = Trust.of((TRUSTED.trusted(),))
SPINS = "session.intra_op.allow_spinning"
SPINNING = {SPINS: "0"}
_ORT = ("components", "model", "variants", "portable", "executor_info", "ort")
PLACE = make_place()
ARTIFACT, STORE = PLACE / "a.aotc", PLACE / "store"
# Faults of native code; libFuzzer would take each for one of ours.
NATIVE = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
CHILD_SECONDS = 30

# A child that is forked must not wait for what only its parent was doing.
sessions.import_onnxruntime()


def check(data: bytes) -> bool:
    """Whether it loads and runs; everything else must be a refusal with a code."""
    made = edited(data)
    if made is None or not written(made, ARTIFACT):
        return False
    try:
        inspect(ARTIFACT)
    except AotcError as error:
        _require_codes(error)
    report = verify(ARTIFACT, trust=TRUST)
    assert all(refusal.code != "AOTC-R999" for refusal in report.refusals)
    assert report.authentic == all(
        not refusal.code.startswith("AOTC-G") for refusal in report.refusals
    )
    if not report.authentic:
        return False
    return _survives(_loads) and _loads()


def _loads() -> bool:
    try:
        with load(ARTIFACT, trust=TRUST, store=STORE, threads=1) as model:
            for fixture in model.manifest.fixtures:
                given = value_files.read_fixture(model.payload, fixture)
                found = model.run(given)
                model.route(given)
                value_files.write_outputs(PLACE / "outputs", found)
                for name, value in found.items():
                    value_files.describe_output(name, value)
            model.findings()
            model.telemetry.to_dict()
    except AotcError as error:
        _require_codes(error)
        return False
    finally:
        _clear()
    return True


def _require_codes(error: AotcError) -> None:
    for refusal in (error, *error.also):
        assert refusal.code != "AOTC-R999", refusal.line()
        # It is shown as it is.
        str(refusal.line()).encode("utf-8", "backslashreplace")


def _clear() -> None:
    for place in (STORE, PLACE / "outputs"):
        for item in [place, *place.rglob("*")] if place.is_dir() else ():
            if item.is_dir() and not item.is_symlink():
                item.chmod(0o700)
        shutil.rmtree(place, ignore_errors=True)


def _survives(action: Callable[[], bool]) -> bool:
    """Whether a separate process ends by itself; its error is then also raised in this process."""
    if not hasattr(os, "fork"):
        return True
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        for number in NATIVE:
            signal.signal(getattr(signal, number), signal.SIG_DFL)
        # What never ends is ONNX Runtime's as well: nothing of ours waits.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS)
        try:
            action()
        except BaseException:
            os.write(tell, traceback.format_exc().encode("utf-8", "replace")[:60_000])
            os._exit(1)
        os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        _clear()
        return False
    assert status == 0, text.decode("utf-8", "replace")
    return True


def seeds() -> Iterator[bytes]:
    """The artifact as it is, and with each kind of edit."""
    batch = ["domain", "dims", "batch"]
    stated = {"min": 1, "opt": 2, "max": 8, "origin": "stated"}
    edits = (
        [],
        [["aotc.json", ["profile"], "set", None]],
        [["aotc.json", ["outputs"], "set", []]],
        [["aotc.json", ["fixtures", 0, "outputs"], "set", []]],
        [["aotc.json", ["fixtures"], "set", []]],
        [["aotc.json", ["required_features", 0], "copy", ["name"]]],
        [["fixtures/opt/x.npy", 8, "put", "ff"]],
        [["fixtures/opt/x.npy", 49, "put", "23"]],
        [["fixtures/opt/y.npy", 49, "put", "23"]],
        [["model/portable/model.onnx", 23, "put", "9adc"]],
        [
            ["aotc.json", ["variants", 0, "session", "config"], "set", SPINNING],
            ["manifest.json", [*_ORT, "session_options", SPINS], "set", "0"],
            ["aotc.json", ["variants", 0, "session", "config", SPINS], "grow", 8193],
            ["manifest.json", [*_ORT, "session_options", SPINS], "grow", 8193],
        ],
        [["fixtures/opt/y.npy", 100, "cut", None]],
        [
            ["aotc.json", batch, "set", {**stated, "pad_from": 4}],
            ["aotc.json", ["padding"], "set", {"inputs": {"x": {"value": 0}}}],
        ],
    )
    for edit in edits:
        yield json.dumps(edit).encode()


TARGET = Target("loaded", check, seeds, frozenset(), 4096, mutate)
