"""Whole checkouts that somebody else wrote, and a command that is called in them.

An input is a JSON document: the words of a command, and entries `[path, kind, what]` of a folder.
Next to that folder lies one that nothing may touch, `kept`, and one that may be read where a user
named the folder with the link to it, `lent`.  Texts name them by `@kept` and `@lent`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import random
import re
import shutil
import socket
import stat
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import fuzz_target  # noqa: F401 - by which modules of the tests are found
import numpy as np
from edited_artifact import base, written
from made_keys import TRUSTED
from made_models import FEATURES, linear, save_external
from onnx import TensorProto, helper, numpy_helper
from watched import TOUCHED, WRITTEN, Watch, can_watch

from aotc.spec.codec import field_types
from aotc.spec.config import BenchDefaults, BuildDefaults, CheckModelsDefaults, Config

Json = Any
COMMANDS: Final = ("inspect", "verify", "check-models", "build")
KINDS: Final = ("text", "asset", "link", "fifo", "socket", "folder", "artifact", "bytes")
MOST_ENTRIES, MOST_BYTES = 60, 1 << 18
# Folders whose links a user names together with them.
NAMED: Final = ("data", "models")
CODE: Final = re.compile(r"AOTC-[A-Z]\d{3}")


class Broken(AssertionError):
    """A promise that did not hold."""


# -- what lies in checkouts
def _sample() -> bytes:
    return numpy_helper.from_array(np.ones((2, FEATURES), np.float32), "x").SerializeToString()


def _npz(rows: int) -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, x=np.zeros((rows, FEATURES), np.float32), label=np.zeros(rows))
    return made.getvalue()


def _nodes(count: int) -> bytes:
    model = linear()
    model.graph.node.extend(helper.make_node("Identity", ["x"], [f"z{i}"]) for i in range(count))
    return model.SerializeToString()


def _external(location: str) -> bytes:
    model = linear()
    (weight,) = model.graph.initializer
    size = len(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", 0), ("length", size)):
        weight.external_data.add(key=key, value=str(value))
    return model.SerializeToString()


@functools.cache
def assets() -> Mapping[str, bytes]:
    """Contents of files, by name."""
    from cryptography.hazmat.primitives import serialization

    secret = TRUSTED._secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "model": linear().SerializeToString(),
        "cut": linear().SerializeToString()[:-40],
        "nodes": _nodes(2000),
        "sample": _sample(),
        "npz": _npz(4),
        "bomb": _npz(200_000),
        "public": TRUSTED.public_pem.encode(),
        "secret": secret,
        "packed": _packed(),
        "junk": bytes(range(256)) * 4,
        "empty": b"",
    }


def _packed() -> bytes:
    import tempfile

    from aotc.trust.packing import pack

    with tempfile.TemporaryDirectory(prefix="aotc-fuzz-") as place:
        folder = Path(place) / "a.aotc"
        written(base(), folder)
        pack(folder, Path(place) / "a.zip")
        return (Path(place) / "a.zip").read_bytes()


# Where texts lead: inside, outside, through links, to what is no file.
PLACES: Final = (
    *(
        "r.json",
        "sub/r.md",
        "r.md",
        "r.xml",
        "new.sarif",
        "-.md",
        "m.onnx",
        "aotc.yaml",
        "notes.json",
        "a.aotc/payload/aotc.json",
    ),
    *("@kept/settings.json", "../kept/settings.json", "sub/../../kept/settings.json"),
    *("out/settings.json", "out/new.json", "deep/out/new.json", "alias.json", "dangling.json"),
    *("@kept/new.json", "../kept/new.html", "@kept/new.sarif", "./../kept/./new.md"),
    *("fifo", "sock", "zero", "/dev/zero", "/dev/null", "/dev/stdout", "/proc/self/mem", "."),
    *("", "-", "-.md", "a\u2028b.json", "x" * 300 + ".json", "~/r.json", "r.json/", "//r.json"),
)
PROFILES: Final = (
    *("edge", "p.profile.yaml", "evil.profile.yaml", "../kept/p.profile.yaml", "fifo", "zero"),
    *("out/p.profile.yaml", "@kept/p.profile.yaml", "sub/p.profile.yaml", "alias.yaml", "sock"),
)
LINKS: Final = (
    *("@kept", "../kept", "@kept/settings.json", "../kept/model.onnx", "@kept/key.pem", ".", "/"),
    *("/dev/zero", "/dev/stdin", "fifo", "loop", "@kept/new.json", "@kept/data", "m.onnx", "sub"),
    *("/proc/self/fd/0", "@kept/weights.bin", "@kept/p.profile.yaml", "@kept/release.pub"),
)
LENT: Final = ("@lent/input_0.pb", "@lent/model.onnx", "@lent", "@lent/new", "/dev/zero", "../fifo")
STEMS: Final = ("a", "b", "c/model", "d\n")
# What ends a line for some readers, and shows nothing.
ENDS: Final = ("\u2028", "\u0085", "\r")
CODE_OF_THEIRS: Final = "open({!r}, 'w').write('ran')\ndef metric(*_):\n    return 1.0\n"


def profile_text(drawn: random.Random, *, evil: bool) -> str:
    """A profile; an evil one runs code or names what is not its own."""
    lines = ["schema: aotc.profile/1", "name: mine"]
    tame = ("dims: {batch: 1..4}", "strict: true", "# a comment", "budgets: {load_seconds: 9}")
    lines += drawn.sample(tame, drawn.randrange(3))
    if evil:
        place = drawn.choice((*PLACES, *LINKS))
        data = json.dumps(drawn.choice(("../kept/data", "out/data", "@kept/data", "zero", place)))
        lines += drawn.sample(
            (
                f'plugins: [{{provider: "NimbusExecutionProvider", library: {json.dumps(place)}}}]',
                f"plugins: {{NimbusExecutionProvider: {json.dumps(place)}}}",
                f'gates: {{task: {{data: {data}, metric: "theirs:metric"}}}}',
                f"gates: {{task: {{data: {data}}}}}",
                f"calibration: {{data: {data}}}\nprecision: int8",
                "# reviewed\u2028unproven: allow",
                "# reviewed\u0085gates: {task: {data: a, metric: 'theirs:metric'}}",
                "a: &a [1, 2]\nb: [*a, *a]",
            ),
            drawn.choice((1, 1, 2)),
        )
    return "\n".join(lines) + "\n"


def config_text(drawn: random.Random) -> str:
    """A configuration of some of its settings, each with a place of its own."""

    def place() -> str:
        return json.dumps(drawn.choice(PLACES))

    def report() -> str:
        return place() if drawn.random() < 0.6 else f"[{place()}, {place()}]"

    def profile() -> str:
        return json.dumps(drawn.choice(PROFILES))

    rows = {
        "report": report,
        "log_file": place,
        "profile": profile,
        "target": lambda: json.dumps(drawn.choice(("host", "linux-x86-64", "fifo", "out/t.yaml"))),
        "key": lambda: json.dumps(
            drawn.choice(("key.pem", "signer.yaml", "@kept/key.pem", "out/key.pem", "fifo", "zero"))
        ),
        "cache": lambda: drawn.choice(("true", "false")),
        "calibration": lambda: json.dumps(
            drawn.choice(("cal", "cal/x.npz", "../kept/data", "out/data", "zero", "fifo", "data"))
        ),
        "fixtures": lambda: json.dumps(drawn.choice(("cal", "../kept/data"))),
        "history": place,
        "trace": place,
    }
    lines = ["schema: aotc.config/1"]
    places = [pair for pair in _settings() if pair[1] in rows]
    for section, name in drawn.sample(places, drawn.choice((1, 1, 2, 3))):
        if drawn.random() < 0.05:
            section = drawn.choice(("build", "check_models", "bench", "nothing"))
        value = rows[name]()
        lines.append(f"{section}: {{{name}: {value}}}" if section else f"{name}: {value}")
    if drawn.random() < 0.1:
        lines.append(f"# fine{drawn.choice(ENDS)}report: {place()}")
    return "\n".join(lines) + "\n"


@functools.cache
def _settings() -> tuple[tuple[str, str], ...]:
    """Every setting that a configuration has: its section, and its name."""
    sections = {"build": BuildDefaults, "check_models": CheckModelsDefaults, "bench": BenchDefaults}
    own = [("", name) for name in field_types(Config) if name not in (*sections, "schema")]
    return (*own * 2, *((each, name) for each in sections for name in field_types(sections[each])))


def made(drawn: random.Random, commands: Sequence[str]) -> Json:
    """A checkout by chance, and one of `commands` in it."""
    entries: list[Json] = [["m.onnx", "asset", "model"], ["release.pub", "asset", "public"]]
    command = drawn.choice(list(commands))
    if drawn.random() < (0.7 if command in ("build", "check-models") else 0.3):
        entries.append(["aotc.yaml", *_content(drawn, "aotc.yaml", config_text(drawn))])
    for name in ("p.profile.yaml", "sub/p.profile.yaml"):
        entries.append([name, "text", profile_text(drawn, evil=False)])
    theirs = CODE_OF_THEIRS.format("@kept/ran")
    entries += [
        ["evil.profile.yaml", "text", profile_text(drawn, evil=True)],
        ["notes.json", "text", '{"mine": true}\n'],
        ["theirs.py", "text", theirs],
        ["sitecustomize.py", "text", theirs],
        ["signer.yaml", "text", _signer()],
        ["key.pem", "asset", "secret"],
    ]
    for name in ("out", "deep/out", "alias.json", "alias.yaml", "dangling.json", "zero", "loop"):
        if drawn.random() < 0.7:
            to = "/dev/zero" if name == "zero" else drawn.choice(LINKS)
            if name in ("out", "deep/out"):
                to = drawn.choice(("@kept", "../kept", "../../kept"))
            entries.append([name, "link", to])
    entries += [[name, name, ""] for name in ("fifo",) if drawn.random() < 0.8]
    entries += [["sock", "socket", ""]] * (drawn.random() < 0.5)
    for folder in ("data", "cal"):
        entries += _test_data(drawn, folder)
    words = _words(drawn, command, entries)
    return {"words": words, "entries": entries}


def _signer() -> str:
    # Wherever a shell is: it leaves a trace.
    command = ["/bin/sh", "-c", "echo ran > @kept/ran"]
    return f"schema: aotc.signer/1\ncommand: {json.dumps(command)}\npublic_key: release.pub\n"


def _content(drawn: random.Random, name: str, text: str) -> list[Json]:
    """The kind and content of a file of this name: mostly the text."""
    kind = drawn.random()
    if kind < 0.9:
        return ["text", text]
    if kind < 0.95:
        return ["link", drawn.choice(("@kept/aotc.yaml", "/dev/zero", "fifo", "notes.json"))]
    return [drawn.choice(("fifo", "socket", "folder")), ""]


def _test_data(drawn: random.Random, folder: str) -> list[Json]:
    # Of what a configuration names, nothing leads outside.
    links = LENT if folder == "data" else (*LENT, *LINKS)
    found: list[Json] = []
    for index in range(drawn.randrange(3)):
        name = f"{folder}/set{index}/input_{drawn.choice((0, 0, 0, 1))}.pb"
        kind = drawn.choice(("asset", "asset", "link", "fifo", "socket"))
        what = drawn.choice(("sample", "sample", "junk", "empty")) if kind == "asset" else ""
        found.append([name, kind, drawn.choice(links) if kind == "link" else what])
    if drawn.random() < 0.4:
        kind = drawn.choice(("asset", "asset", "link", "fifo"))
        what = drawn.choice(("npz", "bomb", "junk")) if kind == "asset" else drawn.choice(links)
        found.append([f"{folder}/x.npz", kind, what])
    return found


def _models(drawn: random.Random) -> list[Json]:
    found: list[Json] = []
    for index in range(drawn.choice((1, 1, 2, 3))):
        name = f"models/{drawn.choice(STEMS)}{index}.onnx"
        kind = drawn.choice(("asset", "asset", "external", "link", "fifo", "socket", "folder"))
        if kind == "external":
            locations = (
                "../../kept/weights.bin",
                "@kept/weights.bin",
                "w.bin",
                "../fifo",
                "/dev/zero",
            )
            found.append([name, "bytes", _external(drawn.choice(locations)).hex()])
            found.append(["models/w.bin", "link", "@kept/weights.bin"])
            continue
        what = drawn.choice(("model", "cut", "junk", "junk", "empty")) if kind == "asset" else ""
        found.append([name, kind, drawn.choice(LENT) if kind == "link" else what])
    return found


def _artifact(drawn: random.Random) -> list[Json]:
    """An artifact, whole, and then what lies in it besides or instead."""
    found: list[Json] = [["a.aotc", "artifact", ""]]
    names = (
        *("payload/aotc.json", "payload/manifest.json", "payload/model/portable/model.onnx"),
        *("payload/new", "attestations/new.sigstore.json", "attestations/oms.sigstore.json"),
        *("payload/link/x", "new", "attestations/a\nb.sigstore.json", "payload/\u2028"),
    )
    for name in drawn.sample(names, drawn.choice((0, 0, 1, 2))):
        kind = drawn.choice(("link", "link", "fifo", "socket", "asset", "folder", "text"))
        what = {"link": drawn.choice(LINKS), "asset": "junk", "text": "{}"}.get(kind, "")
        found.append([f"a.aotc/{name}", kind, what])
    if drawn.random() < 0.1:
        found += [[f"a.aotc/attestations/j{i}.sigstore.json", "text", "{}"] for i in range(20)]
    found.append(["p.zip", "asset", "packed"])
    return found


def _policy(drawn: random.Random) -> str:
    lines = [
        "schema: aotc.trust/1",
        "name: shop",
        f"sequence: {drawn.choice((1, 2, -1))}",
        'expires: "2099-01-01T00:00:00Z"',
        "keys:",
        f"- {{id: ci, pem: {json.dumps(TRUSTED.public_pem)}, usage: [oms]}}",
        "rules:",
        '- {name: all, match: {name: "*"}, require: [{predicate: oms, signers: [ci]}]}',
    ]
    if drawn.random() < 0.3:
        lines.insert(3, f"# reviewed{drawn.choice(ENDS)}rollback: allow")
    if drawn.random() < 0.2:
        lines[5] = lines[5].replace('-----\\n"', '-----\\nREVOKED\\n"')
    return "\n".join(lines) + "\n"


def _words(drawn: random.Random, command: str, entries: list[Json]) -> list[str]:
    words = [command]
    if command == "check-models":
        entries += _models(drawn)
        return [*words, "models", *drawn.choice(((), ("--json",), ("--report=mine.md",)))]
    if command == "build":
        model = drawn.choice((*("m.onnx",) * 5, "e.onnx", "missing.onnx"))
        if model == "e.onnx":
            where = drawn.choice(("../kept/weights.bin", "out/weights.bin", "fifo", "zero", "sock"))
            entries.append(["e.onnx", "bytes", _external(where).hex()])
        options = (
            "--profile=p.profile.yaml",
            *("--fixtures=data", "--calibration=data", "--no-cache", "--embed-fixtures"),
            *("--json", "--dim=batch=1..4", "--report=mine.json", "--output=made.aotc"),
        )
        return [*words, *drawn.sample(options, drawn.randrange(3)), "--", model]
    entries += _artifact(drawn)
    entries.append(["trust.yaml", "text", _policy(drawn)])
    if drawn.random() < 0.1:
        entries += [[f"trust.yaml.{i:016x}.sigstore.json", "text", "{}"] for i in range(20)]
        entries.append(["trust.yaml.00.sigstore.json", "fifo", ""])
    names = ("a.aotc", "a.aotc", "a.aotc", "p.zip", "m.onnx", ".", "notes.json")
    what = drawn.choice(names)
    if command == "inspect":
        return [*words, *drawn.choice(((), ("--json",))), "--", what]
    options = ("--key=release.pub", "--trust=trust.yaml", "--key=release.pub", "--target=host")
    return [*words, *drawn.choice(((), ("--json",))), drawn.choice(options), "--", what]


# -- the place, and what may happen in it
class Ground:
    """A folder for checkouts one after another, with what lies around them."""

    def __init__(self, place: Path) -> None:
        self.here = place / "checkout"
        self.kept, self.lent, self.home = (place / name for name in ("kept", "lent", "home"))
        self.place = place
        for each in (self.kept, self.lent, self.home, place / "tmp"):
            each.mkdir()
        (self.kept / "data").mkdir()
        _, weights = save_external(self.lent)
        files = {
            "settings.json": b'{"theirs": true}\n',
            "aotc.yaml": b"report: stolen.json\n",
            "p.profile.yaml": b"schema: aotc.profile/1\nname: other\n",
            "key.pem": b"a secret\n",
            "release.pub": assets()["public"],
            "model.onnx": assets()["model"],
            "weights.bin": weights,
            "data/input_0.pb": assets()["sample"],
            "data/x.npz": assets()["npz"],
        }
        for name, content in files.items():
            (self.kept / name).write_bytes(content)
        for name in ("input_0.pb", "model.onnx"):
            (self.lent / name).write_bytes(assets()["sample" if "pb" in name else "model"])
        self.watch = Watch() if can_watch() else None
        self._before = self._state()
        if self.watch is not None:
            self.watch.add([self.kept, *self.kept.rglob("*")], TOUCHED)
            self.watch.add([self.lent, *self.lent.rglob("*")], WRITTEN)
        self._around = sorted(path.name for path in place.iterdir())

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a command that is called here."""
        return {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "TMPDIR": str(self.place / "tmp"),
            "AOTC_STORE": str(self.home / "store"),
        }

    def lay(self, case: Json) -> list[str] | None:
        """Write a checkout anew; its words, or None if it is no case at all."""
        if self.here.exists():
            shutil.rmtree(self.here)
        self.here.mkdir()
        try:
            words, entries = case["words"], case["entries"]
            assert isinstance(words, list) and len(words) < 20
            assert words[0] in COMMANDS
            assert all(isinstance(each, str) and "\0" not in each for each in words)
            assert len(entries) <= MOST_ENTRIES
            # What a user names is in the checkout, and is no link out of it.
            assert not any("@" in each or ".." in each for each in words)
            assert not any(each.startswith("-") and "=/" in each for each in words)
            assert not any(each.startswith(("/", "~")) for each in words)
            for path, kind, what in entries:
                self._entry(path, kind, what)
                # Who names a profile has seen that it runs nothing and reads nothing else.
                named = f"--profile={path}" in words
                assert not (named and re.search("plugins|task|calibration", what))
        except (AssertionError, ValueError, TypeError, KeyError, IndexError, OSError):
            return None
        for word in words[1:]:
            named = word.rpartition("=")[2]
            with suppress(OSError, ValueError):
                if (self.here / named).is_symlink() or not _inside(self.here / named, self.here):
                    return None
        self._own = self._digests()
        return list(words)

    def _entry(self, path: str, kind: str, what: str) -> None:
        assert all(isinstance(each, str) for each in (path, kind, what))
        assert kind in KINDS
        assert "\0" not in path and not path.startswith("/") and ".." not in path.split("/")
        target = self.here / path
        # A link in the way would have this write outside.
        parent = target.parent
        assert _inside(parent, self.here)
        parent.mkdir(parents=True, exist_ok=True)
        assert _inside(parent, self.here)
        if kind == "artifact":
            written(base(), target)
            return
        if target.is_symlink() or target.is_file():
            target.unlink()
        if kind == "text":
            target.write_bytes(self._named(what).encode("utf-8", "surrogatepass"))
        elif kind == "asset":
            target.write_bytes(assets()[what])
        elif kind == "bytes":
            assert len(what) <= MOST_BYTES
            target.write_bytes(bytes.fromhex(what))
        elif kind == "link":
            to = self._named(what)
            if not path.startswith(NAMED):
                to = to.replace(str(self.lent), str(self.kept))
            else:
                to = to.replace(str(self.kept), str(self.lent)).replace("kept", "lent")
            target.symlink_to(to)
        elif kind == "fifo":
            os.mkfifo(target)
        elif kind == "socket":
            # The name of one is short.
            short = self.place / "s"
            with socket.socket(socket.AF_UNIX) as made_here:
                made_here.bind(str(short))
            short.rename(target)
        else:
            target.mkdir()

    def _named(self, text: str) -> str:
        return text.replace("@kept", str(self.kept)).replace("@lent", str(self.lent))

    def judge(self, words: Sequence[str], status: int, said: str) -> None:
        """Raise `Broken` where a command ended as it must not, or touched what it must not."""
        found = self.watch.found() if self.watch is not None else []
        if status not in (0, 1, 2, 3):
            found.append(f"exit status {status}")
        elif status and not CODE.search(said):
            found.append(f"exit status {status} without a code")
        if "AOTC-R999" in said:
            found.append("an internal error")
        if self._state() != self._before:
            found.append("what lies outside has changed")
        around = sorted(path.name for path in self.place.iterdir())
        if around != self._around and around != sorted({*self._around, "checkout"}):
            found.append(f"new things lie outside: {around}")
        after = self._digests()
        changed = [name for name, digest in self._own.items() if after.get(name) != digest]
        if changed:
            found.append(f"files of the checkout have changed: {changed}")
        if found:
            raise Broken(f"{list(words)}: " + "; ".join(found) + f"\n{said[-3000:]}")

    def forget(self) -> None:
        """Leave out what was done by the judge itself."""
        if self.watch is not None:
            self.watch.found()

    def _state(self) -> list[tuple[str, int, int, str]]:
        """What lies outside, by its attributes: to read it would be noticed as well."""
        found = []
        for folder in (self.kept, self.lent):
            for each in sorted(_below(folder)):
                state = each.lstat()
                found.append((str(each), state.st_mode, state.st_size, str(state.st_mtime_ns)))
        return found

    def _digests(self) -> dict[str, str]:
        """The sha256 of each regular file in the checkout."""
        found = {}
        for each in _below(self.here):
            state = each.lstat()
            if stat.S_ISREG(state.st_mode):
                digest = hashlib.sha256(each.read_bytes()).hexdigest()
                found[str(each.relative_to(self.here))] = digest
        return found


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)


