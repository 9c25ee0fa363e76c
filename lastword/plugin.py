"""The Temporal plugin: converter, workflows, activities and the way they must be run, in one line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from lastword.converter import data_converter
from lastword.workflows.conversation import ConversationWorkflow
from lastword.workflows.delegation import DelegationWorkflow
from lastword.workflows.ping import PingWorkflow

WORKFLOWS: Sequence[type] = (DelegationWorkflow, ConversationWorkflow, PingWorkflow)


class LastwordPlugin(SimplePlugin):
    """Give it to a client, and that client's workers and a replayer have what lastword needs.

    Without `activities` it is for clients, replayers, and workers that only run workflows.
    """

    def __init__(self, activities: Sequence[Callable[..., Any]] = (), *, workflows: bool = True) -> None:
        super().__init__(
            "lastword",
            data_converter=_with_pydantic,
            activities=list(activities),
            workflows=_with_workflows if workflows else None,
            workflow_runner=_pass_through,
            # A request whose shape is wrong must fail its workflow, not retry a workflow task for ever.
            workflow_failure_exception_types=[ValidationError],
        )


def _with_workflows(registered: Sequence[type] | None) -> Sequence[type]:
    # The plugin may be on the client and on its worker; Temporal refuses a workflow that is registered twice.
    present = list(registered or [])
    return present + [workflow for workflow in WORKFLOWS if workflow not in present]


def _with_pydantic(converter: DataConverter | None) -> DataConverter:
    if converter is None or converter.payload_converter_class is DefaultPayloadConverter:
        base = converter or data_converter
        return dataclasses.replace(base, payload_converter_class=data_converter.payload_converter_class)
    return converter


def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    if isinstance(runner, SandboxedWorkflowRunner):
        # Our modules hold no state that a workflow could share with another, and the replay tests watch over what they
        # decide. Loading them anew for every workflow would only cost time.
        return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules("lastword"))
    if runner is None:
        raise ValueError("LastwordPlugin needs a workflow runner; give the worker one or leave its default.")
    return runner
