"""A certificate authority of the tests' own, and the server's side of TLS for native threads."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import trustme


class Authority:
    """One authority. ``file``: its certificate, as ``--llm-ca-file`` takes it."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.file = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.file)

    def server(self, *names: str) -> ssl.SSLContext:
        """Return a server's context with a certificate for these names."""
        pem = self._folder / "server.pem"
        self._ca.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context


class TlsSocket:
    """The server's end of TLS over a native socket, which ``ssl.wrap_socket`` of a patched process cannot be."""

    def __init__(self, sock: Any, context: ssl.SSLContext) -> None:
        self.raw = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._step(self._shake_hands)

    def recv(self, size: int) -> bytes:
        try:
            data: bytes = self._step(self._tls.read, size)
            return data
        except ssl.SSLZeroReturnError:
            return b""

    def sendall(self, data: bytes) -> None:
        self._step(self._tls.write, data)

    def end(self) -> None:
        """Send close_notify."""
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        finally:
            self.raw.sendall(self._out.read())

    def shutdown(self, how: int) -> None:
        self.raw.shutdown(how)

    def close(self) -> None:
        self.raw.close()

    def _shake_hands(self) -> bool:
        self._tls.do_handshake()
        return True

    def _step(self, do: Any, *args: Any) -> Any:
        while True:
            try:
                result = do(*args)
            except ssl.SSLWantReadError:
                result = None
            if self._out.pending:
                self.raw.sendall(self._out.read())
            if result is not None:
                return result
            data = self.raw.recv(65536)
            if not data:
                raise EOFError
            self._in.write(data)
