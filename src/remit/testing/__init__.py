"""Test helpers, also used by remit's own tests: a scripted model, virtual time, and checks for stores."""

from remit.testing.conformance import StoreBattery
from remit.testing.scripted import (
    ScriptedModel,
    ScriptError,
    call,
    calls,
    crash,
    fail,
    refuse,
    say,
    wait,
    wrapped,
)
from remit.testing.virtual import VirtualTimeLoop, fixed_ids, run_virtual

__all__ = [
    "ScriptError",
    "ScriptedModel",
    "StoreBattery",
    "VirtualTimeLoop",
    "call",
    "calls",
    "crash",
    "fail",
    "fixed_ids",
    "refuse",
    "run_virtual",
    "say",
    "wait",
    "wrapped",
]
