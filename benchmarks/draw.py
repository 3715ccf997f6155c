"""Writes docs/performance.md's tables and its picture from figures that were measured.

    python benchmarks/draw.py results.json own.json

`results.json` is what the harness that compares frameworks wrote, `own.json` what `own.py` did. Only what stands
between the marks in docs/performance.md is replaced; the words around it are written by hand.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"
PICTURE = DOCS / "performance.svg"

Samples = dict[str, dict[str, list[dict[str, float]]]]
Figures = dict[str, dict[str, float]]


class Measure(NamedTuple):
    """One line of the comparison: which samples it is made of, and what it should be."""

    title: str
    job: str
    key: str
    unit: str
    target: float
    scale: float = 1.0


MEASURES = (
    Measure("a turn with one tool call, 100 turns", "turns100", "x_floor", "x", 8),
    Measure("a delegation", "delegation", "x_floor", "x", 15),
    Measure("a level of nesting", "chain", "x_floor", "x", 12),
    Measure("1,000 children: CPU per child", "fan1000", "cpu_ms", "ms", 0.20, 1 / 1000),
    Measure("1,000 children: wall over the 150 ms ideal", "fan1000", "wall_ms", "x", 2, 1 / 150),
    Measure("1,000 children: memory per child", "fan1000", "rss_kb_per_child", "KB", 15),
    Measure("function calls per turn", "calls", "calls_per_turn_50_100", "", 0),
    Measure("function calls per delegation", "calls", "calls_per_delegation", "", 0),
    Measure("import: CPU", "import", "import_cpu_ms", "ms", 120),
    Measure("import: CPU, over that of `asyncio` and `json` alone", "import", "x_floor", "x", 2),
    Measure("import: memory", "import", "rss_mb", "MB", 28),
)
OWN_TARGETS = {"journal": "on against off <= 1.5", "cancel": "<= 150 ms"}
PEERS = {"ours": "remit", "floor_rich": "a sketch of a lean runtime", "agent_framework": "agent-framework"}


def compare_imports(samples: Samples) -> None:
    """Notes how many times as long each import took as that of the bare loop in the same round."""
    bare = samples.get("import", {}).get("floor", [])
    for found in samples.get("import", {}).values():
        for one, alone in zip(found, bare, strict=False):
            if "import_cpu_ms" in one and "import_cpu_ms" in alone:
                one["x_floor"] = one["import_cpu_ms"] / alone["import_cpu_ms"]


def median(samples: Samples, job: str, peer: str, key: str) -> float | None:
    found = [one[key] for one in samples.get(job, {}).get(peer, []) if key in one]
    return statistics.median(found) if found else None


def shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 2 if value < 1 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}{unit if unit == 'x' else f' {unit}' if unit else ''}"


def comparison(samples: Samples) -> list[str]:
    peers = [peer for peer in PEERS if any(peer in of for of in samples.values())]
    lines = [f"| | {' | '.join(PEERS[p] for p in peers)} | target |", f"|---|{'---:|' * (len(peers) + 1)}"]
    for one in MEASURES:
        values = [median(samples, one.job, peer, one.key) for peer in peers]
        cells = [shown(None if v is None else v * one.scale, one.unit) for v in values]
        target = f"<= {shown(one.target, one.unit)}" if one.target else ""
        lines.append(f"| {one.title} | {' | '.join(cells)} | {target} |")
    return lines


def own_table(figures: Figures) -> list[str]:
    lines = [
        "| workload | remit | bare loop | ratio | besides | target |",
        "|---|---:|---:|---:|---|---|",
    ]
    for name, found in figures.items():
        if not isinstance(found, dict):
            continue
        first = next(key for key in found if key.endswith(("_cpu_ms", "_wall_ms")))
        kind = first.rpartition("_")[0].rpartition("_")[2]
        bare = found[f"bare_{kind}_ms"]
        per = "us_per_turn" if "us_per_turn" in found else "us_per_run"
        keys = ("on_against_off", "read_against_unread", per)
        besides = [
            f"{key.replace('_', ' ')} {found[key]:,.{1 + ('against' in key)}f}"
            for key in keys
            if key in found
        ]
        if "rss_mb_at_the_end" in found:
            before, after = found["rss_mb_after_10000"], found["rss_mb_at_the_end"]
            besides.append(f"{before:.1f} MB after 10,000, {after:.1f} MB after 100,000")
        what = str(found["what"]).rstrip(".")
        lines.append(
            f"| **{name}**: {what} | {found[first]:,.0f} ms | {bare:,.0f} ms | {found['ratio']:.1f}x |"
            f" {'; '.join(besides)} | {OWN_TARGETS.get(name, '')} |"
        )
    return lines


def picture(samples: Samples) -> str:
    """Bars on a logarithmic scale: how many times the bare loop."""
    rows = [one for one in MEASURES if one.key == "x_floor" and one.job != "import"]
    peers = [peer for peer in PEERS if any(peer in of for of in samples.values())]
    colours = dict(zip(PEERS, ("#2563eb", "#94a3b8", "#f59e0b"), strict=True))
    left, width, bar, top = 270, 480, 16, 46
    height = top + len(rows) * (len(peers) * bar + 22) + 30
    most = 200.0

    def at(value: float) -> float:
        return left + width * math.log10(max(1.0, value)) / math.log10(most)

    box = f'viewBox="0 0 {left + width + 180} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="12" fill="#334155">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<text x="10" y="20" font-size="14" font-weight="bold">CPU, as a multiple of a bare asyncio loop (logarithmic)</text>',
    ]
    for tick in (1, 2, 5, 10, 20, 50, 100, 200):
        parts.append(
            f'<line x1="{at(tick):.0f}" x2="{at(tick):.0f}" y1="{top - 10}" y2="{height - 26}" stroke="#e2e8f0"/>'
        )
        parts.append(f'<text x="{at(tick):.0f}" y="{height - 10}" text-anchor="middle">{tick}x</text>')
    y = top
    for one in rows:
        parts.append(f'<text x="10" y="{y + 13}">{one.title}</text>')
        x, end = at(one.target), y + bar * len(peers)
        goal = (
            f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{y - 3}" y2="{end}" stroke="#dc2626" stroke-width="1.5"/>'
        )
        labels: list[str] = []
        for peer in peers:
            value = median(samples, one.job, peer, one.key)
            if value is None:
                continue
            parts.append(
                f'<rect x="{left}" y="{y}" width="{at(value) - left:.0f}" height="{bar - 3}" fill="{colours[peer]}"/>'
            )
            labels.append(
                f'<text x="{at(value) + 5:.0f}" y="{y + 11}" stroke="#ffffff" stroke-width="4" paint-order="stroke">'
                f"{PEERS[peer]} {value:.1f}x</text>"
            )
            y += bar
        # Letters last, with white around them: the target's line would strike them out.
        parts += [goal, *labels]
        y += 22
    parts.append(f'<text x="{left + width - 190}" y="20" fill="#dc2626">red line: the target</text></svg>')
    return "\n".join(parts) + "\n"


def fill(page: str, name: str, lines: list[str]) -> str:
    """The page with what stands between the marks of that name replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    assert pattern.search(page), f"docs/performance.md has no {begin}"
    return pattern.sub(lambda _: "\n".join([begin, "", *lines, "", end]), page)


