"""The proof that a server can hold checkpoints: of many concurrent creates of one object, exactly
one wins, and its bytes are what is stored. Some servers and versions look first and write then.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from resurgence.storage.object_store import ObjectStore
from tests.servers.builds import NoServer

CREATES = 64
_ROUNDS = 3


def require_atomic_create(store: ObjectStore) -> None:
    """Raise NoServer if a create is not atomic."""
    for number in range(_ROUNDS):
        ready = threading.Barrier(CREATES)

        def create(
            writer: int, path: str = f"proof-{number}", ready: threading.Barrier = ready
        ) -> bool:
            ready.wait(30)
            return store.create(path, str(writer).encode())

        with ThreadPoolExecutor(CREATES) as pool:
            won = [writer for writer, ok in enumerate(pool.map(create, range(CREATES))) if ok]
        stored = store.read(f"proof-{number}").decode()
        if len(won) != 1 or stored != str(won[0]):
            raise NoServer(
                f"{len(won)} of {CREATES} concurrent creates of one object succeeded: the server's"
                " conditional create is not atomic"
            )
