"""Whether a worker answers, and what it can run."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.worker_report import WorkerReport


@workflow.defn(name=names.PING_WORKFLOW)
class PingWorkflow:
    """Asks a worker to describe itself."""

    @workflow.run
    async def run(self) -> WorkerReport:
        report: WorkerReport = await workflow.execute_activity(
            names.DESCRIBE_WORKER, result_type=WorkerReport, schedule_to_close_timeout=timedelta(seconds=20)
        )
        return report
