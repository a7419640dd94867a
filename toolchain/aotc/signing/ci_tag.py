"""The version that a CI system builds: that of the tag which started its job."""

from __future__ import annotations

import os
import re
from typing import Final

from aotc.contract.versions import RELEASE
from aotc.errors import AotcError

TAG: Final = "tag"
"""What stands for the CI's tag in place of a version."""
# GitLab's, Buildkite's and CircleCI's own documentation of the variables of a job.
_TAG_VARIABLES: Final = ("CI_COMMIT_TAG", "BUILDKITE_TAG", "CIRCLE_TAG")


def release_of_tag() -> str:
    """The version in the tag of this CI job: `1.4.0` of the tag `1.4.0` or `v1.4.0`.

    The tag is $GITHUB_REF_NAME where $GITHUB_REF_TYPE is "tag", else the first of $CI_COMMIT_TAG,
    $BUILDKITE_TAG and $CIRCLE_TAG that is set.  Raises AOTC-I068 without a tag, and I069 if the tag
    is not a version.
    """
    variable, tag = _tag()
    version = tag.removeprefix("v")
    if not re.fullmatch(RELEASE, version):
        raise AotcError(
            "AOTC-I069",
            "the tag of this CI job is not a version",
            where=f"${variable}",
            expected="one to four numbers, such as 1.4.0 or v1.4.0",
            found=tag,
        )
    return version


def _tag() -> tuple[str, str]:
    """The variable with the tag, and the tag."""
    if os.environ.get("GITHUB_REF_TYPE") == "tag" and os.environ.get("GITHUB_REF_NAME"):
        return "GITHUB_REF_NAME", os.environ["GITHUB_REF_NAME"]
    for name in _TAG_VARIABLES:
        if os.environ.get(name):
            return name, os.environ[name]
    branch = os.environ.get("GITHUB_REF_NAME") or os.environ.get("CI_COMMIT_BRANCH") or ""
    raise AotcError(
        "AOTC-I068",
        "there is no tag to take the release from",
        where="--release",
        expected="a CI job that a tag started, or a version",
        found=f"a job for {branch}" if branch else "",
    )
