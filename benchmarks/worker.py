"""Runs one workload of one peer in this process and prints one JSON line."""

import argparse
import asyncio
import gc
import importlib
import json
import statistics
import sys
import time

import peer_floor
from common import Brain, answer_plan, echo_plan, fan_plan


def status(key):
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(key + ":"):
                return int(line.split()[1])  # kB
    return 0


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass


def spin():
    """A fixed amount of pure-Python work, to estimate the current noise of the machine."""
    t = time.perf_counter()
    x = 0
    for i in range(300_000):
        x += i & 7
    return (time.perf_counter() - t) * 1e3


async def timed(run, times):
    """Wall and CPU seconds of each of `times` runs."""
    wall, cpu = [], []
    for _ in range(times):
        w, c = time.perf_counter(), time.process_time()
        out = await run()
        wall.append(time.perf_counter() - w)
        cpu.append(time.process_time() - c)
        assert "final" in str(out), out
    return wall, cpu


async def paired(run, floor, loops, chunks=5, floor_loops=10):
    """Runs of the peer in `chunks`, a batch of the floor after each chunk.

    Returns microseconds per run.  CPU time is the number to read when other
    jobs share the machine; x_floor is CPU over the floor's CPU, in this very
    process and interleaved, so a busy neighbour slows both alike.
    """
    chunks = min(chunks, loops)
    await timed(floor, floor_loops)
    wall, cpu, fl = [], [], []
    for k in range(chunks):
        w, c = await timed(run, loops // chunks)
        wall += w
        cpu.append(sum(c) / len(c))
        _, c = await timed(floor, floor_loops)
        fl.append(sum(c) / len(c))
    return {
        "us": med(wall) * 1e6,
        "us_min": min(wall) * 1e6,
        "cpu_us": med(cpu) * 1e6,
        "floor_cpu_us": med(fl) * 1e6,
        "x_floor": med(cpu) / med(fl),
    }


def med(xs):
    return statistics.median(xs)


async def verify(peer, a):
    b = Brain(echo_plan(7))
    b.verify = True
    await timed(peer.echo(b), 2)
    assert len(b.seen) == 7, b.seen
    assert all("message" in str(s) for s in b.seen), b.seen
    p, c = Brain(fan_plan(10, 64)), Brain(answer_plan)
    p.verify = True
    await timed(peer.fanout(p, c), 2)
    ok = sum("child-answer" in str(s) for s in p.seen)
    assert ok == 10 and c.gauge.calls == 20, (ok, c.gauge.calls, p.seen)
    brains = levels(3)
    await timed(peer.chain(brains), 2)
    assert [x.gauge.calls for x in brains] == [4, 4, 4, 2], [x.gauge.calls for x in brains]
    return {"verified": True}


def levels(depth):
    return [Brain(fan_plan(1)) for _ in range(depth)] + [Brain(answer_plan)]


async def turns(peer, a):
    await timed(peer.echo(Brain(echo_plan(10))), 2)
    out = await paired(
        peer.echo(Brain(echo_plan(a.n))), peer_floor.echo(Brain(echo_plan(a.n))), a.loops, chunks=a.loops
    )
    return {k: v if k == "x_floor" else v / a.n for k, v in out.items()}  # per turn


async def delegation(peer, a):
    run = peer.fanout(Brain(fan_plan(1)), Brain(answer_plan))
    await timed(run, 5)
    floor = peer_floor.fanout(Brain(fan_plan(1)), Brain(answer_plan))
    return await paired(run, floor, a.loops, floor_loops=200)


async def fan(peer, a):
    warm = peer.fanout(Brain(fan_plan(1, 2048)), Brain(answer_plan))
    await timed(warm, 2)
    parent, child = Brain(fan_plan(a.n, 2048), a.latency), Brain(answer_plan, a.latency)
    parent.verify = True
    run = peer.fanout(parent, child)
    gc.collect()
    reset_peak()
    before = status("VmRSS")
    wall, cpu = await timed(run, 1)
    peak = status("VmHWM")
    ok = sum("child-answer" in str(s) for s in parent.seen)
    floor = peer_floor.fanout(Brain(fan_plan(a.n, 2048), a.latency), Brain(answer_plan, a.latency))
    floor_wall, floor_cpu = await timed(floor, 3)
    return {
        "floor_wall_ms": med(floor_wall) * 1e3,
        "floor_cpu_ms": med(floor_cpu) * 1e3,
        "x_floor": cpu[0] / med(floor_cpu),
        "wall_ms": wall[0] * 1e3,
        "cpu_ms": cpu[0] * 1e3,
        "ideal_ms": 3 * a.latency * 1e3,
        "rss_kb_per_child": (peak - before) / a.n,
        "peak_in_flight": child.gauge.peak,
        "children_ok": ok,
        "child_calls": child.gauge.calls,
    }


def slope(xs, ys):
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)


