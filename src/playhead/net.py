"""Identifies the protocol of a listener. Used only after a connection failed, to report the cause.

Client libraries report a wrong port, a wrong protocol and a dead host alike, as a time-out. One small Kafka request
distinguishes them: a broker answers it, an HTTP server answers in HTTP, a TLS listener sends an alert or closes the connection.
"""

import socket
import ssl
import struct
from enum import StrEnum

_CORRELATION = 0x50484541
# ApiVersions v0, correlation id, client id "playhead": every broker answers it, even one that requires SASL.
_BODY = struct.pack(">hhih", 18, 0, _CORRELATION, 8) + b"playhead"
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY
_TLS_ALERT = 0x15


class FoundListener(StrEnum):
    KAFKA = "speaks Kafka"
    HTTP = "speaks HTTP"
    TLS = "expects TLS"
    UNKNOWN = "speaks neither Kafka nor HTTP"
    SILENT = "accepts connections but does not answer"
    NOBODY = "refuses connections: nothing listens there"
    NO_HOST = "cannot be resolved to an address"
    NO_ROUTE = "cannot be reached"


def identify(host: str, port: int, seconds: float) -> FoundListener:
    try:
        answer = _exchange(host, port, seconds)
    except (socket.gaierror, UnicodeError):
        return FoundListener.NO_HOST
    except ConnectionRefusedError:
        return FoundListener.NOBODY
    except ConnectionError:
        answer = b""
    except TimeoutError:
        return _slow(host, port, seconds)
    except OSError:
        return FoundListener.NO_ROUTE
    if answer.startswith(b"HTTP"):
        return FoundListener.HTTP
    if len(answer) >= 8 and struct.unpack(">i", answer[4:8])[0] == _CORRELATION:
        return FoundListener.KAFKA
    if answer[:1] == bytes([_TLS_ALERT]) or _answers_tls(host, port, seconds):
        return FoundListener.TLS
    return FoundListener.UNKNOWN


def _exchange(host: str, port: int, seconds: float, request: bytes = _REQUEST) -> bytes:
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.sendall(request)
        return connection.recv(64)


def _slow(host: str, port: int, seconds: float) -> FoundListener:
    """No answer in time: a dropped packet, a stopped process, or HTTP or TLS waiting for more bytes."""
    try:
        if _exchange(host, port, seconds, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP"):
            return FoundListener.HTTP
    except TimeoutError:
        pass
    except OSError:
        return FoundListener.NO_ROUTE
    return FoundListener.TLS if _answers_tls(host, port, seconds) else FoundListener.SILENT


def _answers_tls(host: str, port: int, seconds: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only detects the protocol; no data is sent
    try:
        with socket.create_connection((host, port), timeout=seconds) as raw, context.wrap_socket(raw):
            return True
    except ssl.SSLError as error:
        return "WRONG_VERSION_NUMBER" not in str(error) and "UNEXPECTED_EOF" not in str(error)
    except OSError:
        return False
