"""How many workers a fleet can use: a simulation with measured times of cells, drawn as SVG.

`python -m benchmarks.fleet.speed_up [--measured FILE] [--write]`: FILE is what `ray_overhead
--models` kept with one worker; a thousand cells are made of it.  Cells are given to the worker that
is free next, the longest first, as a fleet does.  A cell costs the driver, which serves one message
at a time: it places the cell, puts the model into the object store, reads what comes back and
verifies it.  Then comes what all workers share:

- the object store, from which every model leaves the driver's machine once for each worker;
- the registry or store that takes artifacts, at one connection;
- signing: each worker signs in its own process, a service signs for all one after the other.

Each bound is drawn: so many cells a second at most, whatever the number of workers.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs" / "pictures" / "fleet-speed-up.svg"
MEASURED: Final = Path(__file__).with_name("measured.json")
_CELLS: Final = 1000
WORKERS: Final = (1, 2, 4, 8, 16, 32, 64)
# Of a network of 10 Gbit/s, and of a connection to a registry.
NETWORK_BYTES: Final = 1.25e9
REGISTRY_BYTES: Final = 100e6
# A signature by a service, such as a key management system's or sigstore's: one request.
SIGNING_SECONDS: Final = 0.25
# Bytes of a model, and how many times as long as a small one it takes.
MODELS: Final = {"small models": (0.01e6, 1.0), "models of 100 MB": (100e6, 30.0)}


def main() -> int:
    """Always 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    measured = json.loads(given.measured.read_text())
    found = curves(measured)
    for name, (points, limits) in found.items():
        print(name)
        for workers, speed in zip(WORKERS, points, strict=True):
            print(f"  {workers:3} workers: {speed:6.1f} times one")
        for what, speed in limits.items():
            print(f"  {what} would bound it at {speed:.0f} times one")
    if given.write:
        PICTURE.write_text(drawn(found))
    return 0


Curve = tuple[Sequence[float], Mapping[str, float]]


def curves(measured: Mapping[str, Any]) -> dict[str, Curve]:
    """For each kind of model: the speed-up for each of `WORKERS`, and the bounds by name."""
    cells: list[float] = measured["built"]["cell_seconds"]
    driver: float = measured["driver_cpu_seconds_by_cell"]
    overhead: float = measured["overhead_seconds"]
    found: dict[str, Curve] = {}
    for name, (size, factor) in MODELS.items():
        seconds = [factor * each for each in cells] * (_CELLS // len(cells))
        alone = sum(seconds)
        mean = alone / len(seconds)
        carried = size / NETWORK_BYTES
        # Hashed here once, put, and what came back verified: at about a gigabyte a second.
        serving = driver + 2 * size / 1e9
        points = [
            alone / simulated(seconds, workers, serving + carried, overhead) for workers in WORKERS
        ]
        found[name] = (
            points,
            {
                "the driver with its object store": mean / (serving + carried),
                "a registry": mean / (size / REGISTRY_BYTES),
                "a signing service": mean / SIGNING_SECONDS,
            },
        )
    return found


def simulated(seconds: Sequence[float], workers: int, serving: float, overhead: float) -> float:
    """How long a fleet takes: cells wait for a worker, and workers for the driver."""
    free = [0.0] * workers
    driver = end = 0.0
    for each in sorted(seconds, reverse=True):
        begins = heapq.heappop(free)
        driver = max(driver, begins) + serving
        ends = driver + each + overhead
        heapq.heappush(free, ends)
        end = max(end, ends)
    return end


# The picture: both axes by doublings.

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _STEP = 720, 400, 60, 340, 48
_COLORS: Final = ("#1f6feb", "#bc4c00")


def drawn(found: Mapping[str, Curve]) -> str:
    """The curves as SVG, with the ideal and the bounds below 64."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img" '
        'aria-label="Speed-up of a fleet by workers">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" fill="#1f2328">times as fast as one worker '
        "(simulated with measured times of cells)</text>",
    ]
    for workers in WORKERS:
        x, y = _x(workers), _y(workers)
        parts.append(f'<path d="M{x:.0f} 40V{_BOTTOM}" stroke="#d8dee4"/>')
        parts.append(f'<path d="M{_LEFT} {y:.0f}H{_x(64):.0f}" stroke="#d8dee4"/>')
        parts.append(
            f'<text x="{x:.0f}" y="{_BOTTOM + 20}" text-anchor="middle" fill="#57606a">'
            f"{workers}</text>"
        )
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end" fill="#57606a">'
            f"{workers}</text>"
        )
    parts.append(f'<text x="{_x(8):.0f}" y="{_BOTTOM + 44}" text-anchor="middle">workers</text>')
    parts.append(_line([(each, float(each)) for each in WORKERS], "#8c959f", "4 4"))
    for color, (name, (points, limits)) in zip(_COLORS, found.items(), strict=True):
        pairs = list(zip(WORKERS, points, strict=True))
        parts.append(_line(pairs, color, ""))
        parts.append(
            f'<text x="{_x(64) + 10:.0f}" y="{_y(points[-1]) + 4:.0f}" fill="{color}">{name}: '
            f"{points[-1]:.0f}</text>"
        )
        for what, speed in limits.items():
            if speed >= WORKERS[-1]:
                continue
            y = _y(max(speed, 1.0))
            parts.append(
                f'<path d="M{_LEFT} {y:.0f}H{_x(64):.0f}" stroke="{color}" stroke-dasharray="1 4"/>'
            )
            parts.append(
                f'<text x="{_LEFT + 6}" y="{y - 4:.0f}" fill="{color}" font-size="11">{what}, '
                f"{name}: {speed:.0f}</text>"
            )
    return "\n".join([*parts, "</svg>\n"])


def _x(workers: float) -> float:
    return _LEFT + 70 * _doublings(workers)


def _y(speed: float) -> float:
    return _BOTTOM - _STEP * _doublings(speed)


def _doublings(value: float) -> float:
    from math import log2

    return log2(max(value, 1.0))


def _line(points: Sequence[tuple[float, float]], color: str, dashes: str) -> str:
    path = "L".join(f"{_x(x):.1f} {_y(y):.1f}" for x, y in points)
    style = f' stroke-dasharray="{dashes}"' if dashes else ' stroke-width="2"'
    return f'<path d="M{path}" fill="none" stroke="{color}"{style}/>'


if __name__ == "__main__":
    sys.exit(main())
