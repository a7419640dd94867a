"""Mistaken words of a call: what each may have meant, the usage line, and nothing that is far."""

from __future__ import annotations

import pytest

from aotc.cli import main as cli

BUILD = "aotc build [OPTIONS] MODEL"
VERIFY = "aotc verify [OPTIONS] ARTIFACT"
GROUPS = "aotc COMMAND ..."


@pytest.mark.parametrize(
    ("words", "what", "usage"),
    [
        ("--verison", "there is no option '--verison'; did you mean '--version'?", GROUPS),
        ("-version", "there is no option '-version'; did you mean '--version'?", GROUPS),
        (
            "--list",
            "there is no option '--list'; options of a command stand after its name",
            GROUPS,
        ),
        ("--frobnicate", "there is no option '--frobnicate'", GROUPS),
        (
            "--force build m.onnx",
            "there is no option '--force'; options of a command stand after its name",
            GROUPS,
        ),
        ("version", "there is no command 'version'; did you mean 'aotc --version'?", GROUPS),
        (
            "list",
            "there is no command 'list'; did you mean 'aotc profile list', 'aotc target list', "
            "'aotc cache list' or 'aotc store list'?",
            GROUPS,
        ),
        ("biuld", "there is no command 'biuld'; did you mean 'build'?", GROUPS),
        ("insp", "there is no command 'insp'; did you mean 'inspect'?", GROUPS),
        ("frobnicate", "there is no command 'frobnicate'", GROUPS),
        ("compile m.onnx", "there is no command 'compile'; did you mean 'aotc build'?", GROUPS),
        ("m.onnx", "there is no command 'm.onnx'; did you mean 'aotc build m.onnx'?", GROUPS),
        ("infer m.aotc", "there is no command 'infer'; did you mean 'aotc run'?", GROUPS),
        (
            "store rm x",
            "there is no command 'rm'; did you mean 'remove'?",
            "aotc store COMMAND ...",
        ),
        (
            "store gc",
            "there is no command 'gc'; did you mean 'prune'?",
            "aotc store COMMAND ...",
        ),
        (
            "profile validate p",
            "there is no command 'validate'; did you mean 'check'?",
            "aotc profile COMMAND ...",
        ),
        (
            "trust create",
            "there is no command 'create'; did you mean 'init'?",
            "aotc trust COMMAND ...",
        ),
        ("store frobnicate", "there is no command 'frobnicate'", "aotc store COMMAND ..."),
        ("verison", "there is no command 'verison'; did you mean 'aotc --version'?", GROUPS),
        ("compiel m", "there is no command 'compiel'; did you mean 'aotc build'?", GROUPS),
        *(
            (
                f"{word} build m.onnx",
                f"there is no option '{word}'; options of a command stand after its name",
                GROUPS,
            )
            for word in ("-q", "--quite")
        ),
        (
            "profile lst",
            "there is no command 'lst'; did you mean 'list'?",
            "aotc profile COMMAND ...",
        ),
        (
            "trust --key k",
            "there is no option '--key'; it is an option of 'aotc trust add', 'aotc trust sign' or "
            "'aotc trust root'",
            "aotc trust COMMAND ...",
        ),
        *(
            (f"build m.onnx {word} x:1,8", f"there is no argument {word!r}; {meant}", BUILD)
            for word, meant in {
                "--input-shape": "did you mean '--dim NAME=SPEC'?",
                "--input_shape": "did you mean '--dim NAME=SPEC'?",
                "--optShapes": "did you mean '--dim NAME=SPEC'?",
                "--batch-size": "did you mean '--dim NAME=SPEC'?",
                "--fp16": "did you mean '--precision float16'?",
                "--half": "did you mean '--precision float16'?",
                "--int8": "did you mean '--precision int8'?",
                "--dtype": "did you mean '--precision NAME'?",
                "--threads": "threads are set where it runs: aotc run and bench --threads, "
                "aotc.load(threads=)",
                "--overwrite": "did you mean '--force'?",
                "-f": "did you mean '--force'?",
                "--forse": "did you mean '--force'?",
                "--outpt": "did you mean '--output'?",
                "-output": "did you mean '--output NAME.aotc'?",
                "--calib": "did you mean '--calibration PATH'?",
                "--device": "did you mean '--target NAME|FILE'?",
                "--licens": "did you mean '--licence'?",
                "--nocache": "did you mean '--no-cache'?",
                "--signer": "did you mean '--key FILE'?",
                "--silent": "did you mean '--quiet'?",
                "--version": "did you mean 'aotc --version'?",
                "-out": "did you mean '--output NAME.aotc'?",
                "--signing-key": "did you mean '--key FILE'?",
                **dict.fromkeys(("--onnx", "--model", "-i"), "MODEL stands without an option"),
                "--channel": "it is an option of 'aotc verify', 'aotc run' or 'aotc bench'",
            }.items()
        ),
        ("build m.onnx --zebra", "there is no argument '--zebra'", BUILD),
        ("build m.onnx -z", "there is no argument '-z'", BUILD),
        ("build a.onnx b.onnx", "there is no argument 'b.onnx'", BUILD),
        (
            "trust init --key k.pub",
            "there is no argument '--key'; did you mean '--signer ID=PUB'?",
            "aotc trust init [OPTIONS] --name NAME --signer ID=PUB",
        ),
        (
            "bench m.aotc --iterations 5",
            "there is no argument '--iterations'; did you mean '--runs N'?",
            "aotc bench [OPTIONS] ARTIFACT",
        ),
        (
            "verify m.aotc --runs 5",
            "there is no argument '--runs'; it is an option of 'aotc bench' or 'aotc attest'",
            "aotc verify [OPTIONS] ARTIFACT",
        ),
        *(
            (f"verify m.aotc {word} k", f"there is no argument '{word}'; {meant}", VERIFY)
            for word, meant in {
                "--artifact": "ARTIFACT stands without an option",
                "--pubkey": "did you mean '--key PUB'?",
                "--certificate-identity": "did you mean '--trust FILE'?",
                "--tagret": "did you mean '--target'?",
            }.items()
        ),
        (
            "verify m.aotc --format json",
            "argument --format: 'json' is not one of 'text', 'github'; did you mean '--json'?",
            VERIFY,
        ),
        (
            "completion basch",
            "argument SHELL: 'basch' is not one of 'bash', 'zsh', 'fish'; did you mean 'bash'?",
            "aotc completion [OPTIONS] SHELL",
        ),
        (
            "completion powershell",
            "argument SHELL: 'powershell' is not one of 'bash', 'zsh', 'fish'.",
            "aotc completion [OPTIONS] SHELL",
        ),
        *(
            (words, f"there is no argument {words.split()[2]!r}{meant}", f"aotc {usage}")
            for words, meant, usage in (
                (
                    "pack m.aotc b.zip",
                    "; did you mean '--output b.zip'?",
                    "pack [OPTIONS] ARTIFACT",
                ),
                ("run m.aotc x.npz", "; did you mean '--input x.npz'?", "run [OPTIONS] ARTIFACT"),
                ("verify m.aotc n.aotc", "", "verify [OPTIONS] ARTIFACT"),
                ("build a.onnx out", "; did you mean '--output out'?", "build [OPTIONS] MODEL"),
                (
                    "install m.aotc --to x",
                    "; did you mean '--store DIR'?",
                    "install [OPTIONS] ARTIFACT",
                ),
            )
        ),
        (
            "unpack a.zip -C d",
            "there is no argument '-C'; did you mean '--output NAME.aotc'?",
            "aotc unpack [OPTIONS] ARCHIVE",
        ),
        (
            "bench m.aotc --allow 2",
            "--allow needs --baseline",
            "aotc bench [OPTIONS] ARTIFACT",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_was_meant(
    words: str, what: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.splitlines() if "not finished" not in line]
    prog = usage.split(" [")[0].removesuffix(" COMMAND ...")
    where = "--allow" if "--allow" in words else prog
    assert lines == [
        "error: AOTC-I027 argument is not valid",
        f"  what:     {what}",
        f"  where:    {where}",
        f"  usage:    {usage}",
        f"  fix:      See '{prog} --help'.",
    ]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--precision half", "this is not a valid precision; did you mean 'float16'?"),
        ("--precision FP32", "this is not a valid precision; did you mean 'keep'?"),
        ("--precision fp23", "this is not a valid precision"),
        ("--profile fp16", "no such profile: 'fp16'; did you mean '--precision float16'?"),
        ("--profile gpu", "no such profile: 'gpu'; did you mean '--profile server-cuda'?"),
        ("--target hots", "no such target: 'hots'; did you mean 'host'?"),
        ("--target cuda", "no such target: 'cuda'; did you mean '--profile server-cuda'?"),
    ],
)
def test_words_of_other_tools_as_values(
    words: str, what: str, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert cli.main(["build", "m.onnx", "-q", "-o", f"{tmp_path}/m.aotc", *words.split()]) in (2, 3)
    assert f"  what:     {what}\n" in capsys.readouterr().err
