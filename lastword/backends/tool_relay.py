"""The program that an agent starts as its MCP server: it connects the agent's client to the agent's worker.

It needs nothing but the standard library, and knows nothing of MCP: bytes go through. Where to connect, and by which
token, is in its environment. It ends when either side does.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

SOCKET = "LASTWORD_TOOLS_SOCKET"
TOKEN = "LASTWORD_TOOLS_TOKEN"


def main() -> None:
    worker = socket.socket(socket.AF_UNIX)
    try:
        worker.connect(os.environ[SOCKET])
        worker.sendall(os.environ[TOKEN].encode() + b"\n")
    except (KeyError, OSError):
        print("lastword: the worker of this child is gone", file=sys.stderr)
        os._exit(1)
    threading.Thread(target=_to_worker, args=(worker,), daemon=True).start()
    while data := _quietly_received(worker):
        os.write(1, data)
    os._exit(0)


def _to_worker(worker: socket.socket) -> None:
    try:
        while data := os.read(0, 65536):
            worker.sendall(data)
        worker.shutdown(socket.SHUT_WR)
    except OSError:
        os._exit(0)


def _quietly_received(worker: socket.socket) -> bytes:
    try:
        return worker.recv(65536)
    except OSError:
        return b""


if __name__ == "__main__":
    main()
