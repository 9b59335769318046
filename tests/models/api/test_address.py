"""Where a model is, and what must not stand in a URL."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from limpet.errors import ConfigError
from limpet.models.api.settings import Endpoint, refuse_unlisted


@pytest.mark.parametrize(
    ("place", "model", "url"),
    [
        ("m@https://Example.ORG:443/v1/", "m", "https://example.org/v1"),
        ("m@https://example.org:8443", "m", "https://example.org:8443"),
        ("owner/m@v2:latest@http://127.0.0.1:80/a", "owner/m@v2:latest", "http://127.0.0.1/a"),
        ("m@http://[::1]:8000/v1", "m", "http://[::1]:8000/v1"),
    ],
)
def test_what_people_write(place: str, model: str, url: str) -> None:
    assert Endpoint.read(place) == Endpoint(model, url)
    assert Endpoint.read(f"{model}@{url}") == Endpoint(model, url), "and once more"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("m", "does not say at which server"),
        ("m@example.org/v1", "does not say at which server"),
        ("@https://example.org", "does not say at which server"),
        ("m@ftp://example.org", "is no server"),
        ("m@https://", "is no server"),
        ("m@https://example.org:port/v1", "is no server"),
        ("m@https://[::1", "names no host"),
        ("m@https://[zz]/v1", "names no host"),
        ("m@https://a..b/v1", "names no host"),
        (f"m@https://{64 * 'a'}.org", "names no host"),
        ("m@https://example.org/\x7f", "does not say at which server"),
        ("m@https://example.org/v1/embeddings", "leave /embeddings out"),
        ("m@http://example.org/v1", "--api.allow-http"),
        ("m@http://10.0.0.1/v1", "--api.allow-http"),
        ("m@http://localhost.example.org/v1", "--api.allow-http"),
    ],
)
def test_what_is_refused(place: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Endpoint.read(place)


@pytest.mark.parametrize("place", ["m@https://me:s3cret@example.org/v1", "m@https://example.org/v1?api-key=s3cret",
                                   "m@https://s3cret@example.org", "m@http://x/#s3cret"])  # fmt: skip
def test_a_url_holds_no_secret_and_the_message_does_not_repeat_it(place: str) -> None:
    with pytest.raises(ConfigError, match="a name, a password or a query") as caught:
        Endpoint.read(place)
    assert "s3cret" not in str(caught.value)


def test_unencrypted_only_where_it_was_asked_for() -> None:
    assert Endpoint.read("m@http://10.0.0.1/v1", allow_http=True).url == "http://10.0.0.1/v1"
    assert Endpoint.read("m@http://10.0.0.1", allow_http=True).loopback is False
    assert Endpoint.read("m@http://localhost").loopback is True


@pytest.mark.parametrize(
    ("listed", "allowed"),
    [
        (None, False),
        ("", False),
        ("other.org, example.org:80", False),
        ("other.org, Example.org ", True),
        ("example.org:8443", True),
    ],
)
def test_refuse_unlisted_lets_a_file_name_only_servers_that_the_user_listed(
    listed: str | None, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIMPET_API_HOSTS", raising=False)
    if listed is not None:
        monkeypatch.setenv("LIMPET_API_HOSTS", listed)
    with nullcontext() if allowed else pytest.raises(ConfigError, match="LIMPET_API_HOSTS"):
        refuse_unlisted("https://example.org:8443/v1", "m@https://example.org:8443/v1", "config.json")
