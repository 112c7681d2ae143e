"""TLS over memory buffers: ciphertext goes through our own socket reads, so encrypted streams get kernel stamps too.

(``SSLSocket`` refuses ``recvmsg``.) Nothing here touches a socket.
"""

from __future__ import annotations

import ssl

from ..errors import UsageError

# What OpenSSL says when the other side does not speak TLS.
_NOT_TLS = ("wrong version", "record", "packet length", "http")


def tls_context(insecure: bool = False, ca_file: str = "") -> ssl.SSLContext:
    """Return the context of all connections to one server; certificates are verified unless ``insecure``.

    Raises:
        UsageError: the CA file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except ssl.SSLError:
        raise UsageError(f"--llm-ca-file {ca_file}: there is no certificate in PEM form in it") from None
    except OSError as e:
        raise UsageError(f"--llm-ca-file {ca_file}: {e.strerror}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsStream:
    """TLS as bytes in, bytes out.

    Attributes:
        closed: nothing more will come. ``fault``: why, if not by a proper end.

    Raises:
        ValueError: ``server_name`` cannot be in a certificate.
    """

    __slots__ = ("_in", "_object", "_out", "closed", "fault")

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=server_name.partition("%")[0])
        self.closed = False
        self.fault: str | None = None

    def handshake(self, data: bytes = b"") -> tuple[bool, bytes]:
        """Advance the handshake; returns (finished, bytes to transmit). Raises ssl.SSLError."""
        if data:
            self._in.write(data)
        try:
            self._object.do_handshake()
            finished = True
        except ssl.SSLWantReadError:
            finished = False
        return finished, self._out.read()

    def send(self, data: bytes) -> bytes:
        """Return the ciphertext to transmit. Raises ssl.SSLError."""
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]
        return self._out.read()

    def receive(self, data: bytes) -> bytes:
        """Return the plaintext that these bytes complete."""
        self._in.write(data)
        pieces = []
        try:
            while piece := self._object.read(65536):
                pieces.append(piece)
                if not self._in.pending and not self._object.pending():
                    break  # that was all; to be told so by an exception costs more than the read itself
            else:
                self.closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed = True
        except ssl.SSLError as e:
            self.closed = True
            self.fault = reason(e)
        return b"".join(pieces)


def reason(error: ssl.SSLError) -> str:
    """Return what went wrong, in words for people and with the remedy where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message} (--llm-ca-file FILE, or --llm-insecure)"
    text = str(error.reason or error).replace("_", " ").lower()
    return f"{text} (is this an http:// server?)" if any(word in text for word in _NOT_TLS) else text
