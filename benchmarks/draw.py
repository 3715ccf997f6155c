"""Write the tables and the picture of docs/performance.md from measured figures, and report the targets that were
missed.

    python benchmarks/draw.py results.json own.json [results.json own.json]...

`results.json` is the output of `compare.py`, `own.json` the output of `own.py`. For several runs the page shows medians
and ranges. Only the text between the marks in docs/performance.md is replaced; the rest is written by hand.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from own import TARGETS, WORKLOADS

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"
PICTURE = DOCS / "performance.svg"

MACHINE = ("system", "cpus", "python", "started")
"""The machine, as `compare.py` describes it."""

Samples = dict[str, dict[str, list[dict[str, float]]]]
Figures = dict[str, dict[str, float]]


class Measure(NamedTuple):
    """One line of the comparison: its samples and its target."""

    title: str
    job: str
    key: str
    unit: str
    target: float
    scale: float = 1.0


MEASURES = (
    Measure("a turn with one tool call, 100 turns", "turns100", "x_floor", "x", 8),
    Measure("the same, 400 turns", "turns400", "x_floor", "x", 0),
    Measure("a delegation", "delegation", "x_floor", "x", 15),
    Measure("a level of nesting", "chain", "x_floor", "x", 12),
    Measure("1,000 children: CPU per child", "fan1000", "cpu_ms", "ms", 0.20, 1 / 1000),
    Measure("1,000 children: wall over the 150 ms ideal", "fan1000", "wall_ms", "x", 2, 1 / 150),
    Measure("1,000 children: memory per child", "fan1000", "rss_kb_per_child", "KB", 15),
    Measure("function calls per turn, turns 26 to 50", "calls", "calls_per_turn_25_50", "", 0),
    Measure("function calls per turn, turns 51 to 100", "calls", "calls_per_turn_50_100", "", 0),
    Measure("function calls per delegation", "calls", "calls_per_delegation", "", 0),
    Measure("import: CPU", "import", "import_cpu_ms", "ms", 120),
    Measure("import: CPU, over that of `asyncio` and `json` alone", "import", "x_floor", "x", 2),
    Measure("import: memory", "import", "rss_mb", "MB", 28),
)
PEERS = {
    "ours": "remit",
    "ours_journal": "remit with a journal",
    "floor_rich": "a sketch of a lean runtime",
    "agent_framework": "agent-framework",
}


def compare_imports(samples: Samples) -> None:
    """Add the ratio of each import time to the bare loop's in the same round."""
    bare = samples.get("import", {}).get("floor", [])
    for found in samples.get("import", {}).values():
        for one, alone in zip(found, bare, strict=False):
            if "import_cpu_ms" in one and "import_cpu_ms" in alone:
                one["x_floor"] = one["import_cpu_ms"] / alone["import_cpu_ms"]


def medians(runs: Sequence[Samples], one: Measure, peer: str) -> list[float]:
    """The median of the rounds of each run."""
    found: list[float] = []
    for samples in runs:
        rounds = [row[one.key] for row in samples.get(one.job, {}).get(peer, []) if one.key in row]
        found += [statistics.median(rounds) * one.scale] if rounds else []
    return found


def shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 2 if value < 1 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}{unit if unit == 'x' else f' {unit}' if unit else ''}"


def middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def between(values: Sequence[float], unit: str) -> str:
    least, most = shown(min(values), ""), shown(max(values), unit)
    return most if shown(min(values), unit) == most else f"{least} to {most}"


def counted(runs: Sequence[object]) -> str:
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}"


def held(values: Sequence[float], target: float) -> str:
    good = sum(value <= target for value in values)
    return f"{good} of {len(values)}"