def read(name: str, has: str, source: str) -> dict[str, Any]:
    """The figures in a file. Ends the program where there are none."""
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{name} cannot be read: {error}. It should be what {source} wrote.")
    if not isinstance(found, dict) or has not in found:
        sys.exit(f"{name} has no {has!r}. It should be what {source} wrote.")
    return found


def main() -> None:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    results, own = read(sys.argv[1], "samples", "the harness"), read(sys.argv[2], "rounds", "own.py --out")
    compare_imports(results["samples"])
    machine = results["machine"]
    rounds = len(next(iter(results["samples"]["delegation"].values())))
    where = (
        f"{machine['system']}, {machine['cpus']} cores, Python {machine['python']}, {machine['started'][:10]}"
    )
    about = [
        f"{where}; medians of {rounds} rounds, and of {own['rounds']} for our own workloads (`soak` runs once)."
    ]
    if other := results["versions"].get("agent_framework"):
        about[0] += f" agent-framework is {other}."
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in (
        ("machine", about),
        ("comparison", comparison(results["samples"])),
        ("own", own_table(own)),
    ):
        page = fill(page, name, lines)
    PAGE.write_text(page, encoding="utf-8")
    PICTURE.write_text(picture(results["samples"]), encoding="utf-8")
    print(f"wrote {PAGE} and {PICTURE}")


if __name__ == "__main__":
    main()
