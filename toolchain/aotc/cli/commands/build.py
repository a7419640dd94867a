"""`aotc build`: from a model to a signed, proven artifact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.commands.base import respond, signer_of
from aotc.cli.grammar import Command, bare, current, examples, exclusive, formerly, new_app
from aotc.cli.options import (
    AllowExpired,
    Force,
    Format,
    IdentityToken,
    Json,
    Keyless,
    Profile,
    Reports,
    SigningKey,
    Summary,
    TrustConfig,
    TrustSource,
    pairs,
    precision_names,
    random_policies,
    target_names,
)
from aotc.spec.versions import artifact_path

if TYPE_CHECKING:
    from aotc.spec.reports import BuildReport

app = new_app()

_STATEMENTS: Final = "what the attestations say"
_REPORT: Final = "Add --report FILE, or -.md for Markdown on standard output."


@app.command(cls=Command)
@exclusive("--tune", "--tuned-from")
@exclusive("--key", "--keyless")
@exclusive("--allow-expired", "--keyless")
@exclusive("--against", "--beside")
@bare("--release", "tag")
@formerly(dims="dim", license="licence")
@examples(
    "aotc build resnet.onnx --dim batch=1..8",
    "aotc build resnet.onnx --profile server-cpu --key release.pem -o release.aotc",
)
def build(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            parser=Path,
            help="ONNX file (- is standard input), or a framework's source, such as model.pt2",
        ),
    ],
    *,
    trust_source: TrustSource = False,
    profile: Profile = "edge",
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME|FILE",
            help="host to build for: host (this machine), a built-in target, or a file",
            show_default="the profile's",
            autocompletion=target_names,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            metavar="NAME",
            help="keep, tf32, float16 (or fp16), bfloat16 (or bf16), int8, int4, or auto: the "
            "quickest that passes",
            show_default="the profile's",
            autocompletion=precision_names,
        ),
    ] = None,
    random: Annotated[
        str | None,
        typer.Option(
            "--random",
            metavar="POLICY",
            help="what holds for random numbers: seed (each call draws anew from the model's), "
            "free (calls go on), as-input (calls pass them), refuse, or auto: seed if it has "
            "seeds, else free",
            show_default="the profile's",
            autocompletion=random_policies,
        ),
    ] = None,
    allow_unproven: Annotated[
        bool,
        typer.Option(
            "--allow-unproven",
            help="build variants that this machine cannot run: nothing proves their answers until "
            "'aotc attest --qualify' does on the device",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="NAME.aotc",
            parser=Path,
            help="artifact to write",
            show_default="./MODEL.aotc",
        ),
    ] = None,
    key: SigningKey = None,
    allow_expired: AllowExpired = False,
    keyless: Keyless = False,
    identity_token: IdentityToken = None,
    trust_config: TrustConfig = None,
    force: Force = False,
    dims: Annotated[
        list[str],
        typer.Option(
            "--dim",
            metavar="NAME=SPEC",
            default_factory=list,
            help="fix (seq=128) or bound (batch=1..8, or 32..640:32 in steps) a dim",
        ),
    ],
    values: Annotated[
        list[str],
        typer.Option(
            "--value",
            metavar="NAME=SPEC",
            default_factory=list,
            help="state values of an input: speed=0.5..2.0, lengths=..time, or rate=8000,16000",
        ),
    ],
    fixtures: Annotated[
        Path | None,
        typer.Option(
            "--fixtures",
            metavar="PATH",
            parser=Path,
            help="inputs to compare on: a .npz, a folder of input_N.pb, or a folder of either",
            show_default="generated",
        ),
    ] = None,
    embed_fixtures: Annotated[
        bool,
        typer.Option(
            "--embed-fixtures", help="put fixtures and some calibration data into the artifact"
        ),
    ] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="PATH",
            parser=Path,
            help="samples to quantize with: a .npz, a folder of input_N.pb, or a folder of either",
            show_default="the profile's, else --fixtures",
        ),
    ] = None,
    custom_ops: Annotated[
        list[Path],
        typer.Option(
            "--custom-ops",
            metavar="LIBRARY",
            parser=Path,
            default_factory=list,
            help="register this library of operators (.so) in every session, and ship it",
        ),
    ],
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="measure the profile's candidates (providers, threads, precision) and use the "
            "fastest",
        ),
    ] = False,
    tuned_from: Annotated[
        Path | None,
        typer.Option(
            "--tuned-from",
            metavar="EVIDENCE",
            parser=Path,
            help="use the candidate that an earlier build chose: its artifact or evidence file",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="OLD.aotc",
            parser=artifact_path,
            help="earlier artifact of this model, or its sha256-ID in a store: the new one must "
            "answer as it does",
        ),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            "--beside",
            metavar="OLD.aotc",
            parser=artifact_path,
            help="earlier artifact whose size, latency and accuracy reports show beside the new "
            "one's; it judges nothing",
        ),
    ] = None,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="reuse parts from the user's cache, and add new ones to it",
        ),
    ] = True,
    builder_id: Annotated[
        str | None,
        typer.Option(
            "--builder-id",
            metavar="URI",
            help="builder in the provenance",
            show_default="$AOTC_BUILDER_ID, or urn:aotc:builder:local",
            rich_help_panel=_STATEMENTS,
        ),
    ] = None,
    invocation_id: Annotated[
        str,
        typer.Option(
            "--invocation-id",
            metavar="ID",
            help="this run of the builder, in the provenance",
            rich_help_panel=_STATEMENTS,
        ),
    ] = "",
    release: Annotated[
        str,
        typer.Option(
            "--release",
            metavar="[VERSION]",
            help="version of what is built, such as 1.4.0; without VERSION that of the CI's tag",
            rich_help_panel=_STATEMENTS,
        ),
    ] = "",
    licence: Annotated[
        str,
        typer.Option(
            "--licence",
            metavar="SPDX",
            help="licence of the model, in the bill of materials",
            rich_help_panel=_STATEMENTS,
        ),
    ] = "",
    reports: Reports,
    form: Format = None,
    summary: Summary = False,
    json: Json = False,
) -> int:
    """Build a signed artifact from an ONNX model, and prove it.

    The artifact's answers are compared with those of the model, and of an artifact that --against
    names; reports show its figures beside the new ones, and those of one that --beside names. The
    exit status is 1 if gates fail, all of which are listed, and 3 if the input must be fixed; no
    artifact is written then. --keyless signs as the identity of an OIDC token, such as
    the one of a CI job, instead of with a key. The outcome is shown on one screen, with --verbose
    in full.
    """
    from aotc.cli.output import DASH, model_given, needs
    from aotc.cli.progress import stages
    from aotc.cli.run_reporting import Run, reported

    by_identity = keyless or identity_token is not None or trust_config is not None
    artifact = output or Path("model.aotc" if str(model) == DASH else f"{model.stem}.aotc")
    stated = {"model": str(model), "profile": profile}
    if beside is not None and not reports:
        raise AotcError("AOTC-I027", "--beside is shown by reports", where="--beside", fix=_REPORT)
    with (
        reported(
            Run(
                "build",
                reports,
                form,
                json=json,
                others=(artifact, model, against, beside),
                **stated,
            )
        ) as run,
        model_given(model) as given,
        stages(quiet=json) as progress,
    ):
        ranges, stated_values = pairs(dims, "--dim"), pairs(values, "--value")
        with needs("build", "cpu"):
            from aotc.pipeline.build import build as run_pipeline
        # What is wrong with who signs is told before anything is built.
        signer = (
            signer_of(key, keyless, identity_token, trust_config, allow_expired=allow_expired)
            if by_identity or allow_expired
            else key
        )
        if (earlier := beside or against) is not None:
            run.beside(earlier, signer)
        report = run_pipeline(
            given,
            trust_source=trust_source,
            profile=profile,
            target=target,
            precision=precision,
            random=random,
            allow_unproven=allow_unproven,
            output=output,
            key=signer,
            force=force,
            dims=ranges,
            values=stated_values,
            fixtures=fixtures,
            embed_fixtures=embed_fixtures,
            calibration=calibration,
            custom_ops=custom_ops,
            tune=tune,
            tuned_from=tuned_from,
            against=against,
            cache=cache,
            builder_id=builder_id,
            invocation_id=invocation_id,
            release=release,
            licence=licence,
            progress=progress,
            journal=run.journal,
        )
        run.ended(artifact_id=report.artifact_id, artifact=report.artifact)
    if not run.on_standard_output:
        from aotc.report.sheets.summary import build_view, built_summary
        from aotc.tools.inspect import inspect

        view = build_view if current().verbose and not summary else built_summary
        respond(report, lambda report: view(report, inspect(report.artifact)), json=json)
        if current().quiet and not json:
            _tell_unproven(report)
    return EXIT_YES


def _tell_unproven(report: BuildReport) -> None:
    """Tell on standard error, however quiet the call is to be, what nothing proves."""
    from aotc.cli.terminal import may_be_lost, write_lines

    unproven = [finding.what for finding in report.findings if finding.code == "AOTC-N002"]
    with may_be_lost(sys.stderr):
        write_lines(
            [f"{report.artifact}: NOT PROVEN: {what}" for what in unproven], file=sys.stderr
        )
