"""`--report` and `--format`: what a command judged is told in other forms, whatever its outcome."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.base.errors import EXIT_NO, EXIT_YES, AotcError, with_others
from aotc.cli.terminal import answering, may_be_lost, no_command, silence, write_lines

if TYPE_CHECKING:
    from aotc.spec.codec import Json
    from aotc.spec.payload import Finding
    from aotc.spec.reports import Refusal
    from aotc.spec.run_report import Gate, Journal, Measurement, RunReport
    from aotc.spec.trust_policy import Sealer, Signer


class Run:
    """What a command writes down of its run; nothing is kept where nobody asked for a report."""

    def __init__(
        self,
        command: str,
        files: Sequence[str],
        form: str | None,
        *,
        json: bool,
        others: Iterable[Path | None] = (),
        **subject: str,
    ) -> None:
        """`subject` are fields of the report that are known from the start, such as `model`.

        `others` are files and artifacts of the command, which no report may replace or be put into.

        Raises AOTC-I048, I019 and I027 for reports that could never be written, or would damage one
        of the `others`.
        """
        self.command = command
        self.files = tuple(files)
        on_actions = os.environ.get("GITHUB_ACTIONS") == "true"
        self.annotates = form == "github" or (form is None and on_actions)
        self.journal: Journal | None = None
        self.on_standard_output = False
        self.reader_gone = False
        self._fields: dict[str, Any] = dict(subject)
        self._started = time.monotonic()
        if not self.is_wanted:
            return
        from aotc.report.report_forms import is_standard_output, require_forms
        from aotc.spec.run_report import Journal

        require_forms(self.files, [other for other in others if other is not None])
        show_replaced(self.files)
        self.on_standard_output = any(map(is_standard_output, self.files))
        if self.on_standard_output and json:
            raise AotcError(
                "AOTC-I027", "--json and a report share standard output", where="--report -"
            )
        self.journal = Journal()

    def beside(self, artifact: Path, signer: Path | Signer | Sealer | None) -> None:
        """Show an earlier artifact's figures beside those of the run; raises AOTC-I001 without one.

        It is verified, also as signed by `signer`.
        """
        if self.journal is not None:
            from aotc.report.runs import artifact_beside

            self._fields["beside"] = artifact_beside(artifact, signer)

    @property
    def is_wanted(self) -> bool:
        """Whether there is a report to write, or something to annotate."""
        return bool(self.files) or self.annotates

    def ended(
        self,
        status: int = EXIT_YES,
        *,
        artifact: str = "",
        artifact_id: str = "",
        gates: Iterable[Gate] = (),
        breaches: Iterable[Refusal] = (),
        findings: Iterable[Finding] = (),
        measurements: Iterable[Measurement] = (),
        answer: Json = None,
    ) -> None:
        """Write down how a run ended that was not refused; `status` is its exit status."""
        if self.journal is None:
            return
        self.journal.judged(gates)
        self.journal.measured(measurements)
        self.journal.noticed(findings)
        self._fields |= {
            **({"artifact": artifact} if artifact else {}),
            "artifact_id": artifact_id,
            "exit_status": status,
            "refusals": tuple(breaches),
            "answer": answer,
            "outcome": {EXIT_YES: "passed", EXIT_NO: "failed"}.get(status, "error"),
        }

    def record(self) -> RunReport:
        """The record of the run."""
        from aotc.report.wording import title_of
        from aotc.spec.run_report import NoticedFinding, RunReport
        from aotc.spec.versions import VERSION

        assert self.journal is not None
        journal = self.journal
        noticed = tuple(
            NoticedFinding(
                code=each.code, title=title_of(each.code), what=each.what, where=each.where
            )
            for each in journal.findings
        )
        fields = {"target": journal.target, "model_sha256": journal.model_sha256, **self._fields}
        return RunReport(
            tool_version=VERSION,
            command=self.command,
            gates=journal.gates,
            findings=noticed,
            measurements=journal.measurements,
            blamed=journal.blamed,
            stages=dict(journal.stages),
            seconds=time.monotonic() - self._started,
            **fields,
        )

    def refused(self, error: AotcError) -> None:
        """Write down that the run ended with a refusal."""
        from aotc.cli.output import error_answer

        self.ended(error.exit_status, breaches=error_answer(error).errors)

    def write(self) -> list[AotcError]:
        """Write every report; what could not be written.

        What reads standard output may have gone: that report is the last, and where it has no
        reader `reader_gone` is set.
        """
        from aotc.report.github_annotations import annotation_lines
        from aotc.report.report_forms import is_standard_output, write_report

        report, failed = self.record(), []
        if self.annotates:
            with may_be_lost(sys.stderr):
                sys.stderr.writelines(f"{line}\n" for line in annotation_lines(report))
        for file in sorted(self.files, key=is_standard_output):
            try:
                if is_standard_output(file):
                    _write_out(report, file)
                else:
                    write_report(report, file)
            except AotcError as error:
                failed.append(error)
            except BrokenPipeError:
                silence(sys.stdout)
                self.reader_gone = True
        return failed


def _write_out(report: RunReport, file: str) -> None:
    from aotc.report.report_forms import lost_report, report_text

    try:
        text = report_text(report, file)
    except Exception as error:
        raise lost_report(file, f"{type(error).__name__}: {error}") from error
    with answering(sys.stdout):
        sys.stdout.writelines(map(no_command, text.splitlines(keepends=True)))
        sys.stdout.flush()


def show_replaced(files: Iterable[str]) -> None:
    """Tell on standard error which files reports are going to replace that are no reports.

    A file that the configuration of a folder names is refused before this; one that the user names
    is the user's choice.
    """
    from aotc.report.report_forms import is_replaceable, is_standard_output

    for file in files:
        try:
            replaceable = is_standard_output(file) or is_replaceable(file)
        except OSError:
            continue
        if not replaceable:
            with may_be_lost(sys.stderr):
                said = f"--report {file}: replaces a file that is not a report of aotc"
                write_lines([said], file=sys.stderr)


def show_lost(lost: Iterable[AotcError]) -> None:
    """Tell on standard error of files that could not be written beside a judgement that stands."""
    from aotc.cli.output import error_lines

    with may_be_lost(sys.stderr):
        for each in lost:
            write_lines(error_lines(each), file=sys.stderr)


@contextmanager
def reported(run: Run) -> Iterator[Run]:
    """A run whose reports are written when it ends, whether it answers, is refused or breaks off.

    A report that cannot be written is an AOTC-I047 after a success. After anything else the outcome
    stays what it was, and the lost report is told with it.
    """
    if not run.is_wanted:
        yield run
        return
    try:
        yield run
    except AotcError as error:
        run.refused(error)
        error.also = (*error.also, *run.write())
        raise
    except KeyboardInterrupt:
        run.refused(AotcError("AOTC-I025", "the command was interrupted"))
        run.write()
        raise
    except BrokenPipeError:
        raise
    except Exception as error:
        from aotc.base.files.failures import uncaught_refusal

        what = f"{type(error).__name__}: {error}"
        run.refused(uncaught_refusal(error) or AotcError("AOTC-R999", what))
        run.write()
        raise
    lost = run.write()
    if not lost:
        if run.reader_gone:
            raise BrokenPipeError
        return
    if run.record().exit_status == EXIT_YES:
        raise with_others(lost)
    show_lost(lost)
