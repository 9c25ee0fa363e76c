"""Somebody's own workflow, in the sandbox as Temporal runs it by default, that delegates as a child workflow."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from lastword import DelegationRequest, delegate_tool
    from lastword.workflows.delegation import DelegationWorkflow


@workflow.defn
class ParentWorkflow:
    @workflow.run
    async def run(self, prompt: str, queue: str) -> list[str]:
        """By the workflow as such, and by the tool for a framework's agent."""
        id = workflow.info().workflow_id
        request = DelegationRequest(prompt=prompt, backend="scripted", parent_id=id)
        done = await workflow.execute_child_workflow(DelegationWorkflow.run, request, id=f"{id}/1", task_queue=queue)
        by_tool = await delegate_tool(task_queue=queue, backend="scripted")(prompt)
        return [str(done.tool_result.content[0]["text"]), by_tool]
