"""A demonstration that needs no API key: a lead agent delegates each part of a folder to a surveyor.

    await run(survey(), "Survey this folder", model="offline", workspace=".")

`model="offline"` uses fixed rules (`models/offline.py`); a real model gives a better report.
"""

from __future__ import annotations

import remit.tools
from remit.agent import Agent

LEVELS = 3
"""Levels of surveyors below the lead: a surveyor may delegate the parts of a large folder."""

LEAD = (
    "You survey your working folder. List it, delegate each part to a surveyor, all at the same time, and combine their"
    " findings in one report: languages, sizes, the largest files, TODO and FIXME, tests, licences, entry points. Report"
    " only facts from tool results."
)
SURVEYOR = (
    "You survey one folder. List it and count its files and lines. If it is large, delegate its parts to surveyors."
    " Report only facts from tool results."
)


def survey() -> Agent:
    """The lead agent. The lead and its surveyors only read files."""
    built_in = remit.tools.built_in()
    tools = [built_in[name] for name in ("ls", "grep", "read")]
    below: tuple[Agent, ...] = ()
    for _ in range(LEVELS):
        below = (
            Agent(
                "surveyor",
                description="Surveys one folder and reports what is in it.",
                instructions=SURVEYOR,
                tools=tools,
                subagents=below,
            ),
        )
    return Agent("survey", instructions=LEAD, tools=tools, subagents=below)
