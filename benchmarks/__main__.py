"""`python -m benchmarks [NAME ...]`: all of them, or those named."""

from __future__ import annotations

import asyncio
import logging
import sys

from benchmarks import children, mcp_face, sizes, speed
from benchmarks.house import start_server
from lastword.process_exit import leave

ALL = {
    "bare": speed.against_bare,
    "cancel": speed.cancel_and_recovery,
    "storage": sizes.storage,
    "memory": sizes.memory,
    "conversations": children.conversations,
    "listing": children.listing,
    "tree": children.deep_tree,
    "mcp": mcp_face.mcp_face,
}


async def main(chosen: list[str]) -> None:
    speed.folding()
    for name in chosen or ALL:
        # A server of its own for each, so that none is measured in another's wake.
        async with await start_server() as env:
            await ALL[name](env)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(sys.argv[1:]))
    leave(0)
