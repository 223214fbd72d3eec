#!/bin/sh
# Make .venv hold exactly what requirements.lock names, and this project. PYTHON chooses the Python for a new one.
set -eu

new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

if ! .venv/bin/python -c "$new_enough" 2>/dev/null; then
    chosen=
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if "$candidate" -c "$new_enough" 2>/dev/null; then
            chosen=$candidate
            break
        fi
    done
    if [ -z "$chosen" ]; then
        echo "HyperGrid needs Python 3.11 or newer; none of these is: ${PYTHON:-python3.13 python3.12 python3.11 python3}." \
            "Install one, or name it: make setup PYTHON=/path/to/python3" >&2
        exit 1
    fi
    rm -rf .venv
    # uv needs no ensurepip, which some systems keep in a package of its own.
    if command -v uv >/dev/null; then uv venv --quiet --python "$chosen" .venv; else "$chosen" -m venv .venv; fi
fi

# The lines of the lock that belong to the packages named.
locked() {
    awk -v names=" $* " '/^[a-z0-9]/ { split($1, part, "=="); on = index(names, " " part[1] " ") } on' requirements.lock
}

python=.venv/bin/python
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    locked uv >.venv/uv.txt
    if "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/uv.txt; then
        uv=.venv/bin/uv
    fi
fi

if [ -n "$uv" ]; then
    # What builds a source distribution is locked too.
    "$uv" pip sync --python "$python" --compile-bytecode --require-hashes --build-constraint requirements.lock requirements.lock
    "$uv" pip install --quiet --python "$python" --no-deps --no-build-isolation --offline --editable .
else
    # pip builds source distributions with what is installed: so the locked builder comes first.
    locked pip setuptools >.venv/builders.txt
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/builders.txt
    "$python" -m pip install --require-hashes --no-build-isolation -r requirements.lock
    "$python" -m pip install --quiet --no-deps --no-build-isolation --no-index --editable .
fi

# Where the environment forbids Python to write bytecode, each start would compile all that it imports, for a second or two.
"$python" -m compileall -q hypergrid ingest queries station_data viz
