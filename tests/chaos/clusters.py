"""Servers of PostgreSQL that a campaign may kill, starve and fill, and that are gone afterwards.

Knows a private cluster: `initdb` as the user postgres where we are root, the server as a child of this
process on a free port, its end by process id, small disks (tmpfs) for its tables and its journal.
Refuses to know what is asked of it.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

MEMORY = Path("/dev/shm")  # noqa: S108 - a new folder in it
DIRECT = "sslmode=disable&gssencmode=disable"
TABLES_MB, JOURNAL_MB = 96, 32
"""What the small disks hold; a new cluster with our schema needs 29 and 6."""


@dataclass
class Cluster:
    """A server of our own."""

    folder: Path
    bin: Path
    port: int
    settings: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def at(self) -> Path:
        """Its files."""
        return self.folder / "tables" / "at"

    def address(self, schema: str = "foldline", *, port: int = 0, pool: int = 8) -> str:
        """Where a store is."""
        base = f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres"
        return f"{base}?{DIRECT}&schema={schema}&pool={pool}"

    def owner(self) -> "psycopg.Connection[tuple[object, ...]]":
        """A connection beside the store."""
        base = f"postgresql://postgres@127.0.0.1:{self.port}/postgres?{DIRECT}"
        return psycopg.connect(base, autocommit=True, connect_timeout=5)

    def start(self) -> None:
        """Start, and wait until it answers."""
        given = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "32MB",
            "recovery_init_sync_method": "syncfs",  # not file by file, and there are thousands
            **self.settings,
        }
        command = [str(self.bin / "postgres"), "-D", str(self.at), "-p", str(self.port)]
        for name, value in given.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, user=_user(), stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        end = time.monotonic() + 60
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {self.said()}")
            time.sleep(0.03)

    def log(self) -> bytes:
        """What it says of itself."""
        return (self.folder / "log").read_bytes()

    def said(self) -> str:
        """The end of that."""
        return self.log()[-1_500:].decode(errors="replace")

    def answers(self) -> bool:
        """Whether it takes a connection."""
        try:
            self.owner().close()
        except psycopg.OperationalError:
            return False
        return True

    def is_up(self) -> bool:
        """Whether its first process lives."""
        return self.process is not None and self.process.poll() is None

    def children(self) -> list[int]:
        """The processes that it started."""
        if self.process is None:
            return []
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False  # noqa: S607
        ).stdout.split()  # fmt: skip
        return [int(one) for one in listed]

    def hold_journal(self, on: signal.Signals = signal.SIGSTOP) -> None:
        """Stop the process that writes the journal for those who do not wait for it; or let it go on."""
        for one in self.children():
            with contextlib.suppress(OSError):
                if b"walwriter" in Path(f"/proc/{one}/cmdline").read_bytes():
                    os.kill(one, on)
                    return
        if on is signal.SIGSTOP:
            raise RuntimeError(f"the server has no walwriter: {self.said()}")

    def kill(self) -> None:
        """Kill -9 the server and all its processes."""
        if self.process is None:
            return
        children = self.children()
        for one in (self.process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self.process.wait()
        end = time.monotonic() + 10
        while any(_lives(one) for one in children) and time.monotonic() < end:
            time.sleep(0.01)
        (self.at / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End it at once, its shared memory too; by force where it does not."""
        if self.process is None or self.process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            self.hold_journal(signal.SIGCONT)
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def setting(self, text: str) -> None:
        """A setting of the login that stores use; `reset …` takes it back."""
        with self.owner() as owner:
            owner.execute(f"alter role postgres {text}".encode())

    # Small disks.

    def disk(self, which: str) -> Path:
        """Where the tables or the journal are."""
        return self.folder / which

    def fill(self, which: str, *, leaving: int = 0) -> None:
        """A file that takes what is left of a small disk, but so many bytes."""
        ballast, block = self.disk(which) / "ballast", bytes(1 << 16)
        with ballast.open("ab", buffering=0) as file:
            with contextlib.suppress(OSError):  # no space left on device: that is what we want
                while file.write(block) == len(block):
                    pass
            file.truncate(max(0, file.tell() - leaving))

    def free(self, which: str) -> None:
        """Take that file away."""
        (self.disk(which) / "ballast").unlink(missing_ok=True)


def _user() -> str | None:
    return "postgres" if os.getuid() == 0 else None


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _program() -> Path:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        raise SystemExit("no PostgreSQL on this machine: install its server, then run this again")
    return programs[-1]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class NoDisk(Exception):  # noqa: N818 - it is what is said
    """No small disk can be mounted here."""


@contextmanager
def a_cluster(*, small: bool = False, memory: bool = False) -> Iterator[Cluster]:
    """A new server, gone afterwards; `small` puts its tables and its journal on small disks.

    In memory it starts again at once. What a kill leaves is the same there: a kill takes nothing
    away that was written, flushed or not.
    """
    with contextlib.ExitStack() as ending:
        where = MEMORY if memory and MEMORY.is_dir() else None
        folder = Path(tempfile.mkdtemp(prefix="foldline-chaos-", dir=where))
        ending.callback(shutil.rmtree, folder)
        kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
        ending.callback(lambda: [signal.signal(one, how) for one, how in kept.items()])
        for which, size in (("tables", TABLES_MB), ("journal", JOURNAL_MB)):
            (folder / which).mkdir()
            if small:
                _mount(folder / which, size)
                ending.callback(_unmount, folder / which)
            shutil.chown(folder / which, _owner())
        shutil.chown(folder, _owner())
        cluster = Cluster(folder, _program(), _free_port())
        more = []
        if small:
            more = ["--waldir", str(folder / "journal" / "at"), "--wal-segsize", "1"]
            # Without a checkpoint no segment is used again, so that a full disk is met.
            cluster.settings = {"max_wal_size": "1GB", "min_wal_size": "2MB",
                                "checkpoint_timeout": "1h"}  # fmt: skip
        subprocess.run(
            [str(cluster.bin / "initdb"), "-D", str(cluster.at), "-U", "postgres", "-A", "trust",
             "--no-sync", "--no-instructions", *more],
            check=True, user=_user(), stdout=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        ending.callback(cluster.stop)
        # Whoever is told to end while it tidies up would leave mounts behind.
        ending.callback(lambda: [signal.signal(one, signal.SIG_IGN) for one in kept])
        cluster.start()
        yield cluster


def _owner() -> int:
    return pwd.getpwnam("postgres").pw_uid if os.getuid() == 0 else os.getuid()


def _mount(where: Path, megabytes: int) -> None:
    given = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "foldline-chaos", str(where)]
    try:
        subprocess.run(given, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        raise NoDisk(f"no tmpfs can be mounted at {where}: run this as root") from fault


def _unmount(where: Path) -> None:
    for _ in range(50):
        if subprocess.run(["umount", str(where)], check=False, capture_output=True).returncode == 0:  # noqa: S607
            return
        time.sleep(0.1)
    subprocess.run(["umount", "--lazy", str(where)], check=True)  # noqa: S607