def _inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


@contextmanager
def _called_in(ground: Ground) -> Iterator[list[io.BytesIO]]:
    """The folder, variables and streams of a command in this process."""
    before, streams, folder = dict(os.environ), (sys.stdin, sys.stdout, sys.stderr), Path.cwd()
    for name in [name for name in os.environ if name.startswith(("AOTC_", "GITHUB_", "CI_"))]:
        del os.environ[name]
    os.environ.update(ground.environment)
    said = [io.BytesIO(), io.BytesIO()]
    os.chdir(ground.here)
    with open(os.devnull) as nothing:  # noqa: PTH123
        sys.stdin = nothing
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(each, "utf-8", write_through=True) for each in said
        )
        try:
            yield said
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            os.environ.clear()
            os.environ.update(before)
            os.chdir(folder)


def called(ground: Ground, words: Sequence[str]) -> tuple[int, str]:
    """Call a command in this process; its exit status and all that it said."""
    from aotc.cli.main import main

    with _called_in(ground) as said:
        try:
            status = main(list(words))
        except Exception:
            return 70, traceback.format_exc()
        return status, b"".join(each.getvalue() for each in said).decode("utf-8")


def tried(ground: Ground, case: Json) -> bool:
    """Lay a checkout, call its command in this process, and judge; whether it was a yes."""
    words = ground.lay(case)
    if words is None:
        return False
    ground.forget()
    status, said = called(ground, words)
    ground.judge(words, status, said)
    return status == 0
