"""One run of the benchmarks: what is wanted, what is done already, and where results are kept."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.gpu import results
from benchmarks.gpu.cases import NETWORKS, Network, Only, Settings
from benchmarks.gpu.child import ChildFailedError, records


@dataclass(slots=True, kw_only=True)
class Run:
    """`sources` is the digest of the toolchain: other sources are measured anew."""

    settings: Settings
    out: Path
    networks: tuple[str, ...]
    machine: dict[str, str]
    sources: str
    again: bool = False
    only: Only = field(default_factory=Only)
    failed: list[str] = field(default_factory=list)
    _keeping: Lock = field(default_factory=Lock)

    @property
    def files(self) -> tuple[Path, ...]:
        """Beside the models for the next run, and where the caller asked for it."""
        # Trials, and exports at another opset, are results of their own.
        kind = f"-{self.settings.opset}" if self.settings.opset != 18 else ""
        kind += "-trial" if self.settings.small or self.settings.cpu else ""
        paths = (self.settings.folder / f"results{kind}.jsonl", self.out / f"gpu{kind}.jsonl")
        return tuple({path.resolve(): path for path in paths}.values())

    def wants(self, row: str, case: str) -> bool:
        """Whether a case is still to be measured."""
        kept = [record for path in self.files for record in results.read(path)]
        return self.again or (row, case) not in results.done(kept, self.sources)

    def cases(
        self, row: str, names: Collection[str] = NETWORKS
    ) -> Iterator[tuple[str, Network, Path]]:
        """The case, the network and its exported model of each that a row is still to measure.

        Such rows take the first precision alone, and of the networks those of `names`.
        """
        for network in (NETWORKS[name] for name in self.networks if name in names):
            case = f"{network.name}/{self.settings.precisions(network)[0]}"
            if self.wants(row, case):
                yield case, network, self.settings.model(network.name)

    def keep(self, row: str, record: dict[str, Any]) -> None:
        """Write a record, and show it; for any thread."""
        whole = {
            "row": row,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": self.machine,
            "sources": self.sources,
            **record,
        }
        with self._keeping:
            for path in self.files:
                results.append(path, whole)
        if why := results.why_failed(whole):
            self.failed.append(f"{row} {record['case']}: {why}")
        shown = {name: value for name, value in record.items() if name not in ("case", "samples")}
        if "samples" in record:
            from benchmarks.gpu.timing import milliseconds

            shown = {
                **{name: round(ms, 4) for name, ms in milliseconds(record["samples"]).items()},
                **shown,
            }
        print(f"{row} {record['case']}: {shown}", flush=True)

    def keep_records(
        self,
        row: str,
        function: str,
        request: dict[str, Any],
        seconds: float,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Keep the records of a fresh process; raises ChildFailedError and OutOfTimeError."""
        for record in records(function, request, seconds=seconds, environment=environment):
            self.keep(row, record)

    @contextmanager
    def guarded(self, row: str, cases: Iterable[str]) -> Iterator[None]:
        """A failure is kept for the cases that have no result, and the run goes on."""
        try:
            yield
        except ChildFailedError as error:
            for case in cases:
                if self.wants(row, case) or self.again:
                    self.keep(row, {"case": case, "failed": str(error)})
