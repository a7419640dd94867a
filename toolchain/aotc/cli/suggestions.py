"""What a mistaken word of a call may have meant: a near spelling, or a word of another tool.

Nothing that is not near is suggested, and an option is never answered with a command.  It is
imported where a call is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from aotc.base.text import near
from aotc.spec.precision import precision_meant

# Of commands that have an option, how many are named.
_MOST: Final = 3

_PRECISIONS: Final = "dtype datatype compress precisionmode weightsprecision fp8"
# Words of other tools, without their dashes, and the options here that say the same: of a command,
# the first that it has.
_OPTIONS: Final = {
    "inputshape inputshapes shape shapes minshapes optshapes maxshapes dynamicaxes batch "
    "batchsize dim dims dimparam dynamicshapes overrideinputdims inputdims": "--dim",
    "threads numthreads nthreads intraopnumthreads intraopthreads interopnumthreads "
    "cores j": "--threads --jobs",
    "parallel workers concurrency numstreams": "--streams --jobs",
    "signer pubkey publickey privatekey pem certificate cert keyfile identity k signkey "
    "signingkey": "--key --signer --authority",
    "key id": "--signer --key",
    "policy roots trustedroot certificateidentity certificateoidcissuer": "--trust",
    "overwrite yes y f clobber replace": "--force",
    "device provider providers ep executionprovider platform arch backend gpu usegpu "
    "cuda os": "--target --profile --variant",
    "config c configfile options preset": "--profile",
    "out outfile outputfile outputpath outdir outputdir dest destination saveengine engine w "
    "o output to d c directory": "--output --output-dir --store",
    "iterations iters numruns repeat repeats loops n iter": "--runs",
    "warmup warmupruns warmups": "--warm-up",
    "duration time t": "--seconds --timeout",
    "loadinputs datainputs inputdata inputs in data i samples": "--input --fixtures",
    "calibrationdata calib calibdata dataset": "--calibration",
    "saveoutputs dumpoutput exportoutput": "--output-dir",
    "outputformat": "--json --report",
    "silent s nologs": "--quiet",
    "loglevel verbosity extraverbose": "--verbose",
    "log logfile": "--log-file",
    "reference baseline compare golden onnx": "--against --model",
    "nocaching disablecache": "--no-cache",
    "customop customopslibrary plugins plugin": "--custom-ops",
    "profiling dumpprofile perlayer layers": "--nodes",
    "exitcode": "--fail-on",
    "all l": "--list",
    "github gitlab": "--ci",
    "maxsize size maxbytes": "--limit",
    "passphrase": "--password",
    "usage": "--help",
}
# Options of other tools for what stands here without one, by its name in usage lines.
_OPERANDS: Final = {
    "MODEL": "model onnx inputmodel m i input",
    "ARTIFACT": "artifact model m",
    "ARCHIVE": "archive artifact file",
}
# And of commands: what stands after `aotc` in their place.
_COMMANDS: Final = {
    "version": "--version",
    "compile convert optimize optimise make quantize quantise": "build",
    "check validate lint": "verify",
    "info describe dump view cat summary": "inspect",
    "infer inference exec execute predict serve": "run",
    "benchmark perf time measure trtexec": "bench",
    "compare": "diff",
    "deploy load": "install",
    "upload publish": "push",
    "rm uninstall delete": "store remove",
    "gc": "store prune",
    "clean purge": "cache clear",
    "new create setup": "init",
    "key keys genkey generate-key generate-key-pair": "keygen",
    "approve promote qualify": "attest",
    "zip archive tar bundle package": "pack",
    "unzip extract untar": "unpack",
    "health env system-info info-host": "doctor",
    "why reason codes": "explain",
    "settings": "config",
    "device devices hardware host": "target show host",
    "policy": "trust",
}
# A file in place of a command.
_FILES: Final = {".onnx": "build", ".aotc": "verify", ".aotc.zip": "verify"}
_THREADS: Final = (
    "; threads are set where it runs: aotc run and bench --threads, aotc.load(threads=)"
)


def option_meant(
    word: str,
    spellings: Mapping[str, str],
    prog: str,
    others: Callable[[], Mapping[str, Sequence[str]]],
    operands: Sequence[str] = (),
) -> str:
    """The end of a message on an option or argument that a command does not take, or nothing.

    `spellings` are the command's options with how each is written, such as `--dim NAME=SPEC`;
    `others` tells, when asked, the options of each command; `operands` are the names of what it
    takes without an option.
    """
    if word[:1] != "-":
        # One model more is no output.
        kinds = ("--input",) if word.endswith(".onnx") else ("--output", "--input")
        found = next((each for each in kinds if each in spellings), "")
        return f"; did you mean '{found} {word}'?" if found else ""
    bare = re.sub("[-_]", "", word).lower()
    precision = precision_meant(bare) or ("NAME" if bare in _PRECISIONS.split() else "")
    if precision and "--precision" in spellings:
        return f"; did you mean '--precision {precision}'?"
    for operand in operands:
        if bare in _OPERANDS.get(operand, "").split():
            return f"; {operand} stands without an option"
    theirs = " ".join(own for words, own in _OPTIONS.items() if bare in words.split())
    if found := next((each for each in theirs.split() if each in spellings), ""):
        return f"; did you mean {spellings[found]!r}?"
    if found := near(word, spellings):
        return f"; did you mean {found!r}?"
    if bare in ("threads", "numthreads", "intraopnumthreads"):
        return _THREADS
    if word in ("--version", "-V"):
        return "; did you mean 'aotc --version'?"
    every = others()
    if prog == "aotc":
        options = dict.fromkeys(option for own in every.values() for option in own)
        if word in options or near(word, options):
            return "; options of a command stand after its name"
    having = [name for name, own in every.items() if word in own and word[:2] == "--"]
    of_group = [name for name in having if f"aotc {name}".startswith(f"{prog} ")]
    named = [f"aotc {name}" for name in of_group or having][:_MOST]
    return f"; it is an option of {_either(named)}" if having else ""


def value_meant(message: str, options: Iterable[str]) -> str:
    """A message on a value that an option does not take, with what it may have meant.

    It quotes the value, and then those that the option takes.
    """
    given, *known = re.findall("'([^']*)'", message) or [""]
    meant = "--json" if given.lower() == "json" and "--json" in options else near(given, known)
    return f"{message.removesuffix('.')}; did you mean {meant!r}?" if meant else message


def command_meant(
    word: str, known: Iterable[str], below: Callable[[], Iterable[str]] | None
) -> str:
    """The end of a message on a command that there is none of, or an empty string.

    `below` tells, when asked, every command by the words that call it; None within a group.
    """
    known = tuple(known)
    meaning = {each: own for words, own in _COMMANDS.items() for each in words.split()}
    own = meaning.get(word.lower(), "")
    if below is None:
        # A group has commands of its own for what its neighbours call otherwise.
        alike = (*own.split()[-1:], *(each for each in meaning if own and meaning[each] == own))
        found = near(word, known) or next((each for each in alike if each in known), "")
        return f"; did you mean {found!r}?" if found else ""
    if own:
        return f"; did you mean 'aotc {own}'?"
    for suffix, command in _FILES.items():
        if word.endswith(suffix):
            return f"; did you mean 'aotc {command} {word}'?"
    if found := near(word, known):
        return f"; did you mean {found!r}?"
    if same := [name for name in below() if name.rpartition(" ")[2] == word.lower()]:
        return f"; did you mean {_either([f'aotc {name}' for name in same])}?"
    found = near(word, meaning)
    return f"; did you mean 'aotc {meaning[found]}'?" if found else ""


def _either(names: Sequence[str]) -> str:
    quoted = [repr(name) for name in names]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
