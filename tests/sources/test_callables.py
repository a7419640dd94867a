"""Callables of the user's code: what they may return, and what becomes of all else they do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from refusals import refusal
from workbench import Workbench

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.session.worker_pool import Workers
from aotc.sources.base import Taken
from aotc.sources.capturing import SourceTrust, take
from aotc.sources.registry import importer_of
from aotc.spec.codec import encode

TRUSTED = SourceTrust(trusted=True)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    # What most jobs here need is imported once.
    with Workers(background_imports=("torch", "torch.onnx", "onnxscript")) as workers:
        yield workers


class Shop:
    """A folder with the package `shop`, in which its callables are captured."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self.folder = folder
        self._workers = workers

    def write(self, code: str) -> None:
        (self.folder / "shop").mkdir(exist_ok=True)
        (self.folder / "shop" / "nets.py").write_text(dedent(code).lstrip())

    def capture(self, source: str = "shop.nets:make") -> Taken:
        importer = importer_of(source)
        assert importer is not None and importer.name == "python"
        return take(importer, source, self.folder / "capture", self._workers, TRUSTED)

    def refusal(self, code: str, source: str = "shop.nets:make") -> AotcError:
        self.write(code)
        return refusal(self.capture, source)

    def answers(self, taken: Taken, **inputs: np.ndarray[Any, Any]) -> dict[str, Any]:
        folder = self.folder / f"answers-{len(list(self.folder.iterdir()))}"
        paths = {name: str(self.folder / f"{name}.npy") for name in inputs}
        for name, values in inputs.items():
            np.save(paths[name], values)
        # Of what type the exported model's outputs are.
        kinds = {name: str(self.folder / f"{name}.npy") for name in taken.captured.outputs}
        for path in kinds.values():
            np.save(path, np.zeros(1, np.float32))
        (answered,) = self._workers.run(
            "aotc.sources.capturing:answers_job",
            {
                "importer": taken.importer,
                "request": encode(taken.request),
                "captured": encode(taken.captured),
                "folder": str(taken.folder),
                "fixtures": [{"inputs": paths, "outputs": kinds}],
            },
            folder=folder,
        ).value
        assert "error" not in answered
        return {name: np.load(folder / path) for name, path in answered["outputs"].items()}


@pytest.fixture
def shop(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path, workers)


def test_callable_is_not_called_without_trust(shop: Shop) -> None:
    shop.write("open('called', 'w')")
    importer = importer_of("shop.nets:make")
    assert importer is not None
    error = refusal(take, importer, "shop.nets:make", shop.folder / "capture", shop._workers)
    assert (error.code, error.where) == ("AOTC-I127", "shop.nets:make")
    assert "--trust-source" in error.fix
    assert not (shop.folder / "called").exists()


# Callables that are not there, or do not return.


def test_module_that_is_not_there_is_named(shop: Shop) -> None:
    error = shop.refusal("", "shop.net:make")
    assert error.line() == (
        "AOTC-I150 there is no module shop.net [shop.net:make] (expected a module of the working "
        "directory, of PYTHONPATH, or an installed one)"
    )


def test_name_that_is_not_there_is_named_with_the_nearest(shop: Shop) -> None:
    error = shop.refusal("def make_net(): ...", "shop.nets:make_ent")
    assert (error.code, error.what) == ("AOTC-I150", "shop.nets has no make_ent")
    assert "make_net" in error.found


def test_what_cannot_be_called_is_refused(shop: Shop) -> None:
    error = shop.refusal("make = 3")
    assert (error.code, error.found) == ("AOTC-I150", "int")


@pytest.mark.parametrize(
    ("code", "code_of_error", "where", "found"),
    [
        (
            "def make():\n    return weights()\ndef weights():\n    raise ValueError('no weights')",
            "AOTC-I151",
            "shop/nets.py:4",
            "ValueError: no weights",
        ),
        ("def make():\n    return (", "AOTC-I151", "shop/nets.py:2", "SyntaxError: "),
        ("import json\ndef make():\n    json.loads('{')", "AOTC-I151", "shop/nets.py:3", "JSONDe"),
        ("import no_such_module", "AOTC-I151", "shop/nets.py:1", "ModuleNotFoundError: No module"),
        ("def make():\n    raise KeyboardInterrupt", "AOTC-I151", "shop/nets.py:2", "KeyboardInt"),
        (
            "import sys\ndef make():\n    sys.exit(3)",
            "AOTC-I152",
            "shop/nets.py:3",
            "SystemExit: 3",
        ),
        ("import os\ndef make():\n    os._exit(0)", "AOTC-I152", "shop.nets:make", "an empty log"),
        ("import os\ndef make():\n    os.abort()", "AOTC-I152", "shop.nets:make", "an empty log"),
    ],
)
def test_code_that_does_not_return_is_refused_at_its_line(
    shop: Shop, code: str, code_of_error: str, where: str, found: str
) -> None:
    error = shop.refusal(code)
    assert (error.code, error.where) == (code_of_error, where)
    assert error.found.startswith(found)
    assert "Traceback" not in error.line()


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ("None", "None"),
        ("42", "int"),
        ("(1, 2, 3, 4)", "a tuple of 4"),
        ("(3, 4)", "a tuple that begins with int"),
        ("len", "builtin_function_or_method without example inputs"),
        # A function, and nothing of JAX was imported.
        ("(len, [1])", "a tuple that begins with builtin_function_or_method"),
    ],
)
def test_what_is_no_model_is_refused(shop: Shop, returned: str, found: str) -> None:
    error = shop.refusal(f"def make():\n    return {returned}")
    assert (error.code, error.found) == ("AOTC-I153", found)
    assert error.expected.startswith("(torch.nn.Module, example inputs)")


