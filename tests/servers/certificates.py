"""A certificate authority of the tests' own, and certificates for a server on loopback and a client."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.builds import NoServer

_DEADLINE = 30.0
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Certificates:
    """PEM files."""

    ca_file: Path
    server_file: Path
    """The server's private key and its certificate."""
    client_file: Path
    """The same of a client."""


def make_certificates(folder: Path) -> Certificates:
    """Write the files into a folder; NoServer if there is no openssl."""
    if shutil.which("openssl") is None:
        raise NoServer("certificates cannot be made: there is no openssl")
    ca, ca_key = str(folder / "ca.pem"), str(folder / "ca.key")
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", ca_key, "-out", ca, *_days(), *_name("Tests CA"))
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    authority = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", str(names)]
    server, client = (
        _key_and_certificate(folder, name, authority) for name in ("localhost", "client")
    )
    return Certificates(Path(ca), server, client)


def _key_and_certificate(folder: Path, name: str, authority: list[str]) -> Path:
    key, request, certificate = (str(folder / f"{name}.{each}") for each in ("key", "csr", "crt"))
    _openssl("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, *_name(name))
    _openssl("x509", "-req", "-in", request, "-out", certificate, *authority, *_days())
    both = folder / f"{name}.pem"
    both.write_text(Path(key).read_text() + Path(certificate).read_text())
    return both


def _days() -> list[str]:
    return ["-days", "3"]


def _name(common_name: str) -> list[str]:
    return ["-subj", f"/CN={common_name}"]


def _openssl(*arguments: str) -> None:
    try:
        subprocess.run(
            ["openssl", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_DEADLINE,
        )
    except (OSError, subprocess.SubprocessError) as error:
        text = getattr(error, "stderr", None) or b""
        raise NoServer(f"openssl {arguments[0]}: {text.decode(errors='replace')}") from error