async def chain(peer, a):
    xs, rows = list(range(1, a.n + 1)), []
    for depth in xs:
        run, floor = peer.chain(levels(depth)), peer_floor.chain(levels(depth))
        await timed(run, 2)
        rows.append(await paired(run, floor, a.loops, floor_loops=50))
    cpu, fl = [r["cpu_us"] for r in rows], [r["floor_cpu_us"] for r in rows]
    return {
        "cpu_us": slope(xs, cpu),  # per level
        "floor_cpu_us": slope(xs, fl),
        "x_floor": slope(xs, cpu) / slope(xs, fl),
        "us": slope(xs, [r["us"] for r in rows]),
        "us_by_depth": [r["us"] for r in rows],
        "cpu_us_by_depth": cpu,
    }


def calls_in(stats):
    return sum(v[1] for v in stats.stats.values())


async def calls(peer, a):
    """Function calls (Python and builtin) counted by cProfile: repeatable on a
    busy machine, where times are not."""
    import cProfile
    import pstats

    async def count(run, loops):
        await timed(run, 2)
        pr = cProfile.Profile()
        pr.enable()
        for _ in range(loops):
            await run()
        pr.disable()
        return calls_in(pstats.Stats(pr)) / loops

    t25 = await count(peer.echo(Brain(echo_plan(25))), 1)
    t50 = await count(peer.echo(Brain(echo_plan(50))), 1)
    t100 = await count(peer.echo(Brain(echo_plan(100))), 1)
    return {
        "calls_per_turn_25_50": (t50 - t25) / 25,  # turns 26 to 50
        "calls_per_turn_50_100": (t100 - t50) / 50,  # turns 51 to 100
        "calls_per_delegation": await count(peer.fanout(Brain(fan_plan(1)), Brain(answer_plan)), 10),
    }


async def profile(peer, a):
    import cProfile
    import pstats

    if a.what == "echo":
        run = peer.echo(Brain(echo_plan(a.n)))
    else:
        run = peer.fanout(Brain(fan_plan(a.n)), Brain(answer_plan))
    await timed(run, 1)
    pr = cProfile.Profile()
    pr.enable()
    await timed(run, a.loops)
    pr.disable()
    for key in ("tottime", "cumtime"):
        pstats.Stats(pr, stream=sys.stderr).sort_stats(key).print_stats(45)
    return {}


WORKLOADS = {
    "verify": verify,
    "turns": turns,
    "delegation": delegation,
    "fan": fan,
    "chain": chain,
    "calls": calls,
    "profile": profile,
}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("peer")
    p.add_argument("jobs", nargs="+", help="name=workload:n:loops")
    p.add_argument("--latency", type=float, default=0.05)
    p.add_argument("--what", default="echo", help="profile: echo or delegate")
    a = p.parse_args()
    peer = importlib.import_module("peer_" + a.peer)
    for job in a.jobs:
        name, _, spec = job.rpartition("=")
        workload, n, loops = (spec.split(":") + ["0", "0"])[:3]
        a.n, a.loops = int(n), int(loops)
        before = spin()
        try:
            out = asyncio.run(WORKLOADS[workload](peer, a))
        except Exception as e:
            out = {"error": f"{type(e).__name__}: {e}"[:300]}
        out["spin_ms"] = [before, spin()]
        print("\n@@" + json.dumps({"job": name or workload, **out}), flush=True)


if __name__ == "__main__":
    main()
