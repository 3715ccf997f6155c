"""The job that needs no key: a lead that has a folder surveyed, part by part, by surveyors of its own.

    await run(survey(), "Survey this folder", model="offline", workspace=".")

With `model="offline"` it is rules that do it (`models/offline.py`); a real model does it better.
"""

from __future__ import annotations

import remit.tools
from remit.agent import Agent

LEVELS = 3
"""Surveyors below the lead, one below the other: each may hand on what is too large for it."""

LEAD = (
    "You survey the folder you work in. List it, have one surveyor look at each part at the same time, and put together"
    " a report of true facts: languages, sizes, the largest files, TODO and FIXME, tests, licences, entry points. Say"
    " only what a tool result says."
)
SURVEYOR = (
    "You survey one folder. List it and count what is to be counted; if it is large, have surveyors look at its parts."
    " Report facts only, and only those that a tool result says."
)


def survey() -> Agent:
    """The lead. It and its surveyors only look; nothing is changed."""
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
