"""Wrong: the answer is a `Report` or None, and the code takes it for something else."""

from __future__ import annotations

from pydantic import BaseModel

from remit import Agent, run_sync


class Report(BaseModel):
    title: str


writer = Agent("writer", output=Report)
outcome = run_sync(writer, "go")
number: int | None = outcome.output  # error
title = outcome.output.title  # error
if outcome.output is not None:
    print(outcome.output.title, outcome.output.titel)  # error
