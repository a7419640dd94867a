"""Merge JUnit files of `ci/gpu.sh`: `python ci/gpu_results.py FOLDER… -o FILE`.

The files `gpu-tests*.xml` of all folders, of processes or of parts, become one.  Prints how many
tests passed, failed and skipped, and the slowest.  The exit status is 1 if one failed, or if there
is none.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

_SLOWEST = 15


def main() -> int:
    """Merge, and say what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    whole = ElementTree.Element("testsuites")
    for folder in arguments.folders:
        for path in sorted(folder.glob("gpu-tests*.xml")):
            whole.extend(ElementTree.parse(path).getroot().iter("testsuite"))
    output = arguments.output
    ElementTree.ElementTree(whole).write(output, encoding="utf-8", xml_declaration=True)
    cases = list(whole.iter("testcase"))
    counts = Counter(map(_outcome, cases))
    seconds = sum(float(case.get("time", 0)) for case in cases)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())), end="")
    print(f"; {seconds:.0f} s of tests in {output}")
    for case in sorted(cases, key=lambda case: -float(case.get("time", 0)))[:_SLOWEST]:
        print(f"{float(case.get('time', 0)):8.1f} s  {case.get('classname')} {case.get('name')}")
    for case in cases:
        if _outcome(case) == "failed":
            print(f"FAILED {case.get('classname')} {case.get('name')}")
    return 1 if counts["failed"] or not cases else 0


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


if __name__ == "__main__":
    sys.exit(main())
