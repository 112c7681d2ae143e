"""A server's address: many spellings, one meaning; and no secret in it is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.address import Address, mask_url, parse_address
from locust_llm.errors import UsageError


@pytest.mark.parametrize(
    "url",
    [
        "http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/v1/", "http://h:8000/v1/chat/completions",
        "http://h:8000/v1/completions", "http://h:8000/v1/models", "h:8000", "h:8000/v1", " http://h:8000 ", "HTTP://H:8000",
    ],
)  # fmt: skip
def test_the_usual_spellings_mean_the_same_server(url: str) -> None:
    assert parse_address(url) == Address("http", "h", 8000, "/v1")


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://h/openai/v1", "/openai/v1"),
        ("http://h/api/", "/api"),
        ("http://h/chat/completions", ""),
        ("http://h/api/chat", ""),
        ("http://h/x/api/generate", "/x"),
        ("http://h/generate_stream", ""),
        ("http://h/completion", ""),
        ("https://h/v1/predictions", "/v1"),
        ("http://h/proxy/chat/completions/", "/proxy"),
        ("http://h/completions/chat/completions", "/completions"),
        ("http://h/a%20b", "/a%20b"),
        ("http://h/ü", "/%C3%BC"),
    ],
)
def test_any_other_path_is_the_api_root(url: str, root: str) -> None:
    assert parse_address(url).root == root


@pytest.mark.parametrize(
    ("url", "port", "netloc"),
    [
        ("http://h", 80, "h"),
        ("https://h", 443, "h"),
        ("https://h:443", 443, "h"),
        ("http://h:443", 443, "h:443"),
        ("http://[::1]:8000", 8000, "[::1]:8000"),
        ("http://[::1]", 80, "[::1]"),
        ("https://exämple.com", 443, "xn--exmple-cua.com"),
    ],
)
def test_port_and_host_header(url: str, port: int, netloc: str) -> None:
    address = parse_address(url)
    assert (address.port, address.netloc) == (port, netloc)
    assert address.tls is url.startswith("https")


def test_paths_beside_and_under_the_root() -> None:
    assert parse_address("http://h:1").at_server("/version") == "/version"
    assert parse_address("http://h:1/gw/v1").at_server("/version") == "/gw/version"
    assert parse_address("http://h:1/gw").url("/models") == "http://h:1/gw/models"


@pytest.mark.parametrize(
    "url",
    [
        "", " ", "http://", "ftp://h", "ws://h", "http://h:0", "http://h:99999", "http://h:x", "http://a b", "http://[::1",
        "http://h\\x", "http://h/\nx", "http://h?x", "http://h?key=sekret", "http://h/#sekret", "http://me:sekret@h",
        "me:sekret@h", "http://sekret@h", "http://:sekret@h", "http://me:sek/sekret@h", "http://me:sekret?x@h", "http://@h",
    ],
)  # fmt: skip
def test_what_is_no_address_is_one_line_that_shows_no_secret(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(url)
    message = str(caught.value)
    assert message.startswith("--host ")
    assert "sekret" not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://me:s@h/p", "http://***@h/p"),
        ("me:s@h", "***@h"),
        ("http://me:s@s@h", "http://***@h"),
        ("http://h/p?a=1&b=2", "http://h/p?a=***&b=***"),
        ("/p?a=1", "/p?a=***"),
        ("http://h?s", "http://h?***"),
        ("http://h/#s", "http://h/#***"),
        ("http://[::1]:8/x", "http://[::1]:8/x"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_user_and_query_values(url: str, shown: str) -> None:
    assert mask_url(url) == shown


_SECRET = st.text("abc@:/?#=&é ", min_size=1, max_size=12).map(lambda text: f"QQ{text}QQ")


@given(user=st.sampled_from(["", "me"]), secret=_SECRET, tail=st.sampled_from(["", "/v1", ":80/x"]))
def test_no_password_however_odd_survives_masking(user: str, secret: str, tail: str) -> None:
    assert "QQ" not in mask_url(f"http://{user}:{secret}@host{tail}")


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = parse_address(text)
    except UsageError as e:
        message = str(e)
    else:
        assert parse_address(address.url()) == address or not address.root
        assert f"{address.netloc}{address.root}".isascii()
        message = address.url()
    assert message.isprintable()
