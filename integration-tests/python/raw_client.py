#!/usr/bin/env python3
"""Speaks monolock's wire protocol, version 1, with nothing but the standard library.

    raw_client.py HOST PORT

Two clients want one lock. The first gets it, the second waits and is promoted when the first one closes, without
having asked. Every answer to a holder's heartbeat carries the token of its one grant, and the second token is larger.
"""

import socket
import struct
import sys

ACQUIRE, HEARTBEAT = 0x01, 0x02
WAITING, ACQUIRED, ERROR = 0x11, 0x12, 0x13
VERSION = 1


class Session:
    """One connection, which is one claim on one lock; closing it is the release."""

    def __init__(self, server, lock, lease_ms):
        name = lock.encode()
        self.connection = socket.create_connection(server, timeout=30)
        self.connection.sendall(struct.pack(">BBIH", ACQUIRE, VERSION, lease_ms, len(name)) + name)

    def heartbeat(self):
        self.connection.sendall(bytes([HEARTBEAT]))

    def receive(self):
        """The next frame: ("waiting",), ("acquired", token) or ("error", code, reason)."""
        (kind,) = self.read(1)
        if kind == WAITING:
            return ("waiting",)
        if kind == ACQUIRED:
            return ("acquired", *struct.unpack(">Q", self.read(8)))
        if kind == ERROR:
            code, length = self.read(2)
            return ("error", code, self.read(length).decode())
        raise ValueError(f"unknown message type 0x{kind:02x}")

    def read(self, length):
        received = b""
        while len(received) < length:
            part = self.connection.recv(length - len(received))
            if not part:
                raise EOFError("the server closed the connection")
            received += part
        return received

    def acquired(self):
        """Waits for the grant through any number of WAITING frames: a server that just started makes all wait."""
        while (frame := self.receive()) == ("waiting",):
            pass
        assert frame[0] == "acquired", frame
        return frame[1]


def main(host, port):
    server = (host, int(port))
    first = Session(server, "python/demo", 5000)
    first_token = first.acquired()
    second = Session(server, "python/demo", 5000)
    assert second.receive() == ("waiting",)

    for session, answer in [(first, ("acquired", first_token)), (second, ("waiting",))] * 3:
        session.heartbeat()
        assert session.receive() == answer
    print(f"first holds with token {first_token}, second waits")

    first.connection.close()
    kind, second_token = second.receive()
    assert kind == "acquired" and second_token > first_token, (kind, second_token, first_token)
    for _ in range(3):
        second.heartbeat()
        assert second.receive() == ("acquired", second_token)
    print(f"second was promoted with token {second_token}")


if __name__ == "__main__":
    main(*sys.argv[1:])
