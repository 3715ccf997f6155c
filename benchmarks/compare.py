"""Run every peer's workloads, interleaved, and write one results file.

    python benchmarks/compare.py setup                    create one venv per requirements file
    python benchmarks/compare.py bench [--reps 5] [--peers floor,ours] [--groups light] [--out FILE] [--append]
    python benchmarks/compare.py tables [--out FILE]      print the tables of a results file

PEERS_HOME (default: <temp dir>/peers) holds the venvs. To run a peer with another interpreter, set
PEER_PYTHON_<NAME>=path. Adapters are the files peers/peer_<name>.py; benchmarks/README.md explains the workloads and
how to add a framework.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = Path(os.environ.get("PEERS_HOME", Path(tempfile.gettempdir()) / "peers"))
OUT = Path("results.json")
ADAPTERS = HERE / "peers"

# peer -> venv (None: the interpreter running this file)
PEERS = {
    "floor": None,
    "floor_wire": None,
    "floor_rich": None,
    "ours": None,
    "ours_journal": None,
    "pydantic_ai": "pydantic_ai",
    "openai_agents": "openai_agents",
    "openai_agents_traced": "openai_agents",
    "langchain": "deepagents",
    "deepagents": "deepagents",
    "google_adk": "google_adk",
    "strands": "strands",
    "agent_framework": "agent_framework",
    "smolagents": "smolagents",
}

# group -> jobs run in one process, in this order; job -> workload:n:loops.
# Memory is only meaningful for the first job of a process (fan1000).
GROUPS = {
    "light": {
        "turns100": "turns:100:3",
        "delegation": "delegation:0:200",
        "fan10": "fan:10",
        "fan100": "fan:100",
        "chain": "chain:8:6",
    },
    "fan1000": {
        "fan1000": "fan:1000",
    },
    "turns400": {
        "turns400": "turns:400:1",
    },
    "calls": {
        "calls": "calls",
    },
}

ENV = {
    "OTEL_SDK_DISABLED": "true",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONHASHSEED": "0",
}


def python(peer):
    given = os.environ.get("PEER_PYTHON_" + peer.upper())
    if given:
        return os.path.abspath(given)
    venv = PEERS.get(peer, peer)
    return sys.executable if venv is None else str(HOME / venv / "bin" / "python")


def call(argv, timeout):
    """Every @@{json} line the command printed, and the reason if it failed."""
    env = {**os.environ, **ENV, "PYTHONPATH": os.pathsep.join(map(str, (HERE, ADAPTERS)))}
    try:
        p = subprocess.run(argv, cwd=HERE, env=env, capture_output=True, text=True, timeout=timeout)
        text, error = p.stdout, (p.stderr.strip().splitlines() or ["no output"])[-1][:300]
    except subprocess.TimeoutExpired as e:
        text, error = (e.stdout or b"").decode(), f"timeout after {timeout:.0f} s"
    return [json.loads(line[2:]) for line in text.splitlines() if line.startswith("@@")], error


def one(argv, timeout):
    rows, error = call(argv, timeout)
    return rows[-1] if rows else {"error": error}


IMPORT_PROBE = """
import time
t, c = time.perf_counter(), time.process_time()
exec({stmt!r})
t, c = time.perf_counter() - t, time.process_time() - c
import json, sys
rss = [int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmRSS")][0]
print("@@" + json.dumps(dict(import_ms=t * 1e3, import_cpu_ms=c * 1e3, rss_mb=rss / 1024, modules=len(sys.modules))))
"""


def adapter(peer):
    """The peer's adapter file."""
    return ADAPTERS / f"peer_{peer}.py"


def statement(peer):
    """IMPORT of a peer module, read without importing the framework."""
    import ast

    for node in ast.walk(ast.parse(adapter(peer).read_text())):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "IMPORT":
            if isinstance(node.value, ast.Attribute):  # IMPORT = base.IMPORT
                return None
            return ast.literal_eval(node.value)


def version(peer):
    code = (
        "import json,importlib,importlib.metadata as m;p=importlib.import_module('peer_%s');"
        "print('@@'+json.dumps({'v': p.DIST and p.DIST+' '+m.version(p.DIST)}))" % peer
    )
    return one([python(peer), "-c", code], 120).get("v")


def save(path, data):
    tmp = Path(str(path) + ".tmp")
    tmp.write_text(json.dumps(data, indent=1))
    tmp.replace(path)


def bench(a):
    peers = a.peers.split(",") if a.peers else list(PEERS)
    groups = a.groups.split(",") if a.groups else ["import", *GROUPS]
    data = {
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system() + " " + platform.machine(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
        "versions": {p: version(p) for p in peers},
        "verify": {},
        "samples": {},
    }
    if a.append and Path(a.out).exists():
        old = json.loads(Path(a.out).read_text())
        old["versions"].update(data["versions"])
        data = old
    for p in peers:
        data["verify"][p] = one([python(p), "worker.py", p, "verify"], 300)
        print("verify", p, data["verify"][p].get("error", "ok"), flush=True)
    good = [p for p in peers if "error" not in data["verify"][p]]
    rng = random.Random(time.time())
    for rep in range(a.reps):
        for group in groups:
            order = good[:]
            rng.shuffle(order)
            for p in order:
                t = time.time()
                if group == "import":
                    stmt = statement(p)
                    if stmt is None:
                        continue
                    got = [{"job": "import", **one([python(p), "-c", IMPORT_PROBE.format(stmt=stmt)], 120)}]
                else:
                    want = GROUPS[group]
                    got, error = call(
                        [python(p), "worker.py", p, *(f"{k}={v}" for k, v in want.items())], a.timeout
                    )
                    done = {g["job"] for g in got}
                    got += [{"job": j, "error": error} for j in want if j not in done]
                for g in got:
                    g["load1"] = os.getloadavg()[0]
                    data["samples"].setdefault(g.pop("job"), {}).setdefault(p, []).append(g)
                bad = [g["error"] for g in got if "error" in g]
                print(f"{rep} {group:8} {p:22} {time.time() - t:6.1f}s {bad or ''}", flush=True)
                save(a.out, data)
    data["summary"] = summary(data)
    save(a.out, data)
    tables(a)


def medians(data, job, peer, key):
    xs = [s[key] for s in data["samples"].get(job, {}).get(peer, []) if key in s]
    return statistics.median(xs) if xs else None


TIME = ["us", "us_min", "cpu_us", "floor_cpu_us", "x_floor"]
FAN = [
    "wall_ms",
    "cpu_ms",
    "floor_wall_ms",
    "floor_cpu_ms",
    "x_floor",
    "rss_kb_per_child",
    "peak_in_flight",
    "children_ok",
]
KEYS = {
    "import": ["import_ms", "import_cpu_ms", "rss_mb", "modules"],
    "turns100": TIME,
    "turns400": TIME,
    "delegation": TIME,
    "fan10": FAN,
    "fan100": FAN,
    "fan1000": FAN,
    "chain": ["us", "cpu_us", "floor_cpu_us", "x_floor"],
    "calls": ["calls_per_turn_25_50", "calls_per_turn_50_100", "calls_per_delegation"],
}


def summary(data):
    out = {}
    for job, keys in KEYS.items():
        for peer, samples in data["samples"].get(job, {}).items():
            row = out.setdefault(peer, {}).setdefault(job, {})
            for k in keys:
                xs = [s[k] for s in samples if k in s]
                if xs:
                    row[k] = round(statistics.median(xs), 3)
                    row[k + "_range"] = [round(min(xs), 3), round(max(xs), 3)]
            row["n"] = len([s for s in samples if "error" not in s])
            errors = sorted({s["error"] for s in samples if "error" in s})
            if errors:
                row["errors"] = errors
    return out


def grid(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|")
    for r in rows:
        print("| " + " | ".join("–" if x is None else str(x) for x in r) + " |")
    print()


def num(x, digits=0):
    return None if x is None else f"{x:,.{digits}f}"


def tables(a):
    d = json.loads(Path(a.out).read_text())
    m = lambda j, p, k: medians(d, j, p, k)

    def spread(j, p):
        xs = [s["x_floor"] for s in d["samples"].get(j, {}).get(p, []) if "x_floor" in s]
        return f"{statistics.median(xs):,.0f} ({min(xs):,.0f}–{max(xs):,.0f})" if xs else None

    peers = list(d["versions"])
    print("W0 import\n")
    grid(
        ["peer", "version", "import CPU ms", "import wall ms", "RSS MB", "modules"],
        [
            [
                p,
                d["versions"][p],
                *(num(m("import", p, k)) for k in ("import_cpu_ms", "import_ms", "rss_mb", "modules")),
            ]
            for p in peers
        ],
    )
    print("W1 turns, one echo tool call per turn (CPU time)\n")
    rows = []
    for p in peers:
        x, y = m("turns100", p, "cpu_us"), m("turns400", p, "cpu_us")
        rows.append(
            [
                p,
                num(x),
                spread("turns100", p),
                num(y),
                spread("turns400", p),
                num(y / x, 2) if x and y else None,
            ]
        )
    grid(["peer", "µs/turn @100", "x floor (range)", "µs/turn @400", "x floor (range)", "400 vs 100"], rows)
    print("Function calls counted by cProfile (hardly depends on load)\n")
    rows = []
    for p in peers:
        x, y, z = (m("calls", p, k) for k in KEYS["calls"])
        rows.append([p, num(x), num(y), num((y - x) / 37.5, 1) if x and y else None, num(z)])
    grid(
        [
            "peer",
            "per turn, turns 26-50",
            "per turn, turns 51-100",
            "added per earlier turn",
            "per delegation",
        ],
        rows,
    )
    print("W2 delegation and W4 chain (CPU time)\n")
    rows = [
        [
            p,
            num(m("delegation", p, "cpu_us")),
            spread("delegation", p),
            num(m("delegation", p, "us_min")),
            num(m("chain", p, "cpu_us")),
            spread("chain", p),
        ]
        for p in peers
    ]
    grid(["peer", "µs/delegation", "x floor (range)", "best wall µs", "µs/level", "x floor (range)"], rows)
    for n in (10, 100, 1000):
        j = f"fan{n}"
        print(f"W3 fan-out N={n} (ideal wall 150 ms)\n")
        rows = []
        for p in peers:
            w, c = m(j, p, "wall_ms"), m(j, p, "cpu_ms")
            walls = [s["wall_ms"] for s in d["samples"].get(j, {}).get(p, []) if "wall_ms" in s]
            rows.append(
                [
                    p,
                    num(w),
                    num(min(walls)) if walls else None,
                    num(w / 150, 1) if w else None,
                    num(c),
                    num(c / n * 1e3) if c else None,
                    # both are the first big run of their process
                    num(c / m(j, "floor", "cpu_ms"), 1) if c and m(j, "floor", "cpu_ms") else None,
                    num(m(j, p, "rss_kb_per_child"), 1) if n == 1000 else None,
                    num(m(j, p, "peak_in_flight")),
                    num(m(j, p, "children_ok")),
                ]
            )
        head = "peer|wall ms|best wall|x ideal|CPU ms|CPU µs/child|CPU x floor|peak RSS KB/child|in flight|ok"
        grid(head.split("|"), rows)


def setup(a):
    HOME.mkdir(parents=True, exist_ok=True)
    for req in sorted((ADAPTERS / "requirements").glob("*.txt")):
        venv = HOME / req.stem
        if not (venv / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "pip"), "install", "-q", "-r", str(req)], check=True)
        print(req.stem, "ready", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=["setup", "bench", "tables"])
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--peers", help="comma-separated; default: all (give floor too, for the ratios)")
    p.add_argument("--groups", help="comma-separated: import," + ",".join(GROUPS))
    p.add_argument("--out", default=str(OUT))
    p.add_argument("--append", action="store_true", help="add to an existing results file")
    p.add_argument("--timeout", type=float, default=180)
    a = p.parse_args()
    {"setup": setup, "bench": bench, "tables": tables}[a.command](a)


if __name__ == "__main__":
    main()
