"""Settings: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lastword.core.errors import ConfigurationError
from lastword.embedded.state import UpState, read_state, write_state
from lastword.settings import load_settings, server_address


def test_an_explicit_data_directory_wins_over_the_environment(tmp_path: Path) -> None:
    env = {"LASTWORD_DATA_DIR": str(tmp_path / "env")}
    assert load_settings(environ=env).data_dir == tmp_path / "env"
    settings = load_settings(data_dir=tmp_path / "flag", environ=env)
    assert settings.data_dir == tmp_path / "flag"
    assert settings.log_store == str(tmp_path / "flag" / "sessions")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"LASTWORD_MAX_CHILDREN": "many"}, "LASTWORD_MAX_CHILDREN is 'many'"),
        ({"LASTWORD_MAX_CHILDREN": "0"}, "at least 1"),
        ({"LASTWORD_LOG_LEVEL": "loud"}, "LASTWORD_LOG_LEVEL is 'LOUD'"),
    ],
)
def test_a_wrong_value_fails_at_load_with_its_variable(tmp_path: Path, env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load_settings(data_dir=tmp_path, environ=env)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file"):
        load_settings(data_dir=tmp_path / "file")


def test_the_address_is_temporals_own_then_ups_then_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    settings = load_settings(data_dir=tmp_path)
    assert server_address(settings).target == "127.0.0.1:7233"
    me = psutil.Process()
    state = UpState(
        pid=me.pid, create_time=me.create_time(), address="127.0.0.1:1", ui_url="http://127.0.0.1:2", server_pid=1
    )
    write_state(tmp_path, state)
    assert server_address(settings).target == "127.0.0.1:1"
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:7233")
    assert server_address(settings).target == "elsewhere:7233"
    assert "TEMPORAL_ADDRESS" in server_address(settings).source


def test_the_state_of_a_process_that_is_gone_is_no_state(tmp_path: Path) -> None:
    me = psutil.Process()
    # The same pid, started at another time: another process.
    state = UpState(pid=me.pid, create_time=me.create_time() - 99, address="a", ui_url="u", server_pid=1)
    write_state(tmp_path, state)
    assert read_state(tmp_path) is None