def comparison(runs: Sequence[Samples]) -> list[str]:
    peers = [peer for peer in PEERS if any(peer in of for samples in runs for of in samples.values())]
    ours, *others = [PEERS[peer] for peer in peers]
    head = [ours, f"in {counted(runs)}", "target", "held in", *others]
    lines = [f"| | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
    for one in MEASURES:
        values = [medians(runs, one, peer) for peer in peers]
        mine = values[0]
        cells = [shown(middle(mine), one.unit), between(mine, one.unit) if mine else ""]
        cells += [f"<= {shown(one.target, one.unit)}", held(mine, one.target)] if one.target else ["", ""]
        cells += [shown(middle(some), one.unit) for some in values[1:]]
        lines.append(f"| {one.title} | {' | '.join(cells)} |")
    return lines


def own_table(runs: Sequence[Figures]) -> list[str]:
    lines = [
        f"| workload | remit | bare loop | ratio | besides; in {counted(runs)} | target | held in |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    names = [name for name, found in runs[-1].items() if isinstance(found, dict)]
    return lines + [_own_line(name, [run[name] for run in runs if name in run]) for name in names]


BESIDES = {
    "on_against_off": "on against off",
    "read_against_unread": "read against unread",
    "of_16_wall_ms": "ms with 16 at work at once",
    "us_per_turn": "us per turn",
    "us_per_run": "us per run",
}


def _own_line(name: str, found: Sequence[dict[str, float]]) -> str:
    keys = [key for key in found[-1] if key != "what"]
    first = next(key for key in keys if key.endswith(("_cpu_ms", "_wall_ms")))
    kind = first.rpartition("_")[0].rpartition("_")[2]
    each = {key: [one[key] for one in found if key in one] for key in keys}
    told = [key for key in BESIDES if key in each and not (key == "us_per_run" and "us_per_turn" in each)]
    besides = [f"{BESIDES[key]} {_figure(key, each[key])}" for key in told]
    if "rss_mb_at_the_end" in each:
        before, after = middle(each["rss_mb_after_10000"]), middle(each["rss_mb_at_the_end"])
        besides.append(f"{before:.1f} MB after 10,000, {after:.1f} MB after 100,000")
    key, most = TARGETS.get(name, ("", 0.0))
    unit = " ms" if key.endswith("_ms") else ""
    target = [f"<= {most:g}{unit}", held(each[key], most)] if key else ["", ""]
    if key and key not in BESIDES:
        besides.append(f"{between(each[key], unit.strip())}")
    cells = [f"{middle(each[first]):,.0f} ms", f"{middle(each[f'bare_{kind}_ms']):,.0f} ms"]
    cells += [f"{middle(each['ratio']):.1f}x", "; ".join(besides), *target]
    return f"| **{name}**: {str(found[-1]['what']).rstrip('.')} | {' | '.join(cells)} |"


def _figure(key: str, values: Sequence[float]) -> str:
    """The median; for ratios also the range."""
    digits = 2 if "against" in key else 1
    said = f"{statistics.median(values):,.{digits}f}"
    if "against" in key and len(values) > 1:
        said += f" ({min(values):.2f} to {max(values):.2f})"
    return said


def verdicts(runs: Sequence[Samples], own: Sequence[Figures]) -> list[str]:
    """A line for each target that was missed in some run. A target without a measurement counts as missed."""
    wanted = [(one.title, medians(runs, one, "ours"), one.unit, one.target) for one in MEASURES if one.target]
    for name, (key, most) in TARGETS.items():
        found = [run[name][key] for run in own if key in run.get(name, {})]
        wanted.append((f"{name}, {key}", found, "", most))
    missed: list[str] = []
    for title, values, unit, target in wanted:
        # `<=`, not `>`: NaN is not above any number.
        if len(values) < len(runs) or not all(value <= target for value in values):
            # Two digits: one digit could show the target itself.
            went = f"{min(values):,.2f} to {max(values):,.2f}{unit}" if values else "not measured"
            missed.append(f"{title}: {went}, held in {held(values, target)}, target <= {target:g}{unit}")
    return missed


def picture(runs: Sequence[Samples]) -> str:
    """Bars on a logarithmic scale: how many times the bare loop."""
    rows = [one for one in MEASURES if one.key == "x_floor" and one.job != "import" and one.target]
    peers = [peer for peer in PEERS if any(peer in of for samples in runs for of in samples.values())]
    colours = dict(zip(PEERS, ("#2563eb", "#93c5fd", "#94a3b8", "#f59e0b"), strict=True))
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
            value = middle(medians(runs, one, peer))
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
        # Text last, with a white outline: the target's line would cross it.
        parts += [goal, *labels]
        y += 22
    parts.append(f'<text x="{left + width - 190}" y="20" fill="#dc2626">red line: the target</text></svg>')
    return "\n".join(parts) + "\n"


def fill(page: str, name: str, lines: list[str]) -> str:
    """The page with the text between the marks of that name replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    assert pattern.search(page), f"docs/performance.md has no {begin}"
    return pattern.sub(lambda _: "\n".join([begin, "", *lines, "", end]), page)


def read(name: str, has: Sequence[str], source: str) -> dict[str, Any]:
    """The figures in a file. Exits if the file has none."""
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{name} cannot be read: {error}. It must be the output of {source}.")
    for key in has:
        if not isinstance(found, dict) or key not in found:
            sys.exit(f"{name} has no {key!r}. It must be the output of {source}.")
    return found


def check_whole(name: str, lacks: Sequence[str], again: str) -> None:
    """Exits if figures are missing: the page would silently lose lines."""
    if lacks:
        sys.exit(f"{name} lacks figures for {', '.join(lacks)}. The page needs all of them: {again}.")


def main() -> None:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return
    files = sys.argv[1:]
    if not files or len(files) % 2:
        sys.exit(__doc__)
    results = [read(name, ("samples", "machine", "versions"), "compare.py") for name in files[::2]]
    for one, name in zip(results, files[::2], strict=True):
        check_whole(
            name, [key for key in MACHINE if key not in one["machine"]], "measure again with compare.py"
        )
    own = [read(name, ("rounds",), "own.py --out") for name in files[1::2]]
    runs: list[Samples] = [one["samples"] for one in results]
    for samples, name in zip(runs, files[::2], strict=True):
        compare_imports(samples)
        lacks = [one.title for one in MEASURES if not medians([samples], one, "ours")]
        check_whole(name, lacks, "measure `floor` and `ours` with compare.py, in all groups")
    for figures, name in zip(own, files[1::2], strict=True):
        lacks = [workload for workload in WORKLOADS if workload not in figures]
        check_whole(name, lacks, "run own.py without --only")
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in (
        ("machine", [_machine(results, own)]),
        ("comparison", comparison(runs)),
        ("own", own_table(own)),
    ):
        page = fill(page, name, lines)
    PAGE.write_text(page, encoding="utf-8")
    PICTURE.write_text(picture(runs), encoding="utf-8")
    print(f"wrote {PAGE} and {PICTURE}")
    missed = verdicts(runs, own)
    print("\n".join(["missed:", *missed]) if missed else "all targets held")


def _machine(results: Sequence[dict[str, Any]], own: Sequence[dict[str, Any]]) -> str:
    machine = results[-1]["machine"]
    rounds = max((len(some) for some in results[-1]["samples"].get("delegation", {}).values()), default=0)
    processor = own[-1].get("processor") or "unknown processor"
    where = f"{machine['system']}, {machine['cpus']} cores ({processor}), Python {machine['python']}"
    where += f", {machine['started'][:10]}"
    of = f"medians of {len(results)} runs, each of which has the medians of {rounds} rounds"
    if len(results) == 1:
        of = f"medians of {rounds} rounds"
    about = f"{where}; {of}, and of {own[-1]['rounds']} for our own workloads (`soak` runs once in each)."
    if other := results[-1]["versions"].get("agent_framework"):
        about += f" agent-framework is {other}."
    return about


if __name__ == "__main__":
    main()
