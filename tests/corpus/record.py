"""Record the corpus: `.venv/bin/python tests/corpus/record.py [NAME ...]`.

A name is that of a scripted tree, `stored`, `commands`, or `histories/NAME`. Without a name everything is recorded but
the histories, which stay as older versions wrote them. It takes about ten seconds and needs the programs of a
PostgreSQL server. Two recordings of the same code are the same, byte for byte.

The tests compare the present code with these files, so a recording makes every test pass. It is right in two cases:

- Something was added: a tree, a command. Record that name alone.
- A change that the CHANGELOG tells users of alters what is written: an event has a new field, say. Then every line
  of the diff has to follow from that change. Journals of the old form must still be read: before you record, copy one
  that shows the difference from `scripted/` to `histories/`, with its picture, and its function to
  `history_trees.py`.

It is wrong after a change that should alter nothing: moved modules, a rewritten engine. There the code has to change.

With `--pictures` only the pictures (`*.tree.json`) are written, of the histories too: for a fact that is added to
them, after a look at the diff. With `--play` it is the process of one stored tree, and is killed by the recorder.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "builders"), str(HERE.parent.parent / "src")]

import dumps  # noqa: E402 - found by the line above, as all that follow
import transcripts  # noqa: E402
from blocking_store import BlockingStore  # noqa: E402
from ending_trees import ENDING  # noqa: E402
from history_trees import RECORDERS, record  # noqa: E402
from parts import fold  # noqa: E402
from pictures import outputs_of, picture  # noqa: E402
from staging import Stage  # noqa: E402
from stored_trees import READY, STORED, play, resumed, root_of  # noqa: E402
from working_trees import WORKING  # noqa: E402

from remit import Event  # noqa: E402
from remit.events import decode_lines, encode_lines  # noqa: E402
from remit.testing import run_virtual  # noqa: E402

SCRIPTED = WORKING | ENDING


def write(name: str, text: str | bytes) -> None:
    file = HERE / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)


def write_picture(name: str, events: Sequence[Event]) -> None:
    # As they are read: where a whole number was given for seconds, a journal's reader sees 10.0.
    write(f"{name}.tree.json", picture(fold(decode_lines(encode_lines(events)))))


# --- Scripted trees and histories -----------------------------------------------------------------


def record_scripted(name: str) -> None:
    stage = Stage()
    run_virtual(SCRIPTED[name], stage)
    assert stage.outcome is not None
    write(f"scripted/{name}.jsonl", encode_lines(stage.events))
    write_picture(f"scripted/{name}", stage.events)
    outputs = outputs_of(stage.outcome)
    if outputs:
        write(f"scripted/{name}.outputs.json", json.dumps(outputs, indent=1) + "\n")


def record_history(name: str) -> None:
    events = run_virtual(record, name)
    write(f"histories/{name}.jsonl", encode_lines(events))
    write_picture(f"histories/{name}", events)


def record_pictures() -> None:
    for file in [*HERE.glob("scripted/*.jsonl"), *HERE.glob("histories/*.jsonl")]:
        name = str(file.relative_to(HERE)).removesuffix(".jsonl")
        write_picture(name, decode_lines(file.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        text = (HERE / "stored/sqlite.sql").read_text(encoding="utf-8")
        _describe(dumps.restore_sqlite(text, Path(folder) / "runs.db"), only_pictures=True)


# --- Stored trees ---------------------------------------------------------------------------------


def record_stored() -> None:
    postgres_server = importlib.import_module("postgres_server")
    programs = postgres_server.find_programs()
    assert programs is not None, postgres_server.MISSING
    with postgres_server.server(programs) as url:
        for name in STORED:
            _live(name, url)
        write("stored/postgres.sql", dumps.dump_postgres(programs, url))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.db"
        for name in STORED:
            _live(name, f"sqlite:///{file}")
        text = dumps.dump_sqlite(file)
        write("stored/sqlite.sql", text)
        _describe(dumps.restore_sqlite(text, Path(folder) / "restored.db"))


def _live(name: str, url: str) -> None:
    """All lives of a tree but the last, each in a process of its own."""
    tree = STORED[name]
    for life in range(max(1, len(tree.drive))):
        command = [sys.executable, __file__, "--play", name, str(life), url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            if tree.killed:
                assert process.stdout is not None
                assert process.stdout.readline().strip() == READY
                os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == (-signal.SIGKILL if tree.killed else 0)
    asyncio.run(_post(name, url))


async def _post(name: str, url: str) -> None:
    store = BlockingStore(url)
    for command in STORED[name].commands:
        await store.post(root_of(name), command)
    await store.close()


def _describe(url: str, *, only_pictures: bool = False) -> None:
    """How the trees of a store fold, what the commands say of them, and how they go on."""
    before = {name: asyncio.run(read(name, url)) for name in STORED}
    if not only_pictures:
        write("stored/runs.txt", transcripts.of_runs(url))
    for name in STORED:
        write_picture(f"stored/{name}", before[name])
        if not only_pictures:
            write(f"stored/{name}.show.txt", transcripts.of_tree(root_of(name), url))
    for name in STORED:
        _, new = resumed(name, url)
        if not only_pictures:
            write(f"stored/{name}.resumed.jsonl", encode_lines(new))
        write_picture(f"stored/{name}.resumed", [*before[name], *new])
    if not only_pictures:
        write("stored/runs.resumed.txt", transcripts.of_runs(url))


async def read(name: str, url: str) -> list[Event]:
    store = BlockingStore(url)
    try:
        return [event async for event in store.read(root_of(name))]
    finally:
        await store.close()


# --- Commands -------------------------------------------------------------------------------------


def record_commands() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in transcripts.RUN_CASES:
            write(f"commands/run_{case}.txt", transcripts.run_case(case, folder))
        text = (HERE / "stored/sqlite.sql").read_text(encoding="utf-8")
        url = dumps.restore_sqlite(text, folder / "restored.db")
        write("commands/resume.txt", transcripts.resume_case(folder, url))


def main(asked: Sequence[str]) -> None:
    if asked[:1] == ["--play"]:
        play(asked[1], int(asked[2]), asked[3])
        return
    if asked == ["--pictures"]:
        record_pictures()
        return
    histories = [f"histories/{name}" for name in RECORDERS]
    unknown = set(asked) - {*SCRIPTED, *histories, "stored", "commands"}
    if unknown:
        sys.exit(
            f"Unknown: {', '.join(sorted(unknown))}. Name a scripted tree, histories/NAME, stored or commands."
        )
    for name in asked or [*SCRIPTED, "stored", "commands"]:
        if name == "stored":
            record_stored()
        elif name == "commands":
            record_commands()
        elif name in SCRIPTED:
            record_scripted(name)
        else:
            record_history(name.partition("/")[2])


if __name__ == "__main__":
    main(sys.argv[1:])
