"""Starts and resumes runs inside `remit serve`, with the agents and the settings of the current folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import remit.cli.options as options_
import remit.tasks.threads as threads
from remit.cli.jobs.priced_models import PricedModels
from remit.cli.jobs.setup import LEAD, RunSetup, put_together
from remit.cli.options import Options
from remit.definitions import load_settings
from remit.engine.budget.model_choice import ModelSource
from remit.engine.handle import Running
from remit.engine.resume import reopen
from remit.engine.start import start
from remit.errors import UsageError
from remit.observe.page.hosting import AgentChoice, Hear, Wish
from remit.remote import ask_elsewhere
from remit.stores import open_store
from remit.types.ports import Store

T = TypeVar("T")


class ProjectStarter:
    """Runs of the current folder. People answer their approval requests on the page, or with `remit approve`."""

    def __init__(self, journal: str, models: ModelSource | None) -> None:
        self._journal = journal
        self._models = models

    async def agents(self) -> Sequence[AgentChoice]:
        def load() -> Sequence[AgentChoice]:
            settings = load_settings(".")
            found = settings.load_agents(()).agents.values()
            own = AgentChoice(name=LEAD, description="The default agent: all tools, all agents.")
            named = [
                AgentChoice(name=one.name, description=one.description, model=", ".join(one.models))
                for one in found
                if one.name != LEAD
            ]
            default = settings.agent or LEAD
            return sorted([own, *named], key=lambda one: (one.name != default, one.name != LEAD, one.name))

        return await _in_thread(load)

    @asynccontextmanager
    async def start(self, wish: Wish, hear: Hear) -> AsyncGenerator[Running]:
        named = "" if wish.agent == LEAD else wish.agent
        wanted = Options(agent=named, model=wish.model, limits=wish.limits)
        job = await self._put_together(wanted)
        async with AsyncExitStack() as stack:
            store = await _opened(stack, job)
            running = await stack.enter_async_context(
                start(
                    job.agent,
                    wish.prompt,
                    model=job.model,
                    models=job.models,
                    limits=job.limits,
                    store=store,
                    approver=ask_elsewhere,
                    policy=job.policy,
                    sandbox=job.sandbox,
                    workspace=job.workspace,
                    on_event=hear,
                )
            )
            await options_.keep(store, running.run_id, job.options)
            # The page asks for the run at once, so its first event must be in the journal.
            await anext(aiter(running.events()))
            await store.flush(running.run_id)
            yield running

    @asynccontextmanager
    async def resume(self, root: str, hear: Hear) -> AsyncGenerator[Running]:
        past = open_store(self._journal)
        try:
            before = await options_.recall(past, root)
        finally:
            await past.close()
        if before is None:
            raise UsageError(
                f"{root} was not started by `remit run` or by this page. Resume it in the program that started it."
            )
        job = await self._put_together(before)
        async with AsyncExitStack() as stack:
            store = await _opened(stack, job)
            yield await stack.enter_async_context(
                reopen(
                    store,
                    root,
                    agent=job.agent,
                    model=job.model,
                    models=job.models,
                    approver=ask_elsewhere,
                    policy=job.policy,
                    sandbox=job.sandbox,
                    workspace=job.workspace,
                    on_event=hear,
                )
            )

    async def _put_together(self, wanted: Options) -> RunSetup:
        # In a thread: it reads files, and imports the package of a provider.
        return await _in_thread(
            lambda: put_together(wanted, self._models, may_ask=False)._replace(journal=self._journal)
        )


async def _opened(stack: AsyncExitStack, job: RunSetup) -> Store:
    assert job.journal is not None
    store = open_store(job.journal, secrets=job.secrets)
    stack.push_async_callback(store.close)
    if isinstance(job.models, PricedModels):
        stack.push_async_callback(job.models.close)
    return store


async def _in_thread(work: Callable[[], T]) -> T:
    job = threads.start(work, asyncio.get_running_loop(), name="the page")
    await job.wait()
    return job.result()
