# SPDX-License-Identifier: MIT
"""Purpose: whatever a server of the i-PI protocol does, `mlff serve` ends by itself or at a signal, with one line that says why and no
byte of the server's in it that a terminal would obey."""

import contextlib
import os
import random
import signal
import socket
import struct
import time
import unittest

import numpy as np
from ase import units
from ase.build import bulk, molecule

from test_serve import serve

NAN, INF = float("nan"), float("inf")
FORCES = 12 + 8 + 4 + 72 + 72 + 4  # bytes of an answer for three atoms


def positions(values, cell=(0.0,) * 9, n_atoms=None):
    values = np.ravel(values)
    n = len(values) // 3 if n_atoms is None else n_atoms
    return b"POSDATA     " + struct.pack("<9d", *cell) + b"\0" * 72 + struct.pack("<i", n) + struct.pack(f"<{len(values)}d", *values)


def initialize(n, text=b""):
    return b"INIT        " + struct.pack("<ii", 0, n) + text


WATER = molecule("H2O")
GOOD = positions(WATER.positions / units.Bohr)
TALK = b"STATUS      " + initialize(5, b"hello") + GOOD + b"STATUS      GETFORCE    "


class Hostile(unittest.TestCase):
    @contextlib.contextmanager
    def clients(self, name, n=1, atoms=WATER):
        """n clients, each with its connection."""
        path = f"/tmp/ipi_{name}-{os.getpid()}"
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener, contextlib.ExitStack() as stack:
            listener.bind(path)
            stack.callback(os.unlink, path)
            listener.listen(n)
            listener.settimeout(60)
            found = []
            for k in range(n):
                client = serve(f"{name}", atoms, "--unix", f"{name}-{os.getpid()}")
                stack.callback(client.communicate)
                stack.callback(client.kill)
                connection = stack.enter_context(contextlib.closing(listener.accept()[0]))
                connection.settimeout(60)
                found.append((client, connection))
            yield found

    def ended(self, client, statuses, words="^"):
        out, err = client.communicate(timeout=120)
        self.assertIn(client.returncode, statuses, err)
        self.assertEqual(err.count("\n"), 0 if client.returncode == 0 else 1, err)
        self.assertTrue(all(c.isprintable() or c == "\n" for c in err), ascii(err))
        self.assertRegex(err, words)
        return out

    def test_the_server_leaves_at_any_byte(self):
        whole = {0}  # bytes after which a message has ended
        for part in (b"STATUS      ", initialize(5, b"hello"), GOOD, b"STATUS      ", b"GETFORCE    "):
            whole.add(max(whole) + len(part))
        self.assertEqual(max(whole), len(TALK))
        for first in range(0, len(TALK) + 1, 32):
            cuts = range(first, min(first + 32, len(TALK) + 1))
            with self.clients("cut", len(cuts)) as found:
                for n, (_, connection) in zip(cuts, found):
                    connection.sendall(TALK[:n])
                    connection.shutdown(socket.SHUT_WR)
                for n, (client, _) in zip(cuts, found):
                    with self.subTest(n=n):
                        self.ended(client, {0 if n in whole else 1}, "^$" if n in whole else "closed in the middle of a message")

    def test_the_server_leaves_before_the_answer(self):
        with self.clients("early") as ((client, connection),):
            connection.sendall(TALK)
            connection.close()  # what it has not read makes the client's answer fail
            self.ended(client, {0, 1}, "^$|server")

    def test_byte_by_byte(self):
        with self.clients("slow") as ((client, connection),):
            for k in range(len(TALK)):
                connection.sendall(TALK[k : k + 1])
                if k % 16 == 0:
                    time.sleep(0.01)
            answer = b""
            while len(answer) < 24 + FORCES:
                answer += connection.recv(7)
            self.assertEqual(answer[:36], b"NEEDINIT    HAVEDATA    FORCEREADY  ")
            self.assertTrue(np.isfinite(struct.unpack("<d", answer[36:44])[0]))
            connection.sendall(b"EXIT        ")
            self.assertIn("1 step in ", self.ended(client, {0}))

    def test_counts(self):
        for n in (0, -1, 2, 4, 2**31 - 1, -(2**31)):
            with self.subTest(n_atoms=n), self.clients("atoms") as ((client, connection),):
                connection.sendall(positions([0.0] * 9, n_atoms=n))
                self.ended(client, {1}, f"sent {n} atoms, the input file has 3")
        for n in (-1, 2**20 + 1, 2**31 - 1, -(2**31)):
            with self.subTest(init=n), self.clients("init") as ((client, connection),):
                connection.sendall(initialize(n))
                self.ended(client, {1}, f"announces {n} bytes of INIT")
        with self.clients("largest") as ((client, connection),):
            connection.sendall(initialize(2**20, b"\x1b" * 2**20) + b"STATUS      EXIT        ")
            self.assertEqual(connection.recv(12), b"READY       ")
            self.ended(client, {0})

    def test_positions(self):
        for value in (NAN, INF, -INF, 1e300, -1e308):
            with self.subTest(value=value), self.clients("wild") as ((client, connection),):
                connection.sendall(positions([0, 0, 0, 0, 0, value, 0, 2, 0]))
                self.ended(client, {1}, "atom 1")

    def test_cells(self):
        atoms = bulk("Si", cubic=True)
        cell = np.ravel(atoms.cell[:].T) / units.Bohr
        for name, wrong in (("nan", cell * NAN), ("inf", cell * INF), ("zero", cell * 0), ("huge", cell * 1e300), ("tiny", cell * 1e-300),
                            ("dense", cell * 1e-3), ("flat", np.where(np.arange(9) == 8, 0, cell))):  # fmt: skip
            with self.subTest(name), self.clients("cell", atoms=atoms) as ((client, connection),):
                connection.sendall(positions(atoms.positions / units.Bohr, wrong))
                self.ended(client, {1}, "cell|repeats")

    def test_words(self):
        for word in (b"\x1b[2J\x1b[31mred", b"\0" * 12, b"\n" * 12, b"\xff" * 12, b"status      ", b"STATUS\0\0\0\0\0\0", b"%s%n%s%n%s%n", b"GET / HTTP/1"):
            with self.subTest(word), self.clients("word") as ((client, connection),):
                connection.sendall(word)
                self.ended(client, {1}, "is not a message of the i-PI protocol")

    def test_random_bytes(self):
        chance = random.Random(1)
        pieces = (b"STATUS      ", initialize(0), GOOD, b"GETFORCE    ", b"EXIT        ", b"POSDATA     ", b"INIT        ")
        with self.clients("random", 40) as found:
            for _, connection in found:
                text = b"".join(chance.choice(pieces) for _ in range(6))
                at = chance.randrange(len(text))
                text = text[:at] + bytes(chance.randrange(256) for _ in range(chance.randrange(20))) + text[at:]
                with contextlib.suppress(OSError):  # it may have left
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
            for client, _ in found:
                self.ended(client, {0, 1})

    def test_signals(self):
        for name, sent in (("nothing", b""), ("message", b"STAT"), ("init", initialize(1000, b"x")), ("positions", GOOD[:100]), ("data", GOOD)):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(name, signal=number), self.clients("signal") as ((client, connection),):
                    connection.sendall(sent)
                    if name == "data":
                        connection.sendall(b"STATUS      ")
                        connection.recv(12)
                    else:
                        time.sleep(0.3)  # until it waits for more
                    client.send_signal(number)
                    self.ended(client, {130}, "interrupted")


if __name__ == "__main__":
    unittest.main()