# Models of PyTorch.

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(8, 16)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x):
        return {"logits": self.last(torch.relu(self.hidden(x)))}
"""
DYNAMIC = "return Net(), (torch.randn(4, 8),), ({0: torch.export.Dim.AUTO},)"


def needs_torch() -> None:
    for name in ("torch", "onnxscript"):
        pytest.importorskip(name, reason="the extra 'torch' is not installed")


def test_module_is_captured_and_answers_itself(shop: Shop) -> None:
    needs_torch()
    shop.write(f"{NET}\ndef make():\n    {DYNAMIC}\n")
    taken = shop.capture()
    framework = taken.captured.framework
    assert (framework.importer, framework.trusted) == ("python", True)
    assert framework.format == "module of a Python callable"
    assert [file.name for file in framework.files] == ["nets.py"]
    assert [dim.inputs for dim in framework.dims] == [("x.0",)]
    assert taken.source_name == "make"
    assert taken.captured.findings == ()
    first = shop.answers(taken, x=np.ones((5, 8), np.float32))
    assert first["logits"].shape == (5, 3)
    again = shop.answers(taken, x=np.ones((5, 8), np.float32))
    assert np.array_equal(first["logits"], again["logits"])


def test_program_and_named_inputs_are_captured(shop: Shop) -> None:
    needs_torch()
    shop.write(
        f"{NET}\ndef make():\n"
        "    return torch.export.export(Net(), (), kwargs={'x': torch.randn(4, 8)})\n"
        "def named():\n    return Net(), {'x': torch.randn(4, 8)}\n"
    )
    for source, kind in (("shop.nets:make", "exported program"), ("shop.nets:named", "module")):
        taken = shop.capture(source)
        assert taken.captured.framework.format == f"{kind} of a Python callable"
        assert list(shop.answers(taken, x=np.ones((4, 8), np.float32))) == ["logits"]


def test_module_without_example_inputs_is_refused(shop: Shop) -> None:
    needs_torch()
    error = shop.refusal(f"{NET}\ndef make():\n    return Net()\n")
    assert (error.code, error.found) == ("AOTC-I153", "shop.nets.Net without example inputs")


def test_module_that_cannot_be_exported_is_refused_at_its_line(shop: Shop) -> None:
    needs_torch()
    error = shop.refusal(
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                if x.sum() > 0:
                    return x
                return -x
        def make():
            return Net(), (torch.randn(4),)
        """
    )
    assert (error.code, error.where) == ("AOTC-I121", "shop/nets.py:4")


def test_callable_that_gives_another_model_each_time_is_refused(shop: Shop) -> None:
    needs_torch()
    shop.write(
        f"{NET}\nimport os\ndef make():\n"
        "    torch.manual_seed(int.from_bytes(os.urandom(4)))\n    " + DYNAMIC + "\n"
    )
    taken = shop.capture()
    error = refusal(shop.answers, taken, x=np.ones((5, 8), np.float32))
    assert error.line() == (
        "AOTC-I156 two calls gave models that answer otherwise in logits, to the same example "
        "[shop.nets:make]"
    )


def test_processes_threads_and_prints_are_told_and_ended(shop: Shop) -> None:
    needs_torch()
    # One child comes back from the callable, one hides in a session of its own.
    shop.write(
        f"{NET}\nimport os, pathlib, threading, time\n"
        "def make():\n"
        "    print('made')\n"
        "    kept = pathlib.Path.cwd()\n"
        "    if not os.fork():\n"
        "        os.setsid()\n"
        "        if os.fork():\n"
        "            os._exit(0)\n"
        "        (kept / 'hidden').write_text(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    while not (kept / 'hidden').exists() or not (kept / 'hidden').read_text():\n"
        "        time.sleep(0.01)\n"
        "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "    os.fork()\n"
        "    " + DYNAMIC + "\n"
    )
    taken = shop.capture()
    hidden = int((shop.folder / "hidden").read_text())
    assert not Path(f"/proc/{hidden}").exists()
    found = [(finding.code, finding.where) for finding in taken.captured.findings]
    assert found == [("AOTC-I154", "shop.nets:make"), ("AOTC-I155", "shop.nets:make")]


def test_build_of_a_callable_prints_its_own_answer_alone(
    bench: Workbench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    needs_torch()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "nets.py").write_text(
        f"{NET}\nimport os\ndef make():\n    print('from make')\n"
        f"    os.write(1, b'more from make')\n    {DYNAMIC}\n"
    )
    output = tmp_path / "make.aotc"
    call = ["build", "shop.nets:make", "-o", str(output), "--key", str(bench.private), "--json"]
    assert main([*call, "--trust-source"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed["schema"].startswith("aotc.build/")
    manifest = json.loads((output / "payload" / "aotc.json").read_text())
    framework = manifest["source"]["framework"]
    assert (framework["importer"], framework["trusted"]) == ("python", True)
    assert "AOTC-I155" in [finding["code"] for finding in manifest["findings"]]
