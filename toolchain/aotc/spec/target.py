"""Targets: descriptions of hosts, written by hand or by `host.probe`.  Schema `aotc.target/1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record
from aotc.spec.codec import Bounds, Pattern

# CPU features by which ONNX Runtime chooses its kernels (MLAS, without oneDNN), as /proc/cpuinfo
# spells them. Others (aes, bmi, ...) change neither results nor layouts.
ISA_FEATURES: Mapping[str, tuple[str, ...]] = {
    "x86_64": (
        "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni",
        "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
        "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    ),
    "aarch64": ("asimd", "asimddp", "asimdhp", "fphp", "i8mm", "bf16", "sve", "sve2", "sme"),
}  # fmt: skip

System = Literal["linux", "darwin", "windows"]
Architecture = Literal["x86_64", "aarch64"]
Version = Annotated[str, Pattern(r"\d+(\.\d+)*[A-Za-z0-9.+-]*")]


@record
class Libc:
    """The C library."""

    name: Literal["glibc", "musl", "other"]
    version: Version | None = None


@record
class Gpu:
    """One NVIDIA GPU."""

    name: str
    compute_capability: Annotated[str, Pattern(r"\d+\.\d+")]
    memory_bytes: int | None = None


@record
class Plugin:
    """An execution provider library: the distribution that holds it, or its own file name."""

    name: str
    version: str = ""
    sha256: Annotated[str, Pattern(r"[0-9a-f]{64}")] | None = None
    provider: Annotated[str, "execution provider, as ORT names it"] = ""


@record
class CustomOps:
    """A library of custom operators, by its file's name and digest."""

    name: str
    sha256: Annotated[str, Pattern(r"[0-9a-f]{64}")]
    size: Annotated[int, Bounds(0), "in bytes"]
    path: Annotated[str | None, "in the payload; None: who loads names a file that is equal"] = None
    operators: Annotated[tuple[str, ...], "of the model that are its own, as domain::op_type"] = ()
    python: Annotated[str, "ABI that it was built for, such as cpython-311; empty: any"] = ""


@record
class Target:
    """A host: what it is, and what it has.  None means unknown, which is not checked."""

    schema: Annotated[Literal["aotc.target/1"], "version of this schema"]
    name: str
    description: str = ""
    os: System = "linux"
    architecture: Annotated[str, "as uname -m says: x86_64 or aarch64"] = "x86_64"
    libc: Libc | None = None
    isa: Annotated[
        tuple[str, ...] | None, "CPU features that matter to ONNX Runtime; None: the baseline"
    ] = None
    onnxruntime: Annotated[Version | None, "installed version"] = None
    providers: Annotated[tuple[str, ...] | None, "execution providers, as ORT names them"] = None
    plugins: tuple[Plugin, ...] = ()
    python: Annotated[str | None, "ABI of extension modules, such as cpython-311"] = None
    custom_ops: Annotated[
        Mapping[str, str], "libraries of custom operators that are at hand: file names by sha256"
    ] = field(default_factory=dict)
    nvidia_driver: Version | None = None
    cuda_major: int | None = None
    gpus: tuple[Gpu, ...] = ()
    compute_capabilities: Annotated[
        tuple[Annotated[str, Pattern(r"\d+\.\d+")], ...],
        "for which GPU code is compiled; none: those of the GPUs",
    ] = ()
    probed: Annotated[bool, "found on the host itself: None means absent, not unknown"] = False
    extra: Annotated[Mapping[str, str], "free text, never checked"] = field(default_factory=dict)
