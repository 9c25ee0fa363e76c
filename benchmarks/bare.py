"""The least that Temporal can do: one workflow with one activity.

In a module of its own, for the sandbox loads a workflow's module anew for every workflow.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def bare_activity(text: str) -> str:
    return text


@workflow.defn
class BareWorkflow:
    @workflow.run
    async def run(self, text: str) -> str:
        return await workflow.execute_activity(bare_activity, text, start_to_close_timeout=timedelta(seconds=60))
