"""The shell steps of a composite action, run as GitHub's runner does: its files, its expressions.

Source: GitHub's documentation of workflow commands, contexts and composite actions.  Only what the
action uses is known: anything else in an expression is an error.
"""

from __future__ import annotations

import os
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
    """A job: its folder, its temporary folder, its variables, and what its steps stated."""

    workspace: Path
    temp: Path
    action: Path
    variables: dict[str, str]
    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    left_out: frozenset[str] = frozenset()
    """Steps that do not run, as what they make is there already."""

    def run(self, **inputs: str) -> int:
        """Run the action; its inputs are named with `_` for `-`.  Returns the first failure."""
        document = yaml.safe_load(self.action.read_text())
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert set(given) <= set(document["inputs"])
        stated = {
            name: given.get(name, spec.get("default")) for name, spec in document["inputs"].items()
        }
        assert None not in stated.values(), "an input is required"
        contexts: dict[str, Any] = {
            "inputs": stated,
            "runner": {"temp": str(self.temp), "os": "Linux", "arch": "X64"},
            "github": {
                "job": "build",
                "run_id": self.variables["GITHUB_RUN_ID"],
                "run_attempt": self.variables["GITHUB_RUN_ATTEMPT"],
            },
        }
        failed, path = 0, [self.variables["PATH"]]
        for step in document["runs"]["steps"]:
            if step["name"] in self.left_out:
                continue
            if failed and "always()" not in step.get("if", ""):
                continue
            if not self._wanted(step.get("if", ""), contexts):
                continue
            if "uses" in step:
                inputs_of = {
                    key: self._text(value, contexts) for key, value in step["with"].items()
                }
                self.steps.append(Step(step["name"], None, "", inputs_of))
                continue
            assert step["shell"] == "bash"
            status = self._run_step(step, contexts, path)
            failed = failed or status
        return failed

    def step(self, name: str) -> Step:
        """The one step of this name that was reached."""
        (found,) = (each for each in self.steps if each.name == name)
        return found

    def _run_step(
        self, step: Mapping[str, Any], contexts: Mapping[str, Any], path: list[str]
    ) -> int:
        files = {
            name: self.temp / f"{name}-{len(self.steps)}"
            for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
        }
        for file in files.values():
            file.touch()
        environment = {
            **self.variables,
            "PATH": os.pathsep.join(path),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTION_PATH": str(self.action.parent),
            **{name: str(file) for name, file in files.items()},
            **{key: self._text(value, contexts) for key, value in step.get("env", {}).items()},
        }
        # An expression in a script would be code that an input writes.
        assert "${{" not in step["run"]
        script = self.temp / f"step-{len(self.steps)}.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.steps.append(Step(step["name"], done.returncode, done.stdout, {}))
        self.outputs[step.get("id", "")] = outputs_in(files["GITHUB_OUTPUT"].read_text())
        self.outcomes[step.get("id", "")] = "failure" if done.returncode else "success"
        path[:0] = files["GITHUB_PATH"].read_text().splitlines()[::-1]
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        return done.returncode

    def _wanted(self, condition: str, contexts: Mapping[str, Any]) -> bool:
        """Whether all comparisons of a condition hold; an empty one does."""
        stated = condition.removeprefix("${{").removesuffix("}}")
        for term in filter(None, (each.strip() for each in stated.split("&&"))):
            if term == "always()":
                continue
            left, sign, right = term.split()
            # GitHub compares texts without regard to case.
            equal = self._value(left, contexts).lower() == right.strip("'").lower()
            if equal is not (sign == "=="):
                return False
        return True

    def _text(self, template: str, contexts: Mapping[str, Any]) -> str:
        return _EXPRESSION.sub(lambda found: self._value(found[1], contexts), str(template))

    def _value(self, expression: str, contexts: Mapping[str, Any]) -> str:
        words = expression.split(".")
        if words[0] == "steps" and words[2] == "outputs":
            return self.outputs.get(words[1], {}).get(words[3], "")
        if words[0] == "steps" and words[2] == "outcome":
            return self.outcomes.get(words[1], "skipped")
        return str(contexts[words[0]][words[1]])


def outputs_in(text: str) -> dict[str, str]:
    """What a file of outputs states: `NAME=VALUE`, or `NAME<<END` and lines up to that end."""
    found: dict[str, str] = {}
    # As the runner does: other characters that end a line in Unicode are text.
    lines = iter(text.removesuffix("\n").split("\n") if text else ())
    for line in lines:
        stated = re.fullmatch(r"([^=<]+)(=|<<)(.*)", line, re.DOTALL)
        assert stated is not None, line
        name, sign, rest = stated.groups()
        if sign == "<<":
            block: list[str] = []
            while (each := next(lines)) != rest:
                block.append(each)
            rest = "\n".join(block)
        found[name] = rest
    return found
