"""Access to the hub with and without a network."""

import socket
from threading import Event
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from attnflow.errors import FileError
from attnflow.models import hub
from attnflow.models.hub import hub_access, is_reachable
from attnflow.models.loading import load_model
from tests.refusal import refusal


def is_offline():
    return constants.HF_HUB_OFFLINE


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    """No address was tried yet, and there is no proxy."""
    monkeypatch.setattr(hub, "_tried", {})
    monkeypatch.setattr(hub, "getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def nowhere(monkeypatch):
    """The address of the hub is a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)


@pytest.mark.usefixtures("nowhere")
def test_without_a_network_only_the_cache_is_used():
    assert not is_reachable()
    with hub_access("nobody/nothing"):
        assert is_offline()
    assert not is_offline()
    with hub_access("."):  # a folder needs no hub
        assert not is_offline()


@pytest.mark.usefixtures("nowhere")
def test_a_hub_name_without_a_network_fails_without_retries(caplog):
    with refusal(FileError, "nobody/nothing", "cannot be reached"):
        load_model("nobody/nothing")
    assert not caplog.records


def test_a_hub_that_accepts_connections_is_used(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        assert is_reachable()
        with hub_access("nobody/nothing"):
            assert not is_offline()
    assert is_reachable()  # not tried again at once


def test_a_name_that_cannot_be_looked_up_in_time(monkeypatch):
    monkeypatch.setattr(hub, "TIMEOUT", 0.01)
    answered = Event()

    def wait(*_given, **_options):
        answered.wait()
        raise OSError

    monkeypatch.setattr(hub, "socket", SimpleNamespace(create_connection=wait))
    assert not is_reachable()
    answered.set()


@pytest.mark.usefixtures("nowhere")
def test_a_proxy_is_tried_in_place_of_the_hub(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = f"127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setattr(hub, "getproxies", lambda: {"http": proxy})
        assert is_reachable()


def test_the_switch_of_the_hub_is_kept(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with hub_access("nobody/nothing"):
        assert is_offline()
    assert is_offline()
