"""Settings: from the environment, the settings file and explicit choices, checked when they are loaded."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lastword.core import names
from lastword.core.contract import DelegationPolicy, Limits
from lastword.core.errors import ConfigurationError
from lastword.core.permissions import PermissionPolicy

_DEFAULT_ADDRESS = "127.0.0.1:7233"


class McpPolicy(BaseModel):
    """`[mcp]` of the settings file: what the callers of the MCP server get. None of it is their model's to choose but
    one of the backends and models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backends: list[str] = Field(default=["in-process"], min_length=1)
    """The first is the default."""
    models: list[str] = []
    """The first is the default; without any it is the worker's."""
    persona: str | None = None
    limits: Limits = Limits()
    permissions: PermissionPolicy | None = None
    """None is the worker's."""
    delegation: DelegationPolicy | None = None
    """None is that children may not delegate further."""


class Settings(BaseModel):
    """What a face or a worker needs to know of its surroundings."""

    model_config = ConfigDict(frozen=True)

    data_dir: Path
    """`--data-dir`, `LASTWORD_DATA_DIR`, else the platform's user data directory."""
    log_store: str
    """A directory or a URL: `LASTWORD_LOG_STORE`, else `sessions` in the data directory."""
    task_queue: str = names.TASK_QUEUE
    """`LASTWORD_TASK_QUEUE`."""
    default_model: str | None = None
    """`LASTWORD_MODEL`, for tasks that name none."""
    local_model_url: str | None = None
    """`LASTWORD_LOCAL_MODEL_URL`, an OpenAI-compatible server for models named `local:NAME`."""
    max_children: int = 1000
    """`LASTWORD_MAX_CHILDREN`, children that one worker runs at once."""
    log_level: str = "INFO"
    """`LASTWORD_LOG_LEVEL`."""
    agents: dict[str, dict[str, Any]] = {}
    """`[agents.NAME]` of the settings file: ACP agents, see `lastword.backends.acp.AcpAgent`."""
    permissions: PermissionPolicy | None = None
    """`[permissions]` of the settings file: for tasks that bring no policy; None rejects."""
    mcp: McpPolicy = McpPolicy()
    """`[mcp]` of the settings file."""


_VARIABLES = {
    "log_store": "LASTWORD_LOG_STORE",
    "task_queue": "LASTWORD_TASK_QUEUE",
    "default_model": "LASTWORD_MODEL",
    "local_model_url": "LASTWORD_LOCAL_MODEL_URL",
    "max_children": "LASTWORD_MAX_CHILDREN",
    "log_level": "LASTWORD_LOG_LEVEL",
}

_IN_FILE = {"agents", "mcp", "permissions"}


def load_settings(*, data_dir: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings; an explicit data directory wins over the environment. Raises ConfigurationError."""
    env = os.environ if environ is None else environ
    chosen = data_dir or env.get("LASTWORD_DATA_DIR") or platformdirs.user_data_dir("lastword", appauthor=False)
    folder = Path(chosen).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"The data directory {str(folder)!r} is a file; choose another with --data-dir.")
    values: dict[str, Any] = {"data_dir": folder, "log_store": str(folder / "sessions")}
    values |= _from_file(env)
    values |= {field: env[variable] for field, variable in _VARIABLES.items() if env.get(variable)}
    level = str(values.get("log_level", "INFO")).upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ConfigurationError(f"LASTWORD_LOG_LEVEL is {level!r}; set DEBUG, INFO, WARNING or ERROR.")
    try:
        settings = Settings.model_validate(values | {"log_level": level})
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        if field in _IN_FILE:
            where = ".".join(str(part) for part in first["loc"])
            raise ConfigurationError(f"{where} in {str(_file(env))!r} is wrong: {first['msg']}. Correct it.") from None
        raise ConfigurationError(
            f"{_VARIABLES.get(field, field)} is {first['input']!r}: {first['msg']}. Correct it or unset it."
        ) from None
    if settings.max_children < 1:
        raise ConfigurationError(f"LASTWORD_MAX_CHILDREN is {settings.max_children}; set at least 1.")
    url = settings.local_model_url
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"LASTWORD_LOCAL_MODEL_URL is {url!r}; set an http:// or https:// URL, such as http://127.0.0.1:8080/v1."
        )
    if settings.task_queue != settings.task_queue.strip():
        raise ConfigurationError(f"LASTWORD_TASK_QUEUE is {settings.task_queue!r}; take off the blanks at its ends.")
    return settings


def _file(env: Mapping[str, str]) -> Path:
    """`LASTWORD_SETTINGS`, else `settings.toml` in the platform's user configuration directory."""
    chosen = env.get("LASTWORD_SETTINGS")
    return Path(
        chosen or Path(platformdirs.user_config_dir("lastword", appauthor=False)) / "settings.toml"
    ).expanduser()


def _from_file(env: Mapping[str, str]) -> dict[str, Any]:
    path = _file(env)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if env.get("LASTWORD_SETTINGS"):
            raise ConfigurationError(f"LASTWORD_SETTINGS names {str(path)!r}, which does not exist.") from None
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The settings file {str(path)!r} cannot be read ({error}). Correct it.") from None
    if unknown := sorted(set(values) - _IN_FILE):
        raise ConfigurationError(
            f"The settings file {str(path)!r} has {unknown[0]!r}; it may have: {', '.join(sorted(_IN_FILE))}."
        )
    return values


@dataclass(frozen=True)
class ServerAddress:
    """Where the Temporal server is, how to connect, and who said so (for messages)."""

    target: str
    options: dict[str, Any]
    """Keyword arguments of `temporalio.client.Client.connect`."""
    source: str


def server_address(settings: Settings) -> ServerAddress:
    """Temporal's own configuration (`TEMPORAL_*`, profiles) wins, then the running `lastword up`, then the default.

    Raises ConfigurationError for a profile that cannot be read.
    """
    from temporalio.envconfig import ClientConfig

    from lastword.embedded.state import read_state

    try:
        options: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except Exception as error:
        raise ConfigurationError(
            f"Temporal's client configuration cannot be read ({error})."
            " Check TEMPORAL_CONFIG_FILE and TEMPORAL_PROFILE."
        ) from None
    if target := options.get("target_host"):
        return ServerAddress(target, options, "Temporal's client configuration (TEMPORAL_ADDRESS or a profile)")
    if (state := read_state(settings.data_dir)) is not None:
        # Nothing but the address: another server's namespace or API key has no business there.
        return ServerAddress(state.address, {"target_host": state.address}, "the running `lastword up`")
    return ServerAddress(_DEFAULT_ADDRESS, {**options, "target_host": _DEFAULT_ADDRESS}, "the default")
