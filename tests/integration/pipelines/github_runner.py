"""A job of a workflow, run as GitHub's runner does: its shell steps, its files, its expressions.

Source: GitHub's documentation of workflow commands and contexts.  Only what the workflows use is
known: anything else in an expression is an error.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


@dataclass
class Step:
    """One step that was run or, for an action of somebody else, would be."""

    name: str
    status: int | None
    output: str
    inputs: Mapping[str, str]


@dataclass
class Runner:
    """A job: its checkout, its temporary folder, its variables, and what its steps did."""

    workspace: Path
    temp: Path
    variables: dict[str, str]
    contexts: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    summary: str = ""
    left_out: frozenset[str] = frozenset()
    """Steps that do not run, as what they make is there already."""

    def run(self, workflow: str) -> int:
        """Run the only job of a workflow of the checkout; returns the first failure."""
        text = (self.workspace / ".github" / "workflows" / workflow).read_text(encoding="utf-8")
        (job,) = yaml.safe_load(text)["jobs"].values()
        self.steps.clear()
        outcomes: dict[str, dict[str, str]] = {}
        self.contexts["steps"] = outcomes
        failed = 0
        for step in job["steps"]:
            name = step.get("name") or step.get("uses", step.get("run")).partition("@")[0]
            outcome = outcomes.setdefault(step.get("id", name), {"outcome": "skipped"})
            condition = step.get("if", "")
            if (failed and "always()" not in condition) or not self._holds(condition):
                continue
            if name in self.left_out:
                continue
            if "uses" in step:
                given = {key: self._text(value) for key, value in step["with"].items()}
                self.steps.append(Step(name, None, "", given))
                continue
            status = self._run_step(name, step)
            outcome["outcome"] = "failure" if status else "success"
            failed = failed or status
        return failed

    def step(self, name: str) -> Step:
        """The one step of this name that was reached."""
        (found,) = (each for each in self.steps if each.name == name)
        return found

    def _run_step(self, name: str, step: Mapping[str, Any]) -> int:
        summary = self.temp / f"summary-{len(self.steps)}"
        summary.write_text("")
        environment = {
            **self.variables,
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_STEP_SUMMARY": str(summary),
            **{key: self._text(value) for key, value in step.get("env", {}).items()},
        }
        # An expression in a script would be code that somebody else writes.
        assert "${{" not in step["run"]
        script = self.temp / f"step-{len(self.steps)}.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", str(script)],
            cwd=self.workspace / step.get("working-directory", "."),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.steps.append(Step(name, done.returncode, done.stdout, {}))
        self.summary += summary.read_text(encoding="utf-8")
        return done.returncode

    def _holds(self, condition: str) -> bool:
        """Whether all terms of a condition hold; an empty one does."""
        for term in filter(None, (each.strip() for each in condition.split("&&"))):
            if term == "always()":
                continue
            left, sign, right = term.partition(" != ")
            if sign:
                # GitHub compares texts without regard to case.
                if str(self._value(left)).lower() == right.strip("'").lower():
                    return False
            elif term.startswith("!"):
                if self._value(term[1:]):
                    return False
            else:
                raise AssertionError(term)
        return True

    def _text(self, template: str | bool) -> str:
        return _EXPRESSION.sub(lambda found: str(self._value(found[1])), str(template))

    def _value(self, expression: str) -> Any:
        for each in expression.split(" || "):
            found: Any = self.contexts
            for word in each.split("."):
                found = found.get(word) or "" if isinstance(found, Mapping) else ""
            if found:
                return found
        return ""
