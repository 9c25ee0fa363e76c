"""A delegation from an environment that has only `temporalio`: start by name, JSON in and out.

Run it beside a `lastword up`: `python examples/plain_temporalio.py "Tell me a short story"`.
"""

import asyncio
import os
import sys
import uuid

from temporalio.client import Client


async def main(prompt: str) -> None:
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    done = await client.execute_workflow(
        "DelegationWorkflow",
        {"prompt": prompt, "backend": os.environ.get("CHILD_BACKEND", "in-process")},
        id=f"plain-{uuid.uuid4().hex[:8]}",
        task_queue=os.environ.get("LASTWORD_TASK_QUEUE", "lastword"),
    )
    print(done["result"]["stop_reason"])
    print("".join(block["text"] for block in done["tool_result"]["content"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    # At once: an interpreter that takes its time to end may be caught by the SDK's own threads.
    sys.stdout.flush()
    os._exit(0)
