"""`remit` exports traces and metrics when the usual `OTEL_...` variables are set."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from tracebench import receiver

SRC = Path(__file__).parents[2] / "src"

pytestmark = pytest.mark.real_time


class Said(NamedTuple):
    code: int
    out: str
    err: str


def demo(tmp_path: Path, *args: str, **variables: str) -> Said:
    """`remit demo` in a small folder, with these variables and no others of OpenTelemetry."""
    folder = tmp_path / "folder"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "app.py").write_text("print('hello')\n", encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    env |= {"PYTHONPATH": str(SRC), "REMIT_HOME": str(tmp_path / "state"), **variables}
    command = [sys.executable, "-m", "remit", "demo", str(folder), "--fast", *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    return Said(done.returncode, done.stdout, done.stderr)


def test_a_run_is_exported(tmp_path: Path) -> None:
    """With an endpoint, the receiver has the whole trace and the metrics when the command has ended."""
    with receiver() as made:
        said = demo(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=made.address)
    assert said.code == 0
    assert "not exported" not in said.err
    made.spans.check()
    assert made.spans.all("invoke_agent surveyor")
    assert made.services == {"remit"}
    assert {"gen_ai.client.operation.duration", "remit.invocations"} <= made.metrics
    assert "gen_ai.input.messages" not in made.spans.all("chat")[0]


def test_variables_say_what_is_exported(tmp_path: Path) -> None:
    """Signals, the name of the service and content are chosen by OpenTelemetry's own variables."""
    with receiver() as made:
        demo(
            tmp_path,
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{made.address}/v1/traces",
            OTEL_SERVICE_NAME="nightly",
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true",
        )
    assert made.services == {"nightly"}
    assert made.metrics == set()
    assert "gen_ai.input.messages" in made.spans.all("chat")[0]


@pytest.mark.parametrize(
    "off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}]
)
def test_variables_turn_it_off(tmp_path: Path, off: dict[str, str]) -> None:
    """A variable that disables the SDK or its exporters disables ours."""
    with receiver() as made:
        said = demo(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=made.address, **off)
    assert said.code == 0
    assert not made.spans


def test_a_receiver_that_is_not_there(tmp_path: Path) -> None:
    """The run ends as ever, its answer comes first, and one sentence tells that traces were not exported."""
    began = time.monotonic()
    said = demo(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_METRICS_EXPORTER="none")
    assert time.monotonic() - began < 30
    assert said.code == 0
    assert "# Survey of" in said.out
    assert said.err.count("not exported") == 1
    assert "Traceback" not in said.err


def test_a_receiver_that_hangs(tmp_path: Path) -> None:
    """A receiver that takes the connection and answers nothing is not waited for longer than a few seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        said = demo(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address)
    assert time.monotonic() - began < 30
    assert said.code == 0
    assert said.err.count("not exported") == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_TRACES_EXPORTER", "console"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "pigeons")],
)
def test_what_is_unsupported_is_said(tmp_path: Path, variable: str, value: str) -> None:
    """A variable that asks for something else is quoted, and the run goes on."""
    said = demo(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", **{variable: value})
    assert said.code == 0
    assert "Traces are off" in said.err
    assert f"{variable}='{value}'" in said.err


def test_without_the_sdk(tmp_path: Path) -> None:
    """Without the SDK, one sentence says what to install."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry.sdk'] = None\n")
    path = f"{tmp_path}{os.pathsep}{SRC}"
    said = demo(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", PYTHONPATH=path)
    assert said.code == 0
    assert "Traces are off: opentelemetry.sdk" in said.err
    assert "pip install 'remit[otel]' opentelemetry-sdk" in said.err.replace("\n", " ")


def test_quiet_means_quiet(tmp_path: Path) -> None:
    """With --quiet, traces that fail say nothing."""
    said = demo(
        tmp_path, "--quiet", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_TRACES_EXPORTER="console"
    )
    assert (said.code, said.err) == (0, "")
